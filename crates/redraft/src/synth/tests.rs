use std::collections::HashSet;
use std::fs;
use std::sync::{Arc, LazyLock};

use redraft_compute::rng;
use redraft_gguf::{Gguf, OpenOptions, TensorInfo, codec};

use super::*;
use crate::engine::{CanvasPass, Sampling, canvas_pass};
use crate::tokenizer::Specials;
use crate::{LoadOptions, Model};

/// Made once: a vocabulary takes a moment.
static LARGE: LazyLock<Plan> = LazyLock::new(diffusion_gemma_26b);

fn file_type(name: &str) -> &'static FileType {
    FileType::from_name(name).unwrap()
}

/// The tiny file in memory.
fn tiny(file_type: &FileType, seed: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.gguf");
    let plan = diffusion_gemma_tiny();
    let mut last = (0, 0);
    let summary = write(&plan, file_type, seed, &path, true, &mut |done, total| {
        assert!(done > last.0 && done <= total, "{done} of {total} after {last:?}");
        last = (done, total);
        true
    })
    .unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, summary.n_bytes);
    assert_eq!(plan.file_bytes(file_type).unwrap(), summary.n_bytes);
    assert_eq!(last.1, summary.n_bytes);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing but the file is left");
    bytes
}

fn values(file: &Gguf, t: &TensorInfo) -> Vec<f32> {
    let mut out = vec![0.0; t.n_elements() as usize];
    codec(t.dtype).unwrap().dequantize(&file.tensor_bytes(t), &mut out);
    out
}

fn mean_and_std(x: &[f32]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    (mean, var.sqrt())
}

#[test]
fn q4_k_m_of_the_26b_has_the_published_block_types() {
    let plan = &*LARGE;
    assert_eq!(plan.tensors.len(), 692);
    let count = |dtype| plan.tensors.iter().filter(|t| file_type("q4_k_m").dtype(t) == dtype).count();
    let counts = [DType::F32, DType::Q4_K, DType::Q6_K, DType::Q5_0, DType::Q8_0].map(count);
    assert_eq!(counts, [423, 194, 14, 33, 28]);
}

/// What llama.cpp reads: the twin has the same tensors but for self-conditioning and the scalars of prompt passes, in the
/// same types, and none of the keys of a canvas.
#[test]
fn the_twin_is_the_model_without_what_makes_it_denoise() {
    let (plan, twin) = (&*LARGE, gemma4_26b());
    let extra = |name: &str| name.starts_with("self_cond") || name.contains("enc_layer_output_scale");
    let kept: Vec<&TensorPlan> = plan.tensors.iter().filter(|t| !extra(&t.name)).collect();
    assert_eq!(kept, twin.tensors.iter().collect::<Vec<_>>());
    let count = |dtype| twin.tensors.iter().filter(|t| file_type("q4_k_m").dtype(t) == dtype).count();
    let counts = [DType::F32, DType::Q4_K, DType::Q6_K, DType::Q5_0, DType::Q8_0].map(count);
    assert_eq!(counts, [392, 192, 14, 32, 28]);
    let downs = |dtype| {
        let down = |t: &&TensorPlan| t.name.contains("ffn_down") && file_type("q4_k_m").dtype(t) == dtype;
        twin.tensors.iter().filter(down).count()
    };
    assert_eq!([downs(DType::Q5_0), downs(DType::Q8_0)], [32, 28], "dense and routed, 16 and 14 layers");
    let m = &twin.metadata;
    assert_eq!(m.str("general.architecture").unwrap(), "gemma4");
    for (key, value) in plan.metadata.iter() {
        let name = key.replace("diffusion-gemma.", "gemma4.");
        let gone = key.starts_with("diffusion.") || key.ends_with("attention.causal");
        assert_eq!(m.get(&name).is_some(), !gone, "{key}");
        if !gone && !key.starts_with("general.") {
            assert_eq!(m.get(&name), Some(value), "{key}");
        }
    }
}

