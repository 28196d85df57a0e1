//! What a forward pass of a model costs on this machine: a prompt of two tokens, then one pass over a canvas
//! of random ids, the same ids every time.
//!
//! ```text
//! redraft synth diffusion-gemma-26b-a4b big.gguf --type q4_k_m
//! cargo run --release --example full_shape -- big.gguf [canvas tokens = 64] [passes = 1]
//! ```
//!
//! The digest is of the most likely ids; it is the same on every backend and for any number of threads.

#![allow(clippy::print_stdout, reason = "its output is what the example is for")]

use std::path::Path;
use std::time::Instant;

use redraft::compute::rng;
use redraft::engine::{CanvasPass, Previous, Sampling, canvas_pass};
use redraft::{LoadOptions, Model};
use sha2::{Digest as _, Sha256};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: full_shape FILE [CANVAS] [PASSES]")?;
    let canvas_len: u32 = args.next().map_or(Ok(64), |n| n.parse())?;
    let passes: usize = args.next().map_or(Ok(1), |n| n.parse())?;

    let start = Instant::now();
    let mut model = Model::open(Path::new(&path), &LoadOptions::default())?;
    let c = model.backend().capabilities();
    println!("{}: {:.2} GB of weights", model.name(), model.weights_bytes() as f64 / 1e9);
    println!("backend {} ({}), {} threads", c.backend, c.level, c.threads);
    report("open", start);

    let start = Instant::now();
    let mut session = model.session()?;
    session.set_prompt(&mut model, &[2, 105], &mut (), &mut |_, _| std::ops::ControlFlow::Continue(()))?;
    report("prompt of 2 tokens", start);

    let vocab_len = model.shape().vocab_len as u32;
    let ids: Vec<u32> = (0..canvas_len).map(|p| rng::initial_id(0, 0, p, vocab_len)).collect();
    let u: Vec<f64> = (0..canvas_len).map(|p| rng::uniform(0, 0, 0, p)).collect();
    for i in 0..passes {
        let start = Instant::now();
        let previous = if i == 0 { Previous::None } else { Previous::Kept };
        let pass = CanvasPass { previous, sampling: Some(Sampling::at(0.8, &u)), ..CanvasPass::new(&ids) };
        let result = canvas_pass(&mut model, &session, pass, &mut ())?;
        report(&format!("canvas of {canvas_len} tokens, pass {i}"), start);
        let bytes: Vec<u8> = result.argmax.iter().flat_map(|id| id.to_le_bytes()).collect();
        let digest: String = Sha256::digest(&bytes).iter().take(8).map(|b| format!("{b:02x}")).collect();
        let entropy = result.entropy.iter().sum::<f32>() / canvas_len as f32;
        println!("  argmax {digest}, first {:?}, mean entropy {entropy:.3} nats", &result.argmax[..4]);
    }
    Ok(())
}

/// Prints the time since `start`, the most memory that the process has had in RAM so far, pages of the mapped
/// file among it, and how much of what it has now is its own.
fn report(what: &str, start: Instant) {
    let took = start.elapsed().as_secs_f64();
    // Linux only; elsewhere the numbers are unknown.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |key| status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or("unknown").trim();
    println!("{what}: {took:.2} s, peak RSS {}, own memory {}", line("VmHWM:"), line("RssAnon:"));
}
