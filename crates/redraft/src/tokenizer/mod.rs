//! Text to token ids and back, built from the vocabulary that a model file carries.
//!
//! ```
//! use redraft::tokenizer::{Specials, Tokenizer, TokenizerParts};
//!
//! # let mut tokens = vec!["<eos>", "<bos>", "h", "i", "hi", "▁", "\n"];
//! let tokenizer = Tokenizer::from_parts(TokenizerParts {
//!     model: "gemma4".into(),
//!     tokens: tokens.iter().collect(),
//!     types: Some(vec![3, 3, 1, 1, 1, 1, 1]),
//!     merges: Some(["h i"].into_iter().collect()),
//!     bos: Some(1),
//!     eos: Some(0),
//!     ..TokenizerParts::default()
//! })?;
//! let ids = tokenizer.encode("hi hi<eos>", Specials::Parse)?;
//! assert_eq!(ids, [4, 5, 4, 0]);
//! assert_eq!(tokenizer.decode(&ids, false), "hi hi");
//! # Ok::<(), redraft::tokenizer::TokenizerError>(())
//! ```
//!
//! Three kinds of text meet here. The *template's* own markers (`<|turn>`) are control tokens. Text *inside a
//! message* that looks like one is text. A *user-defined* token is recognised in both: the file declares it to
//! be part of the language of messages. Known markers of chats (`<|channel>`) that a file types as user-defined
//! are the exception: messages cannot contain them.

mod bpe;
mod decode;
mod error;
mod kinds;
mod markers;
mod named;
mod normalize;
mod parts;
pub(crate) mod pre;
mod special;
mod split;
mod vocab;

use std::sync::{Arc, OnceLock};

use redraft_gguf::Metadata;

pub(crate) use self::parts::key;

pub use self::decode::{CanvasPiece, StreamDecoder};
pub use self::error::{MergeProblem, TokenizerError};
pub use self::normalize::Normalizer;
pub use self::parts::TokenizerParts;
pub use self::vocab::{Piece, TokenKind};

use self::kinds::TextModel;
use self::named::{Named, drop_ids_outside};
use self::special::{Found, SpecialMatcher};
use self::vocab::Vocab;
use crate::chat::{ControlTokens, RenderedPrompt};

pub(crate) use self::markers::spoken as markers_in;
pub(crate) use self::normalize::pre_of_vocabulary;
pub(crate) use self::pre::{find as find_pre, same as same_pre};

/// Whether control tokens that are spelled out in a text are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Specials {
    /// `<eos>` in the text is the control token.
    Parse,
    /// `<eos>` in the text is five characters. User-defined tokens are recognised all the same.
    #[default]
    Text,
}

