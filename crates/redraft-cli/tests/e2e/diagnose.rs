//! `redraft diagnose`.

use crate::{json, ok, redraft, testdata};

fn file(name: &str) -> String {
    testdata(&format!("oracle/{name}")).display().to_string()
}

#[test]
fn honest_numbers_are_rounding_and_mistakes_are_named() {
    let (model, golden) =
        (file("models/dream-tiny.F16.gguf"), file("cases/dream-tiny.F16.forward.safetensors"));
    let text = ok(&["diagnose", "-m", &model, &golden]);
    assert!(text.contains("theirs is rounding: within 0."), "{text}");
    let v = json(&["diagnose", "-m", &model, &golden]);
    assert_eq!((&v["verdict"]["kind"], &v["rounding"]), (&"rounding".into(), &"f32".into()));

    // The same numbers with the rounding of llama.cpp.
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (mine, other) = (path("mine.safetensors"), path("other.gguf"));
    let ids = ["--tokens", "20,31,57,44,12,63"];
    let trace = |extra: &[&str], out: &str| {
        ok(&[&["trace", "-q", "-m", &model, "-o", out][..], &ids, extra].concat());
    };
    trace(&["--precision", "llamacpp"], &mine);
    let v = json(&["diagnose", "-m", &model, &mine]);
    assert_eq!((&v["verdict"]["kind"], &v["rounding"]), (&"rounding".into(), &"llamacpp".into()));

    // A model whose file says another RoPE base computes with a mistake, as far as this one knows.
    let gguf = redraft::gguf::Gguf::open(model.as_ref(), &Default::default()).unwrap();
    let mut metadata = gguf.metadata().clone();
    metadata.set("dream.rope.freq_base", 10_000f32);
    let mut writer = redraft::gguf::GgufWriter::with_metadata(metadata);
    for t in gguf.tensors() {
        writer.add_tensor(&t.name, &t.dims, t.dtype).unwrap();
    }
    let mut out = writer.begin(Vec::new()).unwrap();
    for t in gguf.tensors() {
        out.write_tensor(&t.name, &gguf.tensor_bytes(t)).unwrap();
    }
    std::fs::write(&other, out.finish().unwrap()).unwrap();
    let theirs = path("theirs.safetensors");
    ok(&[&["trace", "-q", "-m", &other, "-o", &theirs, "--numerics", "exact"][..], &ids].concat());
    let run = redraft(&["diagnose", "-m", &model, &theirs]);
    let text = &run.out;
    assert_eq!(run.code, Some(1), "{text}{}", run.err);
    assert!(text.contains("a RoPE base of 10000 explains it"), "{text}");
    assert!(text.contains("theirs leaves the f32 floor at Qcur-0"), "{text}");
}

/// Keys and values in blocks of 8 bits are a kind of their own, with activations in f32 or not.
#[test]
fn rounding_of_a_cache_is_rounding() {
    let model = file("models/dg-tiny.Q4_K_M.gguf");
    let golden = file("cases/dg-tiny.Q4_K_M.decode-sc.safetensors");
    let dir = tempfile::tempdir().unwrap();
    for (numerics, kv, kind) in [
        ("exact", "f16", "kv-f16"),
        ("exact", "i8", "kv-i8"),
        ("fast", "f16", "llamacpp"),
        ("fast", "i8", "llamacpp-kv-i8"),
    ] {
        let mine = dir.path().join(format!("{numerics}-{kv}.safetensors")).display().to_string();
        let like = ["trace", "-q", "-m", &model, "--like", &golden, "-o", &mine];
        ok(&[&like[..], &["--numerics", numerics, "--kv-type", kv]].concat());
        let inputs = redraft::trace::TraceFile::open(golden.as_ref()).unwrap();
        let mut theirs = redraft::trace::TraceFile::open(mine.as_ref()).unwrap();
        for name in ["prompt_ids", "canvas_ids", "chunk_lengths", "sc_logits"] {
            if let Some(t) = inputs.tensors.get(name) {
                theirs.tensors.insert(name.into(), t.clone());
            }
        }
        std::fs::write(&mine, theirs.to_bytes()).unwrap();
        let v = json(&["diagnose", "-m", &model, &mine]);
        assert_eq!((&v["verdict"]["kind"], &v["rounding"]), (&"rounding".into(), &kind.into()), "{v}");
        assert!(v["taps"][0]["floors"][kind]["median"].is_f64(), "{v}");
    }
}

