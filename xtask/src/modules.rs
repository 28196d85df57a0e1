//! Kernels as compilers of GPUs make them: modules that are checked in, packed, with a table in Rust.
//!
//! Compilers are not needed to build the library, nor to see that the modules are of the present kernels: beside them stands
//! a digest of each text they were made of.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::wgsl;

/// What a compiler makes modules for.
pub(crate) struct Target {
    /// Name of the backend, and of its folder.
    pub(crate) backend: &'static str,
    /// The task that makes the modules.
    pub(crate) task: &'static str,
}

/// A kernel as text.
pub(crate) struct Text {
    pub(crate) name: String,
    /// Where the text lies, beside the prelude.
    pub(crate) path: PathBuf,
    /// Devices from which on another text is taken, which lies beside it.
    pub(crate) by_hand: Vec<String>,
    digest: u64,
}

impl Text {
    pub(crate) fn folder(&self) -> Result<&Path> {
        self.path.parent().context("texts lie in a folder")
    }

    pub(crate) fn file(&self) -> String {
        format!("{}.cu", self.name)
    }
}

/// A module: the device it is for, and its bytes.
pub(crate) type Form = (String, Vec<u8>);

pub(crate) fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")
}

/// FNV-1a.
fn digest(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|p| p.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// What each kernel is made of.
struct Source {
    name: String,
    text: String,
    /// Texts by hand, with the least device that takes each.
    by_hand: Vec<(String, String)>,
    digest: u64,
}

pub(crate) fn prelude(root: &Path) -> Result<String> {
    let path = root.join(wgsl::FOLDER).join("prelude.h");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

impl Target {
    fn sources(&self) -> Result<Vec<Source>> {
        let root = root()?;
        let prelude = prelude(root)?;
        let mut list = Vec::new();
        for (name, text) in wgsl::cpp(root)? {
            let by_hand = self.by_hand(root, &name)?;
            let mut parts = vec![prelude.as_str(), &text];
            parts.extend(by_hand.iter().map(|(_, text)| text.as_str()));
            let digest = digest(&parts);
            list.push(Source { name, text, by_hand, digest });
        }
        Ok(list)
    }

    /// Texts by hand of a kernel: `NAME.DEVICE.cu` in the folder of the backend.
    pub(crate) fn by_hand(&self, root: &Path, name: &str) -> Result<Vec<(String, String)>> {
        let mut list = Vec::new();
        let Ok(files) = fs::read_dir(root.join(wgsl::FOLDER).join(self.backend)) else { return Ok(list) };
        for file in files {
            let path = file?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let device = file.strip_prefix(&format!("{name}.")).and_then(|f| f.strip_suffix(".cu"));
            if let Some(device) = device {
                list.push((device.to_owned(), fs::read_to_string(&path)?));
            }
        }
        list.sort();
        Ok(list)
    }

    fn folder(&self) -> String {
        format!("crates/redraft-compute/src/{}", self.backend)
    }

    /// Writes the texts where a compiler finds them.
    pub(crate) fn texts(&self) -> Result<Vec<Text>> {
        let root = root()?;
        let folder = self.scratch()?;
        fs::write(folder.join("prelude.h"), prelude(root)?)?;
        let mut list = Vec::new();
        for Source { name, text, by_hand, digest } in self.sources()? {
            let path = folder.join(format!("{name}.cu"));
            fs::write(&path, text)?;
            let mut devices = Vec::new();
            for (device, text) in by_hand {
                fs::write(folder.join(format!("{name}.{device}.cu")), text)?;
                devices.push(device);
            }
            list.push(Text { name, path, by_hand: devices, digest });
        }
        Ok(list)
    }

    /// A folder for what lies between.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
        let folder = root()?.join(target).join("modules").join(self.backend);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    /// Writes modules and table, or compares those that are there.
    pub(crate) fn put(&self, modules: &[(Text, Vec<Form>)], check: bool) -> Result<()> {
        let root = root()?;
        let mut files = Vec::new();
        let (mut rows, mut list) = (String::new(), String::new());
        let (mut bytes, mut packed) = (0, 0);
        for (text, forms) in modules {
            writeln!(list, "{} {:016x}", text.name, text.digest)?;
            writeln!(rows, "    Module {{\n        name: {:?},\n        forms: &[", text.name)?;
            for (device, module) in forms {
                let small = miniz_oxide::deflate::compress_to_vec_zlib(module, 10);
                let file = format!("made/{}.{device}.z", text.name);
                let bytes_of = format!("bytes: {}, packed: include_bytes!({file:?})", module.len());
                writeln!(rows, "            Form {{ device: {device:?}, {bytes_of} }},")?;
                (bytes, packed) = (bytes + module.len(), packed + small.len());
                files.push((format!("{}/{file}", self.folder()), small));
            }
            writeln!(rows, "        ],\n    }},")?;
        }
        let table = format!(
            "//! Modules of the kernels, made by `cargo xtask {}`; not to be changed by hand.

use crate::gpu::module::{{Form, Module}};

/// In the order of the kernels.
#[rustfmt::skip]
pub(super) static MODULES: &[Module] = &[
{rows}];
",
            self.task
        );
        files.push((format!("{}/modules.rs", self.folder()), table.into_bytes()));
        files.push((format!("{}/made/texts.txt", self.folder()), list.into_bytes()));
        if !check {
            let made = root.join(self.folder()).join("made");
            if made.exists() {
                fs::remove_dir_all(&made)?;
            }
            fs::create_dir_all(&made)?;
        }
        let mut old = Vec::new();
        for (name, bytes) in &files {
            let path = root.join(name);
            if !check {
                fs::write(&path, bytes).with_context(|| name.clone())?;
            } else if fs::read(&path).ok().as_deref() != Some(bytes) {
                old.push(name.as_str());
            }
        }
        if !old.is_empty() {
            bail!(
                "not what the compiler gives: {}; `cargo xtask {}` makes them again",
                old.join(", "),
                self.task
            );
        }
        println!("{} modules of {bytes} bytes, packed {packed}", files.len() - 2);
        Ok(())
    }

    /// Whether the modules that are there are of the present texts.
    #[cfg(test)]
    fn is_current(&self) -> Result<()> {
        let root = root()?;
        let path = root.join(self.folder()).join("made/texts.txt");
        let there = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut now = String::new();
        for Source { name, digest, .. } in self.sources()? {
            writeln!(now, "{name} {digest:016x}")?;
        }
        if there != now {
            bail!(
                "the modules of {} are of other kernels; `cargo xtask {}` makes them again",
                self.backend,
                self.task
            );
        }
        Ok(())
    }
}

/// Runs a compiler and returns what it says, on both ways; its failure is ours.
pub(crate) fn tool(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("{program} cannot be started"))?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        bail!("{program} ended with {}:\n{said}", out.status);
    }
    Ok(said)
}

/// The number before a word.
pub(crate) fn number_before(text: &str, word: &str) -> Option<u32> {
    let (before, _) = text.split_once(word)?;
    before.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_of_the_present_kernels() {
        crate::cuda::TARGET.is_current().unwrap();
        crate::hip::TARGET.is_current().unwrap();
    }

    #[test]
    fn numbers_before_words() {
        assert_eq!(number_before("8 bytes stack frame, 12 bytes spill stores", "bytes spill"), Some(12));
        assert_eq!(number_before("Used 32 registers", "registers"), Some(32));
        assert_eq!(number_before("none", "registers"), None);
    }
}
