//! Writes a model file with its matrices in another block type.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use redraft_gguf::{BlockCodec, DType, Encoder, Gguf, GgufError, GgufWriter, Metadata, TensorInfo, codec};

use super::Recipe;
use crate::Error;
use crate::importance::Importance;
use crate::partial::Partial;

/// Weights that one thread encodes at a time, as whole rows. Sums of errors are made over as many, so that they do not
/// depend on the number of threads.
const CHUNK_WEIGHTS: u64 = 1 << 18;

/// Bytes that are copied, or collected from small tensors, at a time.
const COPY_BYTES: usize = 4 << 20;

/// A file to be written: which tensor gets which type.
#[derive(Debug)]
pub struct QuantizePlan<'a> {
    gguf: &'a Gguf,
    importance: Option<&'a Importance>,
    writer: GgufWriter,
    tensors: Vec<Planned>,
    bytes: u64,
}

/// A tensor of a [`QuantizePlan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// The type that it has.
    pub from: DType,
    /// The type that it gets.
    pub to: DType,
    /// Bytes of its data before.
    pub bytes_before: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// Whether there are importance data for it.
    pub has_importance: bool,
}

/// What encoding changed in a tensor. Numbers that are not finite make both infinite or NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    /// Root of the mean squared difference to the tensor before.
    pub rmse: f64,
    /// The same in parts of the root of the tensor's mean square; 0 for a tensor of zeros that stayed so.
    pub relative: f64,
}

/// Sums of the squares of differences and of values.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    differences: f64,
    values: f64,
    /// The first value that the type cannot hold, or that is none.
    lost: Option<f32>,
}

impl<'a> QuantizePlan<'a> {
    /// Plans the file that `recipe` makes of `gguf`. The files of a split model become one.
    ///
    /// # Errors
    /// Patterns of the recipe that fit no matrix, types that cannot hold a row, tensors that cannot be decoded, and
    /// importance data of another size.
    pub fn new(
        gguf: &'a Gguf,
        recipe: &Recipe,
        importance: Option<&'a Importance>,
    ) -> Result<QuantizePlan<'a>, Error> {
        let mut writer = GgufWriter::with_metadata(metadata(gguf, recipe));
        let mut tensors = Vec::new();
        let mut problems = Vec::new();
        for (t, to) in gguf.tensors().iter().zip(recipe.dtypes(gguf, importance.is_some())?) {
            let same = to == t.dtype;
            match same {
                true => writer.add_raw_tensor(&t.name, &t.dims, to, t.n_bytes)?,
                false => writer.add_tensor(&t.name, &t.dims, to)?,
            }
            let weights = importance.filter(|_| !same).map_or(Ok(None), |i| i.of(t));
            let bytes = match same {
                true => Some(t.n_bytes),
                false => to.row_bytes(t.row_len()).and_then(|n| n.checked_mul(t.n_rows())),
            };
            match (weights, bytes) {
                (Err(problem), _) => problems.push(problem),
                (Ok(weights), Some(bytes)) => tensors.push(Planned {
                    name: t.name.clone(),
                    from: t.dtype,
                    to,
                    bytes_before: t.n_bytes,
                    bytes,
                    has_importance: weights.is_some(),
                }),
                (Ok(_), None) => problems.push(format!("{}: {to} cannot hold its rows", t.name)),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Weights { problems });
        }
        let mut header = Counted(0);
        writer.clone().begin(&mut header)?;
        let alignment = writer.metadata().opt_u64("general.alignment")?;
        let alignment = alignment.unwrap_or(redraft_gguf::limits::DEFAULT_ALIGNMENT);
        let data = tensors.iter().map(|t| t.bytes.next_multiple_of(alignment)).sum::<u64>();
        Ok(QuantizePlan { gguf, importance, writer, tensors, bytes: header.0 + data })
    }

    /// The tensors in the order of the file.
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// Length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of tensors by type, in the order of first use.
    pub fn types(&self) -> Vec<(DType, usize)> {
        let mut types: Vec<(DType, usize)> = Vec::new();
        for t in &self.tensors {
            match types.iter_mut().find(|(d, _)| *d == t.to) {
                Some((_, n)) => *n += 1,
                None => types.push((t.to, 1)),
            }
        }
        types
    }

    /// Writes the file to `path`; with `replace` it takes the place of what is there. It appears under its name when it is
    /// complete; until then it is called `path` with `.partial` added, and that file is removed whatever goes wrong.
    ///
    /// # Errors
    /// Those of [`write`](Self::write); [`Error::Io`] with the path, of kind `AlreadyExists` or, where there is not enough
    /// room, `StorageFull` before anything is written.
    pub fn write_file(
        &self,
        path: &Path,
        replace: bool,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<Option<Errors>>, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let partial = Partial::create(path, replace, self.bytes).map_err(io)?;
        let out = BufWriter::with_capacity(COPY_BYTES, &partial.file);
        let errors = self.write(out, threads, progress).map_err(|e| match e {
            Error::Gguf(GgufError::Write { source }) => io(source),
            e => e,
        })?;
        partial.finish().map_err(io)?;
        Ok(errors)
    }

    /// Writes the file to `out`, decoding and encoding each tensor that changes in chunks of rows, on `threads`
    /// threads. The bytes do not depend on their number. `progress` gets bytes of tensors that were read and bytes
    /// in all, and stops the writing by returning `false`. The result is one entry per tensor, `None` for copied ones.
    ///
    /// # Errors
    /// Those of writing; [`Error::Interrupted`]; a file that was cut short meanwhile.
    pub fn write<W: Write>(
        &self,
        out: W,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<Option<Errors>>, Error> {
        let total = self.tensors.iter().map(|t| t.bytes_before).sum();
        let mut done = 0;
        let mut out = self.writer.clone().begin(out)?;
        let mut errors = Vec::with_capacity(self.tensors.len());
        for (t, planned) in self.gguf.tensors().iter().zip(&self.tensors) {
            let from = self.gguf.tensor_bytes(t);
            out.start_tensor(&t.name)?;
            let mut write = |bytes: &[u8], read: usize| -> Result<(), Error> {
                out.write(bytes)?;
                done += read as u64;
                if progress(done, total) { Ok(()) } else { Err(Error::Interrupted) }
            };
            errors.push(if planned.to == t.dtype {
                from.chunks(COPY_BYTES).try_for_each(|c| write(c, c.len()))?;
                None
            } else {
                let weights = self.importance.map_or(Ok(None), |i| i.of(t));
                let weights = weights.map_err(|problem| Error::Weights { problems: vec![problem] })?;
                Some(encode(t, &from, planned.to, weights, threads, &mut write)?)
            });
            out.end_tensor()?;
        }
        // What was read from a file that became shorter is not what it says.
        self.gguf.check()?;
        out.finish()?;
        Ok(errors)
    }
}

