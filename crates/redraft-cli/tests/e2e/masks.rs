//! Models whose canvas begins as mask tokens: `run`, its trace and receipt, `replay`, `verify`, and what does not apply.

use redraft::gguf::{Array, Gguf, GgufWriter};

use serde_json::Value;

use crate::{json, ok, redraft, testdata};

fn model(name: &str) -> String {
    testdata("oracle/models").join(name).display().to_string()
}

#[test]
fn a_model_of_masks_runs_with_its_own_sampler() {
    for (file, sampler, parameter) in [
        ("dream-tiny.F16.gguf", "entropy", ("temperature", 0.2)),
        ("llada-tiny.BF16.gguf", "low-confidence", ("block_length", 32.0)),
        ("llada-moe-tiny.BF16.gguf", "low-confidence", ("temperature", 0.0)),
        ("rnd1-tiny.BF16.gguf", "entropy-bound-monotone", ("entropy_bound", 0.0)),
    ] {
        let v = json(&["run", "-m", &model(file), "--tokens", "20,31,57", "-n", "6"]);
        assert_eq!(v["diffusion"]["sampler"], sampler);
        assert_eq!(v["diffusion"]["parameters"][parameter.0].as_f64(), Some(parameter.1), "{file}");
        assert_eq!(v["usage"]["prompt_tokens"], 3);
        assert_eq!(v["memory"]["kv_bytes"], 0);
        let canvases = v["diffusion"]["canvases"].as_array().unwrap();
        assert_eq!(canvases.len(), 1, "an answer is one canvas");
        assert!(["complete", "converged"].contains(&canvases[0]["stop"].as_str().unwrap()), "{v}");
    }
}

