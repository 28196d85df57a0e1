//! `redraft tokenize` and `redraft detokenize`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use redraft::tokenizer::{Specials, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::args::prompt::read_stdin;
use crate::exit::Exit;
use crate::files;
use crate::model::open_vocabulary;
use crate::out::Out;
use crate::ui::table::long_table;
use crate::ui::text::shortened;

/// Show the tokens of a text.
///
/// No BOS and no chat template is added. Only the vocabulary of the model file is read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft tokenize \"Hello, world\"\n  \
    redraft tokenize --special -m model.gguf \"<bos><|turn>user\"\n  \
    redraft tokenize --json < text.txt\n  \
    redraft tokenize -m model.gguf --compare expected.json")]
pub(crate) struct TokenizeArgs {
    /// The text; - reads it from stdin, as does no TEXT at all when something is piped in. A newline at its end
    /// is left out.
    #[arg(value_name = "TEXT", conflicts_with = "compare")]
    text: Option<String>,

    /// Model file (GGUF); without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    model: Option<PathBuf>,

    /// Recognise control tokens that are spelled out in the text.
    #[arg(long)]
    special: bool,

    /// Compare with a JSON file of texts and ids: a list `cases` of objects with `text` and `ids` (or
    /// `ids_parse_special`, `ids_no_special`) and perhaps `decoded`. Exit code 1 when something differs.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

/// Show the text of token ids.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft detokenize 360,358,391\n  \
    redraft tokenize --json \"Hi\" | jq -c .ids | redraft detokenize -")]
pub(crate) struct DetokenizeArgs {
    /// Ids, separated by commas or spaces; - reads them from stdin.
    #[arg(value_name = "IDS")]
    ids: String,

    /// Model file (GGUF); without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    model: Option<PathBuf>,

    /// Show control tokens.
    #[arg(long)]
    special: bool,
}

/// A token.
#[derive(Debug, Serialize)]
struct Token {
    id: u32,
    piece: String,
    kind: String,
}

#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    ids: &'a [u32],
    #[serde(serialize_with = "Tokens::each")]
    tokens: Tokens<'a>,
}

/// Tokens that are looked up while they are written: a text of a megabyte may have a million of them.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    tokenizer: &'a Tokenizer,
    ids: &'a [u32],
}

impl<'a> Tokens<'a> {
    fn iter(self) -> impl Iterator<Item = Token> + use<'a> {
        self.ids.iter().map(move |&id| token(self.tokenizer, id))
    }

    fn each<S: serde::Serializer>(tokens: &Tokens<'_>, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(tokens.iter())
    }
}

/// Runs `tokenize`.
pub(crate) fn tokenize(args: &TokenizeArgs, out: Out) -> anyhow::Result<Exit> {
    let (_, tokenizer) = open_vocabulary(args.model.as_deref(), out)?;
    if let Some(path) = &args.compare {
        return print_comparison(&compare(&tokenizer, path)?, out);
    }
    let text = match args.text.as_deref() {
        Some("-") => read_stdin()?,
        Some(text) => text.to_string(),
        None => {
            let piped = if std::io::stdin().is_terminal() { String::new() } else { read_stdin()? };
            if piped.is_empty() {
                bail!(
                    "there is no text: give it as an argument, as in `redraft tokenize \"Hello\"`, pipe it in, or \
                     give - to type it and end with Ctrl-D"
                );
            }
            piped
        }
    };
    let ids = tokenizer.encode(&text, if args.special { Specials::Parse } else { Specials::Text })?;
    let tokens = Tokens { tokenizer: &tokenizer, ids: &ids };
    if out.json {
        out.object(&Report { text: &text, ids: &ids, tokens })?;
        return Ok(Exit::Done);
    }
    let row = |t: Token| vec![t.id.to_string(), format!("{:?}", t.piece), t.kind];
    let mut report = long_table(&["id", "piece", "kind"], &[0], || tokens.iter().map(row));
    let n = ids.len();
    report.push_str(&format!("{n} token{}: ", if n == 1 { "" } else { "s" }));
    for (i, id) in ids.iter().enumerate() {
        report.push_str(if i == 0 { "" } else { "," });
        report.push_str(&id.to_string());
    }
    report.push('\n');
    out.text(&report)?;
    Ok(Exit::Done)
}

/// Runs `detokenize`.
pub(crate) fn detokenize(args: &DetokenizeArgs, out: Out) -> anyhow::Result<Exit> {
    let (_, tokenizer) = open_vocabulary(args.model.as_deref(), out)?;
    let list = if args.ids == "-" { read_stdin()? } else { args.ids.clone() };
    let ids = parse_ids(&list)?;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.vocab_len()) {
        bail!("token id in IDS: expected 0..{}, found {id}", tokenizer.vocab_len());
    }
    let text = tokenizer.decode(&ids, args.special);
    if out.json {
        let tokens = Tokens { tokenizer: &tokenizer, ids: &ids };
        out.object(&Report { text: &text, ids: &ids, tokens })?;
    } else {
        out.text(&(text + "\n"))?;
    }
    Ok(Exit::Done)
}

