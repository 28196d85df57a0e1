//! Exit codes, and what an error means for them.

use redraft::Error;
use redraft::compute::ComputeError;
use redraft::gguf::GgufError;
use redraft::synth::SynthError;

use crate::out::StdoutClosed;
use crate::ui::text::shortened;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Done,
    /// 1: done, and the honest answer is "no".
    No,
    /// 2: wrong usage or input that cannot be used.
    Usage,
    /// 3: the machine cannot: memory, disk, device.
    Machine,
    /// 130: stopped by the user.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Machine => 3,
            Exit::Interrupted => 130,
        }
    }

    /// What an error means.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.chain().find_map(of_cause).unwrap_or(Exit::Usage)
    }
}

/// Decides where a cause decides by itself.
fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<StdoutClosed>() {
        return Some(Exit::Done);
    }
    if let Some(e) = cause.downcast_ref::<std::io::Error>() {
        use std::io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
        let full = matches!(e.kind(), OutOfMemory | StorageFull | QuotaExceeded | FileTooLarge);
        return full.then_some(Exit::Machine);
    }
    if let Some(e) = cause.downcast_ref::<ComputeError>() {
        return of_compute(e);
    }
    match cause.downcast_ref::<SynthError>() {
        Some(SynthError::NoSpace { .. }) => return Some(Exit::Machine),
        Some(SynthError::Interrupted) => return Some(Exit::Interrupted),
        _ => {}
    }
    if let Some(GgufError::Memory { .. }) = cause.downcast_ref() {
        return Some(Exit::Machine);
    }
    match cause.downcast_ref::<Error>()? {
        Error::Interrupted => Some(Exit::Interrupted),
        Error::Compute(e) => of_compute(e),
        Error::Gguf(GgufError::Memory { .. }) | Error::Memory { .. } | Error::Approximate { .. } => {
            Some(Exit::Machine)
        }
        _ => None,
    }
}

fn of_compute(e: &ComputeError) -> Option<Exit> {
    match e {
        ComputeError::OutOfMemory { .. } => Some(Exit::Machine),
        // A level of instructions that this processor does not have.
        ComputeError::Unavailable { what: "CPU level" | "device", .. } | ComputeError::Device { .. } => {
            Some(Exit::Machine)
        }
        ComputeError::Interrupted => Some(Exit::Interrupted),
        _ => None,
    }
}

/// Characters of a line of a message. What an error quotes may be as long as the file that it is from.
const LONGEST_LINE: usize = 1000;

/// The error and its causes in one line; a cause that its predecessor already tells is left out.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !parts.last().is_some_and(|p| p.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ").lines().map(|l| shortened(l, LONGEST_LINE)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use super::*;

    #[test]
    fn errors_have_codes() {
        let out_of_memory = ComputeError::OutOfMemory { what: "x".into(), bytes: 9 };
        let no_memory = || GgufError::Memory { path: "f".into(), needed: 2, available: 1, refused: None };
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let cases = [
            (anyhow::anyhow!("no prompt"), 2),
            (Error::Interrupted.into(), 130),
            (Error::Compute(out_of_memory).into(), 3),
            (Error::Io { path: "f".into(), source: full }.into(), 3),
            (Error::Io { path: "f".into(), source: missing }.into(), 2),
            (StdoutClosed.into(), 0),
            (Error::Gguf(no_memory()).into(), 3),
            (no_memory().into(), 3),
        ];
        for (error, code) in cases {
            let error = Err::<(), _>(error).context("while trying").unwrap_err();
            assert_eq!(Exit::of(&error).code(), code, "{error:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let e = anyhow::anyhow!("short\n{}\nshort", "é".repeat(5000));
        let want = format!("short\n{}… (10000 bytes)\nshort", "é".repeat(LONGEST_LINE));
        assert_eq!(message(&e), want);
    }

    #[test]
    fn a_cause_is_told_once() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let e = anyhow::Error::new(Error::Io { path: "a.gguf".into(), source }).context("the trace");
        assert_eq!(message(&e), "the trace: a.gguf: no such file");
    }
}
