//! What ops work with in a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::bytes_of;
use super::device::{Device, Dispatch, View};
use super::kernels::{KERNELS, Kernel};
use super::ops::logits::{self, Left};
use super::seq::{Seq, row_bytes};
use super::weights::{Stored, stored_bytes};
use crate::op::{Logits, Op};
use crate::program::{Program, Source};
use crate::weight::WeightTable;
use crate::{ComputeError, Val, WeightId, pass};

/// Dispatches whose results are looked at between two readings.
const SLOTS: usize = 1 << 16;

/// The slot of results that nobody looks at.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Buffers that wait for reuse: somewhat more than the values that are alive at once in a layer.
const POOLED: usize = 48;

/// What a kernel found nothing wrong with.
const RIGHT: u32 = u32::MAX;

/// A device with what stays on it between runs.
pub(super) struct Gpu<D: Device> {
    pub(super) device: D,
    pub(super) weights: Arc<WeightTable>,
    stored: BTreeMap<u32, Arc<Stored<D::Buffer>>>,
    vectors: BTreeMap<u32, D::Buffer>,
    /// Buffers of finished values with their sizes.
    pool: Vec<(u64, D::Buffer)>,
    status: D::Buffer,
    /// For bindings that a kernel does not look at.
    nothing: D::Buffer,
    /// Bytes of buffers for weights and values, and how many there may be.
    taken: u64,
    most: u64,
}

impl<D: Device> Gpu<D> {
    pub(super) fn new(
        mut device: D,
        weights: Arc<WeightTable>,
        most: Option<u64>,
    ) -> Result<Gpu<D>, ComputeError> {
        let status = device.alloc("the status of ops", 4 * SLOTS as u64)?;
        device.write(&status, 0, &vec![0xFF; 4 * SLOTS])?;
        let nothing = device.alloc("nothing", NOTHING)?;
        Ok(Gpu {
            device,
            weights,
            stored: BTreeMap::new(),
            vectors: BTreeMap::new(),
            pool: Vec::new(),
            status,
            nothing,
            taken: 0,
            most: most.unwrap_or(u64::MAX),
        })
    }

    /// A buffer of at least so many bytes, whose content is not meaningful.
    pub(super) fn buffer(&mut self, bytes: u64) -> Result<D::Buffer, ComputeError> {
        let bytes = size_class(bytes);
        if let Some(i) = self.pool.iter().position(|p| p.0 == bytes) {
            return Ok(self.pool.swap_remove(i).1);
        }
        self.alloc("an intermediate result", bytes)
    }

    /// Memory that counts against the limit. What waits for reuse goes first where there is no room.
    fn alloc(&mut self, what: &str, bytes: u64) -> Result<D::Buffer, ComputeError> {
        self.room(what, bytes)?;
        let buffer = self.device.alloc(what, bytes)?;
        self.taken += bytes;
        Ok(buffer)
    }

    /// Sees that there is room for so many bytes.
    fn room(&mut self, what: &str, bytes: u64) -> Result<(), ComputeError> {
        while self.taken.saturating_add(bytes) > self.most {
            let Some((idle, _)) = self.pool.pop() else {
                return Err(ComputeError::OutOfMemory {
                    what: format!(
                        "{what} beside {} bytes on the device, of which {} may be taken",
                        self.taken, self.most
                    ),
                    bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                });
            };
            self.taken -= idle;
        }
        Ok(())
    }