/// Metadata of the new file: it says what its matrices are, and nothing of the files of a split model.
fn metadata(gguf: &Gguf, recipe: &Recipe) -> Metadata {
    let mut metadata = gguf.metadata().clone();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        metadata.remove(key);
    }
    if let Some(id) = recipe.file_type_id() {
        metadata.set("general.file_type", id);
    }
    metadata.set("general.quantization_version", 2u32);
    metadata
}

/// Decodes and encodes a piece of rows after the other, so that memory does not grow with the tensor.
fn encode(
    t: &TensorInfo,
    from: &[u8],
    to: DType,
    weights: Option<&[f32]>,
    threads: usize,
    mut write: impl FnMut(&[u8], usize) -> Result<(), Error>,
) -> Result<Errors, Error> {
    let unusable =
        |d: DType, what: &str| Error::Weights { problems: vec![format!("{}: {d} cannot be {what}", t.name)] };
    let decoder = codec(t.dtype).ok_or_else(|| unusable(t.dtype, "read"))?;
    let target = codec(to).ok_or_else(|| unusable(to, "written"))?;
    let encoder = target.encoder().ok_or_else(|| unusable(to, "written"))?;
    let mut sums = Sums::default();
    // A tensor without rows may claim rows of any length.
    if !from.is_empty() {
        let len = t.row_len();
        let bytes =
            |d: DType| d.row_bytes(len).map(|n| n as usize).ok_or_else(|| unusable(d, "cut into such rows"));
        let rows = Rows {
            decoder,
            target,
            encoder,
            len: len as usize,
            bytes: (bytes(t.dtype)?, bytes(to)?),
            weights,
            per_matrix: t.dims.get(1).copied().unwrap_or(1).max(1) as usize,
        };
        let per_chunk = (CHUNK_WEIGHTS / len.max(1)).max(1) as usize;
        let mut buffer = Vec::new();
        let mut first = 0;
        for piece in from.chunks((rows.bytes.0 * per_chunk).saturating_mul(threads.max(1))) {
            let n = piece.len() / rows.bytes.0;
            buffer.resize(n * rows.bytes.1, 0);
            let chunks =
                piece.chunks(rows.bytes.0 * per_chunk).zip(buffer.chunks_mut(rows.bytes.1 * per_chunk));
            let chunks = chunks.enumerate().map(|(i, (src, dst))| (first + i * per_chunk, src, dst));
            for part in rows.encode_all(chunks.collect()) {
                sums.differences += part.differences;
                sums.values += part.values;
                if let Some(x) = part.lost {
                    let why = if x.is_finite() {
                        format!("too large for {to}")
                    } else {
                        "the file is damaged".into()
                    };
                    let problems = vec![format!("{}: has the value {x}: {why}", t.name)];
                    return Err(Error::Weights { problems });
                }
            }
            write(&buffer, piece.len())?;
            first += n;
        }
    }
    let n = t.n_elements().max(1) as f64;
    let ratio = sums.differences / sums.values;
    let relative = if sums.differences == 0.0 { 0.0 } else { ratio.sqrt() };
    Ok(Errors { rmse: (sums.differences / n).sqrt(), relative })
}

