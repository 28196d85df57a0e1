//! Arrays of NumPy: npy, and npz, a zip archive of such (NumPy's NEP 1 and `numpy.lib.format`).

use redraft_gguf::Shown;
use safetensors::Dtype;

use super::{file_name, zip};
use crate::Error;
use crate::trace::{Elements, Tensor, TraceFile};

/// The marks of a member and of an archive without any.
pub(super) fn is_npz(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

pub(super) fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x93NUMPY")
}

/// Types, and what they are in memory.
const TYPES: [(&str, Dtype); 12] = [
    ("<f8", Dtype::F64),
    ("<f4", Dtype::F32),
    ("<f2", Dtype::F16),
    ("<i8", Dtype::I64),
    ("<i4", Dtype::I32),
    ("<i2", Dtype::I16),
    ("|i1", Dtype::I8),
    ("<u4", Dtype::U32),
    ("<u2", Dtype::U16),
    ("|u1", Dtype::U8),
    ("|b1", Dtype::BOOL),
    ("<b1", Dtype::BOOL),
];

/// Longest header that NumPy itself reads unasked.
const MAX_HEADER: usize = 10_000;
/// Extents of an array, as in NumPy 1.
const MAX_EXTENTS: usize = 32;
/// Bytes that an element has in memory at most.
const ELEMENT_BYTES: u64 = 8;

/// The arrays of an npz file; names are those of its members without `.npy`.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<TraceFile, Error> {
    let mut file = TraceFile { name: name.to_string(), ..TraceFile::default() };
    let members = zip::members(bytes).map_err(|e| file.wrong(e))?;
    let mut room = zip::most(bytes) / ELEMENT_BYTES;
    for member in members {
        let about = |problem: String| Error::Golden {
            file: name.to_string(),
            problem: format!("member {}: {problem}", Shown(&member.name)),
        };
        // Other archives, PyTorch's among them, have the same marks.
        let Some(key) = member.name.strip_suffix(".npy") else { continue };
        let array = array(&member.unpack().map_err(about)?, room).map_err(about)?;
        room -= array.data.len() as u64;
        if file.tensors.insert(key.to_string(), array).is_some() {
            return Err(about("there are two of this name".into()));
        }
    }
    if file.tensors.is_empty() {
        let what = "it is a zip archive without arrays of NumPy: of a file of PyTorch, save the tensors as safetensors or npz";
        return Err(file.wrong(what.into()));
    }
    Ok(file)
}

/// The array of an npy file, whose name without its ending is the tensor's.
pub(super) fn read_one(bytes: &[u8], name: &str) -> Result<TraceFile, Error> {
    let mut file = TraceFile { name: name.to_string(), ..TraceFile::default() };
    let array = array(bytes, u64::MAX).map_err(|e| file.wrong(e))?;
    let base = file_name(name);
    file.tensors.insert(base.strip_suffix(".npy").unwrap_or(base).to_string(), array);
    Ok(file)
}

/// An array of so many elements at most.
fn array(bytes: &[u8], most: u64) -> Result<Tensor, String> {
    let cut = || "it is cut short or no array of NumPy".to_string();
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or_else(cut)?;
    // The length of the header has two bytes in version 1 and four in the others.
    let (len, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [version, ..] if *version > 3 => {
            return Err(format!("version {version} of the format is not supported"));
        }
        _ => return Err(cut()),
    };
    let (header, data) = rest.split_at_checked(len).filter(|_| len <= MAX_HEADER).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| cut())?;
    let (descr, fortran, shape) = fields(header).ok_or_else(|| {
        format!("expected a header with descr, fortran_order and shape, found {}", Shown(header.trim()))
    })?;
    let Some(&(_, dtype)) = TYPES.iter().find(|(name, _)| *name == descr) else {
        return Err(format!(
            "type {} is not supported: save f64, f32, f16 or integers, little-endian (bfloat16 as f32)",
            Shown(descr)
        ));
    };
    if shape.len() > MAX_EXTENTS {
        return Err(format!("expected {MAX_EXTENTS} extents at most, found {}", shape.len()));
    }
    let n = shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x));
    let expected = n.and_then(|n| n.checked_mul(dtype.bitsize() / 8));
    if expected != Some(data.len()) {
        return Err(format!("shape {shape:?} of {descr} does not fit {} bytes of data", data.len()));
    }
    if n.is_none_or(|n| n as u64 > most) {
        return Err(format!(
            "shape {shape:?}: the arrays have more elements than an archive of this size may have"
        ));
    }
    let data = Elements::read(dtype, data).ok_or_else(cut)?;
    Ok(if fortran { from_fortran(shape, &data) } else { Tensor { shape, data } })
}

/// Type, order and shape of a header, which is a dictionary of Python.
fn fields(header: &str) -> Option<(&str, bool, Vec<usize>)> {
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}'"))?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = value("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
    let order = value("fortran_order")?;
    let fortran = order.starts_with("True");
    if !fortran && !order.starts_with("False") {
        return None;
    }
    let extents = value("shape")?.strip_prefix('(')?.split_once(')')?.0;
    let extents = extents.split(',').map(str::trim).filter(|x| !x.is_empty());
    let shape: Option<Vec<usize>> = extents.map(|x| x.parse().ok()).collect();
    Some((descr, fortran, shape?))
}

