//! Tensors: types without kernels, layouts, numbers that are none.

use redraft_compute::backend::BACKENDS;
use redraft_gguf::{Gguf, Shown, TensorInfo, codec};

use super::{Finding, Patient, Verdict};
use crate::Error;

/// Elements of a tensor that is looked through even without `deep`: norms, biases, scales, routers of small models.
const SMALL: u64 = 1 << 16;

/// Elements that are decoded at a time, whole blocks of all types.
const CHUNK: usize = 1 << 12;

/// Rows of K-quants are whole blocks of so many elements.
const SUPER_BLOCK: u64 = 256;

/// A tensor of a type that no kernel reads.
pub(super) fn gap(tensor: &str, dtype: &str) -> Finding {
    let op = match tensor {
        t if t.starts_with("token_embd.") => "Embed",
        t if t.contains("_exps.") => "MoeExperts",
        t if t.contains("norm") => "RmsNorm",
        _ => "MatMul",
    };
    let backends: Vec<&str> = BACKENDS.iter().map(|b| b.name).collect();
    let what = format!(
        "the op {op} has no kernel for tensors of {dtype} in the backends {}: take a file of another quantization",
        backends.join(", ")
    );
    Finding::error("kernel-gap", Verdict::BackendKernelGap, Shown(tensor).to_string(), what)
}

/// Tensors of types that cannot be computed with among those that could not be loaded, the first of each type.
pub(super) fn kernel_gaps(gguf: &Gguf, error: &Error) -> Vec<Finding> {
    let Error::Weights { problems } = error else { return Vec::new() };
    let wanted = |t: &TensorInfo| problems.iter().any(|p| p.contains(&t.name));
    let mut seen = Vec::new();
    let mut gaps = Vec::new();
    for t in gguf.tensors().iter().filter(|t| codec(t.dtype).is_none()) {
        if !seen.contains(&t.dtype) && wanted(t) {
            seen.push(t.dtype);
            gaps.push(gap(&t.name, &t.dtype.name()));
        }
    }
    gaps
}

/// How the file has the gate and up matrices of experts.
pub(super) fn experts(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let has = |name: &str| p.gguf.tensors().iter().find(|t| t.name.ends_with(name)).map(|t| t.name.clone());
    let (split, fused) = (has(".ffn_gate_exps.weight"), has(".ffn_gate_up_exps.weight"));
    let (place, what) = match (split, fused) {
        (None, None) => return,
        (Some(t), None) => (t, "gate and up matrices of experts are separate tensors; both forms are read"),
        (None, Some(t)) => {
            (t, "gate and up matrices of experts are fused into one tensor; both forms are read")
        }
        (Some(t), Some(_)) => (
            t,
            "the file has separate and fused expert tensors; in a layer with both the separate ones are used",
        ),
    };
    findings.push(Finding::note("experts-layout", place, what));
}

/// Matrices whose rows are no whole super-blocks, in a file of K-quants.
pub(super) fn fallback(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    let length = |t: &TensorInfo| t.dtype.info().map_or(1, |i| i.block_len as u64);
    let all = || p.gguf.tensors().iter();
    if !all().any(|t| length(t) == SUPER_BLOCK) {
        return;
    }
    let odd: Vec<&TensorInfo> = all()
        .filter(|t| t.n_rows() > 1 && length(t) > 1 && !t.row_len().is_multiple_of(SUPER_BLOCK))
        .collect();
    let Some(first) = odd.first() else { return };
    let mut types: Vec<String> = odd.iter().map(|t| t.dtype.to_string()).collect();
    types.sort_unstable();
    types.dedup();
    let bytes = odd.iter().fold(0u64, |sum, t| sum.saturating_add(t.n_bytes));
    let what = format!(
        "{} matrices ({bytes} bytes) are of the fallback types {}, since rows of {} columns are no whole \
         super-blocks of {SUPER_BLOCK}: nothing is wrong, the file is a little larger than its name says",
        odd.len(),
        types.join(", "),
        first.row_len()
    );
    findings.push(Finding::note("fallback-type", first.name.clone(), what));
}

/// NaN and infinity.
pub(super) fn not_finite(p: &Patient<'_>, findings: &mut Vec<Finding>) {
    for t in p.gguf.tensors() {
        let small = t.n_rows() <= 1 || t.n_elements() <= SMALL;
        if !(small || p.options.deep) {
            continue;
        }
        let Some((element, offset, value)) = first_not_finite(p.gguf, t) else { continue };
        let what = format!("{} has {value} as element {element}", Shown(&t.name));
        findings.push(Finding::error("not-finite", Verdict::Damaged, format!("offset {offset}"), what));
        return;
    }
    // What was read from a file that became shorter is not what it says.
    if let Err(e) = p.gguf.check() {
        findings.push(super::damage::of_model(&Error::Gguf(e)));
    }
}

/// The first such element, the offset of its block in the file, and what it is.
fn first_not_finite(gguf: &Gguf, t: &TensorInfo) -> Option<(usize, u64, f32)> {
    let codec = codec(t.dtype)?;
    let (block, block_bytes) = (codec.block_len(), codec.block_bytes());
    let bytes = gguf.tensor_bytes(t);
    let mut values = vec![0.0; CHUNK / block * block];
    for (i, chunk) in bytes.chunks(CHUNK / block * block_bytes).enumerate() {
        let n = chunk.len() / block_bytes;
        let out = &mut values[..n * block];
        codec.dequantize(&chunk[..n * block_bytes], out);
        if let Some(at) = out.iter().position(|x| !x.is_finite()) {
            let element = i * (CHUNK / block * block) + at;
            let offset = t.offset.saturating_add((element / block * block_bytes) as u64);
            return Some((element, offset, out[at]));
        }
    }
    None
}

/// Tensors that nothing reads.
pub(super) fn unused(names: &[String]) -> Option<Finding> {
    let first = names.first()?;
    let shown: Vec<String> = names.iter().take(8).map(|n| Shown(n).to_string()).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = format!("the architecture does not use {}{more}", shown.join(", "));
    Some(Finding::note("unused-tensors", Shown(first).to_string(), what))
}
