//! What is asked: a file with a request on each line, read twice and never held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use redraft::gguf::Shown;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Bytes of a line of either file at most: more than any model reads.
pub(super) const LINE_BYTES: usize = 64 << 20;

/// Bytes of a `custom_id` at most: a line of the output must hold it beside the answer.
const ID_BYTES: usize = 1024;

/// Where requests can go.
const URLS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// One of several processes that share a file: it takes the requests whose number, counted from 0, leaves the remainder
/// `index` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard {
    index: usize,
    of: usize,
}

impl Shard {
    /// All requests.
    pub(super) const ALL: Shard = Shard { index: 0, of: 1 };

    /// From `I/N`, counted from 1.
    pub(super) fn parse(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((i, of)) if (1..=of).contains(&i) => Ok(Shard { index: i - 1, of }),
            _ => Err("expected I/N with I in 1..=N, as in 2/4".into()),
        }
    }

    fn takes(self, n: usize) -> bool {
        n % self.of == self.index
    }
}

/// What a request is known by: of its `custom_id`, or of its number where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn of_id(custom_id: &str) -> Key {
        Key::of(b"id", custom_id.as_bytes())
    }

    pub(super) fn of_line(line: usize) -> Key {
        Key::of(b"line", line.to_string().as_bytes())
    }

    fn of(kind: &[u8], bytes: &[u8]) -> Key {
        let digest = Sha256::new().chain_update(kind).chain_update([0]).chain_update(bytes).finalize();
        Key(digest.iter().take(16).fold(0, |n, &b| n << 8 | u128::from(b)))
    }
}

/// A line that is not empty.
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) key: Key,
    /// Of its bytes.
    pub(super) digest: u64,
    /// Whether it is one of this process.
    pub(super) mine: bool,
    pub(super) custom_id: Option<String>,
    /// Where it goes and with which body; or why it goes nowhere.
    pub(super) request: Result<(&'static str, Value), String>,
}

/// The lines of a file.
pub(super) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    shard: Shard,
    /// Lines, and those that are not empty.
    number: usize,
    n: usize,
}

impl Lines {
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path, shard: Shard) -> anyhow::Result<Lines> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(Lines { path: path.to_owned(), file, shard, number: 0, n: 0 })
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// It is a request without a `custom_id`; the file cannot be read.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Line>> {
        loop {
            let read = read_line(&mut self.file);
            let read = read.with_context(|| format!("cannot read {}", self.path.display()))?;
            self.number += 1;
            let bytes = match &read {
                Read::End => return Ok(None),
                Read::Line(bytes) | Read::Open(bytes) => bytes.trim_ascii(),
                Read::TooLong => b"too long".as_slice(),
            };
            if bytes.is_empty() {
                continue;
            }
            let mine = self.shard.takes(self.n);
            self.n += 1;
            let (custom_id, request) = match matches!(read, Read::TooLong) {
                true => (None, Err(format!("expected at most {LINE_BYTES} bytes, found more"))),
                false => self.request(bytes)?,
            };
            let key = custom_id.as_deref().map_or(Key::of_line(self.number), Key::of_id);
            let digest = Sha256::digest(bytes).iter().take(8).fold(0, |n, &b| n << 8 | u64::from(b));
            return Ok(Some(Line { number: self.number, key, digest, mine, custom_id, request }));
        }
    }

    /// Reads a line as a request.
    #[allow(clippy::type_complexity, reason = "the fields of a line")]
    fn request(
        &self,
        bytes: &[u8],
    ) -> anyhow::Result<(Option<String>, Result<(&'static str, Value), String>)> {
        let mut fields = match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Ok((None, Err("expected a JSON object".into()))),
            Err(e) => return Ok((None, Err(format!("not JSON: {e}")))),
        };
        match fields.shift_remove("custom_id") {
            Some(Value::String(id)) if (1..=ID_BYTES).contains(&id.len()) => Ok((Some(id), request(fields))),
            found => bail!(
                "{}, line {}: expected a custom_id that is a text of at most {ID_BYTES} bytes, found {}",
                self.path.display(),
                self.number,
                found.map_or_else(|| "none".into(), |v| shown(&v))
            ),
        }
    }
}

/// The beginning of a value.
fn shown(value: &Value) -> String {
    Shown(&value.to_string()).to_string()
}

/// The request in the other fields of a line.
fn request(mut fields: Map<String, Value>) -> Result<(&'static str, Value), String> {
    let mut take = |name: &str| fields.shift_remove(name).unwrap_or_default();
    let (method, url, body) = (take("method"), take("url"), take("body"));
    if method != "POST" {
        return Err(format!("method: expected \"POST\", found {}", shown(&method)));
    }
    let Some(url) = URLS.into_iter().find(|u| url == *u) else {
        return Err(format!("url: expected {}, found {}", URLS.join(" or "), shown(&url)));
    };
    if !body.is_object() {
        return Err("body: expected an object".into());
    }
    if let Some(name) = fields.keys().next() {
        return Err(format!("{}: this field is not supported", Shown(name)));
    }
    if body.get("stream").is_some_and(|s| *s == true) {
        return Err("body.stream: answers of a batch are not streamed".into());
    }
    Ok((url, body))
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) requests: HashMap<Key, Planned>,
    /// Requests of this process.
    pub(super) mine: usize,
}

/// A request that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) digest: u64,
    pub(super) mine: bool,
    /// It is answered already.
    pub(super) done: bool,
}

impl Plan {
    /// Reads all lines once.
    ///
    /// # Errors
    /// As [`Lines::next`]; two requests have one `custom_id`.
    pub(super) fn read(path: &Path, shard: Shard) -> anyhow::Result<Plan> {
        let mut lines = Lines::open(path, shard)?;
        let mut plan = Plan::default();
        while let Some(line) = lines.next()? {
            match plan.requests.entry(line.key) {
                Entry::Vacant(place) => {
                    place.insert(Planned { digest: line.digest, mine: line.mine, done: false });
                }
                Entry::Occupied(_) => bail!(
                    "{}, line {}: an earlier line has the custom_id \"{}\", too",
                    path.display(),
                    line.number,
                    Shown(&line.custom_id.unwrap_or_default())
                ),
            }
            plan.mine += usize::from(line.mine);
        }
        ensure!(!plan.requests.is_empty(), "{} has no requests", path.display());
        Ok(plan)
    }
}

/// What stands between two ends of line.
pub(super) enum Read {
    /// A whole line, with its end.
    Line(Vec<u8>),
    /// What follows the last end of line.
    Open(Vec<u8>),
    /// More than [`LINE_BYTES`].
    TooLong,
    /// Nothing follows.
    End,
}

/// Reads a line in bounded memory.
pub(super) fn read_line(file: &mut impl BufRead) -> io::Result<Read> {
    let mut bytes = Vec::new();
    let n = io::Read::take(&mut *file, LINE_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
    if n == 0 {
        return Ok(Read::End);
    }
    if bytes.ends_with(b"\n") {
        return Ok(Read::Line(bytes));
    }
    if n <= LINE_BYTES {
        return Ok(Read::Open(bytes));
    }
    drop(bytes);
    file.skip_until(b'\n')?;
    Ok(Read::TooLong)
}
