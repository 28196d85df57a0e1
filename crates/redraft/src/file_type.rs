//! File types: their numbers and names, and the block types for odd row lengths.

use std::collections::BTreeMap;

use redraft_gguf::{DType, Gguf};

/// `general.file_type` as llama.cpp numbers and names it, and the block type of most matrices for the types that
/// are written here.
const TYPES: &[(u32, &str, Option<DType>)] = &[
    (0, "F32", Some(DType::F32)),
    (1, "F16", Some(DType::F16)),
    (2, "Q4_0", Some(DType::Q4_0)),
    (3, "Q4_1", Some(DType::Q4_1)),
    (7, "Q8_0", Some(DType::Q8_0)),
    (8, "Q5_0", Some(DType::Q5_0)),
    (9, "Q5_1", Some(DType::Q5_1)),
    (10, "Q2_K", Some(DType::Q2_K)),
    (11, "Q3_K_S", None),
    (12, "Q3_K_M", Some(DType::Q3_K)),
    (13, "Q3_K_L", None),
    (14, "Q4_K_S", None),
    (15, "Q4_K_M", Some(DType::Q4_K)),
    (16, "Q5_K_S", None),
    (17, "Q5_K_M", Some(DType::Q5_K)),
    (18, "Q6_K", Some(DType::Q6_K)),
    (19, "IQ2_XXS", None),
    (20, "IQ2_XS", None),
    (21, "Q2_K_S", None),
    (22, "IQ3_XS", None),
    (23, "IQ3_XXS", None),
    (24, "IQ1_S", None),
    (25, "IQ4_NL", Some(DType::IQ4_NL)),
    (26, "IQ3_S", None),
    (27, "IQ3_M", None),
    (28, "IQ2_S", None),
    (29, "IQ2_M", None),
    (30, "IQ4_XS", Some(DType::IQ4_XS)),
    (31, "IQ1_M", None),
    (32, "BF16", Some(DType::BF16)),
    (36, "TQ1_0", None),
    (37, "TQ2_0", None),
    (38, "MXFP4_MOE", Some(DType::MXFP4)),
    (39, "NVFP4", None),
    (40, "Q1_0", None),
    (41, "Q2_0", None),
];

/// The number of a file whose matrices are mostly of this type.
pub(crate) fn id_of(dtype: DType) -> Option<u32> {
    TYPES.iter().find(|t| t.2 == Some(dtype)).map(|t| t.0)
}

/// The number of the file type of that name, upper or lower case.
pub(crate) fn id_of_name(name: &str) -> Option<u32> {
    TYPES.iter().find(|t| t.1.eq_ignore_ascii_case(name)).map(|t| t.0)
}

/// The name of the file type that `general.file_type` states; without a known one the block type that most bytes
/// have.
pub fn file_type_name(gguf: &Gguf) -> String {
    let stated = gguf.metadata().opt_u64("general.file_type").ok().flatten();
    if let Some((_, name, _)) = TYPES.iter().find(|t| Some(u64::from(t.0)) == stated) {
        return (*name).to_string();
    }
    let mut sums: BTreeMap<DType, u64> = BTreeMap::new();
    for t in gguf.tensors() {
        *sums.entry(t.dtype).or_default() += t.n_bytes;
    }
    let most = sums.iter().max_by_key(|(_, bytes)| **bytes);
    most.map_or_else(|| "none".into(), |(dtype, _)| format!("mostly {dtype}"))
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

#[cfg(test)]
mod tests {
    use redraft_gguf::{Bytes, GgufWriter};

    use super::*;
    use crate::convert::MIXES;

    #[test]
    fn every_mix_has_the_number_of_its_name() {
        assert_eq!(
            MIXES.iter().filter_map(|m| id_of_name(m.name)).collect::<Vec<_>>(),
            [2, 3, 8, 9, 10, 21, 11, 12, 13, 14, 15, 16, 17, 25, 30, 38]
        );
        assert_eq!((MIXES.len(), id_of(DType::Q4_K), id_of(DType::Q8_1)), (16, Some(15), None));
    }

    #[test]
    fn files_that_state_no_known_type_have_that_of_most_bytes() {
        let name = |stated: Option<u32>| {
            let mut w = GgufWriter::new();
            if let Some(id) = stated {
                w.metadata_mut().set("general.file_type", id);
            }
            w.add_tensor("a", &[32, 9], DType::Q8_0).unwrap();
            w.add_tensor("b", &[32], DType::F32).unwrap();
            let mut out = w.begin(Vec::new()).unwrap();
            out.write_tensor("a", &[0; 9 * 34]).unwrap();
            out.write_tensor("b", &[0; 128]).unwrap();
            file_type_name(&Gguf::from_bytes(Bytes::from(out.finish().unwrap())).unwrap())
        };
        assert_eq!(name(Some(41)), "Q2_0");
        assert_eq!((name(Some(999)), name(None)), ("mostly Q8_0".into(), "mostly Q8_0".into()));
    }
}
