//! Metadata: an ordered list of keys and typed values, with getters that name the key in their errors.
//!
//! Writers disagree about integer widths (a head count is u32 in one file and i32 in another), so integer
//! getters take any integer type whose value fits, and float getters take both float types. Nothing else
//! is converted: a string is never parsed, a float never truncated.

use std::collections::HashMap;

use crate::GgufError;

/// One metadata value, in the types of the format.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned 8-bit integer.
    U8(u8),
    /// Signed 8-bit integer.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// 32-bit float.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// 64-bit float.
    F64(f64),
}

/// A metadata array: values of one type, stored without a tag per element.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    Str(StrArray),
    /// Arrays.
    Array(Vec<Array>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

/// Many strings in two allocations: their texts one after another, and where each one ends. A vocabulary
/// of 262,144 tokens with 514,906 merges is held in a few megabytes and read in milliseconds.
///
/// ```
/// use redraft_gguf::StrArray;
///
/// let words: StrArray = ["one", "", "three"].into_iter().collect();
/// assert_eq!(words.len(), 3);
/// assert_eq!(words.get(2), Some("three"));
/// assert_eq!(words.iter().collect::<Vec<_>>(), ["one", "", "three"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StrArray {
    text: String,
    ends: Vec<usize>,
}

impl StrArray {
    /// An empty array.
    pub fn new() -> StrArray {
        StrArray::default()
    }

    /// An empty array with room for `n` strings.
    pub(crate) fn with_capacity(n: usize) -> StrArray {
        StrArray { text: String::new(), ends: Vec::with_capacity(n) }
    }

    /// Appends a string.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|i| self.get(i).expect("index is below the length"))
    }

    /// The strings as a vector of owned strings.
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }
}

impl<S: AsRef<str>> FromIterator<S> for StrArray {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> StrArray {
        let mut out = StrArray::new();
        iter.into_iter().for_each(|s| out.push(s.as_ref()));
        out
    }
}

impl std::ops::Index<usize> for StrArray {
    type Output = str;

    fn index(&self, index: usize) -> &str {
        match self.get(index) {
            Some(s) => s,
            None => panic!("index {index} is outside an array of {} strings", self.len()),
        }
    }
}

/// The type numbers of the format, shared by the reader and the writer.
pub(crate) mod type_id {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const I16: u32 = 3;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;

    /// Names in the order of the numbers.
    pub(crate) const NAMES: [&str; 13] =
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
}

/// Runs `$body` with `$v` bound to the elements of any array variant.
macro_rules! with_elements {
    ($array:expr, $v:ident => $body:expr) => {
        match $array {
            Array::U8($v) => $body,
            Array::I8($v) => $body,
            Array::U16($v) => $body,
            Array::I16($v) => $body,
            Array::U32($v) => $body,
            Array::I32($v) => $body,
            Array::F32($v) => $body,
            Array::Bool($v) => $body,
            Array::Str($v) => $body,
            Array::Array($v) => $body,
            Array::U64($v) => $body,
            Array::I64($v) => $body,
            Array::F64($v) => $body,
        }
    };
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        with_elements!(self, v => v.len())
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The format's number of the element type.
    pub(crate) fn element_type_id(&self) -> u32 {
        match self {
            Array::U8(_) => type_id::U8,
            Array::I8(_) => type_id::I8,
            Array::U16(_) => type_id::U16,
            Array::I16(_) => type_id::I16,
            Array::U32(_) => type_id::U32,
            Array::I32(_) => type_id::I32,
            Array::F32(_) => type_id::F32,
            Array::Bool(_) => type_id::BOOL,
            Array::Str(_) => type_id::STRING,
            Array::Array(_) => type_id::ARRAY,
            Array::U64(_) => type_id::U64,
            Array::I64(_) => type_id::I64,
            Array::F64(_) => type_id::F64,
        }
    }

    /// The elements as integers; `None` when they are not integers.
    fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Array::U8(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::I8(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::U16(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::I16(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::U32(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::I32(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::U64(v) => Box::new(v.iter().map(|&x| x.into())),
            Array::I64(v) => Box::new(v.iter().map(|&x| x.into())),
            _ => return None,
        })
    }
}

impl Value {
    /// The type in words, such as `u32` or `array of 5 string`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(a) => {
                format!("array of {} {}", a.len(), type_id::NAMES[a.element_type_id() as usize])
            }
            other => type_id::NAMES[other.type_id() as usize].to_owned(),
        }
    }

    /// The format's number of the type.
    pub(crate) fn type_id(&self) -> u32 {
        match self {
            Value::U8(_) => type_id::U8,
            Value::I8(_) => type_id::I8,
            Value::U16(_) => type_id::U16,
            Value::I16(_) => type_id::I16,
            Value::U32(_) => type_id::U32,
            Value::I32(_) => type_id::I32,
            Value::F32(_) => type_id::F32,
            Value::Bool(_) => type_id::BOOL,
            Value::String(_) => type_id::STRING,
            Value::Array(_) => type_id::ARRAY,
            Value::U64(_) => type_id::U64,
            Value::I64(_) => type_id::I64,
            Value::F64(_) => type_id::F64,
        }
    }

    /// The value as an integer; `None` when it is not one.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(x) => x.into(),
            Value::I8(x) => x.into(),
            Value::U16(x) => x.into(),
            Value::I16(x) => x.into(),
            Value::U32(x) => x.into(),
            Value::I32(x) => x.into(),
            Value::U64(x) => x.into(),
            Value::I64(x) => x.into(),
            _ => return None,
        })
    }
}

