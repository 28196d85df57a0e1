//! The `redraft` program.

mod args;
mod cmd;
mod exit;
mod interrupt;
mod model;
mod out;
mod ui;
mod version;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::exit::Exit;
use crate::out::Out;

fn main() -> ExitCode {
    restore_terminal_on_panic();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help goes to stdout, which nobody may be reading any more.
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Done }.code().into();
        }
    };
    let out = Out::new(cli.json, cli.verbose, cli.quiet);
    if let Err(e) = redraft::gguf::guard_maps() {
        out.warn(&format!("a model file that is cut short while it is in use will end this program: {e}"));
    }
    let done = match cli.command {
        _ if cli.version => version::print(out),
        None => Err(anyhow::anyhow!("there is no command: `redraft --help` lists them")),
        Some(Command::Run(args)) => cmd::run::main(&args, out),
        Some(Command::Inspect(args)) => cmd::inspect::main(&args, out),
        Some(Command::Tokenize(args)) => cmd::tokenize::tokenize(&args, out),
        Some(Command::Detokenize(args)) => cmd::tokenize::detokenize(&args, out),
        Some(Command::Trace(args)) => cmd::trace::main(&args, out),
        Some(Command::Compare(args)) => cmd::compare::main(&args, out),
        Some(Command::Synth(args)) => cmd::synth::main(&args, out),
    };
    let exit = done.unwrap_or_else(|e| {
        let exit = Exit::of(&e);
        if exit != Exit::Done {
            out.err(&format!("error: {}", exit::message(&e)));
        }
        exit
    });
    exit.code().into()
}

/// A panic must not leave the terminal without a cursor.
fn restore_terminal_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        ui::hold::restore();
        default(info);
    }));
}
