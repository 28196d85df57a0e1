//! Products in `fast`: all block types, all remainders of tokens and columns, all depths.

use redraft_gguf::{CODECS, DType};

use super::experts::{Shape, experts};
use super::matmul::matmul;
use super::{Case, Spread, push};
use crate::Numerics::Fast;
use crate::op::Activation;

pub(super) fn add(list: &mut Vec<Case>) {
    for c in CODECS {
        let (dtype, block) = (c.dtype(), c.block_len());
        let depths = if block == 1 { [19, 259, 512] } else { [block, 2 * block, 512 + block] };
        for (seed, (k, (t, n))) in (300..).zip(depths.into_iter().zip([(1, 33), (16, 16), (33, 17)])) {
            let name = format!("{} [{t}, {k}] x [{n}, {k}]", dtype.name());
            push(list, "MatMul", Fast, name, move || {
                matmul(seed, dtype, [t, k, n], [Spread::Unit; 2], t == 16, Fast)
            });
        }
        // Activations between whose units lie many powers of two.
        let name = format!("{} with activations of all sizes", dtype.name());
        push(list, "MatMul", Fast, name, move || {
            matmul(7, dtype, [15, depths[1], 20], [Spread::Unit, Spread::Wide], false, Fast)
        });
        if dtype.is_integer() || dtype == DType::NVFP4 {
            continue; // no weights around the flush limit
        }
        let name = format!("{} with weights and activations around the flush limit", dtype.name());
        push(list, "MatMul", Fast, name, move || {
            matmul(8, dtype, [7, depths[1], 20], [Spread::Tiny; 2], false, Fast)
        });
    }
    for t in [2, 3, 11, 23, 24, 47, 256] {
        for (dtype, k) in [(DType::Q4_K, 768), (DType::Q6_K, 256), (DType::Q8_0, 352), (DType::Q5_1, 96)] {
            let name = format!("{} of {t} tokens", dtype.name());
            push(list, "MatMul", Fast, name, move || {
                matmul(9, dtype, [t, k, 35], [Spread::Unit, Spread::Times(50)], true, Fast)
            });
        }
    }
    // Several chunks of the depth, the last one shorter; columns around one and two panels; up to 512 tokens.
    for (t, n) in [(1, 1), (5, 31), (7, 32), (12, 49), (512, 18)] {
        for (dtype, k) in [(DType::Q5_0, 704), (DType::Q8_0, 288), (DType::Q4_K, 512), (DType::Q6_K, 512)] {
            let name = format!("{} [{t}, {k}] x [{n}, {k}]", dtype.name());
            push(list, "MatMul", Fast, name, move || {
                matmul(12, dtype, [t, k, n], [Spread::Unit; 2], n > 31, Fast)
            });
        }
    }
    for dtype in [DType::Q4_K, DType::Q8_0, DType::NVFP4, DType::F16, DType::BF16, DType::F32] {
        for (name, spread) in [("large", Spread::Huge), ("too large for a scale", Spread::Vast)] {
            let name = format!("{} with activations that are {name}", dtype.name());
            push(list, "MatMul", Fast, name, move || {
                matmul(10, dtype, [3, 256, 17], [Spread::Unit, spread], false, Fast)
            });
        }
    }
    for (gate, down, n, ff) in [
        (DType::Q4_K, DType::Q5_0, 256, 96),
        (DType::Q4_K, DType::Q8_0, 512, 160),
        (DType::Q6_K, DType::IQ4_NL, 256, 64),
        (DType::Q5_K, DType::Q5_1, 256, 32),
        (DType::MXFP4, DType::NVFP4, 96, 64),
        (DType::Q2_K, DType::Q3_K, 256, 256),
        (DType::BF16, DType::Q4_0, 65, 64),
        (DType::F16, DType::F32, 33, 18),
    ] {
        // Few tokens and many experts, so that some have none; many tokens and few experts.
        for (tokens, n_experts, top_k) in [(1, 4, 2), (5, 16, 3), (40, 3, 2), (512, 2, 1)] {
            let s = Shape { tokens, experts: n_experts, top_k, n, ff };
            for fused in [true, false] {
                let name = format!("{}, down {}, {s:?} fused {fused}", gate.name(), down.name());
                push(list, "MoeExperts", Fast, name, move || {
                    experts([gate, gate, down], s, fused, Activation::GeluTanh, None, Spread::Unit, Fast)
                });
            }
        }
    }
    for (gate, up) in [(DType::Q4_K, DType::Q8_0), (DType::BF16, DType::Q6_K), (DType::Q2_K, DType::F32)] {
        let s = Shape { tokens: 13, experts: 5, top_k: 2, n: 256, ff: 64 };
        let name = format!("gate {}, up {}", gate.name(), up.name());
        push(list, "MoeExperts", Fast, name, move || {
            experts([gate, up, DType::Q5_0], s, false, Activation::Silu, None, Spread::Unit, Fast)
        });
    }
    // The hidden layer has infinities and NaN, which no rounding may hide.
    for (gate, down, ff) in [
        (DType::F32, DType::F16, 30),
        (DType::BF16, DType::BF16, 31),
        (DType::F32, DType::BF16, 16),
        (DType::BF16, DType::F16, 33),
        (DType::F32, DType::Q8_0, 64),
        (DType::F32, DType::Q5_0, 96),
        (DType::BF16, DType::Q4_K, 256),
        (DType::F32, DType::Q6_K, 256),
        (DType::F32, DType::NVFP4, 64),
    ] {
        let s = Shape { tokens: 13, experts: 3, top_k: 2, n: 33, ff };
        for (fused, act) in [(true, Activation::Silu), (false, Activation::GeluTanh)] {
            let name = format!("gate {} that overflows, down {}, fused {fused}", gate.name(), down.name());
            push(list, "MoeExperts", Fast, name, move || {
                experts([gate, gate, down], s, fused, act, None, Spread::Huge, Fast)
            });
        }
    }
}
