//! Any input of at most 1 MB takes less than 100 MB of memory: inputs that are built to take much, through the
//! bodies of the fuzz targets. `--nocapture` shows the memory and time of each.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, dead_code, reason = "the library of the fuzz crate")]
mod targets;

use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;
use redraft::gguf::{Array, Gguf, GgufWriter, Metadata, Value};
use targets::TARGETS;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes of an input at most, and bytes that it may take.
const INPUT: usize = 1_000_000;
const LIMIT: usize = 100_000_000;
/// A hang, on any machine; how long inputs really take is in `docs/security.md`.
const HANG: Duration = Duration::from_secs(60);

/// A number in the order of the format.
fn u64s(x: u64) -> [u8; 8] {
    x.to_le_bytes()
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    [&b"GGUF\x03\0\0\0"[..], &u64s(n_tensors), &u64s(n_metadata)].concat()
}

fn string(s: &[u8]) -> Vec<u8> {
    [&u64s(s.len() as u64), s].concat()
}

/// As many pieces as fit, each made from its number, after a header that announces them.
fn filled(header: impl Fn(u64) -> Vec<u8>, piece: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let room = INPUT - header(u64::MAX).len();
    let (mut body, mut n) = (Vec::new(), 0);
    loop {
        let next = piece(n);
        if body.len() + next.len() > room {
            return [header(n), body].concat();
        }
        body.extend(next);
        n += 1;
    }
}

/// A file with one metadata array of as many elements of `element` as fit.
fn array(element_type: u32, element: &[u8]) -> Vec<u8> {
    let head = |n| {
        let types = [9u32, element_type].map(u32::to_le_bytes).concat();
        [header(0, 1), string(b"k"), types, u64s(n).to_vec()].concat()
    };
    filled(head, |_| element.to_vec())
}

/// Metadata as a file, cut to the size.
fn file(metadata: Metadata) -> Vec<u8> {
    let bytes = GgufWriter::with_metadata(metadata).begin(Vec::new()).unwrap().finish().unwrap();
    assert!(bytes.len() <= INPUT, "{}", bytes.len());
    bytes
}

/// The metadata of a tokenizer with other tokens and merges.
fn vocabulary(tokens: Vec<String>, merges: Vec<String>, kind: i32) -> Vec<u8> {
    let small = include_bytes!("../../../fuzz/corpus/tokenizer/dg-mini.gguf");
    let mut m = Gguf::from_bytes(small.into()).unwrap().metadata().clone();
    let scores: Vec<String> = m.iter().map(|(k, _)| k.to_owned()).filter(|k| k.ends_with("scores")).collect();
    scores.iter().for_each(|k| drop(m.remove(k)));
    for key in ["bos", "eos", "unknown", "padding", "mask", "eot"] {
        m.remove(&format!("tokenizer.ggml.{key}_token_id"));
    }
    m.set("tokenizer.ggml.add_bos_token", false);
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![kind; tokens.len()])));
    m.set("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens.into_iter().collect())));
    m.set("tokenizer.ggml.merges", Value::Array(Array::Str(merges.into_iter().collect())));
    file(m)
}

fn safetensors(header: &[u8]) -> Vec<u8> {
    [&u64s(header.len() as u64), header].concat()
}

/// As many entries as fit into the header of a safetensors file.
fn entries(before: &str, entry: impl Fn(u64) -> String, after: &str) -> Vec<u8> {
    let mut text = before.to_owned();
    for n in 0.. {
        let next = format!("{}{}", if n == 0 { "" } else { "," }, entry(n));
        if 8 + text.len() + next.len() + after.len() > INPUT {
            break;
        }
        text += &next;
    }
    safetensors((text + after).as_bytes())
}

/// Inputs with the names of the targets that they are for.
fn hostile() -> Vec<(&'static [&'static str], &'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    let all = |x: Vec<(&'static str, Vec<u8>)>, targets: &'static [&'static str]| {
        x.into_iter().map(|(what, input)| (targets, what, input)).collect::<Vec<_>>()
    };
    inputs.extend(all(gguf_files(), &["gguf", "metadata", "tokenizer", "model"]));
    inputs.extend(all(traces(), &["trace"]));
    inputs.extend(all(texts(), &["text", "template", "split_name", "codecs"]));
    inputs.extend(all(checkpoints(), &["checkpoint"]));
    inputs
}

