//! The routed experts.
//!
//! 1. The (token, slot) pairs are sorted by expert: each expert gets one band of rows.
//! 2. Gate and up: a tile is 16 or 32 features of one band; both products, then `act(gate) * up`.
//! 3. Down: again tiles of one band; the results of all pairs are kept.
//! 4. Each token adds its results times their weights, in slot order, from +0. Hence neither the grouping
//!    nor the threads can be seen in the bits.

use super::matmul::BLOCK;
use super::operand::{Places, Rows};
use super::packed::resize;
use super::panel::Matrix;
use crate::ComputeError;
use crate::cpu::pool::Grid;
use crate::cpu::vector::LANES;
use crate::cpu::{Cpu, Cx};
use crate::op::{self, GateUp};

/// Pairs of a block of tokens, sorted by expert.
struct Routing {
    /// Experts that have pairs.
    experts: Vec<usize>,
    /// First pair of each of these, and the end.
    bands: Vec<usize>,
    /// Token of each sorted pair.
    tokens: Vec<usize>,
    /// Where the pair (token, slot) stands in the sorted order.
    places: Vec<usize>,
}

impl Routing {
    /// `ids` is `[tokens][top_k]`, all in `0..n_experts`.
    fn new(ids: &[i32], top_k: usize) -> Routing {
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&pair| ids[pair]); // stable: tokens stay in order
        let mut r = Routing {
            experts: Vec::new(),
            bands: vec![0],
            tokens: order.iter().map(|&pair| pair / top_k).collect(),
            places: vec![0; ids.len()],
        };
        for (place, &pair) in order.iter().enumerate() {
            r.places[pair] = place;
            let expert = ids[pair] as usize;
            if r.experts.last() == Some(&expert) {
                r.bands.pop();
            } else {
                r.experts.push(expert);
            }
            r.bands.push(place + 1);
        }
        r
    }
}

