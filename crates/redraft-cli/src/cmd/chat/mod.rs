//! `redraft chat`: a conversation.

mod command;
mod conversation;
mod input;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::bail;
use redraft::compute::Precision;
use redraft::constrain::Constraint;
use redraft::engine::{Session, default_max_tokens, turns_to_drop};
use redraft::gguf::Shown;
use redraft::{Error, Model};
use serde::Serialize;

use self::command::Command;
use self::conversation::{About, Answer, Conversation, Turn};
use self::input::{Input, Typed};
use crate::answer::{Report, View, show, show_beside, warnings};
use crate::args::Given;
use crate::args::constrain::{self, ConstrainArgs};
use crate::args::generate::{CtxOverflow, GenerateArgs, Seed, Task};
use crate::args::live::LiveArgs;
use crate::args::model::ModelArgs;
use crate::args::prompt::{Prompter, TemplateArgs, Think};
use crate::exit::{Exit, message};
use crate::model::{Loaded, ModelReport};
use crate::out::{Out, is_stdout_error};
use crate::{interrupt, model};

/// Talk with a model.
///
/// On a terminal: a prompt with line editing, and commands that start with a slash (/help lists them). From a
/// pipe: each line is a message, and the answers go to stdout one after the other; an error ends the program.
/// What the conversation shares with the one before is not computed again. Every answer is the same as that of
/// a fresh run with the same messages and seed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft chat\n  \
    redraft chat -m model.gguf --system \"Be brief.\" --seed random\n  \
    redraft chat --ctx-overflow slide --history ~/.redraft_history\n  \
    printf 'What is 7 + 8?\\nSort 4, 1, 3.\\n' | redraft chat --json | jq .text\n  \
    printf 'Hello\\n/save hello.json\\n' | redraft chat --commands")]
pub(crate) struct Args {
    // First, since the others take what they read.
    #[command(flatten)]
    given: Given,

    #[command(flatten)]
    template: TemplateArgs,

    /// Take commands from a pipe, too; there a line that starts with a slash is a message otherwise.
    #[arg(long, help_heading = "Chat")]
    commands: bool,

    /// Keep the lines that are typed in this file, for the next time; those that begin with a space are not kept.
    /// Without it all are forgotten.
    #[arg(long, value_name = "FILE", env = "REDRAFT_HISTORY", help_heading = "Chat")]
    history: Option<PathBuf>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    generate: GenerateArgs,

    #[command(flatten)]
    constrain: ConstrainArgs,

    #[command(flatten)]
    live: LiveArgs,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let view = args.live.view(out)?;
    args.generate.warn_of_hidden_digests(false, out);
    args.constrain.check(args.template.think, false)?;
    let language = args.constrain.language()?;
    let mut input = Input::new(args.history.as_deref(), out.json)?;
    let editor = matches!(input, Input::Editor(_));
    if !editor && args.given.first_of(&["history"]).is_some() {
        bail!("--history keeps lines that are typed on a terminal, and this is none");
    }
    let person = editor || matches!(input, Input::Lines { prompt: true });
    let stop = if person { interrupt::patient_flag()? } else { interrupt::flag()? };
    let Loaded { mut model, load } = model::open(&args.model, Precision::F32, &stop, out)?;
    let generate = args.constrain.sampling(&args.generate, &model);
    let constraint =
        language.map(|l| constrain::compiled(l, &model, &model.tokenizer().end_ids(), out)).transpose()?;
    generate.left_out(&model, Task::Conversation).iter().for_each(|note| out.note(note));
    let parse = generate.explicit_profile(&model).is_some();
    let prompter = args.template.prompter(&model, parse)?;
    prompter.warnings.iter().for_each(|w| out.warn(w));
    let session = model.session()?;
    let seed = args.generate.seed.number();
    out.note(&format!("seed {seed}"));
    if person && !out.quiet {
        out.err(&format!("{} · /help lists commands, Ctrl-D ends", model.name()));
    }
    let mut chat = Chat {
        out,
        person,
        editor,
        commands: person || args.commands,
        model,
        load,
        session,
        prompter,
        think: args.template.think,
        generate,
        constraint,
        seed,
        view,
        stop,
        conversation: Conversation { system: args.template.system.clone(), ..Conversation::default() },
        initial: String::new(),
        warned: false,
    };
    let mut interrupted = false;
    loop {
        let initial = std::mem::take(&mut chat.initial);
        match input.next(&initial)? {
            Typed::End => break,
            Typed::Interrupted if interrupted => break,
            Typed::Interrupted => {
                interrupted = true;
                out.err("Ctrl-C once more or Ctrl-D ends");
                continue;
            }
            Typed::Text(line) => match chat.line(&line) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) if person && !is_stdout_error(&e) => out.err(&format!("error: {}", message(&e))),
                Err(e) => return Err(e),
            },
        }
        if interrupt::ending() {
            return Err(Error::Interrupted.into());
        }
        interrupted = false;
    }
    Ok(Exit::Done)
}

