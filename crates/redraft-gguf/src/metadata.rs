//! Metadata: an ordered list of keys and typed values, with getters that name the key in their errors.
//!
//! Writers disagree about integer widths (a head count is u32 in one file and i32 in another), so integer
//! getters take any integer type whose value fits, and float getters take both float types (f64 is rounded
//! for a getter of f32). Nothing else is converted: a string is never parsed, a float never made an integer.

use std::collections::HashMap;

use crate::{Array, GgufError, StrArray, Value};

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
