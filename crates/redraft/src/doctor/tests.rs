//! Each fault is made in a sound file, found by its name, and repaired where that is possible.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use redraft_gguf::{Array, DType, GgufWriter, StrArray};

use super::*;
use crate::engine::{BlockCache, Digests, Event, Given, Philox, Request, generate};
use crate::sampler::PROFILES;
use crate::tokenizer::Specials;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

const GEMMA: &str = "oracle/models/dg-mini.Q8_0.gguf";
const DREAM: &str = "oracle/models/dream-tiny.Q4_K_M-llamacpp.gguf";
const BLOCKS: &str = "block-diffusion/models/sdar-tiny.BF16.gguf";
const MASKS: &str = "oracle/models/llada-tiny.BF16.gguf";

fn open(name: &str) -> Gguf {
    Gguf::open(&testdata(name), &OpenOptions::default()).unwrap()
}

/// A sound file: the stored one with the fixes that it needs.
fn sound(name: &str) -> Gguf {
    let gguf = open(name);
    let repair = examine_gguf(&gguf, Options::default()).repair;
    repair.map_or(gguf, |r| r.fixed())
}

fn with(gguf: &Gguf, change: impl FnOnce(&mut Metadata)) -> Gguf {
    let mut meta = gguf.metadata().clone();
    change(&mut meta);
    gguf.with_metadata(meta)
}

fn look(gguf: &Gguf) -> Report {
    examine_gguf(gguf, Options::default())
}

