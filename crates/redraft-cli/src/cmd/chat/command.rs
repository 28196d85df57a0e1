//! The commands of a conversation: lines that start with a slash.

use std::path::PathBuf;

use crate::args::generate::Seed;

/// A line that starts with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Clear,
    /// Without a value it is shown.
    Seed(Option<Seed>),
    /// Parameter and value; without a value all are shown.
    Set(Option<(String, String)>),
    Save {
        path: PathBuf,
        overwrite: bool,
    },
    Load(PathBuf),
    Regenerate(Option<Seed>),
    Undo,
    /// A message by its number in the history, and its new text where that is given at once.
    Edit(usize, Option<String>),
    /// A new system message; an empty one is none. Without a value it is shown.
    System(Option<String>),
    History,
    Exit,
}

/// Name, what follows it, what it does.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "this list"),
    ("history", "", "the messages so far, with their numbers"),
    ("regenerate", "[SEED|random]", "answer the last question again, with the next seed or this one"),
    ("undo", "", "take back the last question and its answer"),
    ("edit", "N [TEXT]", "change message N; what came after it is dropped, a question is answered anew"),
    ("system", "[TEXT|-]", "show or set the system message; - removes it"),
    ("seed", "[SEED|random]", "show or set the seed of the answers to come"),
    ("steps", "[N]", "show or set the steps of a canvas"),
    ("set", "[NAME VALUE]", "show or set parameters of the sampler"),
    ("save", "FILE", "write the conversation as JSON; /save! overwrites"),
    ("load", "FILE", "go on with a saved conversation"),
    ("clear", "", "begin a new conversation"),
    ("exit", "", "end, as does Ctrl-D"),
];

/// The list of commands.
pub(super) fn help() -> String {
    let usage = |c: &(&str, &str, &str)| format!("/{} {}", c.0, c.1);
    let width = COMMANDS.iter().map(|c| usage(c).len()).max().unwrap_or(0);
    let line = |c| format!("  {:width$}  {}\n", usage(c), c.2);
    COMMANDS.iter().map(line).collect::<String>()
        + "\nA \\ at the end of a line goes on in the next one; a pasted text may have many lines. A message that \
           begins with / is written with //.\nCtrl-C stops an answer; what of it is final is kept."
}

impl Command {
    /// Reads what follows the slash.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub(super) fn parse(line: &str) -> Result<Command, String> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let given = (!rest.is_empty()).then_some(rest);
        let seed = || given.map(|s| s.parse().map_err(|e| format!("/{name} {s}: {e}"))).transpose();
        let file = || given.map(PathBuf::from).ok_or_else(|| format!("/{name} needs the name of a file"));
        let command = match name {
            "help" | "?" => Command::Help,
            "clear" | "new" => Command::Clear,
            "seed" => Command::Seed(seed()?),
            "regenerate" | "retry" => Command::Regenerate(seed()?),
            "steps" => Command::Set(given.map(|n| ("steps".into(), n.into()))),
            "set" => Command::Set(match given.map(|s| s.split_once(char::is_whitespace)) {
                None => None,
                Some(Some((name, value))) => Some((name.into(), value.trim().into())),
                Some(None) => return Err(format!("/set {rest}: there is no value")),
            }),
            "save" => Command::Save { path: file()?, overwrite: false },
            "save!" => Command::Save { path: file()?, overwrite: true },
            "load" => Command::Load(file()?),
            "undo" => Command::Undo,
            "edit" => {
                let (number, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let n = number.parse().map_err(|_| {
                    format!("/edit needs the number of a message, as /history shows it; found `{number}`")
                })?;
                Command::Edit(n, Some(text.trim()).filter(|t| !t.is_empty()).map(String::from))
            }
            "system" => Command::System(given.map(|t| if t == "-" { String::new() } else { t.into() })),
            "history" => Command::History,
            "exit" | "quit" | "bye" => Command::Exit,
            _ => {
                return Err(format!(
                    "there is no command /{name}: /help lists them; a message that begins with / is written with //"
                ));
            }
        };
        let alone = matches!(
            command,
            Command::Help | Command::Clear | Command::Undo | Command::History | Command::Exit
        );
        match given {
            Some(_) if alone => Err(format!("/{name} takes nothing after it, found `{rest}`")),
            _ => Ok(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let ok: &[(&str, Command)] = &[
            ("help", Command::Help),
            ("seed", Command::Seed(None)),
            ("seed 7", Command::Seed(Some(Seed::Fixed(7)))),
            ("seed  random ", Command::Seed(Some(Seed::Random))),
            ("regenerate", Command::Regenerate(None)),
            ("steps 12", Command::Set(Some(("steps".into(), "12".into())))),
            ("set", Command::Set(None)),
            ("set t-min  0.5", Command::Set(Some(("t-min".into(), "0.5".into())))),
            ("save a b.json", Command::Save { path: "a b.json".into(), overwrite: false }),
            ("save! a.json", Command::Save { path: "a.json".into(), overwrite: true }),
            ("edit 3", Command::Edit(3, None)),
            ("edit 3 new\ntext", Command::Edit(3, Some("new\ntext".into()))),
            ("system Be brief.", Command::System(Some("Be brief.".into()))),
            ("system -", Command::System(Some(String::new()))),
            ("quit", Command::Exit),
        ];
        for (line, want) in ok {
            assert_eq!(Command::parse(line).as_ref(), Ok(want), "{line}");
        }
        let wrong = [
            ("seed -1", "whole number"),
            ("save", "needs the name of a file"),
            ("edit", "needs the number of a message"),
            ("edit x y", "found `x`"),
            ("set steps", "no value"),
            ("clear all", "takes nothing"),
            ("frob", "no command /frob"),
            ("", "no command /:"),
        ];
        for (line, part) in wrong {
            assert!(Command::parse(line).is_err_and(|e| e.contains(part)), "{line}");
        }
    }

    #[test]
    fn help_names_every_command_that_exists() {
        for (name, ..) in COMMANDS {
            assert!(help().contains(&format!("  /{name} ")), "{name}");
            let line = format!("{name} 1 2");
            assert!(!Command::parse(&line).is_err_and(|e| e.contains("no command")), "{name}");
        }
    }
}
