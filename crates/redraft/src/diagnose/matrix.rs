//! The proof: each mistake in a small model of each architecture, computed with each kind of rounding, is named; honest
//! runs are rounding.

use std::path::{Path, PathBuf};

use super::*;
use crate::trace::TraceFile;

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// A model, and a golden of its passes, of which the inputs and the names count here.
const CASES: &[(&str, &str)] = &[
    ("oracle/models/dg-tiny.BF16.gguf", "oracle/cases/dg-tiny.BF16.decode-sc.safetensors"),
    ("oracle/models/dream-tiny.F16.gguf", "oracle/cases/dream-tiny.F16.forward.safetensors"),
    ("oracle/models/llada-tiny.BF16.gguf", "oracle/cases/llada-tiny.BF16.forward.safetensors"),
    ("oracle/models/llada-moe-tiny.BF16.gguf", "oracle/cases/llada-moe-tiny.BF16.forward.safetensors"),
    ("oracle/models/rnd1-tiny.BF16.gguf", "oracle/cases/rnd1-tiny.BF16.forward.safetensors"),
    ("llada2/models/llada2-tiny.BF16.gguf", "llada2/cases/llada2-tiny.BF16.forward.safetensors"),
    (
        "block-diffusion/models/a2d-qwen3-tiny.BF16.gguf",
        "block-diffusion/cases/a2d-qwen3-tiny.BF16.forward.safetensors",
    ),
    (
        "block-diffusion/models/fast-dllm-tiny.BF16.gguf",
        "block-diffusion/cases/fast-dllm-tiny.BF16.forward.safetensors",
    ),
    (
        "block-diffusion/models/sdar-tiny.BF16.gguf",
        "block-diffusion/cases/sdar-tiny.BF16.forward.safetensors",
    ),
    (
        "block-diffusion/models/sdar-moe-tiny.BF16.gguf",
        "block-diffusion/cases/sdar-moe-tiny.BF16.forward.safetensors",
    ),
];

fn open(case: &(&str, &str)) -> (Gguf, TraceFile) {
    let gguf = Gguf::open(&testdata().join(case.0), &Default::default()).unwrap();
    (gguf, TraceFile::open(&testdata().join(case.1)).unwrap())
}

/// All runs of a case, each made once.
struct Runs {
    gguf: Gguf,
    wanted: TraceFile,
    has_cache: bool,
    made: Vec<(String, Option<TraceFile>)>,
}

impl Runs {
    fn get(&mut self, what: Running<'_>) -> Option<TraceFile> {
        let key = format!("{what:?}");
        if let Some((_, made)) = self.made.iter().find(|(k, _)| *k == key) {
            return made.clone();
        }
        let base = LoadOptions::default();
        let (options, fault) = match what {
            Running::Truth => {
                let options = Rounding::F32.options(&base, self.has_cache);
                (LoadOptions { precision: Precision::F64, ..options }, None)
            }
            Running::Floor(r) => (r.options(&base, self.has_cache), None),
            Running::Fault(fault, r) => (r.options(&base, self.has_cache), Some(fault)),
        };
        let made = match fault {
            None => {
                let mut model = Model::from_gguf(self.gguf.clone(), &options).unwrap();
                Some(like(&mut model, &self.wanted, None).unwrap())
            }
            Some(fault) => {
                let (mut model, applied) = Applied::open(&self.gguf, &options, fault).unwrap();
                let out = like(&mut model, &self.wanted, None).unwrap();
                applied.changed().then_some(out)
            }
        };
        self.made.push((key, made.clone()));
        made
    }
}

#[test]
fn table() {
    for case in CASES {
        let (gguf, golden) = open(case);
        let plain = Model::from_gguf(gguf.clone(), &LoadOptions::default()).unwrap();
        let has_cache = plain.shape().reading != Reading::Whole;
        let n_layers = plain.shape().n_layers;
        let faults = Mistake::all(&plain);
        let mut runs = Runs { gguf, wanted: with_normed(&golden), has_cache, made: Vec::new() };
        for name in ["logits_f32", "logits_bf16"] {
            if let Some(logits) = golden.tensors.get(name).cloned() {
                let mut file = golden.clone();
                file.tensors.retain(|name, t| is_input(name) || t.data.is_int());
                file.tensors.insert("logits".into(), logits);
                let d =
                    judge(&file, &faults, n_layers, (LIMIT, None), &mut |what| Ok(runs.get(what))).unwrap();
                println!("PyTorch {} {name} judged {}: {:?}", case.0, d.rounding.name(), d.verdict);
            }
        }
        for rounding in Rounding::ALL {
            let honest = runs.get(Running::Floor(rounding)).unwrap();
            for fault in std::iter::once(None).chain(faults.iter().map(Some)) {
                let theirs = match fault.map(|m| &m.fault) {
                    None => Some(honest.clone()),
                    Some(Fault::LogitsShifted(by)) => Some(shifted_logits(&honest, *by)),
                    Some(Fault::LastLayerNormed) => Some(normed_last(&honest, n_layers)),
                    Some(_) => runs.get(Running::Fault(fault.unwrap(), rounding)),
                };
                let Some(theirs) = theirs else { continue };
                // With the inputs of the golden.
                let mut file = golden.clone();
                file.tensors.retain(|name, t| is_input(name) || t.data.is_int());
                let wanted = |(name, _): &(String, _)| golden.tensors.contains_key(name);
                file.tensors.extend(theirs.tensors.into_iter().filter(wanted));
                let d =
                    judge(&file, &faults, n_layers, (LIMIT, None), &mut |what| Ok(runs.get(what))).unwrap();
                let second = d.tried.get(1).map_or(f64::NAN, |t| t.worst);
                let want = fault.map_or("rounding".to_string(), Mistake::name);
                let (found, how) = match &d.verdict {
                    Verdict::Rounding { worst, at } => {
                        ("rounding".to_string(), format!("{worst:.2} at {at}"))
                    }
                    Verdict::Fault(t) => {
                        (t.fault.clone(), format!("{:.2} at {}, next {second:.1}", t.worst, t.at))
                    }
                    Verdict::Unexplained { first, ratio, .. } => {
                        let best = &d.tried[0];
                        let best = format!("best {} {:.1} at {}", best.fault, best.worst, best.at);
                        ("unexplained".into(), format!("{ratio:.1} at {first}; {best}"))
                    }
                };
                // A mistake that moves nothing by more than rounding cannot be seen.
                let hidden = fault.is_some() && found == "rounding" && {
                    let file = TraceFile { name: "faulty".into(), ..file.clone() };
                    d.taps.iter().all(|t| {
                        let at = |f: &TraceFile| f.tensors.get(&t.name).cloned();
                        let moved = distance(at(&file).as_ref(), at(&honest).as_ref());
                        moved <= LIMIT * t.floors[d.rounding as usize]
                    })
                };
                let ok = match found == want {
                    true => "ok ",
                    false if hidden => "hid",
                    false => "BAD",
                };
                let model = case.0.rsplit('/').next().unwrap();
                let (r, by) = (rounding.name(), d.rounding.name());
                println!("{ok} {model} {r} judged {by}: {want} -> {found} ({how})");
            }
        }
    }
}
