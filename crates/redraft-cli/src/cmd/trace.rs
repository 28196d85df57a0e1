//! `redraft trace`: what a model computes on the way, as a file.

mod imatrix;

use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use redraft::arch::Reading;
use redraft::compute::{KvType, Numerics, Precision, TapKey};
use redraft::diagnose::Rounding;
use redraft::engine::{CanvasPass, Philox, canvas_pass, first_canvas, generate};
use redraft::gguf::Shown;
use redraft::sampler::SAMPLERS;
use redraft::trace::{GenerationRecorder, PassRecorder, TapFilter, TraceFile, like};
use redraft::{Error, Model};
use serde::Serialize;

use crate::args::Given;
use crate::args::generate::{GenerateArgs, Task};
use crate::args::model::ModelArgs;
use crate::args::prompt::{PromptArgs, prompts};
use crate::exit::Exit;
use crate::files::{self, Kind};
use crate::out::Out;
use crate::ui::progress::human_bytes;
use crate::{interrupt, model, trace_metadata};

/// Write what a model computes on the way into a file.
///
/// Four kinds: with --like everything that a golden file has, from its inputs; with --generation the steps of a whole
/// answer; with --imatrix importance data for `redraft quantize`; else one forward pass over the prompt (enc/) and one
/// over the first canvas of noise (dec/), tap by tap, in the names of llama.cpp.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft trace -m model.gguf --numerics exact --like golden.safetensors -o mine.safetensors\n  \
    redraft trace -o taps.safetensors --taps \"l_out,Qcur*\" --layers 0..1 \"Hello\"\n  \
    redraft trace -o truth.safetensors --precision f64 --tokens 2,360,358\n  \
    redraft trace -o steps.safetensors --generation --seed 7 \"Hello\"\n  \
    redraft trace -m model-bf16.gguf --imatrix model.imatrix.gguf --prompts prompts.txt")]
pub(crate) struct Args {
    // First, since the others take what they read.
    #[command(flatten)]
    given: Given,

    #[command(flatten)]
    prompt: PromptArgs,

    /// Where to write (safetensors).
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "imatrix",
        conflicts_with = "imatrix",
        help_heading = "Trace"
    )]
    output: Option<PathBuf>,

    /// Write importance data for `redraft quantize --imatrix` instead (GGUF, as `llama-imatrix` writes it): for each matrix
    /// the sums of the squares of its inputs, over all passes and steps that whole answers take.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["like", "generation", "taps", "layers", "precision"],
        help_heading = "Trace"
    )]
    imatrix: Option<PathBuf>,

    /// The prompts of --imatrix. A line is a prompt, or where it begins with { a JSON object with `prompt` or `messages`.
    #[arg(
        long,
        value_name = "FILE",
        requires = "imatrix",
        conflicts_with_all = ["prompt", "tokens", "output"],
        help_heading = "Trace"
    )]
    prompts: Option<PathBuf>,

    /// Take every input from this golden file or recorded generation, and write the results under its names. Recordings
    /// of this program are repeated in their numerics and with their number type of keys and values, unless others are
    /// asked for; goldens of other programs are best judged with --numerics exact.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["prompt", "tokens", "raw", "system", "generation", "taps", "layers"],
        help_heading = "Trace"
    )]
    like: Option<PathBuf>,

    /// Record the steps of a whole answer instead of the taps of one pass.
    #[arg(long, conflicts_with_all = ["taps", "layers"], help_heading = "Trace")]
    generation: bool,

    /// Number type of the computation. f64 is the truth that f32 and bf16 are judged by; bf16 rounds where PyTorch does with
    /// tensors of this type; llamacpp as llama.cpp does: activations of 8 or 16 bits beside quantized and 16-bit weights, keys
    /// and values in f16 (--numerics fast --kv-type f16).
    #[arg(long, value_name = "TYPE", default_value = "f32", help_heading = "Trace")]
    precision: Rounded,

    /// Taps to record: names or patterns with *, separated by commas, or all.
    #[arg(long, value_name = "LIST", default_value = "all", value_delimiter = ',', help_heading = "Trace")]
    taps: Vec<String>,

    /// Layers to record, both ends included: 0..3, or one number. Taps outside layers are always recorded.
    #[arg(long, value_name = "A..B", value_parser = layers, help_heading = "Trace")]
    layers: Option<RangeInclusive<usize>>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    generate: GenerateArgs,
}

