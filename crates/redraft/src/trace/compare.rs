//! Tensor by tensor: how far a candidate is from a golden, and where it leaves it first.

use std::borrow::Cow;

use serde::Serialize;

use super::{Bounds, Given, Limits, Preset, Tensor, TraceFile, has_rows, split_layer};
use crate::distribution::{divergence, largest};

/// One compared tensor, or one row of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name in the golden.
    pub name: String,
    /// Which row of the tensor (a position of a pass, a step of a generation), counted from 0; none for the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
    /// Within the limits.
    pub ok: bool,
    /// 1 − cosine.
    pub one_minus_cos: Option<f64>,
    /// Normalised mean squared error.
    pub nmse: Option<f64>,
    /// Largest difference.
    pub max_abs: Option<f64>,
    /// Largest distance in units of the last place of f32.
    pub max_ulp: Option<u64>,
    /// Rows with the same argmax, and rows (logits only).
    pub argmax: Option<(usize, usize)>,
    /// What the rows of logits say of the next token.
    pub tokens: Option<Tokens>,
    /// Integers that differ, and integers.
    pub different: Option<(usize, usize)>,
    /// What else there is to say.
    pub note: Option<String>,
}

/// How far the distributions of logits are from each other, over all rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tokens {
    /// Mean of the Kullback-Leibler divergences of the candidate's distributions from the golden's, in nats.
    pub kl_mean: f64,
    /// The largest of them.
    pub kl_max: f64,
    /// How many of the golden's five most likely tokens are among the candidate's, as a share.
    pub top5: f64,
}

impl Tokens {
    /// Of rows of `vocab` logits, at least one.
    fn of(golden: &[f64], candidate: &[f64], vocab: usize) -> Tokens {
        let (mut sum, mut max, mut shared, mut all, mut rows) = (0.0, 0.0f64, 0usize, 0usize, 0usize);
        for (g, c) in golden.chunks(vocab).zip(candidate.chunks(vocab)) {
            let kl = divergence(g, c);
            (sum, max) = (sum + kl, max.max(kl));
            let (g, c) = (largest(g, 5), largest(c, 5));
            shared += g.iter().filter(|id| c.contains(id)).count();
            (all, rows) = (all + g.len(), rows + 1);
        }
        Tokens { kl_mean: sum / rows as f64, kl_max: max, top5: shared as f64 / all as f64 }
    }
}

/// A comparison, rows in execution order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// All within the limits, and something was compared.
    pub ok: bool,
    /// First tensor outside the limits.
    pub first: Option<String>,
    /// Golden results that the candidate lacks.
    pub missing: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Taps inside one layer, in the order of the graph.
const LAYER_ORDER: &[&str] = &[
    "attn_norm",
    "Qcur",
    "Kcur",
    "Vcur",
    "Qcur_normed",
    "Kcur_normed",
    "Vcur_normed",
    "Qcur_pos",
    "Kcur_pos",
    "kq_visible",
    "kqv_out",
    "attn_post_norm",
    "attn_out",
    "ffn_inp",
    "ffn_norm",
    "ffn_norm_1",
    "ffn_mlp",
    "ffn_norm_2",
    "ffn_moe_logits",
    "ffn_moe_probs",
    "ffn_moe_topk",
    "ffn_moe_weights",
    "ffn_moe_weights_norm",
    "ffn_moe_weights_scaled",
    "ffn_moe_out",
    "ffn_out",
    "ffn_moe",
    "ffn_moe_combined",
    "ffn_post_norm",
    "l_out",
];
const FIRST: &[&str] = &["inp_embd", "inp_scaled", "sc_soft", "sc_normed", "sc_sig", "inp_region"];
const LAST: &[&str] = &["result_norm", "result_output", "logits", "logits_f32", "logits_bf16"];
const PASSES: &[&str] = &["enc", "enc2", "dec", "dec2"];
/// Inputs of a case: a candidate need not have them.
const INPUTS: &[&str] = &[
    "prompt_ids",
    "canvas_ids",
    "chunk_lengths",
    "sc_logits",
    "ids",
    "init_canvas",
    "renoise",
    "denoiser",
    "u",
    "choice",
    "raw_logits_step",
];
/// Other number types of the same case; compared only when the candidate has them too.
const OTHER_PRECISIONS: &[&str] = &["logits_f32", "logits_bf16"];