/// A pass over the twin has the same bits on both backends and sees all rows; nothing decodes with it.
#[test]
fn the_tiny_twin_can_be_measured_and_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("twin.gguf");
    write(&gemma4_tiny(), file_type("q4_k_m"), 0, &path, true, &mut |_, _| true).unwrap();
    let argmax = |backend: &str, last: u32| {
        let options = LoadOptions { backend: backend.into(), ..LoadOptions::default() };
        let mut model = Model::open(&path, &options).unwrap();
        assert!(model.unused_tensors().is_empty(), "{:?}", model.unused_tensors());
        let session = model.session().unwrap();
        let ids: Vec<u32> = (0..15).map(|p| rng::initial_id(0, 0, p, 2048)).chain([last]).collect();
        let pass = CanvasPass { sampling: Some(Sampling::at(1.0, &[0.5; 16])), ..CanvasPass::new(&ids) };
        canvas_pass(&mut model, &session, pass, &mut ()).unwrap()
    };
    let (reference, cpu) = (argmax("reference", 7), argmax("cpu", 7));
    assert_eq!(reference, cpu);
    assert_ne!(cpu.lse[0], argmax("cpu", 8).lse[0], "the first row sees the last one");
    let model = Model::open(&path, &LoadOptions::default()).unwrap();
    let error = model.sampler().map(|s| s.name).unwrap_err().to_string();
    assert_eq!(
        error,
        "gemma4 is autoregressive: there is no canvas to denoise; `redraft bench` measures its passes"
    );
}

#[test]
fn the_length_of_a_file_is_known_before_it_is_written() {
    let plan = &*LARGE;
    for (name, gb) in [("q4_k_m", 16.8), ("q8_0", 26.9), ("bf16", 50.5), ("f16", 50.5), ("f32", 101.0)] {
        let found = plan.file_bytes(file_type(name)).unwrap() as f64 / 1e9;
        assert!((found - gb).abs() < 0.1, "{name}: expected about {gb} GB, found {found}");
    }
}

