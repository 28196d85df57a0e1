//! `redraft trace` and `redraft compare`.

use std::path::PathBuf;

use redraft::trace::{Elements, TraceFile};

use crate::{json, mini, ok, redraft, testdata};

fn golden(name: &str) -> String {
    testdata(&format!("oracle/cases/dg-mini.F32.{name}.safetensors")).display().to_string()
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a folder for temporary files"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

#[test]
fn goldens_are_repeated_and_judged() {
    let dir = Dir::new();
    let mine = dir.file("mine.safetensors");
    for case in ["decode-sc", "traj-default"] {
        ok(&["trace", "-m", &mini(), "--numerics", "exact", "--like", &golden(case), "-o", &mine]);
        let text = ok(&["compare", &mine, &golden(case)]);
        assert!(text.ends_with("all within the limits\n"), "{text}");
    }
    let v = json(&["trace", "-m", &mini(), "--like", &golden("decode"), "-o", &mine]);
    assert_eq!((&v["kind"], &v["metadata"]["precision"]), (&"like".into(), &"f32".into()));
    let meta = TraceFile::open(&dir.path("mine.safetensors")).unwrap().metadata;
    for key in ["model_sha256_header", "architecture", "backend", "numerics", "mask_rule", "redraft_version"]
    {
        assert!(meta.contains_key(key), "{meta:?}");
    }

    // Another case's golden: the first tensor that differs is named, and the answer is no.
    let done = redraft(&["compare", &mine, &golden("decode-sc")]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.out.contains("tensors differ, first "), "{}", done.out);
    let v = redraft(&["compare", "--json", &mine, &golden("decode-sc")]);
    assert_eq!(v.code, Some(1));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&v.out).unwrap()["ok"], false);
    // Generous limits, or all tensors, or only some.
    let lenient = ["compare", "--preset", "half", "--cos", "2", "--nmse", "9", &mine, &golden("decode-sc")];
    assert_eq!(redraft(&lenient).code, Some(0));
    assert_eq!(redraft(&[&lenient[..], &["--all"]].concat()).code, Some(1));
    let only = redraft(&["compare", "--only", "l_out", &mine, &golden("decode")]);
    assert_eq!((only.code, only.out.matches("ok  ").count()), (Some(0), 2), "{}", only.out);
    let done = redraft(&["compare", "--only", "nothing*", &mine, &golden("decode")]);
    assert_eq!(done.code, Some(2), "{}", done.err);
}

#[test]
fn files_without_a_common_tensor_cannot_be_compared() {
    let dir = Dir::new();
    let mine = dir.file("mine.safetensors");
    ok(&["trace", "-m", &mini(), "--like", &golden("traj-default"), "-o", &mine]);
    let done = redraft(&["compare", &mine, &golden("prefill")]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("nothing to compare"), "{}", done.err);
}

