//! Metadata values in the types of the format.

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
    pub(crate) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
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