fn token(tokenizer: &Tokenizer, id: u32) -> Token {
    let piece = tokenizer.piece(id);
    Token {
        id,
        piece: piece.map_or_else(String::new, |p| p.text.to_string()),
        kind: piece.map_or_else(|| "unknown id".into(), |p| kind(p.kind)),
    }
}

/// `UserDefined` as `user defined`.
fn kind(kind: redraft::tokenizer::TokenKind) -> String {
    let mut out = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Bytes of a wrong id that a message shows.
const LONGEST_WORD: usize = 60;

/// Ids between commas and white space, with or without brackets.
fn parse_ids(list: &str) -> anyhow::Result<Vec<u32>> {
    list.split(|c: char| c.is_whitespace() || ",[]".contains(c))
        .filter(|word| !word.is_empty())
        .map(|word| {
            let found = format!("{word:?}");
            let found = shortened(&found, LONGEST_WORD);
            word.parse().map_err(|_| {
                anyhow::anyhow!(
                    "IDS: expected token ids, whole numbers between commas or spaces, found {found}"
                )
            })
        })
        .collect()
}

/// A file of texts and their ids. Other fields are left alone.
#[derive(Debug, Deserialize)]
struct Expected {
    cases: Vec<Case>,
    eog_token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
struct Case {
    text: String,
    ids: Option<Vec<u32>>,
    ids_parse_special: Option<Vec<u32>>,
    ids_no_special: Option<Vec<u32>>,
    decoded: Option<String>,
}

/// What came out of a comparison.
#[derive(Debug, Serialize)]
struct Comparison {
    ok: bool,
    cases: usize,
    checks: usize,
    differences: Vec<Difference>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    text: String,
    what: &'static str,
    expected: String,
    found: String,
}

fn compare(tokenizer: &Tokenizer, path: &Path) -> anyhow::Result<Comparison> {
    files::refuse_special(path, "a JSON file of texts and ids")?;
    let bytes = files::read(path, files::MAX_BYTES)?;
    let expected: Expected = serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
    let mut c = Comparison { ok: true, cases: expected.cases.len(), checks: 0, differences: Vec::new() };
    let mut check = |text: &str, what, expected: String, found: String| {
        c.checks += 1;
        if expected != found {
            c.differences.push(Difference { text: text.to_string(), what, expected, found });
        }
    };
    for case in &expected.cases {
        let listed = [
            ("ids", Specials::Text, &case.ids),
            ("ids_parse_special", Specials::Parse, &case.ids_parse_special),
            ("ids_no_special", Specials::Text, &case.ids_no_special),
        ];
        for (what, specials, want) in listed {
            if let Some(want) = want {
                let found = tokenizer.encode(&case.text, specials);
                let found = found.map_or_else(|e| e.to_string(), |ids| format!("{ids:?}"));
                check(&case.text, what, format!("{want:?}"), found);
            }
        }
        let ids = case.ids_parse_special.as_ref().or(case.ids.as_ref()).or(case.ids_no_special.as_ref());
        if let (Some(want), Some(ids)) = (&case.decoded, ids) {
            check(&case.text, "decoded", format!("{want:?}"), format!("{:?}", tokenizer.decode(ids, true)));
        }
    }
    if let Some(mut want) = expected.eog_token_ids {
        want.sort_unstable();
        check("", "eog_token_ids", format!("{want:?}"), format!("{:?}", tokenizer.end_ids()));
    }
    if c.checks == 0 {
        bail!("{}: no case has ids to compare with", path.display());
    }
    c.ok = c.differences.is_empty();
    Ok(c)
}

fn print_comparison(c: &Comparison, out: Out) -> anyhow::Result<Exit> {
    if out.json {
        out.object(c)?;
    } else {
        let mut s = String::new();
        for d in &c.differences {
            s.push_str(&format!(
                "{:?}: {}\n  expected {}\n  found    {}\n",
                d.text, d.what, d.expected, d.found
            ));
        }
        let verdict = match c.differences.len() {
            0 => "all equal".to_string(),
            1 => "1 difference".to_string(),
            n => format!("{n} differences"),
        };
        s.push_str(&format!("{} cases, {} checks: {verdict}\n", c.cases, c.checks));
        out.text(&s)?;
    }
    Ok(if c.ok { Exit::Done } else { Exit::No })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_be_a_json_array_or_words() {
        assert_eq!(parse_ids("[1, 2,3]\n").unwrap(), [1, 2, 3]);
        assert_eq!(parse_ids("1 2\t3").unwrap(), [1, 2, 3]);
        assert!(parse_ids("").unwrap().is_empty());
        let e = "IDS: expected token ids, whole numbers between commas or spaces, found \"x\"";
        assert_eq!(parse_ids("1,x").unwrap_err().to_string(), e);
        assert!(parse_ids("-1").is_err());
    }
}
