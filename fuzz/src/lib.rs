//! What is fuzzed: one function per kind of input from outside. Each takes any bytes, must not panic, and asserts
//! what holds for every input that is accepted. The fuzz targets call them, and so do the tests in
//! `crates/redraft/tests/fuzz.rs` (kept inputs and mutations of them) and `bounds.rs` (memory).
//!
//! A new kind of input is a function here, a line in [`TARGETS`] and a file in `fuzz_targets/`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex};

use redraft::chat::{
    AnswerParser, ChatError, ChatTemplate, Delta, FORMATS, Message, RenderOptions, on_large_stack,
};
use redraft::constrain::{Constraint, Language, Vocabulary};
use redraft::convert::{Checkpoint, ConvertOptions, convert_to_memory};
use redraft::engine::{Philox, Request, generate};
use redraft::gguf::{Bytes, DType, Gguf, GgufWriter, Metadata, SplitName, Unpacked, codec};
use redraft::receipt::Receipt;
use redraft::sampler::profile;
use redraft::tokenizer::{Specials, Tokenizer};
use redraft::trace::{Elements, Given, Limits, NameMap, Preset, Recording, Tensor, TraceFile, compare};
use redraft::{LoadOptions, Model};

/// One kind of input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and of its folder in `corpus/`.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// How many mutations of all inputs together the tests run: a second or two.
    pub mutations: usize,
}

/// All targets. Inputs beside the corpus are listed in `seeds.txt`.
pub const TARGETS: &[Target] = &[
    Target { name: "gguf", run: gguf, mutations: 300_000 },
    Target { name: "metadata", run: metadata, mutations: 300_000 },
    Target { name: "model", run: model, mutations: 15_000 },
    Target { name: "codecs", run: codecs, mutations: 80_000 },
    Target { name: "tokenizer", run: tokenizer, mutations: 50_000 },
    Target { name: "text", run: text, mutations: 50_000 },
    Target { name: "template", run: template, mutations: 6_000 },
    Target { name: "trace", run: trace, mutations: 300_000 },
    Target { name: "foreign", run: foreign, mutations: 60_000 },
    Target { name: "limits", run: limits, mutations: 200_000 },
    Target { name: "constrain", run: constrain, mutations: 4_000 },
    Target { name: "receipt", run: receipt, mutations: 100_000 },
    Target { name: "answer", run: answer, mutations: 50_000 },
    Target { name: "checkpoint", run: checkpoint, mutations: 20_000 },
    Target { name: "split_name", run: split_name, mutations: 200_000 },
];

/// A whole GGUF file: header, metadata, tensor table, and the data of every type that can be decoded.
pub fn gguf(data: &[u8]) {
    let Ok(file) = Gguf::from_bytes(data.to_vec().into()) else { return };
    assert!(file.data_offset() <= data.len() as u64 && file.alignment() > 0);
    read_metadata(file.metadata());
    for t in file.tensors() {
        assert_eq!(file.tensor(&t.name), Some(t));
        let bytes = file.tensor_bytes(t);
        assert_eq!(bytes.len() as u64, t.n_bytes);
        if let Some(codec) = codec(t.dtype) {
            assert_eq!(t.n_elements(), t.row_len() * t.n_rows());
            // Row by row, as everything here reads weights. A tensor without rows may claim rows of any length.
            if !bytes.is_empty() {
                let mut row = vec![0.0; t.row_len() as usize];
                let n = t.dtype.row_bytes(t.row_len()).expect("the table only has whole blocks");
                bytes.chunks_exact(n as usize).for_each(|b| codec.dequantize(b, &mut row));
            }
        }
    }
    rewrite(&file);
}

