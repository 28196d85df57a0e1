//! Modules of the kernels, made by `cargo xtask cuda`; not to be changed by hand.

use crate::gpu::module::{Form, Module};

/// In the order of the kernels.
#[rustfmt::skip]
pub(super) static MODULES: &[Module] = &[
    Module {
        name: "probe",
        forms: &[
            Form { device: "75", bytes: 18363, packed: include_bytes!("made/probe.75.z") },
        ],
    },
    Module {
        name: "element",
        forms: &[
            Form { device: "75", bytes: 15552, packed: include_bytes!("made/element.75.z") },
        ],
    },
    Module {
        name: "norm",
        forms: &[
            Form { device: "75", bytes: 5397, packed: include_bytes!("made/norm.75.z") },
        ],
    },
    Module {
        name: "rope",
        forms: &[
            Form { device: "75", bytes: 3282, packed: include_bytes!("made/rope.75.z") },
        ],
    },
    Module {
        name: "take_rows",
        forms: &[
            Form { device: "75", bytes: 1609, packed: include_bytes!("made/take_rows.75.z") },
        ],
    },
    Module {
        name: "embed_f32",
        forms: &[
            Form { device: "75", bytes: 2591, packed: include_bytes!("made/embed_f32.75.z") },
        ],
    },
    Module {
        name: "embed_half",
        forms: &[
            Form { device: "75", bytes: 3605, packed: include_bytes!("made/embed_half.75.z") },
        ],
    },
    Module {
        name: "embed_block",
        forms: &[
            Form { device: "75", bytes: 5069, packed: include_bytes!("made/embed_block.75.z") },
        ],
    },
    Module {
        name: "quantize",
        forms: &[
            Form { device: "75", bytes: 12100, packed: include_bytes!("made/quantize.75.z") },
        ],
    },
    Module {
        name: "matmul_f32",
        forms: &[
            Form { device: "75", bytes: 107064, packed: include_bytes!("made/matmul_f32.75.z") },
        ],
    },
    Module {
        name: "matmul_half",
        forms: &[
            Form { device: "75", bytes: 118563, packed: include_bytes!("made/matmul_half.75.z") },
        ],
    },
    Module {
        name: "matmul_block",
        forms: &[
            Form { device: "75", bytes: 126480, packed: include_bytes!("made/matmul_block.75.z") },
        ],
    },
    Module {
        name: "matmul_int8",
        forms: &[
            Form { device: "75", bytes: 157174, packed: include_bytes!("made/matmul_int8.75.z") },
            Form { device: "80", bytes: 134990, packed: include_bytes!("made/matmul_int8.80.z") },
        ],
    },
    Module {
        name: "kv_store",
        forms: &[
            Form { device: "75", bytes: 16908, packed: include_bytes!("made/kv_store.75.z") },
        ],
    },
    Module {
        name: "kv_load",
        forms: &[
            Form { device: "75", bytes: 3247, packed: include_bytes!("made/kv_load.75.z") },
        ],
    },
    Module {
        name: "attention_scores",
        forms: &[
            Form { device: "75", bytes: 21425, packed: include_bytes!("made/attention_scores.75.z") },
        ],
    },
    Module {
        name: "attention_softmax",
        forms: &[
            Form { device: "75", bytes: 7152, packed: include_bytes!("made/attention_softmax.75.z") },
        ],
    },
    Module {
        name: "attention_values",
        forms: &[
            Form { device: "75", bytes: 31061, packed: include_bytes!("made/attention_values.75.z") },
        ],
    },
    Module {
        name: "moe_probs",
        forms: &[
            Form { device: "75", bytes: 31137, packed: include_bytes!("made/moe_probs.75.z") },
        ],
    },
    Module {
        name: "moe_open",
        forms: &[
            Form { device: "75", bytes: 11704, packed: include_bytes!("made/moe_open.75.z") },
        ],
    },
    Module {
        name: "moe_choose",
        forms: &[
            Form { device: "75", bytes: 54628, packed: include_bytes!("made/moe_choose.75.z") },
        ],
    },
    Module {
        name: "moe_group",
        forms: &[
            Form { device: "75", bytes: 7446, packed: include_bytes!("made/moe_group.75.z") },
        ],
    },
    Module {
        name: "moe_combine",
        forms: &[
            Form { device: "75", bytes: 4339, packed: include_bytes!("made/moe_combine.75.z") },
        ],
    },
    Module {
        name: "penalize",
        forms: &[
            Form { device: "75", bytes: 3642, packed: include_bytes!("made/penalize.75.z") },
        ],
    },
    Module {
        name: "restrict",
        forms: &[
            Form { device: "75", bytes: 46960, packed: include_bytes!("made/restrict.75.z") },
        ],
    },
    Module {
        name: "pick_stats",
        forms: &[
            Form { device: "75", bytes: 6749, packed: include_bytes!("made/pick_stats.75.z") },
        ],
    },
    Module {
        name: "stats_tile",
        forms: &[
            Form { device: "75", bytes: 15556, packed: include_bytes!("made/stats_tile.75.z") },
        ],
    },
    Module {
        name: "stats_row",
        forms: &[
            Form { device: "75", bytes: 18442, packed: include_bytes!("made/stats_row.75.z") },
        ],
    },
    Module {
        name: "sample",
        forms: &[
            Form { device: "75", bytes: 9907, packed: include_bytes!("made/sample.75.z") },
        ],
    },
    Module {
        name: "soft_parts",
        forms: &[
            Form { device: "75", bytes: 8049, packed: include_bytes!("made/soft_parts.75.z") },
        ],
    },
    Module {
        name: "soft_ids",
        forms: &[
            Form { device: "75", bytes: 9963, packed: include_bytes!("made/soft_ids.75.z") },
        ],
    },
    Module {
        name: "soft_sum_f32",
        forms: &[
            Form { device: "75", bytes: 41764, packed: include_bytes!("made/soft_sum_f32.75.z") },
        ],
    },
    Module {
        name: "soft_sum_half",
        forms: &[
            Form { device: "75", bytes: 50528, packed: include_bytes!("made/soft_sum_half.75.z") },
        ],
    },
    Module {
        name: "soft_sum_block",
        forms: &[
            Form { device: "75", bytes: 56656, packed: include_bytes!("made/soft_sum_block.75.z") },
        ],
    },
];
