//! `redraft verify`: runs a receipt again.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use redraft::compute::{KvType, Numerics, Precision};
use redraft::engine::{Generation, Philox, generate};
use redraft::gguf::Shown;
use redraft::receipt::{Check, Difference, MAX_BYTES, ModelDigests, Receipt, model_difference};
use redraft::tokenizer::Tokenizer;
use redraft::{Error, Model};
use serde::Serialize;

use crate::args::left_out;
use crate::args::model::ModelArgs;
use crate::exit::Exit;
use crate::out::Out;
use crate::version::VERSION;
use crate::{files, interrupt, model};

/// Run a receipt again and say what differs first.
///
/// A receipt is written by `run --receipt`. The model file is compared by its digests, then the answer is
/// generated again from the receipt's token ids, seed, settings, numerics and type of the KV cache, on this machine's backend, and every
/// denoising step is compared. Exit code 0: everything is equal; 1: it is not, and the first difference is named.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft run --receipt answer.json \"What is 7 + 8?\" && redraft verify answer.json\n  \
    redraft verify -m model.gguf answer.json\n  \
    redraft verify --json answer.json | jq .first_difference")]
pub(crate) struct Args {
    /// The receipt.
    #[arg(value_name = "RECEIPT")]
    receipt: PathBuf,

    #[command(flatten)]
    model: ModelArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    verified: bool,
    first_difference: Option<Difference>,
    model: ModelDigests,
    seed: u64,
    numerics: &'static str,
    kv_type: &'static str,
    tokens: usize,
    canvases: usize,
    steps: usize,
    made_by: Maker,
    here: Maker,
}

/// Who computed.
#[derive(Debug, Serialize)]
struct Maker {
    version: String,
    backend: String,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let path = &args.receipt;
    let receipt =
        Receipt::parse(&files::read(path, MAX_BYTES)?).with_context(|| path.display().to_string())?;
    let stop = interrupt::flag()?;
    let numerics = receipt.numerics().with_context(|| path.display().to_string())?;
    let asked = args.model.numerics.filter(|&n| n != numerics);
    if args.model.given.by_environment("numerics") {
        let note = |n: Numerics| out.note(&left_out("numerics", n.name(), "the receipt says it"));
        asked.into_iter().for_each(note);
    } else if let Some(asked) = asked {
        bail!(
            "--numerics {}: {} was made with numerics {}, and is repeated with them",
            asked.name(),
            path.display(),
            numerics.name()
        );
    }
    let kv_type = receipt.kv_type().with_context(|| path.display().to_string())?;
    let asked = args.model.kv_type.filter(|&t| t != kv_type);
    if args.model.given.by_environment("kv_type") {
        let note = |t: KvType| out.note(&left_out("kv_type", t.name(), "the receipt says it"));
        asked.into_iter().for_each(note);
    } else if let Some(asked) = asked {
        bail!(
            "--kv-type {}: {} was made with kv_type {}, and is repeated with it",
            asked.name(),
            path.display(),
            kv_type.name()
        );
    }
    let how = args.model.as_recorded(numerics, kv_type);
    let mut model = model::open(&how, Precision::F32, &stop, out)?.model;
    if args.model.model.is_none() && model.sha256_header() != receipt.model.sha256_header {
        bail!(
            "{}: the receipt is not of the demo model inside this program but of {} ({}, {} bytes): give that \
             file with -m",
            path.display(),
            Shown(&receipt.model.name),
            Shown(&receipt.model.architecture),
            receipt.model.file_bytes
        );
    }
    let here = model::digests(&model, &stop, out)?;
    let first_difference = match model_difference(&receipt.model, &here) {
        Some(difference) => Some(difference),
        None => repeat(&receipt, &mut model, stop).with_context(|| path.display().to_string())?,
    };
    let c = model.backend().capabilities();
    let report = Report {
        verified: first_difference.is_none(),
        first_difference,
        model: receipt.model,
        seed: receipt.seed,
        numerics: numerics.name(),
        kv_type: kv_type.name(),
        tokens: receipt.ids.len(),
        canvases: receipt.canvases.len(),
        steps: receipt.canvases.iter().map(|c| c.steps.len()).sum(),
        made_by: Maker { version: receipt.version, backend: receipt.backend },
        here: Maker { version: VERSION.to_string(), backend: format!("{} ({})", c.backend, c.level) },
    };
    if out.json {
        out.object(&report)?;
    } else {
        out.text(&report.text())?;
    }
    Ok(if report.verified { Exit::Done } else { Exit::No })
}

impl Report {
    fn text(&self) -> String {
        let (by, here) = (&self.made_by, &self.here);
        let mut text = format!(
            "{}, seed {}, numerics {}, KV cache {}: {} tokens, canvases: {}, steps: {}\nmade by   redraft {} on {}\nhere      redraft {} on {}\n",
            Shown(&self.model.name),
            self.seed,
            self.numerics,
            self.kv_type,
            self.tokens,
            self.canvases,
            self.steps,
            Shown(&by.version),
            Shown(&by.backend),
            here.version,
            here.backend
        );
        text.push_str(&match &self.first_difference {
            None => "equal: the model file, every step and the answer\n".to_string(),
            Some(d) => format!(
                "DIFFERENT, first: {}\n  receipt  {}\n  here     {}\n  {}\n",
                d.what,
                Shown(&d.receipt),
                Shown(&d.here),
                d.meaning
            ),
        });
        text
    }
}

/// Generates the answer again, as far as it is equal.
fn repeat(
    receipt: &Receipt,
    model: &mut Model,
    stop: std::sync::Arc<AtomicBool>,
) -> Result<Option<Difference>, Error> {
    let mut request = receipt.request(model)?;
    request.interrupt = Some(stop);
    let draws = Philox { seed: receipt.seed, vocab_len: model.shape().vocab_len as u32 };
    let mut check = Check::new(receipt);
    let mut session = model.session()?;
    let done = generate(model, &mut session, &request, &draws, &mut |event| check.event(event));
    model.close(session);
    judge(check, done, model.tokenizer())
}

/// The first difference; an interruption is one only where the check broke off.
fn judge(
    check: Check<'_>,
    done: Result<Generation, Error>,
    tokenizer: &Tokenizer,
) -> Result<Option<Difference>, Error> {
    match done {
        Ok(answer) => Ok(check.finish(Some(&answer), tokenizer)),
        Err(Error::Interrupted) => check.finish(None, tokenizer).map(Some).ok_or(Error::Interrupted),
        Err(e) => Err(e),
    }
}
