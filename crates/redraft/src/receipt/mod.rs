//! Receipts: what an answer was made from and what came out, small enough to send along with it.
//!
//! A receipt names the model by its digests, holds the prompt as token ids, every setting, the seed, the answer,
//! and three short digests of each denoising step: what went in, what the model made of it, what the sampler
//! decided. Whoever has the model file can run it again, and the first difference has a place and a cause: the
//! file, the canvas and step, and there the noise, the model's numbers or the sampler.
//!
//! ```
//! use redraft::receipt::Receipt;
//!
//! let e = Receipt::parse(b"{\"redraft_receipt\": 7}").unwrap_err();
//! assert!(e.to_string().starts_with("receipt: "));
//! ```

mod check;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use redraft_compute::{KvType, Numerics};
use redraft_gguf::Shown;
use serde::{Deserialize, Serialize};

use crate::constrain::{Constraint, Language, Vocabulary};
use crate::engine::{BlockCache, Digests, Generation, Given, Request};
use crate::sampler::{profile, sampler, unsaid};
use crate::tokenizer::Tokenizer;
use crate::{Error, Model};

pub use self::check::{Check, Difference, model_difference};
pub use self::steps::{CanvasDigests, StepDigests, StepRecorder};

/// The version of the format.
const FORMAT: u32 = 1;

/// Longest receipt that is read: a prompt of a million tokens and thousands of steps stay far below it.
pub const MAX_BYTES: usize = 64 << 20;

/// The file that a model was loaded from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDigests {
    /// `general.name`, or the architecture's.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// SHA-256 of everything before the tensor data, in hexadecimal.
    pub sha256_header: String,
    /// SHA-256 of the whole file.
    pub sha256_file: String,
    /// Length of the file in bytes, of a split model of all its files.
    pub file_bytes: u64,
}

impl ModelDigests {
    /// Those of a loaded model. All of the file is read; `progress` gets bytes done and bytes in all, and stops
    /// the reading by returning `false`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `progress` says so.
    pub fn of(model: &Model, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<ModelDigests, Error> {
        Ok(ModelDigests {
            name: model.name().to_string(),
            architecture: model.arch().name.to_string(),
            sha256_header: model.sha256_header(),
            sha256_file: model.sha256_file(progress)?,
            file_bytes: model.file_bytes(),
        })
    }
}

/// A receipt. Field names are part of the program's contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Version of the format.
    #[serde(rename = "redraft_receipt")]
    pub format: u32,
    /// Version of the program that made it.
    pub version: String,
    /// Backend and CPU level that computed it. The numbers do not depend on them.
    pub backend: String,
    /// The model.
    pub model: ModelDigests,
    /// `exact` or `fast`.
    pub numerics: String,
    /// Number type of the KV cache.
    pub kv_type: String,
    /// The seed of all draws.
    pub seed: u64,
    /// Name of the sampler.
    pub sampler: String,
    /// The reference implementation that it followed.
    pub profile: String,
    /// All its parameters.
    pub parameters: BTreeMap<String, f64>,
    /// Ids that are never drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ban: Vec<u32>,
    /// What was added to the logits of ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bias: Vec<(u32, f64)>,
    /// Whether the previous prediction was fed back.
    pub self_conditioning: bool,
    /// Which keys and values the steps of a block shared, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Tokens of the answer at most.
    pub max_tokens: usize,
    /// Context length in tokens.
    pub context_len: usize,
    /// Ids that end the answer.
    pub end_ids: Vec<u32>,
    /// The prompt.
    pub prompt_ids: Vec<u32>,
    /// What of the answer was given, where gaps in a text were filled.
    #[serde(default, skip_serializing_if = "Given::is_empty")]
    pub given: Given,
    /// The language that the answer was held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Language>,
    /// The answer's ids.
    pub ids: Vec<u32>,
    /// The answer as text, for people: what the model's vocabulary makes of the ids.
    pub text: String,
    /// `stop` or `length`.
    pub finish_reason: String,
    /// Digests of the answer.
    pub digest: Digests,
    /// Every canvas, step by step.
    pub canvases: Vec<CanvasDigests>,
}

