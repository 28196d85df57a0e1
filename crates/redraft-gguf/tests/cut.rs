//! A file that is cut short while it is mapped and read is an error, not the end of the process.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests; the child speaks to its parent"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use redraft_gguf::{Bytes, DType, Gguf, GgufError, GgufWriter, OpenOptions, guard_maps};

const LEN: u64 = 1 << 20;

fn child(test: &str, path: &Path) -> Command {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env("REDRAFT_TEST_FILE", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

/// Runs a test in a child process, cuts the file when the child has mapped it, and returns how the child ended
/// and what it wrote.
fn cut_while_in_use(test: &str) -> (std::process::ExitStatus, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut w = GgufWriter::new();
    w.add_tensor("t", &[LEN], DType::I8).unwrap();
    let mut out = w.begin(Vec::new()).unwrap();
    out.write_tensor("t", &vec![1; LEN as usize]).unwrap();
    std::fs::write(&path, out.finish().unwrap()).unwrap();

    let mut child = child(test, &path).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("mapped") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the child ended before it had mapped the file");
    }
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
    child.stdin.take().unwrap().write_all(b"cut\n").unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    (child.wait().unwrap(), rest)
}

/// Maps the file, waits until it is cut, and reads all of it.
fn read_all(guarded: bool) {
    let Some(path) = std::env::var_os("REDRAFT_TEST_FILE") else { return };
    if guarded {
        guard_maps().unwrap();
        guard_maps().unwrap();
    }
    let path = Path::new(&path);
    let gguf = Gguf::open(path, &OpenOptions::default()).unwrap();
    let again = Bytes::open(path, &OpenOptions::default()).unwrap();
    let t = gguf.tensor_bytes(&gguf.tensors()[0]);
    println!("mapped");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for _ in 0..2 {
        let sum: u64 = t.iter().map(|&b| u64::from(b)).sum();
        println!("sum {}", sum < LEN && sum > 0);
        println!("again {}", again[100_000..].iter().all(|&b| b == 0));
    }
    let e = gguf.check().unwrap_err();
    println!("cut {}", matches!(e, GgufError::FileCut { found: 10_000, .. }));
    // A file that is long enough again is not what it was.
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(2 * LEN).unwrap();
    let e = gguf.check().unwrap_err();
    println!("lost {}", matches!(e, GgufError::FileLost { .. }));
    drop((gguf, t, again));
    let whole = Bytes::open(path, &OpenOptions::default()).unwrap();
    println!("fresh {}", whole.check().is_ok());
}

#[test]
#[ignore = "the child of a_guarded_process_goes_on"]
fn guarded_child() {
    read_all(true);
}

#[test]
#[ignore = "the child of without_the_guard_the_system_ends_the_process"]
fn unguarded_child() {
    read_all(false);
}

#[test]
#[ignore = "the child of other_faults_are_handled_as_before"]
fn foreign_fault_child() {
    let Some(path) = std::env::var_os("REDRAFT_TEST_FILE") else { return };
    guard_maps().unwrap();
    let _ours = Bytes::open(Path::new(&path), &OpenOptions::default()).unwrap();
    println!("mapped");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let pid = std::process::id().to_string();
    for _ in 0..100 {
        Command::new("kill").args(["-BUS", &pid]).status().unwrap();
    }
    println!("alive");
}

#[test]
fn a_guarded_process_goes_on() {
    let (status, out) = cut_while_in_use("guarded_child");
    assert!(status.success(), "{status}: {out}");
    for line in ["sum true", "again true", "cut true", "lost true", "fresh true"] {
        assert!(out.contains(line), "{line} is not in: {out}");
    }
    assert!(!out.contains("false"), "{out}");
}

/// What the guard is for; shows that the test above tests it.
#[test]
fn without_the_guard_the_system_ends_the_process() {
    use std::os::unix::process::ExitStatusExt as _;
    let (status, out) = cut_while_in_use("unguarded_child");
    assert!(status.signal().is_some() && !out.contains("sum"), "{status}: {out}");
}

#[test]
fn other_faults_are_handled_as_before() {
    use std::os::unix::process::ExitStatusExt as _;
    let (status, out) = cut_while_in_use("foreign_fault_child");
    assert!(status.signal().is_some() && !out.contains("alive"), "{status}: {out}");
}
