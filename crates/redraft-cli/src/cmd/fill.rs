//! `redraft fill`: text around gaps, which the model fills.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context as _, bail};
use redraft::Model;
use redraft::chat::{Answer, Message, Warning};
use redraft::compute::Precision;
use redraft::engine::{Philox, Request, Session, default_max_tokens};
use redraft::fill::{
    DEFAULT_GAP_MAX, Fill, FilledGap, Lengths, MAX_GAP, Segment, Template, Tried, find_lengths, parse,
};
use redraft::receipt::{Receipt, StepRecorder};
use redraft::tokenizer::Specials;
use serde::Serialize;

use crate::answer::{Report, View, show, warnings};
use crate::args::Given;
use crate::args::generate::{GenerateArgs, Task};
use crate::args::left_out;
use crate::args::live::LiveArgs;
use crate::args::model::ModelArgs;
use crate::args::prompt::{TemplateArgs, given_or_stdin};
use crate::exit::Exit;
use crate::files::{self, Kind};
use crate::model::Loaded;
use crate::out::Out;
use crate::ui::progress::Count;
use crate::{interrupt, model};

/// The long help.
const ABOUT: &str = "\
Fill gaps in a text.

TEXT has one or more gaps: [[3]] is one of three tokens, [[]] one whose length is found by trying. The text around them \
stays as it is. A gap of free length at the end of TEXT ends where the model ends it. Two brackets that are no gap are \
written \\[[. A single space before a gap is the start of what is filled in, and counts.

Models that were trained to answer (such as the one inside this program) need --prompt: TEXT is then the answer. Models \
that read block by block do not see text in blocks after that of a gap; where a gap saw nothing of the text after it, a \
warning says so.";

/// Fill gaps in a text.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT, after_help = "Examples:\n  \
    redraft fill --prompt \"What is the capital of France?\" \"The capital of [[]] is Paris.\"\n  \
    redraft fill --prompt \"55 + 68\" \"55 + [[3]] = 123\"\n  \
    redraft fill -m model.gguf \"The sum of 2 and 2 is [[]], and that of 3 and 3 is [[1]].\"\n  \
    redraft fill -m model.gguf --json --gap-max 64 - < text-with-gaps.txt\n  \
    redraft fill --prompt \"Count from 1 to 5.\" -n 20 \"1, 2, [[]]\"")]
pub(crate) struct Args {
    #[command(flatten)]
    given: Given,

    /// The text with its gaps; - reads it from stdin, as does no TEXT at all when something is piped in. A newline at
    /// its end is left out.
    #[arg(value_name = "TEXT")]
    text: Option<String>,

    /// What the text answers: it goes through the chat template. Without it the text is a document of its own.
    #[arg(short, long, value_name = "TEXT", help_heading = "Prompt")]
    prompt: Option<String>,

    /// Control tokens that are spelled out in the text are control tokens.
    #[arg(long, help_heading = "Prompt", conflicts_with_all = ["prompt"])]
    raw: bool,

    #[command(flatten)]
    template: TemplateArgs,

    /// Tokens at most of a gap whose length is found by trying.
    #[arg(
        long,
        value_name = "N",
        value_parser = gap_max,
        allow_negative_numbers = true,
        default_value_t = DEFAULT_GAP_MAX,
        help_heading = "Generation"
    )]
    gap_max: usize,

    /// The text goes on after its last word: no end is put there.
    #[arg(long, help_heading = "Generation")]
    open_end: bool,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    generate: GenerateArgs,

    #[command(flatten)]
    live: LiveArgs,

    /// Write a receipt of the filled text into this file (JSON); `verify` runs it again.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    receipt: Option<PathBuf>,
}

fn gap_max(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_GAP) => Ok(n),
        _ => Err(format!("expected a whole number in 1..={MAX_GAP}")),
    }
}

/// The object of `fill --json`: that of `run --json`, and the gaps. Field names are part of the program's contract.
#[derive(Debug, Serialize)]
struct FillReport {
    #[serde(flatten)]
    report: Report,
    gaps: Vec<GapReport>,
    /// Time that the search for lengths took; the timings are those of the filling itself.
    lengths_ms: f64,
}

#[derive(Debug, Serialize)]
struct GapReport {
    text: String,
    ids: Vec<u32>,
    /// First position in the sequence, prompt included, and the one after the last.
    start: usize,
    end: usize,
    /// Tokens of text between this gap and the next, and how many of them it saw.
    suffix_tokens: usize,
    suffix_seen: usize,
    /// Lengths that were tried, with their scores; empty where the length was given or left to the model.
    tried: Vec<(usize, f64)>,
}

