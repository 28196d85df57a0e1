//! Whole files: the reader against files of another writer, the writer against the reader.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use redraft_gguf::{Array, DTYPES, DType, Gguf, GgufError, GgufWriter, Metadata, OpenOptions, Value};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gguf").join(name)
}

#[test]
fn every_metadata_type_of_another_writer_is_read() {
    for (name, version) in [("all-types-v3.gguf", 3), ("all-types-v2.gguf", 2)] {
        let file = Gguf::open(&sample(name), &OpenOptions::default()).unwrap();
        assert_eq!((file.version(), file.alignment()), (version, 32));
        let expected: Vec<(&str, Value)> = vec![
            ("general.architecture", "test-data".into()),
            ("number.u8", 200u8.into()),
            ("number.i8", (-100i8).into()),
            ("number.u16", 60_000u16.into()),
            ("number.i16", (-30_000i16).into()),
            ("number.u32", 4_000_000_000u32.into()),
            ("number.i32", (-2_000_000_000i32).into()),
            ("number.u64", (1u64 << 63).into()),
            ("number.i64", (-(1i64 << 62)).into()),
            ("number.f32", 0.1f32.into()),
            ("number.f64", 0.1f64.into()),
            ("flag", true.into()),
            ("text", "Grüße, 世界".into()),
            ("words", Array::Str(["", "a", "öü", "\n"].into_iter().collect()).into()),
            ("numbers", Array::I32(vec![1, -2, 3]).into()),
            ("floats", Array::F32(vec![0.5, -0.25]).into()),
            ("flags", Array::Bool(vec![true, false, true]).into()),
            ("nested", Array::Array(vec![Array::I32(vec![1, 2]), Array::I32(vec![3])]).into()),
        ];
        let found: Vec<(&str, Value)> = file.metadata().iter().map(|(k, v)| (k, v.clone())).collect();
        assert_eq!(found, expected, "{name}");

        let matrix = file.tensor("matrix").unwrap();
        assert_eq!((&matrix.dims[..], matrix.dtype, matrix.n_bytes), (&[3, 2][..], DType::F32, 24));
        let numbers: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        assert_eq!(file.tensor_bytes(matrix)[..], numbers);
        let vector = file.tensor("vector").unwrap();
        assert_eq!((&vector.dims[..], vector.dtype, vector.n_bytes), (&[2][..], DType::F16, 4));
        assert_eq!(file.data_offset() % 32, 0);
        assert_eq!(matrix.offset, file.data_offset());
    }
}

#[test]
fn mapped_and_read_files_are_the_same() {
    let path = sample("all-types-v3.gguf");
    let mapped = Gguf::open(&path, &OpenOptions { mmap: true }).unwrap();
    let read = Gguf::open(&path, &OpenOptions { mmap: false }).unwrap();
    assert!(mapped.bytes().is_mapped() && !read.bytes().is_mapped());
    assert_eq!(mapped.bytes()[..], read.bytes()[..]);
    assert_eq!(mapped.metadata(), read.metadata());
    assert_eq!(mapped.tensors(), read.tensors());
    for t in mapped.tensors() {
        assert_eq!(mapped.tensor_bytes(t)[..], read.tensor_bytes(t)[..]);
    }
}

/// Rewriting a file of another writer gives the same bytes.
#[test]
fn a_file_is_rewritten_as_it_was() {
    let file = Gguf::open(&sample("all-types-v3.gguf"), &OpenOptions::default()).unwrap();
    assert_eq!(rewrite(&file), file.bytes()[..]);
}

fn rewrite(file: &Gguf) -> Vec<u8> {
    let mut w = GgufWriter::with_metadata(file.metadata().clone());
    for t in file.tensors() {
        w.add_raw_tensor(&t.name, &t.dims, t.dtype, t.n_bytes).unwrap();
    }
    let mut out = w.begin(Vec::new()).unwrap();
    for t in file.tensors() {
        out.write_tensor(&t.name, &file.tensor_bytes(t)).unwrap();
    }
    out.finish().unwrap()
}

