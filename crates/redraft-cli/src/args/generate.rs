//! How an answer is generated.

use std::hash::{BuildHasher as _, Hasher as _};
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use redraft::Model;
use redraft::arch::Noise;
use redraft::engine::{BlockCache, Request, default_max_tokens};
use redraft::sampler::{PROFILES, Params, SamplerSpec, profile};
use redraft::tokenizer::Specials;

use super::model::at_least_one;
use super::sampler::{SamplerArgs, Use};
use super::{Given, left_out};
use crate::out::Out;

/// Options of commands that generate.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct GenerateArgs {
    // First, since the others take what they read.
    #[command(flatten)]
    given: Given,

    /// Tokens of the answer at most, exactly: whole canvases are denoised, and the text is cut. For models that write an
    /// answer as one canvas, its length [default: 512, or the model's, or what the context leaves].
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, env = "REDRAFT_MAX_TOKENS")]
    pub(crate) max_tokens: Option<usize>,

    /// Context length in tokens; prompt and whole canvases must fit [default: what the model was made for].
    #[arg(short, long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, env = "REDRAFT_CTX")]
    pub(crate) ctx: Option<usize>,

    /// What to do when prompt and answer do not fit into the context. error: say so; slide: leave out the oldest
    /// turns of a conversation, and say how many.
    #[arg(long, value_name = "HOW", default_value = "error", env = "REDRAFT_CTX_OVERFLOW")]
    pub(crate) ctx_overflow: CtxOverflow,

    /// Number that decides all random choices, or random: the same seed gives the same answer on every machine.
    #[arg(
        long,
        value_name = "N|random",
        default_value = "0",
        allow_negative_numbers = true,
        env = "REDRAFT_SEED"
    )]
    pub(crate) seed: Seed,

    /// For models that read prompt and answer whole: take keys and values outside the block of --block-length from its first
    /// step, those before it (prefix) or also those after it (dual). Later steps of a block are faster, and the answer is an
    /// approximation: another one than without (docs/caches.md).
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = block_cache)]
    pub(crate) cache: BlockCache,

    /// Which digests to report. full adds one over all logits of the last step of each canvas.
    #[arg(long, value_name = "KIND", default_value = "short", env = "REDRAFT_DIGEST")]
    pub(crate) digest: DigestKind,

    #[command(flatten)]
    pub(crate) sampler: SamplerArgs,

    /// Token ids that are never drawn.
    #[arg(long, value_name = "IDS", value_delimiter = ',', help_heading = "Sampler")]
    pub(crate) ban_tokens: Vec<u32>,

    /// Text that is never drawn, which must be one token; can be repeated. With the space before it a word is another
    /// token as a rule.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Sampler")]
    pub(crate) ban: Vec<String>,

    /// Do not tell the model its previous prediction.
    #[arg(long, help_heading = "Sampler")]
    pub(crate) no_self_conditioning: bool,

    /// Which reference implementation to follow where they disagree [default: hf]. Given explicitly, control
    /// tokens spelled out in messages are control tokens, as they are there.
    #[arg(long, value_name = "NAME", value_parser = profiles(), env = "REDRAFT_PROFILE", help_heading = "Sampler")]
    pub(crate) profile: Option<String>,
}

/// What is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// An answer to a prompt.
    Answer,
    /// The next answer of a conversation.
    Conversation,
    /// What fills gaps of a text.
    Gaps {
        /// The text ends with a gap that ends where the model ends it.
        free: bool,
    },
}

/// `--seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seed {
    /// This one.
    Fixed(u64),
    /// Another one each time.
    Random,
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Seed, String> {
        if text == "random" {
            return Ok(Seed::Random);
        }
        text.parse()
            .map(Seed::Fixed)
            .map_err(|_| format!("expected `random` or a whole number in 0..={}", u64::MAX))
    }
}

impl Seed {
    /// The number.
    pub(crate) fn number(self) -> u64 {
        match self {
            Seed::Fixed(n) => n,
            // The standard library seeds its hash maps from the system's entropy.
            Seed::Random => std::hash::RandomState::new().build_hasher().finish(),
        }
    }
}

/// `--ctx-overflow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CtxOverflow {
    /// An error.
    Error,
    /// The oldest turns go.
    Slide,
}

/// `--digest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestKind {
    /// Of the ids, and of a few figures for each position.
    Short,
    /// Also of all logits.
    Full,
}

fn block_cache(text: &str) -> Result<BlockCache, String> {
    BlockCache::from_name(text).ok_or_else(|| "expected `none` or `prefix` or `dual`".into())
}

fn profiles() -> PossibleValuesParser {
    PossibleValuesParser::new(PROFILES.iter().map(|p| PossibleValue::new(p.name).help(p.about)))
}

