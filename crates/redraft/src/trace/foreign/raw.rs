//! Raw numbers: f32, little-endian, one tensor in a file, and nothing that says so.

use super::file_name;
use crate::Error;
use crate::trace::{Elements, Given, Tensor, TraceFile};

/// Reads a file as one tensor, whose name is the file's. Its shape is not known.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<TraceFile, Error> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || numbers.is_empty() {
        let problem = format!("expected raw f32 numbers of 4 bytes, found {} bytes", bytes.len());
        return Err(Error::Golden { file: name.to_string(), problem });
    }
    let x: Vec<f32> = numbers.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let key = file_name(name);
    let mut file = TraceFile { name: name.to_string(), ..TraceFile::default() };
    file.tensors.insert(key.to_string(), Tensor { shape: vec![x.len()], data: Elements::F32(x) });
    file.given.insert(key.to_string(), Given::Flat);
    Ok(file)
}
