//! Kernels for NVIDIA's GPUs: PTX that is checked in, and what the assembler makes of it.
//!
//! One text serves all devices from compute capability 7.5 on, unless there is one by hand. For three of them it is assembled here, to see that nothing is
//! fused, nothing spills and no array lies in memory; the driver of a user does the same again for the device at hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::modules::{Form, Target, Text, number_before, tool};
use crate::steps::answers;

pub(crate) const TARGET: Target = Target { backend: "cuda", task: "cuda" };

/// Packages of PyPI with the compiler, all of one version: what it makes depends on it.
const PACKAGES: [&str; 5] = [
    "nvidia-cuda-nvcc==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-nvvm==13.5.37",
    "nvidia-cuda-nvdisasm==13.5.37",
];

/// Least compute capability.
const BASE: u32 = 75;
/// Those for which the assembler has its say.
const CHECKED: [u32; 3] = [75, 80, 90];

/// Why it cannot be done here.
pub(crate) fn missing() -> Option<&'static str> {
    let python = answers("python3", &["-c", "import ensurepip, venv"]);
    let all = cfg!(target_os = "linux") && python && answers("g++", &["--version"]);
    (!all).then_some("a Linux with python3-venv and g++ is needed")
}

/// The folder of the compiler's programs; fetched once into the folder of the build.
fn compiler() -> Result<PathBuf> {
    let folder = TARGET.scratch()?.join("venv");
    let find = || -> Option<PathBuf> {
        let versions = fs::read_dir(folder.join("lib")).ok()?.flatten();
        versions.map(|v| v.path().join("site-packages/nvidia/cu13/bin")).find(|p| p.join("nvdisasm").exists())
    };
    if let Some(bin) = find() {
        return Ok(bin);
    }
    println!("fetching the compiler of CUDA into {}", folder.display());
    tool(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    tool(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "--no-deps"]).args(PACKAGES))
        .context("the packages of the compiler cannot be fetched")?;
    find().context("the packages hold no compiler")
}

/// The least version of PTX that has a device: the compiler writes its own, which older drivers refuse, though nothing in the
/// texts is newer.
fn version(device: u32) -> &'static str {
    match device {
        ..80 => "6.3",
        80..90 => "7.0",
        _ => "7.8",
    }
}

/// The PTX of a file for devices from one on.
fn ptx(bin: &Path, text: &Text, file: &str, device: u32) -> Result<(PathBuf, String)> {
    let out = text.folder()?.join(file).with_extension("ptx");
    // Products and sums are written unfused; the flag says the same once more.
    tool(
        Command::new(bin.join("nvcc"))
            .current_dir(text.folder()?)
            .args(["-ptx", "-O3", "--fmad=false", "-std=c++17", &format!("-arch=compute_{device}"), "-o"])
            .arg(&out)
            .arg(file),
    )?;
    let ptx = fs::read_to_string(&out)?;
    let mut lines: Vec<&str> = Vec::new();
    let version = format!(".version {}", version(device));
    for line in ptx.lines().filter(|l| !l.trim_start().starts_with("//") && !l.is_empty()) {
        lines.push(if line.starts_with(".version") { &version } else { line });
    }
    if let Some(line) = lines.iter().find(|l| fused_ptx(l)) {
        bail!("{}: the compiler fused `{}`", text.name, line.trim());
    }
    let ptx = lines.join("\n") + "\n";
    fs::write(&out, &ptx)?;
    Ok((out, ptx))
}

/// Whether a line of PTX rounds once where the contract rounds twice, or flushes.
fn fused_ptx(line: &str) -> bool {
    let Some(op) = line.split_whitespace().find(|w| !w.starts_with('@')) else { return false };
    let float = op.contains(".f32") || op.contains(".f16") || op.contains(".f64");
    float && (op.starts_with("fma") || op.starts_with("mad") || op.contains(".ftz") || op.contains(".approx"))
}

