//! Files of other programs: the same numbers in each form get the same verdict (`testdata/diagnose/foreign/README.md`).
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{changed, exact, open, oracle_model, testdata};
use redraft::Model;
use redraft::convert::{QuantizePlan, Recipe};
use redraft::diagnose::{Diagnosis, Rounding, Settings, Verdict, diagnose};
use redraft::gguf::{DType, Gguf};
use redraft::trace::{Elements, Given, NameMap, Tensor, TraceFile, like};

const DREAM: &str = "oracle/models/dream-tiny.F16.gguf";

fn judged(model: &str, file: &TraceFile, rounding: Option<Rounding>) -> Result<Diagnosis, String> {
    let gguf = Gguf::open(&testdata().join(model), &Default::default()).unwrap();
    let settings = Settings { rounding, ..Settings::default() };
    diagnose(&gguf, file, &settings, &mut |_| {}).map_err(|e| e.to_string())
}

/// The mistake that was named, or the kind of verdict.
fn told(d: &Diagnosis) -> &str {
    match &d.verdict {
        Verdict::Rounding { .. } => "rounding",
        Verdict::Fault(mistake) => &mistake.fault,
        Verdict::Unexplained { .. } => "unexplained",
        Verdict::Undecided { .. } => "undecided",
    }
}

fn map(text: &str) -> NameMap {
    NameMap::parse(text, "map.json").unwrap()
}

fn golden() -> TraceFile {
    TraceFile::open(&testdata().join("oracle/cases/dream-tiny.F16.forward.safetensors")).unwrap()
}

/// The results of a model with the inputs and names of the golden.
fn results(model: &mut Model) -> TraceFile {
    let mut golden = golden();
    golden.tensors.retain(|name, _| !name.starts_with("logits_"));
    let mut file = like(model, &golden, None).unwrap();
    file.insert("ids", golden.tensors["ids"].shape.clone(), golden.tensors["ids"].data.clone());
    file
}

/// The text of llama.cpp's callback, by its rule: four decimals, three elements at either end, a sum in f32.
fn text(file: &TraceFile) -> String {
    let mut out = String::from("build: 1 (x) with y\n");
    let ends = |n: usize| (0..n).filter(move |&i| n <= 6 || i < 3 || i + 3 >= n);
    for (name, t) in file.tensors.iter().filter(|(name, _)| *name != "ids") {
        let x = t.data.to_f64();
        let (rows, cols) = (t.shape[0], x.len() / t.shape[0]);
        let name = if name == "logits" { "result_output" } else { name };
        let kind = if t.data.is_int() { "i32" } else { "f32" };
        writeln!(out, "common_debug_cb_eval: {name:>24} = ({kind})        ADD(a{{1}}, b{{1}}}}) = {{{cols}, {rows}, 1, 1}}").unwrap();
        out.push_str("    [\n        [\n");
        for i in ends(rows) {
            if rows > 6 && i == rows - 3 {
                out.push_str("            ..., \n");
            }
            out.push_str("            [");
            for j in ends(cols) {
                let gap = if cols > 6 && j == cols - 3 { "   ..., " } else { "" };
                write!(out, "{gap}{:12.4}{}", x[i * cols + j], if j + 1 < cols { ", " } else { "" }).unwrap();
            }
            out.push_str("  ],\n");
        }
        let sum = x.iter().fold(0f32, |sum, &x| sum + x as f32);
        writeln!(out, "        ],\n    ]\n    sum = {sum:.6}").unwrap();
    }
    out
}

/// Arrays of f32 as NumPy stores them without compression.
fn npz(file: &TraceFile) -> Vec<u8> {
    let (mut out, mut directory, mut n) = (Vec::new(), Vec::new(), 0u16);
    for (name, t) in &file.tensors {
        let shape: Vec<String> = t.shape.iter().map(|n| format!("{n},")).collect();
        let (kind, data): (_, Vec<u8>) = match t.data.to_i64() {
            Some(x) => ("<i8", x.iter().flat_map(|x| x.to_le_bytes()).collect()),
            None => ("<f4", t.data.to_f64().iter().flat_map(|&x| (x as f32).to_le_bytes()).collect()),
        };
        let header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({}), }}\n", shape.concat());
        let array =
            [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &data].concat();
        let crc = !array.iter().fold(!0u32, |crc, &b| {
            (0..8).fold(crc ^ u32::from(b), |x, _| x >> 1 ^ if x & 1 == 1 { 0xEDB8_8320 } else { 0 })
        });
        let (name, len) = (format!("{name}.npy"), (array.len() as u32).to_le_bytes());
        let fields =
            [&[0; 8][..], &crc.to_le_bytes(), &len, &len, &(name.len() as u16).to_le_bytes(), &[0; 2]]
                .concat();
        let at = (out.len() as u32).to_le_bytes();
        directory.extend([b"PK\x01\x02\0\0\0\0", &fields[..], &[0; 10], &at, name.as_bytes()].concat());
        out.extend([b"PK\x03\x04\0\0", &fields[..], name.as_bytes(), &array].concat());
        n += 1;
    }
    let sizes = [(directory.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes()].concat();
    let n = n.to_le_bytes();
    [&out[..], &directory, b"PK\x05\x06\0\0\0\0", &n, &n, &sizes, &[0; 2]].concat()
}