/// `--precision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rounded {
    /// All in f64.
    F64,
    /// The canonical f32.
    F32,
    /// f32, rounded as PyTorch rounds.
    Bf16,
    /// f32, rounded as llama.cpp rounds.
    #[value(name = "llamacpp")]
    LlamaCpp,
}

impl Rounded {
    fn precision(self) -> Precision {
        match self {
            Rounded::F64 => Precision::F64,
            Rounded::F32 => Precision::F32,
            Rounded::Bf16 => Precision::Bf16,
            Rounded::LlamaCpp => Rounding::LlamaCpp.computing(false).0,
        }
    }
}

fn layers(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once("..").map_or((text, text), |(a, b)| (a, b.trim_start_matches('=')));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(a), Ok(b)) if a <= b => Ok(a..=b),
        _ => Err("expected a layer or two of them in order, as in 0..3".into()),
    }
}

/// What was written.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    bytes: u64,
    kind: &'static str,
    tensors: Vec<Written>,
    metadata: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct Written {
    name: String,
    shape: Vec<usize>,
    #[serde(rename = "type")]
    dtype: &'static str,
}

impl Args {
    /// Only a whole answer is sampled, and a golden brings its own prompt and noise.
    ///
    /// # Errors
    /// Flags that would change nothing.
    fn refuse_what_means_nothing(&self) -> anyhow::Result<()> {
        self.generate.refuse_slide("`trace` has no earlier turns")?;
        if let Some(flag) =
            self.given.first_of(&["numerics", "kv_type"]).filter(|_| self.precision == Rounded::LlamaCpp)
        {
            bail!("{flag} is what --precision llamacpp says: leave one of them out");
        }
        if self.generation || self.imatrix.is_some() {
            return Ok(());
        }
        let mut ids =
            vec!["max_tokens", "ctx", "digest", "sampler", "no_self_conditioning", "ban_tokens", "ban"];
        ids.extend(SAMPLERS.iter().flat_map(|s| s.params).map(|p| p.name));
        if let Some(flag) = self.given.first_of(&ids) {
            bail!("{flag} changes nothing in one pass: it needs --generation");
        }
        let ids = ["seed", "profile", "chat_template", "think"];
        if let Some(flag) = self.given.first_of(&ids).filter(|_| self.like.is_some()) {
            bail!("{flag} changes nothing with --like: prompt and noise come from the golden");
        }
        Ok(())
    }
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    // One of them is given.
    let output = args.output.as_deref().or(args.imatrix.as_deref()).unwrap_or(Path::new(""));
    let template = args.prompt.template.chat_template.as_ref().map(Path::new);
    let inputs = [args.model.model.as_deref(), args.like.as_deref(), args.prompts.as_deref(), template];
    let kind = if args.imatrix.is_some() { Kind::Imatrix } else { Kind::Recording };
    files::check_result(output, kind, &inputs)?;
    args.refuse_what_means_nothing()?;
    if let Some(path) = &args.like {
        files::refuse_special(path, "a safetensors file")?;
    }
    let golden = args.like.as_deref().map(TraceFile::open).transpose()?;
    let prompts = args.prompts.as_deref().map(prompts).transpose()?;
    let text = if golden.is_some() || prompts.is_some() { String::new() } else { args.prompt.text()? };
    let stop = interrupt::flag()?;
    let mut how = args.model.clone();
    if args.precision == Rounded::LlamaCpp {
        // Whether there is a cache is known when the model is open.
        let (_, numerics, kv_type) = Rounding::LlamaCpp.computing(false);
        how = how.as_recorded(numerics, kv_type);
    }
    if let (Some(golden), Rounded::F32) = (&golden, args.precision) {
        if how.numerics.is_none() {
            let names = Numerics::ALL.iter().map(|n| n.name());
            how.numerics = recorded(golden, "numerics", Numerics::from_name, names)?;
        }
        if how.kv_type.is_none() {
            let names = KvType::ALL.iter().map(|t| t.name());
            how.kv_type = recorded(golden, "kv_type", KvType::from_name, names)?;
        }
    }
    // A pass over an autoregressive model can be traced; a generation is refused.
    let mut model = model::open_any(&how, args.precision.precision(), &stop, out)?.model;
    if args.precision == Rounded::LlamaCpp {
        let has_cache = model.shape().reading != Reading::Whole;
        model.set_kv_type(Rounding::LlamaCpp.computing(has_cache).2)?;
    }
    let parse = args.generate.explicit_profile(&model).is_some();
    if let Some(output) = &args.imatrix {
        args.generate.left_out(&model, Task::Answer).iter().for_each(|note| out.note(note));
        let (ids, warnings) = match prompts {
            Some(asked) => args.prompt.all_ids(&asked, &model, parse)?,
            None => {
                let prompt = args.prompt.ids(&text, &model, parse)?;
                (vec![prompt.ids], prompt.warnings)
            }
        };
        warnings.iter().for_each(|w| out.warn(w));
        return imatrix::main(args, output, &mut model, ids, &stop, out);
    }
    let (kind, mut file) = match &golden {
        Some(golden) => {
            warn_of_another_model(args, golden, &model, out);
            let mut file = like(&mut model, golden, Some(stop))?;
            file.metadata.extend(trace_metadata::common(&model));
            ("like", file)
        }
        None => {
            args.generate.left_out(&model, Task::Answer).iter().for_each(|note| out.note(note));
            let prompt = args.prompt.ids(&text, &model, parse)?;
            prompt.warnings.iter().for_each(|w| out.warn(w));
            match args.generation {
                true => ("generation", generation(args, &mut model, prompt.ids, stop, out)?),
                false => ("forward", forward(args, &mut model, &prompt.ids, stop)?),
            }
        }
    };
    if file.tensors.is_empty() {
        bail!("nothing was recorded: no tap has such a name{}", known_taps(&args.taps));
    }
    file.name = output.display().to_string();
    let report = save(output, kind, file)?;
    if out.json {
        out.object(&report)?;
    } else {
        let n = report.tensors.len();
        out.text(&format!("{}: {n} tensors, {}\n", report.file, human_bytes(report.bytes)))?;
    }
    Ok(Exit::Done)
}

