//! How likely the tokens of an answer were, as clients are told.

use redraft::engine::TokenProbability;
use redraft::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// A token, and how likely it was.
#[derive(Debug, Clone)]
pub(crate) struct Score {
    bytes: Vec<u8>,
    top: Vec<(Vec<u8>, f64)>,
    of: TokenProbability,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Score {
    pub(crate) fn new(of: &TokenProbability, tokenizer: &Tokenizer) -> Score {
        let top = of.revealed.iter().flat_map(|r| &r.top);
        let top = top.map(|&(id, logprob)| (tokenizer.bytes_of(id), logprob)).collect();
        Score { bytes: tokenizer.bytes_of(of.id), top, of: of.clone() }
    }

    fn logprob(&self) -> Option<f64> {
        self.of.revealed.as_ref().map(|r| r.logprob)
    }

    /// What only answers that are denoised have. `step` counts from 1, as in drafts.
    fn diffusion(&self) -> Value {
        let TokenProbability { canvas, revealed, rescored, .. } = &self.of;
        let step = revealed.as_ref().map(|r| r.step + 1);
        json!({"canvas": canvas, "step": step, "rescored_logprob": rescored})
    }
}

/// `logprobs` of a choice of a chat.
pub(crate) fn of_chat(scores: &[Score]) -> Value {
    let one = |bytes: &[u8], logprob: Option<f64>| {
        Map::from_iter([
            ("token".to_owned(), Value::from(text(bytes))),
            ("logprob".to_owned(), logprob.into()),
            ("bytes".to_owned(), bytes.into()),
        ])
    };
    let entry = |score: &Score| {
        let mut entry = one(&score.bytes, score.logprob());
        let top = score.top.iter().map(|(bytes, logprob)| Value::Object(one(bytes, Some(*logprob))));
        entry.insert("top_logprobs".into(), top.collect());
        entry.insert("diffusion".into(), score.diffusion());
        Value::Object(entry)
    };
    json!({"content": scores.iter().map(entry).collect::<Vec<_>>(), "refusal": null})
}

/// `logprobs` of a choice of a text that goes on, whose tokens before these have so many characters.
pub(crate) fn of_text(scores: &[Score], mut offset: usize) -> Value {
    let mut offsets = Vec::new();
    for score in scores {
        offsets.push(offset);
        offset += text(&score.bytes).chars().count();
    }
    let top = |score: &Score| -> Map<String, Value> {
        score.top.iter().map(|(bytes, logprob)| (text(bytes), Value::from(*logprob))).collect()
    };
    json!({
        "tokens": scores.iter().map(|s| text(&s.bytes)).collect::<Vec<_>>(),
        "token_logprobs": scores.iter().map(Score::logprob).collect::<Vec<_>>(),
        "top_logprobs": scores.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
        "diffusion": scores.iter().map(Score::diffusion).collect::<Vec<_>>(),
    })
}

/// Characters of the texts of tokens.
pub(crate) fn characters(scores: &[Score]) -> usize {
    scores.iter().map(|s| text(&s.bytes).chars().count()).sum()
}
