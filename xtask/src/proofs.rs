//! What is tried on the running program by other programs: a browser, clients of the API, a generator of requests.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::{answers, program, run};

/// A server on a free port, which ends with this value.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Builds the program and starts it.
    fn start(args: &[&str]) -> Result<Server> {
        run("cargo", &["build", "--package", "redraft-cli", "--locked"], &[])?;
        let mut process = Command::new(program(None))
            .args(["serve", "--port", "0", "--quiet"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .context("the built program cannot be started")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let url = line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        let server = Server { process, url };
        if server.url.is_empty() {
            bail!("the built program does not listen");
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Why the page cannot be tested here.
pub(crate) fn page_missing() -> Option<&'static str> {
    if !answers("python3", &["-c", "import playwright"]) {
        return Some("python3 with playwright is missing");
    }
    (!answers("chromium", &["--version"])).then_some("install chromium")
}

/// Drives the page in a browser: against a mock, then against the program.
///
/// # Errors
/// A check fails, or something is missing.
pub(crate) fn page() -> Result<()> {
    if let Some(why) = page_missing() {
        bail!("the page cannot be tested here: {why}");
    }
    run("python3", &["scripts/page_test.py"], &[])?;
    let server = Server::start(&[])?;
    run("python3", &["scripts/page_test.py", "--url", &server.url], &[])
}
