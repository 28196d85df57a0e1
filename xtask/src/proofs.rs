//! What is tried on the running program by other programs: a browser, clients of the API, a generator of requests.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::{answers, built, program, run};

/// A server on a free port, which ends with this value.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Builds the program and starts it.
    fn start(args: &[&str]) -> Result<Server> {
        build(&[])?;
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

fn build(more: &[&str]) -> Result<()> {
    run("cargo", &[&["build", "--package", "redraft-cli", "--locked"], more].concat(), &[])
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

/// Runs other people's clients of the API.
///
/// # Errors
/// A check fails, or there is no client.
pub(crate) fn clients(args: &[String]) -> Result<()> {
    build(&[])?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run("python3", &[&["scripts/clients/run.py", &program(None)], &args[..]].concat(), &[])
}

/// What an answer must be, whatever was asked.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

/// Lets schemathesis make at least so many requests of the description of the API; always the same ones.
///
/// # Errors
/// An answer is an error of the server, or none that the description has; schemathesis is missing.
pub(crate) fn schema(cases: &str) -> Result<()> {
    if !answers("schemathesis", &["--version"]) {
        bail!("schemathesis is missing: pip install schemathesis");
    }
    let cases: u32 = cases.parse().context("expected a number of cases")?;
    // There are five paths with bodies; those without make few cases.
    let of_each = cases.div_ceil(5).to_string();
    let server = Server::start(&["--timeout", "3600"])?;
    let description = format!("{}/openapi.json", server.url);
    let how = ["run", &description, "--checks", CHECKS, "--continue-on-failure", "--max-examples", &of_each];
    let same =
        ["--seed", "1", "--generation-database", "none", "--phases", "coverage,fuzzing", "--workers", "1"];
    run("schemathesis", &[&how[..], &same[..], &["--request-timeout", "300", "--no-color"]].concat(), &[])
}

/// Many clients at once, on an optimised program.
///
/// # Errors
/// An answer is missing or differs from the one that its request has alone.
pub(crate) fn load(args: &[String]) -> Result<()> {
    build(&["--release"])?;
    let program = built(None, "release");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run("python3", &[&["scripts/load.py", &program], &args[..]].concat(), &[])
}
