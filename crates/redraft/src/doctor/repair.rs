//! Writes a copy of a file with corrected metadata.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use redraft_gguf::{Gguf, GgufError, GgufWriter, Metadata};

use crate::Error;
use crate::partial::Partial;

/// Bytes that are copied at a time.
const CHUNK: usize = 4 << 20;

/// A file and its corrected metadata.
#[derive(Debug)]
pub struct Repair {
    gguf: Gguf,
    metadata: Metadata,
}

impl Repair {
    pub(super) fn new(gguf: &Gguf, mut metadata: Metadata) -> Repair {
        // The copy of a split model is one file.
        ["split.no", "split.count", "split.tensors.count"].iter().for_each(|key| _ = metadata.remove(key));
        Repair { gguf: gguf.clone(), metadata }
    }

    /// The file with corrected metadata, in memory.
    pub fn fixed(&self) -> Gguf {
        self.gguf.with_metadata(self.metadata.clone())
    }

    /// Writes the copy; tensors are copied as they are. The file appears under its name when it is complete, and none
    /// is left when something goes wrong. `progress` gets bytes done and bytes in all of the tensors, and stops the
    /// writing by returning `false`.
    ///
    /// # Errors
    /// [`Error::Io`] when `path` is one of the files that are copied, when something is there without `replace`,
    /// when the disk is too small or writing fails; [`Error::Interrupted`]; [`Error::Gguf`] for a tensor that cannot be
    /// written, or when an input is cut short meanwhile.
    pub fn write(
        &self,
        path: &Path,
        replace: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        if let Ok(there) = path.canonicalize() {
            let inputs = self.gguf.files().iter().filter_map(|f| f.path.as_ref()?.canonicalize().ok());
            if inputs.into_iter().any(|input| input == there) {
                let why = "is the input: write to another file";
                return Err(fail(io::Error::new(ErrorKind::AlreadyExists, why)));
            }
        }
        let total = self.gguf.tensors().iter().fold(0u64, |sum, t| sum.saturating_add(t.n_bytes));
        let partial = Partial::create(path, replace, total).map_err(fail)?;
        self.stream(BufWriter::new(&partial.file), total, progress).map_err(|e| match e {
            Error::Gguf(GgufError::Write { source }) => fail(source),
            e => e,
        })?;
        partial.finish().map_err(fail)
    }

    fn stream<W: Write>(
        &self,
        out: W,
        total: u64,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        let mut writer = GgufWriter::with_metadata(self.metadata.clone());
        for t in self.gguf.tensors() {
            writer.add_raw_tensor(&t.name, &t.dims, t.dtype, t.n_bytes)?;
        }
        let mut data = writer.begin(out)?;
        let mut done = 0u64;
        for t in self.gguf.tensors() {
            data.start_tensor(&t.name)?;
            for chunk in self.gguf.tensor_bytes(t).chunks(CHUNK) {
                data.write(chunk)?;
                done = done.saturating_add(chunk.len() as u64);
                if !progress(done, total) {
                    return Err(Error::Interrupted);
                }
            }
            data.end_tensor()?;
        }
        // What was read from a file that became shorter is not what it says.
        self.gguf.check()?;
        let mut out = data.finish()?;
        out.flush().map_err(GgufError::from)?;
        Ok(())
    }
}