#[test]
fn taps_of_one_pass_are_chosen_by_name_and_layer() {
    let dir = Dir::new();
    let file = dir.file("taps.safetensors");
    let v =
        json(&["trace", "-m", &mini(), "-o", &file, "--taps", "l_out,Q*_pos,logits", "--layers", "1", "hi"]);
    let names: Vec<&str> =
        v["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let want = [
        "canvas_ids",
        "dec/Qcur_pos-1",
        "dec/l_out-1",
        "enc/Qcur_pos-1",
        "enc/l_out-1",
        "logits",
        "prompt_ids",
    ];
    assert_eq!(names, want);

    // Such a trace is a golden for others: the same inputs give the same values.
    let again = dir.file("again.safetensors");
    ok(&["trace", "-m", &mini(), "-o", &again, "--like", &file]);
    assert_eq!(json(&["compare", "--maxabs", "0", &again, &file])["ok"], true);
    // The truth is another number type, and close.
    let truth = dir.file("truth.safetensors");
    let v = json(&["trace", "-m", &mini(), "-o", &truth, "--precision", "f64", "--like", &file]);
    assert_eq!((&v["metadata"]["precision"], &v["tensors"][4]["type"]), (&"f64".into(), &"F64".into()));
    assert_eq!(json(&["compare", &file, &truth])["ok"], true);

    let done = redraft(&["trace", "-m", &mini(), "-o", &file, "--taps", "nosuch", "hi"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("no tap has such a name as nosuch"), "{}", done.err);
}

/// Recordings are repeated in their modes, whatever the default is, unless others are asked for.
#[test]
fn a_recording_is_repeated_in_its_numerics() {
    let dir = Dir::new();
    let (run, again) = (dir.file("run.safetensors"), dir.file("again.safetensors"));
    let mode = |v: &serde_json::Value| v["metadata"]["numerics"].clone();
    for numerics in ["exact", "fast"] {
        ok(&["run", "--trace", &run, "-n", "4", "--steps", "3", "--numerics", numerics, "hi"]);
        let v = json(&["trace", "--like", &run, "-o", &again]);
        assert_eq!(mode(&v), numerics);
        assert_eq!(json(&["compare", "--maxabs", "0", &again, &run])["ok"], true, "{numerics}");
    }
    assert_eq!(mode(&json(&["trace", "--like", &run, "--numerics", "exact", "-o", &again])), "exact");
    // f64 is the truth of both.
    assert_eq!(mode(&json(&["trace", "--like", &run, "--precision", "f64", "-o", &again])), "exact");
    assert_eq!(mode(&json(&["trace", "-o", &again, "--taps", "l_out", "hi"])), "fast");

    let kv_type = |v: &serde_json::Value| v["metadata"]["kv_type"].clone();
    for recorded in ["f16", "i8"] {
        ok(&["run", "--trace", &run, "-n", "4", "--steps", "3", "--kv-type", recorded, "hi"]);
        let v = json(&["trace", "--like", &run, "-o", &again]);
        assert_eq!(kv_type(&v), recorded);
        assert_eq!(json(&["compare", "--maxabs", "0", &again, &run])["ok"], true, "{recorded}");
    }
    assert_eq!(kv_type(&json(&["trace", "--like", &run, "--kv-type", "f32", "-o", &again])), "f32");
    let differs = redraft(&["compare", "--maxabs", "0", &again, &run]);
    assert_eq!(differs.code, Some(1), "the type shows in the numbers: {}", differs.err);
    // The truth keeps what it computes.
    assert_eq!(kv_type(&json(&["trace", "--like", &run, "--precision", "f64", "-o", &again])), "f32");

    for (key, said) in [
        ("numerics", "`numerics`: expected exact or fast, found odd: say --numerics exact or fast"),
        ("kv_type", "`kv_type`: expected f32 or f16 or i8, found odd: say --kv-type f32 or f16 or i8"),
    ] {
        let mut file = TraceFile::open(&dir.path("run.safetensors")).unwrap();
        file.metadata.insert(key.into(), "odd".into());
        let odd = dir.file("odd.safetensors");
        std::fs::write(&odd, file.to_bytes()).unwrap();
        let done = redraft(&["trace", "--like", &odd, "-o", &again]);
        assert!(done.code == Some(2) && done.err.contains(said), "{:?} {}", done.code, done.err);
    }
}

/// A recording without self-conditioning is repeated without it.
#[test]
fn a_recording_is_repeated_with_its_self_conditioning() {
    let dir = Dir::new();
    let (run, again) = (dir.file("run.safetensors"), dir.file("again.safetensors"));
    let args = ["-m", &mini(), "-n", "16", "--steps", "4", "hi"];
    ok(&[&["run", "--trace", &run, "--no-self-conditioning"][..], &args].concat());
    ok(&["trace", "-m", &mini(), "--like", &run, "-o", &again]);
    assert_eq!(json(&["compare", "--maxabs", "0", &again, &run])["ok"], true);
}

/// Prompt and canvas must fit into the context, which is 4096 tokens in both files.
#[test]
fn a_pass_beyond_the_context_is_refused() {
    let dir = Dir::new();
    let file = dir.file("x.safetensors");
    let dream = testdata("oracle/models/dream-tiny.F16.gguf").display().to_string();
    for (model, prompt, answer) in [(dream, 4096, 1), (mini(), 4081, 16)] {
        let ids = vec!["20"; prompt].join(",");
        let done = redraft(&["trace", "-m", &model, "-o", &file, "--taps", "l_out", "--tokens", &ids]);
        let said = format!("the prompt has {prompt} tokens and the answer up to {answer},");
        assert!(done.code == Some(2) && done.err.contains(&said), "{:?} {}", done.code, done.err);
        assert!(!dir.path("x.safetensors").exists());
    }
}

#[test]
fn a_recorded_answer_can_be_repeated_from_its_record() {
    let dir = Dir::new();
    let (run, again) = (dir.file("run.safetensors"), dir.file("again.safetensors"));
    let args = ["-m", &mini(), "-n", "20", "--steps", "6", "--seed", "5", "hi"];
    ok(&[&["run", "--trace", &run][..], &args].concat());
    ok(&["trace", "-m", &mini(), "--like", &run, "-o", &again]);
    let v = json(&["compare", "--maxabs", "0", &again, &run]);
    assert_eq!(v["ok"], true, "{v}");
    for profile in ["jax", "llamacpp"] {
        ok(&[&["run", "--trace", &run, "--profile", profile][..], &args].concat());
        let done = redraft(&["trace", "-m", &mini(), "--like", &run, "-o", &again]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "no warning of another model");
        assert_eq!(json(&["compare", "--maxabs", "0", &again, &run])["ok"], true, "{profile}");
        let meta = TraceFile::open(&dir.path("run.safetensors")).unwrap().metadata;
        let keys = if profile == "jax" { "the last W prompt" } else { "the last W-1 prompt" };
        assert_eq!(meta["profile"], profile);
        assert!(meta["mask_rule"].contains(keys), "{meta:?}");
    }
    ok(&[&["run", "--trace", &run][..], &args].concat());
    let generation = dir.file("generation.safetensors");
    ok(&[&["trace", "--generation", "-o", &generation][..], &args].concat());
    assert_eq!(std::fs::read(&generation).unwrap(), std::fs::read(&run).unwrap());
}

/// Where the pass over the prompt predicts the first token of a canvas, one pass begins with it, as an answer does.
#[test]
fn one_pass_begins_as_the_first_step_of_an_answer() {
    let dir = Dir::new();
    let model = testdata("block-diffusion/models/fast-dllm-tiny.BF16.gguf").display().to_string();
    // The prompt fills one block.
    let ids: Vec<String> = (20..36).map(|id| id.to_string()).collect();
    let (pass, run) = (dir.file("pass.safetensors"), dir.file("run.safetensors"));
    let args = ["-m", &model, "--tokens", &ids.join(",")];
    ok(&[&["trace", "-o", &pass][..], &args].concat());
    ok(&[&["run", "--trace", &run, "-n", "4"][..], &args].concat());
    let ids = |file: &str, name: &str| {
        let file = TraceFile::open(&dir.path(file)).unwrap();
        let Elements::I32(ids) = &file.tensors[name].data else { panic!("{name} are ids") };
        ids[..16].to_vec()
    };
    let canvas = ids("pass.safetensors", "canvas_ids");
    assert_eq!(canvas, ids("run.safetensors", "canvas_in"));
    assert!(canvas[0] != canvas[1] && canvas[1..].iter().all(|&id| id == canvas[1]), "{canvas:?}");
}

/// One pass can be stopped, too, and then nothing is written.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_with_130_and_leaves_no_file() {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};

    let dir = Dir::new();
    let out = dir.file("x.safetensors");
    // A prompt that takes long, of the longest that the model was made for.
    let ids = vec!["5"; 990].join(",");
    let mut child = crate::command(&["trace", "-v", "-o", &out, "--backend", "reference", "--tokens", &ids])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("loaded in") {
        assert!(err.read_line(&mut seen).unwrap() > 0, "ended early: {seen}");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{seen}");
    std::io::Read::read_to_string(&mut err, &mut seen).unwrap();
    assert!(seen.ends_with("error: interrupted\n"), "{seen}");
    assert_eq!(std::fs::read_dir(dir.0.path()).unwrap().count(), 0, "nothing is left");
}

/// Two traces that were computed in two ways, and what `compare` says of it.
#[test]
fn a_difference_of_numerics_is_told() {
    let dir = Dir::new();
    let (exact, fast) = (dir.file("exact.safetensors"), dir.file("fast.safetensors"));
    ok(&["trace", "-q", "-o", &exact, "--numerics", "exact", "hi"]);
    ok(&["trace", "-q", "-o", &fast, "hi"]);
    let done = redraft(&["compare", &fast, &exact]);
    assert_eq!(done.code, Some(1));
    for said in [
        "computed: candidate with numerics fast, precision f32, KV cache f32; golden with numerics exact, precision f32",
        "--preset half suits",
        "--numerics exact",
    ] {
        assert!(done.out.contains(said), "{said}: {}", done.out);
    }
    let v = redraft(&["compare", "--json", &fast, &exact]);
    let v: serde_json::Value = serde_json::from_str(&v.out).unwrap();
    assert_eq!(
        (&v["computed"][0]["numerics"], &v["computed"][1]["numerics"]),
        (&"fast".into(), &"exact".into())
    );
    assert!(v["hint"].as_str().is_some_and(|h| h.contains("--preset quant")), "{v}");
    let same = redraft(&["compare", &exact, &exact]);
    assert!(same.code == Some(0) && !same.out.contains("computed"), "{}", same.out);

    // Of what a small trace lacks a few names are enough.
    let some = dir.file("some.safetensors");
    ok(&["trace", "-q", "-o", &some, "--numerics", "exact", "--taps", "l_out", "hi"]);
    let done = redraft(&["compare", &some, &exact]);
    let line = |text: &str| text.lines().find(|l| l.starts_with("not in the candidate")).unwrap().to_string();
    assert!(line(&done.out).ends_with(" more (-v names them)"), "{}", done.out);
    assert_eq!(line(&done.out).matches(", ").count(), 7, "{}", done.out);
    let all = line(&redraft(&["compare", "-v", &some, &exact]).out);
    assert!(all.matches(", ").count() > 50 && !all.contains(" more "), "{all}");
}