impl From<&FilledGap> for GapReport {
    fn from(gap: &FilledGap) -> GapReport {
        GapReport {
            text: gap.text.clone(),
            ids: gap.ids.clone(),
            start: gap.start,
            end: gap.start + gap.ids.len(),
            suffix_tokens: gap.n_after,
            suffix_seen: gap.n_seen,
            tried: gap.tried.iter().map(|&Tried { len, score }| (len, score)).collect(),
        }
    }
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let inputs = [args.model.model.as_deref(), args.template.chat_template.as_ref().map(Path::new)];
    if let Some(path) = &args.receipt {
        files::check_result(path, Kind::Receipt, &inputs)?;
    }
    args.generate.warn_of_hidden_digests(args.receipt.is_some(), out);
    args.generate.refuse_slide("`fill` has no earlier turns")?;
    if args.prompt.is_none()
        && let Some(flag) = args.given.first_of(&["system", "chat_template", "think"])
    {
        bail!("{flag} is for a prompt, and there is none: give one with --prompt");
    }
    let text =
        given_or_stdin(args.text.as_deref(), "text", "redraft fill \"The capital of [[]] is Paris.\"")?;
    let segments = parse(&text)?;
    let view = args.live.view(out)?;
    let stop = interrupt::flag()?;
    let loaded = model::open(&args.model, Precision::F32, &stop, out)?;
    let (report, text) = args.fill(&segments, loaded, &stop, view, out)?;
    if out.json {
        out.object(&report)?;
        return Ok(Exit::Done);
    }
    if !view.live {
        out.text(&format!("{}\n", text.strip_suffix('\n').unwrap_or(&text)))?;
    }
    let report = report.report;
    if out.verbose > 0 {
        report.lines().iter().for_each(|l| out.note(l));
    } else if view.live && !out.quiet && std::io::stderr().is_terminal() {
        out.err(&report.summary());
    }
    Ok(Exit::Done)
}

impl Args {
    /// The tokens of the prompt, none without one, and the token that ends an answer.
    fn prompt_and_end(&self, model: &Model, out: Out) -> anyhow::Result<(Vec<u32>, Option<u32>)> {
        let eos = model.tokenizer().eos();
        let Some(prompt) = &self.prompt else { return Ok((Vec::new(), eos)) };
        anyhow::ensure!(!prompt.trim().is_empty(), "--prompt is empty");
        let prompter = self.template.prompter(model, self.generate.explicit_profile(model).is_some())?;
        prompter.warnings.iter().for_each(|w| out.warn(w));
        let system = self.template.system.as_ref().map(|s| Message::new("system", s.as_str()));
        let messages: Vec<Message> =
            system.into_iter().chain([Message::new("user", prompt.as_str())]).collect();
        Ok((prompter.ids(&messages, model)?, prompter.end_of_answer(&messages, model).or(eos)))
    }

    /// The request but for the text.
    fn base(
        &self,
        model: &Model,
        template: &Template,
        stop: Arc<AtomicBool>,
        out: Out,
    ) -> anyhow::Result<Request> {
        if !template.ends_free() && self.given.first_of(&["max_tokens"]).is_some() {
            bail!(
                "--max-tokens limits a gap of free length at the end of the text, and there is none: --gap-max limits \
                 the others"
            );
        }
        let task = Task::Gaps { free: template.ends_free() };
        if template.ends_free() && self.given.first_of(&["open_end"]).is_some() {
            bail!(
                "--open-end changes nothing: the text ends with a gap of free length, after which no end is put"
            );
        }
        let looked_for =
            template.gaps().filter(|gap| gap.len.is_none()).count() - usize::from(template.ends_free());
        if looked_for == 0 && self.given.first_of(&["gap_max"]).is_some() {
            bail!(
                "--gap-max limits gaps whose length is found by trying, and there is none: [[]] with text after \
                 it is one"
            );
        }
        let mut generate = self.generate.clone();
        generate.sampler = generate.sampler.in_place(model);
        generate.left_out(model, task).iter().for_each(|note| out.note(note));
        if let Some(n) = self.generate.max_tokens.filter(|_| !template.ends_free()) {
            out.note(&left_out("max_tokens", n, "no gap of free length ends the text"));
        }
        let (mut base, notes) = generate.request(model, task, template.prompt().to_vec())?;
        notes.iter().for_each(|w| out.warn(w));
        // A gap of free length has one token at least, and while lengths are tried as many as it may.
        let gaps = |free: usize| template.gaps().map(move |gap| gap.len.unwrap_or(free));
        if base.prompt.is_empty() && template.n_fixed() == 0 && template.ends_free() {
            bail!(
                "the text is one gap, and this model begins with no token of its own: give text beside the gap, or --prompt"
            );
        }
        let given = base.prompt.len() + template.n_fixed();
        let least = gaps(1).fold(given, usize::saturating_add);
        if least > base.context_len {
            bail!(
                "the text has {} tokens before its first gap and {} from there on at least, together more than the context of {}: \
                 shorten the text or its gaps, or raise --ctx",
                base.prompt.len(),
                least - base.prompt.len(),
                base.context_len
            );
        }
        if self.generate.max_tokens.is_none() {
            let before =
                gaps(self.gap_max).fold(base.prompt.len() + template.n_fixed(), usize::saturating_add);
            base.max_tokens = default_max_tokens(model.shape(), base.sampler, base.context_len, before);
        }
        base.interrupt = Some(stop);
        Ok(base)
    }

