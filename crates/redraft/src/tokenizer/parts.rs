//! What a tokenizer is made of, as plain data, and how it is read from GGUF metadata.

use redraft_gguf::{Metadata, StrArray};

use super::TokenizerError;
use super::normalize::Normalizer;

/// Names of the metadata keys, spelled once.
pub(crate) mod key {
    pub(crate) const MODEL: &str = "tokenizer.ggml.model";
    pub(crate) const PRE: &str = "tokenizer.ggml.pre";
    pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
    pub(crate) const TYPES: &str = "tokenizer.ggml.token_type";
    pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
    pub(crate) const SCORES: &str = "tokenizer.ggml.scores";
    pub(crate) const BOS: &str = "tokenizer.ggml.bos_token_id";
    pub(crate) const EOS: &str = "tokenizer.ggml.eos_token_id";
    pub(crate) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    pub(crate) const PAD: &str = "tokenizer.ggml.padding_token_id";
    pub(crate) const MASK: &str = "tokenizer.ggml.mask_token_id";
    pub(crate) const EOT: &str = "tokenizer.ggml.eot_token_id";
    pub(crate) const EOM: &str = "tokenizer.ggml.eom_token_id";
    pub(crate) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
    pub(crate) const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
    pub(crate) const TOKENIZER_JSON: &str = "tokenizer.huggingface.json";
    pub(crate) const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
}

/// The parts of a tokenizer as a file states them, before anything is checked.
///
/// [`Tokenizer::from_gguf`](super::Tokenizer::from_gguf) fills this from metadata; other sources can fill it
/// themselves. `None` means that the file is silent.
#[derive(Debug, Clone, Default)]
pub struct TokenizerParts {
    /// Kind of tokenizer (`tokenizer.ggml.model`), for example `gemma4`.
    pub model: String,
    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`), for the kinds that have one.
    pub pre: Option<String>,
    /// Text of each token.
    pub tokens: StrArray,
    /// Type of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Option<Vec<i32>>,
    /// Merges as `left right`, best first.
    pub merges: Option<StrArray>,
    /// Score of each token, for the kinds that use scores.
    pub scores: Option<Vec<f32>>,
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// Stands for text that cannot be encoded.
    pub unknown: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Mask of a masked-diffusion model.
    pub mask: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// Whether a prompt starts with the begin-of-sequence token.
    pub add_bos: Option<bool>,
    /// Whether a space is put before the text.
    pub add_space_prefix: Option<bool>,
    /// How text is normalised before it is split, for the kind `gpt2`. When it is `None`, `tokenizer_json` says
    /// it, and without that known vocabularies get what they were trained with.
    pub normalizer: Option<Normalizer>,
    /// The whole `tokenizer.json` of the model. Only its normaliser is read.
    pub tokenizer_json: Option<String>,
    /// Chat template, in Jinja.
    pub chat_template: Option<String>,
}

impl TokenizerParts {
    /// Reads the parts from metadata.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::Metadata`] when the kind or the tokens are missing or any key has the wrong type.
    pub fn from_gguf(meta: &Metadata) -> Result<TokenizerParts, TokenizerError> {
        Ok(TokenizerParts {
            model: meta.str(key::MODEL)?.to_owned(),
            pre: meta.opt_str(key::PRE)?.map(str::to_owned),
            tokens: meta.str_array(key::TOKENS)?.clone(),
            types: meta.opt_i32_array(key::TYPES)?,
            merges: meta.opt_str_array(key::MERGES)?.cloned(),
            scores: meta.opt_f32_array(key::SCORES)?,
            bos: meta.opt_u32(key::BOS)?,
            eos: meta.opt_u32(key::EOS)?,
            unknown: meta.opt_u32(key::UNKNOWN)?,
            pad: meta.opt_u32(key::PAD)?,
            mask: meta.opt_u32(key::MASK)?,
            eot: meta.opt_u32(key::EOT)?,
            eom: meta.opt_u32(key::EOM)?,
            add_bos: meta.opt_bool(key::ADD_BOS)?,
            add_space_prefix: meta.opt_bool(key::ADD_SPACE_PREFIX)?,
            normalizer: None,
            tokenizer_json: meta.opt_str(key::TOKENIZER_JSON)?.map(str::to_owned),
            chat_template: meta.opt_str(key::CHAT_TEMPLATE)?.map(str::to_owned),
        })
    }

    /// The ids that the file names, with the key of each.
    pub(crate) fn named_ids_mut(&mut self) -> [(&'static str, &mut Option<u32>); 7] {
        [
            (key::BOS, &mut self.bos),
            (key::EOS, &mut self.eos),
            (key::UNKNOWN, &mut self.unknown),
            (key::PAD, &mut self.pad),
            (key::MASK, &mut self.mask),
            (key::EOT, &mut self.eot),
            (key::EOM, &mut self.eom),
        ]
    }

    /// True for a token that is named for something that is not text.
    pub(crate) fn names(&self, id: u32) -> bool {
        [self.bos, self.eos, self.pad, self.mask, self.eot, self.eom].contains(&Some(id))
    }
}