/// Whether a name is that of an input of a case.
pub(crate) fn is_input(name: &str) -> bool {
    INPUTS.contains(&name)
}

/// Place of a tap in execution order.
pub(crate) fn place(name: &str) -> (usize, i64, usize, &str) {
    let (pass, bare, layer) = split_layer(name);
    let index = |list: &[&str], x: &str| list.iter().position(|n| *n == x);
    let pass = index(PASSES, pass).unwrap_or(PASSES.len());
    match (layer, index(FIRST, bare), index(LAST, bare)) {
        (Some(layer), ..) => (pass, layer as i64, index(LAYER_ORDER, bare).unwrap_or(900), bare),
        (None, Some(i), _) => (pass, -1, i, bare),
        (None, None, Some(i)) => (pass, 1_000_000, i, bare),
        (None, None, None) => (pass, 100_000, 0, bare),
    }
}

/// Compares every tensor of `golden` that `candidate` has, by names: those of other programs become ours where
/// [`TraceFile::open_any`] reads their files.
pub fn compare(golden: &TraceFile, candidate: &TraceFile, limits: &Limits) -> Report {
    let judge = Judge { preset: limits.preset };
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for (name, bounds, pair) in in_order(golden, candidate, limits) {
        match pair {
            None if is_input(name) || OTHER_PRECISIONS.contains(&name) => {}
            None => missing.push(name.to_string()),
            Some(Err(note)) => rows.push(Row { note: Some(note), ..Row::unjudged(name) }),
            Some(Ok(Pair { golden: g, candidate: c, shape, whole })) => {
                let kind = Kind::of(name, &g, shape, whole);
                let mut row = judge.row(name, &g.data.to_f64(), &c.data.to_f64(), kind, bounds);
                if !whole {
                    // Decimals have no last place of f32.
                    row.max_ulp = None;
                    row.note = row.note.or_else(|| Some("of the elements that are printed".into()));
                }
                rows.push(row);
            }
        }
    }
    let first = rows.iter().find(|r| !r.ok).map(|r| r.name.clone());
    let compared = rows.iter().any(|r| !golden.tensors[&r.name].data.is_empty());
    let ok = first.is_none() && compared && (!limits.all || missing.is_empty());
    Report { ok, first, missing, rows }
}

/// Compares the tensors that both files have row by row: tensors in execution order, the rows of each in theirs. The
/// first extent of a tensor counts its rows, of logits all but the last. A row is within the limits if it is within those
/// of its tensor.
pub fn compare_rows(golden: &TraceFile, candidate: &TraceFile, limits: &Limits) -> Vec<Row> {
    let judge = Judge { preset: limits.preset };
    let mut rows = Vec::new();
    for (name, bounds, pair) in in_order(golden, candidate, limits) {
        // Of what is printed rows are not whole.
        let Some(Ok(Pair { golden: g, candidate: c, shape, whole: true })) = pair else { continue };
        if g.data.is_empty() {
            continue;
        }
        let (a, b, kind) = (g.data.to_f64(), c.data.to_f64(), Kind::of(name, &g, shape, true));
        let len = kind.row_len(shape, a.len());
        let each = a.chunks(len).zip(b.chunks(len)).enumerate();
        rows.extend(each.map(|(i, (a, b))| Row { row: Some(i), ..judge.row(name, a, b, kind, bounds) }));
    }
    rows
}