/// What a recording of this program says of how it was made, so that it is repeated in the same way: the metadata `key`,
/// one of `names`. Goldens of other programs say nothing of it.
fn recorded<T>(
    golden: &TraceFile,
    key: &str,
    from_name: impl Fn(&str) -> Option<T>,
    names: impl Iterator<Item = &'static str>,
) -> anyhow::Result<Option<T>> {
    let Some(name) = golden.metadata.get(key) else { return Ok(None) };
    if let Some(found) = from_name(name) {
        return Ok(Some(found));
    }
    let (names, flag) = (names.collect::<Vec<_>>().join(" or "), key.replace('_', "-"));
    Err(anyhow!(
        "{}: metadata `{key}`: expected {names}, found {}: say --{flag} {names}",
        golden.name,
        Shown(name)
    ))
}

/// A golden says which file it was made from; another one gives other numbers.
fn warn_of_another_model(args: &Args, golden: &TraceFile, model: &Model, out: Out) {
    let Some(made_from) = golden.metadata.get("model") else { return };
    if let Some(digest) = golden.metadata.get("model_sha256_header") {
        // Our own recordings say it exactly, and give the model's own name.
        if *digest != model.sha256_header() {
            out.warn(&format!("{} was made from {}, this is another model", golden.name, Shown(made_from)));
        }
        return;
    }
    let used = args.model.model.as_deref().map_or_else(
        || "the demo model inside this program".into(),
        |p| p.file_name().unwrap_or(p.as_os_str()).to_string_lossy().into_owned(),
    );
    if used != *made_from {
        out.warn(&format!("{} was made from {}, this is {used}", golden.name, Shown(made_from)));
    }
}

fn known_taps(asked: &[String]) -> String {
    if asked.is_empty() { String::new() } else { format!(" as {}", asked.join(", ")) }
}

fn save(path: &Path, kind: &'static str, file: TraceFile) -> anyhow::Result<Report> {
    let bytes = file.to_bytes();
    files::write_result(path, Kind::Recording, &bytes)?;
    let tensors = file.tensors.into_iter();
    Ok(Report {
        file: file.name,
        bytes: bytes.len() as u64,
        kind,
        tensors: tensors.map(|(name, t)| Written { name, dtype: t.data.dtype(), shape: t.shape }).collect(),
        metadata: file.metadata,
    })
}