#[test]
fn a_large_vocabulary_is_read_quickly() {
    let mut w = GgufWriter::new();
    let tokens = Array::Str((0..262_144).map(|i| format!("token{i}")).collect());
    let merges = Array::Str((0..514_906).map(|i| format!("to ken{i}")).collect());
    w.metadata_mut().set("tokenizer.ggml.tokens", tokens);
    w.metadata_mut().set("tokenizer.ggml.merges", merges);
    let bytes = w.begin(Vec::new()).unwrap().finish().unwrap();

    let start = std::time::Instant::now();
    let file = Gguf::from_bytes(bytes.into()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!("read in {seconds:.3} s");
    assert!(seconds < 1.0, "{seconds}");
    assert_eq!(&file.metadata().str_array("tokenizer.ggml.merges").unwrap()[514_905], "to ken514905");
}

fn writer_with_one_tensor() -> GgufWriter {
    let mut w = GgufWriter::new();
    w.add_tensor("t", &[2, 2], DType::F16).unwrap();
    w
}

#[test]
fn the_writer_refuses_wrong_descriptions() {
    let mut w = writer_with_one_tensor();
    let long = "n".repeat(64);
    let cases: Vec<(GgufError, &str)> = vec![
        (w.add_tensor("t", &[1], DType::F32).unwrap_err(), "tensor \"t\" occurs twice"),
        (
            w.add_tensor("u", &[33], DType::Q8_0).unwrap_err(),
            "tensor \"u\" of type Q8_0: expected rows of a multiple of 32 elements, found 33",
        ),
        (
            w.add_tensor("u", &[1], DType(43)).unwrap_err(),
            "tensor \"u\" has type 43, whose size is unknown: expected a type of the table",
        ),
        (
            w.add_raw_tensor("u", &[2], DType::F32, 9).unwrap_err(),
            "tensor \"u\" has the wrong amount of data: expected 8 bytes, found 9",
        ),
        (
            w.add_tensor("u", &[1; 5], DType::F32).unwrap_err(),
            "the number of dimensions of tensor \"u\" is too large at offset 0: expected at most 4, found 5",
        ),
        (
            w.add_tensor("u", &[1 << 40, 1 << 40], DType::F32).unwrap_err(),
            "tensor \"u\" is too large: the shape [1099511627776, 1099511627776] has more elements than 64 bits can count",
        ),
    ];
    for (error, message) in cases {
        assert_eq!(error.to_string(), message);
    }
    assert!(matches!(w.add_tensor(&long, &[1], DType::F32), Err(GgufError::Limit { found: 64, .. })));
    w.add_tensor(&long[1..], &[1], DType::F32).unwrap();
}

#[test]
fn the_writer_refuses_wrong_data() {
    let begin = || writer_with_one_tensor().begin(Vec::new()).unwrap();
    let mut out = begin();
    let cases = [
        (
            out.start_tensor("u").unwrap_err(),
            "tensor data out of order: expected tensor \"t\", found tensor \"u\"",
        ),
        (
            out.write(&[0]).unwrap_err(),
            "tensor data out of order: expected the start of tensor \"t\", found data",
        ),
        (
            out.end_tensor().unwrap_err(),
            "tensor data out of order: expected the start of tensor \"t\", found the end of a tensor",
        ),
        (
            begin().finish().unwrap_err(),
            "tensor data out of order: expected tensor \"t\", found the end of the file",
        ),
        (
            begin().write_tensor("t", &[0; 9]).unwrap_err(),
            "tensor \"t\" has the wrong amount of data: expected 8 bytes, found 9",
        ),
        (
            begin().write_tensor("t", &[0; 7]).unwrap_err(),
            "tensor \"t\" has the wrong amount of data: expected 8 bytes, found 7",
        ),
    ];
    for (error, message) in cases {
        assert_eq!(error.to_string(), message);
    }

    out.start_tensor("t").unwrap();
    out.write(&[1; 5]).unwrap();
    assert!(matches!(out.write(&[1; 4]), Err(GgufError::TensorSize { expected: 8, found: 9, .. })));
    assert!(matches!(out.start_tensor("t"), Err(GgufError::TensorOrder { .. })));
    out.write(&[1; 3]).unwrap(); // what was refused was not counted
    out.end_tensor().unwrap();
    assert_eq!(
        out.write(&[0]).unwrap_err().to_string(),
        "tensor data out of order: expected the end of the file, found data"
    );
    let file = Gguf::from_bytes(out.finish().unwrap().into()).unwrap();
    assert_eq!(file.tensor_bytes(&file.tensors()[0])[..], [1; 8]);

    let mut unfinished = begin();
    unfinished.start_tensor("t").unwrap();
    assert_eq!(
        unfinished.finish().unwrap_err().to_string(),
        "tensor data out of order: expected the end of tensor \"t\", found the end of the file"
    );
}

#[test]
fn the_writer_refuses_what_cannot_be_read_back() {
    let with = |key: &str, value: Value| {
        let mut w = GgufWriter::new();
        w.metadata_mut().set(key, value);
        w.begin(Vec::new()).map(|_| ())
    };
    let mut deep = Array::U8(vec![]);
    for _ in 0..3 {
        deep = Array::Array(vec![deep]);
    }
    with("deep", deep.clone().into()).unwrap();
    let deeper = Array::Array(vec![deep]);
    assert!(matches!(with("deeper", deeper.into()), Err(GgufError::Limit { expected: 4, found: 5, .. })));
    assert!(matches!(with(&"k".repeat(65_536), 1u8.into()), Err(GgufError::Limit { .. })));
    assert!(matches!(with("general.alignment", 12u32.into()), Err(GgufError::BadAlignment { found: 12 })));
    assert!(matches!(with("general.alignment", "32".into()), Err(GgufError::WrongType { .. })));
}

#[test]
fn the_alignment_of_the_metadata_is_used() {
    for alignment in [1u32, 2, 8, 24, 96, 4096, 1 << 20] {
        let mut w = GgufWriter::new();
        w.metadata_mut().set("general.alignment", alignment);
        w.add_tensor("a", &[3], DType::I8).unwrap();
        w.add_tensor("b", &[5], DType::I8).unwrap();
        let mut out = w.begin(Vec::new()).unwrap();
        out.write_tensor("a", &[1; 3]).unwrap();
        out.write_tensor("b", &[2; 5]).unwrap();
        let file = Gguf::from_bytes(out.finish().unwrap().into()).unwrap();
        assert_eq!(file.alignment(), u64::from(alignment));
        let b = file.tensor("b").unwrap();
        assert_eq!(b.offset % u64::from(alignment), 0);
        assert_eq!(file.tensor_bytes(b)[..], [2; 5]);
    }
}

/// Any metadata value, with arrays in arrays down to the limit.
fn value() -> impl Strategy<Value = Value> {
    fn many<T: std::fmt::Debug + Clone>(s: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
        prop::collection::vec(s, 0..5)
    }
    let array = prop_oneof![
        many(any::<u8>()).prop_map(Array::U8),
        many(any::<i8>()).prop_map(Array::I8),
        many(any::<u16>()).prop_map(Array::U16),
        many(any::<i16>()).prop_map(Array::I16),
        many(any::<u32>()).prop_map(Array::U32),
        many(any::<i32>()).prop_map(Array::I32),
        many(any::<u32>().prop_map(f32::from_bits)).prop_map(Array::F32),
        many(any::<bool>()).prop_map(Array::Bool),
        many(any::<String>()).prop_map(|v| Array::Str(v.iter().collect())),
        many(any::<u64>()).prop_map(Array::U64),
        many(any::<i64>()).prop_map(Array::I64),
        many(any::<u64>().prop_map(f64::from_bits)).prop_map(Array::F64),
    ]
    .prop_recursive(3, 24, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Array::Array));
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(|b| Value::F32(f32::from_bits(b))),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::String),
        array.prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(|b| Value::F64(f64::from_bits(b))),
    ]
}

