//! Templates for files that carry none, in the forms that the models were trained with.
//!
//! They are written anew from the formats of the published templates, for text alone: no tools, and of earlier answers what
//! was said. `docs/chat.md` names the sources.

use crate::tokenizer::Tokenizer;

/// A chat template of the program.
#[derive(Debug)]
pub struct BuiltinTemplate {
    /// Its name for `--chat-template`.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// The Jinja source.
    pub source: &'static str,
    /// Tokens that a vocabulary must have.
    pub markers: &'static [&'static str],
}

/// All of them. A vocabulary takes the first whose markers it has; those that have more than others stand before them.
pub static BUILTIN_TEMPLATES: &[BuiltinTemplate] = &[
    BuiltinTemplate {
        name: "gemma4",
        about: "Gemma 4, DiffusionGemma: <|turn>user … <turn|>",
        source: include_str!("builtin/gemma4.jinja"),
        markers: &["<|turn>", "<turn|>"],
    },
    BuiltinTemplate {
        name: "llama3",
        about: "Llama 3, LLaDA: <|start_header_id|>user<|end_header_id|> … <|eot_id|>",
        source: include_str!("builtin/llama3.jinja"),
        markers: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    },
    BuiltinTemplate {
        name: "ling",
        about: "Ling 2, LLaDA-MoE, LLaDA2: <role>HUMAN</role> … <|role_end|>",
        source: include_str!("builtin/ling.jinja"),
        markers: &["<role>", "</role>", "<|role_end|>"],
    },
    BuiltinTemplate {
        name: "dream",
        about: "ChatML as Dream and DiffuCoder have it, with a system message of its own",
        source: include_str!("builtin/dream.jinja"),
        markers: &["<|im_start|>", "<|im_end|>", "<|beginoftext|>"],
    },
    BuiltinTemplate {
        name: "chatml",
        about: "ChatML, Qwen 3, SDAR: <|im_start|>user … <|im_end|>",
        source: include_str!("builtin/chatml.jinja"),
        markers: &["<|im_start|>", "<|im_end|>"],
    },
    BuiltinTemplate {
        name: "qa",
        about: "base models, RND1: Question: … Answer:",
        source: include_str!("builtin/qa.jinja"),
        markers: &[],
    },
];

/// The built-in template of that name.
pub fn builtin_template(name: &str) -> Option<&'static BuiltinTemplate> {
    BUILTIN_TEMPLATES.iter().find(|t| t.name == name)
}

impl BuiltinTemplate {
    /// Markers that a vocabulary lacks: what it stands for is not what the model was trained with.
    pub fn missing(&self, tokenizer: &Tokenizer) -> Vec<&'static str> {
        self.markers.iter().filter(|m| tokenizer.token_id(m).is_none()).copied().collect()
    }

    /// The first template whose markers are in the vocabulary; the last one has none and fits all.
    pub fn fitting(tokenizer: &Tokenizer) -> &'static BuiltinTemplate {
        let fits = |t: &&BuiltinTemplate| t.missing(tokenizer).is_empty();
        BUILTIN_TEMPLATES.iter().find(fits).expect("the last template needs no marker")
    }
}