#[test]
fn tensors_of_the_26b_have_the_published_shapes() {
    let plan = &*LARGE;
    let (n, v) = (2816, 262_144);
    let cases: &[(&str, &[u64])] = &[
        ("token_embd.weight", &[n, v]),
        ("output_norm.weight", &[n]),
        ("rope_freqs.weight", &[256]),
        ("self_cond_pre_norm.weight", &[n]),
        ("self_cond_gate.weight", &[n, 2112]),
        ("self_cond_up.weight", &[n, 2112]),
        ("self_cond_down.weight", &[2112, n]),
        ("blk.0.attn_norm.weight", &[n]),
        ("blk.0.attn_q.weight", &[n, 4096]),
        ("blk.0.attn_k.weight", &[n, 2048]),
        ("blk.0.attn_v.weight", &[n, 2048]),
        ("blk.0.attn_q_norm.weight", &[256]),
        ("blk.0.attn_k_norm.weight", &[256]),
        ("blk.0.attn_output.weight", &[4096, n]),
        ("blk.0.post_attention_norm.weight", &[n]),
        ("blk.0.ffn_norm.weight", &[n]),
        ("blk.0.ffn_gate.weight", &[n, 2112]),
        ("blk.0.ffn_up.weight", &[n, 2112]),
        ("blk.0.ffn_down.weight", &[2112, n]),
        ("blk.0.post_ffw_norm_1.weight", &[n]),
        ("blk.0.pre_ffw_norm_2.weight", &[n]),
        ("blk.0.ffn_gate_inp.weight", &[n, 128]),
        ("blk.0.ffn_gate_inp.scale", &[n]),
        ("blk.0.ffn_gate_up_exps.weight", &[n, 1408, 128]),
        ("blk.0.ffn_down_exps.weight", &[704, n, 128]),
        ("blk.0.ffn_down_exps.scale", &[128]),
        ("blk.0.post_ffw_norm_2.weight", &[n]),
        ("blk.0.post_ffw_norm.weight", &[n]),
        ("blk.0.layer_output_scale.weight", &[1]),
        ("blk.0.enc_layer_output_scale.weight", &[1]),
        ("blk.5.attn_q.weight", &[n, 8192]),
        ("blk.5.attn_k.weight", &[n, 1024]),
        ("blk.5.attn_q_norm.weight", &[512]),
        ("blk.5.attn_k_norm.weight", &[512]),
        ("blk.5.attn_output.weight", &[8192, n]),
        ("blk.29.attn_k.weight", &[n, 1024]),
    ];
    let shape = |name: &str| plan.tensors.iter().find(|t| t.name == name).map(|t| &t.dims[..]);
    let wrong: Vec<_> = cases.iter().filter(|(name, dims)| shape(name) != Some(dims)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // Full layers take their values from the keys.
    let without_v: Vec<_> = (0..30).filter(|i| shape(&format!("blk.{i}.attn_v.weight")).is_none()).collect();
    assert_eq!(without_v, [5, 11, 17, 23, 29]);
    assert_eq!(plan.tensors.iter().filter(|t| t.name.starts_with("blk.0.")).count(), 23);
}

#[test]
fn metadata_of_the_26b_are_the_published_ones() {
    let m = &LARGE.metadata;
    let key = |name: &str| format!("diffusion-gemma.{name}");
    let mut heads = vec![8; 30];
    (5..30).step_by(6).for_each(|i| heads[i] = 2);
    assert_eq!(m.u32_array(&key("attention.head_count_kv")).unwrap(), heads);
    let sliding: Vec<bool> = heads.iter().map(|&n| n == 8).collect();
    assert_eq!(m.bool_array(&key("attention.sliding_window_pattern")).unwrap(), sliding);
    for (name, value) in [
        ("block_count", 30),
        ("context_length", 262_144),
        ("embedding_length", 2816),
        ("feed_forward_length", 2112),
        ("attention.head_count", 16),
        ("expert_count", 128),
        ("expert_used_count", 8),
        ("expert_feed_forward_length", 704),
        ("attention.key_length", 512),
        ("attention.value_length", 512),
        ("attention.key_length_swa", 256),
        ("attention.value_length_swa", 256),
        ("attention.sliding_window", 1024),
        ("rope.dimension_count", 512),
        ("rope.dimension_count_swa", 256),
    ] {
        assert_eq!(m.u32(&key(name)).unwrap(), value, "{name}");
    }
    for (name, value) in [
        ("rope.freq_base", 1e6),
        ("rope.freq_base_swa", 1e4),
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("final_logit_softcapping", 30.0),
    ] {
        assert_eq!(m.f32(&key(name)).unwrap(), value, "{name}");
    }
    assert_eq!(m.u32("diffusion.canvas_length").unwrap(), 256);
    for name in ["general.name", "general.description"] {
        assert!(m.str(name).unwrap().to_lowercase().contains("random"), "{name} says what the weights are");
    }
}

/// Every file type: the file is read back, and each tensor has the values that the plan asks for.
#[test]
fn values_are_finite_and_spread_as_planned() {
    let plan = diffusion_gemma_tiny();
    let mut seen = HashSet::new();
    for ft in FILE_TYPES {
        let file = Gguf::from_bytes(tiny(ft, 7).into()).unwrap();
        assert_eq!(file.metadata().opt_u32("general.file_type").unwrap(), id_of((ft.rule)(Role::Matrix)));
        assert_eq!(file.tensors().len(), plan.tensors.len());
        for (t, p) in file.tensors().iter().zip(&plan.tensors) {
            let what = format!("{} as {} in {}", t.name, t.dtype, ft.name);
            assert_eq!((&t.name, &t.dims, t.dtype), (&p.name, &p.dims, ft.dtype(p)), "{what}");
            let x = values(&file, t);
            assert!(x.iter().all(|x| x.is_finite()), "{what}");
            match p.fill {
                Fill::Std(std) => {
                    // Tensors have a few thousand weights or more, and blocks share scales.
                    let (mean, found) = mean_and_std(&x);
                    assert!((found / f64::from(std) - 1.0).abs() < 0.03, "{what}: std {found}, not {std}");
                    assert!(mean.abs() < 0.08 * found, "{what}: mean {mean} beside std {found}");
                    seen.insert(t.dtype);
                }
                Fill::Between(low, high) => assert!(x.iter().all(|x| (low..high).contains(x)), "{what}"),
                Fill::RopeFactors { rotated } => {
                    assert_eq!(x.iter().filter(|&&x| x == 1.0).count() as u64, rotated);
                    assert!(x[rotated as usize..].iter().all(|&x| x == 1e30), "{what}");
                }
            }
        }
    }
    let expected = [DType::Q4_K, DType::Q6_K, DType::Q5_0, DType::Q8_0, DType::F16, DType::BF16, DType::F32];
    assert_eq!(seen, HashSet::from(expected), "the tiny plan has every block type");
}

#[test]
fn bytes_are_a_function_of_plan_type_and_seed() {
    for ft in FILE_TYPES {
        let bytes = tiny(ft, 3);
        assert!(bytes == tiny(ft, 3), "{}: another run, other bytes", ft.name);
        assert!(bytes != tiny(ft, 4), "{}: another seed, the same bytes", ft.name);
    }
}

#[test]
fn pieces_of_a_tensor_do_not_depend_on_each_other() {
    let tensor =
        TensorPlan { name: "x".into(), dims: vec![256, 16], role: Role::Matrix, fill: Fill::Std(0.1) };
    for ft in FILE_TYPES {
        let dtype = ft.dtype(&tensor);
        let size = dtype.info().unwrap().block_bytes;
        let filler = blocks::Filler::new(0, 5, &tensor, dtype).unwrap();
        let mut whole = vec![0; tensor.n_bytes(dtype).unwrap() as usize];
        filler.fill(0, &mut whole);
        let mut piece = vec![0; 4 * size];
        filler.fill(8, &mut piece);
        assert_eq!(piece, whole[8 * size..12 * size], "{}", ft.name);
    }
}

/// Kernels that take magnitudes of codes may rely on it.
#[test]
fn no_code_of_q8_0_is_minus_128() {
    let tensor =
        TensorPlan { name: "x".into(), dims: vec![1 << 16], role: Role::Matrix, fill: Fill::Std(0.1) };
    let filler = blocks::Filler::new(0, 0, &tensor, DType::Q8_0).unwrap();
    let mut bytes = vec![0; tensor.n_bytes(DType::Q8_0).unwrap() as usize];
    filler.fill(0, &mut bytes);
    assert!(bytes.chunks(34).all(|b| !b[2..].contains(&0x80)));
}

#[test]
fn vocabularies_are_complete_and_consistent() {
    for (plan, n) in [(&*LARGE, 262_144), (&diffusion_gemma_tiny(), 2048)] {
        let m = &plan.metadata;
        let tokens = m.str_array("tokenizer.ggml.tokens").unwrap();
        let types = m.i32_array("tokenizer.ggml.token_type").unwrap();
        assert_eq!((tokens.len(), types.len()), (n, n));
        assert_eq!(m.f32_array("tokenizer.ggml.scores").unwrap().len(), n);
        for (id, text, kind) in [
            (0, "<pad>", 3),
            (1, "<eos>", 3),
            (2, "<bos>", 3),
            (3, "<unk>", 3),
            (4, "<mask>", 3),
            (50, "<|tool_response>", 3),
            (105, "<|turn>", 3),
            (106, "<turn|>", 3),
        ] {
            assert_eq!((&tokens[id], types[id]), (text, kind));
        }
        assert_eq!(types.iter().filter(|&&t| t == 6).count(), 256);

        let known: HashSet<&str> = tokens.iter().collect();
        assert_eq!(known.len(), n, "no token occurs twice");
        let mut made = HashSet::new();
        for merge in m.str_array("tokenizer.ggml.merges").unwrap().iter() {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!(known.contains(left) && known.contains(right), "{merge:?}");
            let joined = format!("{left}{right}");
            assert!(known.contains(&joined[..]), "{merge:?} makes no token");
            made.insert(joined);
        }
        let single = |t: &str| t.chars().count() == 1;
        let lost: Vec<_> = (0..n)
            .filter(|&i| i >= 107 && types[i] == 1)
            .map(|i| &tokens[i])
            .filter(|t| !single(t) && !made.contains(*t))
            .collect();
        assert!(lost.is_empty(), "tokens that no merge makes: {lost:?}");
    }
}

#[test]
fn unknown_file_types_name_the_known_ones() {
    assert_eq!(FileType::from_name("Q4_K_M").unwrap().name, "q4_k_m");
    assert_eq!(
        FileType::from_name("q3_k_s").unwrap_err().to_string(),
        "unknown file type `q3_k_s`: expected one of q4_k_m, q8_0, f16, bf16, f32"
    );
}

#[test]
fn a_full_disk_is_an_error_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.gguf");
    let mut plan = diffusion_gemma_tiny();
    plan.tensors[0].dims = vec![256, 1 << 50];
    let error = write(&plan, file_type("q4_k_m"), 0, &path, true, &mut |_, _| true).unwrap_err();
    assert!(matches!(error, SynthError::NoSpace { needed, free, .. } if free < needed), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_file_is_removed_and_an_old_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.gguf");
    fs::write(&path, "old").unwrap();
    let mut calls = 0;
    let stop = &mut |_, _| {
        calls += 1;
        calls < 20
    };
    let error = write(&diffusion_gemma_tiny(), file_type("f32"), 0, &path, true, stop).unwrap_err();
    assert!(matches!(error, SynthError::Interrupted), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let stays = write(&diffusion_gemma_tiny(), file_type("f32"), 0, &path, false, &mut |_, _| true);
    assert!(stays.unwrap_err().to_string().contains("--force replaces it"));
    write(&diffusion_gemma_tiny(), file_type("f32"), 0, &path, true, &mut |_, _| true).unwrap();
    Gguf::open(&path, &OpenOptions::default()).unwrap();
}

#[test]
fn a_folder_or_a_missing_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("no/such/folder.gguf")] {
        let error =
            write(&diffusion_gemma_tiny(), file_type("q8_0"), 0, &path, true, &mut |_, _| true).unwrap_err();
        assert!(matches!(&error, SynthError::Io { path: p, .. } if *p == path), "{error}");
    }
}

