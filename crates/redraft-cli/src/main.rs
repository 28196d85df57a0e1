//! The `redraft` program.

mod answer;
mod args;
mod cmd;
mod exit;
mod files;
mod interrupt;
mod model;
mod out;
mod trace_metadata;
mod ui;
mod version;

use std::process::ExitCode;

use crate::args::Command;
use crate::exit::Exit;
use crate::out::Out;

fn main() -> ExitCode {
    restore_terminal_on_panic();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let out = Out::new(cli.json, cli.verbose, cli.quiet);
    if let Err(e) = redraft::gguf::guard_maps() {
        out.warn(&format!("a model file that is cut short while it is in use will end this program: {e}"));
    }
    let done = match cli.command {
        _ if cli.version => version::print(out),
        None => Err(anyhow::anyhow!("there is no command: `redraft --help` lists them")),
        Some(Command::Run(args)) => cmd::run::main(&args, out),
        Some(Command::Chat(args)) => cmd::chat::main(&args, out),
        Some(Command::Fill(args)) => cmd::fill::main(&args, out),
        Some(Command::Serve(args)) => cmd::serve::main(&args, out),
        Some(Command::Batch(args)) => cmd::batch::main(&args, out),
        Some(Command::Inspect(args)) => cmd::inspect::main(&args, out),
        Some(Command::Doctor(args)) => cmd::doctor::main(&args, out),
        Some(Command::Devices(args)) => cmd::devices::main(&args, out),
        Some(Command::Selftest(args)) => cmd::selftest::main(&args, out),
        Some(Command::Tokenize(args)) => cmd::tokenize::tokenize(&args, out),
        Some(Command::Detokenize(args)) => cmd::tokenize::detokenize(&args, out),
        Some(Command::Trace(args)) => cmd::trace::main(&args, out),
        Some(Command::Compare(args)) => cmd::compare::main(&args, out),
        Some(Command::Diagnose(args)) => cmd::diagnose::main(&args, out),
        Some(Command::Replay(args)) => cmd::replay::main(&args, out),
        Some(Command::Verify(args)) => cmd::verify::main(&args, out),
        Some(Command::Convert(args)) => cmd::convert::main(&args, out),
        Some(Command::Synth(args)) => cmd::synth::main(&args, out),
        Some(Command::Quantize(args)) => cmd::quantize::main(&args, out),
        Some(Command::Bench(args)) => cmd::bench::main(&args, out),
    };
    done.unwrap_or_else(|e| failed(&e, out)).code().into()
}

/// Reports an error, unless it is none. Returns what it means.
fn failed(e: &anyhow::Error, out: Out) -> Exit {
    let exit = Exit::of(e);
    if exit != Exit::Done {
        out.err(&format!("error: {}", exit::message(e)));
    }
    exit
}

/// What the command line's parser has to say: help, or what is wrong.
fn usage(e: &clap::Error) -> ExitCode {
    if !e.use_stderr() {
        return match e.print().map_err(out::stdout_error) {
            Ok(()) => Exit::Done,
            Err(e) => failed(&e, Out::new(false, 0, false)),
        }
        .code()
        .into();
    }
    // It quotes the arguments, which may come from anywhere.
    let mut text = e.render().to_string();
    if a_question(e) {
        text.push_str("\n  tip: a question goes to a command: redraft run \"What is 7 + 8?\"\n");
    }
    if several_words(e) {
        text.push_str("\n  tip: several words are one argument in quotes: redraft run \"What is 7 + 8?\"\n");
    }
    Out::new(false, 0, false).err(text.trim_end());
    Exit::Usage.code().into()
}

/// Whether there are words where a command should be.
fn a_question(e: &clap::Error) -> bool {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let words = |v: &ContextValue| matches!(v, ContextValue::String(s) if s.trim().contains(' '));
    e.kind() == ErrorKind::InvalidSubcommand && e.get(ContextKind::InvalidSubcommand).is_some_and(words)
}

/// Whether an argument too many is a word, and not a flag.
fn several_words(e: &clap::Error) -> bool {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let word = |v: &ContextValue| matches!(v, ContextValue::String(s) if !s.starts_with('-'));
    let asks = std::env::args_os().any(|a| ["run", "fill", "trace", "tokenize"].iter().any(|c| a == *c));
    e.kind() == ErrorKind::UnknownArgument && asks && e.get(ContextKind::InvalidArg).is_some_and(word)
}

/// A panic must not leave the terminal without a cursor.
fn restore_terminal_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        ui::hold::restore();
        default(info);
    }));
}