pub(crate) fn run(cpu: &mut Cpu, o: &op::MoeExperts, cx: &mut Cx<'_>) -> Result<(), ComputeError> {
    let mut kept = cx.hidden.take();
    let down = cx.weights.get(o.down)?;
    cx.check_ids("MoeExperts", o.ids, down.experts)?;
    let (ff, top_k) = (down.cols, o.ids.cols());
    let down = Matrix::new(down)?;
    // Both halves of a fused stack are the same matrices at different rows.
    let (gate, up, up_row) = match o.gate_up {
        GateUp::Fused(w) => {
            let w = Matrix::new(cx.weights.get(w)?)?;
            (w, w, ff)
        }
        GateUp::Split { gate, up } => {
            (Matrix::new(cx.weights.get(gate)?)?, Matrix::new(cx.weights.get(up)?)?, 0)
        }
    };
    let mut out = cx.take_real(o.out);
    let (x, ids, weights) = (cx.real(o.x), cx.int(o.ids), cx.real(o.weights));
    let (k, n) = (gate.cols(), down.rows());
    let (mut hidden, mut results) = (std::mem::take(&mut cpu.hidden), std::mem::take(&mut cpu.results));

    if let Some(kept) = &mut kept {
        kept.clear();
    }
    for (b, out) in out.chunks_mut((BLOCK * n).max(1)).enumerate() {
        let tokens = out.len() / n;
        let pairs = b * BLOCK * top_k..(b * BLOCK + tokens) * top_k;
        let (ids, weights) = (&ids[pairs.clone()], &weights[pairs.clone()]);
        let route = Routing::new(ids, top_k);
        resize(&mut hidden, pairs.len() * ff, "the hidden layer of the experts")?;
        resize(&mut results, pairs.len() * n, "the results of the experts")?;

        let row = |t: usize| &x[(b * BLOCK + t) * k..][..k];
        let places = Places { bands: &route.bands, order: Some((&route.tokens, tokens)) };
        let forms = [gate.form(o.numerics), up.form(o.numerics)];
        cpu.operand.fill(&cpu.pool, cpu.table, forms[0], places, k, row)?;
        if forms[1] != forms[0] {
            cpu.operand2.fill(&cpu.pool, cpu.table, forms[1], places, k, row)?;
        }
        let (table, gate_x) = (cpu.table, &cpu.operand);
        let up_x = if forms[1] == forms[0] { gate_x } else { &cpu.operand2 };
        let tile_cols = gate_x.tile_cols().min(up_x.tile_cols());
        let grid = Grid { cols: ff, bands: &route.bands, tile_cols };
        cpu.pool.tiles(&mut hidden, grid, |thread, mut tile| {
            let scratch = &mut *cpu.scratch(thread);
            let expert = route.experts[tile.band];
            let band = [tile.row, tile.rows];
            let buf = &mut scratch.unpackers;
            let at = [expert, tile.col, tile.cols];
            let then = Rows { matrix: up, at: [expert, up_row + tile.col, tile.cols] };
            gate_x.product(table, gate, (at, Some(then)), band, buf, &mut scratch.sums);
            let next = tile.next.map(|t| Rows { matrix: gate, at: [route.experts[t.band], t.col, t.cols] });
            up_x.product(table, up, (then.at, next), band, buf, &mut scratch.sums2);
            (table.finish)(&mut scratch.sums, None);
            (table.finish)(&mut scratch.sums2, None);
            let halves = scratch.sums.chunks(tile.rows).zip(scratch.sums2.chunks(tile.rows));
            for (half, (gate, up)) in halves.enumerate() {
                let cols = half * LANES..tile.cols.min((half + 1) * LANES);
                for (i, (gate, up)) in gate.iter().zip(up).enumerate() {
                    let row = &mut tile.row_mut(i)[cols.clone()];
                    (table.glu)(&gate[..row.len()], &up[..row.len()], o.act, row);
                }
            }
        });

        let row = |i: usize| &hidden[i * ff..][..ff];
        if let Some(kept) = &mut kept {
            route.places.iter().for_each(|&place| kept.extend_from_slice(row(place)));
        }
        let places = Places { bands: &route.bands, order: None };
        cpu.operand.fill(&cpu.pool, cpu.table, down.form(o.numerics), places, ff, row)?;
        let hidden_x = &cpu.operand;
        let grid = Grid { cols: n, bands: &route.bands, tile_cols: hidden_x.tile_cols() };
        cpu.pool.tiles(&mut results, grid, |thread, mut tile| {
            let scratch = &mut *cpu.scratch(thread);
            let at = [route.experts[tile.band], tile.col, tile.cols];
            let band = [tile.row, tile.rows];
            let next = tile.next.map(|t| Rows { matrix: down, at: [route.experts[t.band], t.col, t.cols] });
            let buf = &mut scratch.unpackers;
            hidden_x.product(table, down, (at, next), band, buf, &mut scratch.sums);
            (table.finish)(&mut scratch.sums, None);
            tile.put(&scratch.sums);
        });

        cpu.pool.rows(out, n, n, |_, t, out| {
            out.fill(0.0);
            for slot in t * top_k..(t + 1) * top_k {
                (table.add_scaled)(&results[route.places[slot] * n..][..n], weights[slot], out);
            }
            (table.flush)(out);
        });
    }
    (cpu.hidden, cpu.results) = (hidden, results);
    cx.put_real(o.out, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_by_expert_and_found_again() {
        let r = Routing::new(&[3, 0, 3, 1, 0, 3], 2);
        assert_eq!(r.experts, [0, 1, 3]);
        assert_eq!(r.bands, [0, 2, 3, 6]);
        assert_eq!(r.tokens, [0, 2, 1, 0, 1, 2]);
        assert_eq!(r.places, [3, 0, 4, 2, 1, 5]);
        assert_eq!(Routing::new(&[], 2).bands, [0]);
    }
}
