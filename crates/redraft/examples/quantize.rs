//! Quantizes a model file: `cargo run --release --example quantize -- IN.gguf OUT.gguf TYPE [TOKEN_EMBD_TYPE]`.
//! TYPE is a block type (`q5_k`) or a mix (`q4_k_m`). The embedded model was made with it; see `docs/models/redraft-tiny.md`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use redraft::convert::{Recipe, quantize};
use redraft::gguf::{DType, Gguf, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, types @ ..] = &args[..] else {
        return Err("usage: quantize IN.gguf OUT.gguf TYPE [TOKEN_EMBD_TYPE]".into());
    };
    let mut recipe = Recipe::from_name(types.first().ok_or("no type given")?)?;
    if let Some(name) = types.get(1) {
        recipe = recipe.with_token_embd(DType::from_name(name).ok_or(format!("unknown type {name}"))?)?;
    }
    let gguf = Gguf::open(Path::new(input), &OpenOptions::default())?;
    let done = quantize(&gguf, &recipe, BufWriter::new(File::create(output)?))?;
    let types: Vec<String> = done.types.iter().map(|(d, n)| format!("{} x{n}", d.name())).collect();
    eprintln!("{output}: {} bytes, {}", done.bytes, types.join(", "));
    Ok(())
}