/// A tensor of the golden and the candidate's, of as many elements; of one that is printed those that are.
struct Pair<'a> {
    golden: Cow<'a, Tensor>,
    candidate: Cow<'a, Tensor>,
    /// The golden's, or the candidate's where the golden is a run of numbers without one; empty where both are.
    shape: &'a [usize],
    /// None of the two is printed.
    whole: bool,
}

impl<'a> Pair<'a> {
    /// # Errors
    /// In words: two tensors whose elements do not belong together.
    fn of(
        (g, of_g): (&'a Tensor, Option<&'a Given>),
        (c, of_c): (&'a Tensor, Option<&'a Given>),
    ) -> Result<Pair<'a>, String> {
        let borrowed = |g, c| Some((Cow::Borrowed(g), Cow::Borrowed(c)));
        let elements = match (of_g, of_c) {
            (Some(Given::Printed(p)), Some(Given::Printed(q))) => {
                if p.shape == q.shape && p.shown != q.shown {
                    return Err(format!(
                        "of shape {:?} other elements are printed than of the golden",
                        q.shape
                    ));
                }
                borrowed(g, c).filter(|_| p.shape == q.shape)
            }
            (Some(Given::Printed(p)), _) => p.pick(c).map(|c| (Cow::Borrowed(g), Cow::Owned(c))),
            (_, Some(Given::Printed(p))) => p.pick(g).map(|g| (Cow::Owned(g), Cow::Borrowed(c))),
            _ => borrowed(g, c),
        };
        // The same numbers in other rows are other numbers.
        let rows = |shape: &[usize]| shape.iter().copied().find(|&n| n != 1).unwrap_or(1);
        let alike = |g: &Tensor| {
            let flat = [of_g, of_c].iter().any(|given| matches!(given, Some(Given::Flat)));
            flat || has_rows(shape_of(c, of_c), rows(shape_of(g, of_g)), g.data.len())
        };
        let whole = ![of_g, of_c].iter().any(|given| matches!(given, Some(Given::Printed(_))));
        let fits = |g: &Tensor, c: &Tensor| g.data.len() == c.data.len() && (!whole || alike(g));
        let Some((golden, candidate)) = elements.filter(|(g, c)| fits(g, c)) else {
            return Err(format!("shape {:?}, golden {:?}", shape_of(c, of_c), shape_of(g, of_g)));
        };
        let shape = match (of_g, of_c) {
            (Some(Given::Flat), Some(Given::Flat)) => &[],
            (Some(Given::Flat), _) => shape_of(c, of_c),
            _ => shape_of(g, of_g),
        };
        Ok(Pair { golden, candidate, shape, whole })
    }
}

/// The shape of a tensor, of one that is printed that of the whole.
fn shape_of<'a>(t: &'a Tensor, given: Option<&'a Given>) -> &'a [usize] {
    match given {
        Some(Given::Printed(p)) => &p.shape,
        _ => &t.shape,
    }
}

/// The golden's tensors in execution order: name, limits, and the pair where the candidate has it, or why it is none.
fn in_order<'a>(
    golden: &'a TraceFile,
    candidate: &'a TraceFile,
    limits: &Limits,
) -> impl Iterator<Item = (&'a str, Bounds, Option<Result<Pair<'a>, String>>)> {
    let mut names: Vec<&String> = golden.tensors.keys().collect();
    names.sort_by_key(|n| place(n));
    let trajectory = golden.tensors.contains_key("step_left");
    names.into_iter().map(move |name| {
        let of = |file: &'a TraceFile| Some((file.tensors.get(name)?, file.given.get(name)));
        let pair = of(golden).zip(of(candidate)).map(|(g, c)| Pair::of(g, c));
        (name.as_str(), limits.of(name, trajectory), pair)
    })
}

/// What the elements of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Ids and masks are right or wrong, whatever type the candidate keeps them in.
    Integers,
    /// Logits over so many tokens.
    Logits(usize),
    Numbers,
}

