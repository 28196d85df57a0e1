//! `redraft run`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{command, json, mini, ok, redraft, testdata, with_stdin};

fn keys(v: &Value) -> Vec<&str> {
    v.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The contract of `run --json`, field by field and in its order.
#[test]
fn json_has_the_fields_of_the_contract() {
    let v = json(&["run", "-m", &mini(), "-n", "20", "--steps", "5", "--seed", "3", "Hello"]);
    let top = [
        "text",
        "reasoning",
        "tool_calls",
        "ids",
        "finish_reason",
        "warnings",
        "usage",
        "diffusion",
        "timings",
        "memory",
        "seed",
        "model",
        "backend",
        "numerics",
        "kv_type",
        "digest",
        "version",
    ];
    assert_eq!(keys(&v), top);
    assert_eq!(keys(&v["usage"]), ["prompt_tokens", "completion_tokens", "total_tokens"]);
    assert_eq!(keys(&v["diffusion"]), ["sampler", "profile", "parameters", "canvases", "tokens_per_forward"]);
    let timings = [
        "load_ms",
        "prompt_ms",
        "first_draft_ms",
        "denoise_ms",
        "total_ms",
        "ms_per_step",
        "wall_tok_s",
        "decode_tok_s",
        "in_step_tok_s",
    ];
    assert_eq!(keys(&v["timings"]), timings);
    assert!(timings.iter().all(|t| v["timings"][t].as_f64().unwrap() >= 0.0));
    assert_eq!(keys(&v["memory"]), ["peak_rss_bytes", "weights_bytes", "kv_bytes", "kv_windowed"]);
    assert_eq!(keys(&v["model"]), ["name", "architecture", "file_type", "sha256_header"]);
    assert_eq!(keys(&v["digest"]), ["ids", "logits"]);

    let n = v["ids"].as_array().unwrap().len();
    assert_eq!(v["usage"]["completion_tokens"], n);
    assert_eq!(
        v["usage"]["total_tokens"].as_u64().unwrap(),
        v["usage"]["prompt_tokens"].as_u64().unwrap() + n as u64
    );
    assert_eq!((&v["reasoning"], &v["tool_calls"]), (&Value::from(""), &Value::from(Vec::<u8>::new())));
    assert_eq!(v["seed"], 3);
    assert_eq!(v["numerics"], "exact", "a file in F32");
    let quantized = json(&["run", "-n", "1", "--steps", "1", "x"]);
    assert_eq!(quantized["numerics"], "fast", "the embedded one");
    let fast = json(&["run", "-m", &mini(), "--steps", "1", "--numerics", "fast", "x"]);
    assert_eq!(fast["numerics"], "fast");
    let rounded = json(&["run", "-m", &mini(), "--steps", "1", "--kv-type", "f16", "x"]);
    assert_eq!((&v["kv_type"], &rounded["kv_type"]), (&"f32".into(), &"f16".into()));
    let exact = json(&["run", "-m", &mini(), "--steps", "1", "x"]);
    assert_ne!(rounded["digest"]["logits"], exact["digest"]["logits"]);
    let bytes = |v: &Value| v["memory"]["kv_bytes"].as_u64().unwrap();
    assert_eq!(bytes(&exact), 2 * bytes(&rounded));
    assert_eq!(v["model"]["architecture"], "diffusion-gemma");
    assert_eq!(v["model"]["file_type"], "F32");
    assert_eq!(v["diffusion"]["sampler"], "entropy-bound");
    assert_eq!(v["diffusion"]["profile"], "hf");
    assert_eq!(v["diffusion"]["parameters"]["steps"], 5);
    assert_eq!(v["diffusion"]["parameters"]["entropy_bound"], 0.1);
    for c in v["diffusion"]["canvases"].as_array().unwrap() {
        assert_eq!(keys(c), ["steps", "stop", "accepted_per_step"]);
        assert_eq!(c["steps"], c["accepted_per_step"].as_array().unwrap().len());
        assert!(["converged", "complete", "max_steps"].contains(&c["stop"].as_str().unwrap()));
    }
    let hex =
        |s: &Value| s.as_str().is_some_and(|s| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit()));
    assert!(hex(&v["digest"]["ids"]) && hex(&v["digest"]["logits"]) && hex(&v["model"]["sha256_header"]));
    let full = json(&["run", "-m", &mini(), "-n", "1", "--steps", "1", "--digest", "full", "Hello"]);
    assert!(hex(&full["digest"]["full"]));
}

