//! The program as its users see it: the built binary on tiny models.

mod batch;
mod bench;
mod chat;
#[path = "../../../redraft/tests/convert/checkpoint.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "helpers of another suite")]
mod checkpoint;
mod compare;
mod convert;
mod devices;
mod diagnose;
mod doctor;
mod files;
mod fill;
mod inspect;
mod masks;
mod program;
mod quantize;
mod recorded;
mod run;
#[cfg(unix)]
mod serve;
mod structured;
mod synth;
#[cfg(unix)]
mod terminal;
mod tokenize;
mod trace;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A file of the repository's test data.
fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// A DiffusionGemma model of two layers with a canvas of 16.
fn mini() -> String {
    testdata("oracle/models/dg-mini.F32.gguf").display().to_string()
}

/// Variables of the environment that the program knows.
fn own_settings() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("REDRAFT_") || key == "NO_COLOR")
}

/// The program with arguments, without stdin and without the environment's settings.
fn command(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_redraft"));
    own_settings().for_each(|(key, _)| {
        c.env_remove(key);
    });
    c.args(args).stdin(Stdio::null());
    c
}

/// What a run of the program gave.
struct Done {
    code: Option<i32>,
    out: String,
    /// Without the warning about the vocabulary of [`mini`].
    err: String,
    /// How often that warning was there.
    vocabulary_warnings: usize,
}

/// The vocabulary of [`mini`] types markers as user-defined, as published files do, and each command that reads
/// it says so.
const VOCABULARY_WARNING: &str = "warning: markers of the chat are typed as text in the file: ";

impl From<Output> for Done {
    fn from(o: Output) -> Done {
        let text = |b: Vec<u8>| String::from_utf8(b).expect("output is UTF-8");
        let err = text(o.stderr);
        let (known, others): (Vec<&str>, Vec<&str>) =
            err.split_inclusive('\n').partition(|line| line.starts_with(VOCABULARY_WARNING));
        Done {
            code: o.status.code(),
            out: text(o.stdout),
            err: others.concat(),
            vocabulary_warnings: known.len(),
        }
    }
}

fn redraft(args: &[&str]) -> Done {
    command(args).output().expect("the program starts").into()
}

/// A run that must succeed; its stdout.
fn ok(args: &[&str]) -> String {
    let done = redraft(args);
    assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
    done.out
}

/// A run with `--json` that must succeed.
fn json(args: &[&str]) -> Value {
    let out = ok(&[args, &["--json"]].concat());
    assert_eq!(out.matches('\n').count(), 1, "one object on one line");
    serde_json::from_str(&out).expect("stdout is JSON")
}

/// A run with something on stdin.
fn with_stdin(args: &[&str], input: &str) -> Done {
    use std::io::Write as _;
    let mut c = command(args);
    let mut child = c
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    // A program that does not want its stdin closes it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends").into()
}
