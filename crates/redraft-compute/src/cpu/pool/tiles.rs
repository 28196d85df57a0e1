//! Work on disjoint parts of one output: items, tiles, bands of rows.

use std::marker::PhantomData;

use super::Pool;
use crate::cpu::vector::{LANES, Row16, put_row};

impl Pool {
    /// Calls `f(participant, i, &mut items[i])` for each item.
    pub(crate) fn items<T: Send>(&self, items: &mut [T], f: impl Fn(usize, usize, &mut T) + Sync) {
        let base = Base(items.as_mut_ptr());
        self.each(items.len(), |thread, i| {
            // SAFETY: `i` is below `items.len()` and is handed out once, so this is the only reference to
            // the item; `items` stays borrowed for the whole region.
            let item = unsafe { &mut *base.at(i) };
            f(thread, i, item);
        });
    }

    /// Calls `f(participant, tile)` for each tile of `out`, cut as the grid says.
    ///
    /// # Panics
    /// When the grid does not fit `out`.
    pub(crate) fn tiles<T: Send>(
        &self,
        out: &mut [T],
        grid: Grid<'_>,
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        let Grid { cols, bands, tile_cols } = grid;
        assert!(bands.windows(2).all(|w| w[0] <= w[1]), "row bands are ascending");
        let fits = |&end: &usize| end.checked_mul(cols).is_some_and(|n| n <= out.len());
        assert!(bands.last().is_none_or(fits), "the grid fits the output");
        let across = cols.div_ceil(tile_cols.max(1));
        let base = Base(out.as_mut_ptr());
        let place = |i: usize| (i / across, i % across * tile_cols);
        self.each_ahead(bands.len().saturating_sub(1) * across, |thread, i, next| {
            let (band, col) = place(i);
            let (row, end) = (bands[band], bands[band + 1]);
            let tile = Tile {
                base: base.at(row * cols + col),
                stride: cols,
                band,
                row,
                rows: end - row,
                col,
                cols: tile_cols.min(cols - col),
                next: next.map(|i| {
                    let (band, col) = place(i);
                    Place { band, col, cols: tile_cols.min(cols - col) }
                }),
                life: PhantomData,
            };
            f(thread, tile);
        });
    }

    /// Calls `f(participant, first row, rows)` for bands of whole rows of `out`, about `grain` elements each.
    pub(crate) fn rows<T: Send>(
        &self,
        out: &mut [T],
        cols: usize,
        grain: usize,
        f: impl Fn(usize, usize, &mut [T]) + Sync,
    ) {
        if out.is_empty() || cols == 0 {
            return;
        }
        let per = grain.div_ceil(cols).max(1);
        let mut bands: Vec<&mut [T]> = out.chunks_mut(per * cols).collect();
        self.items(&mut bands, |thread, i, band| f(thread, i * per, band));
    }
}

/// A pointer that several threads may copy; who uses it says why that is sound.
struct Base<T>(*mut T);

// SAFETY: the pointer is only turned into references to disjoint elements (see `items` and `Tile`), and the
// elements are Send.
unsafe impl<T: Send> Sync for Base<T> {}

impl<T> Base<T> {
    /// The address of element `i`, which must lie inside the slice or at its end.
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// How an output `[rows, cols]` is cut into tiles: into bands of rows at the given boundaries (`[0, rows]`
/// for one band), and each band into `tile_cols` columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid<'a> {
    /// Columns of the output.
    pub(crate) cols: usize,
    /// Ascending row boundaries.
    pub(crate) bands: &'a [usize],
    /// Columns of a tile; the last one of a band may be narrower.
    pub(crate) tile_cols: usize,
}

/// Where a tile lies: its band, its first column and the number of columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) band: usize,
    pub(crate) col: usize,
    pub(crate) cols: usize,
}

