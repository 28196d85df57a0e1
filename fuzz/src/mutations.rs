//! The short form of fuzzing that every test run does: kept inputs, and a fixed number of mutations of them that is the
//! same on every machine.

use std::path::{Path, PathBuf};

/// The repository, from a folder of a crate.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files at or in a path, in the order of their names, with their content.
fn inputs(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if !path.exists() {
        return Vec::new(); // git keeps no empty folders
    }
    let mut files = vec![path.to_path_buf()];
    if path.is_dir() {
        files = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
    }
    files.into_iter().map(|p| (p.clone(), std::fs::read(p).unwrap())).collect()
}

/// SplitMix64: the same mutations on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Numbers that programs get wrong.
const TELLING: [u64; 10] = [0, 1, 0x7f, 0xff, 0xffff, 1 << 31, u32::MAX as u64, 1 << 61, 1 << 63, u64::MAX];

/// What a fuzzer does to an input: changes bytes, puts telling numbers into fields, cuts, repeats, removes, and
/// takes pieces of another input. Most places are near the start, where the headers are.
fn mutate(random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut x = input.to_vec();
    for _ in 0..=random.below(4) {
        let n = x.len();
        let near = n.min([256, 2048, 32_768, n][random.below(4)]);
        let at = random.below(near);
        match random.below(8) {
            0 | 1 if n > 0 => x[at] = random.next() as u8,
            2 if n > 0 => x[at] ^= 1 << random.below(8),
            3 | 4 => {
                let number = TELLING[random.below(TELLING.len())].to_le_bytes();
                let end = n.min(at + [1, 2, 4, 8][random.below(4)]);
                x[at..end].copy_from_slice(&number[..end - at]);
            }
            5 => x.truncate(at),
            6 => {
                let end = n.min(at + random.below(64));
                let piece = x[at..end].to_vec();
                let to = random.below(n);
                x.splice(to..to, piece.into_iter().cycle().take(random.below(200)).collect::<Vec<_>>());
            }
            _ => {
                let from = random.below(other.len());
                let piece = &other[from..other.len().min(from + random.below(64))];
                x.splice(at..n.min(at + random.below(64)), piece.iter().copied());
            }
        }
    }
    x
}

/// Runs the kept inputs of a target, and so many mutations of all of them together.
pub fn run_all(name: &str, run: fn(&[u8]), mutations: usize) {
    let start = std::time::Instant::now();
    let mut all = inputs(&root().join("fuzz/corpus").join(name));
    let seeds = std::fs::read_to_string(root().join("fuzz/seeds.txt")).unwrap();
    let of_target = |l: &str| l.split_once(' ').filter(|s| s.0 == name).map(|s| s.1.to_owned());
    seeds.lines().filter_map(of_target).for_each(|s| all.extend(inputs(&root().join(s))));
    assert!(!all.is_empty(), "{} has no inputs", name);
    let mut random = Random(1);
    for (i, (path, input)) in all.iter().enumerate() {
        let one = |x: &[u8], what: &str| {
            let done = std::panic::catch_unwind(|| run(x));
            if done.is_err() {
                let kept = std::env::temp_dir().join(format!("redraft-fuzz-{}", name));
                std::fs::write(&kept, x).unwrap();
                panic!("target {}: {what} of {} fails, kept as {}", name, path.display(), kept.display());
            }
        };
        one(input, "the content");
        let n = mutations / all.len() + usize::from(i < mutations % all.len());
        for _ in 0..n {
            let other = &all[random.below(all.len())].1;
            one(&mutate(&mut random, input, other), "a mutation");
        }
    }
    println!("{}: {} inputs, {mutations} mutations, {:.1} s", name, all.len(), start.elapsed().as_secs_f64());
}
