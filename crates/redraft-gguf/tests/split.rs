//! Split models: any file opens all, and a file that does not belong is named.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

use std::path::{Path, PathBuf};

use redraft_gguf::{DType, Gguf, GgufError, GgufWriter, OpenOptions, Value};

/// What one file says, and the tensors in it: one row of two numbers each.
struct Part {
    no: Option<u16>,
    count: Option<u16>,
    total: i32,
    extra: Vec<(&'static str, Value)>,
    tensors: Vec<&'static str>,
}

impl Part {
    fn new(no: u16, tensors: &[&'static str]) -> Part {
        let extra = if no == 0 {
            vec![("general.architecture", "quux".into()), ("quux.block_count", 2u32.into())]
        } else {
            vec![]
        };
        Part { no: Some(no), count: Some(3), total: 3, extra, tensors: tensors.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut w = GgufWriter::new();
        for (key, value) in &self.extra {
            w.metadata_mut().set(*key, value.clone());
        }
        if let Some(no) = self.no {
            w.metadata_mut().set("split.no", no);
        }
        if let Some(count) = self.count {
            w.metadata_mut().set("split.count", count);
            w.metadata_mut().set("split.tensors.count", self.total);
        }
        self.tensors.iter().for_each(|t| w.add_tensor(t, &[2], DType::F32).unwrap());
        let mut out = w.begin(Vec::new()).unwrap();
        for t in &self.tensors {
            let numbers = [t.len() as f32, 0.5].map(f32::to_le_bytes);
            out.write_tensor(t, numbers.as_flattened()).unwrap();
        }
        out.finish().unwrap()
    }
}

/// As gguf-split writes it with `--no-tensor-first-split`.
fn parts() -> [Part; 3] {
    [Part::new(0, &[]), Part::new(1, &["a", "bb"]), Part::new(2, &["ccc"])]
}

fn file(dir: &Path, no: usize) -> PathBuf {
    dir.join(format!("m-{:05}-of-00003.gguf", no + 1))
}

fn save(dir: &Path, parts: &[Part]) {
    for (no, part) in parts.iter().enumerate() {
        std::fs::write(file(dir, no), part.bytes()).unwrap();
    }
}

/// What is wrong, the number of the file that is opened, how to make it wrong, and what is said.
type Case = (&'static str, usize, fn(&mut [Part; 3]), &'static str);

/// What is said when the file `no` of the parts after `change` is opened.
fn error(no: usize, change: fn(&mut [Part; 3])) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = parts();
    change(&mut parts);
    save(dir.path(), &parts);
    let e = Gguf::open(&file(dir.path(), no), &OpenOptions::default()).unwrap_err();
    let prefix = format!("{}{}", dir.path().display(), std::path::MAIN_SEPARATOR);
    e.to_string().replace(&prefix, "")
}

#[test]
fn every_file_opens_the_whole_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut parts = parts();
    parts[2].extra.push(("general.alignment", 64u32.into()));
    parts[2].extra.push(("general.architecture", "quux".into()));
    save(dir.path(), &parts);
    for no in 0..3 {
        for mmap in [true, false] {
            let gguf = Gguf::open(&file(dir.path(), no), &OpenOptions { mmap }).unwrap();
            let keys: Vec<&str> = gguf.metadata().iter().map(|(k, _)| k).collect();
            assert_eq!(keys, ["general.architecture", "quux.block_count", "general.alignment"]);
            let names: Vec<(&str, usize)> = gguf.tensors().iter().map(|t| (&*t.name, t.file)).collect();
            assert_eq!(names, [("a", 1), ("bb", 1), ("ccc", 2)]);
            for t in gguf.tensors() {
                assert_eq!(gguf.tensor(&t.name), Some(t));
                assert_eq!(gguf.tensor_bytes(t)[..4], (t.name.len() as f32).to_le_bytes());
            }
            let files: Vec<_> = gguf.files().iter().map(|f| (f.path.clone().unwrap(), f.n_tensors)).collect();
            assert_eq!(files, [(file(dir.path(), 0), 0), (file(dir.path(), 1), 2), (file(dir.path(), 2), 1)]);
            assert_eq!((gguf.alignment(), gguf.files()[2].alignment), (32, 64));
            gguf.check().unwrap();
        }
    }
}

#[test]
fn one_file_given_as_bytes_is_taken_for_itself() {
    let gguf = Gguf::from_bytes(parts()[1].bytes().into()).unwrap();
    assert_eq!(gguf.metadata().u32("split.no").unwrap(), 1);
    assert_eq!(gguf.tensors().len(), 2);
}

#[test]
fn a_model_in_one_file_may_have_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Part { count: None, no: None, ..Part::new(0, &["a"]) };
    let mut one = Part::new(0, &["a"]);
    (one.count, one.total) = (Some(1), 1);
    for part in [whole, one] {
        let path = file(dir.path(), 1);
        std::fs::write(&path, part.bytes()).unwrap();
        assert_eq!(Gguf::open(&path, &OpenOptions::default()).unwrap().tensors().len(), 1);
    }
}

