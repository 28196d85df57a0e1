//! llama.cpp loads what is converted, for the architectures that it knows, and reads the same tokens. The test takes a Python
//! with llama-cpp-python (`REDRAFT_PYTHON`, else `python3`), so it is ignored unless it is asked for; `cargo xtask ci` asks where there is
//! one, and counts it as skipped where not.

use std::process::Command;

use redraft::convert::ConvertOptions;
use redraft::tokenizer::{Specials, Tokenizer};

use crate::checkpoint::{Files, Style};
use crate::{converted, model};

/// Loads a model, and prints ids: the mask, whether prompts begin with BOS, and those of a text.
const SCRIPT: &str = r#"
import ctypes, sys
import llama_cpp as lc
quiet = lc.llama_log_callback(lambda level, text, data: None)
lc.llama_log_set(quiet, ctypes.c_void_p(0))
model = lc.llama_model_load_from_file(sys.argv[1].encode(), lc.llama_model_default_params())
if not model:
    sys.exit("llama.cpp cannot load it")
vocab = lc.llama_model_get_vocab(model)
text = sys.argv[2].encode()
ids = (lc.llama_token * 200)()
n = lc.llama_tokenize(vocab, text, len(text), ids, 200, False, True)
print(lc.llama_vocab_mask(vocab), int(lc.llama_vocab_get_add_bos(vocab)), *ids[:n])
"#;

#[test]
#[ignore = "takes a Python with llama-cpp-python"]
fn llama_cpp_loads_converted_files() {
    // Another Python than that of the path may have the package.
    let python = std::env::var("REDRAFT_PYTHON").unwrap_or_else(|_| "python3".into());
    let dir = tempfile::tempdir().unwrap();
    let text = "It's what we've got: 3.14 and\n\n  more <|mask|>, naïve 你好.";
    for file in ["dream-tiny.F16", "llada-tiny.BF16", "llada-moe-tiny.BF16", "rnd1-tiny.BF16"] {
        let files = Files::new(&model(&format!("oracle/models/{file}.gguf")), Style::default());
        let gguf = converted(&files, 0, &ConvertOptions::default()).unwrap();
        let path = dir.path().join(file);
        std::fs::write(&path, &gguf.bytes()[..]).unwrap();
        let done = Command::new(&python).args(["-c", SCRIPT]).arg(&path).arg(text).output().unwrap();
        assert!(done.status.success(), "{file}: {}", String::from_utf8_lossy(&done.stderr));
        let printed = String::from_utf8(done.stdout).unwrap();
        let found: Vec<u32> = printed.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let meta = gguf.metadata();
        let ours = Tokenizer::from_gguf(meta).unwrap().encode(text, Specials::Parse).unwrap();
        let mask = meta.u32("tokenizer.ggml.mask_token_id").unwrap();
        let bos = u32::from(meta.bool("tokenizer.ggml.add_bos_token").unwrap());
        assert_eq!(found, [vec![mask, bos], ours].concat(), "{file}");
    }
}