/// What the reader accepts, the writer writes and the reader reads back as it was; names of tensors longer than
/// other readers take and types of unknown size aside.
fn rewrite(file: &Gguf) {
    let writable = |t: &redraft::gguf::TensorInfo| t.name.len() <= 63 && t.dtype.info().is_some();
    if !file.tensors().iter().all(writable) {
        return;
    }
    let write = |from: &Gguf| {
        let mut w = GgufWriter::with_metadata(from.metadata().clone());
        from.tensors().iter().for_each(|t| w.add_tensor(&t.name, &t.dims, t.dtype).expect("it was read"));
        let mut out = w.begin(Vec::new()).expect("it was read");
        from.tensors()
            .iter()
            .for_each(|t| out.write_tensor(&t.name, &from.tensor_bytes(t)).expect("it fits"));
        out.finish().expect("all tensors were written")
    };
    let first = write(file);
    let again = Gguf::from_bytes(first.clone().into()).expect("the writer writes what the reader reads");
    for (a, b) in file.tensors().iter().zip(again.tensors()) {
        assert_eq!((&a.name, &a.dims, a.dtype), (&b.name, &b.dims, b.dtype));
        assert_eq!(file.tensor_bytes(a)[..], again.tensor_bytes(b)[..]);
    }
    assert_eq!(write(&again), first, "every bit of the metadata and of the layout comes back");
}

/// Metadata entries: a byte for how many there are, then the entries.
pub fn metadata(data: &[u8]) {
    let Some((&n, entries)) = data.split_first() else { return };
    let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(u64::from(n).to_le_bytes());
    file.extend(entries);
    if let Ok(file) = Gguf::from_bytes(file.into()) {
        read_metadata(file.metadata());
        rewrite(&file);
    }
}

/// Calls every getter on every key.
fn read_metadata(m: &Metadata) {
    for (key, value) in m.iter() {
        assert_eq!(m.get(key).map(|v| v.type_name()), Some(value.type_name()));
        let integers = (m.u32(key), m.i32(key), m.u64(key), m.i64(key));
        assert_eq!(integers.3.is_ok(), value.as_integer().is_some_and(|x| i64::try_from(x).is_ok()));
        let _ = (m.f32(key), m.f64(key), m.bool(key), m.u32_array(key), m.i32_array(key), m.f32_array(key));
        let _ = (m.bool_array(key), m.str(key).map(str::len));
        if let Ok(strings) = m.str_array(key) {
            assert_eq!(strings.iter().count(), strings.len());
            assert_eq!(strings.get(strings.len()), None);
        }
    }
}

/// A whole model: loaded, and one step of one canvas computed where the sizes that the file states are small.
pub fn model(data: &[u8]) {
    let Ok(file) = Gguf::from_bytes(data.to_vec().into()) else { return };
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let Ok(mut model) = Model::from_gguf(file, &options) else { return };
    let _ = (model.name().len(), model.sha256_header(), model.weights_bytes());
    if model.shape().canvas_len > 64 || model.shape().vocab_len > 1000 {
        return;
    }
    let Ok(spec) = model.sampler() else { return };
    let Ok(params) = spec.params(model.gguf().metadata(), &[("steps".into(), 1.0)]) else { return };
    let request = Request {
        prompt: vec![0, 1],
        max_tokens: 1,
        profile: profile("hf").expect("it is in the list"),
        context_len: model.shape().context_len,
        sampler: spec,
        params,
        end_ids: model.tokenizer().end_ids(),
        ban: Vec::new(),
        bias: Vec::new(),
        logprobs: None,
        self_conditioning: true,
        given: redraft::engine::Given::default(),
        constraint: None,
        cache: redraft::engine::BlockCache::default(),
        full_logits: false,
        interrupt: None,
    };
    let draws = Philox { seed: 0, vocab_len: model.shape().vocab_len as u32 };
    let Ok(mut session) = model.session() else { return };
    if let Ok(done) = generate(&mut model, &mut session, &request, &draws, &mut |_| ControlFlow::Continue(()))
    {
        assert!(done.ids.len() <= 1);
    }
}

