//! The elements of a tensor in the order and the type of the file, piece by piece.

use redraft_gguf::{DType, GgufError, codec};

use super::folder::Source;
use super::hf::Rows;

/// A tensor of the file.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) name: String,
    /// The names in the checkpoint, for messages.
    pub(super) from: String,
    /// Extents, the contiguous one first.
    pub(super) dims: Vec<u64>,
    pub(super) dtype: DType,
    pub(super) data: Data<'a>,
}

/// Where the elements come from.
#[derive(Debug)]
pub(super) enum Data<'a> {
    /// Tensors of the checkpoint, one after another; all of them have one type.
    Sources(Vec<&'a Source>, RowOrder),
    /// Settings.
    Made(Vec<f32>),
}

/// [`Rows`] with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowOrder {
    Same,
    /// So many heads.
    Paired(u64),
    Half(usize),
}

/// Elements that are converted at a time.
const CHUNK: usize = 1 << 16;

impl Planned<'_> {
    /// Writes all elements.
    ///
    /// # Errors
    /// Those of `write`; [`WriteError::Tensor`] where a value has no place in the type.
    pub(super) fn write(
        &self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), GgufError>,
    ) -> Result<(), WriteError> {
        match &self.data {
            Data::Made(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                Ok(write(&bytes)?)
            }
            Data::Sources(sources, order) => {
                for source in sources {
                    let mut convert = Converter::new(source.dtype, self.dtype)?;
                    runs(source, *order, &mut |run| convert.write(run, write))?;
                }
                Ok(())
            }
        }
    }

    /// Number of elements; None when it does not fit.
    pub(super) fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }
}

/// Why a tensor could not be written.
#[derive(Debug)]
pub(super) enum WriteError {
    Gguf(GgufError),
    /// What about the tensor.
    Tensor(String),
    /// The caller asked to stop.
    Interrupted,
}

impl WriteError {
    /// With the names of the tensor.
    pub(super) fn of(self, t: &Planned<'_>) -> WriteError {
        match self {
            WriteError::Tensor(what) => WriteError::Tensor(format!("{} ({}) {what}", t.name, t.from)),
            e => e,
        }
    }
}

impl From<GgufError> for WriteError {
    fn from(e: GgufError) -> WriteError {
        WriteError::Gguf(e)
    }
}

/// The extents in the file of `n` tensors of this shape, stacked where `stacked`; an error is what does not fit.
pub(super) fn dims(shape: &[u64], rows: Rows, stacked: Option<u64>) -> Result<Vec<u64>, String> {
    let mut dims: Vec<u64> = shape.iter().rev().copied().collect();
    if dims.is_empty() {
        dims.push(1);
    }
    dims.extend(stacked);
    let fits = match rows {
        Rows::Same => true,
        Rows::Paired(_) => dims.len() == 2,
        Rows::Half(_) => {
            let even = dims.len() == 3 && dims[1].is_multiple_of(2);
            if even {
                dims[1] /= 2;
            }
            even
        }
    };
    let problem = || format!("has the shape {shape:?}");
    let is_empty = dims.contains(&0);
    if fits && !is_empty { Ok(dims) } else { Err(problem()) }
}

/// Shows the bytes of a tensor in the order of the file.
fn runs(
    source: &Source,
    order: RowOrder,
    show: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let bytes = &source.bytes[..];
    let rows: usize = source.shape.iter().rev().skip(1).product::<u64>() as usize;
    let row_bytes = bytes.len() / rows.max(1);
    match order {
        RowOrder::Same => show(bytes),
        RowOrder::Half(part) => {
            let matrix = bytes.len() / source.shape.first().map_or(1, |&n| n as usize).max(1);
            let half = matrix / 2;
            bytes.chunks_exact(matrix.max(1)).try_for_each(|m| show(&m[part * half..][..half]))
        }
        RowOrder::Paired(heads) => {
            let per_head = rows / (heads as usize).max(1);
            let row = |at: usize| &bytes[at * row_bytes..][..row_bytes];
            for head in 0..heads as usize {
                for i in 0..per_head {
                    show(row(head * per_head + i % 2 * (per_head / 2) + i / 2))?;
                }
            }
            Ok(())
        }
    }
}

/// From one float type to another.
struct Converter {
    from: DType,
    to: DType,
    values: Vec<f32>,
    bytes: Vec<u8>,
}

impl Converter {
    fn new(from: DType, to: DType) -> Result<Converter, WriteError> {
        let known = codec(from).is_some() && codec(to).is_some_and(|c| c.encoder().is_some());
        match known {
            true => Ok(Converter { from, to, values: Vec::new(), bytes: Vec::new() }),
            false => Err(WriteError::Tensor(format!("{from} cannot be written as {to}"))),
        }
    }