impl Kind {
    /// By the shape of the pair. Of logits that are printed not all tokens are there.
    fn of(name: &str, golden: &Tensor, shape: &[usize], whole: bool) -> Kind {
        let (_, bare, layer) = split_layer(name);
        let logits = layer.is_none() && ["logits", "result_output", "raw_logits"].contains(&bare);
        match shape.last() {
            _ if golden.data.is_int() => Kind::Integers,
            Some(&v) if logits && whole && v > 0 => Kind::Logits(v),
            _ => Kind::Numbers,
        }
    }

    /// Elements of a row, of `n`; at least 1.
    fn row_len(self, shape: &[usize], n: usize) -> usize {
        // Other programs write a batch of one.
        let batch =
            shape.iter().take(shape.len().saturating_sub(2)).take_while(|&&extent| extent == 1).count();
        match (self, &shape[batch..]) {
            (Kind::Logits(v), _) => v,
            (_, [first, ..]) if *first > 0 => (n / first).max(1),
            _ => n.max(1),
        }
    }
}

impl Row {
    /// Of a tensor that cannot be judged.
    fn unjudged(name: &str) -> Row {
        Row {
            name: name.to_string(),
            row: None,
            ok: false,
            one_minus_cos: None,
            nmse: None,
            max_abs: None,
            max_ulp: None,
            argmax: None,
            tokens: None,
            different: None,
            note: None,
        }
    }

    /// How wrong it is, by one measure for all: the root of the normalised mean squared error, which is
    /// |candidate - golden| / |golden|; of integers the share that differs; infinite where there is no such number.
    pub fn relative_error(&self) -> f64 {
        let error = match (self.nmse, self.different) {
            (Some(nmse), _) => nmse.sqrt(),
            (None, Some((n, all))) => n as f64 / all.max(1) as f64,
            (None, None) => f64::INFINITY,
        };
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// Judges elements, a golden's `a` and a candidate's `b`, of which there are as many.
struct Judge {
    preset: Preset,
}

impl Judge {
    fn row(&self, name: &str, a: &[f64], b: &[f64], kind: Kind, bounds: Bounds) -> Row {
        let mut row = Row::unjudged(name);
        if kind == Kind::Integers {
            let n = a.iter().zip(b).filter(|(a, b)| a != b).count();
            row.different = Some((n, a.len()));
            row.ok = n == 0;
            return row;
        }
        // Squares of the largest numbers in f64 are too large for it; a power of two changes no ratio.
        let largest = a.iter().chain(b).filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs()));
        let scale = if largest > 1e70 { (-largest.log2().floor()).exp2() } else { 1.0 };
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x * scale) * (y * scale)).sum::<f64>();
        let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
        let squared: f64 = a.iter().zip(b).map(|(x, y)| (x - y) * scale).map(|d| d * d).sum();
        let cos = if aa > 0.0 && bb > 0.0 { ab / (aa * bb).sqrt() } else { f64::from(u8::from(aa == bb)) };
        let nmse = if aa > 0.0 { squared / aa } else { f64::from(u8::from(squared > 0.0)) };
        let max_abs = a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        let finite = |x: &[f64]| x.iter().all(|x| x.is_finite());
        let broken = [("golden", a), ("candidate", b)].into_iter().find(|(_, x)| !finite(x));
        row.ok = broken.is_none()
            && 1.0 - cos <= bounds.one_minus_cos
            && nmse <= bounds.nmse
            && bounds.max_abs.is_none_or(|m| max_abs <= m);
        row.one_minus_cos = Some(1.0 - cos);
        row.nmse = Some(nmse);
        row.max_abs = Some(max_abs);
        row.max_ulp = Some(a.iter().zip(b).map(|(x, y)| ulps(*x as f32, *y as f32)).max().unwrap_or(0));
        if let Some((which, _)) = broken {
            row.note = Some(format!("the {which} has NaN or infinity"));
        }
        if let Kind::Logits(v) = kind
            && !a.is_empty()
        {
            let same = a.chunks(v).zip(b.chunks(v)).filter(|(a, b)| argmax(a) == argmax(b)).count();
            row.argmax = Some((same, a.len() / v));
            row.tokens = broken.is_none().then(|| Tokens::of(a, b, v));
            row.ok &= self.preset != Preset::F32 || same == a.len() / v;
        }
        row
    }
}

