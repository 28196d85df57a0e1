//! Block codecs against the reference implementations (`testdata/blocks`) and against their written layouts.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use redraft_gguf::{
    BlockCodec, Bytes, CODECS, DTYPES, DType, Gguf, GgufWriter, OpenOptions, Unpacked, codec,
};

const INPUTS: [&str; 3] = ["gaussian", "heavy", "model"];

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn open(name: &str) -> Gguf {
    Gguf::open(&testdata().join("blocks").join(name), &OpenOptions::default()).unwrap()
}

/// The golden file of a codec's type.
fn golden(c: &dyn BlockCodec) -> Gguf {
    open(&format!("{}.gguf", c.dtype().name().to_lowercase()))
}

fn bytes(file: &Gguf, tensor: &str) -> Vec<u8> {
    let t = file.tensor(tensor).unwrap_or_else(|| panic!("tensor {tensor}"));
    file.tensor_bytes(t).to_vec()
}

/// The values of a tensor of any type.
fn values(file: &Gguf, tensor: &str) -> Vec<f32> {
    let t = file.tensor(tensor).unwrap_or_else(|| panic!("tensor {tensor}"));
    let mut out = vec![0.0; t.n_elements() as usize];
    codec(t.dtype).unwrap().dequantize(&file.tensor_bytes(t), &mut out);
    out
}

fn decode(c: &dyn BlockCodec, blocks: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; blocks.len() / c.block_bytes() * c.block_len()];
    c.dequantize(blocks, &mut out);
    out
}

fn encode(c: &dyn BlockCodec, x: &[f32], weights: Option<&[f32]>) -> Vec<u8> {
    // Filled, so that a byte that is not written shows.
    let mut out = vec![0xA5; x.len() / c.block_len() * c.block_bytes()];
    c.encoder().unwrap().quantize(x, weights, &mut out);
    out
}

/// FNV-1a.
fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3);
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, step)
}

fn quantized() -> impl Iterator<Item = &'static dyn BlockCodec> {
    CODECS.iter().copied().filter(|c| c.block_len() > 1)
}

/// Quantized types that can be written.
fn written() -> impl Iterator<Item = &'static dyn BlockCodec> {
    quantized().filter(|c| c.encoder().is_some())
}

/// Codecs that have a golden file: all but plain F32.
fn with_golden() -> impl Iterator<Item = &'static dyn BlockCodec> {
    CODECS.iter().copied().filter(|c| c.dtype() != DType::F32)
}

#[test]
fn every_type_of_the_table_has_a_codec_of_its_size() {
    assert!(CODECS.windows(2).all(|w| w[0].dtype() < w[1].dtype()));
    assert!(CODECS.iter().map(|c| c.dtype()).eq(DTYPES.iter().map(|t| t.id)));
    for c in CODECS {
        let info = c.dtype().info().unwrap();
        assert_eq!((c.block_len(), c.block_bytes()), (info.block_len, info.block_bytes), "{}", info.name);
        assert_eq!(codec(c.dtype()).unwrap().dtype(), c.dtype());
        assert!(c.encoder().is_none_or(|e| e.dtype() == c.dtype()));
    }
    assert!(codec(DType(43)).is_none());
}

#[test]
fn types_that_can_be_written() {
    let names: Vec<&str> =
        CODECS.iter().filter(|c| c.encoder().is_some()).map(|c| c.dtype().info().unwrap().name).collect();
    let want = "F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS BF16 MXFP4";
    assert_eq!(names.join(" "), want);
}

