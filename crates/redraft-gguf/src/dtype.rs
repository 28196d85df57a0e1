//! The table of tensor types: id, name, block length, block bytes.
//!
//! The ids are those of ggml's `ggml_type`. Every type that a file may contain today is listed, and has a codec
//! ([`CODECS`](crate::CODECS)). Ids that are absent (4, 5, 31 to 33,
//! 36 to 38) were withdrawn; they and ids of the future are kept as plain numbers.

use std::borrow::Cow;
use std::fmt;

/// The type of a tensor's elements, as the number in the file.
///
/// ```
/// use redraft_gguf::DType;
///
/// assert_eq!(DType::Q4_K.name(), "Q4_K");
/// assert_eq!(DType::Q4_K.row_bytes(512), Some(288));
/// assert_eq!(DType(43).name(), "type 43");
/// assert!(DType(43).info().is_none());
/// ```
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DType(pub u32);

/// The fixed facts about a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DTypeInfo {
    /// The type.
    pub id: DType,
    /// Its name in the words of the format, such as `Q4_K`.
    pub name: &'static str,
    /// Elements per block; 1 for plain numbers.
    pub block_len: usize,
    /// Bytes per block.
    pub block_bytes: usize,
}

/// Defines the constants of [`DType`] and the table [`DTYPES`] from one list.
macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $len:literal, $bytes:literal;)*) => {
        #[allow(non_upper_case_globals)] // the names of the format
        impl DType {
            $($(#[$doc])* pub const $name: DType = DType($id);)*
        }

        /// All types that a file may contain, in ascending order of their id.
        pub static DTYPES: &[DTypeInfo] = &[
            $(DTypeInfo { id: DType($id), name: stringify!($name), block_len: $len, block_bytes: $bytes },)*
        ];
    };
}

dtypes! {
    /// 32-bit IEEE float.
    F32 = 0, 1, 4;
    /// 16-bit IEEE float.
    F16 = 1, 1, 2;
    /// 4 bits, one scale per 32.
    Q4_0 = 2, 32, 18;
    /// 4 bits, scale and minimum per 32.
    Q4_1 = 3, 32, 20;
    /// 5 bits, one scale per 32.
    Q5_0 = 6, 32, 22;
    /// 5 bits, scale and minimum per 32.
    Q5_1 = 7, 32, 24;
    /// 8 bits, one scale per 32.
    Q8_0 = 8, 32, 34;
    /// 8 bits, scale and scaled sum per 32; activations only. (gguf-py still has the 40 bytes of an older form.)
    Q8_1 = 9, 32, 36;
    /// 2 bits, super-blocks of 256.
    Q2_K = 10, 256, 84;
    /// 3 bits, super-blocks of 256.
    Q3_K = 11, 256, 110;
    /// 4 bits, super-blocks of 256.
    Q4_K = 12, 256, 144;
    /// 5 bits, super-blocks of 256.
    Q5_K = 13, 256, 176;
    /// 6 bits, super-blocks of 256.
    Q6_K = 14, 256, 210;
    /// 8 bits, super-blocks of 256; activations only.
    Q8_K = 15, 256, 292;
    /// Grid-coded, 2.06 bits per weight.
    IQ2_XXS = 16, 256, 66;
    /// Grid-coded, 2.31 bits per weight.
    IQ2_XS = 17, 256, 74;
    /// Grid-coded, 3.06 bits per weight.
    IQ3_XXS = 18, 256, 98;
    /// Grid-coded, 1.56 bits per weight.
    IQ1_S = 19, 256, 50;
    /// 4 bits by a table of 16 values, one scale per 32.
    IQ4_NL = 20, 32, 18;
    /// Grid-coded, 3.44 bits per weight.
    IQ3_S = 21, 256, 110;
    /// Grid-coded, 2.56 bits per weight.
    IQ2_S = 22, 256, 82;
    /// 4 bits by a table of 16 values, super-blocks of 256.
    IQ4_XS = 23, 256, 136;
    /// Signed bytes.
    I8 = 24, 1, 1;
    /// Signed 16-bit integers.
    I16 = 25, 1, 2;
    /// Signed 32-bit integers.
    I32 = 26, 1, 4;
    /// Signed 64-bit integers.
    I64 = 27, 1, 8;
    /// 64-bit IEEE float.
    F64 = 28, 1, 8;
    /// Grid-coded, 1.75 bits per weight.
    IQ1_M = 29, 256, 56;
    /// bfloat16: the upper half of a 32-bit float.
    BF16 = 30, 1, 2;
    /// Ternary, 1.69 bits per weight.
    TQ1_0 = 34, 256, 54;
    /// Ternary, 2.06 bits per weight.
    TQ2_0 = 35, 256, 66;
    /// 4-bit floats (E2M1), one power-of-two scale per 32.
    MXFP4 = 39, 32, 17;
    /// 4-bit floats (E2M1), one E4M3 scale per 16, blocks of 64.
    NVFP4 = 40, 64, 36;
    /// One bit, one scale per 128.
    Q1_0 = 41, 128, 18;
    /// 2 bits, one scale per 64.
    Q2_0 = 42, 64, 18;
}

impl DType {
    /// The facts about the type; `None` for an id that the table does not have.
    pub fn info(self) -> Option<&'static DTypeInfo> {
        DTYPES.binary_search_by_key(&self, |t| t.id).ok().map(|i| &DTYPES[i])
    }

    /// True for tensors of integers, which are tables rather than weights.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// The name of the type, `type N` for an unknown id.
    pub fn name(self) -> Cow<'static, str> {
        match self.info() {
            Some(info) => Cow::Borrowed(info.name),
            None => Cow::Owned(format!("type {}", self.0)),
        }
    }

    /// The type of that name, upper or lower case.
    pub fn from_name(name: &str) -> Option<DType> {
        DTYPES.iter().find(|t| t.name.eq_ignore_ascii_case(name)).map(|t| t.id)
    }

    /// Bytes of a row of `len` elements; `None` when the type is unknown, when `len` is not a whole number
    /// of blocks, or when the result does not fit.
    pub fn row_bytes(self, len: u64) -> Option<u64> {
        let info = self.info()?;
        if !len.is_multiple_of(info.block_len as u64) {
            return None;
        }
        (len / info.block_len as u64).checked_mul(info.block_bytes as u64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_names_are_found() {
        assert!(DTYPES.windows(2).all(|w| w[0].id < w[1].id));
        for t in DTYPES {
            assert_eq!(t.id.info(), Some(t));
            assert_eq!(DType::from_name(&t.name.to_lowercase()), Some(t.id));
            assert_eq!(t.id.to_string(), t.name);
        }
        assert_eq!(DType::from_name("Q9_9"), None);
    }

    #[test]
    fn withdrawn_and_future_ids_are_plain_numbers() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert!(DType(id).info().is_none());
            assert_eq!(DType(id).name(), format!("type {id}"));
            assert_eq!(DType(id).row_bytes(256), None);
        }
    }

    #[test]
    fn row_bytes_counts_blocks() {
        assert_eq!(DType::F32.row_bytes(3), Some(12));
        assert_eq!(DType::Q5_0.row_bytes(2112), Some(2112 / 32 * 22));
        assert_eq!(DType::Q6_K.row_bytes(2112), None);
        assert_eq!(DType::F64.row_bytes(u64::MAX), None);
        assert_eq!(DType::F32.row_bytes(0), Some(0));
    }
}
