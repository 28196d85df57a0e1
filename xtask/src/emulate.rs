//! The C++ of the kernels on the host: compiled by its compiler, behind drivers of ours, under the tests of GPUs. What the
//! backends of CUDA and HIP ask of a driver, and what the texts compute, is checked this way where there is no GPU. What the
//! compilers of GPUs make of the texts is not.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::modules::{Target, tool};
use crate::steps::answers;

const HOST: Target = Target { backend: "host", task: "emulate" };
const DRIVER: &str = include_str!("emulate/driver.cpp");

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
    let driver = folder.join("driver.cpp");
    std::fs::write(&driver, DRIVER)?;
    let compiler = || {
        let mut c = Command::new("g++");
        c.args(["-std=c++17", "-O2", "-fPIC", "-ffp-contract=off"]);
        c
    };
    let mut objects = vec![folder.join("driver.o")];
    tool(compiler().arg("-c").arg(&driver).arg("-o").arg(&objects[0]))?;
    for text in &texts {
        let object = text.path.with_extension("o");
        tool(compiler().args(["-x", "c++", "-c"]).arg(&text.path).arg("-o").arg(&object))?;
        objects.push(object);
    }
    for name in ["libcuda.so", "libamdhip64.so"] {
        tool(compiler().args(["-shared", "-ldl"]).args(&objects).arg("-o").arg(folder.join(name)))?;
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
