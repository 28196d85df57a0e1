//! Ops whose rows do not depend on each other.

use super::{Case, Data, Noise, Setup, Spread, Weights, push, single};
use crate::Numerics::Exact;
use crate::op::{
    Activation, ExpertGroups, Factor, Penalty, RopeStyle, RouterScore, Routing, RoutingBlock, RowBan,
};
use crate::{ComputeError, Kind, ProgramBuilder};

const COLS: [usize; 9] = [1, 2, 15, 16, 17, 33, 100, 257, 1025];

pub(super) fn add(list: &mut Vec<Case>) {
    for cols in COLS {
        for spread in [Spread::Unit, Spread::Wide, Spread::Tiny, Spread::Coarse] {
            elementwise(list, cols, spread);
        }
    }
    for (cols, group) in [(64, 16), (60, 15), (51, 17), (66, 33), (7, 1)] {
        push(list, "RmsNorm", Exact, format!("{cols} columns in groups of {group}"), move || {
            rms_norm(3, cols, group, Spread::Unit, true)
        });
    }
    push(list, "RmsNorm", Exact, "squares that overflow".into(), || rms_norm(2, 40, 40, Spread::Huge, false));
    push(list, "Add", Exact, "a sum that overflows".into(), || {
        let x = Data::Real(vec![1.0, 3e38, 2.0]);
        pair(vec![x.clone(), x], 3, |b, x, y| b.add(x, y))
    });
    for (first, rows) in [(0, 0), (0, 2), (1, 3), (4, 1), (3, 2), (5, 0)] {
        push(list, "Add", Exact, format!("{rows} rows from row {first} of 5"), move || {
            let mut noise = Noise(16);
            let (table, _) = Weights::new(11).finish();
            let mut b = ProgramBuilder::new(&table, 0, 5);
            let x = b.input("x", 33, Kind::Real)?;
            let y = b.input_rows("y", rows, 33, Kind::Real)?;
            let sum = b.add_rows(x, y, first)?;
            b.output(sum);
            let inputs = [5, rows].map(|n| Data::Real(noise.reals(n * 33, Spread::Wide)));
            Ok(single(b, table, inputs.to_vec()))
        });
    }
    for act in [Activation::GeluTanh, Activation::Silu] {
        push(list, "Glu", Exact, format!("{act:?} over its range"), move || glu(act, 999, Spread::Times(12)));
        push(list, "Glu", Exact, format!("{act:?} far out"), move || glu(act, 100, Spread::Times(300)));
    }
    for style in [RopeStyle::Neox, RopeStyle::Interleaved] {
        for (head_dim, n_rot) in [(2, 2), (8, 4), (16, 16), (34, 34), (64, 30), (80, 64), (256, 256), (6, 0)]
        {
            let name = format!("{style:?}, {n_rot} of {head_dim} channels");
            push(list, "Rope", Exact, name, move || rope(style, head_dim, n_rot));
        }
    }
    for vocab in [1, 2, 15, 17, 33, 1025, 5000] {
        for spread in [Spread::Times(4), Spread::Times(60), Spread::Coarse, Spread::Tiny] {
            for (top_k, top_p) in
                [(0, 1.0), (1, 1.0), (7, 1.0), (0, 0.9), (0, 1e-6), (20, 0.5), (9000, 0.999)]
            {
                let name = format!("{vocab} ids {spread:?}, top_k {top_k}, top_p {top_p}");
                push(list, "Restrict", Exact, name, move || restrict(vocab, spread, top_k, top_p));
            }
            for (repetition, presence) in [(1.0, 0.0), (1.3, 0.0), (0.7, -2.5), (1.0, 0.9), (3.0, 1e-3)] {
                let name = format!("{vocab} ids {spread:?}, repetition {repetition}, presence {presence}");
                push(list, "Penalize", Exact, name, move || penalize(vocab, spread, repetition, presence));
            }
            let name = format!("{vocab} ids {spread:?}");
            push(list, "PickStats", Exact, name, move || pick_stats(vocab, spread));
        }
    }
    for (argmax, sample) in [(-1, 0), (5, 0), (0, -1), (0, 5)] {
        let name = format!("picks {argmax} and {sample} of 5");
        push(list, "PickStats", Exact, name, move || picks(argmax, sample));
    }
    for rows in [vec![], vec![4], vec![2, 2, 0], vec![0, 1, 2, 3, 4]] {
        push(list, "TakeRows", Exact, format!("{rows:?} of 5"), move || {
            let rows = rows.clone();
            unary(33, Spread::Wide, move |b, x| b.take_rows(x, rows))
        });
    }
    for (experts, top_k) in [(1, 1), (2, 2), (8, 2), (17, 4), (33, 33), (128, 8)] {
        for (renormalize, scale) in [(false, false), (true, false), (true, true), (false, true)] {
            let name = format!("{top_k} of {experts}, renormalize {renormalize}, scale {scale}");
            let routing = Routing::softmax(top_k, renormalize);
            push(list, "MoeRoute", Exact, name, move || route(experts, routing, scale, false));
        }
    }
    for (experts, top_k, groups) in [
        (1, 1, None),
        (17, 4, None),
        (4, 2, Some((2, 1))),
        (6, 3, Some((3, 2))),
        (64, 5, Some((8, 8))),
        (256, 8, Some((8, 4))),
    ] {
        for (score, bias) in
            [(RouterScore::Sigmoid, false), (RouterScore::Sigmoid, true), (RouterScore::Softmax, true)]
        {
            let groups = groups.map(|(n, used)| ExpertGroups { n, used });
            let routing = Routing { score, groups, ..Routing::softmax(top_k, top_k != 4) };
            let name = format!("{top_k} of {experts} by {score:?}, groups {groups:?}, bias {bias}");
            push(list, "MoeRoute", Exact, name, move || route(experts, routing, top_k == 5, bias));
        }
    }
    // Blocks of tokens: of one row, that end within the rows and after them; no limit, a little, as few as can be.
    for (experts, top_k, len, capacity) in
        [(1, 1, 1, 1), (17, 4, 1, 4), (17, 4, 2, 17), (33, 3, 3, 5), (64, 5, 5, 9), (256, 8, 32, 48)]
    {
        for (score, bias) in
            [(RouterScore::Sigmoid, false), (RouterScore::Sigmoid, true), (RouterScore::Softmax, true)]
        {
            let block = Some(RoutingBlock { len, capacity });
            let routing = Routing { score, block, ..Routing::softmax(top_k, top_k != 4) };
            let name = format!("{top_k} of {experts} by {score:?}, {capacity} for {len} tokens, bias {bias}");
            push(list, "MoeRoute", Exact, name, move || route(experts, routing, top_k == 5, bias));
        }
    }
}