    /// Makes room for tokens up to `len` in a layer of a cache, an eighth more than asked, so that canvas after canvas does not
    /// copy the cache each time. Returns the buffers of keys and values, and the bytes of each.
    pub(super) fn reserve(
        &mut self,
        seq: &mut Seq<D::Buffer>,
        layer: usize,
        len: usize,
    ) -> Result<([D::Buffer; 2], u64), ComputeError> {
        let (room, row) = (seq.layers[layer].room, row_bytes(seq.kv_type, seq.layers[layer].width) as u64);
        if let Some(buffers) = &seq.layers[layer].buffers
            && len <= room
        {
            return Ok((buffers.clone(), seq.room_bytes(layer)));
        }
        let larger = len + len / 8;
        let bytes = row * larger as u64;
        self.room("the KV cache", 2 * bytes)?;
        let new = [self.device.alloc("the KV cache", bytes)?, self.device.alloc("the KV cache", bytes)?];
        self.taken += 2 * bytes;
        if let Some(old) = &seq.layers[layer].buffers {
            for (old, new) in old.iter().zip(&new) {
                self.device.copy((old, 0), (new, 0), row * seq.len as u64)?;
            }
            self.taken -= 2 * seq.room_bytes(layer);
        }
        let l = &mut seq.layers[layer];
        (l.buffers, l.room) = (Some(new.clone()), larger);
        Ok((new, bytes))
    }

    /// Takes back what a sequence held.
    pub(super) fn release(&mut self, seq: &mut Seq<D::Buffer>) {
        for (_, (buffer, n)) in std::mem::take(&mut seq.kept) {
            self.recycle(4 * n as u64, buffer);
        }
        if seq.len == 0 {
            self.taken -= seq.bytes() as u64;
            seq.layers.iter_mut().for_each(|l| (l.buffers, l.room) = (None, 0));
        }
    }

    /// Takes a buffer of [`buffer`](Self::buffer) for reuse. The oldest goes when there are many.
    pub(super) fn recycle(&mut self, bytes: u64, buffer: D::Buffer) {
        if self.pool.len() >= POOLED {
            let (bytes, _) = self.pool.remove(0);
            self.taken -= bytes;
        }
        self.pool.push((size_class(bytes), buffer));
    }

    /// After a run that failed: what it did not finish must not write into what comes next, nor what it found wrong be taken for
    /// that of another run. That it failed is said already, and a device that is lost says so again.
    pub(super) fn settle_failed(&mut self) {
        let _ = self.device.read(&[]);
        let _ = self.device.write(&self.status, 0, &vec![0xFF; 4 * SLOTS]);
    }

    /// A weight on the device.
    pub(super) fn stored(&mut self, id: WeightId) -> Result<Arc<Stored<D::Buffer>>, ComputeError> {
        if let Some(stored) = self.stored.get(&id.0) {
            return Ok(Arc::clone(stored));
        }
        let weights = Arc::clone(&self.weights);
        let weight = weights.get(id)?;
        self.room(&weight.name, stored_bytes(weight))?;
        let stored = Arc::new(Stored::upload(&mut self.device, weight)?);
        self.taken += stored_bytes(weight);
        self.stored.insert(id.0, Arc::clone(&stored));
        Ok(stored)
    }

    /// The only row of a weight, in f32.
    pub(super) fn vector(&mut self, id: WeightId) -> Result<D::Buffer, ComputeError> {
        if let Some(buffer) = self.vectors.get(&id.0) {
            return Ok(buffer.clone());
        }
        let words: Vec<u32> = self.numbers(id)?.into_iter().map(f32::to_bits).collect();
        let buffer = self.device.alloc("a vector", size_class(4 * words.len() as u64))?;
        self.device.write(&buffer, 0, bytes_of(&words))?;
        self.vectors.insert(id.0, buffer.clone());
        Ok(buffer)
    }

    /// The same on the host.
    pub(super) fn numbers(&self, id: WeightId) -> Result<Vec<f32>, ComputeError> {
        let weight = self.weights.get(id)?;
        let mut x = vec![0.0; weight.cols];
        if let Some(codec) = redraft_gguf::codec(weight.dtype) {
            codec.dequantize(weight.row(0, 0), &mut x);
        }
        x.iter_mut().for_each(|x| *x = crate::math::flush(*x));
        Ok(x)
    }
}