/// The answer in the text of receipts.
fn text_of(ids: &[u32], tokenizer: &Tokenizer) -> String {
    tokenizer.decode(ids, false)
}

impl Receipt {
    /// The receipt of an answer.
    pub fn new(
        model: &Model,
        digests: ModelDigests,
        request: &Request,
        seed: u64,
        answer: &Generation,
        steps: StepRecorder,
    ) -> Receipt {
        let c = model.backend().capabilities();
        Receipt {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_string(),
            backend: format!("{} ({})", c.backend, c.level),
            model: digests,
            numerics: model.numerics().name().to_string(),
            kv_type: model.kv_type().name().to_string(),
            seed,
            sampler: request.sampler.name.to_string(),
            profile: request.profile.name.to_string(),
            parameters: request.params.iter().map(|(k, v)| (k.to_string(), v)).collect(),
            ban: request.ban.clone(),
            bias: request.bias.clone(),
            self_conditioning: request.self_conditioning,
            cache: Some(request.cache).filter(|&c| c != BlockCache::None).map(|c| c.name().to_string()),
            max_tokens: request.max_tokens,
            context_len: request.context_len,
            end_ids: request.end_ids.clone(),
            prompt_ids: request.prompt.clone(),
            given: request.given.clone(),
            constraint: request.constraint.as_ref().map(|c| c.language().clone()),
            ids: answer.ids.clone(),
            text: text_of(&answer.ids, model.tokenizer()),
            finish_reason: answer.finish.name().to_string(),
            digest: answer.digests.clone(),
            canvases: steps.finish(),
        }
    }

    /// Reads a receipt.
    ///
    /// # Errors
    /// [`Error::Receipt`] when it is too long, no JSON, of another format, or lacks a field.
    pub fn parse(bytes: &[u8]) -> Result<Receipt, Error> {
        let problem = |problem: String| Error::Receipt { problem };
        if bytes.len() > MAX_BYTES {
            return Err(problem(format!("expected at most {MAX_BYTES} bytes, found more")));
        }
        /// What all versions of the format have.
        #[derive(Deserialize)]
        struct Head {
            redraft_receipt: u32,
        }
        let head: Head = serde_json::from_slice(bytes)
            .map_err(|e| problem(format!("not a receipt, which is JSON from `run --receipt`: {e}")))?;
        if head.redraft_receipt != FORMAT {
            return Err(problem(format!(
                "expected format {FORMAT}, found {}: it was made by another version of this program",
                head.redraft_receipt
            )));
        }
        serde_json::from_slice(bytes).map_err(|e| problem(e.to_string()))
    }

