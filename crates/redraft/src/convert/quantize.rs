//! Writes a model file with its matrices in another block type.

use std::io::Write;

use redraft_gguf::{DType, Gguf, GgufError, GgufWriter, TensorInfo, codec};

use crate::Error;

/// Which tensor gets which type.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Type of the matrices. Rows that do not divide into its blocks take the next type of 32-blocks.
    pub matrices: DType,
    /// Type of the token embedding, which is the output head too; none takes that of the matrices.
    pub token_embd: Option<DType>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Tensors by type, in the order of first use.
    pub types: Vec<(DType, usize)>,
}

/// `general.file_type` by the type of most matrices, as llama.cpp numbers them.
const FILE_TYPES: &[(DType, u32)] = &[
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::Q4_0, 2),
    (DType::Q8_0, 7),
    (DType::Q5_0, 8),
    (DType::Q5_1, 9),
    (DType::Q4_K, 15),
    (DType::Q5_K, 17),
    (DType::Q6_K, 18),
    (DType::BF16, 32),
];

impl Recipe {
    /// Type of a tensor. Vectors and routers keep theirs: they are small, and a router picks experts by small
    /// differences.
    fn dtype(&self, t: &TensorInfo) -> DType {
        if t.dims.len() < 2 || t.name.ends_with("ffn_gate_inp.weight") {
            return t.dtype;
        }
        let wanted = match self.token_embd {
            Some(d) if t.name == "token_embd.weight" => d,
            _ => self.matrices,
        };
        let fits = |d: DType| d.info().is_some_and(|i| t.row_len().is_multiple_of(i.block_len as u64));
        if fits(wanted) {
            return wanted;
        }
        let fallback = match wanted {
            DType::Q4_K => DType::Q5_0,
            DType::Q5_K => DType::Q5_1,
            _ => DType::Q8_0,
        };
        if fits(fallback) { fallback } else { DType::F16 }
    }
}

/// Writes `gguf` to `out` with the types of `recipe`, decoding and encoding each tensor that changes.
///
/// # Errors
/// A type that cannot be decoded or encoded, naming the tensor; those of writing.
pub fn quantize<W: Write>(gguf: &Gguf, recipe: &Recipe, out: W) -> Result<Summary, Error> {
    let mut metadata = gguf.metadata().clone();
    if let Some((_, id)) = FILE_TYPES.iter().find(|(d, _)| *d == recipe.matrices) {
        metadata.set("general.file_type", *id);
    }
    metadata.set("general.quantization_version", 2u32);
    let mut writer = GgufWriter::with_metadata(metadata);
    let mut types: Vec<(DType, usize)> = Vec::new();
    for t in gguf.tensors() {
        let to = recipe.dtype(t);
        writer.add_tensor(&t.name, &t.dims, to)?;
        match types.iter_mut().find(|(d, _)| *d == to) {
            Some((_, n)) => *n += 1,
            None => types.push((to, 1)),
        }
    }
    let mut counted = Counted { out, bytes: 0 };
    let mut data = writer.begin(&mut counted)?;
    for t in gguf.tensors() {
        let (from, to) = (gguf.tensor_bytes(t), recipe.dtype(t));
        data.start_tensor(&t.name)?;
        if to == t.dtype {
            data.write(&from)?;
        } else {
            encode(t, &from, to, &mut |bytes| data.write(bytes))?;
        }
        data.end_tensor()?;
    }
    data.finish()?;
    Ok(Summary { bytes: counted.bytes, types })
}

/// Decodes and encodes row by row, so that memory does not grow with the tensor.
fn encode(
    t: &TensorInfo,
    from: &[u8],
    to: DType,
    write: &mut dyn FnMut(&[u8]) -> Result<(), GgufError>,
) -> Result<(), Error> {
    let unusable = |d: DType| Error::Weights { problems: vec![format!("{}: no codec for {}", t.name, d.name())] };
    let (decoder, encoder) = (codec(t.dtype).ok_or(unusable(t.dtype))?, codec(to).ok_or(unusable(to))?);
    let len = t.row_len();
    let bytes = |d: DType| d.row_bytes(len).map(|n| n as usize).ok_or(unusable(d));
    let mut values = vec![0.0; len as usize];
    let mut row = vec![0; bytes(to)?];
    for source in from.chunks_exact(bytes(t.dtype)?) {
        decoder.dequantize(source, &mut values);
        encoder.quantize(&values, None, &mut row);
        write(&row)?;
    }
    Ok(())
}

struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(buf)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