fn gguf_files() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&'static str, Vec<u8>)> = Vec::new();
    let nested = [string(b"k"), 9u32.to_le_bytes().to_vec()].concat();
    let level = [9u32.to_le_bytes().to_vec(), u64s(1).to_vec()].concat();
    all.push(("arrays 20,000 deep", [header(0, 1), nested.clone(), level.repeat(20_000)].concat()));
    all.push(("arrays 80,000 deep", [header(0, 1), nested, level.repeat(80_000)].concat()));
    all.push(("empty strings", array(8, &u64s(0))));
    all.push(("one-byte strings", array(8, &string(b"x"))));
    all.push(("bytes", array(0, &[7])));
    all.push(("flags", array(7, &[1])));
    let empty = [8u32.to_le_bytes().to_vec(), u64s(0).to_vec()].concat();
    all.push(("empty arrays in an array", array(9, &empty)));
    let inner = [9u32.to_le_bytes().to_vec(), u64s(1).to_vec(), empty.clone()].concat();
    all.push(("empty arrays in arrays in an array", array(9, &inner)));
    all.push((
        "keys without a name, the same",
        filled(|n| header(0, n), |_| [string(b""), vec![0, 0, 0, 0, 1]].concat()),
    ));
    let name = |n: u64| format!("{n:x}").into_bytes();
    all.push(("tiny keys", filled(|n| header(0, n), |n| [string(&name(n)), vec![0, 0, 0, 0, 1]].concat())));
    let key = |n: u64| [string(&name(n)), 8u32.to_le_bytes().to_vec(), string(b"")].concat();
    all.push(("keys with empty strings", filled(|n| header(0, n), key)));
    let one = |n: u64| [string(&name(n)), 9u32.to_le_bytes().to_vec(), empty.clone()].concat();
    all.push(("keys with empty arrays", filled(|n| header(0, n), one)));
    let none = |n: u64| {
        let dims = [1u32.to_le_bytes().to_vec(), u64s(0).to_vec()].concat();
        [string(&name(n)), dims, vec![0; 4], u64s(0).to_vec()].concat()
    };
    all.push(("tensors without elements", [filled(|n| header(n, 0), none), vec![0; 31]].concat()));
    let unknown = |n: u64| {
        [string(&name(n)), 0u32.to_le_bytes().to_vec(), 250u32.to_le_bytes().to_vec(), u64s(0).to_vec()]
            .concat()
    };
    all.push((
        "tensors of an unknown type in one place",
        [filled(|n| header(n, 0), unknown), vec![0; 63]].concat(),
    ));
    let wide = |n: u64| {
        let dims = [4u32.to_le_bytes().to_vec(), [1u64 << 40, 0, 1, 1].map(u64s).concat()].concat();
        [string(&name(n)), dims, vec![0; 4], u64s(0).to_vec()].concat()
    };
    all.push(("tensors of long rows and no row", [filled(|n| header(n, 0), wide), vec![0; 31]].concat()));
    let long = vec![b'k'; 65_535];
    all.push((
        "the longest keys",
        filled(
            |n| header(0, n),
            |n| {
                let mut key = long.clone();
                key[..8].copy_from_slice(format!("{n:08}").as_bytes());
                [string(&key), vec![0, 0, 0, 0, 1]].concat()
            },
        ),
    ));

    let number = |n: usize| format!("{n:x}");
    all.push(("a vocabulary of many tokens", vocabulary((0..58_000).map(number).collect(), vec![], 1)));
    all.push(("the same token 75,000 times", vocabulary(vec!["".into(); 75_000], vec![], 1)));
    all.push(("control tokens only", vocabulary((0..58_000).map(number).collect(), vec![], 3)));
    let nests: Vec<String> = (1..=1024).map(|n| "a".repeat(n)).collect();
    all.push(("control tokens that begin each other", vocabulary(nests.clone(), vec![], 3)));
    all.push(("user-defined tokens that begin each other", vocabulary(nests.clone(), vec![], 4)));
    let halves: Vec<String> = (1..=512).map(|n| format!("{} {}", "a".repeat(n), "a".repeat(n))).collect();
    all.push(("merges that double", vocabulary(nests.clone(), halves, 1)));
    all.push((
        "many merges of the same",
        vocabulary(vec!["a".into(), "aa".into()], vec!["a a".into(); 80_000], 1),
    ));
    all
}