/// Rows first, from an array whose first index runs fastest.
fn from_fortran(shape: Vec<usize>, data: &Elements) -> Tensor {
    if data.is_empty() {
        return Tensor { shape, data: data.clone() };
    }
    let mut order = vec![0];
    let mut stride = 1;
    for &n in shape.iter().filter(|&&n| n > 1) {
        // Each index so far, followed by each of this extent.
        order = order.iter().flat_map(|&at| (0..n).map(move |i| at + i * stride)).collect();
        stride *= n;
    }
    Tensor { shape, data: data.reordered(&order) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut out = b"\x93NUMPY\x01\0".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        [&out[..], header.as_bytes(), data].concat()
    }

    fn floats(x: &[f32]) -> Vec<u8> {
        x.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn arrays_of_all_types_and_orders_are_read() {
        let array = |bytes: &[u8]| super::array(bytes, u64::MAX);
        let six = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let c = array(&npy("'<f4'", "False", "(2, 3)", &six)).unwrap();
        assert_eq!((c.shape, c.data), (vec![2, 3], Elements::F32(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])));
        let f = array(&npy("'<f4'", "True", "(2, 3)", &six)).unwrap();
        assert_eq!((f.shape, f.data), (vec![2, 3], Elements::F32(vec![0.0, 2.0, 4.0, 1.0, 3.0, 5.0])));
        let f = array(&npy("'<i2'", "True", "(2, 1, 2)", &[0, 0, 1, 0, 2, 0, 3, 0])).unwrap();
        assert_eq!(f.data, Elements::I64(vec![0, 2, 1, 3]));
        let half = array(&npy("'<f2'", "False", "(2,)", &[0, 0x3C, 0, 0xC0])).unwrap();
        assert_eq!(half.data, Elements::F32(vec![1.0, -2.0]));
        assert_eq!(
            array(&npy("'<i8'", "False", "()", &[7, 0, 0, 0, 0, 0, 0, 0])).unwrap().shape,
            [0usize; 0]
        );
        for (descr, fortran, shape, said) in [
            ("'>f4'", "False", "(6,)", "type >f4"),
            ("'|V2'", "False", "(12,)", "bfloat16 as f32"),
            ("[('a', '<f4')]", "False", "(6,)", "expected a header"),
            ("'<f4'", "Maybe", "(6,)", "expected a header"),
            ("'<f4'", "False", "(7,)", "does not fit 24 bytes"),
            ("'<f4'", "False", "(-6,)", "expected a header"),
            ("'<f4'", "False", "(4294967296, 4294967296, 6)", "does not fit"),
            ("'<f4'", "True", &format!("(6,{})", "1,".repeat(32)), "expected 32 extents at most, found 33"),
        ] {
            let error = array(&npy(descr, fortran, shape, &six)).unwrap_err();
            assert!(error.contains(said), "{descr} {shape}: {error}");
        }
        assert!(array(b"\x93NUMPY\x09\0\0\0").unwrap_err().contains("version 9"));
        assert!(array(b"\x93NUMPY\x02\0\xff\xff\xff\xff").unwrap_err().contains("cut short"));
    }

    /// A deflated archive of arrays of bytes, all zeros.
    fn archive(lens: &[usize]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (i, &len) in lens.iter().enumerate() {
            let array = npy("'|i1'", "True", &format!("(1, {len}, 1)"), &vec![0; len]);
            let packed = miniz_oxide::deflate::compress_to_vec(&array, 6);
            let name = format!("{i}.npy");
            let at = out.len() as u32;
            let sizes = [zip::crc32(&array), packed.len() as u32, array.len() as u32].map(u32::to_le_bytes);
            let common =
                [&[20, 0, 0, 0, 8, 0, 0, 0, 0, 0][..], &sizes.concat(), &[name.len() as u8, 0, 0, 0]];
            out.extend([b"PK\x03\x04", &common.concat()[..], name.as_bytes(), &packed].concat());
            let place = [&[0; 10][..], &at.to_le_bytes(), name.as_bytes()].concat();
            directory.extend([b"PK\x01\x02\x14\0", &common.concat()[..], &place].concat());
        }
        let counts = [lens.len() as u16; 2].map(u16::to_le_bytes).concat();
        let places = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes).concat();
        [&out[..], &directory, b"PK\x05\x06\0\0\0\0", &counts, &places, &[0, 0]].concat()
    }

    #[test]
    fn what_becomes_large_in_memory_is_refused() {
        let file = read(&archive(&[1000, 7]), "t.npz").unwrap();
        let lens: Vec<_> = file.tensors.iter().map(|(n, t)| (n.as_str(), t.data.len())).collect();
        assert_eq!(lens, [("0", 1000), ("1", 7)]);
        // 8 MiB of bytes become 64 MiB of i64.
        let half = 4 << 20;
        assert_eq!(read(&archive(&[half, half]), "t.npz").unwrap().tensors.len(), 2);
        let error = read(&archive(&[half, half + 1]), "t.npz").unwrap_err().to_string();
        assert!(
            error.contains("member 1.npy: shape [1, 4194305, 1]: the arrays have more elements"),
            "{error}"
        );
    }
}
