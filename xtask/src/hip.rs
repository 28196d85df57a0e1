//! Kernels for AMD's GPUs: code objects that are checked in, made by Debian's clang without anything of ROCm. Nobody of us has
//! run them on hardware.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::modules::{Target, Text, tool};
use crate::steps::answers;

pub(crate) const TARGET: Target = Target { backend: "hip", task: "hip" };

/// Clang of one version: what it makes depends on it.
const CLANG: &str = "clang-19";
const OBJDUMP: &str = "llvm-objdump-19";
const DEVICES: [&str; 3] = ["gfx90a", "gfx942", "gfx1100"];

/// Kernels whose arrays may lie in memory: small ones with an index that depends on what is added.
const ARRAYS: &[&str] = &["moe_probs"];

/// Why it cannot be done here.
pub(crate) fn missing() -> Option<&'static str> {
    let all = [CLANG, OBJDUMP, "ld.lld-19"].iter().all(|program| answers(program, &["--version"]));
    (!all).then_some("clang-19, lld-19 and llvm-19 are needed")
}

/// The number behind a word that the compiler says of a kernel.
fn said(text: &str, word: &str) -> Result<u32> {
    let (_, behind) = text.split_once(word).with_context(|| format!("{CLANG} says no `{word}`: {text}"))?;
    let number = behind.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    number.parse().with_context(|| format!("{CLANG} says no number behind `{word}`"))
}

/// Whether an instruction rounds once where the contract rounds twice.
fn fused(line: &str) -> bool {
    let op = line.split_whitespace().next().unwrap_or_default();
    let float = ["_f16", "_f32", "_f64"].iter().any(|f| op.contains(f));
    let names = ["v_fma", "v_pk_fma", "v_mad_", "v_mac_", "v_dual_fma"];
    // The second half of a pair stands behind the first.
    (float && names.iter().any(|n| op.starts_with(n)))
        || line.contains("v_dual_fmac")
        || line.contains("v_dual_fmaak")
}

/// A code object, and how many vector registers the kernel takes.
fn compile(text: &Text, device: &str) -> Result<(Vec<u8>, u32)> {
    let out = text.path.with_extension(device);
    // By name alone, and without numbers made of paths, so that the same comes of it everywhere.
    let report = tool(
        Command::new(CLANG)
            .current_dir(text.folder()?)
            .args(["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-std=c++17"])
            .args([
                "-ffp-contract=off",
                "--no-gpu-bundle-output",
                "-fuse-cuid=none",
                "-Rpass-analysis=kernel-resource-usage",
            ])
            .args([&format!("--offload-arch={device}"), "-o"])
            .arg(&out)
            .arg(text.file()),
    )?;
    let (scratch, spilled) = (said(&report, "ScratchSize [bytes/lane]:")?, said(&report, "VGPRs Spill:")?);
    if spilled != 0 || (scratch != 0 && !ARRAYS.contains(&text.name.as_str())) {
        bail!("{} on {device}: {scratch} bytes of arrays in memory, {spilled} spilled registers", text.name);
    }
    let code = tool(Command::new(OBJDUMP).arg("-d").arg(&out))?;
    if let Some(line) = code.lines().find(|l| fused(l)) {
        bail!("{} on {device}: the compiler fused `{}`", text.name, line.trim());
    }
    Ok((fs::read(&out)?, said(&report, " VGPRs:")?))
}

pub(crate) fn hip(check: bool) -> Result<()> {
    let mut modules = Vec::new();
    println!("not run on hardware by us\n{:<24} vector registers on {}", "kernel", DEVICES.join(", "));
    for text in TARGET.texts()? {
        let made: Vec<(Vec<u8>, u32)> =
            DEVICES.iter().map(|device| compile(&text, device)).collect::<Result<_>>()?;
        let registers: Vec<String> = made.iter().map(|m| format!("{:>5}", m.1)).collect();
        println!("{:<24} {}", text.name, registers.join(" "));
        let forms = DEVICES.iter().zip(made).map(|(device, m)| ((*device).to_owned(), m.0)).collect();
        modules.push((text, forms));
    }
    println!("no spills, nothing fused, no arrays in memory but of {}", ARRAYS.join(", "));
    TARGET.put(&modules, check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_operations_are_seen() {
        assert!(fused("\tv_fmac_f32_e32 v1, v2, v3   // 000: 00"));
        assert!(fused("\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]"));
        assert!(fused("\tv_dual_mul_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6"));
        assert!(!fused("\tv_mad_u64_u32 v[0:1], s0, v2, v3, 0"));
        assert!(!fused("\tv_mul_f32_e32 v1, v2, v3"));
    }

    #[test]
    fn numbers_behind_words() {
        assert_eq!(said("a: VGPRs: 15 [x]\nb: VGPRs Spill: 3 [x]", " VGPRs:").unwrap(), 15);
        assert_eq!(said("a: VGPRs: 15 [x]\nb: VGPRs Spill: 3 [x]", "VGPRs Spill:").unwrap(), 3);
        assert!(said("", "VGPRs:").is_err());
    }
}