fn traces() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&'static str, Vec<u8>)> = Vec::new();
    let tensor = r#"{"dtype":"U8","shape":[],"data_offsets":[0,0]}"#;
    all.push((
        "a trace of empty tensors",
        entries("{", |n| format!(r#""{n:x}":{}"#, tensor.replace("[]", "[0]")), "}"),
    ));
    all.push((
        "a trace with many extents",
        safetensors(
            format!(r#"{{"a":{{"dtype":"U8","shape":[{}0],"data_offsets":[0,0]}}}}"#, "1,".repeat(480_000))
                .as_bytes(),
        ),
    ));
    all.push((
        "a trace with much metadata",
        entries(r#"{"__metadata__":{"#, |n| format!(r#""{n:x}":"""#), "}}"),
    ));
    let text = format!(r#"{{"__metadata__":{{"config":"{}"}}}}"#, r"[".repeat(900_000));
    all.push(("a trace with a deep text in its metadata", safetensors(text.as_bytes())));
    all.push(("a trace of deep JSON", safetensors("[".repeat(900_000).as_bytes())));
    let bytes = safetensors(br#"{"a":{"dtype":"I8","shape":[999900],"data_offsets":[0,999900]}}"#);
    all.push(("a trace of small integers", [bytes, vec![1; 999_900]].concat()));
    all
}

/// Files of checkpoints; the first byte says which.
fn checkpoints() -> Vec<(&'static str, Vec<u8>)> {
    let file = |which: u8, content: Vec<u8>| [vec![which], content].concat();
    // A header's length is not a part of JSON.
    let json = |before: &str, entry: &dyn Fn(u64) -> String, after: &str| {
        entries(before, entry, after)[8..].to_vec()
    };
    let mut all: Vec<(&'static str, Vec<u8>)> =
        traces().into_iter().map(|(what, x)| (what, file(5, x))).collect();
    let expert = |n: u64| {
        let name = format!("model.layers.0.mlp.experts.{n}.up_proj.weight");
        format!(r#""{name}":{{"dtype":"BF16","shape":[0,8],"data_offsets":[0,0]}}"#)
    };
    all.push(("a shard of empty experts", file(5, entries("{", expert, "}"))));
    let rows =
        r#"{"model.embed_tokens.weight":{"dtype":"BF16","shape":[490000,1],"data_offsets":[0,980000]}}"#;
    all.push((
        "an embedding of short rows",
        file(5, [safetensors(rows.as_bytes()), vec![0; 980_000]].concat()),
    ));
    let gemma = r#"{"architectures":["DiffusionGemmaForBlockDiffusion"],"text_config":{"layer_types":["#;
    let kind = |_| String::from(r#""full_attention""#);
    all.push(("a config of many layers", file(0, json(gemma, &kind, "]}}"))));
    all.push(("a config of many keys", file(0, json("{", &|n| format!(r#""{n:x}":[]"#), "}"))));
    all.push(("a deep config", file(0, b"[".repeat(900_000))));
    let ends = json(r#"{"eos_token_id":["#, &|n| n.to_string(), "]}");
    all.push(("ends of answers", file(1, ends)));
    let vocab =
        json(r#"{"model":{"type":"BPE","merges":[],"vocab":{"#, &|n| format!(r#""{n:x}":{n}"#), "}}}");
    all.push(("a tokenizer of many tokens", file(2, vocab)));
    let merges = json(r#"{"model":{"type":"BPE","vocab":{},"merges":["#, &|_| r#"["",""]"#.into(), "]}}");
    all.push(("a tokenizer of many merges", file(2, merges)));
    let template = |_| String::from(r#"{"name":"a","template":""}"#);
    all.push(("many added tokens", file(6, json("{", &|n| format!(r#""{n:x}":{n}"#), "}"))));
    all.push(("many templates", file(3, json(r#"{"chat_template":["#, &template, "]}"))));
    all.push((
        "an index of many names",
        file(4, json(r#"{"weight_map":{"#, &|n| format!(r#""{n:x}":"{n:x}""#), "}}")),
    ));
    all
}

fn texts() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&'static str, Vec<u8>)> = Vec::new();
    for (what, c) in [("spaces", " "), ("newlines", "\n"), ("letters", "a"), ("angles", "<"), ("emoji", "😀")]
    {
        all.push((what, [b"\0", c.repeat(900_000 / c.len()).as_bytes()].concat()));
    }
    all.push(("brackets of a template", b"{{".repeat(400_000)));
    all.push((
        "nested lists of a template",
        [b"{{".to_vec(), b"[".repeat(400_000), b"]".repeat(400_000), b"}}".to_vec()].concat(),
    ));
    all.push(("a template of many blocks", b"{% if 1 %}".repeat(90_000)));
    all
}

#[test]
fn no_input_of_a_megabyte_takes_a_hundred() {
    // What is built once and kept is no input's.
    TARGETS.iter().for_each(|t| (t.run)(b"\0"));
    let mut wrong = Vec::new();
    for (targets, what, input) in hostile() {
        assert!(input.len() <= INPUT + 100, "{what}: {}", input.len());
        for target in TARGETS.iter().filter(|t| targets.contains(&t.name)) {
            let before = MEMORY.current_usage();
            MEMORY.reset_peak_usage();
            let start = Instant::now();
            (target.run)(&input);
            let (took, peak) = (start.elapsed(), MEMORY.peak_usage().saturating_sub(before));
            if took > Duration::from_millis(50) || peak > LIMIT / 5 {
                println!(
                    "{:<12} {:>6.2} s {:>6.1} MB  {what}",
                    target.name,
                    took.as_secs_f64(),
                    peak as f64 / 1e6
                );
            }
            if peak > LIMIT || took > HANG {
                wrong.push(format!("{}: {what}: {peak} bytes, {took:?}", target.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
