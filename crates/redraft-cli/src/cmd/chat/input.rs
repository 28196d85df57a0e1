//! Where the lines of a conversation come from: a line editor on a terminal, stdin elsewhere.

use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler,
    Helper, KeyCode, KeyEvent, Modifiers, Movement, RepeatCount,
};

use super::command::COMMANDS;
use crate::interrupt::Idle;
use crate::ui::hold::Editing;
use crate::ui::text::printable;
use crate::ui::theme::obeys_escape_sequences;

/// Lines that the line editor remembers.
const HISTORY_LINES: usize = 1000;
/// Most bytes of a message from stdin.
const MAX_LINE_BYTES: u64 = 16 << 20;
const PROMPT: &str = "> ";

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// A message or a command.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// Where lines come from.
pub(super) enum Input {
    /// A line editor.
    Editor(Box<LineEditor>),
    /// stdin as it is.
    Lines {
        /// stdin is a terminal, and somebody waits for a prompt.
        prompt: bool,
    },
}

impl Input {
    /// A line editor where stdin and stdout are terminals that can do what it needs, else stdin.
    ///
    /// # Errors
    /// The history file cannot be used.
    pub(super) fn new(history: Option<&Path>, json: bool) -> anyhow::Result<Input> {
        let stdin = std::io::stdin().is_terminal();
        if stdin && std::io::stdout().is_terminal() && obeys_escape_sequences() && !json {
            return Ok(Input::Editor(Box::new(LineEditor::new(history)?)));
        }
        Ok(Input::Lines { prompt: stdin })
    }

    /// The next message or command; `initial` stands in the editor already.
    ///
    /// # Errors
    /// The terminal or stdin cannot be read.
    pub(super) fn next(&mut self, initial: &str) -> anyhow::Result<Typed> {
        let _idle = Idle::new();
        match self {
            Input::Editor(editor) => editor.next(initial),
            Input::Lines { prompt } => {
                if *prompt {
                    // A prompt that cannot be written is not worth an error.
                    let _ = write!(std::io::stderr(), "{PROMPT}");
                }
                let text = message(&mut std::io::stdin().lock())?;
                Ok(text.map_or(Typed::End, Typed::Text))
            }
        }
    }
}

/// The next message: a line, and those after it while they end with a backslash.
fn message(stdin: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut bytes = Vec::new();
    loop {
        let room = MAX_LINE_BYTES.saturating_sub(bytes.len() as u64) + 1;
        let n = stdin.take(room).read_until(b'\n', &mut bytes).context("cannot read stdin")?;
        ensure!(bytes.len() as u64 <= MAX_LINE_BYTES, "a message has more than {MAX_LINE_BYTES} bytes");
        if n == 0 && bytes.is_empty() {
            return Ok(None);
        }
        let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |at| at + 1);
        if n > 0 && bytes[..end].ends_with(b"\\") && bytes.ends_with(b"\n") {
            bytes.truncate(end - 1);
            bytes.push(b'\n');
            continue;
        }
        bytes.truncate(end);
        return Ok(Some(String::from_utf8(bytes).context("a message from stdin is no UTF-8 text")?));
    }
}

/// Line editing with history.
pub(super) struct LineEditor {
    editor: Editor<Rules, FileHistory>,
    history: Option<PathBuf>,
    /// The line at which Ctrl-Z was pressed.
    suspended: Suspended,
}

type Suspended = Arc<Mutex<Option<String>>>;

impl LineEditor {
    fn new(history: Option<&Path>) -> anyhow::Result<LineEditor> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let lines = FileHistory::with_config(&config);
        let mut editor =
            Editor::with_history(config, lines).context("cannot use the terminal for editing")?;
        editor.set_helper(Some(Rules));
        let suspended = Suspended::default();
        #[cfg(unix)]
        editor.bind_sequence(
            KeyEvent::ctrl('Z'),
            EventHandler::Conditional(Box::new(CtrlZ(Arc::clone(&suspended)))),
        );
        editor.bind_sequence(
            KeyEvent(KeyCode::Enter, Modifiers::NONE),
            EventHandler::Conditional(Box::new(NextLine)),
        );
        let history = history.map(Path::to_path_buf);
        if let Some(path) = &history {
            match editor.load_history(path) {
                Err(ReadlineError::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => {}
                other => other.with_context(|| format!("cannot read the history {}", path.display()))?,
            }
        }
        Ok(LineEditor { editor, history, suspended })
    }

    fn next(&mut self, initial: &str) -> anyhow::Result<Typed> {
        let mut initial = printable(initial).into_owned();
        loop {
            let editing = Editing::new();
            let read = self.editor.readline_with_initial(PROMPT, (&initial, ""));
            drop(editing);
            match read {
                Ok(line) => {
                    self.remember(&line)?;
                    return Ok(Typed::Text(line));
                }
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(ReadlineError::Interrupted) => {
                    let line = self.suspended.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let Some(line) = line else { return Ok(Typed::Interrupted) };
                    crate::interrupt::suspend_group();
                    initial = line;
                }
                Err(e) => return Err(anyhow::Error::new(e).context("cannot read the terminal")),
            }
        }
    }

    fn remember(&mut self, line: &str) -> anyhow::Result<()> {
        if !line.trim().is_empty()
            && self.editor.add_history_entry(line)?
            && let Some(path) = &self.history
        {
            let about = || format!("cannot write the history {}", path.display());
            self.editor.append_history(path).with_context(about)?;
        }
        Ok(())
    }
}

/// A backslash at the end goes on in the next line.
struct NextLine;

impl ConditionalEventHandler for NextLine {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let at_end = context.pos() == context.line().len();
        (at_end && context.line().ends_with('\\'))
            .then(|| Cmd::Replace(Movement::BackwardChar(1), Some("\n".into())))
    }
}

/// Ctrl-Z leaves the line editor, so that the terminal is in order while the program is suspended.
#[cfg(unix)]
struct CtrlZ(Suspended);

#[cfg(unix)]
impl ConditionalEventHandler for CtrlZ {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.line().to_string());
        Some(Cmd::Interrupt)
    }
}

/// What the line editor knows of messages and commands.
struct Rules;

impl Helper for Rules {}
impl Highlighter for Rules {}
impl Validator for Rules {}

impl Hinter for Rules {
    type Hint = String;
}

impl Completer for Rules {
    type Candidate = String;

    /// Names of commands.
    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, completions(&line[..pos])))
    }
}

fn completions(start: &str) -> Vec<String> {
    let names = COMMANDS.iter().map(|c| format!("/{} ", c.0));
    if start.starts_with('/') { names.filter(|n| n.starts_with(start)).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_that_a_backslash_joins() {
        let mut stdin = "one\r\n\ntwo\\\nand three\nlast\\".as_bytes();
        let all: Vec<String> = std::iter::from_fn(|| message(&mut stdin).unwrap()).collect();
        assert_eq!(all, ["one", "", "two\nand three", "last\\"]);
        assert!(message(&mut &b"\xff\n"[..]).is_err());
    }

    #[test]
    fn commands_are_completed() {
        assert_eq!(completions("/se"), ["/seed ", "/set "]);
        assert_eq!(completions("/set s"), [""; 0]);
        assert_eq!(completions("seed"), [""; 0]);
    }
}
