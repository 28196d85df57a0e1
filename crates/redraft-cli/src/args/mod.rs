//! The command line. Help texts are the documentation; values come from built-in defaults, then from
//! `REDRAFT_*` environment variables, then from flags.

pub(crate) mod constrain;
pub(crate) mod generate;
pub(crate) mod live;
pub(crate) mod model;
pub(crate) mod prompt;
pub(crate) mod sampler;
pub(crate) mod together;

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

use crate::cmd;

/// Run, inspect and check text-diffusion language models.
///
/// A diffusion model writes a whole block of text (a canvas) at once and refines it over a few steps. On a
/// terminal you can watch it do so. Without -m the commands use redraft-tiny, a small demo model that is
/// inside this program.
#[derive(Debug, Parser)]
#[command(
    name = "redraft",
    bin_name = "redraft",
    disable_version_flag = true,
    subcommand_required = false,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Examples:\n  \
        redraft run \"What is the capital of France?\"\n  \
        redraft run -m model.gguf -v \"Sort 4, 1, 3 in ascending order.\"\n  \
        redraft chat\n  \
        redraft fill --prompt \"55 + 68\" \"55 + [[]] = 123\"\n  \
        redraft inspect model.gguf\n\n\
        Exit codes: 0 done, 1 the honest answer is no, 2 usage or bad input, 3 the machine cannot (memory, \
        disk, device), 130 interrupted."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Print the version, with no command after it; with -v also what this program was built with.
    #[arg(short = 'V', long)]
    pub(crate) version: bool,

    /// Print one JSON object on stdout instead of text for people.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Say more on stderr: seed, backend, timings, progress.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,

    /// Say nothing on stderr but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Output")]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<cmd::run::Args>),
    Chat(Box<cmd::chat::Args>),
    Fill(Box<cmd::fill::Args>),
    Serve(Box<cmd::serve::Args>),
    Batch(Box<cmd::batch::Args>),
    Inspect(cmd::inspect::Args),
    Doctor(cmd::doctor::Args),
    Devices(cmd::devices::Args),
    Selftest(cmd::selftest::Args),
    Tokenize(cmd::tokenize::TokenizeArgs),
    Detokenize(cmd::tokenize::DetokenizeArgs),
    Trace(Box<cmd::trace::Args>),
    Compare(cmd::compare::Args),
    Diagnose(cmd::diagnose::Args),
    Replay(cmd::replay::Args),
    Verify(cmd::verify::Args),
    Convert(cmd::convert::Args),
    Synth(cmd::synth::Args),
    Quantize(Box<cmd::quantize::Args>),
    Bench(Box<cmd::bench::Args>),
}

/// Ids of the arguments that stand on the command line or in the environment, as opposed to defaults. The first field of
/// its struct: each field takes the arguments that it reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    flags: Vec<String>,
    environment: Vec<String>,
}

impl Given {
    /// The first one of a group that is given, by its flag.
    pub(crate) fn first_of(&self, ids: &[&str]) -> Option<String> {
        self.flags
            .iter()
            .find(|id| ids.contains(&id.as_str()))
            .map(|id| format!("--{}", id.replace('_', "-")))
    }

    /// Whether the value of an argument is the environment's. One that does not apply to what is done is left out with a
    /// note; one from a flag is an error.
    pub(crate) fn by_environment(&self, id: &str) -> bool {
        self.environment.iter().any(|e| e == id)
    }

    /// Takes the environment's value of an argument for one that something else says.
    pub(crate) fn forget(&mut self, id: &str) {
        self.environment.retain(|e| e != id);
    }
}

/// What to say of a value of the environment that does not apply.
pub(crate) fn left_out(id: &str, value: impl std::fmt::Display, because: impl std::fmt::Display) -> String {
    format!("{}={value} is left out: {because}", variable(id))
}

/// The variable of the environment for an argument.
pub(crate) fn variable(id: &str) -> String {
    format!("REDRAFT_{}", id.to_uppercase())
}

/// Reads the command line and the environment.
///
/// # Errors
/// What is wrong with them, by the name of the flag or of the variable.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let line: Vec<OsString> = std::env::args_os().map(long_flag).collect();
    Cli::try_parse_from(&line).map_err(|e| name_variable(e, line))
}

/// The flag of several letters that people know from elsewhere, which would be read as `-n gl`.
fn long_flag(arg: OsString) -> OsString {
    if arg == "-ngl" { "--gpu-layers".into() } else { arg }
}

/// An error about a value of the environment is one about its variable, not about a flag that nobody wrote.
fn name_variable<A: Into<OsString> + Clone>(
    mut error: clap::Error,
    line: impl IntoIterator<Item = A>,
) -> clap::Error {
    let wrong = |e: &clap::Error| match e.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => Some(arg.clone()),
        _ => None,
    };
    let Some(arg) = wrong(&error) else { return error };
    // Nothing is wrong with the argument where the environment is not asked.
    let alone = without_environment(Cli::command()).try_get_matches_from(line);
    if alone.is_err_and(|e| wrong(&e).as_ref() == Some(&arg)) {
        return error;
    }
    let mut command = Cli::command();
    command.build();
    if let Some(variable) = variable_of(&command, &arg) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

fn without_environment(command: clap::Command) -> clap::Command {
    let deaf = |arg: clap::Arg| arg.env(Resettable::Reset);
    command.mut_args(deaf).mut_subcommands(without_environment)
}

/// The variable of an argument, by how errors write it.
fn variable_of(command: &clap::Command, arg: &str) -> Option<String> {
    let own = command.get_arguments().find(|a| a.get_env().is_some() && a.to_string() == arg);
    let own = own.and_then(|a| Some(a.get_env()?.to_string_lossy().into_owned()));
    own.or_else(|| command.get_subcommands().find_map(|c| variable_of(c, arg)))
}

impl clap::Args for Given {
    fn augment_args(cmd: clap::Command) -> clap::Command {
        cmd
    }

    fn augment_args_for_update(cmd: clap::Command) -> clap::Command {
        cmd
    }
}

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Given, clap::Error> {
        use clap::parser::ValueSource::{CommandLine, EnvVariable};
        let of = |source| {
            let ids =
                matches.ids().map(clap::Id::as_str).filter(|id| matches.value_source(id) == Some(source));
            ids.map(String::from).collect()
        };
        Ok(Given { flags: of(CommandLine), environment: of(EnvVariable) })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_description_and_examples() {
        for c in Cli::command().get_subcommands() {
            let help = c.clone().render_long_help().to_string();
            assert!(c.get_about().is_some(), "{} has no description", c.get_name());
            assert!(help.contains("Examples:\n  redraft "), "{} has no examples", c.get_name());
        }
    }

    #[test]
    fn every_flag_is_documented() {
        for c in Cli::command().get_subcommands() {
            for a in c.get_arguments() {
                assert!(
                    a.get_help().is_some_and(|h| !h.to_string().is_empty()),
                    "{}: {}",
                    c.get_name(),
                    a.get_id()
                );
            }
        }
    }
}
