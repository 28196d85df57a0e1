//! What a reply must be.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use redraft::Model;
use redraft::constrain::{Constraint, Language, MAX_SCHEMA_BYTES, Vocabulary};

use super::generate::GenerateArgs;
use super::prompt::Think;
use crate::files;
use crate::out::Out;

/// Options that hold a reply to a language.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reply")]
#[group(multiple = false)]
pub(crate) struct ConstrainArgs {
    /// The reply is JSON that is valid under the JSON schema in this file (docs/structured.md has what of it is supported).
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema: Option<PathBuf>,

    /// The reply is a text that this regular expression matches from start to end.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    regex: Option<String>,

    /// The reply is one of these texts.
    #[arg(long, value_name = "A,B", value_delimiter = ',', allow_hyphen_values = true)]
    choices: Vec<String>,
}

impl ConstrainArgs {
    /// What is asked for, if something is.
    ///
    /// # Errors
    /// A file that cannot be read or is no JSON.
    pub(crate) fn language(&self) -> anyhow::Result<Option<Language>> {
        if let Some(path) = &self.json_schema {
            return schema(path).map(Some);
        }
        if let Some(pattern) = &self.regex {
            return Ok(Some(Language::Regex(pattern.clone())));
        }
        Ok((!self.choices.is_empty()).then(|| Language::Choices(self.choices.clone())))
    }

    /// Whether a flag asks for something.
    fn asked(&self) -> Option<&'static str> {
        let flags = [
            ("--json-schema", self.json_schema.is_some()),
            ("--regex", self.regex.is_some()),
            ("--choices", !self.choices.is_empty()),
        ];
        flags.into_iter().find(|(_, asked)| *asked).map(|(flag, _)| flag)
    }

    /// How an answer is generated: with a language by a sampler that leaves tokens at their places, unless another is asked for.
    pub(crate) fn sampling(&self, generate: &GenerateArgs, model: &Model) -> GenerateArgs {
        let mut generate = generate.clone();
        if self.asked().is_some() {
            generate.sampler = generate.sampler.in_place(model);
        }
        generate
    }

    /// Refuses what goes with no language.
    ///
    /// # Errors
    /// `--think on`; a recording.
    pub(crate) fn check(&self, think: Think, records: bool) -> anyhow::Result<()> {
        let Some(flag) = self.asked() else { return Ok(()) };
        anyhow::ensure!(
            think != Think::On,
            "{flag} with --think on: the reply is held to the language from its first token on, and a thought before it is not; \
             leave one out"
        );
        anyhow::ensure!(
            !records,
            "{flag} with --trace: recordings have no place for a language; leave one out, or take --receipt"
        );
        Ok(())
    }
}

fn schema(path: &Path) -> anyhow::Result<Language> {
    let about = || format!("--json-schema {}", path.display());
    files::refuse_special(path, "a JSON schema")?;
    let bytes = files::read(path, MAX_SCHEMA_BYTES).with_context(about)?;
    let schema = serde_json::from_slice(&bytes).context("expected JSON").with_context(about)?;
    Ok(Language::JsonSchema(schema))
}

/// Compiles a language for a model.
///
/// # Errors
/// What of it is not supported or too large; a vocabulary that cannot write it.
pub(crate) fn compiled(
    language: Language,
    model: &Model,
    end_ids: &[u32],
    out: Out,
) -> anyhow::Result<Arc<Constraint>> {
    let start = Instant::now();
    let constraint =
        Constraint::new(language, &Vocabulary::of(model, end_ids)).map_err(redraft::Error::from)?;
    let f = constraint.figures();
    out.note(&format!(
        "language of the reply: {} states, {} transitions, {} classes of tokens; {:.1} MB, compiled in {:.0} ms",
        f.states,
        f.transitions,
        f.classes,
        f.bytes as f64 / 1e6,
        start.elapsed().as_secs_f64() * 1e3
    ));
    Ok(Arc::new(constraint))
}