#[test]
fn a_recording_and_a_receipt_of_a_model_of_masks_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (m, trace, receipt, again) =
        (model("llada-tiny.BF16.gguf"), path("t.safetensors"), path("r.json"), path("again.safetensors"));
    let run =
        ["run", "-m", &m, "--tokens", "20,31,57", "-n", "8", "--sampler", "random", "--temperature", "0.9"];
    ok(&[&run[..], &["--steps", "4", "--trace", &trace, "--receipt", &receipt]].concat());
    assert!(
        ok(&["verify", &receipt, "-m", &m]).ends_with("equal: the model file, every step and the answer\n")
    );
    ok(&["trace", "-q", "-m", &m, "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    let shown = ok(&["replay", &trace, "-m", &m]);
    assert!(shown.contains("canvas 1 step 4/4 · accepted 2"), "{shown}");
    let first = shown.lines().nth(1).unwrap();
    assert!(first.matches('·').count() == 6, "two of eight are revealed: {first}");
    let v = json(&["replay", &trace, "-m", &m]);
    assert_eq!(
        (&v["steps"][0]["stop"], &v["steps"][3]["stop"]),
        (&serde_json::Value::Null, &"complete".into())
    );
    assert!(!v["steps"][0]["text"].as_str().unwrap().contains('·'), "{v}");
    // One pass over prompt and masks, and the same from its own inputs.
    let (taps, like) = (path("taps.safetensors"), path("like.safetensors"));
    ok(&["trace", "-q", "-m", &m, "--tokens", "20,31,57", "--taps", "Qcur,l_out,logits", "-o", &taps]);
    ok(&["trace", "-q", "-m", &m, "--like", &taps, "-o", &like]);
    ok(&["compare", &like, &taps, "--all"]);
}

/// A model that reads block by block, with a prompt that its chat format makes and a sampler that edits.
#[test]
fn llada2_runs_with_its_own_template_and_with_edits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let m = testdata("llada2/models/llada2-tiny.BF16.gguf").display().to_string();
    let done = redraft(&["run", "-m", &m, "-n", "6", "--json", "hi"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("taking the built-in ling ("), "{}", done.err);
    let plain: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(plain["diffusion"]["sampler"], "threshold");
    let rendered = "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>hi<|role_end|>\
                    <role>ASSISTANT</role>";
    assert_eq!(json(&["run", "-m", &m, "-n", "6", "--raw", rendered])["digest"], plain["digest"]);

    let (trace, receipt, again) = (path("t.safetensors"), path("r.json"), path("again.safetensors"));
    let run = ["run", "-m", &m, "--tokens", "20,31,57", "-n", "13", "--sampler", "joint-threshold"];
    let edits = ["--threshold", "0.2", "--edit-threshold", "0", "--post-steps", "3"];
    ok(&[&run[..], &edits, &["--trace", &trace, "--receipt", &receipt]].concat());
    assert!(ok(&["verify", &receipt, "-m", &m]).contains("equal: the model file, every step and the answer"));
    ok(&["trace", "-q", "-m", &m, "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    assert!(ok(&["replay", &trace, "-m", &m]).contains("canvas 2 step 1/"));

    // Positions come and go.
    let (trace, receipt) = (path("edit.safetensors"), path("edit.json"));
    let run =
        ["run", "-m", &m, "--tokens", "20,31,57", "-n", "13", "--sampler", "edit", "--edit-threshold", "0.3"];
    let commands = ["--delete-token", "78", "--split-token", "239", "--min-tokens", "13"];
    ok(&[&run[..], &commands, &["--trace", &trace, "--receipt", &receipt]].concat());
    assert!(ok(&["verify", &receipt, "-m", &m]).contains("equal: the model file, every step and the answer"));
    ok(&["trace", "-q", "-m", &m, "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    assert!(ok(&["replay", &trace, "-m", &m]).contains("canvas 2 step 1/"));
    let done = redraft(&run);
    assert!(done.code == Some(2) && done.err.contains("--delete-token: expected the id"), "{}", done.err);
}

/// A file of 2.2 says which tokens delete and insert, so that nobody has to.
#[test]
fn llada2_2_edits_unless_asked_not_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (trace, receipt, again) = (path("t.safetensors"), path("r.json"), path("again.safetensors"));
    let m = testdata("llada2/models/llada2.2-tiny.BF16.gguf").display().to_string();
    let run = ["run", "-m", &m, "--tokens", "20,31,57", "-n", "13", "--min-tokens", "13"];
    let v = json(&[&run[..], &["--trace", &trace, "--receipt", &receipt]].concat());
    assert_eq!(
        (&v["diffusion"]["sampler"], v["diffusion"]["parameters"]["threshold"].as_f64()),
        (&"edit".into(), Some(0.5))
    );
    assert!(ok(&["verify", &receipt, "-m", &m]).contains("equal: the model file, every step and the answer"));
    ok(&["trace", "-q", "-m", &m, "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    let plain = json(&[&run[..], &["--sampler", "threshold"]].concat());
    assert_eq!(plain["diffusion"]["parameters"]["threshold"].as_f64(), Some(0.95));
    assert_ne!(plain["digest"], v["digest"]);
}

/// Penalties and bans are in the report, the recording and the receipt, and a banned text is its token.
#[test]
fn penalties_and_bans_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (i, m) in [model("llada-tiny.BF16.gguf"), crate::mini()].iter().enumerate() {
        let run = ["run", "-m", m, "--tokens", "20,31,57", "-n", "12", "--steps", "3"];
        let plain = json(&run);
        for (name, off) in [("repetition_penalty", 1), ("presence_penalty", 0), ("min_tokens", 0)] {
            assert_eq!(plain["diffusion"]["parameters"][name], off);
        }
        assert!(plain["diffusion"].get("ban").is_none());
        let first = plain["ids"][0].as_u64().unwrap();
        let piece = ok(&["detokenize", "-m", m, "300"]);
        let piece = piece.trim_end_matches('\n');
        let (trace, receipt, again) =
            (path(&format!("{i}.safetensors")), path(&format!("{i}.json")), path(&format!("{i}.again")));
        let ids = format!("41,{first},41");
        let penalties = ["--repetition-penalty", "1.3", "--presence-penalty", "-0.5"];
        let weighed = [&penalties[..], &["--ban-tokens", &ids, "--ban", piece]].concat();
        let v = json(&[&run[..], &weighed, &["--trace", &trace, "--receipt", &receipt]].concat());
        let mut ban = vec![41, 300, first];
        ban.sort_unstable();
        assert_eq!(v["diffusion"]["ban"], serde_json::json!(ban));
        assert_eq!(v["diffusion"]["parameters"]["presence_penalty"].as_f64(), Some(-0.5));
        assert!(!v["ids"].as_array().unwrap().iter().any(|id| ban.contains(&id.as_u64().unwrap())));
        assert!(
            ok(&["verify", &receipt, "-m", m]).contains("equal: the model file, every step and the answer")
        );
        ok(&["trace", "-q", "-m", m, "--like", &trace, "-o", &again]);
        ok(&["compare", &again, &trace, "--all"]);
        let done = redraft(&["trace", "-m", m, "--tokens", "20", "--ban", piece, "-o", &again]);
        assert!(
            done.code == Some(2) && done.err.contains("--ban changes nothing in one pass"),
            "{}",
            done.err
        );
    }
}

fn block_model(name: &str) -> String {
    testdata("block-diffusion/models").join(name).display().to_string()
}

/// Canvases are blocks but for the first, which is the rest of the prompt's last one, and the makers' parameters are
/// the defaults.
#[test]
fn a_model_of_blocks_runs_with_its_own_sampler() {
    for (file, canvases, parameters) in [
        ("sdar-tiny.BF16.gguf", 3, [("threshold", 0.85), ("block_length", 0.0)]),
        ("sdar-moe-tiny.BF16.gguf", 2, [("threshold", 0.85), ("block_length", 0.0)]),
        ("fast-dllm-tiny.BF16.gguf", 1, [("threshold", 0.9), ("block_length", 8.0)]),
    ] {
        let v = json(&["run", "-m", &block_model(file), "--tokens", "20,31,57", "-n", "7"]);
        assert_eq!(v["diffusion"]["sampler"], "threshold");
        for (name, value) in parameters {
            assert_eq!(v["diffusion"]["parameters"][name].as_f64(), Some(value), "{file} {name}");
        }
        let (prompt, answer) =
            (v["usage"]["prompt_tokens"].as_u64(), v["usage"]["completion_tokens"].as_u64());
        assert_eq!((prompt, answer), (Some(3), Some(7)));
        let found = v["diffusion"]["canvases"].as_array().unwrap();
        assert_eq!(found.len(), canvases, "{file}: 1 + 4 + 4, 5 + 8, 13");
        assert!(v["memory"]["kv_bytes"].as_u64() > Some(0), "{file}");
    }
}

#[test]
fn a_recording_and_a_receipt_of_a_model_of_blocks_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (m, trace, receipt, again) = (
        block_model("sdar-moe-tiny.BF16.gguf"),
        path("t.safetensors"),
        path("r.json"),
        path("again.safetensors"),
    );
    let run = ["run", "-m", &m, "--tokens", "20,31,57", "-n", "9", "--temperature", "0.9", "--kv-type", "i8"];
    ok(&[&run[..], &["--steps", "4", "--trace", &trace, "--receipt", &receipt]].concat());
    assert!(
        ok(&["verify", &receipt, "-m", &m]).ends_with("equal: the model file, every step and the answer\n")
    );
    ok(&["trace", "-q", "-m", &m, "--kv-type", "i8", "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    let shown = ok(&["replay", &trace, "-m", &m]);
    assert!(shown.contains("canvas 1 step 1/") && shown.contains("canvas 2 step 1/"), "{shown}");
    // The passes over whole blocks of the prompt and over the rest with a canvas.
    let (taps, like) = (path("taps.safetensors"), path("like.safetensors"));
    let tokens = "20,31,57,20,31,57,20,31,57,33";
    ok(&[
        "trace",
        "-q",
        "-m",
        &m,
        "--tokens",
        tokens,
        "--taps",
        "Qcur_pos,l_out,logits,kq_visible",
        "-o",
        &taps,
    ]);
    ok(&["trace", "-q", "-m", &m, "--like", &taps, "-o", &like]);
    let compared = ok(&["compare", &like, &taps, "--all"]);
    for tensor in ["enc/l_out-1", "enc/kq_visible-0", "dec/Qcur-0", "dec/kq_visible-1", "logits"] {
        assert!(compared.contains(tensor), "{tensor}: {compared}");
    }
}

/// The cache stands in the answer's JSON, the receipt and the recording, and each repeats it.
#[test]
fn a_cache_of_blocks_is_recorded_and_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let m = model("dream-tiny.F16.gguf");
    let (trace, receipt, again) = (path("t.safetensors"), path("r.json"), path("again.safetensors"));
    let run = ["run", "-m", &m, "--tokens", "20,31,57", "-n", "10", "--sampler", "low-confidence"];
    let run = [&run[..], &["--block-length", "4"]].concat();
    let plain = json(&run);
    let run = [&run[..], &["--cache", "dual", "--kv-type", "f16"]].concat();
    let cached = json(&[&run[..], &["--trace", &trace, "--receipt", &receipt]].concat());
    assert_eq!((&plain["diffusion"]["cache"], &cached["diffusion"]["cache"]), (&Value::Null, &"dual".into()));
    assert_ne!(plain["digest"], cached["digest"]);
    assert_eq!((&plain["memory"]["kv_bytes"], &cached["kv_type"]), (&0.into(), &"f16".into()));
    assert!(cached["memory"]["kv_bytes"].as_u64() > Some(0));
    assert!(std::fs::read_to_string(&receipt).unwrap().contains(r#""cache": "dual""#));
    let said = redraft(&[&run[..], &["-v"]].concat()).err;
    assert!(said.contains("approximated by --cache dual"), "{said}");
    assert!(
        ok(&["verify", &receipt, "-m", &m]).ends_with("equal: the model file, every step and the answer\n")
    );
    ok(&["trace", "-q", "-m", &m, "--kv-type", "f16", "--like", &trace, "-o", &again]);
    ok(&["compare", &again, &trace, "--all"]);
    let shown = ok(&["replay", &trace, "-m", &m]);
    // Nothing is shown for masks that a later step predicts nothing for.
    assert!(shown.contains("canvas 1 step 2/10") && shown.contains("········\n"), "{shown}");
}

#[test]
fn what_does_not_apply_is_refused_by_its_flag() {
    let (dream, gemma) = (model("dream-tiny.F16.gguf"), crate::mini());
    let sdar = block_model("sdar-tiny.BF16.gguf");
    let llada2 = testdata("llada2/models/llada2-tiny.BF16.gguf").display().to_string();
    for (file, flags, said) in [
        (&dream, &["--no-self-conditioning"][..], "--no-self-conditioning changes nothing"),
        (
            &dream,
            &["--stability", "2"],
            "--stability: the sampler entropy has no such parameter; it has --steps",
        ),
        (&dream, &["--sampler", "entropy-bound"], "expected origin, maskgit-plus"),
        (
            &dream,
            &["--kv-type", "i8"],
            "type of the KV cache: expected f32: this model reads prompt and answer",
        ),
        (&dream, &["--cache", "both"], "expected `none` or `prefix` or `dual`"),
        (&sdar, &["--cache", "dual"], "cache: expected none, since sdar has a cache of its own"),
        (&dream, &["--cache", "prefix", "--cfg-scale", "1"], "cfg_scale with the cache prefix: expected 0"),
        (
            &sdar,
            &["--cfg-scale", "1"],
            "--cfg-scale: expected 0: classifier-free guidance needs a model that",
        ),
        (&sdar, &["--ctx", "3"], "together more than the context of 3"),
        (&dream, &["--profile", "jax"], "profile of a model whose canvas begins as mask tokens"),
        (&gemma, &["--sampler", "low-confidence"], "expected entropy-bound, found low-confidence"),
        (&dream, &["--repetition-penalty", "0"], "--repetition-penalty"),
        (&gemma, &["--ban-tokens", "531"], "banned token id: expected 0..531, found 531"),
        (
            &dream,
            &["--ban", "abcdefgh"],
            "--ban: expected a text that is one token, found `abcdefgh`, which is",
        ),
        (
            &gemma,
            &["--min-tokens", "5"],
            "--min-tokens: expected at most the 4 tokens that the answer can have (--max-tokens), found 5",
        ),
        (
            &llada2,
            &["--sampler", "edit", "--split-token", "4", "--delete-token", "600000"],
            "--delete-token: expected the id in 1..",
        ),
        (&llada2, &["--sampler", "edit", "--delete-token", "4"], "--split-token: expected the id in 1.."),
        (&gemma, &["--eps", "0.1"], "--eps: the sampler entropy-bound has no such parameter"),
        (
            &gemma,
            &["--steps", "0"],
            "--steps: expected an integer in 1..=4096 by the sampler entropy-bound, found 0",
        ),
    ] {
        let done = redraft(&[&["run", "-m", file, "--tokens", "20", "-n", "4"], flags].concat());
        assert!(done.code == Some(2) && done.err.contains(said), "{flags:?}: {:?} {}", done.code, done.err);
    }
}

/// What is set for other models, commands or samplers must not stop this one: it is left out, and `-v` says so.
#[test]
fn what_does_not_apply_is_left_out_of_the_environment() {
    let (dream, gemma) = (model("dream-tiny.F16.gguf"), crate::mini());
    let sdar = block_model("sdar-tiny.BF16.gguf");
    let run = |file: &str, vars: &[(&str, &str)]| {
        let mut c = crate::command(&["run", "-v", "-m", file, "--tokens", "20", "-n", "4"]);
        let done: crate::Done = c.envs(vars.iter().copied()).output().unwrap().into();
        assert_eq!(done.code, Some(0), "{vars:?}: {}", done.err);
        (done.out, done.err)
    };
    let always = ("REDRAFT_CTX_OVERFLOW", "slide");
    for (file, var, said) in [
        (
            &dream,
            ("REDRAFT_KV_TYPE", "f16"),
            "models that read prompt and answer in one pass have a cache only with --cache",
        ),
        (&dream, ("REDRAFT_PROFILE", "jax"), "dream has one only"),
        (&dream, ("REDRAFT_SAMPLER", "entropy-bound"), "dream has other canvases"),
        (&dream, ("REDRAFT_STABILITY", "2"), "the sampler entropy has no such parameter"),
        (&sdar, ("REDRAFT_CFG_SCALE", "1"), "needs a model that keeps no prompt in a cache"),
        (&gemma, ("REDRAFT_STEPS", "0"), "the sampler entropy-bound expects an integer in 1..=4096"),
    ] {
        let (plain, none) = run(file, &[]);
        assert!(!none.contains("left out"), "{none}");
        let (out, err) = run(file, &[always, var]);
        assert_eq!(out, plain, "{var:?}");
        let note = format!("{}={} is left out: ", var.0, var.1);
        assert!(err.contains(&note) && err.contains(said), "{err}");
        assert!(err.contains("REDRAFT_CTX_OVERFLOW=slide is left out: there are no earlier turns"), "{err}");
    }
    let llada2 = testdata("llada2/models/llada2-tiny.BF16.gguf").display().to_string();
    for (args, var, said) in [
        (
            &["run", "-m", &llada2, "--tokens", "20", "-n", "4"][..],
            ("REDRAFT_SAMPLER", "edit"),
            "delete_token: expected the id in 1..",
        ),
        (
            &["run", "-m", &gemma, "--tokens", "20", "-n", "4"],
            ("REDRAFT_MIN_TOKENS", "9"),
            "the answer can have fewer tokens",
        ),
        (
            &["fill", "-m", &llada2, "a [[3]] b"],
            ("REDRAFT_SAMPLER", "edit"),
            "text around gaps stays at its place",
        ),
        (
            &["fill", "-m", &llada2, "a [[3]] b"],
            ("REDRAFT_MIN_TOKENS", "9"),
            "no gap of free length ends the text",
        ),
        (
            &["fill", "-m", &llada2, "a [[3]] b"],
            ("REDRAFT_END_LAST", "1"),
            "no gap of free length ends the text",
        ),
    ] {
        let mut c = crate::command(args);
        let commands = [("REDRAFT_DELETE_TOKEN", "3"), ("REDRAFT_SPLIT_TOKEN", "4")];
        c.arg("-v").envs(commands.iter().filter(|_| args[0] == "fill").copied()).env(var.0, var.1);
        let done: crate::Done = c.output().unwrap().into();
        let note = format!("{}={} is left out: {said}", var.0, var.1);
        assert!(done.code == Some(0) && done.err.contains(&note), "{args:?}: {}", done.err);
        assert_eq!(done.out, ok(args), "{var:?}");
    }
    let mut c = crate::command(&["trace", "-m", &gemma, "--precision", "f64", "--tokens", "20", "-o"]);
    let dir = tempfile::tempdir().unwrap();
    c.arg(dir.path().join("t.safetensors")).arg("-v");
    let all = [("REDRAFT_BACKEND", "cpu"), ("REDRAFT_NUMERICS", "fast"), ("REDRAFT_KV_TYPE", "i8"), always];
    let done: crate::Done = c.envs(all).output().unwrap().into();
    assert_eq!(done.code, Some(0), "{}", done.err);
    for (name, value) in all {
        assert!(done.err.contains(&format!("{name}={value} is left out: ")), "{name}: {}", done.err);
    }
}

/// Prompts without `--raw`, although no file here has a chat template: equal to the ones that are written out.
#[test]
fn a_file_without_a_template_takes_the_one_of_its_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let instruct = dir.path().join("instruct.gguf").display().to_string();
    with_headers(&model("llada-tiny.BF16.gguf"), &instruct).unwrap();
    let (dream, llada) = (model("dream-tiny.F16.gguf"), model("llada-tiny.BF16.gguf"));
    for (file, name, rendered) in [
        (
            &dream,
            "dream",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n\
             <|im_start|>assistant\n",
        ),
        (&llada, "qa", "Question: hi\nAnswer:"),
        (
            &instruct,
            "llama3",
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ] {
        let run = |rest: &[&str]| redraft(&[&["run", "-m", file, "-n", "4", "--json"], rest].concat());
        let done = run(&["hi"]);
        assert_eq!(done.code, Some(0), "{}", done.err);
        let said = format!("the model file has no chat template; taking the built-in {name} (");
        assert!(done.err.contains(&said), "{name}: {}", done.err);
        let asked = run(&["--chat-template", name, "hi"]);
        assert!(!asked.err.contains("template"), "{}", asked.err);
        let parts = |out: &str| {
            let v: serde_json::Value = serde_json::from_str(out).unwrap();
            (v["digest"].clone(), v["usage"]["prompt_tokens"].as_u64())
        };
        let raw = run(&["--raw", rendered]);
        assert_eq!(parts(&done.out), parts(&raw.out), "{name}");
        assert_eq!(parts(&asked.out), parts(&raw.out), "{name}");
    }
    // The demo model has other markers than the template of that name.
    let done = redraft(&["run", "-n", "4", "--chat-template", "chatml", "hi"]);
    let said = "warning: --chat-template chatml: the vocabulary has no <|im_start|>, <|im_end|>, so ";
    assert!(done.code == Some(0) && done.err.contains(said), "{}", done.err);
    let done = redraft(&["run", "-m", &dream, "--chat-template", "llama4", "hi"]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.contains("expected a file, or one of gemma4, llama3, ling, dream, chatml, qa"),
        "{}",
        done.err
    );
}

/// Writes the model with markers of an instruct model in place of three tokens of text.
fn with_headers(from: &str, to: &str) -> Result<(), Box<dyn std::error::Error>> {
    let g = Gguf::open(from.as_ref(), &Default::default())?;
    let mut meta = g.metadata().clone();
    let mut tokens: Vec<&str> = g.metadata().str_array("tokenizer.ggml.tokens")?.iter().collect();
    let mut types = g.metadata().i32_array("tokenizer.ggml.token_type")?;
    for (id, marker) in (500..).zip(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]) {
        (tokens[id], types[id]) = (marker, 3);
    }
    meta.set("tokenizer.ggml.tokens", Array::Str(tokens.into_iter().collect()));
    meta.set("tokenizer.ggml.token_type", Array::I32(types));
    let mut w = GgufWriter::with_metadata(meta);
    for t in g.tensors() {
        w.add_tensor(&t.name, &t.dims, t.dtype)?;
    }
    let mut out = w.begin(Vec::new())?;
    for t in g.tensors() {
        out.write_tensor(&t.name, &g.tensor_bytes(t))?;
    }
    Ok(std::fs::write(to, out.finish()?)?)
}
