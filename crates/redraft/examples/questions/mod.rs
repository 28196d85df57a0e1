//! The question set of `testdata/redraft-tiny/questions.json`, and how a model is asked.

#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use redraft::Model;
use redraft::chat::{BuiltinTemplate, ChatTemplate, Message, RenderOptions};
use redraft::engine::{BlockCache, Given, Philox, Request};
use redraft::sampler::{PROFILES, sampler};
use redraft::tokenizer::Tokenizer;

/// Tokens of an answer at most.
const MAX_TOKENS: usize = 96;

/// A question with its only right answer.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Question {
    /// Kind of question.
    pub(crate) task: String,
    messages: Vec<Message>,
    answer: String,
}

impl Question {
    /// All of them.
    pub(crate) fn all() -> Result<Vec<Question>, Box<dyn Error>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/redraft-tiny/questions.json");
        let mut file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        Ok(serde_json::from_value(file["questions"].take())?)
    }

    /// The right answer.
    pub(crate) fn answer(&self) -> &str {
        &self.answer
    }

    /// Whether an answer is right: equal after trimming.
    pub(crate) fn is_right(&self, ids: &[u32], tokenizer: &Tokenizer) -> bool {
        tokenizer.decode(ids, false).trim() == self.answer
    }
}

/// Asks one model.
pub(crate) struct Asker {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    steps: Vec<(String, f64)>,
    self_conditioning: bool,
}

impl Asker {
    /// With at most so many steps per canvas, none for the model's own number.
    pub(crate) fn new(
        model: &Model,
        steps: Option<f64>,
        self_conditioning: bool,
    ) -> Result<Asker, Box<dyn Error>> {
        let tokenizer = Arc::clone(model.tokenizer());
        let builtin = BuiltinTemplate::fitting(&tokenizer).source;
        let template = ChatTemplate::from_source(tokenizer.chat_template().unwrap_or(builtin))?;
        let steps = steps.map(|n| ("steps".into(), n)).into_iter().collect();
        Ok(Asker { tokenizer, template, steps, self_conditioning })
    }

    /// The request for an answer.
    pub(crate) fn request(&self, model: &Model, question: &Question) -> Result<Request, Box<dyn Error>> {
        let options =
            RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(&self.tokenizer) };
        let spec = sampler("entropy-bound")?;
        Ok(Request {
            prompt: self.tokenizer.encode_prompt(&self.template.render(&question.messages, &options)?)?,
            max_tokens: MAX_TOKENS,
            context_len: model.shape().context_len,
            sampler: spec,
            params: spec.params(model.gguf().metadata(), &self.steps)?,
            profile: &PROFILES[0],
            end_ids: self.tokenizer.end_ids(),
            ban: Vec::new(),
            bias: Vec::new(),
            logprobs: None,
            self_conditioning: self.self_conditioning,
            given: Given::default(),
            constraint: None,
            cache: BlockCache::None,
            full_logits: false,
            interrupt: None,
        })
    }
}

/// The draws of question `i`: a stream of its own, as a user who asks one question gets it.
pub(crate) fn draws(model: &Model, seed: u64, i: usize) -> Philox {
    Philox { seed: (seed << 32) + i as u64, vocab_len: model.shape().vocab_len as u32 }
}
