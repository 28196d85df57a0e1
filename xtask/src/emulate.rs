//! The C++ of the kernels on the host: compiled by its compiler, behind drivers of ours, under the tests of GPUs. What the
//! backends of CUDA and HIP ask of a driver, and what the texts compute, is checked this way where there is no GPU. What the
//! compilers of GPUs make of the texts is not.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::modules::{Target, root, tool};
use crate::steps::answers;

const HOST: Target = Target { backend: "host", task: "emulate" };
const DRIVER: &str = include_str!("emulate/driver.cpp");

/// What our CUDA shows.
const DEVICE: &str = "sm_80";

/// Why it cannot be done here.
pub(crate) fn missing() -> Option<&'static str> {
    let all = cfg!(target_os = "linux") && answers("g++", &["--version"]);
    (!all).then_some("a Linux with g++ is needed")
}

/// Builds the drivers and runs the tests of `redraft-compute` over them.
pub(crate) fn emulate() -> Result<()> {
    if let Some(why) = missing() {
        bail!("{why}");
    }
    let texts = HOST.texts()?;
    let folder = HOST.scratch()?;
    std::fs::write(folder.join("driver.cpp"), DRIVER)?;
    let compiler = || {
        let mut c = Command::new("g++");
        c.args(["-std=c++17", "-O2", "-fPIC", "-ffp-contract=off"]);
        c
    };
    let compile = |file: &str| -> Result<PathBuf> {
        let object = folder.join(file).with_extension("o");
        tool(compiler().args(["-x", "c++", "-c"]).arg(folder.join(file)).arg("-o").arg(&object))?;
        Ok(object)
    };
    let driver = compile("driver.cpp")?;
    let (mut cuda, mut hip) = (vec![driver.clone()], vec![driver]);
    for text in &texts {
        let object = compile(&text.file())?;
        // The device that CUDA shows takes what is written for it by hand.
        let by_hand = crate::cuda::TARGET.by_hand(root()?, &text.name)?;
        cuda.push(match by_hand.iter().find(|(device, _)| device == DEVICE) {
            None => object.clone(),
            Some((device, by_hand)) => {
                let file = format!("{}.{device}.cu", text.name);
                std::fs::write(folder.join(&file), by_hand)?;
                compile(&file)?
            }
        });
        hip.push(object);
    }
    for (name, objects) in [("libcuda.so", cuda), ("libamdhip64.so", hip)] {
        tool(compiler().arg("-shared").args(objects).arg("-ldl").arg("-o").arg(folder.join(name)))?;
    }
    let paths = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let test = |memory: &str, which: &[&str]| {
        let features = ["--features", "cuda,hip", "--test", "gpu", "--", "--nocapture"];
        let status = Command::new("cargo")
            .args(["test", "--locked", "--package", "redraft-compute"])
            .args(features)
            .args(which)
            .env("LD_LIBRARY_PATH", format!("{}:{paths}", folder.display()))
            .env("REDRAFT_DEVICES", "cuda,hip")
            .env("EMULATED_MEMORY", memory)
            .status()
            .context("cargo cannot be started")?;
        if status.success() { Ok(()) } else { bail!("the tests of GPUs ended with {status}") }
    };
    test("4000000000", &[])?;
    test("1000", &["--ignored", "memory"])
}