/// Up to this value the scale of a block, which is an f16 in most types, holds any value: the largest f16.
const LARGE: f32 = 65_504.0;

/// A value of a row that is none, or the largest one where its type cannot hold it: where `back` has something else in its
/// place.
fn lost(values: &[f32], back: &[f32]) -> Option<f32> {
    if let Some(&x) = values.iter().find(|x| !x.is_finite()) {
        return Some(x);
    }
    let (x, y) = values.iter().zip(back).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let held = (y - x).abs() <= x.abs() / 4.0;
    (x.abs() > LARGE && !held).then_some(*x)
}

/// How rows of one tensor are read and written.
struct Rows<'a> {
    decoder: &'static dyn BlockCodec,
    target: &'static dyn BlockCodec,
    encoder: Encoder,
    /// Weights of a row.
    len: usize,
    /// Bytes of a row before and after.
    bytes: (usize, usize),
    /// `[matrices][inputs]`.
    weights: Option<&'a [f32]>,
    /// Rows of a matrix.
    per_matrix: usize,
}

impl Rows<'_> {
    /// Encodes chunks, each with the number of its first row, on a thread each but for the last, which has this one, as
    /// have those for which the system has no thread.
    fn encode_all(&self, chunks: Vec<(usize, &[u8], &mut [u8])>) -> Vec<Sums> {
        let n = chunks.len();
        let chunks: Vec<Mutex<_>> = chunks.into_iter().map(|chunk| Mutex::new(Some(chunk))).collect();
        // A chunk is taken once, by its thread or below.
        let work = |i: usize| {
            let chunk = chunks[i].lock().unwrap_or_else(PoisonError::into_inner).take();
            chunk.map_or_else(Sums::default, |(first, src, dst)| self.encode(first, src, dst))
        };
        let work = &work;
        std::thread::scope(|scope| {
            let start = |i| std::thread::Builder::new().spawn_scoped(scope, move || work(i)).ok();
            let others: Vec<_> = (0..n.saturating_sub(1)).map(start).collect();
            let last = (n > 0).then(|| work(n - 1));
            let join = |(i, h): (usize, Option<std::thread::ScopedJoinHandle<'_, Sums>>)| match h {
                Some(h) => h.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                None => work(i),
            };
            others.into_iter().enumerate().map(join).chain(last).collect()
        })
    }

    fn encode(&self, first: usize, src: &[u8], dst: &mut [u8]) -> Sums {
        let (mut values, mut back) = (vec![0.0; self.len], vec![0.0; self.len]);
        let mut sums = Sums::default();
        let rows = src.chunks_exact(self.bytes.0).zip(dst.chunks_exact_mut(self.bytes.1));
        for (i, (src, dst)) in rows.enumerate() {
            let matrix = (first + i) / self.per_matrix;
            let weights = self.weights.map(|w| &w[matrix * self.len..(matrix + 1) * self.len]);
            self.decoder.dequantize(src, &mut values);
            self.encoder.quantize(&values, weights, dst);
            self.target.dequantize(dst, &mut back);
            sums.lost = sums.lost.or(lost(&values, &back));
            for (&x, &y) in values.iter().zip(&back) {
                let (x, y) = (f64::from(x), f64::from(y));
                sums.differences += (x - y) * (x - y);
                sums.values += x * x;
            }
        }
        sums
    }
}