/// A conversation with a model.
struct Chat {
    out: Out,
    /// A person is there, to whom errors are shown and who may go on.
    person: bool,
    /// With a line editor.
    editor: bool,
    commands: bool,
    model: Model,
    load: Duration,
    session: Session,
    prompter: Prompter,
    think: Think,
    generate: GenerateArgs,
    /// What each answer is held to.
    constraint: Option<Arc<Constraint>>,
    /// Seed of the answers to come.
    seed: u64,
    view: View<'static>,
    stop: Arc<AtomicBool>,
    conversation: Conversation,
    /// What stands in the line editor when it is shown again.
    initial: String,
    /// The user knows what is odd about the context length.
    warned: bool,
}

/// One answer, for `--json`.
#[derive(Serialize)]
struct TurnReport<'a> {
    /// Counted from 1.
    turn: usize,
    /// Prompt tokens that were computed for earlier turns.
    reused_tokens: usize,
    /// Turns that the model was not told of.
    turns_left_out: usize,
    #[serde(flatten)]
    report: &'a Report,
}

impl Chat {
    /// Does what a line says. False ends the conversation.
    fn line(&mut self, line: &str) -> anyhow::Result<bool> {
        if line.trim().is_empty() {
            return Ok(true);
        }
        match line.strip_prefix('/').filter(|_| self.commands) {
            Some(rest) if rest.starts_with('/') => self.ask(rest, self.seed)?,
            Some(rest) => match Command::parse(rest) {
                Ok(command) => return self.command(command),
                Err(e) => bail!(e),
            },
            None => {
                if line.strip_prefix('/').is_some_and(|rest| Command::parse(rest).is_ok()) {
                    self.out
                        .warn(&format!("{line} is a message here: --commands takes commands from a pipe"));
                }
                self.ask(line, self.seed)?;
            }
        }
        Ok(true)
    }

    fn command(&mut self, command: Command) -> anyhow::Result<bool> {
        match command {
            Command::Help => self.out.err(&command::help()),
            Command::Exit => return Ok(false),
            Command::History => self.out.err(&self.conversation.history()),
            Command::Clear => {
                self.conversation.truncate(0);
                self.say("a new conversation");
            }
            Command::Undo => match self.conversation.turns.len() {
                0 => bail!("/undo: nothing was said yet"),
                n => {
                    self.conversation.truncate(n - 1);
                    self.say(&format!("question {n} and its answer are taken back"));
                }
            },
            Command::Regenerate(seed) => self.regenerate(seed)?,
            Command::Edit(n, text) => self.edit(n, text)?,
            Command::System(text) => self.system(text),
            Command::Seed(seed) => {
                self.seed = seed.map_or(self.seed, Seed::number);
                self.say(&format!("seed {}", self.seed));
            }
            Command::Set(change) => self.set(change)?,
            Command::Save { path, overwrite } => {
                conversation::save(&self.conversation, &self.about()?, &path, overwrite)?;
                self.say(&format!("{} saved in {}", turns(&self.conversation), path.display()));
            }
            Command::Load(path) => self.load(&path)?,
        }
        Ok(true)
    }

    /// What a command did.
    fn say(&self, text: &str) {
        if !self.out.quiet {
            self.out.err(text);
        }
    }

