//! Files that are broken in one way each. The same files stand in `testdata/gguf-bad` for other tools;
//! `cargo test -p redraft-gguf --test hostile -- --ignored` writes them anew.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use redraft_gguf::{DType, Gguf, GgufError, OpenOptions, codec};

/// Builds files byte by byte, wrong ones included.
#[derive(Clone, Default)]
struct Builder(Vec<u8>);

const U8: u32 = 0;
const U32: u32 = 4;
const I32: u32 = 5;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F64: u32 = 12;

impl Builder {
    fn header(n_tensors: u64, n_metadata: u64) -> Builder {
        Builder::default().raw(b"GGUF").u32(3).u64(n_tensors).u64(n_metadata)
    }

    fn raw(mut self, bytes: &[u8]) -> Builder {
        self.0.extend(bytes);
        self
    }

    fn u32(self, x: u32) -> Builder {
        self.raw(&x.to_le_bytes())
    }

    fn u64(self, x: u64) -> Builder {
        self.raw(&x.to_le_bytes())
    }

    fn str(self, s: &str) -> Builder {
        self.bytes(s.as_bytes())
    }

    fn bytes(self, s: &[u8]) -> Builder {
        self.u64(s.len() as u64).raw(s)
    }

    /// A row of the tensor table.
    fn tensor(self, name: &str, dims: &[u64], dtype: DType, offset: u64) -> Builder {
        let mut b = self.str(name).u32(dims.len() as u32);
        for &d in dims {
            b = b.u64(d);
        }
        b.u32(dtype.0).u64(offset)
    }

    /// Padding to the next multiple of 32 and `n` bytes of data.
    fn data(mut self, n: usize) -> Builder {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}

struct Case {
    name: &'static str,
    file: Builder,
    variant: &'static str,
    message: String,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, file, variant, message: &str| {
        cases.push(Case { name, file, variant, message: message.to_owned() });
    };
    let h = Builder::header;
    let truncated = |what: &str, needs: u64, at: u64, left: u64| {
        format!(
            "file ends inside {what}: expected {needs} bytes at offset {at}, found {left} to the end of the file"
        )
    };