macro_rules! from_impls {
    ($($from:ty => $variant:ident,)*) => {$(
        impl From<$from> for Value {
            fn from(x: $from) -> Value {
                Value::$variant(x)
            }
        }
    )*};
}
from_impls! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    String => String, Array => Array, u64 => U64, i64 => I64, f64 => F64,
}

impl From<&str> for Value {
    fn from(x: &str) -> Value {
        Value::String(x.to_owned())
    }
}

/// The metadata of a file: keys and values in the order of the file, each key once.
///
/// ```
/// use redraft_gguf::{Metadata, Value};
///
/// let mut m = Metadata::new();
/// m.set("llada.block_count", Value::I32(32));
/// assert_eq!(m.u32("llada.block_count")?, 32);
/// assert_eq!(m.opt_f32("llada.rope.freq_base")?, None);
/// let err = m.str("llada.block_count").unwrap_err();
/// assert_eq!(
///     err.to_string(),
///     "metadata key \"llada.block_count\" has the wrong type: expected string, found i32"
/// );
/// # Ok::<(), redraft_gguf::GgufError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.entries == other.entries
    }
}

/// Defines a required and an optional getter from one conversion.
macro_rules! getters {
    ($($what:literal, $name:ident, $opt:ident -> $t:ty, $convert:expr;)*) => {$(
        #[doc = concat!("The ", $what, " under `key`.")]
        ///
        /// # Errors
        ///
        /// [`GgufError::MissingKey`], [`GgufError::WrongType`] or [`GgufError::OutOfRange`].
        pub fn $name(&self, key: &str) -> Result<$t, GgufError> {
            self.$opt(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned(), expected: $what })
        }

        #[doc = concat!("The ", $what, " under `key`, `None` when the key is absent.")]
        ///
        /// # Errors
        ///
        /// [`GgufError::WrongType`] or [`GgufError::OutOfRange`].
        pub fn $opt(&self, key: &str) -> Result<Option<$t>, GgufError> {
            let Some(value) = self.get(key) else { return Ok(None) };
            let convert: fn(&Value) -> Result<$t, Mismatch> = $convert;
            convert(value).map(Some).map_err(|m| m.into_error(key, $what, value))
        }
    )*};
}

