//! TokenStats, TokenSample and SoftEmbed: given logits and heads of all block types, vocabularies of all remainders,
//! rows that are flat, concentrated and full of ties.

use redraft_gguf::{CODECS, DType};

use super::{Case, Data, Noise, Setup, Spread, Weights, push, single};
use crate::op::Head;
use crate::{ComputeError, Kind, Numerics, ProgramBuilder};

/// The ends of (0, 1) as the sampler makes them, one number that no running sum reaches, and others.
const U: [f32; 7] = [2.980_232_2e-8, 0.999_999_97, 1.5, 0.25, 0.5, 0.75, 0.9];

/// How the logits of a row are spread.
#[derive(Debug, Clone, Copy)]
enum Rows {
    Of(Spread),
    /// All equal.
    Flat,
    /// A few large ones in some tiles, the others far below.
    Concentrated,
    /// Between the cut of `fast`, that of `exact`, and the largest.
    Graded,
    /// Rows of all these kinds.
    Mixed,
}

impl Rows {
    fn row(self, t: usize, vocab: usize, noise: &mut Noise) -> Vec<f32> {
        match self {
            Rows::Of(spread) => noise.reals(vocab, spread),
            Rows::Flat => vec![noise.unit(); vocab],
            Rows::Concentrated => {
                let mut x: Vec<f32> = (0..vocab).map(|_| noise.unit() - 60.0).collect();
                for _ in 0..3 {
                    x[noise.below(vocab)] = noise.unit();
                }
                x
            }
            Rows::Graded => (0..vocab).map(|_| (noise.unit() - 1.0) * 22.0).collect(),
            Rows::Mixed => {
                let kinds = [Rows::Flat, Rows::Concentrated, Rows::Graded, Rows::Of(Spread::Coarse)];
                kinds[t % kinds.len()].row(t, vocab, noise)
            }
        }
    }
}

/// What a case shows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Show {
    Stats,
    Sample,
    Soft,
}

const SHOWS: [(&str, Show); 3] =
    [("TokenStats", Show::Stats), ("TokenSample", Show::Sample), ("SoftEmbed", Show::Soft)];

pub(super) fn add(list: &mut Vec<Case>) {
    for numerics in [Numerics::Exact, Numerics::Fast] {
        for (op, show) in SHOWS {
            for vocab in [1, 2, 15, 16, 17, 33, 63, 64, 65, 130, 1023, 1024, 1025, 2049, 5000] {
                for rows in [
                    Rows::Of(Spread::Times(4)),
                    Rows::Of(Spread::Times(60)),
                    Rows::Of(Spread::Coarse),
                    Rows::Of(Spread::Tiny),
                    Rows::Flat,
                    Rows::Concentrated,
                    Rows::Graded,
                    Rows::Mixed,
                ] {
                    // What is not read by the op is the same in both modes.
                    if numerics == Numerics::Fast && show != Show::Soft {
                        continue;
                    }
                    let name = format!("{vocab} ids {rows:?}");
                    push(list, op, numerics, name, move || given(vocab, rows, numerics, show));
                }
            }
            heads(list, op, numerics, show);
        }
    }
    for (op, show) in SHOWS {
        push(list, op, Numerics::Exact, "products that overflow".into(), move || {
            let shape = Shape { rows: 3, n: 40, vocab: 1030 };
            head(5, [DType::F32; 2], shape, Some(30.0), Spread::Huge, Numerics::Exact, show)
        });
        push(list, op, Numerics::Exact, "logits that overflow".into(), move || {
            scaled(40, Rows::Of(Spread::Vast), 1e10, Numerics::Exact, show)
        });
    }
}

