//! `redraft batch`: answers to a file of requests.

mod input;
mod output;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use redraft::Model;
use redraft::compute::Precision;
use redraft_server::{Answer, Ask, Client, Config, Local};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::args::model::ModelArgs;
use crate::args::together::TogetherArgs;
use crate::exit::Exit;
use crate::files::{refuse_no_place, refuse_overwriting, refuse_special};
use crate::model::Loaded;
use crate::out::Out;
use crate::ui::progress::{Requests, counted, human_time};
use crate::{interrupt, model};
use input::{Line, Lines, Plan, Shard};
use output::{Output, Problem, Response, Told, name};

/// Answer a file of requests, without a server.
///
/// IN has a request on each line, in the form of OpenAI's batches; OUT gets a line for each as soon as it is answered, with
/// what `redraft serve` would have sent. A run that was ended, however that came about, goes on where it was. Files,
/// what a line may be and what happens when: docs/batch.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft batch questions.jsonl answers.jsonl\n  \
    redraft batch -m model.gguf --parallel 8 questions.jsonl answers.jsonl\n  \
    redraft batch --shard 1/2 questions.jsonl answers-1.jsonl\n\n\
    A line of IN:\n  \
    {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",\n   \
    \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"What is 7 + 8?\"}]}}")]
pub(crate) struct Args {
    /// Requests, one a line.
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// Where the answers go; those that are there are not asked again.
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Every N-th request only, beginning with the I-th: for N processes that share IN, each with an OUT of its own.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, help_heading = "Answers")]
    shard: Option<Shard>,

    #[command(flatten)]
    together: TogetherArgs,

    #[command(flatten)]
    model: ModelArgs,
}

/// The object of `batch --json`. Field names are part of the program's contract.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Requests of IN, or of this shard of it.
    requests: usize,
    /// Lines of OUT that were there before.
    already: usize,
    /// Lines of OUT that are there now: those that are answers of the model, and the others.
    answered: usize,
    failed: usize,
    /// Of this run.
    prompt_tokens: u64,
    completion_tokens: u64,
    seconds: f64,
    interrupted: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let stop = interrupt::flag()?;
    refuse_special(&args.input, "a file of requests")?;
    refuse_special(&args.output, "a file of answers")?;
    refuse_no_place(&args.output)?;
    refuse_overwriting(&args.output, &[Some(&args.input), args.model.model.as_deref()])?;
    let shard = args.shard.unwrap_or(Shard::ALL);
    let mut plan = Plan::read(&args.input, shard)?;
    let Loaded { model, .. } = model::open(&args.model, Precision::F32, &stop, out)?;
    let mut output = Output::open(&args.output, &mut plan)?;
    let settings = settings(&model, args.together.ctx);
    if output.torn() > 0 {
        out.note("the last line of the answers was not written to its end and is asked again");
    }
    output.begin(settings)?;
    let mut report = Report { requests: plan.mine, already: output.lines, ..Report::default() };
    let start = Instant::now();
    if report.already < report.requests {
        let config = Config {
            parallel: args.together.parallel,
            cache_bytes: args.together.cache_bytes,
            context_len: args.together.ctx,
            ..Config::default()
        };
        let bar = Requests::new(plan.mine, output.lines, !out.quiet && out.err_terminal);
        let lines = Lines::open(&args.input, shard)?;
        let mut run =
            Run { plan, lines, output: &mut output, settings, stop: &stop, bar, report: &mut report };
        Local::start(model, config)?.answer_all(&mut run)?;
        run.bar.finish();
        output.sync()?;
    }
    report.seconds = start.elapsed().as_secs_f64();
    report.answered = output.answers;
    report.failed = output.lines - output.answers;
    report.interrupted = output.lines < report.requests;
    let asked = stop.load(Ordering::Relaxed);
    ensure!(asked || !report.interrupted, "{} lost lines meanwhile", args.input.display());
    tell(&report, start, out)?;
    Ok(match () {
        () if report.interrupted => Exit::Interrupted,
        () if report.failed > 0 => Exit::No,
        () => Exit::Done,
    })
}

