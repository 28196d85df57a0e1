//! Attention and KvAppend: masks, grouped heads, caches of all lengths around 16 and 256.

use super::{Case, Data, Noise, Setup, Spread, Weights, push};
use crate::Numerics::Exact;
use crate::op::Mask;
use crate::{AttentionSpec, ComputeError, Kind, KvLayout, KvType, ProgramBuilder};

/// Heads and widths of a case.
#[derive(Debug, Clone, Copy)]
struct Heads {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

const HEADS: [Heads; 7] = [
    Heads { n_heads: 1, n_kv_heads: 1, head_dim: 16 },
    Heads { n_heads: 4, n_kv_heads: 2, head_dim: 20 },
    Heads { n_heads: 6, n_kv_heads: 2, head_dim: 8 },
    Heads { n_heads: 7, n_kv_heads: 1, head_dim: 33 },
    Heads { n_heads: 2, n_kv_heads: 2, head_dim: 128 },
    Heads { n_heads: 3, n_kv_heads: 3, head_dim: 1 },
    Heads { n_heads: 16, n_kv_heads: 2, head_dim: 48 },
];

const MASKS: [Mask; 6] = [
    Mask::Causal { window: None },
    Mask::Causal { window: Some(1) },
    Mask::Causal { window: Some(19) },
    Mask::Canvas { prefix: None },
    Mask::Canvas { prefix: Some(0) },
    Mask::Canvas { prefix: Some(21) },
];

pub(super) fn add(list: &mut Vec<Case>) {
    let lengths = [(0, 1), (1, 1), (0, 5), (3, 16), (15, 17), (16, 7), (17, 40), (300, 6), (257, 33)];
    for (i, (n_past, rows)) in lengths.into_iter().enumerate() {
        for (j, mask) in MASKS.into_iter().enumerate() {
            let heads = HEADS[(i + j) % HEADS.len()];
            let scale = if (i + j) % 2 == 0 { 1.0 } else { 0.088_388 };
            let spread = if j == 3 { Spread::Times(9) } else { Spread::Unit };
            let name = format!(
                "{mask:?}, {n_past} cached, {rows} new, {} over {} heads of {}, scale {scale}",
                heads.n_heads, heads.n_kv_heads, heads.head_dim
            );
            push(list, "Attention", Exact, name, move || {
                attention(n_past, rows, mask, heads, scale, spread, KvType::F32)
            });
        }
    }
    let heads = HEADS[1];
    for (name, spread) in [("values over 80 binades", Spread::Wide), ("ties", Spread::Coarse)] {
        for mask in [MASKS[0], MASKS[3]] {
            push(list, "Attention", Exact, format!("{name}, {mask:?}"), move || {
                attention(40, 30, mask, heads, 0.25, spread, KvType::F32)
            });
        }
    }
    push(list, "Attention", Exact, "a negative scale".into(), move || {
        attention(20, 20, MASKS[2], heads, -0.5, Spread::Unit, KvType::F32)
    });
    push(list, "Attention", Exact, "scores that overflow".into(), move || {
        attention(4, 4, MASKS[0], heads, 1.0, Spread::Huge, KvType::F32)
    });
    push(list, "Attention", Exact, "windows that lie in several pages".into(), move || {
        attention(100, 300, MASKS[2], HEADS[0], 1.0, Spread::Unit, KvType::F32)
    });
    push(list, "Attention", Exact, "without a cache".into(), move || {
        no_cache(37, HEADS[3], Mask::Canvas { prefix: None })
    });
    push(list, "KvAppend", Exact, "the cache grows by passes of 1, 5 and 16".into(), move || {
        passes(&[1, 5, 16, 3], KvType::F32)
    });
    for kv_type in [KvType::F16, KvType::I8] {
        let name = |what: &str| format!("{what}, cache of {}", kv_type.name());
        for (i, (n_past, rows)) in lengths.into_iter().enumerate() {
            let (mask, heads) = (MASKS[i % MASKS.len()], HEADS[(5 * i + 1) % HEADS.len()]);
            let what = format!(
                "{mask:?}, {n_past} cached, {rows} new, {} heads of {}",
                heads.n_kv_heads, heads.head_dim
            );
            push(list, "Attention", Exact, name(&what), move || {
                attention(n_past, rows, mask, heads, 1.0, Spread::Unit, kv_type)
            });
        }
        let spreads = [
            ("values over 80 binades", Spread::Wide),
            ("values around the flush limit", Spread::Tiny),
            ("ties", Spread::Coarse),
            ("values that saturate", Spread::Vast),
        ];
        for (what, spread) in spreads {
            push(list, "Attention", Exact, name(what), move || {
                attention(40, 30, MASKS[3], HEADS[2], 1e-30, spread, kv_type)
            });
        }
        push(list, "KvAppend", Exact, name("passes of 1, 5, 130 and 3"), move || {
            passes(&[1, 5, 130, 3], kv_type)
        });
    }
    blocks(list);
}

/// Blocks that end inside a panel of queries or of keys, at its end, or with the pass; with whole blocks in the cache and
/// with a part of one.
fn blocks(list: &mut Vec<Case>) {
    let lengths =
        [(0, 1, 1), (0, 5, 4), (4, 8, 4), (3, 16, 5), (15, 17, 32), (16, 40, 8), (32, 32, 32), (257, 33, 64)];
    for (i, (n_past, rows, len)) in lengths.into_iter().enumerate() {
        for kv_type in [KvType::F32, KvType::ALL[1 + i % 2]] {
            let (mask, heads) = (Mask::Blocks { len }, HEADS[(3 * i + 1) % HEADS.len()]);
            let scale = if i % 2 == 0 { 1.0 } else { 0.088_388 };
            let name = format!(
                "{mask:?}, {n_past} cached, {rows} new, {} over {} heads of {}, scale {scale}, cache of {}",
                heads.n_heads,
                heads.n_kv_heads,
                heads.head_dim,
                kv_type.name()
            );
            push(list, "Attention", Exact, name, move || {
                attention(n_past, rows, mask, heads, scale, Spread::Unit, kv_type)
            });
        }
    }
    for (name, spread) in [("values over 80 binades", Spread::Wide), ("ties", Spread::Coarse)] {
        let mask = Mask::Blocks { len: 16 };
        push(list, "Attention", Exact, format!("{name}, {mask:?}"), move || {
            attention(32, 56, mask, HEADS[1], 0.25, spread, KvType::F32)
        });
    }
    push(list, "Attention", Exact, "blocks that lie in several pages".into(), move || {
        attention(96, 384, Mask::Blocks { len: 96 }, HEADS[2], 1.0, Spread::Unit, KvType::F32)
    });
    push(list, "Attention", Exact, "blocks without a cache".into(), move || {
        no_cache(37, HEADS[3], Mask::Blocks { len: 8 })
    });
}

/// Queries, keys and values of a pass; the keys and values are appended, attention comes before that.
fn attention(
    n_past: usize,
    rows: usize,
    mask: Mask,
    heads: Heads,
    scale: f64,
    spread: Spread,
    kv_type: KvType,
) -> Result<Setup, ComputeError> {
    let (weights, mut noise) = Weights::new(21).finish();
    let Heads { n_heads, n_kv_heads, head_dim } = heads;
    let width = n_kv_heads * head_dim;
    let mut steps = Vec::new();
    if n_past > 0 {
        let mut b = ProgramBuilder::new(&weights, 0, n_past);
        let k = b.input("k", width, Kind::Real)?;
        let v = b.input("v", width, Kind::Real)?;
        b.kv_append(0, k, v)?;
        steps.push((b.finish(), reals(&mut noise, &[n_past * width; 2], spread)));
    }
    let mut b = ProgramBuilder::new(&weights, n_past, rows);
    let q = b.input("q", n_heads * head_dim, Kind::Real)?;
    let k = b.input("k", width, Kind::Real)?;
    let v = b.input("v", width, Kind::Real)?;
    let spec = AttentionSpec { cache_layer: Some(0), n_heads, n_kv_heads, head_dim, scale, mask };
    let y = b.attention([q, k, v], spec)?;
    b.output(y);
    let sizes = [rows * n_heads * head_dim, rows * width, rows * width];
    steps.push((b.finish(), reals(&mut noise, &sizes, spread)));
    Ok(Setup { weights, layout: KvLayout { widths: vec![width] }, kv_type, steps })
}

fn reals(noise: &mut Noise, sizes: &[usize], spread: Spread) -> Vec<Data> {
    sizes.iter().map(|&n| Data::Real(noise.reals(n, spread))).collect()
}

fn no_cache(rows: usize, heads: Heads, mask: Mask) -> Result<Setup, ComputeError> {
    let (weights, mut noise) = Weights::new(22).finish();
    let Heads { n_heads, n_kv_heads, head_dim } = heads;
    let mut b = ProgramBuilder::new(&weights, 0, rows);
    let q = b.input("q", n_heads * head_dim, Kind::Real)?;
    let k = b.input("k", n_kv_heads * head_dim, Kind::Real)?;
    let v = b.input("v", n_kv_heads * head_dim, Kind::Real)?;
    let spec = AttentionSpec { cache_layer: None, n_heads, n_kv_heads, head_dim, scale: 0.5, mask };
    let y = b.attention([q, k, v], spec)?;
    b.output(y);
    let kv = rows * n_kv_heads * head_dim;
    let inputs = reals(&mut noise, &[rows * n_heads * head_dim, kv, kv], Spread::Unit);
    Ok(super::single(b, weights, inputs))
}

/// Two layers of different widths; each pass attends causally and appends.
fn passes(lengths: &[usize], kv_type: KvType) -> Result<Setup, ComputeError> {
    let (weights, mut noise) = Weights::new(23).finish();
    let (mut n_past, mut steps) = (0, Vec::new());
    for &rows in lengths {
        let mut b = ProgramBuilder::new(&weights, n_past, rows);
        let mut inputs = Vec::new();
        for (layer, head_dim) in [(0, 10), (1, 17)] {
            let q = b.input("q", 2 * head_dim, Kind::Real)?;
            let k = b.input("k", head_dim, Kind::Real)?;
            let v = b.input("v", head_dim, Kind::Real)?;
            let spec = AttentionSpec {
                cache_layer: Some(layer),
                n_heads: 2,
                n_kv_heads: 1,
                head_dim,
                scale: 1.0,
                mask: Mask::Causal { window: Some(9) },
            };
            let y = b.attention([q, k, v], spec)?;
            b.kv_append(layer, k, v)?;
            b.output(y);
            inputs.extend(reals(
                &mut noise,
                &[rows * 2 * head_dim, rows * head_dim, rows * head_dim],
                Spread::Unit,
            ));
        }
        steps.push((b.finish(), inputs));
        n_past += rows;
    }
    Ok(Setup { weights, layout: KvLayout { widths: vec![10, 17] }, kv_type, steps })
}