/// The file as a whole: text in, a canvas pass on both backends, ids out.
#[test]
fn the_tiny_model_runs() {
    let bytes = tiny(file_type("q4_k_m"), 0);
    let results = ["reference", "cpu"].map(|backend| {
        let options = LoadOptions { backend: backend.into(), ..LoadOptions::default() };
        let mut model = Model::from_gguf(Gguf::from_bytes(bytes.clone().into()).unwrap(), &options).unwrap();
        assert!(model.unused_tensors().is_empty() && model.notes().is_empty());
        let tokenizer = Arc::clone(model.tokenizer());
        let text = "<|turn>user\nWhat is a canvas?<turn|>\n";
        let prompt = tokenizer.encode_raw_prompt(text, Specials::Parse).unwrap();
        assert_eq!((prompt[0], prompt[1]), (2, 105));
        assert_eq!(tokenizer.piece(106).unwrap().text, "<turn|>");
        let mut session = model.session().unwrap();
        session
            .set_prompt(&mut model, &prompt, &mut (), &mut |_, _| std::ops::ControlFlow::Continue(()))
            .unwrap();
        let ids: Vec<u32> = (0..32).map(|p| rng::initial_id(0, 0, p, 2048)).collect();
        let pass = CanvasPass { sampling: Some(Sampling::at(0.8, &[0.5; 32])), ..CanvasPass::new(&ids) };
        canvas_pass(&mut model, &session, pass, &mut ()).unwrap()
    });
    assert_eq!(results[0], results[1]);
    let [r, _] = results;
    assert!(r.entropy.iter().all(|h| (0.0..7.0).contains(h)), "{:?}", r.entropy);
    assert!(r.argmax.iter().collect::<HashSet<_>>().len() > 16, "positions differ: {:?}", r.argmax);
}