/// Blocks of a type: a byte for the type, then blocks. The two ways to decode agree; what was decoded can be
/// encoded, with importances and without.
pub fn codecs(data: &[u8]) {
    let Some((&id, data)) = data.split_first() else { return };
    let Some(codec) = codec(DType(id.into())) else { return };
    let (len, bytes) = (codec.block_len(), codec.block_bytes());
    let mut unpacked = Unpacked::new();
    for block in data.chunks_exact(bytes).take(64) {
        let mut values = vec![0.0; len];
        codec.dequantize(block, &mut values);
        if codec.unpack(block, &mut unpacked) {
            assert_eq!((unpacked.len, unpacked.len % unpacked.sub_len), (len, 0));
            let mut same = vec![0.0; len];
            unpacked.dequantize(&mut same);
            let bits = |v: &[f32]| {
                v.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect::<Vec<_>>()
            };
            assert_eq!(bits(&values), bits(&same));
        }
        let Some(encoder) = codec.encoder() else { continue };
        let mut encoded = vec![0; bytes];
        encoder.quantize(&values, None, &mut encoded);
        let mut back = vec![0.0; len];
        codec.dequantize(&encoded, &mut back);
        let importance: Vec<f32> = block.iter().cycle().take(len).map(|&b| f32::from(b)).collect();
        encoder.quantize(&values, Some(&importance), &mut encoded);
        // Any bits as numbers, NaN and infinity among them.
        let numbers =
            block.iter().cycle().enumerate().map(|(i, &b)| f32::from_bits(u32::from(b) << (8 * (i % 4))));
        encoder.quantize(&numbers.take(len).collect::<Vec<_>>(), None, &mut encoded);
    }
}

/// The tokenizer that a file's metadata describe, and what it does with some text.
pub fn tokenizer(data: &[u8]) {
    let Ok(file) = Gguf::from_bytes(data.to_vec().into()) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(file.metadata()) else { return };
    for text in ["", "Hello, world\n\n", "<bos><|turn>user\u{e9}", "\u{1f600} \t▁ a"] {
        for specials in [Specials::Parse, Specials::Text] {
            if let Ok(ids) = tokenizer.encode(text, specials) {
                assert!(ids.iter().all(|&id| tokenizer.piece(id).is_some()));
                let _ = tokenizer.decode(&ids, true);
            }
        }
    }
    let all: Vec<u32> = (0..tokenizer.vocab_len().min(5000) as u32).collect();
    let _ = tokenizer.decode(&all, false);
    assert_eq!(tokenizer.canvas_pieces(&all).len(), all.len());
    assert!(tokenizer.end_ids().iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
}

/// The vocabularies that text is tokenized with.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let files: [&'static [u8]; 1] = [include_bytes!("../corpus/tokenizer/dg-mini.gguf")];
    files
        .into_iter()
        .map(|f| {
            let file = Gguf::from_bytes(f.into()).expect("a valid file");
            Tokenizer::from_gguf(file.metadata()).expect("a valid tokenizer")
        })
        .collect()
});

/// Text to ids and back, in the vocabulary that the first byte chooses.
pub fn text(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    let tokenizer = &TOKENIZERS[usize::from(which) % TOKENIZERS.len()];
    let text = String::from_utf8_lossy(data);
    for specials in [Specials::Parse, Specials::Text] {
        let ids = tokenizer.encode(&text, specials).expect("the vocabulary has all bytes");
        // U+2581 is how a space is written, and the two cannot be told apart afterwards.
        assert_eq!(tokenizer.decode(&ids, true), text.replace('▁', " "));
        let control = |&id: &u32| tokenizer.piece(id).is_none_or(|p| p.kind.is_control());
        assert!(specials == Specials::Parse || !ids.iter().any(control));
    }
    // Ids of any kind, those outside the vocabulary too.
    let ids: Vec<u32> = data.chunks(2).map(|c| c.iter().fold(0, |n, &b| n << 8 | u32::from(b))).collect();
    for show in [false, true] {
        let mut stream = tokenizer.stream_decoder(show);
        let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        streamed += &stream.finish();
        assert_eq!(streamed, tokenizer.decode(&ids, show));
    }
}

/// A chat template, rendered over a conversation with everything in it.
pub fn template(data: &[u8]) {
    TEMPLATES.run(data);
}

/// Where templates are rendered: a thread that lives on, because starting one with its stack takes longer than
/// most inputs do.
static TEMPLATES: LazyLock<Worker> = LazyLock::new(|| Worker::new(render));

/// A thread with a large stack that inputs are handed to.
struct Worker {
    ends: Mutex<Ends>,
}

/// Where inputs go in and results come out.
type Ends = (Sender<Vec<u8>>, Receiver<std::thread::Result<()>>);

impl Worker {
    fn new(body: fn(&[u8])) -> Worker {
        let (inputs, input) = channel::<Vec<u8>>();
        let (done, results) = channel();
        let work = move || {
            // Both ends live as long as the process.
            while let Ok(data) = input.recv() {
                let _ = done.send(std::panic::catch_unwind(|| body(&data)));
            }
        };
        std::thread::spawn(|| on_large_stack(work).expect("the system has a thread"));
        Worker { ends: Mutex::new((inputs, results)) }
    }