/// Bytes of the buffer of nothing.
const NOTHING: u64 = 256;

/// What is allocated for so many bytes: steps of an eighth, so that few sizes occur.
fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(NOTHING);
    let step = (bytes.next_power_of_two() / 8).max(NOTHING);
    bytes.next_multiple_of(step)
}

/// A run.
pub(super) struct Cx<'a, D: Device> {
    pub(super) gpu: &'a mut Gpu<D>,
    pub(super) program: &'a Program,
    pub(super) values: Vec<Option<D::Buffer>>,
    /// Ids that came from the host, by value.
    pub(super) ids: BTreeMap<usize, Vec<i32>>,
    pub(super) seqs: Vec<Seq<D::Buffer>>,
    /// Which of them each segment of the pass belongs to.
    pub(super) of: &'a [usize],
    /// The op that is being made.
    pub(super) at: usize,
    /// Whether the hidden layers of experts are wanted, and where they are, with their number.
    pub(super) keeps_hidden: bool,
    pub(super) hidden: Option<(D::Buffer, usize)>,
    /// Logits of a head that a later op reads, too.
    pub(super) logits: Option<Left<D::Buffer>>,
    temporaries: Vec<(u64, D::Buffer)>,
    constants: BTreeMap<Vec<u32>, D::Buffer>,
    /// Op, value, and the first element of the dispatch with this slot.
    slots: Vec<(usize, Val, usize)>,
}