#[test]
fn files_of_other_programs_are_read() {
    let model = file("models/dream-tiny.F16.gguf");
    let foreign = |name: &str| testdata(&format!("diagnose/foreign/{name}")).display().to_string();
    let ids = "20,31,57,44,12,63,9,100";
    let dump = foreign("dream-tiny.F16.txt");
    let text = ok(&["diagnose", "-m", &model, "--ids", ids, &dump]);
    assert!(text.contains("theirs is rounding") && text.contains("of the llamacpp floor"), "{text}");
    let text = ok(&["diagnose", "-m", &model, "--ids", ids, "--all", &dump]);
    assert!(text.contains("sum of logits: theirs 51.273899, the truth's 51.5287"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (map, mine) = (path("map.json"), path("mine.safetensors"));
    std::fs::write(&map, r#"{"lm_head": "logits", "logits.bin": "logits"}"#).unwrap();
    let run =
        redraft(&["diagnose", "-m", &model, "--map", &map, "--computed-in", "f32", &foreign("dream-03.npz")]);
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert!(run.out.contains("no-attention-scale"), "{}", run.out);

    // Ours of the same pass.
    let mut theirs = redraft::trace::TraceFile::open_any(dump.as_ref(), &Default::default()).unwrap();
    let ids_of = ids.split(',').map(|id| id.parse().unwrap()).collect();
    theirs.insert("ids", vec![8], redraft::trace::Elements::I32(ids_of));
    let like = path("like.safetensors");
    std::fs::write(&like, theirs.to_bytes()).unwrap();
    ok(&["trace", "-q", "-m", &model, "-o", &mine, "--like", &like]);
    let args = ["compare", "--preset", "half", &mine, &dump];
    let text = ok(&args);
    assert!(text.contains("of the elements that are printed") && text.contains("21 tensors"), "{text}");
    let run = redraft(&["compare", &mine, &dump, "--only", "logits"]);
    assert_eq!(run.code, Some(1), "{}", run.out);
    // Raw logits are the model's in number or nothing.
    let raw = path("logits.bin");
    std::fs::write(&raw, [0; 400]).unwrap();
    let run = redraft(&["diagnose", "-m", &model, "--map", &map, "--ids", ids, &raw]);
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.contains("expected 4096 numbers of shape [8, 512], found 100"), "{}", run.err);
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let model = file("models/dream-tiny.F16.gguf");
    let golden = file("cases/dream-tiny.F16.sampler-origin.safetensors");
    for (args, said) in [
        (&[golden.as_str()][..], "a whole generation"),
        (&[model.as_str()], "expected one of safetensors, NumPy's npz"),
        (&[golden.as_str(), "--limit", "-1"], "expected a number in 1..=1000000"),
        (&[golden.as_str(), "--ids", "1,x"], "expected token ids"),
        (&[golden.as_str(), "--prompt-ids", "1,2"], "it has prompt_ids: leave out --prompt-ids"),
        (&[golden.as_str(), "--map", model.as_str()], "expected a map, a JSON object"),
        (&[golden.as_str(), "--limit", "0.5"], "expected a number in 1..=1000000"),
        (
            &[golden.as_str(), "--computed-in", "f8"],
            "expected one of f32, kv-f16, kv-i8, llamacpp, llamacpp-fa, llamacpp-kv-i8, bf16",
        ),
    ] {
        let run = redraft(&[&["diagnose", "-m", &model][..], args].concat());
        let text = &run.err;
        assert_eq!(run.code, Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}