    /// The last question again, with the seed after that of its answer.
    fn regenerate(&mut self, seed: Option<Seed>) -> anyhow::Result<()> {
        let before = self.conversation.clone();
        let Some(turn) = self.conversation.pop() else { bail!("/regenerate: nothing was asked yet") };
        let next = turn.answer.seed.map_or(self.seed, |s| s.wrapping_add(1));
        let seed = seed.map_or(next, Seed::number);
        self.say(&format!("seed {seed}"));
        let n = self.conversation.turns.len();
        let done = self.ask(&turn.question, seed);
        if self.conversation.turns.len() == n {
            // There is no new answer: the old one stays.
            self.conversation = before;
            self.initial.clear();
        }
        done
    }

    fn edit(&mut self, n: usize, text: Option<String>) -> anyhow::Result<()> {
        let Some((role, old, turn)) = self.conversation.message(n) else {
            let count = 2 * self.conversation.turns.len();
            bail!("/edit {n}: there are {count} messages, /history shows them");
        };
        let Some(text) = text else {
            if !self.editor {
                bail!("/edit {n} needs the new text after the number");
            }
            // In the line editor, where Enter sends the command.
            self.initial = format!("/edit {n} {old}");
            return Ok(());
        };
        if role == "user" {
            let before = self.conversation.clone();
            self.conversation.truncate(turn);
            let done = self.ask(&text, self.seed);
            if self.conversation.turns.len() == turn {
                // There is no answer: what was said stays, and the change is still to be made.
                self.conversation = before;
                self.initial = format!("/edit {n} {text}");
            }
            return done;
        }
        self.conversation.truncate(turn + 1);
        if let Some(turn) = self.conversation.turns.last_mut() {
            turn.answer = Answer { text, calls: None, seed: None, finish_reason: "edited".into() };
        }
        self.say(&format!("message {n} is changed"));
        Ok(())
    }