    /// The receipt as indented JSON with a newline at the end; the same receipt gives the same bytes.
    ///
    /// # Errors
    /// [`Error::Receipt`] when it cannot be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        let mut text =
            serde_json::to_string_pretty(self).map_err(|e| Error::Receipt { problem: e.to_string() })?;
        text.push('\n');
        Ok(text)
    }

    /// The mode of computing that the model must be loaded in.
    ///
    /// # Errors
    /// [`Error::Receipt`] for one that this version does not have.
    pub fn numerics(&self) -> Result<Numerics, Error> {
        Numerics::from_name(&self.numerics).ok_or_else(|| Error::Receipt {
            problem: format!("numerics: expected exact or fast, found {}", Shown(&self.numerics)),
        })
    }

    /// The type of the KV cache that the model must be loaded with.
    ///
    /// # Errors
    /// [`Error::Receipt`] for one that this version does not have.
    pub fn kv_type(&self) -> Result<KvType, Error> {
        KvType::from_name(&self.kv_type).ok_or_else(|| Error::Receipt {
            problem: format!("kv_type: expected f32, f16 or i8, found {}", Shown(&self.kv_type)),
        })
    }

    /// The request that makes the same answer again with a model in the same mode of computing.
    ///
    /// # Errors
    /// [`Error::Receipt`] for another mode of computing or type of the KV cache, or a cache of blocks, and [`Error::Request`] for samplers and parameters, that this
    /// version does not have.
    pub fn request(&self, model: &Model) -> Result<Request, Error> {
        let rows = [
            ("numerics", &self.numerics, model.numerics().name()),
            ("kv_type", &self.kv_type, model.kv_type().name()),
        ];
        for (what, found, known) in rows {
            if found != known {
                return Err(Error::Receipt {
                    problem: format!("{what}: expected {known}, found {}", Shown(found)),
                });
            }
        }
        let cache = match &self.cache {
            None => BlockCache::None,
            Some(name) => BlockCache::from_name(name).ok_or_else(|| Error::Receipt {
                problem: format!("cache: expected none, prefix or dual, found {}", Shown(name)),
            })?,
        };
        let sampler = sampler(&self.sampler)?;
        let parameters: Vec<(String, f64)> = self.parameters.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let said = |name: &str| self.parameters.contains_key(name) || unsaid(name).is_some();
        if let Some(missing) = sampler.params.iter().find(|p| !said(p.name)) {
            return Err(Error::Receipt {
                problem: format!("parameters: expected {} of the sampler {}", missing.name, sampler.name),
            });
        }
        let constraint = match &self.constraint {
            Some(language) => {
                let vocabulary = Vocabulary::of(model, &self.end_ids);
                Some(Arc::new(Constraint::new(language.clone(), &vocabulary)?))
            }
            None => None,
        };
        Ok(Request {
            prompt: self.prompt_ids.clone(),
            max_tokens: self.max_tokens,
            context_len: self.context_len,
            sampler,
            profile: profile(&self.profile)?,
            params: sampler.params(model.gguf().metadata(), &parameters)?,
            end_ids: self.end_ids.clone(),
            ban: self.ban.clone(),
            bias: self.bias.clone(),
            logprobs: None,
            self_conditioning: self.self_conditioning,
            cache,
            given: self.given.clone(),
            constraint,
            full_logits: self.digest.full.is_some(),
            interrupt: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Slot;

    fn receipt() -> Receipt {
        Receipt {
            format: FORMAT,
            version: "0.1.0".into(),
            backend: "cpu (scalar)".into(),
            model: ModelDigests {
                name: "m".into(),
                architecture: "a".into(),
                sha256_header: "00".into(),
                sha256_file: "11".into(),
                file_bytes: 12,
            },
            numerics: "exact".into(),
            kv_type: "f32".into(),
            seed: u64::MAX,
            sampler: "entropy-bound".into(),
            profile: "hf".into(),
            parameters: BTreeMap::from([("t_min".into(), 0.1 + 0.2), ("t_max".into(), 5e-324)]),
            ban: vec![3, 5],
            bias: vec![(7, -0.1)],
            self_conditioning: true,
            cache: Some("dual".into()),
            max_tokens: 1,
            context_len: 2,
            end_ids: vec![1],
            prompt_ids: vec![2, u32::MAX],
            given: Given { slots: vec![Slot::Gap, Slot::Fixed(7)], end: Some(1) },
            constraint: Some(Language::JsonSchema(serde_json::json!({"type": ["null"]}))),
            ids: vec![7],
            text: "é\u{1b}".into(),
            finish_reason: "stop".into(),
            digest: Digests { ids: "22".into(), logits: "33".into(), full: None },
            canvases: vec![CanvasDigests { stop: None, steps: Vec::new() }],
        }
    }

    #[test]
    fn a_receipt_survives_its_file_bit_for_bit() {
        let text = receipt().to_json().unwrap();
        assert_eq!(Receipt::parse(text.as_bytes()).unwrap(), receipt());
        assert!(text.ends_with("}\n") && text.contains("18446744073709551615"));
    }

    #[test]
    fn what_is_no_receipt_is_refused() {
        for (bytes, why) in [
            (&b""[..], "not a receipt"),
            (b"\xff\xfe", "not a receipt"),
            (b"[1]", "invalid length"),
            (b"{\"redraft_receipt\":1}", "missing field"),
            (b"{\"redraft_receipt\":0}", "expected format 1, found 0"),
            (b"{\"redraft_receipt\":-1}", "not a receipt"),
        ] {
            let e = Receipt::parse(bytes).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
        let deep = [&b"{\"redraft_receipt\":1,\"model\":"[..], &vec![b'['; 1 << 20]].concat();
        assert!(Receipt::parse(&deep).is_err());
    }
}