    add("empty", Builder::default(), "Truncated", &truncated("the magic", 4, 0, 0));
    add(
        "magic",
        Builder::default().raw(b"GGML\x03\0\0\0"),
        "BadMagic",
        "not a GGUF file: expected the bytes \"GGUF\" at offset 0, found \"GGML\"",
    );
    add(
        "cut-in-version",
        Builder::default().raw(b"GGUF\x03\0"),
        "Truncated",
        &truncated("the version", 4, 4, 2),
    );
    for (name, version) in [("version-0", 0), ("version-1", 1), ("version-4", 4)] {
        add(
            name,
            Builder::default().raw(b"GGUF").u32(version).u64(0).u64(0),
            "UnsupportedVersion",
            &format!("GGUF version {version} at offset 4 is not supported: expected 2 or 3"),
        );
    }
    add(
        "big-endian",
        Builder::default().raw(b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        "BigEndian",
        "big-endian GGUF files are not supported: the version at offset 4 reads 3 in big-endian order (gguf-py's gguf-convert-endian turns the file round)",
    );
    add(
        "cut-in-counts",
        Builder::default().raw(b"GGUF").u32(3).u64(0).raw(&[0; 4]),
        "Truncated",
        &truncated("the number of metadata entries", 8, 16, 4),
    );
    add(
        "metadata-count",
        h(0, u64::MAX).raw(&[0; 100]),
        "Truncated",
        &truncated("the metadata", u64::MAX, 24, 100),
    );
    add(
        "tensor-count",
        h(1 << 60, 0).raw(&[0; 136]),
        "Truncated",
        &truncated("the tensor table", u64::MAX, 24, 136),
    );
    add(
        "tensor-count-wraps",
        h(0x0AAA_AAAA_AAAA_AAAB, 0).raw(&[0; 136]), // times 24 = 2^64 + 8
        "Truncated",
        &truncated("the tensor table", u64::MAX, 24, 136),
    );
    add(
        "key-length",
        h(0, 1).u64(65_536).raw(&[b'k'; 40]),
        "Limit",
        "the length of metadata key 0 is too large at offset 24: expected at most 65535, found 65536",
    );
    add(
        "key-length-wraps",
        h(0, 1).u64(u64::MAX).raw(&[0; 40]),
        "Limit",
        "the length of metadata key 0 is too large at offset 24: expected at most 65535, found 18446744073709551615",
    );
    add(
        "key-cut",
        h(0, 1).u64(1000).raw(&[b'k'; 20]),
        "Truncated",
        &truncated("metadata key 0", 1000, 32, 20),
    );
    add(
        "key-utf8",
        h(0, 1).bytes(b"\xFFkey").u32(U8).raw(&[1]),
        "NotUtf8",
        "metadata key 0 at offset 32 is not valid UTF-8",
    );
    add(
        "string-length",
        h(0, 1).str("k").u32(STRING).u64(1 << 40).raw(&[0; 50]),
        "Limit",
        "the length of the value of metadata key \"k\" is too large at offset 37: expected at most 67108864, found 1099511627776",
    );
    add(
        "string-cut",
        h(0, 1).str("k").u32(STRING).u64(60 << 20).raw(&[b'x'; 50]),
        "Truncated",
        &truncated("the value of metadata key \"k\"", 60 << 20, 45, 50),
    );
    add(
        "string-utf8",
        h(0, 1).str("k").u32(STRING).bytes(b"ab\xC3"),
        "NotUtf8",
        "the value of metadata key \"k\" at offset 45 is not valid UTF-8",
    );
    add(
        "number-cut",
        h(0, 1).str("k").u32(F64).raw(&[0; 7]),
        "Truncated",
        &truncated("the value of metadata key \"k\"", 8, 37, 7),
    );
    add(
        "value-type",
        h(0, 1).str("k").u32(13).raw(&[0; 16]),
        "UnknownValueType",
        "metadata key \"k\" has an unknown value type at offset 33: expected 0 to 12, found 13",
    );
    add(
        "bool",
        h(0, 1).str("k").u32(BOOL).raw(&[2]),
        "BadBool",
        "metadata key \"k\" has a bad boolean at offset 37: expected 0 or 1, found 2",
    );
    add(
        "bool-in-array",
        h(0, 1).str("k").u32(ARRAY).u32(BOOL).u64(3).raw(&[1, 0, 7]),
        "BadBool",
        "metadata key \"k\" has a bad boolean at offset 51: expected 0 or 1, found 7",
    );
    add(
        "array-type",
        h(0, 1).str("k").u32(ARRAY).u32(99).u64(0),
        "UnknownValueType",
        "metadata key \"k\" has an unknown value type at offset 37: expected 0 to 12, found 99",
    );
    let value = "the value of metadata key \"k\"";
    add(
        "array-of-bytes",
        h(0, 1).str("k").u32(ARRAY).u32(U8).u64(1 << 60).raw(&[0; 9]),
        "Truncated",
        &truncated(value, 1 << 60, 49, 9),
    );
    add(
        "array-of-f64-wraps",
        h(0, 1).str("k").u32(ARRAY).u32(F64).u64(1 << 61).raw(&[0; 9]),
        "Truncated",
        &truncated(value, u64::MAX, 49, 9),
    );
    add(
        "array-of-strings",
        h(0, 1).str("k").u32(ARRAY).u32(STRING).u64(1 << 32).raw(&[0; 100]),
        "Truncated",
        &truncated(value, 8 << 32, 49, 100),
    );
    add(
        "array-of-arrays",
        h(0, 1).str("k").u32(ARRAY).u32(ARRAY).u64(1 << 32).raw(&[0; 100]),
        "Truncated",
        &truncated(value, 12 << 32, 49, 100),
    );
    let nested = |depth: usize| {
        let mut b = h(0, 1).str("k").u32(ARRAY);
        for _ in 1..depth {
            b = b.u32(ARRAY).u64(1);
        }
        b.u32(U8).u64(0)
    };
    let too_deep = "the nesting of arrays in the value of metadata key \"k\" is too large at offset 73: expected at most 4, found 5";
    add("nesting-5", nested(5), "Limit", too_deep);
    add("nesting-300", nested(300), "Limit", too_deep);
    add("nesting-20000", nested(20_000), "Limit", too_deep);
    add(
        "key-controls",
        h(0, 1).str(&format!("a\n\u{1b}[2J{}", "k".repeat(200))).u32(99).raw(&[0; 16]),
        "UnknownValueType",
        &format!(
            "metadata key \"a\\n\\u{{1b}}[2J{}… (206 bytes)\" has an unknown value type at offset 238: \
             expected 0 to 12, found 99",
            "k".repeat(94)
        ),
    );
    add(
        "duplicate-key",
        h(0, 2).str("k").u32(U8).raw(&[1]).str("k").u32(U8).raw(&[1]),
        "DuplicateKey",
        "metadata key \"k\" occurs twice",
    );

    let align = |kind: u32, x: u32| {
        h(1, 1).str("general.alignment").u32(kind).u32(x).tensor("t", &[1], DType::F32, 0).data(32)
    };
    for (name, x) in
        [("alignment-0", 0), ("alignment-12", 12), ("alignment-2-30", 1 << 30), ("alignment-2-31", 1 << 31)]
    {
        add(
            name,
            align(U32, x),
            "BadAlignment",
            &format!(
                "metadata key \"general.alignment\": expected a power of two or a multiple of 8, at most 1048576, found {x}"
            ),
        );
    }
    add(
        "alignment-negative",
        align(I32, (-32i32) as u32),
        "OutOfRange",
        "metadata key \"general.alignment\" is out of range: expected u64, found -32",
    );
    add(
        "alignment-float",
        align(6, 32f32.to_bits()),
        "WrongType",
        "metadata key \"general.alignment\" has the wrong type: expected u64, found f32",
    );

    add(
        "tensor-name-length",
        h(1, 0).u64(1 << 40).raw(&[0; 40]),
        "Limit",
        "the length of the name of tensor 0 is too large at offset 24: expected at most 65535, found 1099511627776",
    );
    add(
        "tensor-name-utf8",
        h(1, 0).bytes(b"t\x80").u32(0).u32(0).u64(0).data(32),
        "NotUtf8",
        "the name of tensor 0 at offset 32 is not valid UTF-8",
    );
    add(
        "tensor-entry-cut",
        h(1, 0).str("t").u32(2).u64(1).raw(&[0; 4]),
        "Truncated",
        &truncated("the table entry of tensor \"t\"", 8, 45, 4),
    );
    for (name, n) in [("dims-5", 5), ("dims-99", 99), ("dims-max", u32::MAX)] {
        add(
            name,
            h(1, 0).str("t").u32(n).raw(&[0; 60]),
            "Limit",
            &format!(
                "the number of dimensions of tensor \"t\" is too large at offset 33: expected at most 4, found {n}"
            ),
        );
    }
    for (name, dims, dtype) in [
        ("shape-wraps-to-0", vec![1 << 32, 1 << 32], DType::F32),
        ("shape-wraps-behind-0", vec![0, 1 << 33, 1 << 33], DType::F32),
        ("shape-wraps-to-small", vec![0xAAAA_AAAA_AAAA_AAAB, 3], DType::I8),
        ("bytes-wrap", vec![1 << 62], DType::F32),
        ("unknown-type-wraps", vec![1 << 32, 1 << 32], DType(43)),
    ] {
        add(
            name,
            h(1, 0).tensor("t", &dims, dtype, 0).data(32),
            "ShapeOverflow",
            &format!(
                "tensor \"t\" is too large: the shape {dims:?} has more elements than 64 bits can count"
            ),
        );
    }
    add(
        "row-not-blocks",
        h(1, 0).tensor("t", &[255, 256], DType::Q4_K, 0).data(144 * 255),
        "RowNotBlocks",
        "tensor \"t\" of type Q4_K: expected rows of a multiple of 256 elements, found 255",
    );
    add(
        "misaligned",
        h(2, 0).tensor("a", &[1], DType::F32, 0).tensor("b", &[1], DType::F32, 4).data(32),
        "Misaligned",
        "tensor \"b\" is misaligned: expected a multiple of 32 as data offset, found 4",
    );
    add(
        "data-cut",
        h(1, 0).tensor("t", &[8], DType::F32, 0).data(31),
        "TensorOutOfFile",
        "tensor \"t\" lies outside the file: 32 bytes at offset 64, expected an end of at most 95",
    );
    add(
        "data-missing",
        h(1, 0).tensor("t", &[8], DType::F32, 0),
        "TensorOutOfFile",
        "tensor \"t\" lies outside the file: 32 bytes at offset 64, expected an end of at most 57",
    );
    add(
        "offset-wraps",
        h(1, 0).tensor("t", &[8], DType::F32, u64::MAX - 31).data(64),
        "TensorOutOfFile",
        "tensor \"t\" lies outside the file: 32 bytes at offset 18446744073709551615, expected an end of at most 128",
    );
    add(
        "unknown-type-outside",
        h(1, 0).tensor("t", &[8], DType(43), 1 << 20).data(64),
        "TensorOutOfFile",
        "tensor \"t\" lies outside the file: 0 bytes at offset 1048640, expected an end of at most 128",
    );
    add(
        "overlap-same-start",
        h(2, 0).tensor("a", &[8], DType::F32, 0).tensor("b", &[16], DType::F32, 0).data(64),
        "TensorOverlap",
        "tensors \"a\" and \"b\" overlap: expected data from offset 128 on, found offset 96",
    );
    add(
        "overlap-partly",
        h(2, 0).tensor("b", &[8], DType::F32, 32).tensor("a", &[9], DType::F32, 0).data(64),
        "TensorOverlap",
        "tensors \"a\" and \"b\" overlap: expected data from offset 132 on, found offset 128",
    );
    add(
        "overlap-unknown-type",
        h(2, 0).tensor("a", &[8], DType(43), 0).tensor("b", &[8], DType(44), 0).data(64),
        "TensorOverlap",
        "tensors \"a\" and \"b\" overlap: expected data from offset 96 on, found offset 96",
    );
    add(
        "duplicate-tensor",
        h(2, 0).tensor("t", &[1], DType::F32, 0).tensor("t", &[1], DType::F32, 32).data(64),
        "DuplicateTensor",
        "tensor \"t\" occurs twice",
    );
    cases
}

fn bad_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gguf-bad")
}

#[test]
fn every_broken_file_is_refused_by_name() {
    let mut wrong = Vec::new();
    for case in cases() {
        match Gguf::from_bytes(case.file.0.into()) {
            Ok(_) => wrong.push(format!("{}: accepted", case.name)),
            Err(e) => {
                let variant = format!("{e:?}");
                if !variant.starts_with(&format!("{} ", case.variant)) || e.to_string() != case.message {
                    wrong.push(format!("{}: {e:?}\n  got      {e}\n  expected {}", case.name, case.message));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases().len(), wrong.join("\n"));
}

#[test]
fn the_stored_files_are_the_cases() {
    let mut names: Vec<String> = cases().iter().map(|c| format!("{}.gguf", c.name)).collect();
    for case in cases() {
        let path = bad_dir().join(format!("{}.gguf", case.name));
        assert_eq!(std::fs::read(&path).unwrap(), case.file.0, "{}", case.name);
        for mmap in [true, false] {
            let e = Gguf::open(&path, &OpenOptions { mmap }).unwrap_err();
            assert_eq!(e.to_string(), case.message, "{} mmap {mmap}", case.name);
        }
    }
    let mut stored: Vec<String> = std::fs::read_dir(bad_dir())
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    stored.sort();
    assert_eq!(stored, names);
}

#[test]
#[ignore = "writes testdata/gguf-bad"]
fn write_the_stored_files() {
    std::fs::create_dir_all(bad_dir()).unwrap();
    for case in cases() {
        std::fs::write(bad_dir().join(format!("{}.gguf", case.name)), &case.file.0).unwrap();
    }
}

/// Oddities that are no errors.
#[test]
fn what_is_odd_but_sound_is_read() {
    let h = Builder::header;
    let read = |b: Builder| Gguf::from_bytes(b.0.into()).unwrap();

    let file = read(h(0, 0));
    assert_eq!((file.data_offset(), file.tensors().len(), file.metadata().len()), (24, 0, 0));

    // A type of the future takes what is left before the next tensor, or before the end of the file.
    let file = read(
        h(3, 0)
            .tensor("new", &[7, 3], DType(43), 32)
            .tensor("old", &[8], DType::F32, 0)
            .tensor("last", &[5], DType(44), 96)
            .data(150),
    );
    let new = file.tensor("new").unwrap();
    assert_eq!((new.dtype.name().as_ref(), new.n_bytes, new.n_elements()), ("type 43", 64, 21));
    assert_eq!(file.tensor("last").unwrap().n_bytes, 54);
    assert_eq!(file.tensor_bytes(new).len(), 64);

    // A single number, and tensors without elements, which may share their place with another.
    let file = read(
        h(3, 0)
            .tensor("number", &[], DType::F32, 0)
            .tensor("none", &[256, 0], DType::Q4_K, 32)
            .tensor("some", &[1], DType::F32, 32)
            .data(36),
    );
    let number = file.tensor("number").unwrap();
    assert_eq!((number.n_elements(), number.row_len(), number.n_rows(), number.n_bytes), (1, 1, 1, 4));
    let none = file.tensor("none").unwrap();
    assert_eq!((none.n_elements(), none.row_len(), none.n_rows(), none.n_bytes), (0, 256, 0, 0));
}

/// Reads everything that a file offers.
fn exercise(bytes: Vec<u8>) -> Result<(), GgufError> {
    let file = Gguf::from_bytes(bytes.into())?;
    assert!(file.alignment().is_power_of_two());
    assert!(file.data_offset() <= file.bytes().len() as u64);
    for (key, value) in file.metadata().iter() {
        assert_eq!(file.metadata().get(key).map(|v| v.type_name()), Some(value.type_name()));
        let _ = (file.metadata().u32(key), file.metadata().i32_array(key), file.metadata().str_array(key));
    }
    for t in file.tensors() {
        assert_eq!(file.tensor(&t.name), Some(t));
        let data = file.tensor_bytes(t);
        assert_eq!(data.len() as u64, t.n_bytes);
        if let Some(c) = codec(t.dtype) {
            assert_eq!(t.n_elements(), t.row_len() * t.n_rows());
            c.dequantize(&data, &mut vec![0.0; t.n_elements() as usize]);
        }
    }
    Ok(())
}

fn samples() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    ["gguf/all-types-v3.gguf", "gguf/all-types-v2.gguf", "blocks/q4_0.gguf"]
        .map(|name| std::fs::read(dir.join(name)).unwrap())
        .to_vec()
}

/// What a fuzzer would do to a file: change bytes, put telling numbers into fields, cut, insert.
#[derive(Debug, Clone)]
enum Edit {
    Byte(prop::sample::Index, u8),
    Number(prop::sample::Index, u64),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<prop::sample::Index>;
    let number = prop_oneof![
        Just(0u64),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just(1 << 61),
        Just(u64::from(u32::MAX)),
        0..100u64,
        any::<u64>(),
    ];
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(i, b)| Edit::Byte(i, b)),
        4 => (at(), number).prop_map(|(i, n)| Edit::Number(i, n)),
        1 => at().prop_map(Edit::Cut),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(i, v)| Edit::Insert(i, v)),
        1 => (at(), 1..40usize).prop_map(|(i, n)| Edit::Remove(i, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    if bytes.is_empty() {
        return;
    }
    let n = bytes.len();
    match edit {
        Edit::Byte(i, b) => bytes[i.index(n)] = *b,
        Edit::Number(i, x) => {
            let at = i.index(n);
            let end = n.min(at + 8);
            bytes[at..end].copy_from_slice(&x.to_le_bytes()[..end - at]);
        }
        Edit::Cut(i) => bytes.truncate(i.index(n)),
        Edit::Insert(i, v) => {
            let at = i.index(n);
            bytes.splice(at..at, v.iter().copied());
        }
        Edit::Remove(i, k) => {
            let at = i.index(n);
            bytes.drain(at..n.min(at + k));
        }
    }
}

#[test]
fn every_cut_of_a_file_is_refused_or_read() {
    for sample in samples() {
        assert!(exercise(sample.clone()).is_ok());
        for n in 0..sample.len().min(2000) {
            let _ = exercise(sample[..n].to_vec());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_edit_makes_the_reader_panic(
        which in 0..3usize,
        edits in prop::collection::vec(edit(), 1..6),
        header_only in any::<bool>(),
    ) {
        let mut bytes = samples().swap_remove(which);
        // Half of the time all edits fall into the part before the tensor data, where the numbers are.
        let tail = bytes.split_off(if header_only { bytes.len().min(600) } else { bytes.len() });
        edits.iter().for_each(|e| apply(&mut bytes, e));
        bytes.extend(tail);
        let _ = exercise(bytes);
    }
}