impl<'a, D: Device> Cx<'a, D> {
    pub(super) fn new(
        gpu: &'a mut Gpu<D>,
        program: &'a Program,
        seqs: Vec<Seq<D::Buffer>>,
        of: &'a [usize],
    ) -> Cx<'a, D> {
        Cx {
            gpu,
            program,
            values: program.vals.iter().map(|_| None).collect(),
            ids: BTreeMap::new(),
            seqs,
            of,
            at: 0,
            keeps_hidden: false,
            hidden: None,
            logits: None,
            temporaries: Vec::new(),
            constants: BTreeMap::new(),
            slots: Vec::new(),
        }
    }

    /// Gives the sequences back. After a failure the device may still be at work; what it writes nobody reads.
    pub(super) fn finish(mut self, done: bool) -> Vec<Seq<D::Buffer>> {
        self.free_temporaries();
        logits::free(&mut self);
        for v in &self.program.vals {
            let stays = done && self.program.keeps.iter().any(|(_, k, _)| k == v);
            if stays {
                self.values[v.index()] = None;
            }
            self.free(*v);
        }
        std::mem::take(&mut self.seqs)
    }

    /// A value, all of it.
    pub(super) fn value(&self, v: Val) -> D::Buffer {
        match &self.values[v.index()] {
            Some(buffer) => buffer.clone(),
            None => unreachable!("value {} is read after its last use", v.index()),
        }
    }

    /// A value is not read any more. Kept ones stay with their sequence.
    pub(super) fn free(&mut self, v: Val) {
        let kept = self.program.inputs.iter().any(|(i, s)| *i == v && matches!(s, Source::Kept { .. }));
        if let Some(buffer) = self.values[v.index()].take().filter(|_| !kept) {
            self.gpu.recycle(4 * v.len() as u64, buffer);
        }
    }

    /// Memory for this op alone.
    pub(super) fn temporary(&mut self, bytes: u64) -> Result<D::Buffer, ComputeError> {
        let buffer = self.gpu.buffer(bytes)?;
        self.temporaries.push((bytes, buffer.clone()));
        Ok(buffer)
    }

    pub(super) fn free_temporaries(&mut self) {
        for (bytes, buffer) in std::mem::take(&mut self.temporaries) {
            self.gpu.recycle(bytes, buffer);
        }
    }

    /// Words that the host knows, for the length of the run.
    pub(super) fn constant(&mut self, words: &[u32]) -> Result<D::Buffer, ComputeError> {
        if let Some(buffer) = self.constants.get(words) {
            return Ok(buffer.clone());
        }
        let buffer = self.gpu.device.alloc("a list", size_class(4 * words.len() as u64))?;
        self.gpu.device.write(&buffer, 0, bytes_of(words))?;
        self.constants.insert(words.to_vec(), buffer.clone());
        Ok(buffer)
    }

    /// A buffer that a kernel does not look at.
    pub(super) fn nothing(&self) -> D::Buffer {
        self.gpu.nothing.clone()
    }

    /// Checks ids, after everything before was found right. Those that ops of the program make are below the number that the op
    /// knows; where that is not enough they are looked at.
    pub(super) fn check_ids(&mut self, op: &'static str, v: Val, limit: usize) -> Result<(), ComputeError> {
        let of_op = |o: &Op| match o {
            Op::MoeRoute(o) if o.ids == v => Some(o.logits.cols()),
            Op::TokenStats(o) if o.argmax == v => Some(self.vocabulary(&o.logits)),
            Op::TokenSample(o) if o.out == v => Some(self.vocabulary(&o.of.logits)),
            _ => None,
        };
        if self.program.ops[..self.at].iter().find_map(of_op).is_some_and(|n| n <= limit) {
            return Ok(());
        }
        let wrong = match self.ids.get(&v.index()) {
            Some(ids) => pass::check_ids(op, ids, v.cols(), limit),
            None => {
                let bytes = self.settle(&[v])?;
                let ids: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|&b| i32::from_le_bytes(b)).collect();
                pass::check_ids(op, &ids[..v.len()], v.cols(), limit)
            }
        };
        if wrong.is_err() {
            self.settle(&[])?;
        }
        wrong
    }

    /// Ids of logits.
    fn vocabulary(&self, logits: &Logits) -> usize {
        match logits.head {
            Some(head) => self.program.weights().get(head.w).map_or(usize::MAX, |w| w.rows),
            None => logits.x.cols(),
        }
    }

    /// `n` rows of `cols` words from row `first` on, which may begin where no view may: a view that begins before them, and
    /// their place in it.
    pub(super) fn near<'b>(
        &self,
        buffer: &'b D::Buffer,
        (first, n, cols): (usize, usize, usize),
    ) -> (View<'b, D::Buffer>, u32) {
        let at = 4 * (first * cols) as u64;
        let before = at % self.gpu.device.limits().align;
        let bytes = before + 4 * (n * cols).max(1) as u64;
        (View { buffer, at: at - before, bytes }, (before / 4) as u32)
    }

    /// The same of rows of a value.
    pub(super) fn near_value<'b>(
        &self,
        buffer: &'b D::Buffer,
        v: Val,
        rows: &Range<usize>,
    ) -> (View<'b, D::Buffer>, u32) {
        self.near(buffer, (rows.start, rows.len(), v.cols()))
    }

    /// A word in which a kernel says what is wrong with a result of this op, whose first element is `first`.
    pub(super) fn slot(&mut self, v: Val, first: usize) -> Result<u32, ComputeError> {
        if self.slots.len() == SLOTS {
            self.settle(&[])?;
        }
        self.slots.push((self.at, v, first));
        Ok(self.slots.len() as u32 - 1)
    }

    /// The first rows of a matrix and those that follow, in parts of which a kernel can see all of `cols` columns.
    pub(super) fn parts(&self, rows: usize, cols: usize) -> Result<Vec<Range<usize>>, ComputeError> {
        let limits = self.gpu.device.limits();
        let row = 4 * cols.max(1) as u64;
        if row.saturating_mul(rows as u64) <= limits.binding {
            return Ok((rows > 0).then_some(0..rows).into_iter().collect());
        }
        // So many rows begin where a view may begin.
        let step = limits.align / gcd(limits.align, row);
        let most = limits.binding / row / step * step;
        if most == 0 {
            return Err(ComputeError::OutOfMemory {
                what: format!("a view of {step} rows of {cols} numbers on this device"),
                bytes: (step * row) as usize,
            });
        }
        Ok((0..rows).step_by(most as usize).map(|r| r..rows.min(r + most as usize)).collect())
    }

    /// Runs a kernel on views of buffers, for its first parameters.
    pub(super) fn dispatch(
        &mut self,
        kernel: Kernel,
        views: &[View<'_, D::Buffer>],
        parameters: &[u32],
        groups: [u32; 3],
        cost: u64,
    ) -> Result<(), ComputeError> {
        let work = Dispatch { kernel, views, parameters, groups, cost };
        self.gpu.device.dispatch(&self.gpu.status, &work)
    }

    /// Runs a kernel that makes one of `n` things with each invocation.
    pub(super) fn each(
        &mut self,
        kernel: Kernel,
        views: &[View<'_, D::Buffer>],
        parameters: &[u32],
        n: usize,
    ) -> Result<(), ComputeError> {
        let size: u32 = KERNELS[kernel as usize].workgroup.iter().product();
        let groups = self.grid(n.div_ceil(size as usize))?;
        self.dispatch(kernel, views, parameters, groups, 64 * n as u64)
    }

    /// So many workgroups in a grid of up to three dimensions.
    pub(super) fn grid(&self, groups: usize) -> Result<[u32; 3], ComputeError> {
        let most = self.gpu.device.limits().groups as usize;
        let y = groups.div_ceil(most);
        let z = y.div_ceil(most);
        match [groups.min(most), y.min(most), z].map(u32::try_from) {
            [Ok(x), Ok(y), Ok(z)] if z as usize <= most => Ok([x, y, z]),
            _ => Err(ComputeError::OutOfMemory { what: "a grid of workgroups".into(), bytes: groups }),
        }
    }

    /// Waits for all that was asked for, finds out whether it is right, and returns the bytes of values.
    pub(super) fn settle(&mut self, values: &[Val]) -> Result<Vec<u8>, ComputeError> {
        let buffers: Vec<(D::Buffer, u64)> =
            values.iter().map(|&v| (self.value(v), 4 * v.len() as u64)).collect();
        self.settle_buffers(&buffers)
    }

    /// The same for so many bytes of buffers.
    pub(super) fn settle_buffers(&mut self, buffers: &[(D::Buffer, u64)]) -> Result<Vec<u8>, ComputeError> {
        let slots = std::mem::take(&mut self.slots);
        let head = 4 * slots.len() as u64;
        let mut parts = vec![View { buffer: &self.gpu.status, at: 0, bytes: head }];
        parts.extend(buffers.iter().map(|(buffer, bytes)| View { buffer, at: 0, bytes: *bytes }));
        let mut bytes = self.gpu.device.read(&parts)?;
        // For the next ones.
        self.gpu.device.write(&self.gpu.status, 0, &vec![0xFF; head as usize])?;
        let (status, _) = bytes[..head as usize].as_chunks::<4>();
        for (word, (op, v, first)) in status.iter().map(|&w| u32::from_le_bytes(w)).zip(slots) {
            if word != RIGHT {
                let at = first + (word / 2) as usize;
                return Err(pass::op_not_finite(self.program, op, v, at, word % 2 == 1));
            }
        }
        bytes.drain(..head as usize);
        Ok(bytes)
    }
}

/// All of a buffer of so many words.
pub(super) fn words<B>(buffer: &B, n: usize) -> View<'_, B> {
    View { buffer, at: 0, bytes: 4 * n.max(1) as u64 }
}

/// Rows of a matrix of `cols` columns.
pub(super) fn rows<'a, B>(buffer: &'a B, part: &Range<usize>, cols: usize) -> View<'a, B> {
    View { buffer, at: 4 * (part.start * cols) as u64, bytes: 4 * (part.len() * cols).max(1) as u64 }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
