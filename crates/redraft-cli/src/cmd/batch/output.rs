//! What was answered: a file that grows by a line for each answer, and from which a run that was ended goes on.
//!
//! A line is written at once, with its end last. What follows the last end of line is therefore a line that was being
//! written when the process or the machine ended; it is cut off, and its request is asked again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use redraft::gguf::Shown;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::input::{Key, LINE_BYTES, Plan, Read, read_line};

/// What is written goes to the disk at least so often, so that a machine that ends loses no more than that.
const SYNC: Duration = Duration::from_secs(1);

/// Every line begins with it.
const BEGIN: &str = "{\"id\":\"batch_req_";

/// One answer. Field names are those of OpenAI's batches.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    /// `batch_req_`, then eight digits of the digest of model and options, then 16 of that of the line of the input.
    pub(super) id: String,
    /// None: the line of the input is no request.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) custom_id: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) response: Option<Response>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) error: Option<Problem>,
}

/// What a client would have got over HTTP.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Response {
    pub(super) status_code: u16,
    pub(super) request_id: String,
    pub(super) body: Value,
}

/// Why a line was not asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    pub(super) code: String,
    pub(super) message: String,
    /// In the input, counted from 1.
    pub(super) line: usize,
}

impl Told {
    /// Whether it is an answer of the model.
    pub(super) fn is_answer(&self) -> bool {
        self.response.as_ref().is_some_and(|r| r.status_code == 200)
    }
}

/// Names a line: with digests of what was asked, and of whom.
pub(super) fn name(settings: u32, digest: u64) -> String {
    format!("batch_req_{settings:08x}{digest:016x}")
}

/// The digests in a name.
fn digests(name: &str) -> Option<(u32, u64)> {
    let digits = name.strip_prefix("batch_req_").filter(|d| d.len() == 24 && d.is_ascii())?;
    let (settings, digest) = digits.split_at(8);
    Some((u32::from_str_radix(settings, 16).ok()?, u64::from_str_radix(digest, 16).ok()?))
}

/// The file, locked against other processes.
pub(super) struct Output {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines, and those of all.
    end: u64,
    len: u64,
    synced: Instant,
    /// Of the lines that were there.
    settings: Option<u32>,
    /// Lines, and those that are answers of the model.
    pub(super) lines: usize,
    pub(super) answers: usize,
}