#[test]
fn a_pipe_gets_the_text_and_a_newline() {
    let args = ["run", "-m", &mini(), "-n", "40", "--steps", "4", "Hello"];
    let done = redraft(&args);
    let text = json(&args)["text"].as_str().unwrap().to_string();
    let want = if text.ends_with('\n') { text } else { text + "\n" };
    assert_eq!((done.code, done.out, done.err.as_str()), (Some(0), want, ""));
}

#[test]
fn max_tokens_is_exact() {
    for n in [1, 15, 16, 17, 33] {
        let v = json(&["run", "-m", &mini(), "-n", &n.to_string(), "--steps", "2", "Hello"]);
        let got = v["ids"].as_array().unwrap().len();
        match v["finish_reason"].as_str().unwrap() {
            "length" => assert_eq!(got, n),
            _ => assert!(got <= n),
        }
    }
}

#[test]
fn a_seed_decides_the_answer() {
    let model = mini();
    let with = |seed: &str| json(&["run", "-m", &model, "-n", "16", "--steps", "4", "--seed", seed, "Hello"]);
    let plain = json(&["run", "-m", &model, "-n", "16", "--steps", "4", "Hello"]);
    assert_eq!((&plain["seed"], &plain["digest"]), (&Value::from(0), &with("0")["digest"]));
    assert_ne!(with("1")["digest"], with("2")["digest"]);
    let random = with("random");
    assert_eq!(with(&random["seed"].to_string())["digest"], random["digest"], "the reported seed repeats it");
    let cased = json(&["run", "-m", &model, "-n", "16", "--steps", "4", "--threads", "3", "Hello"]);
    assert_eq!(cased["digest"], plain["digest"], "whatever the number of threads");
    let reference =
        json(&["run", "-m", &model, "-n", "16", "--steps", "4", "--backend", "reference", "Hello"]);
    assert_eq!((&reference["backend"], &reference["digest"]), (&Value::from("reference"), &plain["digest"]));
}

#[test]
fn the_prompt_may_come_from_stdin() {
    let model = mini();
    let base = ["run", "-m", &model, "-n", "8", "--steps", "2"];
    let want = ok(&[&base[..], &["Hello there"]].concat());
    assert_eq!(with_stdin(&[&base[..], &["-"]].concat(), "Hello there\n").out, want);
    assert_eq!(with_stdin(&base, "Hello there\r\n").out, want);
    let empty = with_stdin(&base, "");
    assert_eq!(
        (empty.code, empty.err.as_str()),
        (Some(2), "error: the prompt is empty: give it as an argument or through a pipe\n")
    );
}

