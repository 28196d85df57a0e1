//! What an op costs in multiply-accumulate operations, whatever the backend makes of them.

use crate::op::{Attention, Op, Segment, TILE};
use crate::program::Program;
use crate::{WeightId, WeightTable};

/// Multiply-accumulate operations of op `index` of a program: of its matrix products, of attention over the visible
/// keys. Ops on single elements count none.
pub fn macs(program: &Program, index: usize) -> u64 {
    let Some(op) = program.ops().get(index) else { return 0 };
    let weights = program.weights();
    let rows = op.inputs().first().map_or(0, |v| v.rows()) as u64;
    match op {
        Op::Embed(_) => 0,
        Op::Attention(o) => attention(o),
        // Each token goes through as many matrices of each stack as there are slots.
        Op::MoeExperts(o) => {
            let each: u64 = op.weights().iter().map(|&w| matrix(weights, w)).sum();
            each.saturating_mul(o.ids.len() as u64)
        }
        // The tile of each row that holds its sample.
        Op::TokenSample(o) => o.of.logits.head.map_or(0, |h| match weights.get(h.w) {
            Ok(w) => (w.rows.min(TILE) as u64 * w.cols as u64).saturating_mul(rows),
            Err(_) => 0,
        }),
        // All of the table. How much of it takes part, and how many logits are made again, the numbers decide.
        Op::SoftEmbed(o) => matrix(weights, o.table).saturating_mul(rows),
        _ => op.weights().iter().map(|&w| matrix(weights, w).saturating_mul(rows)).sum(),
    }
}

/// Elements of one matrix of a weight; vectors are no matrices.
fn matrix(weights: &WeightTable, id: WeightId) -> u64 {
    match weights.get(id) {
        Ok(w) if w.rows > 1 => w.rows as u64 * w.cols as u64,
        _ => 0,
    }
}

/// Scores and weighted values.
fn attention(o: &Attention) -> u64 {
    let visible = |s: Segment| (0..s.rows).map(move |row| o.mask.visible(s, row).len() as u64);
    let keys = o.segments.iter().flat_map(visible).fold(0, u64::saturating_add);
    [2, keys, o.n_heads as u64, o.head_dim as u64].into_iter().fold(1, u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redraft_gguf::{Bytes, DType};

    use super::*;
    use crate::op::{Activation, GateUp, Mask, Routing};
    use crate::{AttentionSpec, Kind, ProgramBuilder, Weight};

    #[test]
    fn what_is_too_much_to_count_is_the_most() {
        let weights = Arc::new(WeightTable::default());
        let mut b = ProgramBuilder::new(&weights, usize::MAX / 4, 5);
        let x = b.input("x", 8, Kind::Real).unwrap();
        let mask = Mask::Canvas { prefix: None };
        let spec =
            AttentionSpec { cache_layer: Some(0), n_heads: 2, n_kv_heads: 2, head_dim: 4, scale: 1.0, mask };
        b.attention([x, x, x], spec).unwrap();
        assert_eq!(macs(&b.finish(), 0), u64::MAX);
    }

    #[test]
    fn products_experts_and_attention_are_counted() {
        let mut table = WeightTable::default();
        let mut add = |name: &str, experts: usize, rows: usize, cols: usize| {
            let bytes = Bytes::from(vec![0u8; 4 * experts * rows * cols]);
            table.add(Weight { name: name.into(), dtype: DType::F32, experts, rows, cols, bytes }).unwrap()
        };
        let (w, norm) = (add("w", 1, 6, 4), add("norm", 1, 1, 4));
        let (gate_up, down) = (add("gate_up", 3, 10, 4), add("down", 3, 4, 5));
        let mut b = ProgramBuilder::new(&Arc::new(table), 7, 5);
        let x = b.input("x", 4, Kind::Real).unwrap();
        b.matmul(x, w).unwrap();
        b.rms_norm(x, Some(norm), 1e-6, 4).unwrap();
        let logits = b.input("logits", 3, Kind::Real).unwrap();
        let (_, ids, weights) = b.moe_route(logits, Routing::softmax(2, true)).unwrap();
        b.moe_experts(x, (ids, weights), GateUp::Fused(gate_up), down, Activation::Silu).unwrap();
        let spec = |mask| AttentionSpec {
            cache_layer: Some(0),
            n_heads: 2,
            n_kv_heads: 2,
            head_dim: 2,
            scale: 1.0,
            mask,
        };
        b.attention([x, x, x], spec(Mask::Causal { window: None })).unwrap();
        b.attention([x, x, x], spec(Mask::Canvas { prefix: Some(3) })).unwrap();
        let p = b.finish();
        let found: Vec<u64> = (0..p.ops().len()).map(|i| macs(&p, i)).collect();
        // Causal: 8 + 9 + 10 + 11 + 12 keys; canvas: 3 + 5 for each of 5.
        assert_eq!(found, [5 * 24, 0, 0, 5 * 2 * (40 + 20), 2 * 50 * 4, 2 * 40 * 4]);
    }
}
