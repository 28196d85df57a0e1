//! Weights that a mistake puts in each other's place.

use redraft_compute::{ComputeError, Weight, WeightId, WeightTable};
use redraft_gguf::{DType, Metadata};

use super::Fault;
use crate::arch::{Hyper, arch_of};

/// Weights that stand in each other's place under a fault; those that do not exist yet are added to the table.
pub(super) fn exchanged(
    fault: &Fault,
    table: &mut WeightTable,
    metadata: &Metadata,
) -> Result<Vec<(WeightId, WeightId)>, ComputeError> {
    let names: Vec<String> = table.iter().map(|w| w.name.clone()).collect();
    let id = |i: usize| WeightId(i as u32);
    let find = |name: &str| names.iter().position(|n| n == name).map(id);
    let pairs = |from: &str, to: &str| -> Vec<(WeightId, WeightId)> {
        let other = |name: &str| name.contains(from).then(|| name.replacen(from, to, 1));
        let pair = |name: &String| Some((find(name)?, find(&other(name)?)?));
        let there: Vec<(WeightId, WeightId)> = names.iter().filter_map(pair).collect();
        there.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
    };
    // Of one matrix for queries, keys and values, the parts.
    let parts = |whole: &str| -> Vec<WeightId> {
        let of = |n: &String| n.split_once('[').is_some_and(|(base, _)| base == whole);
        (0..names.len()).filter(|&i| of(&names[i])).map(id).collect()
    };
    let fused: Vec<[WeightId; 3]> =
        names.iter().filter_map(|n| parts(n.split_once("[0..")?.0).try_into().ok()).collect();
    match fault {
        Fault::KeyValueSwapped => {
            let mut all = pairs(".attn_k.", ".attn_v.");
            all.extend(fused.iter().flat_map(|&[_, k, v]| [(k, v), (v, k)]));
            let shape = |w: WeightId| table.get(w).ok().map(|w| (w.rows, w.cols));
            all.retain(|&(a, b)| shape(a) == shape(b));
            Ok(all)
        }
        Fault::LayerScalarSwapped => Ok(pairs(".enc_layer_output_scale.", ".layer_output_scale.")),
        Fault::ValueTransposed => {
            let values = (0..names.len()).filter(|&i| names[i].contains(".attn_v.")).map(id);
            let values: Vec<WeightId> = values.chain(fused.iter().map(|&[_, _, v]| v)).collect();
            let mut all = Vec::new();
            for from in values {
                let w = table.get(from)?.clone();
                let across = if w.rows > 1 { w.rows } else { w.cols };
                let heads = kv_heads(metadata, &w.name).filter(|&n| n > 1 && across.is_multiple_of(n));
                if let Some(heads) = heads {
                    all.push((from, table.add(transposed(w, heads))?));
                }
            }
            Ok(all)
        }
        Fault::GateUpSwapped { experts: true, .. } => {
            let stacks: Vec<usize> =
                (0..names.len()).filter(|&i| names[i].ends_with("ffn_gate_up_exps.weight")).collect();
            stacks
                .into_iter()
                .map(|i| {
                    let w = table.get(id(i))?.clone();
                    Ok((id(i), table.add(halves_swapped(w))?))
                })
                .collect()
        }
        &Fault::Noise { seed, bits } => {
            let norms = |w: &&Weight| w.name.contains("norm") && w.dtype == DType::F32 && w.rows == 1;
            let norms: Vec<Weight> = table.iter().filter(norms).cloned().collect();
            norms
                .into_iter()
                .filter_map(|w| Some((find(&w.name)?, w)))
                .map(|(of, w)| Ok((of, table.add(noisy(&w, seed, bits))?)))
                .collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// A weight in F32 with noise.
fn noisy(w: &Weight, seed: u64, bits: u32) -> Weight {
    let mut state = w.name.bytes().fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3));
    let mut up = || {
        // Knuth's; the highest bit is the best one.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 63 == 1
    };
    let noise = 2f64.powi(-i32::try_from(bits).unwrap_or(i32::MAX));
    let with = |x: f32, up: bool| (f64::from(x) * if up { 1.0 + noise } else { 1.0 - noise }) as f32;
    let numbers = w.bytes.as_chunks::<4>().0.iter();
    let bytes: Vec<u8> = numbers.flat_map(|&x| with(f32::from_le_bytes(x), up()).to_le_bytes()).collect();
    Weight { name: format!("{} (noisy)", w.name), bytes: bytes.into(), ..w.clone() }
}

/// Each matrix of a stack with its lower half on top.
fn halves_swapped(w: Weight) -> Weight {
    let size = w.bytes.len() / w.experts.max(1);
    let swapped = |m: &[u8]| [&m[size / 2..], &m[..size / 2]].concat();
    let bytes: Vec<u8> = w.bytes.chunks_exact(size.max(1)).flat_map(swapped).collect();
    Weight { name: format!("{} (halves swapped)", w.name), bytes: bytes.into(), ..w }
}

/// Key and value heads of the layer that a weight belongs to; the file has been loaded, so its keys are sound.
fn kv_heads(metadata: &Metadata, weight: &str) -> Option<usize> {
    let layer: usize = weight.strip_prefix("blk.")?.split('.').next()?.parse().ok()?;
    let h = Hyper::new(metadata, arch_of(metadata).ok()?.name);
    let n_layers = h.size("block_count", 1024).ok()?;
    let of = |name: &str| h.size_per_layer(name, n_layers, 1 << 16).ok();
    of("attention.head_count_kv").or_else(|| of("attention.head_count"))?.get(layer).copied()
}

/// The output features of a weight in another order: those of head `h` and channel `c` where channel `c` of head `h`
/// is taken for channel `h` of head `c`.
fn transposed(w: Weight, heads: usize) -> Weight {
    let features = if w.rows > 1 { w.rows } else { w.cols };
    let size = w.bytes.len() / features;
    let channels = features / heads;
    let from = |i: usize| (i % channels) * heads + i / channels;
    let bytes: Vec<u8> =
        (0..features).flat_map(|i| &w.bytes[from(i) * size..(from(i) + 1) * size]).copied().collect();
    Weight { name: format!("{} (transposed)", w.name), bytes: bytes.into(), ..w }
}
