//! A forward pass as a list of ops, with names for what can be looked at.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::op::*;
use crate::weight::WeightTable;
use crate::{ComputeError, Kind, Numerics, Val, WeightId};

/// Name of something that can be observed: llama.cpp's tensor names, with the layer apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TapKey {
    /// `attn_norm`, `Qcur`, `l_out`, `result_norm` …
    pub name: &'static str,
    /// Layer, for taps that exist once per layer.
    pub layer: Option<usize>,
}

impl fmt::Display for TapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(l) => write!(f, "{}-{l}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Elements of a value as a backend shows them to an [`Observer`], row-major.
#[derive(Debug, Clone, Copy)]
pub enum TapData<'a> {
    /// Canonical f32, or f32 rounded to bf16.
    F32(&'a [f32]),
    /// The f64 truth.
    F64(&'a [f64]),
    /// Ids.
    I32(&'a [i32]),
}

impl TapData<'_> {
    /// The first so many elements.
    #[must_use]
    pub fn first(self, n: usize) -> Self {
        match self {
            TapData::F32(x) => TapData::F32(&x[..n.min(x.len())]),
            TapData::F64(x) => TapData::F64(&x[..n.min(x.len())]),
            TapData::I32(x) => TapData::I32(&x[..n.min(x.len())]),
        }
    }
}

/// Watches a run: taps as they are computed, outputs at the end.
pub trait Observer {
    /// Whether [`tap`](Self::tap) should be called for this name. A backend that computes elsewhere copies
    /// only what is wanted.
    fn wants(&self, _key: TapKey) -> bool {
        false
    }

    /// A value was computed.
    fn tap(&mut self, _key: TapKey, _val: Val, _data: TapData<'_>) {}

    /// The `index`-th output of the program, after the last op.
    fn output(&mut self, _index: usize, _val: Val, _data: TapData<'_>) {}

    /// A flag that ends the run with [`ComputeError::Interrupted`] once somebody sets it. Backends look at it between ops,
    /// and those that share an op among threads between their shares. Asked once a run.
    fn interrupt(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Whether [`timed`](Self::timed) should be called; asked once a run.
    fn times_ops(&self) -> bool {
        false
    }

    /// Whether [`product`](Self::product) should be called; asked once a run.
    fn wants_products(&self) -> bool {
        false
    }

    /// What an op multiplied by a weight matrix: `x`, `[rows, cols of the weight]`, in the number type of the run, as it is
    /// before `fast` rounds it. Rows of a stack went to the matrices in `experts`, `[rows, n]`. Called in the order of ops
    /// for [`MatMul`], the three products of [`MoeExperts`], and the head of [`TokenStats`]; ops that compute the same
    /// logits again are left out.
    fn product(&mut self, _weight: WeightId, _x: TapData<'_>, _experts: Option<&[i32]>) {}

    /// Op `index` of the program, with the buffers of its results and the check of their numbers, took so long.
    fn timed(&mut self, _index: usize, _time: Duration) {}
}

/// The observer that looks at nothing.
pub struct Blind;

impl Observer for Blind {}

/// Handle of a kept value, which stays in the backend with the sequence and is an input of later programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptId(pub u32);

/// Where the elements of an input come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Host { name: &'static str },
    Kept { segment: usize, id: KeptId },
}

/// One forward pass: ops in execution order, its inputs, taps and outputs.
#[derive(Debug)]
pub struct Program {
    pub(crate) vals: Vec<Val>,
    pub(crate) inputs: Vec<(Val, Source)>,
    pub(crate) ops: Vec<Op>,
    pub(crate) layers: Vec<Option<usize>>,
    /// `(op index, key, value)`, ascending by op.
    pub(crate) taps: Vec<(usize, TapKey, Val)>,
    pub(crate) outputs: Vec<Val>,
    /// Number of the sequence, value, where it stays.
    pub(crate) keeps: Vec<(usize, Val, KeptId)>,
    /// For each value, the index of the last op that reads it; `ops.len()` when it leaves the program.
    pub(crate) last_use: Vec<usize>,
    pub(crate) weights: Arc<WeightTable>,
    segments: Segments,
    rows: usize,
}

impl Program {
    /// The ops in execution order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// All taps `(key, value)` in execution order.
    pub fn taps(&self) -> impl Iterator<Item = (TapKey, Val)> + '_ {
        self.taps.iter().map(|&(_, k, v)| (k, v))
    }

    /// The weights that the ops name.
    pub fn weights(&self) -> &WeightTable {
        &self.weights
    }

    /// The sequences that the pass is over.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Rows of the pass, of all sequences.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The most numbers that a run holds at once: values that are still read, those that stay, and the copies that an
    /// op makes of its inputs. An estimate: backends keep some buffers for reuse.
    pub fn peak_numbers(&self) -> usize {
        let mut alive: usize = self.inputs.iter().map(|(v, _)| v.len()).sum();
        let mut peak = alive;
        for (i, op) in self.ops.iter().enumerate() {
            let (inputs, outputs) = (op.inputs(), op.outputs());
            alive = outputs.iter().fold(alive, |n, v| n.saturating_add(v.len()));
            let own = match op {
                Op::MatMul(o) => o.x.len(),
                Op::MoeExperts(o) => {
                    let hidden = self.weights.get(o.down).map_or(0, |w| w.cols);
                    o.ids.len().saturating_mul(hidden.saturating_add(o.out.cols()))
                }
                _ => 0,
            };
            peak = peak.max(alive.saturating_add(own));
            let mut done: Vec<Val> = inputs.into_iter().chain(outputs).collect();
            done.sort_unstable_by_key(|v| v.index());
            done.dedup();
            let done = done.iter().filter(|v| self.last_use[v.index()] <= i);
            alive = done.fold(alive, |n, v| n.saturating_sub(v.len()));
        }
        peak
    }

    /// The layer that op `index` belongs to.
    pub fn layer_of(&self, index: usize) -> Option<usize> {
        self.layers.get(index).copied().flatten()
    }

    /// Name under which errors speak of a result of op `index`: its tap, or the next tap on its way.
    pub(crate) fn label(&self, index: usize, val: Val) -> String {
        if let Some((_, key, _)) = self.taps.iter().find(|&&(_, _, v)| v == val) {
            return key.to_string();
        }
        match self.taps.iter().find(|&&(at, _, _)| at > index) {
            Some((_, key, _)) => format!("what leads to {key}"),
            None => match self.ops.get(index) {
                // Behind the last tap.
                Some(Op::TokenStats(_) | Op::TokenSample(_)) => "the logits".into(),
                _ => format!("op {index}"),
            },
        }
    }
}

/// Puts a [`Program`] together: each method appends one op, checks its shapes, and returns the handle of
/// its result.
pub struct ProgramBuilder {
    p: Program,
    layer: Option<usize>,
    numerics: Numerics,
    flash: Option<Flash>,
    rewrite: Option<Arc<dyn Rewrite>>,
}

/// Changes a program while it is put together, to see what a mistake would do.
pub trait Rewrite: Send + Sync {
    /// Appends `op`, or others that write its results, to the program; what it appends is not rewritten again.
    ///
    /// # Errors
    /// Those of the ops.
    fn append(&self, b: &mut ProgramBuilder, op: Op) -> Result<(), ComputeError>;
}

type Res = Result<Val, ComputeError>;

impl ProgramBuilder {
    /// A pass over one sequence, of `rows` positions after `n_past` cached ones.
    pub fn new(weights: &Arc<WeightTable>, n_past: usize, rows: usize) -> ProgramBuilder {
        ProgramBuilder::batch(weights, &[Segment { n_past, rows }])
    }

    /// A pass over several sequences, whose rows follow each other. Each has the bits that it has alone.
    pub fn batch(weights: &Arc<WeightTable>, segments: &[Segment]) -> ProgramBuilder {
        let segments = Segments::new(segments);
        let p = Program {
            vals: Vec::new(),
            inputs: Vec::new(),
            ops: Vec::new(),
            layers: Vec::new(),
            taps: Vec::new(),
            outputs: Vec::new(),
            keeps: Vec::new(),
            last_use: Vec::new(),
            weights: Arc::clone(weights),
            rows: segments.rows(),
            segments,
        };
        ProgramBuilder { p, layer: None, numerics: Numerics::Exact, flash: None, rewrite: None }
    }

    /// Ops and taps that follow belong to this layer.
    pub fn set_layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// How the products with weights that follow are computed; `exact` until this is called.
    pub fn set_numerics(&mut self, numerics: Numerics) {
        self.numerics = numerics;
    }

    /// How the attention that follows rounds where there is no cache; none is as f32 does.
    pub fn set_flash(&mut self, flash: Option<Flash>) {
        self.flash = flash;
    }

    /// Ops that follow go through this; none leaves them as they are.
    pub fn set_rewrite(&mut self, rewrite: Option<Arc<dyn Rewrite>>) {
        self.rewrite = rewrite;
    }

    /// The ops so far.
    pub fn ops(&self) -> &[Op] {
        &self.p.ops
    }

    /// The weights that ops name.
    pub fn weights(&self) -> &WeightTable {
        &self.p.weights
    }

    /// Rows of the pass, of all sequences.
    pub fn rows(&self) -> usize {
        self.p.rows
    }

    fn val(&mut self, op: &'static str, rows: usize, cols: usize, kind: Kind) -> Res {
        let id = self.p.vals.len() as u32;
        let v = Val::new(id, rows, cols, kind).ok_or_else(|| ComputeError::Shape {
            op,
            what: "the result".into(),
            expected: "a matrix that can be addressed".into(),
            found: format!("[{rows}, {cols}]"),
        })?;
        self.p.vals.push(v);
        Ok(v)
    }

    /// An input `[rows of the pass, cols]` that the caller gives at each run, in the order of declaration.
    pub fn input(&mut self, name: &'static str, cols: usize, kind: Kind) -> Res {
        self.input_rows(name, self.p.rows, cols, kind)
    }

    /// As [`input`](Self::input), with another number of rows.
    pub fn input_rows(&mut self, name: &'static str, rows: usize, cols: usize, kind: Kind) -> Res {
        let v = self.val("input", rows, cols, kind)?;
        self.p.inputs.push((v, Source::Host { name }));
        Ok(v)
    }

    /// A value `[rows, cols]` that an earlier program with sequence number `segment` kept for it.
    pub fn kept(&mut self, segment: usize, id: KeptId, rows: usize, cols: usize) -> Res {
        let v = self.val("kept", rows, cols, Kind::Real)?;
        self.p.inputs.push((v, Source::Kept { segment, id }));
        Ok(v)
    }

    /// Names a value for observers, in the current layer.
    pub fn tap(&mut self, name: &'static str, v: Val) {
        let at = self.p.ops.len().saturating_sub(1);
        self.p.taps.push((at, TapKey { name, layer: self.layer }, v));
    }

    /// Makes a value an output; outputs are numbered in the order of these calls.
    pub fn output(&mut self, v: Val) {
        self.p.outputs.push(v);
    }

    /// Keeps a value in the backend for a later program with sequence number `segment` of this one.
    pub fn keep(&mut self, segment: usize, v: Val, id: KeptId) {
        self.p.keeps.push((segment, v, id));
    }

    /// The finished program.
    pub fn finish(mut self) -> Program {
        let end = self.p.ops.len();
        let mut last = vec![0; self.p.vals.len()];
        for (i, op) in self.p.ops.iter().enumerate() {
            for v in op.inputs().into_iter().chain(op.outputs()) {
                last[v.index()] = i;
            }
        }
        for v in self.p.outputs.iter().chain(self.p.keeps.iter().map(|(_, v, _)| v)) {
            last[v.index()] = end;
        }
        for &(at, _, v) in &self.p.taps {
            last[v.index()] = last[v.index()].max(at);
        }
        self.p.last_use = last;
        self.p
    }

    fn push(&mut self, op: impl Into<Op>) -> Result<(), ComputeError> {
        match self.rewrite.take() {
            None => self.append(op),
            Some(rewrite) => {
                let done = rewrite.append(self, op.into());
                self.rewrite = Some(rewrite);
                done
            }
        }
    }

    /// Appends an op whose results exist already, as a [`Rewrite`] does.
    ///
    /// # Errors
    /// Those of [`Op::check`].
    pub fn append(&mut self, op: impl Into<Op>) -> Result<(), ComputeError> {
        let op = op.into();
        op.check(&self.p.weights)?;
        self.p.ops.push(op);
        self.p.layers.push(self.layer);
        Ok(())
    }

    /// Appends [`Embed`].
    pub fn embed(&mut self, ids: Val, table: WeightId, scale: f64) -> Res {
        let out = self.val("Embed", ids.rows(), self.p.weights.get(table)?.cols, Kind::Real)?;
        self.push(Embed { ids, table, scale, out })?;
        Ok(out)
    }

    /// Appends [`SoftEmbed`].
    pub fn soft_embed(&mut self, of: Distribution, table: WeightId, scale: f64) -> Res {
        let (rows, cols) = (of.logits.x.rows(), self.p.weights.get(table)?.cols);
        let out = self.val("SoftEmbed", rows, cols, Kind::Real)?;
        self.push(SoftEmbed { of, table, scale, out })?;
        Ok(out)
    }

    /// Appends [`MatMul`] without bias.
    pub fn matmul(&mut self, x: Val, w: WeightId) -> Res {
        self.matmul_bias(x, w, None)
    }

    /// Appends [`MatMul`].
    pub fn matmul_bias(&mut self, x: Val, w: WeightId, bias: Option<WeightId>) -> Res {
        let out = self.val("MatMul", x.rows(), self.p.weights.get(w)?.rows, Kind::Real)?;
        self.push(MatMul { x, w, bias, numerics: self.numerics, out })?;
        Ok(out)
    }

    /// Appends [`RmsNorm`] over groups of `group` columns.
    pub fn rms_norm(&mut self, x: Val, weight: Option<WeightId>, eps: f32, group: usize) -> Res {
        let out = self.val("RmsNorm", x.rows(), x.cols(), Kind::Real)?;
        self.push(RmsNorm { x, weight, eps, group, out })?;
        Ok(out)
    }

    /// Appends [`Scale`].
    pub fn scale(&mut self, x: Val, by: Factor) -> Res {
        let out = self.val("Scale", x.rows(), x.cols(), Kind::Real)?;
        self.push(Scale { x, by, out })?;
        Ok(out)
    }

    /// Appends [`Add`] of all rows.
    pub fn add(&mut self, a: Val, b: Val) -> Res {
        self.add_rows(a, b, 0)
    }

    /// Appends [`Add`] to the rows of `a` from `first` on, as many as `b` has.
    pub fn add_rows(&mut self, a: Val, b: Val, first: usize) -> Res {
        let out = self.val("Add", a.rows(), a.cols(), Kind::Real)?;
        self.push(Add { a, b, first, out })?;
        Ok(out)
    }

    /// Appends [`Glu`].
    pub fn glu(&mut self, gate: Val, up: Val, act: Activation) -> Res {
        let out = self.val("Glu", gate.rows(), gate.cols(), Kind::Real)?;
        self.push(Glu { gate, up, act, out })?;
        Ok(out)
    }

    /// Appends [`Rope`] with as many rotated channels as the table has columns.
    pub fn rope(&mut self, x: Val, table: Val, head_dim: usize, style: RopeStyle) -> Res {
        let out = self.val("Rope", x.rows(), x.cols(), Kind::Real)?;
        self.push(Rope { x, table, head_dim, n_rot: table.cols(), style, out })?;
        Ok(out)
    }

    /// Appends [`Attention`] within each sequence of the pass.
    pub fn attention(&mut self, qkv: [Val; 3], spec: AttentionSpec) -> Res {
        let [q, k, v] = qkv;
        let out = self.val("Attention", q.rows(), q.cols(), Kind::Real)?;
        let AttentionSpec { cache_layer, n_heads, n_kv_heads, head_dim, scale, mask } = spec;
        let segments = self.p.segments.clone();
        self.push(Attention {
            q,
            k,
            v,
            cache_layer,
            segments,
            n_heads,
            n_kv_heads,
            head_dim,
            scale,
            mask,
            flash: self.flash.filter(|_| cache_layer.is_none()),
            out,
        })?;
        Ok(out)
    }

    /// Appends [`KvAppend`].
    pub fn kv_append(&mut self, layer: usize, k: Val, v: Val) -> Result<(), ComputeError> {
        self.push(KvAppend { layer, segments: self.p.segments.clone(), k, v })
    }

    /// Appends [`MoeRoute`] and returns `(probs, ids, weights)`.
    pub fn moe_route(&mut self, logits: Val, routing: Routing) -> Result<(Val, Val, Val), ComputeError> {
        let t = logits.rows();
        let probs = self.val("MoeRoute", t, logits.cols(), Kind::Real)?;
        let ids = self.val("MoeRoute", t, routing.top_k, Kind::Int)?;
        let weights = self.val("MoeRoute", t, routing.top_k, Kind::Real)?;
        let segments = self.p.segments.clone();
        self.push(MoeRoute { logits, segments, routing, probs, ids, weights })?;
        Ok((probs, ids, weights))
    }

    /// Appends [`MoeExperts`] for the routing `(ids, weights)`.
    pub fn moe_experts(
        &mut self,
        x: Val,
        (ids, weights): (Val, Val),
        gate_up: GateUp,
        down: WeightId,
        act: Activation,
    ) -> Res {
        let out = self.val("MoeExperts", x.rows(), self.p.weights.get(down)?.rows, Kind::Real)?;
        self.push(MoeExperts { x, ids, weights, gate_up, down, act, numerics: self.numerics, out })?;
        Ok(out)
    }

    /// Appends [`Softcap`].
    pub fn softcap(&mut self, x: Val, cap: f64) -> Res {
        let out = self.val("Softcap", x.rows(), x.cols(), Kind::Real)?;
        self.push(Softcap { x, cap, out })?;
        Ok(out)
    }

    /// Appends the head as [`MatMul`] and [`Softcap`]: raw logits `[T, V]`, for those who want to see them.
    pub fn head(&mut self, x: Val, head: Head) -> Res {
        let y = self.matmul(x, head.w)?;
        head.softcap.map_or(Ok(y), |cap| self.softcap(y, cap))
    }

    /// Logits for [`token_stats`](Self::token_stats), as [`Logits`] describes them.
    pub fn logits(&self, x: Val, head: Option<Head>, scale: f64) -> Logits {
        Logits { x, head, scale, numerics: self.numerics }
    }

    /// Appends [`TokenStats`] and returns the distribution and the argmax.
    pub fn token_stats(&mut self, logits: Logits) -> Result<(Distribution, Val), ComputeError> {
        let rows = logits.x.rows();
        let vocab = match logits.head {
            Some(head) => self.p.weights.get(head.w)?.rows,
            None => logits.x.cols(),
        };
        let stats = self.val("TokenStats", rows, STATS, Kind::Real)?;
        let tiles = self.val("TokenStats", rows, 2 * Logits::tiles(vocab), Kind::Real)?;
        let argmax = self.val("TokenStats", rows, 1, Kind::Int)?;
        self.push(TokenStats { logits, stats, tiles, argmax })?;
        Ok((Distribution { logits, stats, tiles }, argmax))
    }

    /// Appends [`TokenSample`].
    pub fn token_sample(&mut self, of: Distribution, u: Val) -> Res {
        let out = self.val("TokenSample", of.logits.x.rows(), 1, Kind::Int)?;
        self.push(TokenSample { of, u, out })?;
        Ok(out)
    }

    /// Appends [`TakeRows`].
    pub fn take_rows(&mut self, x: Val, rows: Vec<u32>) -> Res {
        let out = self.val("TakeRows", rows.len(), x.cols(), Kind::Real)?;
        self.push(TakeRows { x, rows, out })?;
        Ok(out)
    }

    /// Appends [`Penalize`].
    pub fn penalize(&mut self, logits: Val, by: Penalty) -> Res {
        let out = self.val("Penalize", logits.rows(), logits.cols(), Kind::Real)?;
        self.push(Penalize { logits, by, out })?;
        Ok(out)
    }

    /// Appends [`Restrict`].
    pub fn restrict(&mut self, logits: Val, ban: &[u32], top_k: usize, top_p: f64) -> Res {
        let out = self.val("Restrict", logits.rows(), logits.cols(), Kind::Real)?;
        self.push(Restrict { logits, ban: ban.to_vec(), top_k, top_p, out })?;
        Ok(out)
    }

    /// Appends [`PickStats`].
    pub fn pick_stats(&mut self, logits: Val, argmax: Val, sample: Val) -> Res {
        let out = self.val("PickStats", logits.rows(), 3, Kind::Real)?;
        self.push(PickStats { logits, argmax, sample, out })?;
        Ok(out)
    }
}

/// The parts of an [`Attention`] that the caller chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionSpec {
    /// Layer of the KV cache, if there is one.
    pub cache_layer: Option<usize>,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f64,
    /// Visible keys.
    pub mask: Mask,
}