/// Counts what is written to it.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix, a matrix with odd rows, a router, a vector, and a tensor of a type nobody can decode.
    #[test]
    fn matrices_change_and_everything_else_is_copied() {
        let values: Vec<f32> = (0..512).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let bytes = |n: usize| -> Vec<u8> { values[..n].iter().flat_map(|x| x.to_le_bytes()).collect() };
        let mut w = GgufWriter::new();
        w.metadata_mut().set("general.architecture", "any");
        let plan: [(&str, &[u64]); 4] = [
            ("a.weight", &[256, 2]),
            ("b.weight", &[32, 3]),
            ("ffn_gate_inp.weight", &[256, 2]),
            ("n.weight", &[256]),
        ];
        for (name, dims) in plan {
            w.add_tensor(name, dims, DType::F32).unwrap();
        }
        w.add_raw_tensor("odd", &[5], DType(99), 7).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        for (name, dims) in plan {
            out.write_tensor(name, &bytes(dims.iter().product::<u64>() as usize)).unwrap();
        }
        out.write_tensor("odd", b"sevenby").unwrap();
        let input = Gguf::from_bytes(out.finish().unwrap().into()).unwrap();

        let mut written = Vec::new();
        let pure = Recipe::pure(DType::Q4_K).unwrap();
        let e = QuantizePlan::new(&input, &pure, None).unwrap_err().to_string();
        assert!(e.contains("b.weight: Q4_K cannot hold rows of 32") && !e.contains("a.weight"), "{e}");
        let e = QuantizePlan::new(&input, &pure.with_token_embd(DType::F16).unwrap(), None)
            .unwrap_err()
            .to_string();
        assert!(e.contains("no tensor token_embd.weight"), "{e}");
        let recipe = Recipe::from_name("q4_k_m").unwrap();
        let plan = QuantizePlan::new(&input, &recipe, None).unwrap();
        let errors = plan.write(&mut written, 2, &mut |_, _| true).unwrap();
        assert_eq!(plan.bytes(), written.len() as u64);
        assert_eq!(plan.types()[0], (DType::Q4_K, 1));
        let g = Gguf::from_bytes(written.into()).unwrap();
        let dtype = |name: &str| g.tensor(name).unwrap().dtype;
        assert_eq!((dtype("a.weight"), dtype("b.weight")), (DType::Q4_K, DType::Q5_0));
        for name in ["ffn_gate_inp.weight", "n.weight", "odd"] {
            let (a, b) = (input.tensor(name).unwrap(), g.tensor(name).unwrap());
            assert_eq!(a.dtype, b.dtype, "{name}");
            assert_eq!(input.tensor_bytes(a)[..7], g.tensor_bytes(b)[..7], "{name}");
        }
        assert_eq!(g.metadata().u32("general.file_type").unwrap(), 15);
        let mut back = vec![0.0; 512];
        codec(DType::Q4_K).unwrap().dequantize(&g.tensor_bytes(g.tensor("a.weight").unwrap()), &mut back);
        let squares = |x: &[f32]| x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        let differences: Vec<f32> = back.iter().zip(&values).map(|(a, b)| b - a).collect();
        let found = errors[0].unwrap();
        assert!((found.rmse / (squares(&differences) / 512.0).sqrt() - 1.0).abs() < 1e-6, "{found:?}");
        let relative = (squares(&differences) / squares(&values)).sqrt();
        assert!((found.relative / relative - 1.0).abs() < 1e-6, "{found:?}");
        assert_eq!(errors.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false, false]);
        let worst = back.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            worst < 2.0 / 15.0,
            "half a step of sixteen levels over the range, with room for the scales: {worst}"
        );
    }

    /// A stack of two matrices with more rows than a chunk has.
    fn stack() -> Gguf {
        let mut w = GgufWriter::new();
        w.metadata_mut().set("split.count", 1u16);
        w.add_tensor("s.weight", &[256, 1500, 2], DType::F16).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        let half = |i: u32| redraft_gguf::f32_to_f16((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8);
        let bytes: Vec<u8> = (0..256 * 3000).flat_map(|i| half(i).to_le_bytes()).collect();
        out.write_tensor("s.weight", &bytes).unwrap();
        Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
    }

    /// The first matrix only looks at column 3, the second only at column 200.
    fn importance() -> Importance {
        let mut sums = vec![0f32; 512];
        (sums[3], sums[256 + 200]) = (1.0, 1.0);
        let mut w = GgufWriter::new();
        w.metadata_mut().set("general.type", "imatrix");
        w.add_tensor("s.weight.in_sum2", &[256, 2], DType::F32).unwrap();
        w.add_tensor("s.weight.counts", &[1, 2], DType::F32).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        out.write_tensor("s.weight.in_sum2", &bytes(&sums)).unwrap();
        out.write_tensor("s.weight.counts", &bytes(&[1.0, 1.0])).unwrap();
        Importance::from_gguf(&Gguf::from_bytes(out.finish().unwrap().into()).unwrap()).unwrap()
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (input, importance) = (stack(), importance());
        let recipe = Recipe::pure(DType::Q4_K).unwrap();
        let write = |threads: usize| {
            let mut out = Vec::new();
            let plan = QuantizePlan::new(&input, &recipe, Some(&importance)).unwrap();
            assert!(plan.tensors()[0].has_importance);
            let errors = plan.write(&mut out, threads, &mut |_, _| true).unwrap();
            (out, errors)
        };
        let one = write(1);
        assert!([2, 3, 7].iter().all(|&n| write(n) == one));
        let g = Gguf::from_bytes(one.0.into()).unwrap();
        assert!(!g.metadata().contains("split.count"));
    }

    /// Squared errors by matrix and column: that of the column that matters shrinks, and only in its matrix.
    #[test]
    fn each_matrix_of_a_stack_has_its_own_importance() {
        let (input, importance) = (stack(), importance());
        let recipe = Recipe::pure(DType::Q4_K).unwrap();
        let decode = |g: &Gguf| {
            let t = g.tensor("s.weight").unwrap();
            let mut x = vec![0.0; t.n_elements() as usize];
            codec(t.dtype).unwrap().dequantize(&g.tensor_bytes(t), &mut x);
            x
        };
        let truth = decode(&input);
        let errors = |importance: Option<&Importance>| {
            let mut out = Vec::new();
            let plan = QuantizePlan::new(&input, &recipe, importance).unwrap();
            plan.write(&mut out, 2, &mut |_, _| true).unwrap();
            let found = decode(&Gguf::from_bytes(out.into()).unwrap());
            let mut sums = vec![0f64; 512];
            for (i, (a, b)) in truth.iter().zip(&found).enumerate() {
                sums[i / (256 * 1500) * 256 + i % 256] += f64::from(a - b).powi(2);
            }
            sums
        };
        let (plain, weighted) = (errors(None), errors(Some(&importance)));
        // The one beside it shares its scale and pays.
        for matters in [3, 256 + 200] {
            let (better, worse) =
                (weighted[matters] / plain[matters], weighted[matters + 1] / plain[matters + 1]);
            assert!(better < 0.5 && worse > 1.0, "{better} {worse}");
        }
        for elsewhere in [200, 256 + 3] {
            let ratio = weighted[elsewhere] / plain[elsewhere];
            assert!(ratio > 0.9, "{ratio}");
        }
    }

    #[test]
    fn a_stopped_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let input = stack();
        let recipe = Recipe::pure(DType::Q8_0).unwrap();
        let plan = QuantizePlan::new(&input, &recipe, None).unwrap();
        let path = dir.path().join("out.gguf");
        let e = plan.write_file(&path, false, 1, &mut |_, _| false).unwrap_err();
        assert!(matches!(e, Error::Interrupted), "{e}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        plan.write_file(&path, false, 1, &mut |_, _| true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), plan.bytes());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn values_that_a_type_cannot_hold_are_named() {
        for (value, dtype, told) in [
            (f32::NAN, DType::Q8_0, "NaN: the file is damaged"),
            (f32::INFINITY, DType::Q4_0, "inf: the file is damaged"),
            (1e6, DType::Q4_0, "1000000: too large for Q4_0"),
            (3e38, DType::Q8_0, "too large for Q8_0"),
            (1e6, DType::F16, "1000000: too large for F16"),
            (-6e4, DType::F16, ""),
            (6e4, DType::Q4_0, ""),
        ] {
            let mut values = vec![0.5f32; 64];
            values[40] = value;
            let mut w = GgufWriter::new();
            w.metadata_mut().set("general.architecture", "any");
            w.add_tensor("a.weight", &[32, 2], DType::F32).unwrap();
            let mut out = w.begin(Vec::new()).unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            out.write_tensor("a.weight", &bytes).unwrap();
            let input = Gguf::from_bytes(out.finish().unwrap().into()).unwrap();
            let recipe = Recipe::pure(dtype).unwrap();
            let plan = QuantizePlan::new(&input, &recipe, None).unwrap();
            match plan.write(&mut Vec::new(), 1, &mut |_, _| true) {
                Ok(_) => assert_eq!(told, "", "{value} as {dtype}"),
                Err(e) => assert!(!told.is_empty() && e.to_string().contains(told), "{e}"),
            }
        }
    }
}