impl Metadata {
    /// Metadata without entries.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// True when there is a value under `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Appends an entry.
    ///
    /// # Errors
    ///
    /// [`GgufError::DuplicateKey`] when the key is there already.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Result<(), GgufError> {
        let key = key.into();
        if self.contains(&key) {
            return Err(GgufError::DuplicateKey { key });
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value.into()));
        Ok(())
    }

    /// Sets the value under `key`: in place when the key is there, else as the last entry.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let key = key.into();
        if let Some(&i) = self.index.get(&key) {
            self.entries[i].1 = value.into();
        } else {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, value.into()));
        }
    }

    /// Removes the entry under `key` and returns its value; the order of the others stays.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let i = self.index.remove(key)?;
        let (_, value) = self.entries.remove(i);
        for (k, _) in &self.entries[i..] {
            if let Some(at) = self.index.get_mut(k) {
                *at -= 1;
            }
        }
        Some(value)
    }

    getters! {
        "u32", u32, opt_u32 -> u32, |v| integer(v);
        "i32", i32, opt_i32 -> i32, |v| integer(v);
        "u64", u64, opt_u64 -> u64, |v| integer(v);
        "i64", i64, opt_i64 -> i64, |v| integer(v);
        "f32", f32, opt_f32 -> f32, |v| match *v {
            Value::F32(x) => Ok(x),
            Value::F64(x) => Ok(x as f32),
            _ => Err(Mismatch::Type),
        };
        "f64", f64, opt_f64 -> f64, |v| match *v {
            Value::F32(x) => Ok(x.into()),
            Value::F64(x) => Ok(x),
            _ => Err(Mismatch::Type),
        };
        "bool", bool, opt_bool -> bool, |v| match *v {
            Value::Bool(x) => Ok(x),
            _ => Err(Mismatch::Type),
        };
        "array of u32", u32_array, opt_u32_array -> Vec<u32>, |v| integers(v);
        "array of i32", i32_array, opt_i32_array -> Vec<i32>, |v| integers(v);
        "array of f32", f32_array, opt_f32_array -> Vec<f32>, |v| match v {
            Value::Array(Array::F32(a)) => Ok(a.clone()),
            Value::Array(Array::F64(a)) => Ok(a.iter().map(|&x| x as f32).collect()),
            _ => Err(Mismatch::Type),
        };
        "array of bool", bool_array, opt_bool_array -> Vec<bool>, |v| match v {
            Value::Array(Array::Bool(a)) => Ok(a.clone()),
            _ => Err(Mismatch::Type),
        };
    }

    /// The string under `key`.
    ///
    /// # Errors
    ///
    /// [`GgufError::MissingKey`] or [`GgufError::WrongType`].
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        self.opt_str(key)?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned(), expected: "string" })
    }

    /// The string under `key`, `None` when the key is absent.
    ///
    /// # Errors
    ///
    /// [`GgufError::WrongType`].
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(Mismatch::Type.into_error(key, "string", other)),
        }
    }

    /// The strings under `key`.
    ///
    /// # Errors
    ///
    /// [`GgufError::MissingKey`] or [`GgufError::WrongType`].
    pub fn str_array(&self, key: &str) -> Result<&StrArray, GgufError> {
        self.opt_str_array(key)?
            .ok_or_else(|| GgufError::MissingKey { key: key.to_owned(), expected: "array of string" })
    }

    /// The strings under `key`, `None` when the key is absent.
    ///
    /// # Errors
    ///
    /// [`GgufError::WrongType`].
    pub fn opt_str_array(&self, key: &str) -> Result<Option<&StrArray>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::Str(a))) => Ok(Some(a)),
            Some(other) => Err(Mismatch::Type.into_error(key, "array of string", other)),
        }
    }
}

/// Why a value could not be converted.
enum Mismatch {
    Type,
    Range(i128),
}

