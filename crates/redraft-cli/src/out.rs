//! Everything that the program writes goes through here: answers and reports to stdout, everything else to
//! stderr. What comes from models and files reaches a terminal only without control characters.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::ui::text::printable;

/// Where the output goes and how much of it is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    /// The report is one JSON object.
    pub(crate) json: bool,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// Errors only on stderr.
    pub(crate) quiet: bool,
    /// stdout is a terminal.
    pub(crate) terminal: bool,
    /// stderr is a terminal.
    pub(crate) err_terminal: bool,
}

/// Nobody reads stdout any more, such as `head` after its last line. Not an error.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

impl std::fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stdout is closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// An error while writing to stdout.
pub(crate) fn stdout_error(e: io::Error) -> anyhow::Error {
    if e.kind() == io::ErrorKind::BrokenPipe {
        return anyhow::Error::new(StdoutClosed);
    }
    anyhow::Error::new(e).context(CANNOT_WRITE)
}

/// Whether an error is one of stdout.
pub(crate) fn is_stdout_error(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| cause.is::<StdoutClosed>() || cause.to_string() == CANNOT_WRITE)
}

const CANNOT_WRITE: &str = "cannot write to stdout";

impl Out {
    /// For the streams of this process.
    pub(crate) fn new(json: bool, verbose: u8, quiet: bool) -> Out {
        let (terminal, err_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Out { json, verbose, quiet, terminal, err_terminal }
    }

    /// Text for stdout, as it is into a pipe.
    pub(crate) fn text(self, text: &str) -> anyhow::Result<()> {
        let text = if self.terminal { printable(text) } else { text.into() };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_error)
    }

    /// A report: one JSON object, indented for people.
    pub(crate) fn object<T: Serialize>(self, report: &T) -> anyhow::Result<()> {
        let pretty = self.terminal;
        self.json_text(if pretty {
            serde_json::to_string_pretty(report)?
        } else {
            serde_json::to_string(report)?
        })
    }

    /// One of several reports: a JSON object on a line of its own.
    pub(crate) fn object_line<T: Serialize>(self, report: &T) -> anyhow::Result<()> {
        self.json_text(serde_json::to_string(report)?)
    }

    fn json_text(self, mut text: String) -> anyhow::Result<()> {
        text.push('\n');
        // JSON escapes the C0 controls; DEL and the C1 controls, which may stand in strings only, it does not.
        let control = |c: char| ('\x7f'..='\u{9f}').contains(&c);
        if text.contains(control) {
            let escape = |c: char| if control(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
            text = text.chars().map(escape).collect();
        }
        self.text(&text)
    }

    /// A warning, one line.
    pub(crate) fn warn(self, text: &str) {
        if !self.quiet {
            self.err(&format!("warning: {text}"));
        }
    }

    /// Something to know, with `-v`.
    pub(crate) fn note(self, text: &str) {
        if self.verbose > 0 && !self.quiet {
            self.err(text);
        }
    }

    /// A line on stderr. What it quotes is made printable even into a file, which people look at in terminals.
    pub(crate) fn err(self, text: &str) {
        // There is no place left to report that stderr cannot be written to.
        let _ = writeln!(io::stderr().lock(), "{}", printable(text));
    }

    /// Whether progress of file work of this size is shown.
    pub(crate) fn shows_progress(self, bytes: u64) -> bool {
        !self.quiet && self.err_terminal && (bytes > 1 << 30 || self.verbose > 0)
    }
}