#[test]
fn values_equal_the_reference_bit_for_bit() {
    let mut wrong = Vec::new();
    let mut sets = [0; 3];
    for c in with_golden() {
        let file = golden(c);
        for (set, count) in ["random", "encoded", "all"].iter().zip(&mut sets) {
            if file.tensor(set).is_none() {
                continue;
            }
            *count += 1;
            let want = values(&file, &format!("{set}.values"));
            assert_eq!(file.tensor(set).unwrap().dtype, c.dtype());
            let got = decode(c, &bytes(&file, set));
            assert_eq!(got.len(), want.len());
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                if g.to_bits() != w.to_bits() && !(g.is_nan() && w.is_nan()) {
                    wrong.push(format!("{} {set}[{i}]: {g:e}, reference {w:e}", c.dtype()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    // Random blocks of all; blocks by ggml of all that it writes; lists of the grid, table and float types.
    assert_eq!(sets, [CODECS.len() - 1, 27, 11]);
}

/// The lists named `all` are what they say.
#[test]
fn lists_are_complete() {
    let mut u = Unpacked::new();
    // Different points of four or eight magnitudes; those of IQ1 without their shift.
    for (dtype, group, points) in [
        (DType::IQ2_XXS, 8, 256),
        (DType::IQ2_XS, 8, 512),
        (DType::IQ2_S, 8, 1024),
        (DType::IQ1_S, 8, 2048),
        (DType::IQ1_M, 8, 2048),
        (DType::IQ3_XXS, 4, 256),
        (DType::IQ3_S, 4, 512),
    ] {
        let c = codec(dtype).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for block in bytes(&golden(c), "all").chunks_exact(c.block_bytes()) {
            c.unpack(block, &mut u);
            let shifted = matches!(dtype, DType::IQ1_S | DType::IQ1_M);
            let point = |codes: &[i8]| -> Vec<i8> {
                codes.iter().map(|&q| if shifted { (q + 12) / 8 } else { q.abs() }).collect()
            };
            seen.extend(u.codes().chunks_exact(group).map(point));
        }
        assert_eq!(seen.len(), points, "{dtype}");
    }
    for (dtype, scales_of_a_block) in [(DType::MXFP4, 1), (DType::NVFP4, 4)] {
        let c = codec(dtype).unwrap();
        let list = bytes(&golden(c), "all");
        let scales = list.chunks_exact(c.block_bytes()).flat_map(|b| &b[..scales_of_a_block]).copied();
        assert!(scales.eq(0..=255), "{dtype}");
    }
}

/// All patterns, by a digest of what NumPy and gguf-py make of them.
#[test]
fn all_numbers_of_16_bits_have_the_values_of_the_reference() {
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for dtype in [DType::F16, DType::BF16] {
        let c = codec(dtype).unwrap();
        let bits =
            decode(c, &patterns).into_iter().map(|x| if x.is_nan() { 0x7FC0_0000 } else { x.to_bits() });
        let want = golden(c).metadata().u64("all.digest").unwrap();
        assert_eq!(fnv(bits.flat_map(u32::to_le_bytes)), want, "{dtype}");
    }
}

#[test]
fn f32_is_stored_as_it_is() {
    let c = codec(DType::F32).unwrap();
    let x = [0.0, -0.0, 1.5, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::MAX];
    let back = decode(c, &encode(c, &x, None));
    assert!(x.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
    assert!(!c.unpack(&[0; 4], &mut Unpacked::new()));
}

#[test]
fn types_without_a_choice_are_encoded_as_by_the_reference() {
    for dtype in [DType::F16, DType::BF16, DType::Q8_0] {
        let c = codec(dtype).unwrap();
        let x = values(&open("inputs.gguf"), "model");
        assert_eq!(encode(c, &x[..4 * 256], None), bytes(&golden(c), "encoded"), "{dtype}");
    }
}

/// The same formula as the documentation of `Unpacked`, in the other order of loops.
#[test]
fn dequantize_is_the_formula_over_unpack() {
    let mut u = Unpacked::new();
    for c in quantized() {
        let raw = bytes(&golden(c), "random");
        for block in raw.chunks_exact(c.block_bytes()) {
            assert!(c.unpack(block, &mut u));
            assert_eq!((u.len, u.codes().len()), (c.block_len(), c.block_len()));
            for (i, v) in decode(c, block).into_iter().enumerate() {
                let s = i / u.sub_len;
                let w = (u.d * u.scales[s] as f32) * f32::from(u.codes[i]) - (u.dmin * f32::from(u.mins[s]));
                assert!(v.to_bits() == w.to_bits() || (v.is_nan() && w.is_nan()), "{}", c.dtype());
            }
            let affine = [DType::Q4_1, DType::Q5_1, DType::Q2_K, DType::Q4_K, DType::Q5_K];
            let has_mins = u.mins[..u.len / u.sub_len].iter().any(|&m| m != 0);
            assert_eq!(has_mins, affine.contains(&c.dtype()), "{}", c.dtype());
            assert!(u.scales.iter().all(|s| s.abs() < 1 << 24));
        }
    }
}

/// Where the layout drawings put bit `b` of the code of weight `i`: (byte, bit).
fn code_bit(dtype: DType, i: usize, b: usize) -> (usize, usize) {
    let quarters = |i: usize| (i / 128 * 32 + i % 32, i / 32 % 4 * 2 + b);
    match dtype {
        DType::Q8_0 => (2 + i, b),
        DType::Q8_1 | DType::Q8_K => (4 + i, b),
        DType::Q4_0 => (2 + i % 16, i / 16 * 4 + b),
        DType::Q4_1 => (4 + i % 16, i / 16 * 4 + b),
        DType::Q5_0 if b == 4 => (2 + i / 8, i % 8),
        DType::Q5_0 => (6 + i % 16, i / 16 * 4 + b),
        DType::Q5_1 if b == 4 => (4 + i / 8, i % 8),
        DType::Q5_1 => (8 + i % 16, i / 16 * 4 + b),
        DType::Q2_K => (16 + quarters(i).0, quarters(i).1),
        DType::Q3_K if b == 2 => (i % 32, i / 32),
        DType::Q3_K => (32 + quarters(i).0, quarters(i).1),
        DType::Q4_K => (16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4 + b),
        DType::Q5_K if b == 4 => (16 + i % 32, i / 32),
        DType::Q5_K => (48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4 + b),
        DType::Q6_K if b >= 4 => (128 + i / 128 * 32 + i % 32, i / 32 % 4 * 2 + b - 4),
        DType::Q6_K => (i / 128 * 64 + i % 64, i / 64 % 2 * 4 + b),
        DType::TQ2_0 => quarters(i),
        DType::Q1_0 => (2 + i / 8, i % 8),
        DType::Q2_0 => (2 + i / 4, i % 4 * 2 + b),
        DType::IQ4_NL => (2 + i % 16, i / 16 * 4 + b),
        DType::IQ4_XS => (8 + i / 32 * 16 + i % 16, i / 16 % 2 * 4 + b),
        DType::MXFP4 => (1 + i % 16, i / 16 * 4 + b),
        DType::NVFP4 => (4 + i / 16 * 8 + i % 8, i / 8 % 2 * 4 + b),
        _ => panic!("{dtype} has no layout here"),
    }
}

/// Bits of a code, and the number that each code stands for; none for the grid types and `TQ1_0`, whose codes
/// are no bits of their own.
fn code_form(dtype: DType) -> Option<(usize, Vec<i8>)> {
    let linear = |bits: usize, subtract: i32| (bits, (0..1 << bits).map(|q| (q - subtract) as i8).collect());
    Some(match dtype {
        DType::Q8_0 | DType::Q8_1 | DType::Q8_K => (8, (0..=255u8).map(|b| b as i8).collect()),
        DType::Q4_0 => linear(4, 8),
        DType::Q5_0 => linear(5, 16),
        DType::Q3_K => linear(3, 4),
        DType::Q6_K => linear(6, 32),
        DType::Q2_K => linear(2, 0),
        DType::Q4_1 | DType::Q4_K => linear(4, 0),
        DType::Q5_1 | DType::Q5_K => linear(5, 0),
        DType::TQ2_0 | DType::Q2_0 => linear(2, 1),
        DType::Q1_0 => (1, vec![-1, 1]),
        DType::IQ4_NL | DType::IQ4_XS => {
            (4, vec![-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
        }
        DType::MXFP4 | DType::NVFP4 => (4, vec![0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]),
        _ => return None,
    })
}

/// Half the largest distance between two numbers of a type, in parts of the largest magnitude that is sure to
/// be reached: what rounding costs at most where the search does not choose to cut something off.
fn half_step(dtype: DType) -> f32 {
    match dtype {
        // 4 and 6, where the largest weight is at least 4; and 8 is cut to 6.
        DType::MXFP4 => 2.0 / 8.0,
        // -127 and -104.
        DType::IQ4_NL | DType::IQ4_XS => 11.5 / 113.0,
        // Codes that reach from -x to x.
        _ => 1.0 / (1 << code_form(dtype).unwrap().0) as f32,
    }
}

/// Every value of every byte that holds codes, with all other bytes zero and with all others 0xFF.
#[test]
fn every_byte_value_unpacks_as_the_layout_says() {
    for c in quantized() {
        let dtype = c.dtype();
        let Some((n_bits, numbers)) = code_form(dtype) else { continue };
        let places: Vec<Vec<(usize, usize)>> =
            (0..c.block_len()).map(|i| (0..n_bits).map(|b| code_bit(dtype, i, b)).collect()).collect();
        let mut code_bytes: Vec<usize> = places.iter().flatten().map(|p| p.0).collect();
        code_bytes.sort_unstable();
        code_bytes.dedup();
        // Each code byte is used in full by the weights together.
        assert_eq!(code_bytes.len() * 8, c.block_len() * n_bits, "{dtype}");

        let mut u = Unpacked::new();
        for &at in &code_bytes {
            for value in 0..=255u8 {
                for rest in [0u8, 0xFF] {
                    let mut block = vec![rest; c.block_bytes()];
                    block[at] = value;
                    c.unpack(&block, &mut u);
                    for (i, places) in places.iter().enumerate() {
                        let bits = places.iter().enumerate();
                        let code = bits.fold(0u8, |q, (b, &(byte, bit))| q | (block[byte] >> bit & 1) << b);
                        let want = numbers[usize::from(code)];
                        assert_eq!(u.codes[i], want, "{dtype} byte {at} = {value:#x}, weight {i}");
                    }
                }
            }
        }
    }
}

#[test]
fn q6_k_scales_are_signed_bytes_in_order() {
    let c = codec(DType::Q6_K).unwrap();
    let mut block = vec![0; 210];
    for s in 0..16 {
        block[192 + s] = (s as u8).wrapping_mul(17).wrapping_add(120);
    }
    let mut u = Unpacked::new();
    c.unpack(&block, &mut u);
    assert_eq!((u.sub_len, u.len), (16, 256));
    for s in 0..16 {
        assert_eq!(u.scales[s], i32::from(block[192 + s] as i8));
    }
}

/// Any codes that a decoder can see are written back as the same bytes by the packing half of the encoder:
/// weights that are exactly representable survive.
#[test]
fn representable_blocks_survive() {
    for c in written().filter(|c| c.dtype() != DType::Q8_0) {
        let file = golden(c);
        let raw = bytes(&file, "encoded");
        let x = values(&file, "encoded.values");
        let again = decode(c, &encode(c, &x, None));
        let peak = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let worst = x.iter().zip(&again).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        assert_eq!(raw.len() / c.block_bytes() * c.block_len(), x.len());
        // Half of the smallest step is never lost; the scale search may move the grid a little.
        assert!(worst <= peak * half_step(c.dtype()), "{}: {worst} of {peak}", c.dtype());
    }
}

fn rmse(x: &[f32], y: &[f32], weights: &[f32]) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (i, (&x, &y)) in x.iter().zip(y).enumerate() {
        let w = f64::from(weights[i % weights.len()]);
        sum += w * (f64::from(x) - f64::from(y)).powi(2);
        total += w;
    }
    (sum / total).sqrt()
}

/// The errors of our encoder, in parts of ggml's.
#[test]
fn encoding_is_as_close_as_the_reference() {
    let inputs = open("inputs.gguf");
    let importance = values(&inputs, "importance");
    let mut table = String::from("type   input      plain  weighted\n");
    let mut bad = Vec::new();
    for c in with_golden().filter(|c| c.encoder().is_some()) {
        let reference = golden(c);
        for input in INPUTS {
            let x = values(&inputs, input);
            let repeated: Vec<f32> = importance.iter().copied().cycle().take(x.len()).collect();
            let plain = rmse(&x, &decode(c, &encode(c, &x, None)), &[1.0]);
            let weighted = rmse(&x, &decode(c, &encode(c, &x, Some(&repeated))), &importance);
            let want = |kind: &str| reference.metadata().f64(&format!("{kind}.{input}")).unwrap();
            // Inputs are exact in BF16, and their magnitudes nearly so in F16.
            let ratio = |got: f64, want: f64| if want == 0.0 { 1.0 + got } else { got / want };
            let (plain, weighted) = (ratio(plain, want("rmse")), ratio(weighted, want("weighted_rmse")));
            table += &format!("{:6} {input:9} {plain:6.4} {weighted:8.4}\n", c.dtype().name());
            // The types of most published files are held to more.
            let most = if matches!(c.dtype(), DType::Q4_K | DType::Q6_K) { 1.01 } else { 1.02 };
            if plain > most || weighted > most {
                bad.push(format!("{} {input}: {plain:.4} {weighted:.4}", c.dtype()));
            }
        }
    }
    println!("{table}");
    assert!(bad.is_empty(), "more than 2 % above the reference, or 1 % for Q4_K and Q6_K: {bad:?}");
}

/// The encoders' bytes are part of the promise "same bits everywhere": a converted file has the same digest
/// on every machine. Whoever improves an encoder changes these numbers on purpose.
#[test]
fn encoders_give_the_same_bytes_on_every_machine() {
    let inputs = open("inputs.gguf");
    let importance = values(&inputs, "importance");
    let expected = [
        (DType::Q4_0, 0xB561_89F2_E0F5_B2AF),
        (DType::Q5_0, 0x181F_A21A_3712_6E10),
        (DType::Q5_1, 0x0115_4886_923D_315A),
        (DType::Q8_0, 0xC9F8_1546_D9A4_585D),
        (DType::Q4_K, 0xE030_D9A1_E218_9831),
        (DType::Q5_K, 0xD7C4_88C1_5610_0300),
        (DType::Q6_K, 0xD0BC_F6B1_E2ED_9EC0),
        (DType::Q4_1, 0xD09F_EF93_7398_536E),
        (DType::Q2_K, 0x01BD_9FB5_E455_EE60),
        (DType::Q3_K, 0xBBED_4A63_607B_2233),
        (DType::IQ4_NL, 0xA671_2920_3342_4802),
        (DType::IQ4_XS, 0xC547_E53E_A6CD_8EFA),
        (DType::MXFP4, 0xF04F_B1CC_53AC_028A),
    ];
    assert!(written().all(|c| expected.iter().any(|(d, _)| *d == c.dtype())));
    let found = expected.map(|(dtype, _)| {
        let c = codec(dtype).unwrap();
        let mut all = Vec::new();
        for input in INPUTS {
            let x = values(&inputs, input);
            let repeated: Vec<f32> = importance.iter().copied().cycle().take(x.len()).collect();
            all.extend(encode(c, &x, None));
            all.extend(encode(c, &x, Some(&repeated)));
        }
        (dtype, fnv(all))
    });
    assert_eq!(found, expected);
}

#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let x = values(&open("inputs.gguf"), "gaussian");
    let weights: Vec<f32> = (0..x.len()).map(|i| if i % 4 == 0 { 100.0 } else { 1.0 }).collect();
    for c in written().filter(|c| c.dtype() != DType::Q8_0) {
        let important: Vec<f32> = weights.iter().map(|&w| if w > 1.0 { 1.0 } else { 0.0 }).collect();
        let without = rmse(&x, &decode(c, &encode(c, &x, None)), &important);
        let with = rmse(&x, &decode(c, &encode(c, &x, Some(&weights))), &important);
        assert!(with < without, "{}: {with} is not below {without}", c.dtype());
    }
}

#[test]
fn extreme_blocks_are_encoded_without_harm() {
    let mut cases: Vec<(&str, Vec<f32>)> = vec![
        ("zeros", vec![0.0; 256]),
        ("negative zeros", vec![-0.0; 256]),
        ("not numbers", vec![f32::NAN; 256]),
        ("infinite", vec![f32::INFINITY; 256]),
        ("largest", vec![-f32::MAX; 256]),
        ("subnormal", vec![f32::from_bits(1); 256]),
        ("tiny", (0..256).map(|i| 1e-7 * (i as f32 - 128.0)).collect()),
        ("constant", vec![0.7; 256]),
        ("constant below zero", vec![-0.7; 256]),
        ("all above zero", (0..256).map(|i| 5.0 + i as f32 / 256.0).collect()),
        ("huge and tiny", (0..256).map(|i| if i % 2 == 0 { 1e30 } else { 1e-30 }).collect()),
    ];
    let mut one = vec![0.0; 256];
    one[255] = -3.0;
    cases.push(("one weight", one));
    for c in written() {
        for (name, x) in &cases {
            for weights in [None, Some(vec![0.0; 256]), Some(vec![f32::NAN; 256]), Some(vec![f32::MAX; 256])]
            {
                let back = decode(c, &encode(c, x, weights.as_deref()));
                assert!(back.iter().all(|v| v.is_finite()), "{} {name}: not finite", c.dtype());
                let peak = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                if x.iter().all(|v| v.abs() < 1e4) && peak > 1e-2 {
                    let worst = x.iter().zip(&back).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
                    assert!(
                        worst <= half_step(c.dtype()).max(0.07) * peak,
                        "{} {name}: {worst} of {peak}",
                        c.dtype()
                    );
                }
                if peak == 0.0 || peak.is_nan() {
                    assert!(back.iter().all(|&v| v == 0.0), "{} {name}", c.dtype());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "Q4_K: 256 weights are not the content of 143 bytes")]
fn a_part_of_a_block_is_refused() {
    codec(DType::Q4_K).unwrap().dequantize(&[0; 143], &mut [0.0; 256]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bits as weights and importances: no panic, finite values, the same bytes again.
    #[test]
    fn any_weights_can_be_encoded(
        bits in prop::collection::vec(any::<u32>(), 256),
        importance in prop::option::of(prop::collection::vec(any::<u32>(), 256)),
    ) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let w: Option<Vec<f32>> = importance.map(|w| w.into_iter().map(f32::from_bits).collect());
        for c in written() {
            let blocks = encode(c, &x, w.as_deref());
            prop_assert!(decode(c, &blocks).iter().all(|v| v.is_finite()), "{}", c.dtype());
            prop_assert_eq!(blocks, encode(c, &x, w.as_deref()));
        }
    }

    /// Any bytes as blocks: no panic, and decoding in one call or block by block is the same.
    #[test]
    fn any_bytes_can_be_decoded(raw in prop::collection::vec(any::<u8>(), 2 * 292)) {
        for c in CODECS {
            let n = raw.len() / c.block_bytes() * c.block_bytes();
            let all = decode(*c, &raw[..n]);
            let single: Vec<f32> =
                raw[..n].chunks_exact(c.block_bytes()).flat_map(|b| decode(*c, b)).collect();
            prop_assert!(all.iter().zip(&single).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    /// The search has the grid among its candidates that just reaches the largest magnitude; there no weight is further away than
    /// two half steps, as one side has a number less. What it takes has a sum of squares that is at most that. (Of a single
    /// weight nothing follows: the search cuts one off where that serves the others.)
    #[test]
    fn ordinary_weights_come_back(x in prop::collection::vec(-1.0f32..1.0, 256)) {
        for c in written() {
            let back = decode(c, &encode(c, &x, None));
            let squares: f32 = x.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum();
            let distance = (squares / 256.0).sqrt();
            prop_assert!(distance <= 2.0 * half_step(c.dtype()), "{}: {}", c.dtype(), distance);
        }
    }

    /// Where the encoder has no choice, or tries the scale that gave the values first, they come back as they
    /// are.
    #[test]
    fn what_was_written_is_written_again(x in prop::collection::vec(-1.0f32..1.0, 256)) {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::MXFP4] {
            let c = codec(dtype).unwrap();
            let once = decode(c, &encode(c, &x, None));
            prop_assert_eq!(&decode(c, &encode(c, &once, None)), &once, "{}", dtype);
        }
    }

    /// Any codes of MXFP4 under any scale but the outermost.
    #[test]
    fn all_blocks_of_mxfp4_survive(scale in 6u8..=150, codes in prop::array::uniform16(any::<u8>())) {
        let c = codec(DType::MXFP4).unwrap();
        let block: Vec<u8> = [scale].into_iter().chain(codes).collect();
        let x = decode(c, &block);
        prop_assert_eq!(decode(c, &encode(c, &x, None)), x);
    }
}

/// One tensor of every type, of two blocks, with a scale around one.
fn every_type() -> Vec<u8> {
    let mut w = GgufWriter::new();
    w.metadata_mut().set("general.architecture", "test-data");
    w.metadata_mut().set("general.name", "one tensor of every type");
    let mut out = Vec::new();
    for t in DTYPES {
        let name = format!("{}.weight", t.name.to_lowercase());
        w.add_tensor(&name, &[t.block_len as u64, 2], t.id).unwrap();
        let file = (t.id != DType::F32).then(|| golden(codec(t.id).unwrap()));
        let blocks = match &file {
            // The last random block of a type with blocks has an ordinary scale.
            Some(file) if t.block_len > 1 => {
                let raw = bytes(file, "random");
                raw[raw.len() - t.block_bytes..].repeat(2)
            }
            Some(file) => bytes(file, "random")[..2 * t.block_bytes].to_vec(),
            None => [1.0f32, -2.5].into_iter().flat_map(f32::to_le_bytes).collect(),
        };
        out.push((name, blocks));
    }
    let mut writer = w.begin(Vec::new()).unwrap();
    for (name, blocks) in out {
        writer.write_tensor(&name, &blocks).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_file_with_every_type_is_read() {
    let bytes = std::fs::read(testdata().join("gguf/every-type.gguf")).unwrap();
    assert!(bytes == every_type(), "run the ignored test `write_every_type`");
    let file = Gguf::from_bytes(Bytes::from(bytes)).unwrap();
    assert_eq!(file.tensors().len(), DTYPES.len());
    for (t, info) in file.tensors().iter().zip(DTYPES) {
        assert_eq!((t.dtype, t.n_bytes), (info.id, 2 * info.block_bytes as u64));
        let mut x = vec![0.0; 2 * info.block_len];
        codec(t.dtype).unwrap().dequantize(&file.tensor_bytes(t), &mut x);
    }
}

#[test]
#[ignore = "writes testdata/gguf/every-type.gguf"]
fn write_every_type() {
    std::fs::write(testdata().join("gguf/every-type.gguf"), every_type()).unwrap();
}