impl Mismatch {
    fn into_error(self, key: &str, expected: &'static str, value: &Value) -> GgufError {
        let key = key.to_owned();
        match self {
            Mismatch::Type => GgufError::WrongType { key, expected, found: value.type_name() },
            Mismatch::Range(found) => GgufError::OutOfRange { key, expected, found },
        }
    }
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Result<T, Mismatch> {
    let x = value.as_integer().ok_or(Mismatch::Type)?;
    T::try_from(x).map_err(|_| Mismatch::Range(x))
}

fn integers<T: TryFrom<i128>>(value: &Value) -> Result<Vec<T>, Mismatch> {
    let Value::Array(array) = value else { return Err(Mismatch::Type) };
    let elements = array.integers().ok_or(Mismatch::Type)?;
    elements.map(|x| T::try_from(x).map_err(|_| Mismatch::Range(x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut m = Metadata::new();
        m.set("u8", 200u8);
        m.set("i8", -1i8);
        m.set("u64", 1u64 << 40);
        m.set("f64", 0.5f64);
        m.set("yes", true);
        m.set("text", "words");
        m.set("mixed", Value::Array(Array::I64(vec![1, -2, 1 << 33])));
        m.set("words", Value::Array(Array::Str(["a", "b"].into_iter().collect())));
        m.set("flags", Value::Array(Array::Bool(vec![true, false])));
        m.set("floats", Value::Array(Array::F64(vec![0.5, 2.0])));
        m
    }

    #[test]
    fn integers_of_any_width_are_taken_when_they_fit() {
        let m = sample();
        assert_eq!(m.u32("u8").unwrap(), 200);
        assert_eq!(m.i32("i8").unwrap(), -1);
        assert_eq!(m.u64("u64").unwrap(), 1 << 40);
        assert_eq!(
            m.u32("u64").unwrap_err().to_string(),
            "metadata key \"u64\" is out of range: expected u32, found 1099511627776"
        );
        assert_eq!(
            m.u32("i8").unwrap_err().to_string(),
            "metadata key \"i8\" is out of range: expected u32, found -1"
        );
        assert!(matches!(m.i32_array("mixed"), Err(GgufError::OutOfRange { found: 8_589_934_592, .. })));
    }

    #[test]
    fn wrong_types_and_missing_keys_are_named() {
        let m = sample();
        let cases = [
            (m.u32("yes").unwrap_err(), "metadata key \"yes\" has the wrong type: expected u32, found bool"),
            (m.f32("u8").unwrap_err(), "metadata key \"u8\" has the wrong type: expected f32, found u8"),
            (m.bool("u8").unwrap_err(), "metadata key \"u8\" has the wrong type: expected bool, found u8"),
            (
                m.i32_array("words").unwrap_err(),
                "metadata key \"words\" has the wrong type: expected array of i32, found array of 2 string",
            ),
            (
                m.str_array("text").unwrap_err(),
                "metadata key \"text\" has the wrong type: expected array of string, found string",
            ),
            (m.u32("gone").unwrap_err(), "metadata key \"gone\" is missing: expected u32"),
            (m.str("gone").unwrap_err(), "metadata key \"gone\" is missing: expected string"),
            (m.str_array("gone").unwrap_err(), "metadata key \"gone\" is missing: expected array of string"),
        ];
        for (err, text) in cases {
            assert_eq!(err.to_string(), text);
        }
        assert_eq!(m.opt_u32("gone").unwrap(), None);
        assert_eq!(m.opt_str("gone").unwrap(), None);
        assert!(m.opt_str_array("gone").unwrap().is_none());
        assert!(m.opt_str("u8").is_err());
    }

    #[test]
    fn floats_flags_and_words() {
        let m = sample();
        assert_eq!(m.f32("f64").unwrap(), 0.5);
        assert_eq!(m.f64("f64").unwrap(), 0.5);
        assert_eq!(m.f32_array("floats").unwrap(), [0.5, 2.0]);
        assert_eq!(m.bool_array("flags").unwrap(), [true, false]);
        assert_eq!(m.str_array("words").unwrap().to_vec(), ["a", "b"]);
        assert_eq!(&m.str_array("words").unwrap()[1], "b");
    }

    #[test]
    fn order_survives_setting_and_removing() {
        let mut m = sample();
        m.set("u8", 1u8);
        assert_eq!(m.iter().next().unwrap(), ("u8", &Value::U8(1)));
        assert_eq!(m.remove("i8"), Some(Value::I8(-1)));
        assert_eq!(m.remove("i8"), None);
        assert_eq!(m.get("words"), sample().get("words"));
        assert_eq!(m.len(), sample().len() - 1);
        assert!(matches!(m.push("u8", 2u8), Err(GgufError::DuplicateKey { .. })));
    }
}