/// A folder of raw numbers, a file for each tensor that has any, as it is read.
fn raw(file: &TraceFile, dir: &Path) -> TraceFile {
    for (name, t) in file.tensors.iter().filter(|(_, t)| !t.data.is_int()) {
        let bytes: Vec<u8> = t.data.to_f64().iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
        std::fs::write(dir.join(format!("{name}.bin")), bytes).unwrap();
    }
    TraceFile::open_any(dir, &map(r#"{"*.bin": "*"}"#)).unwrap()
}

/// The file in each form, with its ids.
fn forms(file: &TraceFile, dir: &Path) -> Vec<(&'static str, TraceFile)> {
    let none = NameMap::default();
    let any = |bytes: &[u8]| TraceFile::parse_any(bytes, "theirs", &none).unwrap();
    let mut forms = vec![
        ("safetensors", any(&file.to_bytes())),
        ("npz", any(&npz(file))),
        ("text", any(text(file).as_bytes())),
        ("raw", raw(file, dir)),
    ];
    for (_, read) in &mut forms {
        read.tensors.entry("ids".into()).or_insert_with(|| file.tensors["ids"].clone());
    }
    forms
}

#[test]
fn a_mistake_is_named_from_each_form_and_honest_numbers_are_rounding() {
    let mut honest = open("dream-tiny.F16.gguf", &exact());
    let set = |m: &mut redraft::gguf::Metadata| m.set("dream.rope.freq_base", 10_000f32);
    let mut wrong = Model::from_gguf(changed(&oracle_model("dream-tiny.F16.gguf"), set), &exact()).unwrap();
    for (model, expected) in [(&mut honest, "rounding"), (&mut wrong, "rope-base:10000")] {
        let file = results(model);
        let dir = tempfile::tempdir().unwrap();
        let mut worst = Vec::new();
        for (form, read) in forms(&file, dir.path()) {
            let taps = read.tensors.values().filter(|t| !t.data.is_int()).count();
            assert_eq!(taps, file.tensors.values().filter(|t| !t.data.is_int()).count(), "{form}");
            let d = judged(DREAM, &read, None).unwrap();
            assert_eq!((told(&d), d.rounding), (expected, Rounding::F32), "{form}: {:?}", d.verdict);
            if form != "text" {
                worst.push(d.verdict.clone());
            }
        }
        assert!(worst.windows(2).all(|w| w[0] == w[1]), "the same numbers: {worst:?}");
    }
}

/// Files that NumPy, llama.cpp and transformers made.
#[test]
fn files_that_other_programs_made_are_judged() {
    let any = |name: &str, names: &str| {
        TraceFile::open_any(&testdata().join("diagnose/foreign").join(name), &map(names)).unwrap()
    };
    // Logits with a mistake, in Fortran order and compressed.
    let npz = any("dream-03.npz", r#"{"lm_head": "logits"}"#);
    let plain = TraceFile::open(&testdata().join("diagnose/dream-03.safetensors")).unwrap();
    assert_eq!(npz.tensors["logits"], plain.tensors["logits"]);
    assert_eq!(npz.ids("ids").unwrap(), golden().ids("ids").unwrap());
    let d = judged(DREAM, &npz, Some(Rounding::F32)).unwrap();
    assert_eq!(told(&d), plain.metadata["told"]);

    // llama.cpp on the same file: 16-bit activations, of which four decimals are left.
    let mut dump = any("dream-tiny.F16.txt", "{}");
    dump.insert("ids", vec![8], Elements::I32(vec![20, 31, 57, 44, 12, 63, 9, 100]));
    let d = judged(DREAM, &dump, None).unwrap();
    let Verdict::Rounding { worst, .. } = d.verdict else { panic!("{:?}", d.verdict) };
    assert_eq!((d.rounding, d.taps.len(), d.skipped.len()), (Rounding::LlamaCpp, 21, 0));
    assert!(worst < 1.5, "{worst}");
    let sums: Vec<f64> = d.taps.iter().filter_map(|tap| Some(tap.sum?.ratio())).collect();
    assert!(sums.len() == 21 && sums.iter().all(|&x| x < 2.0), "{sums:?}");
    // Elements that are not shown may be wrong: the sum tells.
    let Some(Given::Printed(p)) = dump.given.get_mut("l_out-0") else { panic!("it is printed") };
    p.sum.as_mut().unwrap().0 += 20.0;
    let d = judged(DREAM, &dump, None).unwrap();
    let Verdict::Unexplained { first, look_at, .. } = &d.verdict else { panic!("{:?}", d.verdict) };
    assert!(first == "l_out-0" && look_at.contains("does not show"), "{first}: {look_at}");

    // A model of transformers with its causal mask, and without.
    for (case, expected) in [(".causal", "causal-mask"), ("", "rounding")] {
        let file = any(&format!("a2d-qwen3-hf{case}.safetensors"), "{}");
        let d = judged("diagnose/foreign/a2d-qwen3-hf.gguf", &file, None).unwrap();
        assert_eq!((told(&d), d.rounding, d.taps.len()), (expected, Rounding::F32, 5), "{:?}", d.verdict);
    }
}

/// llama.cpp on a file in F32, to nine decimals: with its flash attention, which is its default and keeps keys and values in
/// f16, and over a prompt so long that angles in f32 are further away than all the rest of f32.
#[test]
fn flash_attention_and_angles_in_f32_are_rounding() {
    let source = Gguf::open(&testdata().join(DREAM), &Default::default()).unwrap();
    let mut bytes = Vec::new();
    let plan = QuantizePlan::new(&source, &Recipe::pure(DType::F32).unwrap(), None).unwrap();
    plan.write(&mut bytes, 1, &mut |_, _| true).unwrap();
    let gguf = Gguf::from_bytes(bytes.into()).unwrap();
    for (name, tokens, rounding) in [
        // Its sums of values are in f16 up to 63 tokens, and in f32 from 64 on.
        ("fa-60", 60, Rounding::LlamaCppFa),
        ("fa-100", 100, Rounding::KvF16),
        ("long", 500, Rounding::F32),
    ] {
        let path = testdata().join(format!("diagnose/foreign/dream-tiny.F32.{name}.txt"));
        let mut dump = TraceFile::open_any(&path, &map("{}")).unwrap();
        dump.insert("ids", vec![tokens], Elements::I32((1..=tokens as i32).collect()));
        let d = diagnose(&gguf, &dump, &Settings::default(), &mut |_| {}).unwrap();
        let Verdict::Rounding { worst, .. } = d.verdict else { panic!("{name}: {:?}", d.verdict) };
        assert_eq!((d.rounding, d.taps.len()), (rounding, 6), "{name}");
        assert!(worst < 1.5, "{name}: {worst}");
    }
}

#[test]
fn the_last_row_alone_is_compared_with_the_last_row() {
    let file = results(&mut open("dream-tiny.F16.gguf", &exact()));
    let mut last = file.clone();
    last.tensors.retain(|name, _| ["logits", "result_norm", "ids"].contains(&name.as_str()));
    for t in last.tensors.values_mut().filter(|t| !t.data.is_int()) {
        let (cols, x) = (t.data.len() / t.shape[0], t.data.to_f64());
        *t = Tensor { shape: vec![1, cols], data: Elements::F64(x[x.len() - cols..].to_vec()) };
    }
    let mut read = TraceFile::parse_any(text(&last).as_bytes(), "t", &NameMap::default()).unwrap();
    read.tensors.insert("ids".into(), file.tensors["ids"].clone());
    let d = judged(DREAM, &read, None).unwrap();
    assert_eq!((told(&d), d.taps.len()), ("rounding", 2), "{:?}", d.verdict);
}

/// The logits of the last row alone are those of another position. Where tokens may go to other experts that may happen to
/// an honest program, and is said; else it is a mistake.
#[test]
fn a_mistake_in_one_row_is_seen_or_said() {
    for (stem, experts) in [("dream-tiny.F16", false), ("llada-moe-tiny.BF16", true)] {
        let golden =
            TraceFile::open(&testdata().join(format!("oracle/cases/{stem}.forward.safetensors"))).unwrap();
        let mut wanted = golden.clone();
        wanted.tensors.retain(|name, _| !name.starts_with("logits_"));
        let model = format!("oracle/models/{stem}.gguf");
        let mut file = like(&mut open(&format!("{stem}.gguf"), &exact()), &wanted, None).unwrap();
        file.tensors.insert("ids".into(), golden.tensors["ids"].clone());
        let with_row = |tap: &str| {
            let mut file = file.clone();
            let t = file.tensors.get_mut(tap).unwrap();
            let (cols, mut x) = (t.data.len() / t.shape[0], t.data.to_f64());
            let last = x.len() - cols;
            x.copy_within(..cols, last);
            t.data = Elements::F64(x);
            judged(&model, &file, None).unwrap()
        };
        let d = with_row("logits");
        let tap = d.taps.iter().find(|t| t.name == "logits").unwrap();
        assert_eq!((tap.far_rows, tap.rows, tap.rows_count), (1, 16, !experts), "{stem}");
        assert_eq!(told(&d), if experts { "rounding" } else { "unexplained" }, "{stem}");
        if let Verdict::Unexplained { look_at, first, .. } = &d.verdict {
            assert!(first == "logits" && look_at.starts_with("1 of its 16 rows"), "{first}: {look_at}");
        }
        // Nobody's experts come before the first layer's attention.
        assert_eq!(told(&with_row("Qcur-0")), "unexplained", "{stem}");
    }
}

#[test]
fn sums_behind_a_router_are_judged_as_far_as_half_of_the_rows_allow() {
    let (stem, model) = ("llada-moe-tiny.BF16", "oracle/models/llada-moe-tiny.BF16.gguf");
    let golden =
        TraceFile::open(&testdata().join(format!("oracle/cases/{stem}.forward.safetensors"))).unwrap();
    let mut wanted = golden.clone();
    wanted.tensors.retain(|name, _| !name.starts_with("logits_"));
    let file = like(&mut open(&format!("{stem}.gguf"), &exact()), &wanted, None).unwrap();
    let told_with = |tap: &str, by: f64| {
        let mut read = TraceFile::parse_any(text(&file).as_bytes(), "t", &NameMap::default()).unwrap();
        read.tensors.insert("ids".into(), golden.tensors["ids"].clone());
        let Some(Given::Printed(p)) = read.given.get_mut(tap) else { panic!("{tap} is printed") };
        p.sum.as_mut().unwrap().0 +=
            by * file.tensors[tap].data.to_f64().iter().map(|x| x * x).sum::<f64>().sqrt();
        told(&judged(model, &read, None).unwrap()).to_string()
    };
    for (tap, by, expected) in [
        ("logits", 0.0, "rounding"),
        ("l_out-0", 2.0, "rounding"),
        ("l_out-0", 5.0, "unexplained"),
        ("ffn_inp-0", 0.5, "unexplained"),
    ] {
        assert_eq!(told_with(tap, by), expected, "{tap} {by}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let golden = golden();
    let logits = golden.tensors["logits"].data.to_f64();
    let error = |shape: Vec<usize>, flat: bool, n: usize| {
        let mut file = TraceFile { name: "f".into(), ..TraceFile::default() };
        file.tensors.insert("ids".into(), golden.tensors["ids"].clone());
        file.tensors.insert("logits".into(), Tensor { shape, data: Elements::F64(logits[..n].to_vec()) });
        if flat {
            file.given.insert("logits".into(), Given::Flat);
        }
        judged(DREAM, &file, None)
    };
    let n = logits.len();
    let said = "f: tensor logits: expected 8192 numbers of shape [16, 512], found 8192 of shape [32, 256]";
    assert_eq!(error(vec![32, 256], false, n).unwrap_err(), said);
    assert!(error(vec![n], false, n).unwrap_err().contains("found 8192 of shape [8192]"));
    assert!(error(vec![512, 16], false, n).unwrap_err().contains("found 8192 of shape [512, 16]"));
    assert!(
        error(vec![100], true, 100)
            .unwrap_err()
            .contains("expected 8192 numbers of shape [16, 512], found 100")
    );
    for (shape, flat) in [(vec![1, 16, 512], false), (vec![16, 8, 64], false), (vec![n], true)] {
        assert_eq!(told(&error(shape, flat, n).unwrap()), "rounding");
    }
}

#[test]
fn archives_that_lie_are_refused() {
    let mut file = TraceFile::default();
    file.insert("logits", vec![2, 2], Elements::F32(vec![1.0, 2.0, 3.0, 4.0]));
    let good = npz(&file);
    let read =
        |bytes: &[u8]| TraceFile::parse_any(bytes, "t.npz", &NameMap::default()).map_err(|e| e.to_string());
    assert_eq!(read(&good).unwrap().tensors, file.tensors);
    let directory = good.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        read(&bytes).unwrap_err()
    };
    // It says that it would have 2 GiB.
    assert!(changed(directory + 24, &[0, 0, 0, 0x80]).contains("16 times"));
    assert!(changed(directory - 1, &[0]).contains("checksum"));
    assert!(changed(directory + 24, &[1, 0, 0, 0]).contains("checksum"));
    assert!(changed(directory + 10, &[14]).contains("method 14"));
    assert!(changed(directory + 8, &[1]).contains("damaged"));
    assert!(changed(directory + 42, &[0xFE; 4]).contains("damaged"));
    assert!(changed(directory + 46, b"l_gits.npx").starts_with("t.npz: it is a zip archive without arrays"));
    for n in 0..good.len() {
        read(&good[..n]).unwrap_err();
    }
}