/// Lowest index of the largest element.
fn argmax(x: &[f64]) -> usize {
    x.iter().enumerate().fold(0, |best, (i, v)| if *v > x[best] { i } else { best })
}

/// Distance of two f32 in units of the last place; NaN is infinitely far from all but NaN.
fn ulps(a: f32, b: f32) -> u64 {
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() && b.is_nan() { 0 } else { u64::MAX };
    }
    let key = |x: f32| {
        let bits = i64::from(x.to_bits() as i32);
        if bits < 0 { i64::from(i32::MIN) - bits } else { bits }
    };
    key(a).abs_diff(key(b))
}

#[cfg(test)]
mod tests {
    use super::super::{Elements, Printed};
    use super::*;

    fn file(tensors: &[(&str, Vec<usize>, Elements)]) -> TraceFile {
        let mut f = TraceFile::default();
        tensors.iter().for_each(|(n, s, d)| f.insert(*n, s.clone(), d.clone()));
        f
    }

    #[test]
    fn rows_stand_in_execution_order_and_the_first_divergent_is_named() {
        let x = |v: f32| Elements::F32(vec![1.0, 2.0, v]);
        let names =
            ["logits", "dec/l_out-0", "dec/attn_norm-10", "dec/attn_norm-2", "enc/l_out-0", "dec/inp_region"];
        let golden = file(&names.map(|n| (n, vec![1, 3], x(3.0))));
        let mut other = golden.clone();
        for n in ["logits", "dec/attn_norm-10"] {
            other.insert(n, vec![1, 3], x(3.01));
        }
        let r = compare(&golden, &other, &Preset::F32.into());
        let order: Vec<&str> = r.rows.iter().map(|r| r.name.as_str()).collect();
        let want =
            ["enc/l_out-0", "dec/inp_region", "dec/l_out-0", "dec/attn_norm-2", "dec/attn_norm-10", "logits"];
        assert_eq!(order, want);
        assert_eq!((r.ok, r.first.as_deref()), (false, Some("dec/attn_norm-10")));
        assert!(compare(&golden, &golden, &Preset::F32.into()).ok);
    }

    #[test]
    fn figures_are_those_of_the_definition() {
        let golden = file(&[("x", vec![1, 2], Elements::F64(vec![3.0, 4.0]))]);
        let c = file(&[("x", vec![2], Elements::F32(vec![4.0, 3.0]))]);
        let r = &compare(&golden, &c, &Preset::Half.into()).rows[0];
        assert!((r.one_minus_cos.unwrap() - 0.04).abs() < 1e-15);
        assert!((r.nmse.unwrap() - 0.08).abs() < 1e-15);
        assert_eq!(r.max_abs, Some(1.0));
        assert_eq!(ulps(1.0, 1.0 + f32::EPSILON), 1);
        assert_eq!(ulps(-f32::MIN_POSITIVE, f32::MIN_POSITIVE), 2 << 23);
        assert_eq!(ulps(0.0, -0.0), 0);
    }