/// The digests of a short answer to a text, which depends on tokenizer, ends, canvas, shift and mask.
fn answer(gguf: Gguf) -> Digests {
    let mut model = Model::from_gguf(gguf, &LoadOptions::default()).unwrap();
    let sampler = model.sampler().unwrap();
    let prompt = model.tokenizer().encode_raw_prompt("the 1234 brown fox", Specials::Text).unwrap();
    let request = Request {
        prompt,
        max_tokens: 8,
        context_len: model.shape().context_len,
        sampler,
        params: model.params(sampler, &[]).unwrap(),
        profile: &PROFILES[0],
        end_ids: model.tokenizer().end_ids(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        given: Given::default(),
        constraint: None,
        self_conditioning: model.shape().self_conditioning,
        cache: BlockCache::None,
        full_logits: true,
        interrupt: None,
    };
    let draws = Philox { seed: 3, vocab_len: model.shape().vocab_len as u32 };
    let mut session = model.session().unwrap();
    let go = &mut |_: &Event<'_>| ControlFlow::Continue(());
    generate(&mut model, &mut session, &request, &draws, go).unwrap().digests
}

/// The fault is found with a fix, and the copy that is written is sound and answers as the sound file does.
fn is_repaired(good: &Gguf, id: &str, change: impl FnOnce(&mut Metadata)) {
    let before = look(good);
    assert_eq!(before.verdict, Verdict::Supported, "{id}: {:?}", before.findings);
    assert!(before.repair.is_none());
    let report = look(&with(good, change));
    assert_eq!(report.verdict, Verdict::SupportedWithFixes, "{id}: {:?}", report.findings);
    assert!(report.finding(id).is_some_and(|f| f.fix.is_some()), "{id}: {:?}", report.findings);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fixed.gguf");
    report.repair.unwrap().write(&path, false, &mut |_, _| true).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    let fixed = Gguf::open(&path, &OpenOptions::default()).unwrap();
    let again = look(&fixed);
    assert_eq!(again.verdict, Verdict::Supported, "{id}: {:?}", again.findings);
    assert_eq!(answer(fixed), answer(good.clone()), "{id}");
}

/// The file cannot be run, for that reason.
fn is_refused(gguf: &Gguf, verdict: Verdict, id: &str) -> Finding {
    let report = look(gguf);
    assert_eq!(report.verdict, verdict, "{id}: {:?}", report.findings);
    assert!(report.figures.is_none() && report.repair.is_none());
    report.finding(id).unwrap_or_else(|| panic!("{id}: {:?}", report.findings)).clone()
}

fn token(gguf: &Gguf, text: &str) -> usize {
    gguf.metadata().str_array(key::TOKENS).unwrap().iter().position(|t| t == text).unwrap()
}

#[test]
fn faults_of_tokens_are_repaired() {
    let gemma = sound(GEMMA);
    let types = gemma.metadata().opt_i32_array(key::TYPES).unwrap().unwrap();
    let (channel, turn) = (token(&gemma, "<|channel>"), token(&gemma, "<turn|>"));
    assert_eq!((types[channel], types[turn]), (3, 3), "typed as control");
    let wrong = |types: &[i32]| {
        let mut types = types.to_vec();
        (types[channel], types[turn]) = (4, 1);
        Value::Array(Array::I32(types))
    };
    is_repaired(&gemma, "token-types", |m| m.set(key::TYPES, wrong(&types)));
    is_repaired(&gemma, "token-types-missing", |m| _ = m.remove(key::TYPES));
    is_repaired(&gemma, "end-missing", |m| _ = m.remove(key::EOS));
    is_repaired(&gemma, "end-wrong", |m| m.set(key::EOS, 0u32));
    is_repaired(&gemma, "end-wrong", |m| m.set(key::EOT, 9_999_999u32));
    is_repaired(&gemma, "begin", |m| _ = m.remove(key::BOS));
    is_repaired(&gemma, "id-outside", |m| m.set(key::PAD, 9_999_999u32));
    for other in ["llama", "gpt2", "gemma3"] {
        is_repaired(&gemma, "tokenizer-kind", |m| m.set(key::MODEL, other));
    }
    let masks = sound(MASKS);
    is_repaired(&masks, "pre-tokenizer", |m| m.set(key::PRE, "gpt-2"));
    is_repaired(&masks, "pre-tokenizer", |m| m.set(key::PRE, "quux"));
    is_repaired(&masks, "pre-tokenizer", |m| _ = m.remove(key::PRE));
    is_repaired(&masks, "mask-token", |m| _ = m.remove(key::MASK));
    is_repaired(&masks, "id-outside", |m| m.set(key::MASK, 9_999_999u32));
}

#[test]
fn faults_of_diffusion_are_repaired() {
    use crate::arch::{CANVAS_LEN, SHIFT};
    let (gemma, blocks) = (sound(GEMMA), sound(BLOCKS));
    is_repaired(&with(&gemma, |m| m.set(CANVAS_LEN, 256u32)), "canvas-length", |m| _ = m.remove(CANVAS_LEN));
    is_repaired(&blocks, "canvas-length", |m| _ = m.remove(CANVAS_LEN));
    is_repaired(&blocks, "shift-logits", |m| _ = m.remove(SHIFT));
    is_repaired(&sound(MASKS), "shift-logits", |m| m.set(SHIFT, true));
    let shifted = sound(DREAM);
    assert!(shifted.metadata().get(SHIFT).is_none(), "everybody takes a missing key for true");
    is_repaired(&shifted, "shift-logits", |m| m.set(SHIFT, false));
    let entropy = "diffusion.eb_entropy_bound";
    is_repaired(&gemma, "sampler-key", |m| m.set(entropy, -1.0f32));
    let defaults = |gguf: &Gguf| look(gguf).finding("sampler-defaults").unwrap().clone();
    let note = defaults(&gemma);
    assert!(note.what.contains(", diffusion.eb_entropy_bound 0.1, "), "{}", note.what);
    let stated = defaults(&with(&gemma, |m| m.set(entropy, 0.2f32)));
    assert!(!stated.what.contains(entropy), "{}", stated.what);
    assert_eq!((note.severity, &note.fix), (Severity::Note, &None));
}

#[test]
fn templates_of_other_families_are_replaced() {
    let gemma = sound(GEMMA);
    let old = "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n\
               {% endfor %}";
    is_repaired(&gemma, "template-foreign", |m| m.set(key::CHAT_TEMPLATE, old));
    is_repaired(&gemma, "template-broken", |m| m.set(key::CHAT_TEMPLATE, "{% for x in"));
    let report = look(&with(&gemma, |m| m.set(key::CHAT_TEMPLATE, old)));
    let finding = report.finding("template-foreign").unwrap();
    assert!(
        finding.what.contains("has no <start_of_turn>, <end_of_turn>, but <|turn>, <turn|>"),
        "{}",
        finding.what
    );
    let fixed = report.repair.unwrap().fixed();
    let source = fixed.metadata().str(key::CHAT_TEMPLATE).unwrap();
    assert!(source.contains("<|turn>") && !source.contains("<start_of_turn>"));
    let none = look(&with(&gemma, |m| _ = m.remove(key::CHAT_TEMPLATE)));
    assert_eq!(none.finding("template-missing").unwrap().severity, Severity::Note);
}

/// A copy with other tensors: `change` gets each with its data and says what becomes of it.
fn rewritten(gguf: &Gguf, change: impl Fn(&str, Vec<u8>) -> Option<(DType, Vec<u8>)>) -> Gguf {
    let kept: Vec<_> = gguf
        .tensors()
        .iter()
        .filter_map(|t| {
            let (dtype, data) = change(&t.name, gguf.tensor_bytes(t).to_vec())?;
            Some((t, if dtype == DType(u32::MAX) { t.dtype } else { dtype }, data))
        })
        .collect();
    let mut w = GgufWriter::with_metadata(gguf.metadata().clone());
    for (t, dtype, data) in &kept {
        w.add_raw_tensor(&t.name, &t.dims, *dtype, data.len() as u64).unwrap();
    }
    let mut out = w.begin(Vec::new()).unwrap();
    kept.iter().for_each(|(t, _, data)| out.write_tensor(&t.name, data).unwrap());
    Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
}

const SAME: DType = DType(u32::MAX);

#[test]
fn damaged_tensors_are_found_by_their_place() {
    let gemma = sound(GEMMA);
    let without = |name: &str| rewritten(&gemma, |n, data| (n != name).then_some((SAME, data)));
    let f = is_refused(&without("rope_freqs.weight"), Verdict::Damaged, "rope-freqs");
    assert_eq!(f.place, "rope_freqs.weight");
    let f = is_refused(&without("blk.1.attn_norm.weight"), Verdict::Damaged, "tensors");
    assert!(f.what.contains("blk.1.attn_norm.weight: missing"), "{}", f.what);

    let put = |name: &str, at: usize| {
        rewritten(&gemma, |n, mut data| {
            if n == name {
                data[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
            }
            Some((SAME, data))
        })
    };
    let bad = put("blk.0.attn_norm.weight", 40);
    let f = is_refused(&bad, Verdict::Damaged, "not-finite");
    let offset = bad.tensor("blk.0.attn_norm.weight").unwrap().offset + 40;
    assert_eq!(f.place, format!("offset {offset}"));
    assert_eq!(f.what, "blk.0.attn_norm.weight has NaN as element 10");

    // The scale of one block of a large matrix, which only a deep look finds.
    let large = rewritten(&gemma, |n, mut data| {
        if n == "token_embd.weight" {
            data[34..36].copy_from_slice(&[0, 0x7c]);
        }
        Some((SAME, data))
    });
    assert_eq!(look(&large).verdict, Verdict::Supported);
    let deep = examine_gguf(&large, Options { deep: true, ..Options::default() });
    assert_eq!(deep.verdict, Verdict::Damaged);
    let what = &deep.finding("not-finite").unwrap().what;
    assert!(what.starts_with("token_embd.weight has "), "{what}");

    let odd = rewritten(&gemma, |n, data| {
        Some((if n == "blk.0.ffn_gate_up_exps.weight" { DType(250) } else { SAME }, data))
    });
    let f = is_refused(&odd, Verdict::BackendKernelGap, "kernel-gap");
    assert_eq!(f.place, "blk.0.ffn_gate_up_exps.weight");
    assert!(
        f.what.contains("MoeExperts has no kernel for tensors of type 250 in the backends reference, cpu"),
        "{}",
        f.what
    );
}

#[test]
fn layouts_and_fallback_types_are_notes() {
    let layout = |name: &str| look(&open(name)).finding("experts-layout").map(|f| f.what.clone());
    assert!(layout(GEMMA).unwrap().contains("fused"));
    assert!(layout("oracle/models/rnd1-tiny.BF16.gguf").unwrap().contains("separate"));
    assert_eq!(layout(MASKS), None);
    let note = look(&open("oracle/models/dg-tiny.Q4_K_M.gguf"));
    let note = note.finding("fallback-type").unwrap();
    assert!(
        note.what.contains("rows of 96 columns") || note.what.contains("rows of 32 columns"),
        "{}",
        note.what
    );
    assert_eq!(note.severity, Severity::Note);
}

#[test]
fn what_cannot_be_decoded_says_why() {
    let masks = sound(MASKS);
    let nothing = with(&masks, |m| {
        m.remove(key::MASK);
        let tokens: Vec<String> =
            m.str_array(key::TOKENS).unwrap().iter().map(|t| t.replace("mask", "musk")).collect();
        m.set(key::TOKENS, Value::Array(Array::Str(tokens.iter().collect::<StrArray>())));
    });
    is_refused(&nothing, Verdict::LoadsButDecodeUnsupported, "mask-token");
    let arch = masks.metadata().str("general.architecture").unwrap().to_owned();
    let f = is_refused(
        &with(&masks, |m| _ = m.remove(&format!("{arch}.context_length"))),
        Verdict::LoadsButDecodeUnsupported,
        "hyper-parameter",
    );
    assert_eq!(f.place, format!("{arch}.context_length"));
    let f = is_refused(
        &with(&masks, |m| m.set(key::MODEL, "rwkv")),
        Verdict::LoadsButDecodeUnsupported,
        "tokenizer",
    );
    assert!(f.what.contains("rwkv"), "{}", f.what);
}

/// The file under another architecture, with its keys.
fn renamed(gguf: &Gguf, to: &str) -> Gguf {
    let from = gguf.metadata().str("general.architecture").unwrap().to_owned();
    let mut meta = Metadata::new();
    for (key, value) in gguf.metadata().iter() {
        let key = match key.strip_prefix(&from).and_then(|rest| rest.strip_prefix('.')) {
            Some(rest) => format!("{to}.{rest}"),
            None => key.to_owned(),
        };
        meta.set(key, value.clone());
    }
    meta.set("general.architecture", to);
    gguf.with_metadata(meta)
}

#[test]
fn other_architectures_are_told_apart() {
    let masks = sound(MASKS);
    let unknown = rewritten(&renamed(&masks, "quux"), |n, data| {
        (!n.ends_with("ffn_norm.weight")).then_some((SAME, data))
    });
    let f = is_refused(&unknown, Verdict::NeedsArchSupport, "unknown-architecture");
    let own = masks.metadata().str("general.architecture").unwrap();
    assert!(f.what.contains("`quux`") && f.what.contains("diffusion.shift_logits"), "{}", f.what);
    assert!(f.what.contains(&format!("nearest known architecture is `{own}`")), "{}", f.what);
    let gemma = renamed(&sound(GEMMA), "quux");
    let own = open(GEMMA).metadata().str("general.architecture").unwrap().to_owned();
    let f = is_refused(&gemma, Verdict::NeedsArchSupport, "unknown-architecture");
    assert!(f.what.contains(&format!("nearest known architecture is `{own}`")), "{}", f.what);
    let more = with(&gemma, |m| m.set("quux.flux_capacity", 3u32));
    assert!(look(&more).finding("key-extra").unwrap().what.ends_with("flux_capacity"));

    let plain = with(&renamed(&masks, "qwen2"), |m| {
        m.remove(crate::arch::SHIFT);
        m.remove("qwen2.attention.causal");
    });
    is_refused(&plain, Verdict::NotADiffusionModel, "autoregressive");
    assert!(
        look(&plain).finding("mask-in-vocabulary").is_some(),
        "it may have been converted under another name"
    );
    let twin = crate::arch::ARCHS.iter().find(|a| a.sampler.is_none()).unwrap();
    is_refused(&renamed(&sound(GEMMA), twin.name), Verdict::NotADiffusionModel, "autoregressive");
    let renamed = renamed(&sound(GEMMA), twin.name);
    let said = look(&renamed).finding("denoises-after-all").unwrap().what.clone();
    assert!(said.contains("diffusion.canvas_length") && said.contains("self_cond_"), "{said}");
    // The base model itself has nothing of it.
    let base = rewritten(&renamed, |n, data| (!n.starts_with("self_cond_")).then_some((SAME, data)));
    let base = with(&base, |m| {
        let keys: Vec<String> = m.iter().map(|(k, _)| k.to_owned()).collect();
        let of_diffusion = |k: &&String| k.starts_with("diffusion.") || k.ends_with(".attention.causal");
        keys.iter().filter(of_diffusion).for_each(|k| _ = m.remove(k));
    });
    is_refused(&base, Verdict::NotADiffusionModel, "autoregressive");
    assert!(look(&base).finding("denoises-after-all").is_none());
    is_refused(&with(&masks, |m| m.set("general.type", "mmproj")), Verdict::NotADiffusionModel, "not-text");
    is_refused(
        &with(&masks, |m| _ = m.remove("general.architecture")),
        Verdict::NotADiffusionModel,
        "not-text",
    );
}

#[test]
fn all_stored_models_are_supported() {
    let mut seen = 0;
    let folders = std::fs::read_dir(testdata("")).unwrap().map(|f| f.unwrap().path().join("models"));
    for folder in folders.filter(|f| f.is_dir()).chain([testdata("caches")]) {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "gguf"));
        for file in files {
            let report = examine(&file, Options { deep: true, roofline: false }).unwrap();
            let fixes: Vec<&str> = report.findings.iter().filter(|f| f.fix.is_some()).map(|f| f.id).collect();
            // Those of DiffusionGemma have markers typed as text, as published files do.
            let markers = file.file_name().unwrap().to_string_lossy().starts_with("dg-");
            let expected: &[&str] = if markers { &["token-types"] } else { &[] };
            assert_eq!(fixes, expected, "{file:?}: {:?}", report.findings);
            assert!(report.verdict.is_supported(), "{file:?}: {:?}", report.findings);
            let figures = report.figures.unwrap();
            assert!(figures.weights_bytes > 0 && figures.buffer_bytes > 0, "{file:?}");
            if let Some(repair) = report.repair {
                assert_eq!(look(&repair.fixed()).verdict, Verdict::Supported, "{file:?}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 15, "{seen}");
    let embedded = look(Model::embedded(&LoadOptions::default()).unwrap().gguf());
    assert_eq!(embedded.verdict, Verdict::Supported, "{:?}", embedded.findings);
}

#[test]
fn every_broken_file_is_damaged_with_its_reason() {
    for file in std::fs::read_dir(testdata("gguf-bad")).unwrap() {
        let path = file.unwrap().path();
        let error = Gguf::open(&path, &OpenOptions::default()).unwrap_err().to_string();
        let report = examine(&path, Options { deep: true, roofline: false }).unwrap();
        assert_eq!((report.verdict, report.findings.len()), (Verdict::Damaged, 1), "{path:?}");
        assert!(report.findings[0].what.starts_with(&error), "{path:?}: {}", report.findings[0].what);
        assert!(!report.findings[0].place.is_empty(), "{path:?}: {error}");
    }
    assert!(examine(&testdata("gguf-bad/none.gguf"), Options::default()).is_err(), "no file, no verdict");
}

#[test]
fn a_download_that_stopped_tells_both_lengths() {
    let whole = std::fs::read(testdata(MASKS)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part.gguf");
    for len in [100, whole.len() / 2, whole.len() - 64] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let report = examine(&path, Options::default()).unwrap();
        assert_eq!(report.verdict, Verdict::Damaged);
        let f = report.finding("truncated").unwrap();
        assert!(f.what.ends_with(&format!("found {len}")) && f.place.starts_with("offset "), "{}", f.what);
        if len > whole.len() / 3 {
            assert!(
                f.what.contains(&format!("expected at least {} bytes in all", whole.len())),
                "{}: {}",
                whole.len(),
                f.what
            );
        }
    }
}

#[test]
fn files_of_a_split_model_are_missed_and_compared() {
    let good = sound(MASKS);
    let dir = tempfile::tempdir().unwrap();
    let save = |no: u16, count: u16, tensors: &[redraft_gguf::TensorInfo]| {
        let mut w = match no {
            0 => GgufWriter::with_metadata(good.metadata().clone()),
            _ => GgufWriter::new(),
        };
        w.metadata_mut().set("split.no", no);
        w.metadata_mut().set("split.count", count);
        w.metadata_mut().set("split.tensors.count", Value::I32(good.tensors().len() as i32));
        tensors.iter().for_each(|t| w.add_tensor(&t.name, &t.dims, t.dtype).unwrap());
        let mut out = w.begin(Vec::new()).unwrap();
        tensors.iter().for_each(|t| out.write_tensor(&t.name, &good.tensor_bytes(t)).unwrap());
        let path = dir.path().join(format!("m-{:05}-of-00002.gguf", no + 1));
        std::fs::write(&path, out.finish().unwrap()).unwrap();
        path
    };
    let (one, two) = good.tensors().split_at(5);
    let first = save(0, 2, one);
    let id = |path: &Path| {
        let report = examine(path, Options::default()).unwrap();
        (report.verdict, report.findings[0].id)
    };
    assert_eq!(id(&first), (Verdict::Damaged, "split-missing"));
    let second = save(1, 2, two);
    assert_eq!(examine(&second, Options::default()).unwrap().verdict, Verdict::Supported);
    save(1, 3, two);
    assert_eq!(id(&first), (Verdict::Damaged, "split-mismatch"));
    save(1, 2, &two[1..]);
    assert_eq!(id(&first), (Verdict::Damaged, "split-mismatch"));

    // The corrected copy of a split model is one file, and never one of the inputs.
    save(1, 2, two);
    let whole = Gguf::open(&second, &OpenOptions::default()).unwrap();
    let repair = look(&with(&whole, |m| _ = m.remove(key::MASK))).repair.unwrap();
    let e = repair.write(&second, true, &mut |_, _| true).unwrap_err().to_string();
    assert!(e.contains("is the input"), "{e}");
    let out = dir.path().join("out.gguf");
    assert!(matches!(repair.write(&out, false, &mut |_, _| false), Err(Error::Interrupted)));
    assert!(!out.exists());
    repair.write(&out, false, &mut |_, _| true).unwrap();
    let e = repair.write(&out, false, &mut |_, _| true).unwrap_err().to_string();
    assert!(e.contains("--force"), "{e}");
    repair.write(&out, true, &mut |_, _| true).unwrap();
    let copy = Gguf::open(&out, &OpenOptions::default()).unwrap();
    assert_eq!((look(&copy).verdict, copy.metadata().get("split.count")), (Verdict::Supported, None));
    assert_eq!(answer(copy), answer(good));
}

#[test]
fn the_time_of_a_step_is_a_bound_from_what_it_computes() {
    let report = examine(&testdata(MASKS), Options { roofline: true, deep: false }).unwrap();
    let r = report.figures.unwrap().roofline.unwrap();
    assert_eq!(r.int8_gmac, 0.0, "weights of 16 bits are computed with in f32");
    assert!(r.f32_gmac > 0.0 && r.f32_gmac_s > 0.0 && r.threads > 0);
    let ms = 1e3 * r.f32_gmac / r.f32_gmac_s;
    assert!((r.ms_per_step - ms).abs() <= 1e-9 * ms, "{r:?}");
}