    /// Runs the body on an input, and panics where it does.
    fn run(&self, data: &[u8]) {
        let result = {
            let ends = self.ends.lock().expect("nothing panics under the lock");
            ends.0.send(data.to_vec()).expect("the thread lives");
            ends.1.recv().expect("the thread lives")
        };
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn render(data: &[u8]) {
    let Ok(template) = ChatTemplate::from_source(&String::from_utf8_lossy(data)) else { return };
    let call = json(r#"[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]"#);
    let messages = [
        Message::new("system", "Be <|turn>short."),
        Message::new("user", "Hi<eos>"),
        Message { tool_calls: call, ..Message::new("assistant", "") },
        Message { name: Some("f".into()), ..Message::new("tool", "42") },
        Message::new("user", "And?"),
    ];
    let mut options = RenderOptions {
        add_generation_prompt: true,
        message_specials: Specials::Text,
        unix_seconds: Some(1_700_000_000),
        tools: json(r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#),
        ..RenderOptions::for_tokenizer(&TOKENIZERS[0])
    };
    let rendered = match template.render(&messages, &options) {
        Err(ChatError::Unguardable { .. }) => {
            options.message_specials = Specials::Parse;
            template.render(&messages, &options)
        }
        other => other,
    };
    let Ok(prompt) = rendered else { return };
    // The guarded prompt has the text of the trusted one, whose tokens are those of `text` with `Specials::Parse`.
    let ids = TOKENIZERS[0].encode_prompt(&prompt).expect("the vocabulary has all bytes");
    assert!(ids.iter().all(|&id| (id as usize) < TOKENIZERS[0].vocab_len()));
}

fn json(text: &str) -> Option<serde_json::Value> {
    serde_json::from_str(text).ok()
}

/// A trace or golden: read, written, read again, and compared with itself.
pub fn trace(data: &[u8]) {
    let Ok(file) = TraceFile::parse(data, "input") else { return };
    let written = file.to_bytes();
    let again = TraceFile::parse(&written, "input").expect("what was read is written so that it can be read");
    assert_eq!(again.metadata, file.metadata);
    assert!(again.tensors.keys().eq(file.tensors.keys()));
    assert_eq!(again.to_bytes(), written);
    let _ = compare(&file, &again, &Limits::from(Preset::F32));
    for name in file.tensors.keys() {
        let _ = (file.ints(name), file.ids(name));
    }
    if let Ok(recording) = Recording::read(&file, 1000) {
        assert!(!recording.steps.is_empty());
        for step in &recording.steps {
            let event = step.event();
            assert_eq!(event.canvas_in.len(), event.decision.accepted.len());
            let _ = recording.room(step);
        }
        assert!(recording.answer(0).is_empty());
        let canvases = recording.steps.chunk_by(|a, b| a.canvas == b.canvas);
        let most: usize = canvases.map(|c| c[0].event().canvas_in.len()).sum();
        assert!(recording.answer(usize::MAX).len() <= most);
    }
}

/// Taps of other programs in any form, with a map of names; and the input as such a map.
pub fn foreign(data: &[u8]) {
    let maps = [
        r#"{"*.bin": "*"}"#,
        r#"{"lm_head": {"name": "logits", "transpose": true}, "l_out-*": "dec/l_out-{*-1}", "*": "x/*"}"#,
    ];
    for map in maps {
        let map = NameMap::parse(map, "map").expect("it is a map");
        let Ok(file) = TraceFile::parse_any(data, "input.bin", &map) else { continue };
        for (name, given) in &file.given {
            let Given::Printed(p) = given else { continue };
            let places: Vec<usize> = p.shown.iter().map(Vec::len).collect();
            assert_eq!(places.iter().product::<usize>(), file.tensors[name].data.len());
            let len = p.shape.iter().try_fold(1usize, |n, &x| n.checked_mul(x)).filter(|&n| n <= 100_000);
            let Some(len) = len else { continue };
            let whole = Tensor { shape: p.shape.clone(), data: Elements::U8(vec![0; len]) };
            assert_eq!(p.pick(&whole).map(|t| t.shape), Some(places));
            assert_eq!(p.summed(&whole).map(|x| x.len()), Some(len));
        }
        let _ = compare(&file, &file, &Limits::from(Preset::F32));
    }
    if let Ok(map) = NameMap::parse(&String::from_utf8_lossy(data), "input") {
        for name in ["a", "hidden_states.3", "model.layers.4294967295.x"] {
            let _ = map.renamed(name);
        }
    }
}

/// Limits of a comparison: none is negative, whatever tensor they are asked for.
pub fn limits(data: &[u8]) {
    let Ok(by_name) = Limits::parse(data) else { return };
    let limits = Limits { by_name, ..Preset::F32.into() };
    let patterns = limits.by_name.iter().map(|(pattern, _)| pattern.as_str());
    for name in patterns.chain(["dec/l_out-3", "entropy", ""]) {
        let bounds = limits.of(name, true);
        assert!(bounds.one_minus_cos >= 0.0 && bounds.nmse >= 0.0 && bounds.max_abs.is_none_or(|x| x >= 0.0));
    }
}

/// What a reply must be: a byte for the kind, then a schema, an expression or texts line by line. The best of equally
/// likely replies is in the language, and JSON where a schema asks for it.
pub fn constrain(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    let language = match kind % 3 {
        0 => match json(&text) {
            Some(schema) => Language::JsonSchema(schema),
            None => return,
        },
        1 => Language::Regex(text.into_owned()),
        _ => Language::Choices(text.lines().map(String::from).collect()),
    };
    let is_json = matches!(language, Language::JsonSchema(_));
    // All bytes, some longer texts, the end, and padding.
    let longer = ["\": ", "{\"", "ab", "null", ", ", "é\""].map(|t| t.as_bytes().to_vec());
    let texts: Vec<_> = (0..).zip((0..=255).map(|b| vec![b]).chain(longer)).collect();
    let end = texts.len() as u32;
    let v = Vocabulary {
        len: texts.len() + 2,
        texts,
        end_ids: vec![end],
        pad: Some(end + 1),
        strips_space: false,
    };
    let Ok(c) = Constraint::new(language, &v) else { return };
    let tokens = c.needed() + 3;
    let Ok(ids) = c.example(tokens) else { return };
    assert!(ids.len() <= tokens && c.accepts(&ids));
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| v.texts[id as usize].1.clone()).collect();
    let reply = String::from_utf8(bytes).expect("languages are of characters");
    assert!(!is_json || json(&reply).is_some(), "{reply}");
}

/// File names of split models.
pub fn split_name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(name) = SplitName::parse(&text) {
        assert_eq!(name.to_string(), text);
        assert!(name.no < name.count);
        let last = name.sibling(name.count - 1).to_string();
        assert_eq!(SplitName::parse(&last), Some(name.sibling(name.count - 1)));
    }
}

/// A receipt: what is read is written and read back as it was.
pub fn receipt(data: &[u8]) {
    let Ok(receipt) = Receipt::parse(data) else { return };
    let text = receipt.to_json().expect("it came out of JSON");
    assert_eq!(Receipt::parse(text.as_bytes()).expect("it was written here"), receipt);
}

/// What a model answers, in every format: however it is cut, the parts are the same, and something that was said or
/// thought is never lost to an empty answer.
pub fn answer(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    for format in FORMATS {
        let mut whole = AnswerParser::for_text(format);
        whole.push_text(&text);
        let whole = whole.finish().1;
        let mut parser = AnswerParser::for_text(format);
        let mut pieces = Vec::new();
        let mut piece = String::new();
        for c in text.chars() {
            piece.push(c);
            if piece.len() > usize::from(cut) {
                pieces.extend(parser.push_text(&std::mem::take(&mut piece)));
            }
        }
        pieces.extend(parser.push_text(&piece));
        let (rest, parts) = parser.finish();
        pieces.extend(rest);
        assert_eq!(parts, whole);
        let joined = |of: fn(&Delta) -> Option<&str>| pieces.iter().filter_map(of).collect::<String>();
        assert_eq!(joined(|d| if let Delta::Text(t) = d { Some(t) } else { None }), whole.text);
        if !whole.thought_is_text {
            assert_eq!(joined(|d| if let Delta::Reasoning(t) = d { Some(t) } else { None }), whole.reasoning);
        }
        let unclosed_only = whole.unclosed_thought && whole.tool_calls.is_empty();
        assert!(!(unclosed_only && whole.text.trim().is_empty() && !whole.reasoning.is_empty()));
        let _ = whole.to_message();
    }
}

/// One file of a checkpoint of `transformers`, the others being whole: the first byte says which. What is converted can be
/// loaded, and its vocabulary is as long as its embedding.
pub fn checkpoint(data: &[u8]) {
    let Some((which, content)) = data.split_first() else { return };
    let names = [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
        "model.safetensors",
        "added_tokens.json",
    ];
    let name = names[usize::from(*which) % names.len()];
    let mut files = CHECKPOINT.clone();
    if name == "added_tokens.json" {
        // The tokenizer as Python has it.
        files.remove("tokenizer.json");
        let texts = ["vocab.json", "merges.txt", "tokenizer_config.json"];
        let contents =
            [r#"{"a":0,"b":1,"ab":2,"<|mask|>":3}"#, "a b", r#"{"tokenizer_class":"Qwen2Tokenizer"}"#];
        files.extend(texts.map(String::from).into_iter().zip(contents.map(|c| c.as_bytes().to_vec().into())));
    }
    files.insert(name.into(), content.to_vec().into());
    let Ok((bytes, _)) = convert_to_memory(Checkpoint::Memory(&files), &ConvertOptions::default()) else {
        return;
    };
    let gguf = Gguf::from_bytes(bytes.into()).expect("it was written here");
    let tokens = gguf.metadata().str_array("tokenizer.ggml.tokens").expect("it has tokens").len() as u64;
    assert_eq!(gguf.tensor("token_embd.weight").map(|t| t.dims[1]), Some(tokens));
}

/// A checkpoint of one layer: a width of 8, 257 tokens, the last of them the mask.
static CHECKPOINT: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(|| {
    let config = r#"{"architectures":["A2DQwen3LMHeadModel"],"num_hidden_layers":1,"max_position_embeddings":64,
        "hidden_size":8,"intermediate_size":4,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":2,
        "rope_theta":1e4,"rms_norm_eps":1e-6,"tie_word_embeddings":true,"eos_token_id":0}"#;
    // Bytes as such vocabularies spell them.
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let spelled = (0..256).map(|b| if printable(b) { Some(b) } else { others.next() });
    let vocab: serde_json::Map<String, serde_json::Value> = spelled
        .zip(0u32..)
        .filter_map(|(c, id)| Some((char::from_u32(c?)?.to_string(), id.into())))
        .collect();
    let tokenizer = serde_json::json!({
        "added_tokens": [{"id": 256, "content": "<|mask|>", "special": true}],
        "pre_tokenizer": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let shapes = [
        ("model.embed_tokens.weight".into(), vec![257, 8]),
        ("model.norm.weight".into(), vec![8]),
        (layer("input_layernorm"), vec![8]),
        (layer("post_attention_layernorm"), vec![8]),
        (layer("self_attn.q_proj"), vec![4, 8]),
        (layer("self_attn.k_proj"), vec![2, 8]),
        (layer("self_attn.v_proj"), vec![2, 8]),
        (layer("self_attn.o_proj"), vec![8, 4]),
        (layer("self_attn.q_norm"), vec![2]),
        (layer("self_attn.k_norm"), vec![2]),
        (layer("mlp.gate_proj"), vec![4, 8]),
        (layer("mlp.up_proj"), vec![4, 8]),
        (layer("mlp.down_proj"), vec![8, 4]),
    ];
    let (mut header, mut at) = (serde_json::Map::new(), 0);
    for (name, shape) in shapes {
        let end = at + 2 * shape.iter().product::<usize>();
        header.insert(name, serde_json::json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}));
        at = end;
    }
    let header = serde_json::Value::Object(header).to_string();
    let weights = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; at]].concat();
    let files = [
        ("config.json", config.into()),
        ("tokenizer.json", tokenizer.to_string().into()),
        ("model.safetensors", weights),
    ];
    let files = BTreeMap::from(files.map(|(name, b): (&str, Vec<u8>)| (name.to_owned(), Bytes::from(b))));
    convert_to_memory(Checkpoint::Memory(&files), &ConvertOptions::default()).expect("it is whole");
    files
});
