//! MatMul and Embed: all block types, all remainders of tokens, columns and depth.

use redraft_gguf::{CODECS, DType};

use super::{Case, Data, Setup, Spread, Weights, push, single};
use crate::Numerics::Exact;
use crate::{ComputeError, Kind, Numerics, ProgramBuilder};

pub(super) fn add(list: &mut Vec<Case>) {
    // Tokens run through all remainders of the groups of 6 and 24.
    let f32_shapes = [
        (1, 1, 1),
        (2, 15, 1),
        (3, 16, 15),
        (4, 17, 16),
        (5, 33, 17),
        (6, 255, 33),
        (7, 256, 16),
        (8, 257, 48),
        (11, 520, 7),
        (13, 64, 100),
        (23, 31, 18),
        (24, 100, 31),
        (25, 47, 65),
        (53, 300, 34),
    ];
    for (seed, (t, k, n)) in (1..).zip(f32_shapes) {
        for spread in [Spread::Unit, Spread::Wide] {
            let name = format!("F32 [{t}, {k}] x [{n}, {k}] {spread:?}");
            push(list, "MatMul", Exact, name, move || {
                matmul(seed, DType::F32, [t, k, n], [spread; 2], n % 2 == 0, Exact)
            });
        }
    }
    for c in CODECS {
        let (dtype, block) = (c.dtype(), c.block_len());
        let depths = if block == 1 { [19, 259, 512] } else { [block, 2 * block, 512 + block] };
        for (seed, (k, (t, n))) in (100..).zip(depths.into_iter().zip([(1, 33), (9, 16), (31, 17)])) {
            let name = format!("{} [{t}, {k}] x [{n}, {k}]", dtype.name());
            push(list, "MatMul", Exact, name, move || {
                matmul(seed, dtype, [t, k, n], [Spread::Unit; 2], t == 9, Exact)
            });
            let name = format!("Embed {} [{n}, {k}], {t} ids", dtype.name());
            push(list, "Embed", Exact, name, move || embed(seed, dtype, [t, k, n]));
        }
        if dtype.is_integer() || dtype == DType::NVFP4 {
            continue; // no weights around the flush limit
        }
        let name = format!("{} with weights around the flush limit", dtype.name());
        push(list, "MatMul", Exact, name, move || {
            matmul(7, dtype, [7, depths[1], 20], [Spread::Tiny; 2], false, Exact)
        });
    }
    push(list, "MatMul", Exact, "sums that overflow".into(), || {
        matmul(8, DType::F32, [3, 40, 17], [Spread::Huge; 2], false, Exact)
    });
    push(list, "Embed", Exact, "an id behind the table".into(), || embed_ids(vec![0, 3, 4]));
    push(list, "Embed", Exact, "a negative id".into(), || embed_ids(vec![0, -1, 4]));
}

/// The spreads are those of the weights and of the activations.
pub(super) fn matmul(
    seed: u64,
    dtype: DType,
    [t, k, n]: [usize; 3],
    [spread, x_spread]: [Spread; 2],
    bias: bool,
    numerics: Numerics,
) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(seed);
    let matrix = w.add(dtype, [1, n, k], spread)?;
    let bias = if bias { Some(w.vector(n, spread)?) } else { None };
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, t);
    let x = b.input("x", k, Kind::Real)?;
    b.set_numerics(numerics);
    let y = b.matmul_bias(x, matrix, bias)?;
    b.output(y);
    let x = noise.reals(t * k, x_spread);
    Ok(single(b, table, vec![Data::Real(x)]))
}

fn embed(seed: u64, dtype: DType, [t, n, vocab]: [usize; 3]) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(seed);
    let matrix = w.add(dtype, [1, vocab, n], Spread::Unit)?;
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, t);
    let ids = b.input("ids", 1, Kind::Int)?;
    let y = b.embed(ids, matrix, 53.066_5)?;
    b.output(y);
    let ids = noise.ids(t, vocab);
    Ok(single(b, table, vec![Data::Int(ids)]))
}

fn embed_ids(ids: Vec<i32>) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(3);
    let matrix = w.add(DType::F32, [1, 4, 5], Spread::Unit)?;
    let (table, _) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, ids.len());
    let v = b.input("ids", 1, Kind::Int)?;
    let y = b.embed(v, matrix, 1.0)?;
    b.output(y);
    Ok(single(b, table, vec![Data::Int(ids)]))
}
