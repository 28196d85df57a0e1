//! A conversation that is to be continued, whichever API asks for it.

use std::sync::Arc;

use axum::http::StatusCode;
use redraft::chat::Message;
use redraft::constrain::{Function, Language, ToolCalls};
use redraft::sampler::SamplerSpec;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::{ApiError, Names};
use crate::facts::Facts;
use crate::fields::{Drafts, Fields, Sampling};
use crate::reply::aside;
use crate::worker::Work;

/// What all ways to ask for text have.
pub(crate) struct Common {
    pub(crate) sampling: Sampling,
    pub(crate) seed: u64,
    pub(crate) stop: Vec<String>,
    /// What is added to the logits of ids.
    pub(crate) bias: Vec<(u32, f64)>,
    /// How likely each token was is wanted, with so many of the most likely ones.
    pub(crate) logprobs: Option<usize>,
}

impl Common {
    /// Takes `model`, `seed` and the fields of the sampler. `own`: the sampler where nobody asks for another; `known`: fields of
    /// sampling that the API has.
    pub(crate) fn take(
        fields: &mut Fields,
        facts: &Facts,
        own: &'static SamplerSpec,
        known: &[&str],
    ) -> Result<Common, ApiError> {
        if let Some(model) = fields.string("model")?
            && model != facts.id
        {
            let e = fields.error("model", "this server has no such model; /v1/models says which it has");
            return Err(ApiError { status: StatusCode::NOT_FOUND, ..e }.code("model_not_found"));
        }
        let seed = fields.read("seed", "a whole number from 0 on", Value::as_u64)?.unwrap_or(0);
        let sampling = Sampling::take(fields, &facts.fit(), own, known)?;
        Ok(Common { sampling, seed, stop: Vec::new(), bias: Vec::new(), logprobs: None })
    }

    /// The work for each choice, in turn with the seeds from the one that was asked for.
    pub(crate) fn works(self, n: usize, one: impl Fn(u64, &Common) -> Work) -> Vec<Work> {
        (0..n as u64).map(|i| one(self.seed.wrapping_add(i), &self)).collect()
    }
}

/// What a reply must be, and which field says so.
pub(crate) struct Held {
    pub(crate) language: Language,
    pub(crate) field: &'static str,
}

impl Held {
    /// The form that was asked for, or the calls; and the sampler where nobody asks for another.
    pub(crate) fn one(
        format: Option<Held>,
        (tools, calls): (&Option<Value>, Option<Held>),
        facts: &Facts,
    ) -> Result<(Option<Held>, &'static SamplerSpec), ApiError> {
        if let (Some(_), Some(format)) = (tools, &format) {
            let message = "not together with tools: a reply of that form cannot call one";
            return Err(ApiError::field(format.field, message));
        }
        let held = format.or(calls);
        // What holds a reply to a language does not let its tokens move.
        let own = if held.is_some() { facts.in_place } else { facts.own };
        Ok((held, own))
    }
}

/// The schema of a format of OpenAI's.
pub(crate) fn json_schema(format: &mut Fields) -> Result<Language, ApiError> {
    format.string("name")?;
    format.string("description")?;
    // Replies are always valid under the schema.
    format.flag("strict")?;
    let schema = format.take("schema").ok_or_else(|| format.error("schema", "expected a JSON schema"))?;
    Ok(Language::JsonSchema(schema))
}

/// A conversation that has been read, and not yet been made a prompt of.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// As templates expect them.
    pub(crate) tools: Option<Value>,
    pub(crate) thinking: Option<bool>,
    pub(crate) held: Option<Held>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) n: usize,
    pub(crate) drafts: Drafts,
    pub(crate) common: Common,
    /// What the API calls the length of an answer, and its history.
    pub(crate) length: &'static str,
    pub(crate) history: &'static str,
}

impl Conversation {
    /// What the request calls the fields that errors speak of.
    fn names(&self) -> Names {
        let language = self.held.as_ref().map(|h| h.field);
        Names { length: self.length, history: self.history, language }
    }

