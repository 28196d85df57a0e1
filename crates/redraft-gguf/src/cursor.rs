//! Checked reading of numbers, strings and metadata values from bytes that nobody vouches for.
//!
//! Memory is asked for only after the bytes that fill it are known to be there.

use crate::limits::{MAX_ARRAY_DEPTH, MAX_STRING_BYTES, MIN_ARRAY_BYTES, MIN_STRING_BYTES};
use crate::value::type_id;
use crate::{Array, GgufError, Shown, StrArray, Value};

/// A position in the file; every read is checked against the bytes left.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: u64,
}

impl<'a> Cursor<'a> {
    /// The start of the file.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, pos: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    fn left(&self) -> u64 {
        self.bytes.len() as u64 - self.pos
    }

    fn truncated(&self, what: &dyn std::fmt::Display, expected: u64) -> GgufError {
        GgufError::Truncated { what: what.to_string(), offset: self.pos, expected, found: self.left() }
    }

    /// Refuses a count of things that take at least `min_bytes` each when the file is too short for them.
    pub(crate) fn check_count(
        &self,
        what: &dyn std::fmt::Display,
        n: u64,
        min_bytes: u64,
    ) -> Result<(), GgufError> {
        let expected = n.saturating_mul(min_bytes);
        if expected > self.left() { Err(self.truncated(what, expected)) } else { Ok(()) }
    }

    /// The next `n` bytes.
    fn take(&mut self, what: &dyn std::fmt::Display, n: u64) -> Result<&'a [u8], GgufError> {
        self.check_count(what, n, 1)?;
        let start = self.pos as usize;
        self.pos += n;
        Ok(&self.bytes[start..self.pos as usize])
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &dyn std::fmt::Display,
    ) -> Result<[u8; N], GgufError> {
        let bytes = self.take(what, N as u64)?;
        Ok(bytes.try_into().expect("take returns as many bytes as asked for"))
    }

    /// The next number of 32 bits.
    pub(crate) fn u32(&mut self, what: &dyn std::fmt::Display) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next number of 64 bits.
    pub(crate) fn u64(&mut self, what: &dyn std::fmt::Display) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next string: its length, at most `max_bytes`, and its text.
    pub(crate) fn string(
        &mut self,
        what: &dyn std::fmt::Display,
        max_bytes: u64,
    ) -> Result<&'a str, GgufError> {
        let at = self.pos;
        let n = self.u64(what)?;
        if n > max_bytes {
            let what = format!("the length of {what}");
            return Err(GgufError::Limit { what, offset: at, expected: max_bytes, found: n });
        }
        let offset = self.pos;
        let bytes = self.take(what, n)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 { what: what.to_string(), offset })
    }

    /// Reads `n` numbers of `N` bytes each.
    fn numbers<T, const N: usize>(
        &mut self,
        what: &dyn std::fmt::Display,
        n: u64,
        convert: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        self.check_count(what, n, N as u64)?;
        let bytes = self.take(what, n * N as u64)?;
        Ok(bytes.as_chunks::<N>().0.iter().map(|&b| convert(b)).collect())
    }
}

/// "metadata key ..." as the description of what is being read.
struct Of<'a>(&'a str);

impl std::fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the value of metadata key \"{}\"", Shown(self.0))
    }
}

/// Reads the type and the value of a metadata entry.
pub(crate) fn read_value(c: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let of = &Of(key);
    let type_offset = c.pos;
    let value_type = c.u32(of)?;
    Ok(match value_type {
        type_id::U8 => Value::U8(c.array::<1>(of)?[0]),
        type_id::I8 => Value::I8(i8::from_le_bytes(c.array(of)?)),
        type_id::U16 => Value::U16(u16::from_le_bytes(c.array(of)?)),
        type_id::I16 => Value::I16(i16::from_le_bytes(c.array(of)?)),
        type_id::U32 => Value::U32(c.u32(of)?),
        type_id::I32 => Value::I32(i32::from_le_bytes(c.array(of)?)),
        type_id::F32 => Value::F32(f32::from_le_bytes(c.array(of)?)),
        type_id::BOOL => {
            let offset = c.pos;
            Value::Bool(boolean(key, offset, c.array::<1>(of)?[0])?)
        }
        type_id::STRING => Value::String(c.string(of, MAX_STRING_BYTES)?.to_owned()),
        type_id::ARRAY => Value::Array(array(c, key, 1)?),
        type_id::U64 => Value::U64(c.u64(of)?),
        type_id::I64 => Value::I64(i64::from_le_bytes(c.array(of)?)),
        type_id::F64 => Value::F64(f64::from_le_bytes(c.array(of)?)),
        found => return Err(GgufError::UnknownValueType { key: key.to_owned(), offset: type_offset, found }),
    })
}

fn boolean(key: &str, offset: u64, byte: u8) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(GgufError::BadBool { key: key.to_owned(), offset, found }),
    }
}

/// Reads an array: element type, count, elements. `depth` is 1 for an array that is not inside another.
fn array(c: &mut Cursor<'_>, key: &str, depth: u32) -> Result<Array, GgufError> {
    let of = &Of(key);
    let type_offset = c.pos;
    let element_type = c.u32(of)?;
    let n = c.u64(of)?;
    macro_rules! numbers {
        ($variant:ident, $t:ty) => {
            Array::$variant(c.numbers(of, n, <$t>::from_le_bytes)?)
        };
    }
    Ok(match element_type {
        type_id::U8 => numbers!(U8, u8),
        type_id::I8 => numbers!(I8, i8),
        type_id::U16 => numbers!(U16, u16),
        type_id::I16 => numbers!(I16, i16),
        type_id::U32 => numbers!(U32, u32),
        type_id::I32 => numbers!(I32, i32),
        type_id::F32 => numbers!(F32, f32),
        type_id::U64 => numbers!(U64, u64),
        type_id::I64 => numbers!(I64, i64),
        type_id::F64 => numbers!(F64, f64),
        type_id::BOOL => {
            let start = c.pos;
            let bytes = c.take(of, n)?;
            let flags = bytes.iter().enumerate().map(|(i, &b)| boolean(key, start + i as u64, b));
            Array::Bool(flags.collect::<Result<_, _>>()?)
        }
        type_id::STRING => {
            c.check_count(of, n, MIN_STRING_BYTES)?;
            let mut strings = StrArray::with_capacity(n as usize);
            for _ in 0..n {
                strings.push(c.string(of, MAX_STRING_BYTES)?);
            }
            Array::Str(strings)
        }
        type_id::ARRAY => {
            if depth == MAX_ARRAY_DEPTH {
                return Err(GgufError::Limit {
                    what: format!("the nesting of arrays in {of}"),
                    offset: type_offset,
                    expected: MAX_ARRAY_DEPTH.into(),
                    found: u64::from(depth) + 1,
                });
            }
            c.check_count(of, n, MIN_ARRAY_BYTES)?;
            let mut arrays = Vec::new();
            for _ in 0..n {
                arrays.push(array(c, key, depth + 1)?);
            }
            Array::Array(arrays)
        }
        found => return Err(GgufError::UnknownValueType { key: key.to_owned(), offset: type_offset, found }),
    })
}