#[test]
fn what_does_not_belong_is_named() {
    let cases: [Case; 10] = [
        (
            "a copy under another number",
            0,
            |p| p[1] = Part::new(2, &["ccc"]),
            "m-00002-of-00003.gguf does not belong to this split model: metadata key \"split.no\": expected 1, \
             found 2, the number of m-00003-of-00003.gguf",
        ),
        (
            "the same, opened itself",
            1,
            |p| p[1] = Part::new(2, &["ccc"]),
            "m-00002-of-00003.gguf does not belong to this split model: metadata key \"split.no\": expected 1, \
             found 2, the number of m-00003-of-00003.gguf",
        ),
        (
            "a file of a model of other size",
            2,
            |p| p[1].count = Some(4),
            "m-00002-of-00003.gguf does not belong to this split model: metadata key \"split.count\": expected \
             3, found 4",
        ),
        (
            "a whole model under a sibling's name",
            2,
            |p| p[0].count = None,
            "m-00001-of-00003.gguf does not belong to this split model: metadata key \"split.count\": expected \
             3, found nothing",
        ),
        (
            "another architecture",
            0,
            |p| p[2].extra.push(("general.architecture", "other\n".into())),
            "m-00003-of-00003.gguf does not belong to this split model: metadata key \"general.architecture\": \
             expected \"quux\", found \"other\\n\"",
        ),
        (
            "another total",
            0,
            |p| p[2].total = 9,
            "m-00003-of-00003.gguf does not belong to this split model: metadata key \"split.tensors.count\": \
             expected 3, found 9",
        ),
        (
            "too few tensors",
            0,
            |p| p.iter_mut().for_each(|p| p.total = 4),
            "the 3 files of the split model m-00001-of-00003.gguf have 3 tensors together, expected 4 (metadata \
             key \"split.tensors.count\"): the files come from different models",
        ),
        (
            "a tensor in two files",
            0,
            |p| p[2].tensors = vec!["bb"],
            "tensor \"bb\" occurs twice: in m-00002-of-00003.gguf and in m-00003-of-00003.gguf",
        ),
        (
            "a number of another type",
            0,
            |p| {
                p[1].no = None;
                p[1].extra.push(("split.no", 70_000u32.into()));
            },
            "m-00002-of-00003.gguf: metadata key \"split.no\" is out of range: expected u16, found 70000",
        ),
        (
            "no number",
            0,
            |p| p[1].no = None,
            "m-00002-of-00003.gguf: metadata key \"split.no\" is missing: expected u16",
        ),
    ];
    for (what, no, change, message) in cases {
        assert_eq!(error(no, change), message, "{what}");
    }
}

#[test]
fn missing_broken_and_misnamed_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |e: GgufError| e.to_string().replace(&format!("{}/", dir.path().display()), "");
    save(dir.path(), &parts());
    std::fs::remove_file(file(dir.path(), 2)).unwrap();
    let open = |no| Gguf::open(&file(dir.path(), no), &OpenOptions::default()).unwrap_err();
    for no in 0..2 {
        assert_eq!(
            shown(open(no)),
            "file 3 of 3 of a split model is missing: expected m-00003-of-00003.gguf"
        );
    }
    std::fs::write(file(dir.path(), 2), b"GGUF").unwrap();
    assert_eq!(
        shown(open(0)),
        "m-00003-of-00003.gguf: file ends inside the version: expected 4 bytes at offset 4, found 0 to the end \
         of the file"
    );
    let renamed = dir.path().join("part-b.gguf");
    std::fs::rename(file(dir.path(), 1), &renamed).unwrap();
    assert_eq!(
        shown(Gguf::open(&renamed, &OpenOptions::default()).unwrap_err()),
        "part-b.gguf is file 2 of 3 of a split model by its metadata: expected a name that ends in \
         \"-00002-of-00003.gguf\", so that the others can be found"
    );
}

/// A model of many gigabytes in files: what is announced is not believed before it is there.
#[test]
fn a_hostile_count_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m-00001-of-65535.gguf");
    let part = Part { count: Some(u16::MAX), ..Part::new(0, &[]) };
    std::fs::write(&path, part.bytes()).unwrap();
    let e = Gguf::open(&path, &OpenOptions::default()).unwrap_err();
    assert!(matches!(e, GgufError::ShardMissing { no: 1, count: u16::MAX, .. }), "{e:?}");
}

/// A folder of a stranger may have links to anything in place of files.
#[cfg(unix)]
#[test]
fn a_file_that_never_ends_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &parts());
    std::fs::remove_file(file(dir.path(), 1)).unwrap();
    std::os::unix::fs::symlink("/dev/zero", file(dir.path(), 1)).unwrap();
    for mmap in [true, false] {
        let e = Gguf::open(&file(dir.path(), 0), &OpenOptions { mmap }).unwrap_err().to_string();
        assert!(e.contains("m-00002-of-00003.gguf") && e.contains("not a regular file"), "{e}");
    }
}