    fn write(
        &mut self,
        run: &[u8],
        write: &mut dyn FnMut(&[u8]) -> Result<(), GgufError>,
    ) -> Result<(), WriteError> {
        let (Some(decoder), Some(encoder)) = (codec(self.from), codec(self.to).and_then(|c| c.encoder()))
        else {
            return Ok(()); // `new` has asked
        };
        let size = |d: DType| d.info().map_or(1, |i| i.block_bytes);
        for chunk in run.chunks(CHUNK * size(self.from)) {
            let n = chunk.len() / size(self.from);
            self.values.resize(n, 0.0);
            decoder.dequantize(chunk, &mut self.values);
            if let Some(wrong) = self.values.iter().find(|x| !x.is_finite()) {
                return Err(WriteError::Tensor(format!("has the value {wrong}: the checkpoint is damaged")));
            }
            if self.from == self.to {
                write(chunk)?;
                continue;
            }
            self.bytes.resize(n * size(self.to), 0);
            // The first that would become infinite: half a unit of the last place above the largest.
            let (least, others) = match self.to {
                DType::F16 => (65_520.0, "BF16 or F32"),
                DType::BF16 => (f32::from_bits(0x7F7F_8000), "F32"),
                _ => (f32::INFINITY, ""),
            };
            if let Some(large) = self.values.iter().find(|x| x.abs() >= least) {
                return Err(WriteError::Tensor(format!(
                    "has the value {large}, too large for {}: take {others}",
                    self.to
                )));
            }
            encoder.quantize(&self.values, None, &mut self.bytes);
            write(&self.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use redraft_gguf::Bytes;

    use super::*;

    fn source(shape: &[u64], values: &[f32]) -> Source {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Source { shape: shape.to_vec(), dtype: DType::F32, bytes: Bytes::from(bytes) }
    }

    fn written(source: &Source, order: RowOrder, dtype: DType) -> Result<Vec<u8>, WriteError> {
        let mut out = Vec::new();
        let planned = Planned {
            name: "x".into(),
            from: "y".into(),
            dims: vec![1],
            dtype,
            data: Data::Sources(vec![source], order),
        };
        planned.write(&mut |b| {
            out.extend_from_slice(b);
            Ok(())
        })?;
        Ok(out)
    }

    fn numbers(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|&c| f32::from_le_bytes(c)).collect()
    }

    /// Two heads of four rows: halves 0 1 | 2 3 become 0 2 1 3.
    #[test]
    fn rows_of_both_halves_of_a_head_alternate() {
        let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let s = source(&[8, 2], &values);
        let out = numbers(&written(&s, RowOrder::Paired(2), DType::F32).unwrap());
        let rows: Vec<f32> = out.chunks(2).map(|r| r[0] / 2.0).collect();
        assert_eq!(rows, [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    }

    /// Two experts whose gate and up have two rows each.
    #[test]
    fn halves_of_a_stack_are_told_apart() {
        let values: Vec<f32> = (0..8).map(|i| i as f32).collect();
        let s = source(&[2, 4, 1], &values);
        assert_eq!(dims(&s.shape, Rows::Half(0), None).unwrap(), [1, 2, 2]);
        let half = |part| numbers(&written(&s, RowOrder::Half(part), DType::F32).unwrap());
        assert_eq!((half(0), half(1)), (vec![0.0, 1.0, 4.0, 5.0], vec![2.0, 3.0, 6.0, 7.0]));
    }

    #[test]
    fn values_are_rounded_and_never_lost() {
        let s = source(&[3], &[1.0, -0.5, 65_519.0]);
        assert_eq!(written(&s, RowOrder::Same, DType::F16).unwrap(), [0, 0x3c, 0, 0xb8, 0xff, 0x7b]);
        assert_eq!(written(&s, RowOrder::Same, DType::BF16).unwrap(), [0x80, 0x3f, 0, 0xbf, 0x80, 0x47]);
        let large = source(&[1], &[65_520.0]);
        assert!(
            matches!(written(&large, RowOrder::Same, DType::F16), Err(WriteError::Tensor(e)) if e.contains("65520"))
        );
        for (large, held) in [(f32::MAX, false), (3.39e38, true)] {
            let done = written(&source(&[1], &[large]), RowOrder::Same, DType::BF16);
            assert_eq!(done.is_ok(), held, "{large}: the largest bf16 is 3.3895e38");
        }
        for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let e = written(&source(&[2], &[1.0, wrong]), RowOrder::Same, dtype);
                assert!(matches!(e, Err(WriteError::Tensor(e)) if e.contains("damaged")), "{wrong} {dtype}");
            }
        }
    }

    #[test]
    fn shapes_without_elements_or_halves_are_refused() {
        for (shape, rows) in
            [(&[0, 4][..], Rows::Same), (&[3, 3, 2], Rows::Half(0)), (&[4], Rows::Paired("x"))]
        {
            assert!(dims(shape, rows, None).is_err(), "{shape:?}");
        }
        assert_eq!(dims(&[], Rows::Same, None).unwrap(), [1]);
        assert_eq!(dims(&[4, 2], Rows::Same, Some(3)).unwrap(), [2, 4, 3]);
    }
}
