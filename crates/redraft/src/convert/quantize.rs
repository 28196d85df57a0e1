//! Writes a model file with its matrices in another block type.

use std::io::Write;

use redraft_gguf::{DType, Gguf, GgufError, GgufWriter, TensorInfo, codec};

use super::Recipe;
use crate::Error;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Tensors by type, in the order of first use.
    pub types: Vec<(DType, usize)>,
}

/// Writes `gguf` to `out` with the types of `recipe`, decoding and encoding each tensor that changes.
///
/// # Errors
/// A type that cannot be decoded or encoded, naming the tensor; those of writing.
pub fn quantize<W: Write>(gguf: &Gguf, recipe: &Recipe, out: W) -> Result<Summary, Error> {
    let mut metadata = gguf.metadata().clone();
    let dtypes = recipe.dtypes(gguf);
    if let Some(id) = recipe.file_type_id() {
        metadata.set("general.file_type", id);
    }
    metadata.set("general.quantization_version", 2u32);
    let mut writer = GgufWriter::with_metadata(metadata);
    let mut types: Vec<(DType, usize)> = Vec::new();
    for (t, &to) in gguf.tensors().iter().zip(&dtypes) {
        match to == t.dtype {
            true => writer.add_raw_tensor(&t.name, &t.dims, to, t.n_bytes)?,
            false => writer.add_tensor(&t.name, &t.dims, to)?,
        }
        match types.iter_mut().find(|(d, _)| *d == to) {
            Some((_, n)) => *n += 1,
            None => types.push((to, 1)),
        }
    }
    let mut counted = Counted { out, bytes: 0 };
    let mut data = writer.begin(&mut counted)?;
    for (t, to) in gguf.tensors().iter().zip(dtypes) {
        let from = gguf.tensor_bytes(t);
        data.start_tensor(&t.name)?;
        if to == t.dtype {
            data.write(&from)?;
        } else {
            encode(t, &from, to, &mut |bytes| data.write(bytes))?;
        }
        data.end_tensor()?;
    }
    // What was read from a file that became shorter is not what it says.
    gguf.check()?;
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
    let unusable =
        |d: DType, what: &str| Error::Weights { problems: vec![format!("{}: {d} cannot be {what}", t.name)] };
    let decoder = codec(t.dtype).ok_or_else(|| unusable(t.dtype, "read"))?;
    let encoder = codec(to).and_then(|c| c.encoder()).ok_or_else(|| unusable(to, "written"))?;
    // A tensor without rows may claim rows of any length.
    if from.is_empty() {
        return Ok(());
    }
    let len = t.row_len();
    let bytes =
        |d: DType| d.row_bytes(len).map(|n| n as usize).ok_or_else(|| unusable(d, "cut into such rows"));
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
        let recipe = Recipe::pure(DType::Q4_K).unwrap();
        let done = quantize(&input, &recipe, &mut written).unwrap();
        assert_eq!(done.bytes, written.len() as u64);
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
        let worst = back.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            worst < 2.0 / 15.0,
            "half a step of sixteen levels over the range, with room for the scales: {worst}"
        );
    }
}