    fn system(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.conversation.system = Some(text).filter(|t| !t.is_empty());
        }
        match &self.conversation.system {
            Some(text) => self.say(&format!("system message: {text}")),
            None => self.say("no system message"),
        }
    }

    fn set(&mut self, change: Option<(String, String)>) -> anyhow::Result<()> {
        let only = match change {
            Some((name, value)) => {
                let used = self.generate.used(&self.model, Task::Conversation);
                self.generate.sampler.set(used, &name, &value)?;
                Some(name)
            }
            None => None,
        };
        let (sampler, params) = self.generate.sampling(&self.model, Task::Conversation)?;
        for p in sampler.params {
            if only.as_ref().is_none_or(|name| name == p.name || name == p.flag) {
                self.say(&format!("{} {} ({}, {})", p.flag, params.get(p.name), p.doc, p.range));
            }
        }
        Ok(())
    }

    fn about(&self) -> anyhow::Result<About> {
        let (sampler, params) = self.generate.sampling(&self.model, Task::Conversation)?;
        Ok(About {
            model: ModelReport::of(&self.model),
            seed: self.seed,
            sampler: sampler.name,
            parameters: params.to_json(),
        })
    }

    fn load(&mut self, path: &std::path::Path) -> anyhow::Result<()> {
        let loaded = conversation::load(path)?;
        if let Some((name, digest)) = loaded.model
            && digest != self.model.sha256_header()
        {
            self.out.warn(&format!(
                "the answers in {} are those of another model: {}",
                path.display(),
                Shown(&name)
            ));
        }
        self.conversation = loaded.conversation;
        self.seed = loaded.seed.unwrap_or(self.seed);
        self.say(&format!("{} loaded, seed {}", turns(&self.conversation), self.seed));
        Ok(())
    }

    /// Asks, shows the answer, and keeps both.
    fn ask(&mut self, question: &str, seed: u64) -> anyhow::Result<()> {
        interrupt::clear(&self.stop);
        let prompt = self.prompt(question)?;
        let (mut request, notes) = self.generate.request(&self.model, Task::Conversation, prompt)?;
        if !std::mem::replace(&mut self.warned, true) {
            notes.iter().for_each(|w| self.out.warn(w));
        }
        request.constraint = self.constraint.clone();
        request.interrupt = Some(Arc::clone(&self.stop));
        let (model, session) = (&mut self.model, &mut self.session);
        let (answer, done) = show(model, session, &request, seed, self.view, self.out, &mut |_| {})?;
        let finish_reason = match done {
            Ok(done) => {
                show_beside(self.think, &answer, self.out);
                warnings(&done, &answer).iter().for_each(|w| self.out.warn(&w.message));
                let report = Report::new(&self.model, &request, &done, &answer, seed, self.load);
                self.report(&report, done.reused)?;
                report.finish_reason()
            }
            Err(Error::Interrupted) if self.person => "interrupted",
            Err(e) => return Err(e.into()),
        };
        if finish_reason == "interrupted" {
            if answer.text.is_empty() && answer.tool_calls.is_empty() {
                // As it is typed.
                self.initial = format!("{}{question}", if question.starts_with('/') { "/" } else { "" });
                self.say("stopped before any of the answer was final: the question is taken back");
                return Ok(());
            }
            self.say("stopped: what was final is kept as the answer");
        }
        let answer = Answer::new(&answer, seed, finish_reason);
        self.conversation.turns.push(Turn { question: question.into(), answer });
        Ok(())
    }

    fn report(&self, report: &Report, reused_tokens: usize) -> anyhow::Result<()> {
        if self.out.json {
            let turn = self.conversation.turns.len() + 1;
            let turns_left_out = self.conversation.left_out;
            return self.out.object_line(&TurnReport { turn, reused_tokens, turns_left_out, report });
        }
        if self.out.verbose > 0 {
            let computed = report.prompt_tokens() - reused_tokens;
            self.out.note(&format!("prompt: {reused_tokens} tokens reused, {computed} computed"));
            report.lines().iter().for_each(|l| self.out.note(l));
        } else if self.view.live && self.person && !self.out.quiet {
            self.out.err(&report.summary());
        }
        Ok(())
    }

    /// Token ids of the conversation and the question. Leaves out old turns where they do not fit, if that is
    /// wanted.
    fn prompt(&mut self, question: &str) -> anyhow::Result<Vec<u32>> {
        let (shape, context) = (self.model.shape(), self.generate.context_len(&self.model));
        let (sampler, _) = self.generate.sampling(&self.model, Task::Conversation)?;
        let slide = self.generate.ctx_overflow == CtxOverflow::Slide;
        // Room for the answer in whole canvases, with what the sampler keeps for itself: what is asked for; else at
        // least one, and where old turns may go, what an answer has by default but not more than half of the context.
        let tokens = match self.generate.max_tokens {
            Some(n) => n,
            None if slide => default_max_tokens(shape, sampler, context / 2, 0),
            None => 1,
        };
        let answer = |prompt| shape.canvases(prompt, tokens).total().saturating_add(shape.reserved(sampler));
        let (model, prompter, conversation) = (&self.model, &self.prompter, &self.conversation);
        let ids = |left_out| prompter.ids(&conversation.messages(left_out, question), model);
        let mut longest = 0;
        let mut fits = |left_out| -> anyhow::Result<bool> {
            let n = ids(left_out)?.len();
            longest = longest.max(n);
            Ok(n.saturating_add(answer(n)) <= context)
        };
        let (before, turns) = (conversation.left_out, conversation.turns.len());
        // What was left out stays out: the shorter conversation is computed already.
        let left_out = match slide {
            true => turns_to_drop(turns - before + 1, |n| fits(before + n))?.map(|n| before + n),
            false => fits(0)?.then_some(0),
        };
        let Some(left_out) = left_out else {
            let error = anyhow::Error::new(Error::ContextOverflow {
                prompt: longest,
                answer: answer(longest),
                context,
            });
            return Err(match turns {
                0 => error,
                _ if slide => error.context("the question alone is too long"),
                _ => error.context(
                    "the conversation has become too long (/undo and /clear shorten it, --ctx-overflow slide \
                     leaves out its oldest turns)",
                ),
            });
        };
        let ids = ids(left_out)?;
        if left_out > before {
            self.out.warn(&format!(
                "the context of {context} is full: the oldest {left_out} of {turns} turns are left out"
            ));
        }
        self.conversation.left_out = left_out;
        Ok(ids)
    }
}

fn turns(conversation: &Conversation) -> String {
    match conversation.turns.len() {
        1 => "1 turn".into(),
        n => format!("{n} turns"),
    }
}