/// Whether an instruction of a device is such a one. `HFMA2 R0, -RZ, RZ, a, b` only moves a constant.
fn fused_sass(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|w| w.starts_with("/*") || w.starts_with('@'));
    let Some(op) = words.next() else { return false };
    if op.contains("FMA") {
        let factors: Vec<&str> = words.skip(1).take(2).collect();
        return !matches!(factors[..], ["-RZ," | "RZ,", "RZ,"]);
    }
    (op.starts_with("FADD") || op.starts_with("FMUL")) && op.contains(".FTZ")
}

/// What the assembler says of a text for a device.
struct Said {
    registers: u32,
    shared: u32,
}

fn assemble(bin: &Path, text: &Text, ptx: &Path, device: u32) -> Result<Said> {
    let out = ptx.with_extension(format!("sm_{device}.cubin"));
    let said = tool(
        Command::new(bin.join("ptxas")).args(["-v", &format!("-arch=sm_{device}"), "-o"]).arg(&out).arg(ptx),
    )?;
    let number = |word: &str| {
        number_before(&said, word).with_context(|| format!("{}: ptxas says no `{word}`: {said}", text.name))
    };
    let (stack, spilled) = (number("bytes stack frame")?, number("bytes spill stores")?);
    if stack != 0 || spilled != 0 {
        bail!(
            "{} on sm_{device}: {stack} bytes of arrays in memory, {spilled} of spilled registers",
            text.name
        );
    }
    let code = tool(Command::new(bin.join("nvdisasm")).arg("-c").arg(&out))?;
    if let Some(line) = code.lines().find(|l| fused_sass(l)) {
        bail!("{} on sm_{device}: the assembler fused `{}`", text.name, line.trim());
    }
    Ok(Said { registers: number("registers")?, shared: number_before(&said, "bytes smem").unwrap_or(0) })
}

/// A form of a kernel; prints what the assembler says of it.
fn form(bin: &Path, text: &Text, file: &str, device: u32) -> Result<Form> {
    let (path, ptx) = ptx(bin, text, file, device)?;
    let mut row = Vec::new();
    let mut shared = 0;
    for checked in CHECKED {
        if checked < device {
            row.push("    -".to_owned());
            continue;
        }
        let said = assemble(bin, text, &path, checked)?;
        row.push(format!("{:>5}", said.registers));
        shared = said.shared;
    }
    println!("{:<28} {shared:>8}  {}", file.trim_end_matches(".cu"), row.join(" "));
    Ok((device.to_string(), ptx.into_bytes()))
}

pub(crate) fn cuda(check: bool) -> Result<()> {
    let bin = compiler()?;
    let mut modules = Vec::new();
    println!(
        "{:<28} {:>8}  registers on sm_{}",
        "kernel",
        "shared",
        CHECKED.map(|c| c.to_string()).join(", sm_")
    );
    for text in TARGET.texts()? {
        let mut forms = vec![form(&bin, &text, &text.file(), BASE)?];
        for device in &text.by_hand {
            let number = device.strip_prefix("sm_").and_then(|d| d.parse().ok());
            let number = number.with_context(|| format!("{}: `{device}` is no sm_NN", text.name))?;
            forms.push(form(&bin, &text, &format!("{}.{device}.cu", text.name), number)?);
        }
        modules.push((text, forms));
    }
    println!("no spills, no arrays in memory, nothing fused");
    TARGET.put(&modules, check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_operations_are_seen() {
        assert!(fused_ptx("\tfma.rn.f32 \t%f3, %f1, %f2, %f4;"));
        assert!(fused_ptx("@%p1 mul.ftz.f32 %f3, %f1, %f2;"));
        assert!(!fused_ptx("\tmad.lo.s32 \t%r1, %r2, %r3, %r4;"));
        assert!(!fused_ptx("\tmul.rn.f32 \t%f3, %f1, %f2;"));
        assert!(fused_sass("        /*0120*/                   FFMA R4, R5, R6, R7 ;"));
        assert!(fused_sass("        /*0120*/              @P0  FMUL.FTZ R4, R5, R6 ;"));
        assert!(!fused_sass("        /*0120*/                   HFMA2.MMA R4, -RZ, RZ, 0, 0 ;"));
        assert!(!fused_sass("        /*0120*/                   FADD R4, R5, R6 ;"));
    }
}
