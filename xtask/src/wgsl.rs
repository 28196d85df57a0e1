//! Shaders: from the texts of the kernels to what drivers take, and a table of them in Rust.
//!
//! SPIR-V of every float operation carries NoContraction, so that no driver fuses or reorders what the contract keeps apart
//! (naga never writes it). MSL begins with the pragma that does the same. The results are checked in, so that building the
//! library needs no shader compiler; `ci` makes them again and compares. The compilers of CUDA and HIP get C++ ([`cpp`]).

mod c;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use naga::back::{msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Folder of the texts.
pub(crate) const FOLDER: &str = "crates/redraft-compute/src/gpu/kernels";
/// Folder of what is made of them.
const MADE: &str = "crates/redraft-compute/src/gpu/kernels/made";
/// The table.
const TABLE: &str = "crates/redraft-compute/src/gpu/kernels.rs";

/// How `dot4` and the barrier `o` read in each form of a text.
#[derive(Clone, Copy, PartialEq)]
enum Flavour {
    /// For SPIR-V and MSL that we make: nothing needs hiding; products of bytes by an instruction, or one by one.
    Made { dot: bool },
    /// For drivers that compile the text themselves.
    Text,
}

/// A kernel as the list has it.
struct Entry {
    name: String,
    files: Vec<String>,
}

impl Entry {
    /// The names of all files of its text.
    fn parts(&self, root: &Path, flavour: Flavour) -> Result<Vec<String>> {
        let mut parts = vec!["canon".to_owned()];
        parts.extend(self.files.iter().cloned());
        let dots = parts.iter().map(|f| part(root, f)).collect::<Result<String>>()?.contains("dot4(");
        parts.push(if flavour == Flavour::Text { "o_hidden" } else { "o_open" }.into());
        if dots {
            let by_bytes = flavour == (Flavour::Made { dot: false });
            parts.push(if by_bytes { "dot_by_bytes" } else { "dot" }.into());
        }
        Ok(parts)
    }

    fn text(&self, root: &Path, flavour: Flavour) -> Result<String> {
        self.parts(root, flavour)?.iter().map(|f| part(root, f)).collect()
    }

    /// `matmul_int8` as `MatmulInt8`.
    fn variant(&self) -> String {
        self.name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
    }
}

fn part(root: &Path, file: &str) -> Result<String> {
    let path = root.join(FOLDER).join(format!("{file}.wgsl"));
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn entries(root: &Path) -> Result<Vec<Entry>> {
    let path = root.join(FOLDER).join("list.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
        .map(|line| {
            let (name, files) =
                line.split_once(':').ok_or_else(|| anyhow!("list.txt: no colon in `{line}`"))?;
            Ok(Entry { name: name.trim().into(), files: files.split_whitespace().map(Into::into).collect() })
        })
        .collect()
}

/// A text as naga understands it.
fn parse(name: &str, text: &str) -> Result<(naga::Module, naga::valid::ModuleInfo)> {
    let module =
        naga::front::wgsl::parse_str(text).map_err(|e| anyhow!("{name}: {}", e.emit_to_string(text)))?;
    let info = validate(name, text, &module)?;
    Ok((module, info))
}

fn validate(name: &str, text: &str, module: &naga::Module) -> Result<naga::valid::ModuleInfo> {
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(module)
        .map_err(|e| anyhow!("{name}: {}", e.emit_to_string(text)))
}

fn spirv(name: &str, text: &str) -> Result<Vec<u32>> {
    let (module, info) = parse(name, text)?;
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: naga::proc::BoundsCheckPolicies::default(),
        force_loop_bounding: false,
        ..Default::default()
    };
    let pipeline =
        spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".into() };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline)).with_context(|| name.to_owned())?;
    no_contraction(&words)
}

/// Decorates every result of float arithmetic with NoContraction.
fn no_contraction(words: &[u32]) -> Result<Vec<u32>> {
    const HEADER: usize = 5;
    const DECORATE: u32 = 71;
    const NO_CONTRACTION: u32 = 42;
    // OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv, OpFRem, OpFMod, OpVectorTimesScalar ... OpDot.
    let arithmetic = |op: u32| matches!(op, 127 | 129 | 131 | 133 | 136 | 140 | 141..=148);
    // Names, decorations and what comes before them; the first type ends the decorations.
    let before_types = |op: u32| matches!(op, 1..=18 | 71..=75 | 317 | 330..=332);
    let (mut results, mut types_at, mut at) = (Vec::new(), None, HEADER);
    while at < words.len() {
        let (op, len) = (words[at] & 0xFFFF, (words[at] >> 16) as usize);
        if len == 0 || at + len > words.len() {
            bail!("SPIR-V ends within an instruction");
        }
        if !before_types(op) {
            types_at.get_or_insert(at);
        }
        if arithmetic(op) {
            results.push(words[at + 2]);
        }
        at += len;
    }
    let types_at = types_at.context("SPIR-V without types")?;
    let mut out = words[..types_at].to_vec();
    for id in results {
        out.extend([(3 << 16) | DECORATE, id, NO_CONTRACTION]);
    }
    out.extend(&words[types_at..]);
    Ok(out)
}

/// MSL in which nothing is contracted, with buffers at the numbers of the bindings.
fn metal(name: &str, text: &str, bindings: usize) -> Result<String> {
    let (module, info) = parse(name, text)?;
    let resource = |slot: usize| {
        let target = msl::BindTarget { buffer: Some(slot as u8), mutable: true, ..Default::default() };
        (naga::ResourceBinding { group: 0, binding: slot as u32 }, target)
    };
    let resources =
        msl::EntryPointResources { resources: (0..bindings).map(resource).collect(), ..Default::default() };
    let options = msl::Options {
        lang_version: (2, 4),
        per_entry_point_map: [("main".to_owned(), resources)].into(),
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        ..Default::default()
    };
    let (msl, _) = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())
        .with_context(|| name.to_owned())?;
    Ok(format!("#pragma METAL fp contract(off)\n{msl}"))
}

/// Names of the kernels and their texts in C++, with only what each uses.
pub(crate) fn cpp(root: &Path) -> Result<Vec<(String, String)>> {
    let mut list = Vec::new();
    for e in entries(root)? {
        let text = e.text(root, Flavour::Made { dot: true })?;
        let (mut module, _) = parse(&e.name, &text)?;
        let bindings = access(&module)?.len();
        naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
        let info = validate(&e.name, &text, &module)?;
        let text = c::write(&e.name, &module, &info, bindings)?;
        list.push((e.name, text));
    }
    Ok(list)
}

/// What a binding is: `u`niform, `r`ead, or `w`ritten, in the order of their numbers.
fn access(module: &naga::Module) -> Result<String> {
    let mut list: Vec<(u32, char)> = Vec::new();
    for (_, v) in module.global_variables.iter() {
        let Some(binding) = v.binding else { continue };
        let kind = match v.space {
            naga::AddressSpace::Uniform => 'u',
            naga::AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE) => 'w',
            naga::AddressSpace::Storage { .. } => 'r',
            other => bail!("a binding in {other:?}"),
        };
        list.push((binding.binding, kind));
    }
    list.sort_unstable();
    if list.iter().enumerate().any(|(i, (b, _))| *b != i as u32) {
        bail!("bindings are not numbered 0, 1, 2 ...: {list:?}");
    }
    Ok(list.into_iter().map(|(_, kind)| kind).collect())
}