    /// The prompt that the messages make.
    pub(crate) fn prompt(&mut self, facts: &Facts) -> Result<Vec<u32>, ApiError> {
        let names = self.names();
        let failed = |e: redraft::Error| ApiError::of(e, names);
        let mut options = facts.options.clone();
        options.enable_thinking = self.thinking;
        let mut prompt = facts.template.render(&self.messages, &options).map_err(|e| failed(e.into()))?;
        if let Some(tools) = self.tools.take() {
            options.tools = Some(tools);
            let with = facts.template.render(&self.messages, &options).map_err(|e| failed(e.into()))?;
            if with == prompt {
                return Err(ApiError::field("tools", "the chat template of this model leaves tools out"));
            }
            prompt = with;
        }
        facts.tokenizer.encode_prompt(&prompt).map_err(|e| failed(e.into()))
    }

    /// The work that is asked for, and places for it, which are taken first, so that no more is prepared at once than there are.
    pub(crate) async fn prepare(self, app: &App) -> Result<(Vec<Work>, OwnedSemaphorePermit), ApiError> {
        let places = app.places(self.n)?;
        let facts = Arc::clone(&app.facts);
        aside(move || Ok((self.works(&facts)?, places))).await
    }

    /// Makes a prompt of the messages, and compiles the form of the reply.
    pub(crate) fn works(mut self, facts: &Facts) -> Result<Vec<Work>, ApiError> {
        let names = self.names();
        let prompt = self.prompt(facts)?;
        let compile = |held: Held| facts.constraint(held.language).map_err(|e| ApiError::of(e, names));
        let constraint = self.held.map(compile).transpose()?;
        let (max_tokens, drafts) = (self.max_tokens, self.drafts);
        Ok(self.common.works(self.n, |seed, common| Work {
            prompt: prompt.clone(),
            max_tokens,
            seed,
            sampler: common.sampling.sampler,
            overrides: common.sampling.overrides.clone(),
            constraint: constraint.clone(),
            bias: common.bias.clone(),
            logprobs: common.logprobs,
            stop: common.stop.clone(),
            drafts,
            chat: true,
            fill: None,
            names,
        }))
    }
}

/// A tool that may be called.
pub(crate) struct Tool {
    pub(crate) function: Function,
    /// As templates expect it.
    pub(crate) shown: Value,
    /// The field that asks for calls that are valid under the schema, where it does.
    pub(crate) strict: Option<String>,
}

/// Which tools a reply calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None or some.
    Auto,
    None,
    /// At least one.
    Any,
    /// This one, once.
    One(String),
}

impl Choice {
    /// What of the tools goes into the prompt, and what the reply is held to. `several`: the value of the field of that name
    /// that allows or forbids several calls in a reply, where it says anything.
    pub(crate) fn of(
        self,
        tools: Vec<Tool>,
        (several, field): (Option<bool>, &str),
        facts: &Facts,
    ) -> Result<(Option<Value>, Option<Held>), ApiError> {
        let forces = matches!(self, Choice::Any | Choice::One(_));
        if tools.is_empty() && forces {
            return Err(ApiError::field("tool_choice", "there are no tools"));
        }
        if tools.is_empty() || self == Choice::None {
            return Ok((None, None));
        }
        let Some(format) = facts.calls else {
            let message = "this model has no form for calls that this server can read";
            return Err(ApiError::field("tools", message));
        };
        let only = "only where tool_choice makes the model call a tool: a reply that may be anything is not held to it";
        if several == Some(false) && !forces {
            return Err(ApiError::field(field, only));
        }
        if let Some(strict) = tools.iter().find_map(|t| t.strict.as_ref()).filter(|_| !forces) {
            return Err(ApiError::field(strict, only));
        }
        let (functions, shown): (Vec<Function>, Vec<Value>) =
            tools.into_iter().map(|t| (t.function, t.shown)).unzip();
        let several = several.unwrap_or(true) && self == Choice::Any;
        let functions: Vec<Function> = match &self {
            Choice::One(name) => functions.into_iter().filter(|f| f.name == *name).collect(),
            _ => functions,
        };
        if functions.is_empty() {
            return Err(ApiError::field("tool_choice", "there is no tool of that name"));
        }
        let calls = ToolCalls { format: format.to_owned(), functions, several };
        let held = forces.then_some(Held { language: Language::ToolCalls(calls), field: "tools" });
        Ok((Some(Value::Array(shown)), held))
    }
}
