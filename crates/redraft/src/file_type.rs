//! What quantizing and synthesizing files share: numbers of file types, and types for odd row lengths.

use redraft_gguf::DType;

/// `general.file_type` by the type of most matrices, as llama.cpp numbers them.
const IDS: &[(DType, u32)] = &[
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::Q4_0, 2),
    (DType::Q4_1, 3),
    (DType::Q8_0, 7),
    (DType::Q5_0, 8),
    (DType::Q5_1, 9),
    (DType::Q2_K, 10),
    (DType::Q3_K, 12),
    (DType::Q4_K, 15),
    (DType::Q5_K, 17),
    (DType::Q6_K, 18),
    (DType::IQ4_NL, 25),
    (DType::IQ4_XS, 30),
    (DType::BF16, 32),
    (DType::MXFP4, 38),
];

/// The number of a file whose matrices are mostly of this type.
pub(crate) fn file_type_id(dtype: DType) -> Option<u32> {
    IDS.iter().find(|(d, _)| *d == dtype).map(|(_, id)| *id)
}

/// The type that a row of `len` elements takes where `wanted` is asked for: rows that are no whole number of
/// super-blocks get the next larger type with blocks of 32, and what does not divide into those, F16.
/// llama.cpp chooses the same, but for `Q2_K` and `Q3_K`, which it gives `Q4_0`.
pub(crate) fn fitting(wanted: DType, len: u64) -> DType {
    let larger = match wanted {
        DType::Q2_K | DType::Q3_K | DType::IQ4_XS => DType::IQ4_NL,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        _ => DType::Q8_0,
    };
    [wanted, larger].into_iter().find(|d| d.row_bytes(len).is_some()).unwrap_or(DType::F16)
}

/// Whether the tensor `i` of `n` of a sensitive kind gets more bits in the mixes called M: in the first and the
/// last eighth of the layers and in every third one between them. llama.cpp's rule.
pub(crate) fn more_bits(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}