/// Type, shape and data of a tensor of any known type.
fn tensor() -> impl Strategy<Value = (DType, Vec<u64>, Vec<u8>)> {
    (0..DTYPES.len(), 0..3u64, prop::collection::vec(0..3u64, 0..3), any::<u8>()).prop_map(
        |(which, blocks, rest, fill)| {
            let t = &DTYPES[which];
            let mut dims = vec![blocks * t.block_len as u64];
            dims.extend(&rest);
            let n = blocks * rest.iter().product::<u64>() * t.block_bytes as u64;
            (t.id, dims, (0..n).map(|i| (i as u8).wrapping_add(fill)).collect())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(
        entries in prop::collection::vec((any::<String>(), value()), 0..8),
        tensors in prop::collection::vec(tensor(), 0..6),
        alignment in prop::option::of(prop_oneof![(0..8u32).prop_map(|log2| 1 << log2), (1..20u32).prop_map(|n| n * 8)]),
        chunk in 1..50usize,
    ) {
        let mut metadata = Metadata::new();
        entries.into_iter().for_each(|(k, v)| metadata.set(k, v));
        if let Some(alignment) = alignment {
            metadata.set("general.alignment", alignment);
        }
        let write = || {
            let mut w = GgufWriter::with_metadata(metadata.clone());
            for (i, (dtype, dims, _)) in tensors.iter().enumerate() {
                w.add_tensor(&format!("tensor.{i}"), dims, *dtype).unwrap();
            }
            let mut out = w.begin(Vec::new()).unwrap();
            for (i, (_, _, data)) in tensors.iter().enumerate() {
                out.start_tensor(&format!("tensor.{i}")).unwrap();
                data.chunks(chunk).for_each(|c| out.write(c).unwrap());
                out.end_tensor().unwrap();
            }
            out.finish().unwrap()
        };
        let bytes = write();
        prop_assert_eq!(&bytes, &write());

        let file = Gguf::from_bytes(bytes.clone().into()).unwrap();
        prop_assert!(file.metadata().iter().map(|e| e.0).eq(metadata.iter().map(|e| e.0)));
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (t, (dtype, dims, data)) in file.tensors().iter().zip(&tensors) {
            prop_assert_eq!((t.dtype, &t.dims), (*dtype, dims));
            prop_assert_eq!(&file.tensor_bytes(t)[..], &data[..]);
        }
        // Every bit of the metadata, NaN included, and of the layout comes back.
        prop_assert_eq!(rewrite(&file), bytes);
    }
}
