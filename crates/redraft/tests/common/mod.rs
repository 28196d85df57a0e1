//! What several suites need: the models and goldens in `testdata`, and float variants of a model.

#![allow(dead_code, reason = "each suite uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use redraft::compute::{Numerics, TapData, TapKey, Val};
use redraft::engine::{Event, Generation, Philox, Request, TapSink, generate};
use redraft::gguf::{DType, Gguf, GgufWriter, Metadata, codec};
use redraft::sampler::SamplerSpec;
use redraft::trace::{Limits, Preset, TraceFile, compare, golden_name, like};
use redraft::{Error, LoadOptions, Model};

pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

pub(crate) fn oracle_model(file: &str) -> PathBuf {
    // Those of our own scripts have folders of their own.
    let dir = if file.starts_with("llada2") { "llada2/models" } else { "oracle/models" };
    testdata().join(dir).join(file)
}

/// All goldens of DiffusionGemma: name without extension, and content.
pub(crate) fn oracle_cases() -> Vec<(String, TraceFile)> {
    cases("oracle", |name| name.starts_with("dg-"))
}

/// All goldens of models of masks that read the whole sequence.
pub(crate) fn family_cases() -> Vec<(String, TraceFile)> {
    cases("oracle", |name| !name.starts_with("dg-"))
}

/// All goldens of models that read block by block.
pub(crate) fn block_cases() -> Vec<(String, TraceFile)> {
    cases("block-diffusion", |_| true)
}

/// The goldens in a folder of `testdata` whose names are wanted.
pub(crate) fn cases(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<(String, TraceFile)> {
    let dir = testdata().join(folder).join("cases");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let name = |p: &PathBuf| p.file_stem().unwrap().to_string_lossy().into_owned();
    let named = paths.iter().map(|p| (name(p), p)).filter(|(name, _)| wanted(name));
    named.map(|(name, p)| (name, TraceFile::open(p).unwrap())).collect()
}

/// Options for what is judged by the goldens of other programs, or against f64.
pub(crate) fn exact() -> LoadOptions {
    LoadOptions { numerics: Some(Numerics::Exact), ..LoadOptions::default() }
}

pub(crate) fn open(file: &str, options: &LoadOptions) -> Model {
    Model::open(&oracle_model(file), options).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The settings of a request as a recording has them.
pub(crate) fn config(request: &Request) -> String {
    let settings = request.params.iter().map(|(name, x)| (golden_name(name).to_string(), x.into()));
    let ban = ("ban".to_string(), request.ban.clone().into());
    serde_json::Value::Object(settings.chain([ban]).collect()).to_string()
}

/// Two tokens that delete and insert positions, for samplers that need such.
pub(crate) fn commands(spec: &SamplerSpec) -> Vec<(&'static str, f64)> {
    let all = [("delete_token", 300.0), ("split_token", 301.0)];
    all.into_iter().filter(|(name, _)| spec.params.iter().any(|p| p.name == *name)).collect()
}

/// The file with other metadata, on one thread.
pub(crate) fn with_metadata(file: &str, change: impl FnOnce(&mut Metadata)) -> Result<Model, Error> {
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    Model::from_gguf(changed(&oracle_model(file), change), &options)
}

/// The file with other metadata.
pub(crate) fn changed(path: &Path, change: impl FnOnce(&mut Metadata)) -> Gguf {
    let g = Gguf::open(path, &Default::default()).unwrap();
    let mut meta = g.metadata().clone();
    change(&mut meta);
    let mut w = GgufWriter::with_metadata(meta);
    for t in g.tensors() {
        w.add_tensor(&t.name, &t.dims, t.dtype).unwrap();
    }
    let mut out = w.begin(Vec::new()).unwrap();
    for t in g.tensors() {
        out.write_tensor(&t.name, &g.tensor_bytes(t)).unwrap();
    }
    Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
}

/// The file with every F32, F16 or BF16 matrix in another float type; vectors and the router stay F32.
pub(crate) fn expand(file: &str, dtype: DType) -> Gguf {
    let g = Gguf::open(&oracle_model(file), &Default::default()).unwrap();
    let converted: Vec<_> = g
        .tensors()
        .iter()
        .map(|t| {
            let keep = t.dims.len() == 1 || t.name.ends_with("ffn_gate_inp.weight");
            let to = if keep { t.dtype } else { dtype };
            let mut values = vec![0.0; t.n_elements() as usize];
            codec(t.dtype).unwrap().dequantize(&g.tensor_bytes(t), &mut values);
            let mut bytes = vec![0; to.row_bytes(values.len() as u64).unwrap() as usize];
            codec(to).unwrap().encoder().unwrap().quantize(&values, None, &mut bytes);
            (t, to, bytes)
        })
        .collect();
    let mut w = GgufWriter::with_metadata(g.metadata().clone());
    for (t, to, _) in &converted {
        w.add_tensor(&t.name, &t.dims, *to).unwrap();
    }
    let mut out = w.begin(Vec::new()).unwrap();
    for (t, _, bytes) in &converted {
        out.write_tensor(&t.name, bytes).unwrap();
    }
    Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
}

/// Takes the f32 logits of a pass.
#[derive(Default)]
pub(crate) struct LogitsSink(pub(crate) Vec<f32>);

impl TapSink for LogitsSink {
    fn wants(&self, key: TapKey) -> bool {
        key.name == "logits"
    }

    fn tap(&mut self, _: TapKey, _: Val, data: TapData<'_>) {
        let TapData::F32(x) = data else { panic!("logits are f32") };
        self.0 = x.to_vec();
    }
}

/// Runs the cases of one model file and reports all failures together.
pub(crate) fn judge(model: &mut Model, file: &str, cases: &[(String, TraceFile)], limits: &Limits) -> usize {
    let mine: Vec<_> = cases.iter().filter(|(_, g)| g.metadata["model"] == file).collect();
    let mut failures = Vec::new();
    for (name, golden) in &mine {
        let candidate = like(model, golden, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        let r = compare(golden, &candidate, limits);
        if !r.ok {
            let bad: Vec<_> = r.rows.iter().filter(|r| !r.ok).collect();
            failures.push(format!("{name}: first {:?}, missing {:?}\n{bad:#?}", r.first, r.missing));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases fail\n{}", failures.len(), mine.len(), failures.join("\n"));
    mine.len()
}

/// Those of f32 arithmetic, with every golden result present.
pub(crate) fn f32_limits() -> Limits {
    Limits { all: true, ..Preset::F32.into() }
}

/// The answer to a request in a session of its own, with seed 3.
pub(crate) fn run(
    model: &mut Model,
    request: &Request,
    on_event: &mut dyn FnMut(&Event<'_>),
) -> Result<Generation, Error> {
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    let done = generate(model, &mut session, request, &draws, &mut |e| {
        on_event(e);
        ControlFlow::Continue(())
    });
    model.close(session);
    done
}