fn tell(report: &Report, start: Instant, out: Out) -> anyhow::Result<()> {
    if out.json {
        return out.object(report);
    }
    let Report { requests, already, answered, failed, interrupted, .. } = report;
    let mut text = format!("answered {answered} of {}", counted(*requests, "request"));
    if *already > 0 {
        text += &format!(", {already} before this run");
    }
    if *failed > 0 {
        text += &format!("; {failed} failed, and their lines say why");
    }
    if *interrupted {
        text += "; the same command goes on";
    }
    out.note(&format!(
        "{} tokens written and {} read in {}",
        report.completion_tokens,
        report.prompt_tokens,
        human_time(start.elapsed())
    ));
    out.text(&format!("{text}\n"))
}

/// Bytes at either end of a tensor that tell models apart.
const SAMPLE: usize = 4096;

/// A digest of what answers depend on beside the requests: of the model its header, the lengths of its files, and the ends of each
/// tensor, since all of a large file takes long to read.
fn settings(model: &Model, ctx: Option<usize>) -> u32 {
    let options =
        format!("{} {} {} {ctx:?}", model.sha256_header(), model.numerics().name(), model.kv_type().name());
    let mut sha = Sha256::new_with_prefix(options);
    let gguf = model.gguf();
    gguf.files().iter().for_each(|file| sha.update((file.bytes.len() as u64).to_le_bytes()));
    for tensor in gguf.tensors() {
        let bytes = gguf.tensor_bytes(tensor);
        sha.update(&bytes[..bytes.len().min(SAMPLE)]);
        sha.update(&bytes[bytes.len().saturating_sub(SAMPLE)..]);
    }
    sha.finalize().iter().take(4).fold(0, |n, &b| n << 8 | u32::from(b))
}

/// A run through the requests that are not answered.
struct Run<'a> {
    plan: Plan,
    lines: Lines,
    output: &'a mut Output,
    settings: u32,
    stop: &'a Arc<AtomicBool>,
    bar: Requests,
    report: &'a mut Report,
}

/// What an answer belongs to.
struct Tag {
    id: String,
    custom_id: Option<String>,
    /// In the input, counted from 1.
    line: usize,
}

impl Run<'_> {
    fn add(&mut self, tag: Tag, response: Option<Response>, error: Option<Problem>) -> anyhow::Result<()> {
        let Tag { id, custom_id, line } = tag;
        self.output.add(Told { id, custom_id, response, error }, line)?;
        self.bar.set(self.output.lines);
        Ok(())
    }
}

impl Client for Run<'_> {
    type Tag = Tag;
    type Error = anyhow::Error;

    fn next(&mut self) -> anyhow::Result<Option<Ask<Tag>>> {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(Line { number, key, digest, custom_id, request, .. }) = self.lines.next()? else {
                break;
            };
            let planned = self.plan.requests.get(&key).filter(|p| p.digest == digest);
            let planned = planned.with_context(|| format!("line {number} of the input changed meanwhile"))?;
            if !planned.mine || planned.done {
                continue;
            }
            let tag = Tag { id: name(self.settings, digest), custom_id, line: number };
            match request {
                Ok((url, body)) => {
                    return Ok(Some(Ask { path: url.into(), body: serde_json::to_vec(&body)?, tag }));
                }
                Err(why) => {
                    let message = format!("line {number}: {why}");
                    let problem = Problem { code: "invalid_request".into(), message, line: number };
                    self.add(tag, None, Some(problem))?;
                }
            }
        }
        Ok(None)
    }

    fn answered(&mut self, tag: Tag, Answer { status, body }: Answer) -> anyhow::Result<()> {
        let tokens = |name: &str| body["usage"][name].as_u64().unwrap_or(0);
        self.report.prompt_tokens += tokens("prompt_tokens");
        self.report.completion_tokens += tokens("completion_tokens");
        let request_id = body["id"].as_str().unwrap_or(&tag.id).to_owned();
        self.add(tag, Some(Response { status_code: status, request_id, body }), None)
    }
}