impl GenerateArgs {
    /// For commands that answer one prompt.
    ///
    /// # Errors
    /// `--ctx-overflow slide`, which means nothing there. That of the environment is left out.
    pub(crate) fn refuse_slide(&self, because: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.ctx_overflow == CtxOverflow::Error || self.given.by_environment("ctx_overflow"),
            "--ctx-overflow slide leaves out the oldest turns of a conversation, and {because}: use `redraft \
             chat`, shorten the prompt, or raise --ctx"
        );
        Ok(())
    }

    /// The sampler and its parameters.
    ///
    /// # Errors
    /// Those of [`SamplerArgs::resolve`].
    pub(crate) fn sampling(
        &self,
        model: &Model,
        task: Task,
    ) -> anyhow::Result<(&'static SamplerSpec, Params)> {
        self.sampler.resolve(self.used(model, task))
    }

    pub(crate) fn used<'a>(&self, model: &'a Model, task: Task) -> Use<'a> {
        // Text around gaps counts, too, and comes on top.
        let most = self.max_tokens.filter(|_| !matches!(task, Task::Gaps { .. }));
        Use { model, task, most }
    }

    /// Notes on what of the environment does not apply to a model or a task.
    pub(crate) fn left_out(&self, model: &Model, task: Task) -> Vec<String> {
        let mut notes = self.sampler.left_out(self.used(model, task));
        if let Some(name) = &self.profile
            && self.explicit_profile(model).is_none()
        {
            notes.push(left_out("profile", name, format!("{} has one only", model.arch().name)));
        }
        if self.ctx_overflow == CtxOverflow::Slide
            && task != Task::Conversation
            && self.given.by_environment("ctx_overflow")
        {
            notes.push(left_out("ctx_overflow", "slide", "there are no earlier turns"));
        }
        notes
    }

    /// The profile that is asked for. Models of masks have the first one only; another of the environment is left out.
    pub(crate) fn explicit_profile(&self, model: &Model) -> Option<&str> {
        let applies = |name: &&str| {
            let masks = matches!(model.shape().noise, Noise::Mask(_));
            !(masks && *name != PROFILES[0].name && self.given.by_environment("profile"))
        };
        self.profile.as_deref().filter(applies)
    }

    /// Warns of digests that nobody will see; `kept`: they are written into a receipt.
    pub(crate) fn warn_of_hidden_digests(&self, kept: bool, out: Out) {
        let asked = self.digest == DigestKind::Full && self.given.first_of(&["digest"]).is_some();
        if asked && !kept && !out.json && out.verbose == 0 {
            out.warn("--digest full is shown with --json or -v, and kept in receipts");
        }
    }

    /// Context length in tokens.
    pub(crate) fn context_len(&self, model: &Model) -> usize {
        self.ctx.unwrap_or(model.shape().context_len)
    }

    /// Token ids that are never drawn, ascending.
    ///
    /// # Errors
    /// A text that is no token of the vocabulary.
    fn banned(&self, model: &Model) -> anyhow::Result<Vec<u32>> {
        let tokenizer = model.tokenizer();
        let mut ids = self.ban_tokens.clone();
        for text in &self.ban {
            match tokenizer.encode_inside(text, Specials::Parse)?[..] {
                [id] => ids.push(id),
                ref several => anyhow::bail!(
                    "--ban: expected a text that is one token, found `{text}`, which is {} ({several:?}); `redraft \
                     tokenize` shows them",
                    several.len()
                ),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// The request for a prompt. The second value are warnings.
    ///
    /// # Errors
    /// Those of the sampler's parameters; a banned text that is no token; `--no-self-conditioning` for a model that has none.
    pub(crate) fn request(
        &self,
        model: &Model,
        task: Task,
        prompt: Vec<u32>,
    ) -> anyhow::Result<(Request, Vec<String>)> {
        let shape = model.shape();
        let context_len = self.context_len(model);
        let (sampler, params) = self.sampling(model, task)?;
        anyhow::ensure!(
            shape.self_conditioning || !self.no_self_conditioning,
            "--no-self-conditioning changes nothing: this model is never told its previous prediction"
        );
        let mut warnings = Vec::new();
        if context_len > shape.context_len {
            warnings.push(format!(
                "a context of {context_len} is more than the {} that the model was made for",
                shape.context_len
            ));
        }
        let profile = profile(self.explicit_profile(model).unwrap_or(PROFILES[0].name))?;
        warnings.extend(self.sampler.without_effect(sampler, &params, profile));
        let max_tokens =
            self.max_tokens.unwrap_or_else(|| default_max_tokens(shape, sampler, context_len, prompt.len()));
        if !matches!(task, Task::Gaps { .. }) {
            self.sampler.check_least(sampler, &params, max_tokens)?;
        }
        let request = Request {
            max_tokens,
            context_len,
            sampler,
            params,
            profile,
            end_ids: model.tokenizer().end_ids(),
            ban: self.banned(model)?,
            bias: Vec::new(),
            logprobs: None,
            self_conditioning: !self.no_self_conditioning,
            given: redraft::engine::Given::default(),
            constraint: None,
            cache: self.cache,
            full_logits: self.digest == DigestKind::Full,
            interrupt: None,
            prompt,
        };
        Ok((request, warnings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds() {
        assert_eq!("18446744073709551615".parse(), Ok(Seed::Fixed(u64::MAX)));
        assert_eq!("random".parse(), Ok(Seed::Random));
        for bad in ["-1", "1.5", "", "Random"] {
            assert!(bad.parse::<Seed>().is_err(), "{bad}");
        }
        assert_ne!(Seed::Random.number(), Seed::Random.number());
    }
}