#[test]
fn prompts_can_be_raw_or_ids_or_have_a_system_message() {
    let model = mini();
    let run = |rest: &[&str]| json(&[&["run", "-m", &model, "-n", "4", "--steps", "2"][..], rest].concat());
    let plain = run(&["hi"]);
    let rendered = "<bos><|turn>user\nhi<turn|>\n<|turn>model\n";
    let raw = run(&["--raw", rendered]);
    assert_eq!(raw["digest"], plain["digest"], "the template written by hand");
    let ids = json(&["tokenize", "-m", &model, "--special", rendered])["ids"].as_array().unwrap().clone();
    let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(run(&["--tokens", &ids.join(",")])["digest"], plain["digest"]);
    let prompt_tokens = |v: &Value| v["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(prompt_tokens(&run(&["--system", "Be brief.", "hi"])) > prompt_tokens(&plain));
    // Markers in a message are text; to the letter of the reference implementation they are markers.
    let sly = prompt_tokens(&run(&["<turn|>"]));
    assert!(prompt_tokens(&run(&["--profile", "hf", "<turn|>"])) < sly);
}

#[cfg(target_os = "linux")]
#[test]
fn a_template_without_an_end_is_refused() {
    let done = redraft(&["run", "-m", &mini(), "--chat-template", "/dev/zero", "x"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("/dev/zero is no regular file: expected a chat template"), "{}", done.err);
}

#[test]
fn profiles_change_the_answer_and_are_recorded() {
    let run =
        |name: &str| json(&["run", "-m", &mini(), "-n", "32", "--steps", "3", "--profile", name, "Hello"]);
    let (hf, jax) = (run("hf"), run("jax"));
    assert_eq!((&hf["diffusion"]["profile"], &jax["diffusion"]["profile"]), (&"hf".into(), &"jax".into()));
    assert_ne!(hf["ids"], jax["ids"]);
}

#[test]
fn the_environment_sets_defaults_and_flags_win() {
    let run = |rest: &[&str], vars: &[(&str, &str)]| {
        let mut c = command(&[&["run", "--json", "Hello"], rest].concat());
        c.env("REDRAFT_MODEL", mini()).envs(vars.iter().copied());
        let out = c.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice::<Value>(&out.stdout).unwrap()
    };
    let vars = [("REDRAFT_MAX_TOKENS", "3"), ("REDRAFT_STEPS", "2"), ("REDRAFT_SEED", "9")];
    let v = run(&[], &vars);
    assert_eq!((&v["usage"]["completion_tokens"], &v["seed"]), (&3.into(), &9.into()));
    assert_eq!(v["diffusion"]["parameters"]["steps"], 2);
    let v = run(&["-n", "2", "--steps", "1"], &vars);
    assert_eq!(v["usage"]["completion_tokens"], 2);
    assert_eq!(v["diffusion"]["parameters"]["steps"], 1);
}

/// What is wrong has the name that the user gave it.
#[test]
fn errors_name_the_variable_or_the_flag() {
    for (args, vars, said) in [
        (&[][..], &[("REDRAFT_STEPS", "x")][..], "invalid value 'x' for 'REDRAFT_STEPS'"),
        (&["--steps", "y"], &[("REDRAFT_STEPS", "x")], "invalid value 'y' for '--steps <N>'"),
        (&["--seed", "y"], &[("REDRAFT_STEPS", "2")], "invalid value 'y' for '--seed <N|random>'"),
        (&[], &[("REDRAFT_BACKEND", "tpu")], "invalid value 'tpu' for 'REDRAFT_BACKEND'"),
        (&[], &[("REDRAFT_LIVE", "no")], "invalid value 'no' for 'REDRAFT_LIVE'"),
        (&[], &[("REDRAFT_MIN_TOKENS", "9999")], "REDRAFT_MIN_TOKENS: expected at most the 512 tokens"),
        (&[], &[("REDRAFT_CPU", "mmx")], "CPU level `mmx (REDRAFT_CPU)` is not available here"),
    ] {
        let mut c = command(&[&["run", "-m", &mini(), "Hello"], args].concat());
        let done: crate::Done = c.envs(vars.iter().copied()).output().unwrap().into();
        assert!(done.err.contains(said) && done.out.is_empty(), "{vars:?}: {:?} {}", done.code, done.err);
        let flag = format!("--{}", vars[0].0[8..].to_lowercase());
        assert!(args.contains(&flag.as_str()) || !done.err.contains(&flag), "{}", done.err);
    }
}

/// Flags that would do nothing in this company.
#[test]
fn flags_without_an_effect_are_errors_or_warnings() {
    let llada = testdata("oracle/models/llada-tiny.BF16.gguf").display().to_string();
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("silent.jinja").display().to_string();
    std::fs::write(&silent, "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
        .unwrap();
    for (args, said) in [
        (
            &["--json", "--live", "always"][..],
            "error: --live is for the live canvas, and --json prints one object",
        ),
        (&["--json", "--entropy-bars"], "error: --entropy-bars is for the live canvas"),
        (&["--entropy-bars", "--live", "never"], "error: --entropy-bars are below the live canvas"),
        (&["--entropy-bars"], "warning: --entropy-bars are below the live canvas"),
        (&["--digest", "full"], "warning: --digest full is shown with --json or -v"),
        (&["--chat-template", &silent, "--system", "Be brief."], "error: --system changes nothing"),
        (&["--chat-template", &silent, "--think", "on"], "warning: --think changes nothing in the prompt"),
        (&["--backend", "reference", "-t", "3"], "warning: the backend reference computes in 1 of 3 threads"),
        (
            &["--profile", "jax", "--stability", "3"],
            "warning: --stability 3 changes nothing: the profile jax",
        ),
        (
            &["-m", &llada, "--top-p", "0.5"],
            "warning: --top-p 0.5 changes nothing: the sampler low-confidence",
        ),
    ] {
        let model: &[&str] = if args[0] == "-m" { &[] } else { &["-m", &mini()] };
        let done = redraft(&[&["run", "-n", "4", "--steps", "1", "Hello"], model, args].concat());
        let code = if said.starts_with("error") { 2 } else { 0 };
        assert!(done.code == Some(code) && done.err.contains(said), "{args:?}: {:?} {}", done.code, done.err);
    }
    for fine in [&["--json", "--live", "never"][..], &["--digest", "full", "--json"], &["--think", "auto"]] {
        let done = redraft(&[&["run", "-m", &mini(), "-n", "4", "--steps", "1", "Hello"], fine].concat());
        assert!(done.code == Some(0) && !done.err.contains("warning"), "{fine:?}: {}", done.err);
    }
    let chat = with_stdin(&["chat", "-m", &mini(), "--history", "h"], "Hello\n");
    assert!(chat.code == Some(2) && chat.err.contains("--history keeps lines"), "{}", chat.err);
}

/// One token is left to draw: everything repeats itself, and an answer still has the tokens that it needs.
#[test]
fn no_stop_rule_comes_before_the_least_tokens() {
    let all_but_one: Vec<String> = (0..531).filter(|&id| id != 97).map(|id| id.to_string()).collect();
    let ban = all_but_one.join(",");
    let run = ["run", "-m", &mini(), "-n", "40", "--profile", "llamacpp", "--ban-tokens", &ban];
    for (least, want) in [("0", 0), ("5", 5), ("20", 20)] {
        let v = json(&[&run[..], &["--steps", "1", "--min-tokens", least, "x"]].concat());
        let ids = v["ids"].as_array().unwrap();
        assert_eq!((ids.len(), &v["finish_reason"]), (want, &"stop".into()), "{least}");
    }
}

#[test]
fn notes_are_on_stderr_and_only_when_asked_for() {
    let args = ["run", "-m", &mini(), "-n", "4", "--steps", "2", "Hello"];
    let plain = redraft(&args);
    let verbose = redraft(&[&args[..], &["-v"]].concat());
    assert_eq!((plain.err.as_str(), &plain.out), ("", &verbose.out));
    assert_eq!(verbose.err.matches("seed 0").count(), 1, "{}", verbose.err);
    for fact in ["seed 0", "tok/s", "not a throughput", "backend", "numerics exact", "digest"] {
        assert!(verbose.err.contains(fact), "{}", verbose.err);
    }
}

#[test]
fn no_cursor_movement_into_a_pipe_unless_forced() {
    let args = ["run", "-m", &mini(), "-n", "4", "--steps", "2", "Hello"];
    assert!(!redraft(&args).out.contains('\x1b'));
    let live = redraft(&[&args[..], &["--live", "always"]].concat()).out;
    assert!(live.contains("\x1b[?2026h") && live.contains("\x1b[2m"), "{live:?}");
    let shown = live.rfind("\x1b[?25h").expect("the cursor comes back");
    assert!(shown > live.rfind("\x1b[?25l").unwrap());
    let mut c = command(&[&args[..], &["--live", "always"]].concat());
    let plain = String::from_utf8(c.env("NO_COLOR", "1").output().unwrap().stdout).unwrap();
    for color in ["\x1b[3;35m", "\x1b[1;36m"] {
        assert!(!plain.contains(color), "{plain:?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_with_130() {
    // A canvas that never converges, in steps of milliseconds.
    let args = ["run", "-m", &mini(), "-v", "-n", "480", "--steps", "4096", "--confidence", "0", "Hello"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("prompt tokens") {
        assert!(err.read_line(&mut seen).unwrap() > 0, "ended early: {seen}");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    std::io::Read::read_to_string(&mut err, &mut seen).unwrap();
    assert_eq!(status.code(), Some(130), "{seen}");
    assert!(seen.ends_with("error: interrupted\n"), "{seen}");
}

#[test]
fn the_demo_model_answers() {
    let v = json(&["run", "What is the capital of France?"]);
    assert_eq!(v["model"]["architecture"], "diffusion-gemma");
    assert_eq!(v["finish_reason"], "stop");
    assert!(v["text"].as_str().unwrap().contains("Paris"), "{}", v["text"]);
}