/// A tokenizer. Cloning is cheap, and one can be used by many threads.
///
/// Building one for 262,144 tokens and 514,906 merges took 0.4 to 0.6 seconds of processor time on a busy
/// machine with two cores (`load_time_of_a_large_vocabulary` in the tests measures it).
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    /// Found when somebody asks.
    spaceless: OnceLock<Vec<u32>>,
    kind: &'static str,
    vocab: Vocab,
    model: Box<dyn TextModel>,
    specials: SpecialMatcher,
    control_tokens: ControlTokens,
    add_bos: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    pad: Option<u32>,
    mask: Option<u32>,
    end_ids: Vec<u32>,
    chat_template: Option<String>,
    notes: Vec<String>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("kind", &self.kind()).field("vocab_len", &self.vocab_len()).finish()
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a model file.
    ///
    /// # Errors
    ///
    /// Any variant of [`TokenizerError`] that speaks of the vocabulary; each names the metadata key.
    pub fn from_gguf(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_parts(TokenizerParts::from_gguf(meta)?)
    }

    /// Builds a tokenizer from its parts.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::from_gguf`].
    pub fn from_parts(mut parts: TokenizerParts) -> Result<Tokenizer, TokenizerError> {
        let kind = kinds::find(&parts.model)?;
        let mut notes = Vec::new();
        drop_ids_outside(&mut parts, &mut notes);
        let vocab = Vocab::new(&parts, kind, &mut notes)?;
        let model = (kind.build)(&vocab, &parts, &mut notes)?;
        let named = Named::new(&parts, &vocab, kind, model.add_bos(), &mut notes);
        let control = |&(id, p): &(u32, Piece<'_>)| p.kind.is_control() || vocab.is_guarded(id);
        Ok(Tokenizer(Arc::new(Inner {
            spaceless: OnceLock::new(),
            kind: kind.name,
            model,
            specials: SpecialMatcher::new(&vocab)?,
            control_tokens: ControlTokens::new(vocab.iter().filter(control).map(|(_, p)| p.text)),
            vocab,
            add_bos: named.add_bos,
            bos: named.bos,
            eos: named.eos,
            unknown: parts.unknown,
            pad: parts.pad,
            mask: parts.mask,
            end_ids: named.end_ids,
            chat_template: parts.chat_template,
            notes,
        })))
    }

    /// What had to be assumed about the vocabulary, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// The tokens of `text`. BOS is not added.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::Unencodable`] when the vocabulary has neither the bytes of a character nor an unknown
    /// token, [`TokenizerError::TextTooLong`].
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        match specials {
            Specials::Parse => self.encode_around(text, false, |at| self.0.specials.next(text, at)),
            Specials::Text => self.encode_around(text, false, |at| self.0.specials.next_user(text, at)),
        }
    }

    /// The tokens of `text` where it goes on with another text: no space is put in front of it.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode`].
    pub fn encode_inside(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        match specials {
            Specials::Parse => self.encode_around(text, true, |at| self.0.specials.next(text, at)),
            Specials::Text => self.encode_around(text, true, |at| self.0.specials.next_user(text, at)),
        }
    }

    /// The tokens of a rendered chat, with exactly one BOS in front: the template's, or one added here when the
    /// file asks for it. Control tokens are recognised where the template put them, not inside messages.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode`], and [`TokenizerError::UnguardedPrompt`] when the prompt was rendered for
    /// another vocabulary.
    pub fn encode_prompt(&self, prompt: &RenderedPrompt) -> Result<Vec<u32>, TokenizerError> {
        if let Some(token) = prompt.first_unguarded(&self.0.control_tokens) {
            return Err(TokenizerError::UnguardedPrompt { token: token.to_owned() });
        }
        let text = prompt.text();
        let may_start = |start| prompt.may_be_control(start);
        let ids = self.encode_around(text, false, |at| self.0.specials.next_guarded(text, at, may_start))?;
        Ok(self.with_one_bos(ids))
    }

    /// The tokens of a prompt that no template made, with exactly one BOS in front when the text starts with it
    /// or the file asks for it.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode`].
    pub fn encode_raw_prompt(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.with_one_bos(self.encode(text, specials)?))
    }

    /// Encodes a text around the special tokens that `next` finds at or after a place. `inside`: it goes on with another.
    fn encode_around(
        &self,
        text: &str,
        inside: bool,
        next: impl Fn(usize) -> Option<Found>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let Inner { vocab, model, .. } = &*self.0;
        let mut ids = Vec::new();
        let mut at = 0;
        while let Some(found) = next(at) {
            model.encode(vocab, &text[at..found.start], inside && at == 0, &mut ids)?;
            ids.push(found.id);
            at = found.end;
        }
        model.encode(vocab, &text[at..], inside && at == 0, &mut ids)?;
        Ok(ids)
    }

    /// Makes several BOS in front one, and adds one where there is none but should be.
    fn with_one_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        let Some(bos) = self.0.bos else { return ids };
        let printed = ids.iter().take_while(|&&id| id == bos).count();
        if printed == 0 && self.0.add_bos {
            ids.insert(0, bos);
        } else if printed > 1 {
            ids.drain(1..printed);
        }
        ids
    }

    /// The token `id`, or `None` when the vocabulary is smaller.
    pub fn piece(&self, id: u32) -> Option<Piece<'_>> {
        self.0.vocab.piece(id)
    }

    /// The token whose text is exactly `text` (spaces are `▁` there).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.0.vocab.id(text)
    }

    /// Kind of tokenizer, as `tokenizer.ggml.model` names it.
    pub fn kind(&self) -> &'static str {
        self.0.kind
    }

    /// Number of tokens.
    pub fn vocab_len(&self) -> usize {
        self.0.vocab.len()
    }

    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.0.bos
    }

    /// End of sequence, as the file names it. An answer can end in other ways: see [`Tokenizer::end_ids`].
    pub fn eos(&self) -> Option<u32> {
        self.0.eos
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.0.pad
    }

    /// Stands for text that cannot be encoded.
    pub fn unknown(&self) -> Option<u32> {
        self.0.unknown
    }

    /// Mask of a masked-diffusion model.
    pub fn mask(&self) -> Option<u32> {
        self.0.mask
    }

    /// Whether a prompt starts with BOS even if its text does not.
    pub fn add_bos(&self) -> bool {
        self.0.add_bos
    }

    /// The chat template of the file.
    pub fn chat_template(&self) -> Option<&str> {
        self.0.chat_template.as_deref()
    }

    /// The tokens that end an answer, in ascending order: the end of sequence, turn and message of the
    /// metadata, and where the vocabulary has them the ends of known chats (`<turn|>`, `<|tool_response>`,
    /// `<end_of_turn>`, `<|im_end|>`, `<|eot_id|>`, `<|eom_id|>`, `<|role_end|>`). An id that cannot be meant,
    /// such as that of `<pad>`, is not one, nor is `</s>` in a `gemma4` vocabulary.
    pub fn end_ids(&self) -> Vec<u32> {
        self.0.end_ids.clone()
    }

    /// The tokens that are not plain text: control, unknown and user-defined.
    pub fn specials(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        self.0
            .vocab
            .iter()
            .filter(|(_, p)| p.kind.is_control() || p.kind == TokenKind::UserDefined)
            .map(|(id, p)| (id, p.text, p.kind))
    }

    /// Whether a token is structure and no text: a control token, or a chat marker that the file types as text.
    pub fn is_marker(&self, id: u32) -> bool {
        self.piece(id).is_some_and(|p| p.kind.is_control()) || self.0.vocab.is_guarded(id)
    }

    /// The control tokens, and chat markers that the file types as text, for rendering a chat in which messages cannot contain one.
    pub fn control_tokens(&self) -> &ControlTokens {
        &self.0.control_tokens
    }

    /// The tokens that are [markers](Self::is_marker), ascending.
    pub fn markers(&self) -> Vec<u32> {
        self.0.vocab.iter().map(|(id, _)| id).filter(|&id| self.is_marker(id)).collect()
    }

    /// `tokenizer.ggml.token_type` as it should be: what each token is taken for, markers as control tokens.
    pub(crate) fn types(&self) -> Vec<i32> {
        let number = |(id, p): (u32, Piece<'_>)| {
            if self.0.vocab.is_guarded(id) { TokenKind::Control } else { p.kind }.to_gguf()
        };
        self.0.vocab.iter().map(number).collect()
    }

    /// The tokens whose text does not begin with a space, ascending.
    pub fn without_space(&self) -> &[u32] {
        self.0.spaceless.get_or_init(|| self.find_spaceless())
    }

    fn find_spaceless(&self) -> Vec<u32> {
        let begins = |id: u32| {
            let mut bytes = Vec::new();
            self.token_bytes(id, &mut bytes);
            bytes.first() == Some(&b' ')
        };
        self.0.vocab.iter().map(|(id, _)| id).filter(|&id| self.is_marker(id) || !begins(id)).collect()
    }

    /// The tokens that are text, with their bytes.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        let text = |&(id, p): &(u32, Piece<'_>)| p.kind != TokenKind::Unused && !self.is_marker(id);
        self.0.vocab.iter().filter(text).map(|(id, _)| {
            let mut bytes = Vec::new();
            self.token_bytes(id, &mut bytes);
            (id, bytes)
        })
    }

    /// Appends the bytes that a token stands for.
    fn token_bytes(&self, id: u32, out: &mut Vec<u8>) {
        self.0.model.token_bytes(&self.0.vocab, id, out);
    }

    /// Whether encoding puts a space in front of a text.
    pub(crate) fn adds_space(&self) -> bool {
        self.0.model.adds_space()
    }
}