/// One pass over the prompt, one over the canvas of noise that the generator starts with.
fn forward(
    args: &Args,
    model: &mut Model,
    prompt: &[u32],
    stop: Arc<AtomicBool>,
) -> anyhow::Result<TraceFile> {
    let names = if args.taps == ["all"] { Vec::new() } else { args.taps.clone() };
    let filter = TapFilter { names, layers: args.layers.clone() };
    let shape = model.shape().clone();
    if let Some(range) = args.layers.as_ref().filter(|r| *r.end() >= shape.n_layers) {
        bail!(
            "--layers {}..{}: this model has the layers 0..{}",
            range.start(),
            range.end(),
            shape.n_layers - 1
        );
    }
    let draws = Philox { seed: args.generate.seed.number(), vocab_len: shape.vocab_len as u32 };
    let (cached, lead) = prompt.split_at(shape.cached(prompt.len()));
    // A canvas that is as long as the answer is cut to the context.
    let len = match shape.reading {
        Reading::Cached | Reading::Blocks => shape.canvases(prompt.len(), 1).first,
        Reading::Whole => shape.canvas_len.min(shape.context_len.saturating_sub(prompt.len())).max(1),
    };
    let context = shape.context_len;
    if prompt.len().saturating_add(len) > context {
        return Err(Error::ContextOverflow { prompt: prompt.len(), answer: len, context }.into());
    }
    let mut canvas = first_canvas(shape.noise, &draws, 0, len);
    let mask = |layer| filter.wants(TapKey { name: "kq_visible", layer: Some(layer) });
    let masks = |columns| (0..shape.n_layers).filter(|&l| mask(l)).map(|l| (l, columns)).collect();
    let mut recorder = PassRecorder::new(|_: &str, key| filter.wants(key));
    recorder.interrupt = Some(stop);
    recorder.names = model.arch().tap_names;
    let mut session = model.session()?;
    if !cached.is_empty() {
        recorder.prefix = "enc/".into();
        recorder.masks = masks(cached.len());
        session.extend(model, cached, &mut recorder)?;
    }
    // The first token of a block that the pass before it predicts, as when an answer is made.
    if let Some(next) = session.next().filter(|_| lead.is_empty()) {
        canvas[0] = next;
    }
    if shape.reading != Reading::Whole {
        recorder.prefix = "dec/".into();
    }
    recorder.masks = masks(prompt.len() + canvas.len());
    // Of models that read the whole sequence all rows are wanted.
    let whole = shape.reading == Reading::Whole;
    let sequence = [lead, &canvas].concat();
    let pass = match whole {
        true => CanvasPass::new(&sequence),
        false => CanvasPass { lead, ..CanvasPass::new(&canvas) },
    };
    canvas_pass(model, &session, pass, &mut recorder)?;
    model.close(session);
    let mut file = recorder.file;
    if !file.tensors.is_empty() {
        let ids = |x: &[u32]| redraft::trace::Elements::I32(x.iter().map(|&id| id as i32).collect());
        if whole {
            file.insert("ids", vec![sequence.len()], ids(&sequence));
        } else {
            file.insert("prompt_ids", vec![prompt.len()], ids(prompt));
            file.insert("canvas_ids", vec![canvas.len()], ids(&canvas));
        }
    }
    file.metadata = trace_metadata::common(model);
    file.metadata.insert("seed".into(), draws.seed.to_string());
    Ok(file)
}

/// The steps of an answer.
fn generation(
    args: &Args,
    model: &mut Model,
    prompt: Vec<u32>,
    stop: Arc<AtomicBool>,
    out: Out,
) -> anyhow::Result<TraceFile> {
    let (mut request, notes) = args.generate.request(model, Task::Answer, prompt)?;
    notes.iter().for_each(|w| out.warn(w));
    request.interrupt = Some(stop);
    let seed = args.generate.seed.number();
    let draws = Philox { seed, vocab_len: model.shape().vocab_len as u32 };
    let mut recorder = GenerationRecorder::default();
    let mut session = model.session()?;
    let done = generate(model, &mut session, &request, &draws, &mut |event| {
        recorder.event(event);
        ControlFlow::Continue(())
    });
    model.close(session);
    let mut file = recorder.finish(&request.prompt, &done?.committed);
    file.metadata = trace_metadata::generation(model, &request, seed);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_one_or_a_range() {
        assert_eq!(layers("0..3"), Ok(0..=3));
        assert_eq!(layers("0..=3"), Ok(0..=3));
        assert_eq!(layers("5"), Ok(5..=5));
        for bad in ["", "3..1", "a..b", "..", "-1", "1.."] {
            assert!(layers(bad).is_err(), "{bad}");
        }
    }
}
