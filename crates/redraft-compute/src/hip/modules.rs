//! Modules of the kernels, made by `cargo xtask hip`; not to be changed by hand.

use crate::gpu::module::{Form, Module};

/// In the order of the kernels.
#[rustfmt::skip]
pub(super) static MODULES: &[Module] = &[
    Module {
        name: "probe",
        forms: &[
            Form { device: "gfx90a", bytes: 7200, packed: include_bytes!("made/probe.gfx90a.z") },
            Form { device: "gfx942", bytes: 7264, packed: include_bytes!("made/probe.gfx942.z") },
            Form { device: "gfx1100", bytes: 6944, packed: include_bytes!("made/probe.gfx1100.z") },
        ],
    },
    Module {
        name: "element",
        forms: &[
            Form { device: "gfx90a", bytes: 6752, packed: include_bytes!("made/element.gfx90a.z") },
            Form { device: "gfx942", bytes: 6816, packed: include_bytes!("made/element.gfx942.z") },
            Form { device: "gfx1100", bytes: 6432, packed: include_bytes!("made/element.gfx1100.z") },
        ],
    },
    Module {
        name: "norm",
        forms: &[
            Form { device: "gfx90a", bytes: 5272, packed: include_bytes!("made/norm.gfx90a.z") },
            Form { device: "gfx942", bytes: 5208, packed: include_bytes!("made/norm.gfx942.z") },
            Form { device: "gfx1100", bytes: 4760, packed: include_bytes!("made/norm.gfx1100.z") },
        ],
    },
    Module {
        name: "rope",
        forms: &[
            Form { device: "gfx90a", bytes: 5208, packed: include_bytes!("made/rope.gfx90a.z") },
            Form { device: "gfx942", bytes: 5208, packed: include_bytes!("made/rope.gfx942.z") },
            Form { device: "gfx1100", bytes: 4760, packed: include_bytes!("made/rope.gfx1100.z") },
        ],
    },
    Module {
        name: "take_rows",
        forms: &[
            Form { device: "gfx90a", bytes: 4648, packed: include_bytes!("made/take_rows.gfx90a.z") },
            Form { device: "gfx942", bytes: 4648, packed: include_bytes!("made/take_rows.gfx942.z") },
            Form { device: "gfx1100", bytes: 4136, packed: include_bytes!("made/take_rows.gfx1100.z") },
        ],
    },
    Module {
        name: "embed_f32",
        forms: &[
            Form { device: "gfx90a", bytes: 4904, packed: include_bytes!("made/embed_f32.gfx90a.z") },
            Form { device: "gfx942", bytes: 4840, packed: include_bytes!("made/embed_f32.gfx942.z") },
            Form { device: "gfx1100", bytes: 4392, packed: include_bytes!("made/embed_f32.gfx1100.z") },
        ],
    },
    Module {
        name: "embed_half",
        forms: &[
            Form { device: "gfx90a", bytes: 5032, packed: include_bytes!("made/embed_half.gfx90a.z") },
            Form { device: "gfx942", bytes: 5032, packed: include_bytes!("made/embed_half.gfx942.z") },
            Form { device: "gfx1100", bytes: 4520, packed: include_bytes!("made/embed_half.gfx1100.z") },
        ],
    },
    Module {
        name: "embed_block",
        forms: &[
            Form { device: "gfx90a", bytes: 5224, packed: include_bytes!("made/embed_block.gfx90a.z") },
            Form { device: "gfx942", bytes: 5160, packed: include_bytes!("made/embed_block.gfx942.z") },
            Form { device: "gfx1100", bytes: 4776, packed: include_bytes!("made/embed_block.gfx1100.z") },
        ],
    },
    Module {
        name: "quantize",
        forms: &[
            Form { device: "gfx90a", bytes: 6880, packed: include_bytes!("made/quantize.gfx90a.z") },
            Form { device: "gfx942", bytes: 6432, packed: include_bytes!("made/quantize.gfx942.z") },
            Form { device: "gfx1100", bytes: 6688, packed: include_bytes!("made/quantize.gfx1100.z") },
        ],
    },
    Module {
        name: "matmul_f32",
        forms: &[
            Form { device: "gfx90a", bytes: 21288, packed: include_bytes!("made/matmul_f32.gfx90a.z") },
            Form { device: "gfx942", bytes: 21096, packed: include_bytes!("made/matmul_f32.gfx942.z") },
            Form { device: "gfx1100", bytes: 22696, packed: include_bytes!("made/matmul_f32.gfx1100.z") },
        ],
    },
    Module {
        name: "matmul_half",
        forms: &[
            Form { device: "gfx90a", bytes: 21800, packed: include_bytes!("made/matmul_half.gfx90a.z") },
            Form { device: "gfx942", bytes: 21672, packed: include_bytes!("made/matmul_half.gfx942.z") },
            Form { device: "gfx1100", bytes: 23336, packed: include_bytes!("made/matmul_half.gfx1100.z") },
        ],
    },
    Module {
        name: "matmul_block",
        forms: &[
            Form { device: "gfx90a", bytes: 22568, packed: include_bytes!("made/matmul_block.gfx90a.z") },
            Form { device: "gfx942", bytes: 22248, packed: include_bytes!("made/matmul_block.gfx942.z") },
            Form { device: "gfx1100", bytes: 24232, packed: include_bytes!("made/matmul_block.gfx1100.z") },
        ],
    },
    Module {
        name: "matmul_int8",
        forms: &[
            Form { device: "gfx90a", bytes: 26280, packed: include_bytes!("made/matmul_int8.gfx90a.z") },
            Form { device: "gfx942", bytes: 25896, packed: include_bytes!("made/matmul_int8.gfx942.z") },
            Form { device: "gfx1100", bytes: 28456, packed: include_bytes!("made/matmul_int8.gfx1100.z") },
        ],
    },
    Module {
        name: "kv_store",
        forms: &[
            Form { device: "gfx90a", bytes: 6432, packed: include_bytes!("made/kv_store.gfx90a.z") },
            Form { device: "gfx942", bytes: 6368, packed: include_bytes!("made/kv_store.gfx942.z") },
            Form { device: "gfx1100", bytes: 6048, packed: include_bytes!("made/kv_store.gfx1100.z") },
        ],
    },
    Module {
        name: "kv_load",
        forms: &[
            Form { device: "gfx90a", bytes: 4960, packed: include_bytes!("made/kv_load.gfx90a.z") },
            Form { device: "gfx942", bytes: 4960, packed: include_bytes!("made/kv_load.gfx942.z") },
            Form { device: "gfx1100", bytes: 4512, packed: include_bytes!("made/kv_load.gfx1100.z") },
        ],
    },
    Module {
        name: "attention_scores",
        forms: &[
            Form { device: "gfx90a", bytes: 7792, packed: include_bytes!("made/attention_scores.gfx90a.z") },
            Form { device: "gfx942", bytes: 7280, packed: include_bytes!("made/attention_scores.gfx942.z") },
            Form { device: "gfx1100", bytes: 7472, packed: include_bytes!("made/attention_scores.gfx1100.z") },
        ],
    },
    Module {
        name: "attention_softmax",
        forms: &[
            Form { device: "gfx90a", bytes: 5880, packed: include_bytes!("made/attention_softmax.gfx90a.z") },
            Form { device: "gfx942", bytes: 5880, packed: include_bytes!("made/attention_softmax.gfx942.z") },
            Form { device: "gfx1100", bytes: 5560, packed: include_bytes!("made/attention_softmax.gfx1100.z") },
        ],
    },
    Module {
        name: "attention_values",
        forms: &[
            Form { device: "gfx90a", bytes: 14960, packed: include_bytes!("made/attention_values.gfx90a.z") },
            Form { device: "gfx942", bytes: 14128, packed: include_bytes!("made/attention_values.gfx942.z") },
            Form { device: "gfx1100", bytes: 15408, packed: include_bytes!("made/attention_values.gfx1100.z") },
        ],
    },
    Module {
        name: "moe_probs",
        forms: &[
            Form { device: "gfx90a", bytes: 7400, packed: include_bytes!("made/moe_probs.gfx90a.z") },
            Form { device: "gfx942", bytes: 7144, packed: include_bytes!("made/moe_probs.gfx942.z") },
            Form { device: "gfx1100", bytes: 6184, packed: include_bytes!("made/moe_probs.gfx1100.z") },
        ],
    },
    Module {
        name: "moe_open",
        forms: &[
            Form { device: "gfx90a", bytes: 5600, packed: include_bytes!("made/moe_open.gfx90a.z") },
            Form { device: "gfx942", bytes: 5536, packed: include_bytes!("made/moe_open.gfx942.z") },
            Form { device: "gfx1100", bytes: 4896, packed: include_bytes!("made/moe_open.gfx1100.z") },
        ],
    },
    Module {
        name: "moe_choose",
        forms: &[
            Form { device: "gfx90a", bytes: 6760, packed: include_bytes!("made/moe_choose.gfx90a.z") },
            Form { device: "gfx942", bytes: 6504, packed: include_bytes!("made/moe_choose.gfx942.z") },
            Form { device: "gfx1100", bytes: 6568, packed: include_bytes!("made/moe_choose.gfx1100.z") },
        ],
    },
    Module {
        name: "moe_group",
        forms: &[
            Form { device: "gfx90a", bytes: 4840, packed: include_bytes!("made/moe_group.gfx90a.z") },
            Form { device: "gfx942", bytes: 4840, packed: include_bytes!("made/moe_group.gfx942.z") },
            Form { device: "gfx1100", bytes: 4392, packed: include_bytes!("made/moe_group.gfx1100.z") },
        ],
    },
    Module {
        name: "moe_combine",
        forms: &[
            Form { device: "gfx90a", bytes: 4904, packed: include_bytes!("made/moe_combine.gfx90a.z") },
            Form { device: "gfx942", bytes: 4840, packed: include_bytes!("made/moe_combine.gfx942.z") },
            Form { device: "gfx1100", bytes: 4392, packed: include_bytes!("made/moe_combine.gfx1100.z") },
        ],
    },
    Module {
        name: "penalize",
        forms: &[
            Form { device: "gfx90a", bytes: 5216, packed: include_bytes!("made/penalize.gfx90a.z") },
            Form { device: "gfx942", bytes: 5152, packed: include_bytes!("made/penalize.gfx942.z") },
            Form { device: "gfx1100", bytes: 4640, packed: include_bytes!("made/penalize.gfx1100.z") },
        ],
    },
    Module {
        name: "restrict",
        forms: &[
            Form { device: "gfx90a", bytes: 14752, packed: include_bytes!("made/restrict.gfx90a.z") },
            Form { device: "gfx942", bytes: 14432, packed: include_bytes!("made/restrict.gfx942.z") },
            Form { device: "gfx1100", bytes: 15648, packed: include_bytes!("made/restrict.gfx1100.z") },
        ],
    },
    Module {
        name: "pick_stats",
        forms: &[
            Form { device: "gfx90a", bytes: 5672, packed: include_bytes!("made/pick_stats.gfx90a.z") },
            Form { device: "gfx942", bytes: 5672, packed: include_bytes!("made/pick_stats.gfx942.z") },
            Form { device: "gfx1100", bytes: 5288, packed: include_bytes!("made/pick_stats.gfx1100.z") },
        ],
    },
    Module {
        name: "stats_tile",
        forms: &[
            Form { device: "gfx90a", bytes: 6248, packed: include_bytes!("made/stats_tile.gfx90a.z") },
            Form { device: "gfx942", bytes: 6248, packed: include_bytes!("made/stats_tile.gfx942.z") },
            Form { device: "gfx1100", bytes: 5928, packed: include_bytes!("made/stats_tile.gfx1100.z") },
        ],
    },
    Module {
        name: "stats_row",
        forms: &[
            Form { device: "gfx90a", bytes: 6440, packed: include_bytes!("made/stats_row.gfx90a.z") },
            Form { device: "gfx942", bytes: 6312, packed: include_bytes!("made/stats_row.gfx942.z") },
            Form { device: "gfx1100", bytes: 6056, packed: include_bytes!("made/stats_row.gfx1100.z") },
        ],
    },
    Module {
        name: "sample",
        forms: &[
            Form { device: "gfx90a", bytes: 5920, packed: include_bytes!("made/sample.gfx90a.z") },
            Form { device: "gfx942", bytes: 5920, packed: include_bytes!("made/sample.gfx942.z") },
            Form { device: "gfx1100", bytes: 5536, packed: include_bytes!("made/sample.gfx1100.z") },
        ],
    },
    Module {
        name: "soft_parts",
        forms: &[
            Form { device: "gfx90a", bytes: 5800, packed: include_bytes!("made/soft_parts.gfx90a.z") },
            Form { device: "gfx942", bytes: 5800, packed: include_bytes!("made/soft_parts.gfx942.z") },
            Form { device: "gfx1100", bytes: 5544, packed: include_bytes!("made/soft_parts.gfx1100.z") },
        ],
    },
    Module {
        name: "soft_ids",
        forms: &[
            Form { device: "gfx90a", bytes: 5408, packed: include_bytes!("made/soft_ids.gfx90a.z") },
            Form { device: "gfx942", bytes: 5344, packed: include_bytes!("made/soft_ids.gfx942.z") },
            Form { device: "gfx1100", bytes: 5152, packed: include_bytes!("made/soft_ids.gfx1100.z") },
        ],
    },
    Module {
        name: "soft_sum_f32",
        forms: &[
            Form { device: "gfx90a", bytes: 12136, packed: include_bytes!("made/soft_sum_f32.gfx90a.z") },
            Form { device: "gfx942", bytes: 11496, packed: include_bytes!("made/soft_sum_f32.gfx942.z") },
            Form { device: "gfx1100", bytes: 12456, packed: include_bytes!("made/soft_sum_f32.gfx1100.z") },
        ],
    },
    Module {
        name: "soft_sum_half",
        forms: &[
            Form { device: "gfx90a", bytes: 12656, packed: include_bytes!("made/soft_sum_half.gfx90a.z") },
            Form { device: "gfx942", bytes: 12016, packed: include_bytes!("made/soft_sum_half.gfx942.z") },
            Form { device: "gfx1100", bytes: 13104, packed: include_bytes!("made/soft_sum_half.gfx1100.z") },
        ],
    },
    Module {
        name: "soft_sum_block",
        forms: &[
            Form { device: "gfx90a", bytes: 13296, packed: include_bytes!("made/soft_sum_block.gfx90a.z") },
            Form { device: "gfx942", bytes: 12464, packed: include_bytes!("made/soft_sum_block.gfx942.z") },
            Form { device: "gfx1100", bytes: 13744, packed: include_bytes!("made/soft_sum_block.gfx1100.z") },
        ],
    },
];