    /// Fills the gaps and shows the text as it comes about. Returns the report, and the whole text.
    fn fill(
        &self,
        segments: &[Segment],
        Loaded { mut model, load }: Loaded,
        stop: &Arc<AtomicBool>,
        view: View<'static>,
        out: Out,
    ) -> anyhow::Result<(FillReport, String)> {
        let model = &mut model;
        let (prompt, end) = self.prompt_and_end(model, out)?;
        let specials = if self.raw { Specials::Parse } else { Specials::Text };
        let template = Template::new(model.tokenizer(), prompt, segments, specials)?;
        let base = self.base(model, &template, Arc::clone(stop), out)?;
        let end = end.filter(|_| !self.open_end);
        let fill = Fill { template: &template, base: &base, gap_max: self.gap_max, end };
        let seed = self.generate.seed.number();
        out.note(&format!("seed {seed}, {} tokens before the first gap", template.prompt().len()));
        let mut session = model.session()?;
        let start = Instant::now();
        let lengths = lengths(model, &mut session, fill, seed, out)?;
        let lengths_ms = start.elapsed().as_secs_f64() * 1e3;
        let request = fill.request(&lengths);
        self.generate.sampler.check_least(
            base.sampler,
            &base.params,
            request.given.tokens(request.max_tokens),
        )?;
        let mut steps = self.receipt.as_ref().map(|_| StepRecorder::default());
        let view = View { head: Some(template.head()), ..view };
        let shown = show(model, &mut session, &request, seed, view, out, &mut |event| {
            if let Some(s) = &mut steps {
                s.event(event);
            }
        });
        model.close(session);
        let done = shown?.1?;
        let filled = template.filled(model, &request, &lengths, &done);
        let mut answer = Answer { text: filled.text.clone(), ..Answer::default() };
        answer.warnings = filled.gaps.iter().enumerate().filter_map(|(i, gap)| unseen(i, gap)).collect();
        warnings(&done, &answer).iter().for_each(|w| out.warn(&w.message));
        if let (Some(path), Some(steps)) = (&self.receipt, steps) {
            let digests = model::digests(model, stop, out)?;
            let receipt = Receipt::new(model, digests, &request, seed, &done, steps);
            files::write_result(path, Kind::Receipt, receipt.to_json()?.as_bytes()).context("the receipt")?;
            out.note(&format!("receipt written to {}", path.display()));
        }
        let written = filled.gaps.iter().map(|gap| gap.ids.len()).sum();
        let report = Report::new(model, &request, &done, &answer, seed, load).of_fill(&done, written);
        let gaps = filled.gaps.iter().map(GapReport::from).collect();
        Ok((FillReport { report, gaps, lengths_ms }, filled.text))
    }
}

/// Finds the lengths of gaps that have none, under a count of the tries.
fn lengths(
    model: &mut Model,
    session: &mut Session,
    fill: Fill<'_>,
    seed: u64,
    out: Out,
) -> anyhow::Result<Lengths> {
    let draws = Philox { seed, vocab_len: model.shape().vocab_len as u32 };
    let bar = Count::new("trying lengths", !out.quiet && out.err_terminal);
    let lengths = find_lengths(model, session, fill, &draws, &mut |n, of| {
        bar.set(n, of);
        ControlFlow::Continue(())
    });
    bar.finish();
    let lengths = lengths?;
    for (i, (len, tried)) in lengths.0.iter().enumerate() {
        if let Some(len) = len.filter(|_| !tried.is_empty()) {
            out.note(&format!("gap {}: {len} tokens, the best of {} lengths", i + 1, tried.len()));
        }
    }
    Ok(lengths)
}

/// What to know of a gap that saw nothing of the text after it.
fn unseen(i: usize, gap: &FilledGap) -> Option<Warning> {
    (gap.n_after > 0 && gap.n_seen == 0).then(|| Warning {
        code: "suffix_not_seen",
        message: format!(
            "gap {} was filled without a look at the text after it, which stands in a later block or canvas",
            i + 1
        ),
    })
}