/// All files by their names, relative to the project.
fn made(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut rows = String::new();
    let mut names = String::new();
    for e in entries(root)? {
        let text = e.text(root, Flavour::Made { dot: false })?;
        let (module, _) = parse(&e.name, &text)?;
        let access = access(&module).with_context(|| e.name.clone())?;
        let size = module.entry_points.first().context("no entry point")?.workgroup_size;
        let bytes = |words: Vec<u32>| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let mut put = |end: &str, bytes: Vec<u8>| {
            files.push((format!("{MADE}/{}.{end}", e.name), bytes));
            format!("include_bytes!(\"kernels/made/{}.{end}\")", e.name)
        };
        let spirv_plain = put("spv", bytes(spirv(&e.name, &text)?));
        let with_dot = e.text(root, Flavour::Made { dot: true })?;
        let spirv_dot = if with_dot == text {
            "None".to_owned()
        } else {
            format!("Some({})", put("dot.spv", bytes(spirv(&e.name, &with_dot)?)))
        };
        put("metal", metal(&e.name, &with_dot, access.len())?.into_bytes());
        parse(&e.name, &e.text(root, Flavour::Text)?)?;
        let parts = e.parts(root, Flavour::Text)?;
        let parts: Vec<String> =
            parts.iter().map(|f| format!("include_str!(\"kernels/{f}.wgsl\")")).collect();
        let variant = e.variant();
        writeln!(names, "    {variant},")?;
        writeln!(
            rows,
            "    KernelSpec {{
        name: {:?},
        access: {access:?},
        workgroup: {size:?},
        spirv: {spirv_plain},
        spirv_dot: {spirv_dot},
        msl: include_str!(\"kernels/made/{}.metal\"),
        wgsl: &[{}],
    }},",
            e.name,
            e.name,
            parts.join(", ")
        )?;
    }
    let table = format!(
        "//! The kernels of GPUs, made by `cargo xtask wgsl` of the texts in `kernels`; not to be changed by hand.

use super::device::KernelSpec;

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kernel {{
{names}}}

/// All of them, in the order of [`Kernel`].
#[rustfmt::skip]
pub(crate) static KERNELS: &[KernelSpec] = &[
{rows}];
"
    );
    files.push((TABLE.into(), table.into_bytes()));
    Ok(files)
}

/// Makes the files, or compares those that are there.
pub(crate) fn wgsl(check: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask stands in the workspace")?;
    let files = made(root)?;
    if !check {
        let folder = root.join(MADE);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
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
        bail!("not what the texts give: {}; `cargo xtask wgsl` makes them again", old.join(", "));
    }
    println!("{} files of kernels", files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_operation_is_decorated() {
        let text = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @compute @workgroup_size(1) fn main() { x[0] = x[1] * x[2] + x[3] - x[4]; x[5] = -x[6]; }";
        let words = spirv("test", text).unwrap();
        let (mut decorated, mut results, mut at) = (Vec::new(), Vec::new(), 5);
        while at < words.len() {
            let op = words[at] & 0xFFFF;
            if op == 71 && words[at + 2] == 42 {
                decorated.push(words[at + 1]);
            }
            if [127, 129, 131, 133].contains(&op) {
                results.push(words[at + 2]);
            }
            at += (words[at] >> 16) as usize;
        }
        assert_eq!(results.len(), 4);
        assert_eq!(decorated, results);
    }
}
