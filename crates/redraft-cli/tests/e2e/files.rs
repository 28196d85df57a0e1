//! What the program does about files that are damaged, change or do not fit.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use redraft::gguf::Gguf;

use crate::{command, mini, redraft};

/// A copy of the small model with some bytes of a tensor replaced.
fn damaged(dir: &std::path::Path, tensor: &str, at: usize, bytes: &[u8]) -> String {
    let file = Gguf::open(std::path::Path::new(&mini()), &Default::default()).unwrap();
    let mut copy = file.bytes().to_vec();
    let at = file.tensor(tensor).unwrap().offset as usize + at;
    copy[at..at + bytes.len()].copy_from_slice(bytes);
    let path = dir.join("damaged.gguf");
    std::fs::write(&path, copy).unwrap();
    path.display().to_string()
}

#[test]
fn a_damaged_weight_ends_with_2_and_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for tensor in ["token_embd.weight", "blk.0.attn_norm.weight", "rope_freqs.weight"] {
        let path = damaged(dir.path(), tensor, 0, &f32::NAN.to_le_bytes());
        let done = redraft(&["run", "-m", &path, "-n", "16", "--steps", "2", "Hello"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{tensor}: {}", done.err);
        assert!(done.err.contains(tensor) && done.err.contains("NaN"), "{tensor}: {}", done.err);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_cut_short_while_it_is_in_use_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::copy(mini(), &path).unwrap();
    let name = path.display().to_string();
    // A canvas that never converges, in steps of milliseconds.
    let args = ["run", "-m", &name, "-v", "-n", "480", "--steps", "4096", "--confidence", "0", "Hello"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("prompt tokens") {
        assert!(err.read_line(&mut seen).unwrap() > 0, "ended early: {seen}");
    }
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let status = child.wait().unwrap();
    err.read_to_string(&mut seen).unwrap();
    assert_eq!(status.code(), Some(2), "{seen}");
    let said = seen.lines().last().unwrap();
    let want =
        format!("error: {name} was cut short while it was in use: expected 3757728 bytes, found 1048576");
    assert!(said.starts_with(&want), "{seen}");
}

/// The same on a terminal: it is left in order.
#[cfg(unix)]
#[test]
fn a_cut_file_leaves_the_terminal_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::copy(mini(), &path).unwrap();
    let name = path.display().to_string();
    let args =
        ["run", "-m", &name, "--live", "always", "-n", "480", "--steps", "4096", "--confidence", "0", "Hi"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = Vec::new();
    while !seen.ends_with(b"\x1b[?2026l") {
        assert!(out.read_until(b'l', &mut seen).unwrap() > 0, "ended early");
    }
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    out.read_to_end(&mut seen).unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "the cursor comes back");
}

/// A file with a hole of terabytes takes no disk.
#[test]
fn a_file_that_does_not_fit_into_memory_ends_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.gguf");
    std::fs::copy(mini(), &path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    if file.set_len(8 << 40).is_err() {
        return; // a file system with smaller files
    }
    let name = path.display().to_string();
    let done = redraft(&["run", "-m", &name, "--no-mmap", "-n", "16", "Hello"]);
    assert_eq!(done.code, Some(3), "{}", done.err);
    assert!(
        done.err.contains("does not fit into memory: reading it takes 8796093022208 bytes"),
        "{}",
        done.err
    );
    // Mapped, only what is needed is touched.
    let done = redraft(&["inspect", &name]);
    assert_eq!(done.code, Some(0), "{}", done.err);
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    for flag in ["--trace", "--receipt"] {
        for (path, part) in
            [(dir.path().display().to_string(), "is a folder"), (at("no/x"), "there is no folder")]
        {
            let done = redraft(&["run", "-m", &mini(), flag, &path, "x"]);
            assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
            assert!(done.err.contains(part) && done.err.contains(&path), "{}", done.err);
        }
    }
    let done = redraft(&["run", "-m", &mini(), "--trace", &at("one"), "--receipt", &at("./one"), "x"]);
    assert!(done.code == Some(2) && done.err.contains("another output"), "{}", done.err);
    let done = redraft(&["replay", "/dev/zero"]);
    #[cfg(unix)]
    assert!(done.code == Some(2) && done.err.contains("no regular file"), "{}", done.err);
    let done = redraft(&["tokenize", "--compare", "/dev/zero"]);
    #[cfg(unix)]
    assert!(done.code == Some(2) && done.err.contains("no regular file"), "{}", done.err);
}

/// A model file or notes in the place of a result are not lost, and neither is what another command made.
#[test]
fn a_result_does_not_take_the_place_of_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::copy(mini(), at("model.gguf")).unwrap();
    let before = std::fs::read(at("model.gguf")).unwrap();
    std::fs::write(at("notes.txt"), "notes").unwrap();
    let (model, notes, m) = (at("model.gguf"), at("notes.txt"), mini());
    let run = ["run", "-m", &m, "-n", "4", "--steps", "2", "x"];
    for there in [&model, &notes] {
        for command in [
            &["trace", "-m", &m, "-o", there, "x"][..],
            &["trace", "-m", &m, "--imatrix", there, "x"],
            &["bench", "-m", &m, "--html", there],
            &[&run[..], &["--trace", there]].concat(),
            &[&run[..], &["--receipt", there]].concat(),
        ] {
            let done = redraft(command);
            assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{command:?}: {}", done.err);
            assert!(done.err.contains("exists and is not"), "{command:?}: {}", done.err);
        }
    }
    assert_eq!(std::fs::read(&model).unwrap(), before);
    assert_eq!(std::fs::read(&notes).unwrap(), b"notes");
    // Their own kind is replaced.
    let (trace, receipt, imatrix) = (at("t.safetensors"), at("r.json"), at("i.gguf"));
    for _ in 0..2 {
        crate::ok(&[&run[..], &["--trace", &trace, "--receipt", &receipt]].concat());
        crate::ok(&["trace", "-q", "-m", &m, "-n", "4", "--steps", "2", "--imatrix", &imatrix, "x"]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5, "nothing else is left");
    // An input under another name.
    #[cfg(unix)]
    {
        let link = at("link.gguf");
        std::fs::hard_link(&model, &link).unwrap();
        let done = redraft(&["quantize", &model, &link, "--type", "q8_0", "--force"]);
        assert!(done.code == Some(2) && done.err.contains("also an input"), "{}", done.err);
        let done = redraft(&["doctor", &model, "--fix", &link, "--force"]);
        assert!(done.code == Some(2) && done.err.contains("also an input"), "{}", done.err);
        let done = redraft(&["trace", "-m", &m, "-o", "/dev/null", "x"]);
        assert!(done.code == Some(2) && done.err.contains("no regular file"), "{}", done.err);
    }
}