impl Output {
    /// Opens the file and notes in `plan` what it answers. Changes nothing that is there.
    ///
    /// # Errors
    /// Another process writes it; it holds something else, or answers to something else.
    pub(super) fn open(path: &Path, plan: &mut Plan) -> anyhow::Result<Output> {
        let about = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).with_context(about)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{} is being written by another process", path.display()),
            Err(TryLockError::Error(e)) => return Err(e).with_context(about),
        }
        let len = file.metadata().with_context(about)?.len();
        let mut output = Output {
            path: path.to_owned(),
            file: file.try_clone().with_context(about)?,
            end: 0,
            len,
            synced: Instant::now(),
            settings: None,
            lines: 0,
            answers: 0,
        };
        let mut reader = BufReader::with_capacity(1 << 16, file);
        loop {
            match read_line(&mut reader).with_context(|| format!("cannot read {}", path.display()))? {
                Read::End => return Ok(output),
                Read::Line(bytes) => {
                    output.take(&bytes, plan).with_context(|| {
                        format!("{}, line {}, is left as it is", path.display(), output.lines + 1)
                    })?;
                    output.lines += 1;
                    output.end += bytes.len() as u64;
                }
                Read::Open(bytes) if bytes.starts_with(BEGIN.as_bytes()) => return Ok(output),
                Read::Open(bytes) if BEGIN.as_bytes().starts_with(&bytes) => return Ok(output),
                Read::Open(_) => bail!(
                    "{}, line {}, is left as it is: expected an answer of this command",
                    path.display(),
                    output.lines + 1
                ),
                Read::TooLong => bail!(
                    "{}, line {}, is left as it is: expected at most {LINE_BYTES} bytes",
                    path.display(),
                    output.lines + 1
                ),
            }
        }
    }

    /// Notes a line that was there.
    fn take(&mut self, bytes: &[u8], plan: &mut Plan) -> anyhow::Result<()> {
        let told: Option<Told> = serde_json::from_slice(bytes).ok();
        let known = told.as_ref().and_then(|t| digests(&t.id)).zip(told.as_ref());
        let Some(((settings, digest), told)) =
            known.filter(|(_, t)| t.response.is_some() != t.error.is_some())
        else {
            bail!("expected an answer of this command");
        };
        let (key, what) = match (&told.custom_id, &told.error) {
            (Some(id), _) => (Key::of_id(id), format!("the custom_id \"{}\"", Shown(id))),
            (None, Some(e)) => (Key::of_line(e.line), format!("line {}", e.line)),
            (None, None) => bail!("expected a custom_id"),
        };
        let Some(planned) = plan.requests.get_mut(&key) else {
            bail!("it answers {what}, which is not in the input");
        };
        ensure!(planned.mine, "it answers {what}, which belongs to another shard");
        ensure!(!planned.done, "it answers {what} once more");
        ensure!(planned.digest == digest, "it answers {what}, which asks something else in the input");
        let first = *self.settings.get_or_insert(settings);
        ensure!(first == settings, "it comes from another model, or other options, than the lines before");
        planned.done = true;
        self.answers += usize::from(told.is_answer());
        Ok(())
    }

    /// Makes the file ready to be written by a model with options of this digest.
    ///
    /// # Errors
    /// What is there comes from others.
    pub(super) fn begin(&mut self, settings: u32) -> anyhow::Result<()> {
        ensure!(
            self.settings.is_none_or(|s| s == settings),
            "{} has answers of another model, or with other options, and is left as it is: write to another file",
            self.path.display()
        );
        if self.end < self.len {
            self.file.set_len(self.end).with_context(|| self.about())?;
        }
        self.file.seek(SeekFrom::Start(self.end)).with_context(|| self.about())?;
        Ok(())
    }

    /// Bytes of a line that was being written when a run ended.
    pub(super) fn torn(&self) -> u64 {
        self.len - self.end
    }

    /// Adds an answer to a line of the input; one that [`Output::open`] would not read again becomes an error that says so.
    ///
    /// # Errors
    /// It cannot be written; of its line nothing is left where that can be done.
    pub(super) fn add(&mut self, mut told: Told, number: usize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(&told)?;
        if line.len() > LINE_BYTES {
            let found = line.len();
            let message =
                format!("line {number}: its answer has {found} bytes, at most {LINE_BYTES} are kept");
            told.response = None;
            told.error = Some(Problem { code: "answer_too_large".into(), message, line: number });
            line = serde_json::to_vec(&told)?;
        }
        line.push(b'\n');
        if let Err(e) = self.file.write_all(&line) {
            // Else the next run does it.
            let _ = self.file.set_len(self.end);
            return Err(e).with_context(|| self.about());
        }
        self.end += line.len() as u64;
        self.lines += 1;
        self.answers += usize::from(told.is_answer());
        if self.synced.elapsed() >= SYNC {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until all is on the disk.
    ///
    /// # Errors
    /// It does not get there.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| self.about())?;
        self.synced = Instant::now();
        Ok(())
    }

    fn about(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::Shard;
    use super::*;

    #[test]
    fn what_is_added_can_be_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let (input, path) = (dir.path().join("in.jsonl"), dir.path().join("out.jsonl"));
        std::fs::write(&input, "{\"custom_id\": \"a\"}\n").unwrap();
        let mut plan = Plan::read(&input, Shard::ALL).unwrap();
        let digest = plan.requests[&Key::of_id("a")].digest;
        let mut output = Output::open(&path, &mut plan).unwrap();
        output.begin(1).unwrap();
        let body = Value::String("x".repeat(LINE_BYTES));
        let response = Some(Response { status_code: 200, request_id: "r".into(), body });
        let told = Told { id: name(1, digest), custom_id: Some("a".into()), response, error: None };
        output.add(told, 1).unwrap();
        assert_eq!((output.lines, output.answers), (1, 0));
        drop(output);
        assert!(std::fs::metadata(&path).unwrap().len() < 400);
        let again = Output::open(&path, &mut Plan::read(&input, Shard::ALL).unwrap()).unwrap();
        assert_eq!((again.lines, again.answers), (1, 0));
    }
}