    #[test]
    fn the_largest_numbers_are_compared_and_the_same_numbers_in_other_rows_are_not() {
        let large = |last| file(&[("x", vec![1, 2], Elements::F64(vec![3e300, last]))]);
        let r = compare(&large(4e300), &large(4e300), &Preset::F32.into());
        assert!(r.ok && r.rows[0].nmse == Some(0.0), "{r:?}");
        let r = compare(&large(4e300), &large(-4e300), &Preset::F32.into());
        assert!((r.rows[0].nmse.unwrap() - 64.0 / 25.0).abs() < 1e-12 && !r.ok, "{r:?}");
        let of = |shape: Vec<usize>| file(&[("l_out-0", shape, Elements::F32(vec![1.0; 6]))]);
        let golden = of(vec![2, 3]);
        for (shape, ok) in [(vec![2, 3], true), (vec![1, 2, 3], true), (vec![3, 2], false), (vec![6], false)]
        {
            let r = compare(&golden, &of(shape.clone()), &Preset::F32.into());
            assert_eq!((r.ok, r.rows[0].note.is_none()), (ok, ok), "{shape:?}: {r:?}");
        }
    }

    /// Two rows: one that is equal but for a constant, and one whose two tokens have exchanged 3/4 and 1/4.
    #[test]
    fn distributions_are_compared_by_what_they_say_of_tokens() {
        let ln = f64::ln;
        let golden =
            file(&[("logits", vec![2, 2], Elements::F64(vec![ln(0.9), ln(0.1), ln(0.75), ln(0.25)]))]);
        let c = file(&[(
            "logits",
            vec![2, 2],
            Elements::F64(vec![ln(0.9) + 7.0, ln(0.1) + 7.0, ln(0.25), ln(0.75)]),
        )]);
        let tokens = compare(&golden, &c, &Preset::Quant.into()).rows[0].tokens.unwrap();
        let kl = 0.75 * ln(3.0) - 0.25 * ln(3.0);
        assert!(
            (tokens.kl_max - kl).abs() < 1e-12 && (tokens.kl_mean - kl / 2.0).abs() < 1e-12,
            "{tokens:?}"
        );
        assert_eq!(tokens.top5, 1.0, "both tokens are among the two that there are");
        let x = |shift: usize| Elements::F64((0..8).map(|i| ((i + shift) % 8) as f64).collect());
        let (a, b) = (file(&[("logits", vec![1, 8], x(0))]), file(&[("logits", vec![1, 8], x(2))]));
        // 7 6 5 4 3 against 5 4 3 2 1.
        assert_eq!(compare(&a, &b, &Preset::Quant.into()).rows[0].tokens.unwrap().top5, 0.6);
    }