/// One tile of an output, owned by one participant.
pub(crate) struct Tile<'a, T> {
    base: *mut T,
    stride: usize,
    /// Index of the band.
    pub(crate) band: usize,
    /// First row.
    pub(crate) row: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// First column.
    pub(crate) col: usize,
    /// Number of columns.
    pub(crate) cols: usize,
    /// The tile that this participant gets next.
    pub(crate) next: Option<Place>,
    life: PhantomData<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// Row `r` of the tile, counted from its first.
    pub(crate) fn row_mut(&mut self, r: usize) -> &mut [T] {
        assert!(r < self.rows, "row {r} of a tile of {}", self.rows);
        // SAFETY: `Pool::tiles` checked that the grid fits the slice, tiles do not overlap, each tile is
        // made once, and `&mut self` allows one row at a time; the slice outlives `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(r * self.stride), self.cols) }
    }

    /// All rows of a tile as wide as the output.
    pub(crate) fn whole(&mut self) -> &mut [T] {
        assert_eq!(self.cols, self.stride, "the tile is as wide as the output");
        // SAFETY: as in `row_mut`; rows of full width follow each other without gaps.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.rows * self.stride) }
    }
}

impl Tile<'_, f32> {
    /// Writes all rows from sums: those of up to 16 columns of each row, then those of the other columns.
    pub(crate) fn put(&mut self, sums: &[Row16]) {
        for r in 0..self.rows {
            let (rows, out) = (self.rows, self.row_mut(r));
            for (sums, out) in sums[r..].iter().step_by(rows).zip(out.chunks_mut(LANES)) {
                put_row(sums, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_tile_is_written_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads);
            for (rows, cols, tile) in [(1, 1, 1), (5, 33, 16), (7, 16, 16), (3, 40, 64), (4, 0, 16)] {
                let mut out = vec![0u32; rows * cols];
                for _ in 0..50 {
                    let bands = [0, rows / 2, rows / 2, rows];
                    pool.tiles(&mut out, Grid { cols, bands: &bands, tile_cols: tile }, |_, mut t| {
                        for r in 0..t.rows {
                            let (row, col) = (t.row + r, t.col);
                            for (c, x) in t.row_mut(r).iter_mut().enumerate() {
                                *x += (row * cols + col + c) as u32;
                            }
                        }
                    });
                }
                assert!(out.iter().enumerate().all(|(i, &x)| x == 50 * i as u32), "{threads} {rows}x{cols}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "the grid fits the output")]
    fn a_grid_whose_size_wraps_is_refused() {
        let grid = Grid { cols: 2, bands: &[0, usize::MAX / 2 + 1], tile_cols: 1 };
        Pool::new(1).tiles(&mut [0u8; 4], grid, |_, _| {});
    }

    #[test]
    fn rows_cover_everything_and_nested_regions_run_inline() {
        let pool = Pool::new(3);
        let mut out = vec![0u64; 1000];
        pool.rows(&mut out, 10, 25, |_, row, band| {
            let total = AtomicUsize::new(0);
            pool.each(10, |_, i| {
                total.fetch_add(i, Ordering::Relaxed);
            });
            for (i, x) in band.iter_mut().enumerate() {
                *x += (row * 10 + i) as u64 + total.load(Ordering::Relaxed) as u64;
            }
        });
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as u64 + 45));
    }

    #[test]
    fn a_tile_names_the_next_one_of_its_thread() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let mut out = vec![0; 7 * 10];
            let grid = Grid { cols: 10, bands: &[0, 3, 7], tile_cols: 4 };
            let promised: Vec<Mutex<Option<[usize; 3]>>> = (0..threads).map(|_| Mutex::new(None)).collect();
            pool.tiles(&mut out, grid, |thread, mut tile| {
                (0..tile.rows).for_each(|r| tile.row_mut(r).iter_mut().for_each(|x| *x += 1));
                let next = tile.next.map(|t| [t.band, t.col, t.cols]);
                let before = std::mem::replace(&mut *promised[thread].lock().unwrap(), next);
                assert!(before.is_none_or(|b| b == [tile.band, tile.col, tile.cols]));
            });
            assert!(promised.iter().all(|p| p.lock().unwrap().is_none()), "a promised tile never came");
            assert!(out.iter().all(|&x| x == 1));
        }
    }
}
