//! `POST /v1/completions`: a text that goes on, or whose gap is filled.

use std::sync::Arc;

use axum::response::Response;
use redraft::fill::{DEFAULT_GAP_MAX, MAX_GAP, Segment, Template};
use redraft::tokenizer::Specials;
use serde_json::Value;

use crate::app::App;
use crate::chat::{MOST_CHOICES, openai};
use crate::conversation::Common;
use crate::error::{ApiError, Names};
use crate::facts::Facts;
use crate::fields::{Drafts, Fields, Stream};
use crate::openai::OpenAi;
use crate::reply::{aside, send};
use crate::worker::Work;

/// Most likely tokens that are told beside each token at most.
const MOST_LOGPROBS: usize = 5;

/// What errors speak of; replies are held to nothing here.
const NAMES: Names = Names { length: "max_tokens", history: "prompt", language: None };

/// What the text is.
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

struct Completion {
    prompt: Prompt,
    suffix: Option<String>,
    max_tokens: Option<usize>,
    echo: bool,
    n: usize,
    stream: Stream,
    common: Common,
}

/// Answers a request.
pub(crate) async fn answer(app: Arc<App>, body: Value) -> Result<Response, ApiError> {
    let facts = Arc::clone(&app.facts);
    let completion = aside(move || Completion::read(body, &facts)).await?;
    let places = app.places(completion.n)?;
    let (stream, facts) = (completion.stream, Arc::clone(&app.facts));
    let made = aside(move || Ok((completion.works(&facts)?, places)));
    let ((works, echo), places) = made.await?;
    let form = OpenAi::new(&app, false, stream, echo);
    let answers = app.ask(works, places).await?;
    send(form, answers, stream.on).await
}

impl Completion {
    fn read(body: Value, facts: &Facts) -> Result<Completion, ApiError> {
        let mut fields = Fields::new(body, "")?;
        let suffix = fields.string("suffix")?.filter(|s| !s.is_empty());
        let own = if suffix.is_some() { facts.in_place } else { facts.own };
        let mut common = openai(&mut fields, facts, own)?;
        let stream = Stream::take(&mut fields)?;
        let n = fields.count("n", MOST_CHOICES)?.unwrap_or(1);
        let expected = "a text, or a list of token ids of the model";
        let vocab_len = facts.shape.vocab_len;
        let prompt = fields.read("prompt", expected, |v| match v {
            Value::String(text) => Some(Prompt::Text(text.clone())),
            Value::Array(ids) if !ids.is_empty() => {
                let id = |v: &Value| u32::try_from(v.as_u64()?).ok().filter(|&id| (id as usize) < vocab_len);
                Some(Prompt::Ids(ids.iter().map(id).collect::<Option<_>>()?))
            }
            _ => None,
        })?;
        let prompt = prompt.ok_or_else(|| fields.error("prompt", format_args!("expected {expected}")))?;
        let most = if suffix.is_some() { MAX_GAP } else { usize::MAX };
        let max_tokens = fields.count("max_tokens", most)?;
        let echo = fields.flag("echo")?.unwrap_or(false);
        if suffix.is_some() && matches!(prompt, Prompt::Ids(_)) {
            return Err(fields.error("suffix", "expected a prompt that is a text, too"));
        }
        if suffix.is_some() && common.sampling.sampler.moves() {
            let message =
                "moves tokens: a text around a gap needs a sampler that leaves them at their places";
            return Err(fields.error("diffusion.sampler", message));
        }
        fields.only("best_of", &[1.into()])?;
        common.logprobs = fields.natural("logprobs", MOST_LOGPROBS)?;
        if common.logprobs.is_some() && (echo || suffix.is_some()) {
            return Err(fields.error("logprobs", "not together with echo or suffix"));
        }
        fields.finish()?;
        Ok(Completion { prompt, suffix, max_tokens, echo, n, stream, common })
    }

    /// The work, and what comes before the text of each answer.
    fn works(self, facts: &Facts) -> Result<(Vec<Work>, String), ApiError> {
        let Completion { prompt, suffix, max_tokens, echo, n, stream, common } = self;
        let tokenizer = &facts.tokenizer;
        let (prompt, text) = match prompt {
            Prompt::Text(text) => {
                let ids = tokenizer.encode_raw_prompt(&text, Specials::Text);
                let ids = ids.map_err(|e| ApiError::of(e.into(), NAMES))?;
                (ids, text)
            }
            Prompt::Ids(ids) => {
                let text = tokenizer.decode(&ids, false);
                (ids, text)
            }
        };
        let fill = match suffix {
            None => None,
            Some(suffix) => {
                let segments = [Segment::Text(text.clone()), Segment::Gap(None), Segment::Text(suffix)];
                let template = Template::new(tokenizer, Vec::new(), &segments, Specials::Text);
                Some(template.map_err(|e| ApiError::of(e, NAMES))?)
            }
        };
        let prompt = fill.as_ref().map_or(prompt, |template| template.prompt().to_vec());
        let max_tokens = if fill.is_some() { max_tokens.or(Some(DEFAULT_GAP_MAX)) } else { max_tokens };
        let works = common.works(n, |seed, common| Work {
            prompt: prompt.clone(),
            max_tokens,
            seed,
            sampler: common.sampling.sampler,
            overrides: common.sampling.overrides.clone(),
            constraint: None,
            bias: common.bias.clone(),
            logprobs: common.logprobs,
            stop: common.stop.clone(),
            // The gap is told as a whole.
            drafts: if fill.is_none() { stream.drafts } else { Drafts::None },
            chat: false,
            fill: fill.clone(),
            names: NAMES,
        });
        Ok((works, if echo { text } else { String::new() }))
    }
}