fn elementwise(list: &mut Vec<Case>, cols: usize, spread: Spread) {
    let name = |what: &str| format!("{what} rows of {cols} {spread:?}");
    push(list, "RmsNorm", Exact, name("weighted"), move || rms_norm(4, cols, cols, spread, true));
    push(list, "RmsNorm", Exact, name("plain"), move || rms_norm(1, cols, cols, spread, false));
    push(list, "Scale", Exact, name("by a constant"), move || {
        unary(cols, spread, |b, x| b.scale(x, Factor::Const(0.1)))
    });
    push(list, "Softcap", Exact, name("30"), move || unary(cols, spread, |b, x| b.softcap(x, 30.0)));
    push(list, "Softcap", Exact, name("0.7"), move || unary(cols, spread, |b, x| b.softcap(x, 0.7)));
    push(list, "Add", Exact, name(""), move || {
        let mut noise = Noise(12);
        let inputs = [(); 2].map(|()| Data::Real(noise.reals(3 * cols, spread)));
        pair(inputs.to_vec(), cols, |b, x, y| b.add(x, y))
    });
    push(list, "Glu", Exact, name("gelu"), move || glu(Activation::GeluTanh, cols, spread));
    push(list, "Glu", Exact, name("silu"), move || glu(Activation::Silu, cols, spread));
    push(list, "Scale", Exact, name("by a weight"), move || {
        let mut w = Weights::new(13);
        let by = w.vector(1, spread)?;
        let (table, mut noise) = w.finish();
        let mut b = ProgramBuilder::new(&table, 0, 3);
        let x = b.input("x", cols, Kind::Real)?;
        let y = b.scale(x, Factor::Scalar(by))?;
        b.output(y);
        let x = noise.reals(3 * cols, spread);
        Ok(single(b, table, vec![Data::Real(x)]))
    });
}