/// Weights of the published models, and what a file of each architecture does with small sizes.
#[test]
fn models_of_masks_have_their_sizes_and_run() {
    let billions = masks::ALL.map(|s| {
        let weights = masks::plan(&s).tensors.iter().map(|t| t.dims.iter().product::<u64>()).sum::<u64>();
        (s.arch, (weights as f64 / 1e7).round() / 100.0)
    });
    let expected = [
        ("dream", 7.62),
        ("llada", 8.02),
        ("llada-moe", 7.36),
        ("llada2", 16.26),
        ("llada2", 102.89),
        ("llada2", 16.26),
        ("rnd1", 30.53),
        ("sdar", 8.19),
        ("sdar-moe", 30.53),
        ("fast-dllm", 7.62),
        ("a2d-qwen3", 0.6),
        ("a2d-qwen3", 0.6),
        ("a2d-qwen2", 0.49),
    ];
    assert_eq!(billions, expected);
    for s in masks::ALL {
        let s = masks::tiny("tiny", s);
        let weights = masks::plan(&s).tensors.iter().map(|t| t.dims.iter().product::<u64>()).sum::<u64>();
        assert!((1_000_000..5_000_000).contains(&weights), "{}: {weights}", s.arch);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small.gguf");
        write(&masks::plan(&s), file_type("q4_k_m"), 0, &path, true, &mut |_, _| true).unwrap();
        let mut model = Model::open(&path, &LoadOptions::default()).unwrap();
        assert!(model.unused_tensors().is_empty() && model.notes().is_empty(), "{:?}", model.notes());
        let prompt = model.tokenizer().encode_raw_prompt("What is a canvas?", Specials::Parse).unwrap();
        assert!((3..12).contains(&prompt.len()), "{prompt:?}");
        let ids = [&prompt[..], &[2010; 16]].concat();
        let session = model.session().unwrap();
        let u = vec![0.5; ids.len()];
        let pass = CanvasPass { sampling: Some(Sampling::at(1.0, &u)), ..CanvasPass::new(&ids) };
        let r = canvas_pass(&mut model, &session, pass, &mut ()).unwrap();
        assert!(r.entropy.iter().all(|h| (0.0..7.7).contains(h)), "{} {:?}", s.arch, r.entropy);
        assert!(
            r.argmax.iter().collect::<HashSet<_>>().len() > 4,
            "{} positions differ: {:?}",
            s.arch,
            r.argmax
        );
        assert!(!r.argmax.contains(&2010), "the mask is never predicted");
    }
}

/// Not a check of this machine: prints how fast data are made.
#[test]
#[ignore = "a measurement; run it in release"]
fn speed() {
    let tensor = TensorPlan {
        name: "x".into(),
        dims: vec![2112 * 4, 1 << 13],
        role: Role::Matrix,
        fill: Fill::Std(0.1),
    };
    for dtype in [DType::Q4_K, DType::Q6_K, DType::Q5_0, DType::Q8_0, DType::F16, DType::F32] {
        let filler = blocks::Filler::new(0, 0, &tensor, dtype).unwrap();
        let mut bytes = vec![0; dtype.info().unwrap().block_bytes * 4096];
        let start = std::time::Instant::now();
        let rounds = 400;
        for i in 0..rounds {
            filler.fill(i * 4096, &mut bytes);
        }
        let mb = (rounds as usize * bytes.len()) as f64 / 1e6;
        println!("{dtype}: {:.0} MB/s", mb / start.elapsed().as_secs_f64());
    }
}