    /// Worked out by hand: a row that is equal, one that is turned (3, 4 to 4, 3), one with NaN.
    #[test]
    fn rows_have_figures_of_their_own() {
        let nan = f64::NAN;
        let golden = file(&[
            ("dec/l_out-0", vec![3, 2], Elements::F64(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            ("dec/Qcur-0", vec![2, 2, 2], Elements::F32(vec![1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0])),
            ("accepted", vec![2, 4], Elements::U8(vec![1, 0, 1, 0, 1, 1, 1, 1])),
            ("logits", vec![1, 2, 3], Elements::F32(vec![1.0, 2.0, 3.0, 3.0, 2.0, 1.0])),
            ("mean_entropy", vec![2], Elements::F32(vec![1.0, 2.0])),
        ]);
        let c = file(&[
            ("dec/l_out-0", vec![3, 2], Elements::F64(vec![1.0, 2.0, 4.0, 3.0, nan, 6.0])),
            ("dec/Qcur-0", vec![2, 4], Elements::F32(vec![1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0])),
            ("accepted", vec![2, 4], Elements::U8(vec![1, 0, 1, 0, 1, 0, 1, 1])),
            ("logits", vec![2, 3], Elements::F32(vec![1.0, 2.0, 3.0, 1.0, 2.0, 3.0])),
            ("mean_entropy", vec![2], Elements::F32(vec![1.0, 2.5])),
        ]);
        let rows = compare_rows(&golden, &c, &Preset::Quant.into());
        let found: Vec<_> = rows.iter().map(|r| (r.name.as_str(), r.row.unwrap(), r.ok)).collect();
        let want = [
            ("dec/Qcur-0", 0, true),
            ("dec/Qcur-0", 1, false),
            ("dec/l_out-0", 0, true),
            ("dec/l_out-0", 1, false),
            ("dec/l_out-0", 2, false),
            ("accepted", 0, true),
            ("accepted", 1, false),
            ("mean_entropy", 0, true),
            ("mean_entropy", 1, false),
            ("logits", 0, true),
            ("logits", 1, false),
        ];
        assert_eq!(found, want);
        // Of 2, 0, 0, 0 the last element is 1: 1/4; the cosine is 2 / sqrt(5).
        assert_eq!((rows[1].nmse, rows[1].relative_error()), (Some(0.25), 0.5));
        assert!((rows[1].one_minus_cos.unwrap() - (1.0 - 2.0 / 5f64.sqrt())).abs() < 1e-15);
        assert_eq!((rows[3].nmse, rows[3].max_abs), (Some(2.0 / 25.0), Some(1.0)));
        assert!((rows[3].one_minus_cos.unwrap() - 0.04).abs() < 1e-15);
        assert_eq!(rows[4].relative_error(), f64::INFINITY);
        assert_eq!(rows[4].note.as_deref(), Some("the candidate has NaN or infinity"));
        assert_eq!((rows[6].different, rows[6].relative_error()), (Some((1, 4)), 0.25));
        assert_eq!((rows[8].one_minus_cos, rows[8].nmse), (Some(0.0), Some(0.0625)));
        assert_eq!((rows[9].argmax, rows[10].argmax), (Some((1, 1)), Some((0, 1))));
        assert_eq!(rows[9].tokens, Some(Tokens { kl_mean: 0.0, kl_max: 0.0, top5: 1.0 }));
        // p = (e^2, e, 1) / z against the same turned round: the sum of p (x - y) = 2 (e^2 - 1) / z.
        let (e, kl) = (1f64.exp(), rows[10].tokens.unwrap().kl_max);
        assert!((kl - 2.0 * (e * e - 1.0) / (e * e + e + 1.0)).abs() < 1e-12, "{kl}");
    }

    /// Two rows of three tokens, of which the second one's largest differs.
    #[test]
    fn numbers_without_a_shape_take_the_shape_of_the_other_side() {
        let x = |last: f32| Elements::F32(vec![1.0, 2.0, 3.0, 3.0, 2.0, last]);
        let shaped = |last| file(&[("logits", vec![2, 3], x(last)), ("l_out-0", vec![1, 3, 2], x(last))]);
        let flat = |last| {
            let mut f = file(&[("logits", vec![6], x(last)), ("l_out-0", vec![6], x(last))]);
            f.given.extend(["logits", "l_out-0"].map(|n| (n.to_string(), Given::Flat)));
            f
        };
        let limits = Preset::Quant.into();
        let found = |golden: &TraceFile, candidate: &TraceFile| {
            let tensor = compare(golden, candidate, &limits).rows.pop().unwrap();
            let rows = compare_rows(golden, candidate, &limits);
            let n = |name: &str| rows.iter().filter(|r| r.name == name).count();
            (tensor.argmax, tensor.tokens.is_some(), n("l_out-0"), n("logits"))
        };
        let same_of_two = (Some((1, 2)), true, 3, 2);
        assert_eq!(found(&shaped(1.0), &flat(4.0)), same_of_two);
        assert_eq!(found(&flat(1.0), &shaped(4.0)), same_of_two);
        // Nobody says how many tokens there are.
        assert_eq!(found(&flat(1.0), &flat(4.0)), (None, false, 1, 1));
    }

    #[test]
    fn printed_elements_of_other_places_are_not_compared() {
        let printed = |shape: &[usize], shown: &[&[usize]]| {
            let p = Printed {
                shape: shape.to_vec(),
                shown: shown.iter().map(|s| s.to_vec()).collect(),
                half_unit: 5e-5,
                sum: None,
            };
            let n = shown.iter().map(|s| s.len()).product();
            let mut f = file(&[("l_out-0", vec![n], Elements::F64(vec![1.0; n]))]);
            f.given.insert("l_out-0".into(), Given::Printed(p));
            f
        };
        let whole = |shape: &[usize], n| file(&[("l_out-0", shape.to_vec(), Elements::F32(vec![1.0; n]))]);
        let judged = |golden: &TraceFile, candidate: &TraceFile| {
            let report = compare(golden, candidate, &Preset::Half.into());
            (report.ok, report.rows[0].note.clone().unwrap())
        };
        let golden = printed(&[4, 6], &[&[0, 3], &[0, 5]]);
        let note = |ok, text: &str| (ok, text.to_string());
        let compared = note(true, "of the elements that are printed");
        assert_eq!(judged(&golden, &golden), compared);
        assert_eq!(judged(&golden, &whole(&[4, 6], 24)), compared);
        assert_eq!(judged(&whole(&[4, 6], 24), &golden), compared);
        // As many elements that are printed, or in the whole tensor as are printed.
        let other = printed(&[6, 4], &[&[0, 5], &[0, 3]]);
        assert_eq!(judged(&golden, &other), note(false, "shape [6, 4], golden [4, 6]"));
        let more = printed(&[4, 6], &[&[0, 3], &[0, 4]]);
        let said = "of shape [4, 6] other elements are printed than of the golden";
        assert_eq!(judged(&golden, &more), note(false, said));
        assert_eq!(judged(&golden, &whole(&[2, 2], 4)), note(false, "shape [2, 2], golden [4, 6]"));
        assert_eq!(judged(&whole(&[2, 2], 4), &golden), note(false, "shape [4, 6], golden [2, 2]"));
        assert!(compare_rows(&golden, &golden, &Preset::Half.into()).is_empty());
    }

    #[test]
    fn integers_argmax_nan_and_missing_tensors_fail() {
        let golden = file(&[
            ("accepted", vec![2], Elements::U8(vec![1, 0])),
            ("logits", vec![1, 2], Elements::F32(vec![1.0, 1.0 - 1e-6])),
            ("prompt_ids", vec![1], Elements::I32(vec![2])),
            ("stop", vec![1], Elements::I32(vec![0])),
        ]);
        let c = file(&[
            ("accepted", vec![2], Elements::U8(vec![1, 1])),
            ("logits", vec![1, 2], Elements::F32(vec![1.0 - 1e-6, 1.0])),
        ]);
        let limits = Limits { all: true, ..Preset::F32.into() };
        let r = compare(&golden, &c, &limits);
        assert_eq!(r.missing, ["stop"]);
        let by = |n: &str| r.rows.iter().find(|r| r.name == n).unwrap();
        assert_eq!(by("accepted").different, Some((1, 2)));
        assert_eq!((by("logits").ok, by("logits").argmax), (false, Some((0, 1))));
        let nan = file(&[("logits", vec![1, 2], Elements::F32(vec![f32::NAN, 1.0]))]);
        assert!(!compare(&golden, &nan, &Preset::Quant.into()).ok);
        let loose = Limits {
            bounds: Bounds { one_minus_cos: 2.0, nmse: 1e9, max_abs: None },
            ..Preset::Quant.into()
        };
        assert!(!compare(&nan, &c, &loose).ok, "a golden with NaN judges nothing");
        let floats = file(&[("accepted", vec![2], Elements::F32(vec![1.0, 1.0]))]);
        assert_eq!(compare(&golden, &floats, &Preset::Half.into()).rows[0].different, Some((1, 2)));
        let empty = file(&[("logits", vec![0, 5], Elements::F32(Vec::new()))]);
        assert!(!compare(&empty, &empty, &Preset::F32.into()).ok, "nothing was compared");
    }
}