type Value = Result<crate::Val, ComputeError>;

fn unary(
    cols: usize,
    spread: Spread,
    f: impl FnOnce(&mut ProgramBuilder, crate::Val) -> Value,
) -> Result<Setup, ComputeError> {
    let (table, mut noise) = Weights::new(11).finish();
    let mut b = ProgramBuilder::new(&table, 0, 5);
    let x = b.input("x", cols, Kind::Real)?;
    let y = f(&mut b, x)?;
    b.output(y);
    let x = noise.reals(5 * cols, spread);
    Ok(single(b, table, vec![Data::Real(x)]))
}

fn pair(
    inputs: Vec<Data>,
    cols: usize,
    f: impl Fn(&mut ProgramBuilder, crate::Val, crate::Val) -> Value,
) -> Result<Setup, ComputeError> {
    let rows = match &inputs[0] {
        Data::Real(x) => x.len() / cols,
        Data::Int(x) => x.len() / cols,
    };
    let (table, _) = Weights::new(0).finish();
    let mut b = ProgramBuilder::new(&table, 0, rows);
    let x = b.input("x", cols, Kind::Real)?;
    let y = b.input("y", cols, Kind::Real)?;
    let z = f(&mut b, x, y)?;
    b.output(z);
    Ok(single(b, table, inputs))
}

fn glu(act: Activation, cols: usize, spread: Spread) -> Result<Setup, ComputeError> {
    let mut noise = Noise(14);
    let inputs =
        vec![Data::Real(noise.reals(3 * cols, spread)), Data::Real(noise.reals(3 * cols, Spread::Unit))];
    pair(inputs, cols, move |b, x, y| b.glu(x, y, act))
}

fn rms_norm(
    rows: usize,
    cols: usize,
    group: usize,
    spread: Spread,
    weighted: bool,
) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(15);
    let weight = if weighted { Some(w.vector(group, Spread::Unit)?) } else { None };
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, rows);
    let x = b.input("x", cols, Kind::Real)?;
    let y = b.rms_norm(x, weight, 1e-6, group)?;
    b.output(y);
    let x = noise.reals(rows * cols, spread);
    Ok(single(b, table, vec![Data::Real(x)]))
}

fn rope(style: RopeStyle, head_dim: usize, n_rot: usize) -> Result<Setup, ComputeError> {
    let (rows, cols) = (3, 3 * head_dim);
    let (table, mut noise) = Weights::new(17).finish();
    let mut b = ProgramBuilder::new(&table, 0, rows);
    let x = b.input("x", cols, Kind::Real)?;
    let angles = b.input("angles", n_rot, Kind::Real)?;
    let y = b.rope(x, angles, head_dim, style)?;
    b.output(y);
    let inputs = vec![
        Data::Real(noise.reals(rows * cols, Spread::Wide)),
        Data::Real(noise.reals(rows * n_rot, Spread::Unit)),
    ];
    Ok(single(b, table, inputs))
}