fn heads(list: &mut Vec<Case>, op: &'static str, numerics: Numerics, show: Show) {
    for (seed, c) in (500..).zip(CODECS) {
        let (dtype, block) = (c.dtype(), c.block_len());
        let n = if block == 1 { 35 } else { block };
        let shape = Shape { rows: 7, n, vocab: 1061 };
        push(list, op, numerics, format!("head and table {} {shape:?}", dtype.name()), move || {
            head(seed, [dtype; 2], shape, Some(30.0), Spread::Unit, numerics, show)
        });
    }
    for (seed, (rows, n, vocab)) in
        (600..).zip([(1, 1, 1), (1, 17, 15), (26, 47, 2050), (60, 130, 1024), (30, 129, 2100), (300, 16, 33)])
    {
        let shape = Shape { rows, n, vocab };
        for (cap, spread) in [(None, Spread::Unit), (Some(2.0), Spread::Times(20)), (None, Spread::Times(20))]
        {
            push(list, op, numerics, format!("head {shape:?}, cap {cap:?}, {spread:?}"), move || {
                head(seed, [DType::F32, DType::F16], shape, cap, spread, numerics, show)
            });
        }
    }
    for (dtype, n) in [(DType::Q6_K, 256), (DType::Q8_0, 352), (DType::BF16, 300)] {
        let shape = Shape { rows: 27, n, vocab: 2100 };
        push(list, op, numerics, format!("head {}, {shape:?}", dtype.name()), move || {
            head(
                9,
                [dtype, DType::Q4_K],
                Shape { n: n.next_multiple_of(256), ..shape },
                Some(30.0),
                Spread::Unit,
                numerics,
                show,
            )
        });
    }
}

fn given(vocab: usize, rows: Rows, numerics: Numerics, show: Show) -> Result<Setup, ComputeError> {
    scaled(vocab, rows, 1.0, numerics, show)
}

fn scaled(
    vocab: usize,
    rows: Rows,
    scale: f64,
    numerics: Numerics,
    show: Show,
) -> Result<Setup, ComputeError> {
    let mut w = Weights::new(18);
    let matrix = w.add(DType::F16, [1, vocab, 21], Spread::Unit)?;
    let (table, mut noise) = w.finish();
    let mut b = ProgramBuilder::new(&table, 0, U.len());
    b.set_numerics(numerics);
    let x = b.input("logits", vocab, Kind::Real)?;
    let logits = b.logits(x, None, scale);
    let mut inputs = vec![Data::Real((0..U.len()).flat_map(|t| rows.row(t, vocab, &mut noise)).collect())];
    output(&mut b, logits, matrix, show, &mut inputs)?;
    Ok(single(b, table, inputs))
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    n: usize,
    vocab: usize,
}

/// The types are those of the head and of the embedding table; the spread is that of the hidden states.
fn head(
    seed: u64,
    types: [DType; 2],
    Shape { rows, n, vocab }: Shape,
    softcap: Option<f64>,
    spread: Spread,
    numerics: Numerics,
    show: Show,
) -> Result<Setup, ComputeError> {
    let mut weights = Weights::new(seed);
    let of = if spread == Spread::Huge { Spread::Huge } else { Spread::Unit };
    let w = weights.add(types[0], [1, vocab, n], of)?;
    let matrix = weights.add(types[1], [1, vocab, n], Spread::Unit)?;
    let (table, mut noise) = weights.finish();
    let mut b = ProgramBuilder::new(&table, 0, rows);
    b.set_numerics(numerics);
    let x = b.input("x", n, Kind::Real)?;
    let logits = b.logits(x, Some(Head { w, softcap }), 1.0 / 0.7);
    let mut inputs = vec![Data::Real(noise.reals(rows * n, spread))];
    output(&mut b, logits, matrix, show, &mut inputs)?;
    Ok(single(b, table, inputs))
}

fn output(
    b: &mut ProgramBuilder,
    logits: crate::op::Logits,
    matrix: crate::WeightId,
    show: Show,
    inputs: &mut Vec<Data>,
) -> Result<(), ComputeError> {
    let u = (show == Show::Sample).then(|| b.input("u", 1, Kind::Real)).transpose()?;
    let (of, argmax) = b.token_stats(logits)?;
    match show {
        Show::Stats => [of.stats, of.tiles, argmax].into_iter().for_each(|v| b.output(v)),
        Show::Sample => {
            if let Some(u) = u {
                inputs.push(Data::Real(U.iter().copied().cycle().take(u.rows()).collect()));
                let v = b.token_sample(of, u)?;
                b.output(v);
            }
        }
        Show::Soft => {
            let v = b.soft_embed(of, matrix, 5.5)?;
            b.output(v);
        }
    }
    Ok(())
}
