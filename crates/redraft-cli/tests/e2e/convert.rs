//! `redraft convert`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use redraft::gguf::Gguf;

use crate::checkpoint::{Files, Style};
use crate::{json, ok, redraft, testdata};

/// A checkpoint of a small model in two shards.
fn folder(dir: &Path, file: &str) -> PathBuf {
    let gguf = Gguf::open(&testdata(file), &Default::default()).unwrap();
    let folder = dir.join("Tiny-Model");
    std::fs::create_dir(&folder).unwrap();
    Files::new(&gguf, Style::default()).save(&folder, 2);
    folder
}

#[test]
fn a_folder_becomes_a_file_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let input = folder(dir.path(), "block-diffusion/models/sdar-tiny.BF16.gguf").display().to_string();
    let out = dir.path().join("sdar.gguf").display().to_string();
    let v = json(&["convert", &input, &out]);
    assert_eq!((&v["architecture"], &v["left_out"]), (&"sdar".into(), &0.into()));
    assert_eq!(v["bytes"], std::fs::metadata(&out).unwrap().len());
    let seen = json(&["inspect", &out]);
    assert_eq!((&seen["parameters"], &seen["name"]), (&v["parameters"], &"Tiny-Model".into()));
    let run = json(&["run", "-m", &out, "-n", "5", "hello"]);
    assert_eq!(run["usage"]["completion_tokens"], 5);
    let done = redraft(&["convert", &input, &out]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("sdar.gguf exists: --force replaces it"), "{}", done.err);
    let text =
        ok(&["convert", &input, &out, "--force", "--type", "F16", "--block-length", "8", "--name", "x"]);
    assert!(text.contains("sdar.gguf: sdar, ") && text.contains(" F16"), "{text}");
    let gguf = Gguf::open(Path::new(&out), &Default::default()).unwrap();
    assert_eq!(gguf.metadata().u32("diffusion.canvas_length").unwrap(), 8);
    assert_eq!(gguf.metadata().str("general.name").unwrap(), "x");
}

/// The golden of the model that the checkpoint was made from, by the file that came out.
#[test]
fn a_converted_file_passes_its_golden() {
    let dir = tempfile::tempdir().unwrap();
    let input = folder(dir.path(), "oracle/models/llada-tiny.BF16.gguf").display().to_string();
    let at = |name: &str| dir.path().join(name).display().to_string();
    ok(&["convert", &input, &at("llada.gguf")]);
    let golden = testdata("oracle/cases/llada-tiny.BF16.two-token.safetensors").display().to_string();
    ok(&[
        "trace",
        "-m",
        &at("llada.gguf"),
        "--like",
        &golden,
        "-o",
        &at("mine.safetensors"),
        "--numerics",
        "exact",
    ]);
    ok(&["compare", &at("mine.safetensors"), &golden, "--preset", "f32"]);
}

#[test]
fn faults_end_with_2_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = folder(dir.path(), "oracle/models/dream-tiny.F16.gguf");
    let out = dir.path().join("out.gguf");
    std::fs::remove_file(input.join("model-00002-of-00002.safetensors")).unwrap();
    let done = redraft(&["convert", &input.display().to_string(), &out.display().to_string()]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
    assert!(done.err.contains("names model-00002-of-00002.safetensors, which is missing"), "{}", done.err);
    let done = redraft(&["convert", "no/such/folder", &out.display().to_string()]);
    assert!(done.code == Some(2) && done.err.contains("no/such/folder is no folder"), "{}", done.err);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// A checkpoint of terabytes takes no disk: all of it but the header is a hole.
#[test]
fn a_full_disk_ends_with_3_and_leaves_nothing() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let gguf = Gguf::open(&testdata("oracle/models/dream-tiny.F16.gguf"), &Default::default()).unwrap();
    let mut files = Files::new(&gguf, Style { tied: true, ..Style::default() });
    files.tensors.clear();
    let input = dir.path().join("in");
    std::fs::create_dir(&input).unwrap();
    files.save(&input, 0);
    let n = 4u64 << 40;
    let entry = format!(r#"{{"dtype":"F32","shape":[512,{}],"data_offsets":[0,{n}]}}"#, n / 4 / 512);
    let mut header = format!(r#"{{"model.embed_tokens.weight":{entry}}}"#);
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = std::fs::File::create(input.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    if file.set_len(8 + header.len() as u64 + n).is_err() {
        println!("skipped: a file system with smaller files");
        return;
    }
    let out = dir.path().join("out.gguf").display().to_string();
    let done = redraft(&["convert", &input.display().to_string(), &out]);
    if done.err.contains("missing, expected the shape") {
        println!("skipped: the disk has room for it");
        return;
    }
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.err);
    assert!(
        done.err.contains("out.gguf: not enough room: 43980") && done.err.contains(" are free"),
        "{}",
        done.err
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