fn restrict(vocab: usize, spread: Spread, top_k: usize, top_p: f64) -> Result<Setup, ComputeError> {
    let ban: &[u32] = if vocab > 2 { &[0, vocab as u32 - 2] } else { &[] };
    unary(vocab, spread, |b, x| b.restrict(x, ban, top_k, top_p))
}

/// Every third id was seen; rows except one of them, one that was not, or none. The last id but one is banned, in some
/// rows the first two as well. Every fifth has a bias.
fn penalize(vocab: usize, spread: Spread, repetition: f64, presence: f64) -> Result<Setup, ComputeError> {
    let last = vocab as u32 - 1;
    let flags = |f: fn(usize) -> bool| (0..5).map(f).collect();
    let bans = [
        RowBan { ids: vec![0, 1], rows: flags(|t| t < 2) },
        RowBan { ids: vec![1], rows: flags(|t| t % 2 == 0) },
    ];
    let by = Penalty {
        bias: (0..vocab as u32).step_by(5).map(|id| (id, f64::from(id % 7) - 3.3)).collect(),
        seen: (0..vocab as u32).step_by(3).collect(),
        except: vec![Some(0), None, Some(last / 3 * 3), Some(1), None],
        repetition,
        presence,
        ban: last.checked_sub(1).into_iter().collect(),
        row_bans: bans.into_iter().filter(|_| vocab > 2).collect(),
    };
    unary(vocab, spread, |b, x| b.penalize(x, by))
}

fn pick_stats(vocab: usize, spread: Spread) -> Result<Setup, ComputeError> {
    let u = [0.1, 0.5, 0.9, 0.99, 0.3];
    let (table, mut noise) = Weights::new(20).finish();
    let mut b = ProgramBuilder::new(&table, 0, u.len());
    let x = b.input("logits", vocab, Kind::Real)?;
    let v = b.input("u", 1, Kind::Real)?;
    let (of, argmax) = b.token_stats(b.logits(x, None, 1.0))?;
    let sample = b.token_sample(of, v)?;
    let y = b.pick_stats(x, argmax, sample)?;
    b.output(y);
    let x = noise.reals(u.len() * vocab, spread);
    Ok(single(b, table, vec![Data::Real(x), Data::Real(u.to_vec())]))
}

/// Given picks of the second of three rows of five.
fn picks(argmax: i32, sample: i32) -> Result<Setup, ComputeError> {
    let (table, mut noise) = Weights::new(21).finish();
    let mut b = ProgramBuilder::new(&table, 0, 3);
    let x = b.input("logits", 5, Kind::Real)?;
    let [first, second] = ["argmax", "sample"].map(|name| b.input(name, 1, Kind::Int));
    let y = b.pick_stats(x, first?, second?)?;
    b.output(y);
    let ids = [argmax, sample].map(|id| Data::Int(vec![4, id, 2]));
    let [first, second] = ids;
    Ok(single(b, table, vec![Data::Real(noise.reals(15, Spread::Unit)), first, second]))
}

fn route(experts: usize, routing: Routing, scale: bool, bias: bool) -> Result<Setup, ComputeError> {
    let rows = 5;
    let mut w = Weights::new(19);
    let expert_scale = if scale { Some(w.vector(experts, Spread::Unit)?) } else { None };
    let bias = if bias { Some(w.vector(experts, Spread::Coarse)?) } else { None };
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, rows);
    let x = b.input("logits", experts, Kind::Real)?;
    let (probs, ids, weights) = b.moe_route(x, Routing { expert_scale, bias, ..routing })?;
    [probs, ids, weights].into_iter().for_each(|v| b.output(v));
    // Two rows with ties, one where most probabilities are zero.
    let mut x = noise.reals(2 * experts, Spread::Times(3));
    x.extend(noise.reals(2 * experts, Spread::Coarse));
    x.extend(noise.reals(experts, Spread::Times(500)));
    Ok(single(b, table, vec![Data::Real(x)]))
}
