//! A made-up vocabulary of the kind and size of Gemma's: byte-pair encoding on characters, with bytes for
//! what has no token.
//!
//! Special tokens stand where they stand in the real vocabulary. The words are strings of letters, those of
//! frequent English letters first, so that English text is split into pieces of a few letters.

use redraft_gguf::{Array, Metadata, StrArray};

use crate::tokenizer::TokenKind;

const NORMAL: i32 = TokenKind::Normal.to_gguf();
const CONTROL: i32 = TokenKind::Control.to_gguf();
const BYTE: i32 = TokenKind::Byte.to_gguf();

/// A space as a token has it.
const SPACE: &str = "\u{2581}";

/// Tokens with a meaning, in front of everything else; the ids between them are unused tokens.
const SPECIAL: &[(usize, &str, i32)] = &[
    (0, "<pad>", CONTROL),
    (1, "<eos>", CONTROL),
    (2, "<bos>", CONTROL),
    (3, "<unk>", CONTROL),
    (4, "<mask>", CONTROL),
    (5, "[multimodal]", NORMAL),
    (46, "<|tool>", CONTROL),
    (47, "<tool|>", CONTROL),
    (48, "<|tool_call>", CONTROL),
    (49, "<tool_call|>", CONTROL),
    (50, "<|tool_response>", CONTROL),
    (51, "<tool_response|>", CONTROL),
    (52, "<|\"|>", CONTROL),
    (98, "<|think|>", CONTROL),
    (100, "<|channel>", CONTROL),
    (101, "<channel|>", CONTROL),
    (105, "<|turn>", CONTROL),
    (106, "<turn|>", CONTROL),
];

/// Ids below this are special or unused.
const N_SPECIAL: usize = 107;

/// The longest run of line breaks or spaces that is a token.
const LONGEST_RUN: usize = 31;

/// Characters with a token of their own, most useful first; at most an eighth of the vocabulary.
const CHARS: &[(char, char)] = &[
    ('!', '~'),
    ('\t', '\t'),
    ('\u{a1}', '\u{24f}'),    // Latin
    ('\u{2010}', '\u{2027}'), // punctuation
    ('\u{400}', '\u{4ff}'),   // Cyrillic
    ('\u{3b1}', '\u{3c9}'),   // Greek
    ('\u{5d0}', '\u{5ea}'),   // Hebrew
    ('\u{621}', '\u{63a}'),   // Arabic
    ('\u{641}', '\u{64a}'),
    ('\u{904}', '\u{939}'),     // Devanagari
    ('\u{3001}', '\u{3002}'),   // CJK punctuation
    ('\u{3041}', '\u{3096}'),   // Hiragana
    ('\u{30a1}', '\u{30fa}'),   // Katakana
    ('\u{1f600}', '\u{1f64f}'), // emoji
    ('\u{4e00}', '\u{9fff}'),   // CJK
    ('\u{ac00}', '\u{d7a3}'),   // Hangul
];

/// Letters of English text, the most frequent first.
const LETTERS: &str = "etaoinshrdlcumwfgypbvkjxqz";

/// The weight of the first of [`LETTERS`]; each next one weighs one more. Words are made in the order of their
/// weights, so this balances short words of rare letters against long words of frequent ones.
const LETTER_WEIGHT: usize = 10;

/// A space as a token of bytes has it.
const BYTE_SPACE: &str = "\u{120}";

/// A template that puts nothing between messages but line breaks.
const PLAIN_TEMPLATE: &str = "{% for m in messages %}{{ m['content'] | trim + '\n' }}{% endfor %}";

/// A short template with the turns of the real one.
const CHAT_TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ '<|turn>' + \
    ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + (m['content'] | trim) + '<turn|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}";

/// Adds the tokenizer's metadata for a vocabulary of `n` tokens.
pub(super) fn set(m: &mut Metadata, n: usize) {
    let v = Vocab::new(n);
    m.set("tokenizer.ggml.model", "gemma4");
    m.set("tokenizer.ggml.tokens", Array::Str(v.tokens));
    // Merges are applied by rank; the scores say nothing.
    m.set("tokenizer.ggml.scores", Array::F32(vec![-1000.0; n]));
    m.set("tokenizer.ggml.token_type", Array::I32(v.types));
    m.set("tokenizer.ggml.merges", Array::Str(v.merges));
    m.set("tokenizer.ggml.bos_token_id", 2u32);
    m.set("tokenizer.ggml.eos_token_id", 1u32);
    m.set("tokenizer.ggml.unknown_token_id", 3u32);
    m.set("tokenizer.ggml.padding_token_id", 0u32);
    m.set("tokenizer.ggml.mask_token_id", 4u32);
    m.set("tokenizer.chat_template", CHAT_TEMPLATE);
    m.set("tokenizer.ggml.add_space_prefix", false);
    m.set("tokenizer.ggml.add_bos_token", true);
}

/// A byte-level vocabulary.
pub(super) struct ByteLevel {
    /// `tokenizer.ggml.pre`.
    pub pre: &'static str,
    /// Tokens in all.
    pub n: usize,
    /// The end of a text, the first token that is no text; it pads, too.
    pub end: usize,
    /// The mask, after that.
    pub mask: usize,
    /// Its text.
    pub mask_text: &'static str,
}

/// Adds the tokenizer's metadata for a byte-level vocabulary.
pub(super) fn set_byte_level(m: &mut Metadata, b: &ByteLevel) {
    let v = Vocab::byte_level(b);
    m.set("tokenizer.ggml.model", "gpt2");
    m.set("tokenizer.ggml.pre", b.pre);
    m.set("tokenizer.ggml.tokens", Array::Str(v.tokens));
    m.set("tokenizer.ggml.token_type", Array::I32(v.types));
    m.set("tokenizer.ggml.merges", Array::Str(v.merges));
    m.set("tokenizer.ggml.eos_token_id", b.end as u32);
    m.set("tokenizer.ggml.padding_token_id", b.end as u32);
    m.set("tokenizer.ggml.mask_token_id", b.mask as u32);
    m.set("tokenizer.chat_template", PLAIN_TEMPLATE);
    m.set("tokenizer.ggml.add_bos_token", false);
}

/// The character that stands for a byte: itself where it is printable, else one from U+0100 on in order.
fn byte_chars() -> impl Iterator<Item = char> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100u32;
    (0..=255u8).map(move |b| {
        if printable(b) {
            return char::from(b);
        }
        others += 1;
        char::from_u32(others - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}

struct Vocab {
    tokens: StrArray,
    types: Vec<i32>,
    merges: StrArray,
    /// A space as its tokens have it.
    space: &'static str,
}

impl Vocab {
    fn empty(space: &'static str) -> Vocab {
        Vocab { tokens: StrArray::default(), types: Vec::new(), merges: StrArray::default(), space }
    }

    fn byte_level(b: &ByteLevel) -> Vocab {
        let mut v = Vocab::empty(BYTE_SPACE);
        byte_chars().for_each(|c| v.push(c.encode_utf8(&mut [0; 4]), NORMAL));
        let mut weight = LETTER_WEIGHT;
        while v.types.len() < b.end {
            v.words(weight, &mut BYTE_SPACE.to_owned(), b.end);
            weight += 1;
        }
        for id in b.end..b.n {
            match id {
                _ if id == b.end => v.push("<|endoftext|>", CONTROL),
                _ if id == b.mask => v.push(b.mask_text, CONTROL),
                _ => v.push(&format!("<unused{id}>"), NORMAL),
            }
        }
        v
    }

    fn new(n: usize) -> Vocab {
        let mut v = Vocab::empty(SPACE);
        let mut special = SPECIAL.iter().peekable();
        for id in 0..N_SPECIAL {
            match special.next_if(|s| s.0 == id) {
                Some(&(_, text, kind)) => v.push(text, kind),
                None => v.push(&format!("<unused{id}>"), NORMAL),
            }
        }
        for b in 0..=255u8 {
            v.push(&format!("<0x{b:02X}>"), BYTE);
        }
        for c in ["\n", SPACE] {
            v.push(c, NORMAL);
            (2..=LONGEST_RUN).for_each(|len| v.word(&c.repeat(len)));
        }
        for c in CHARS.iter().flat_map(|&(first, last)| first..=last).take(n / 8) {
            v.push(c.encode_utf8(&mut [0; 4]), NORMAL);
        }
        let mut weight = LETTER_WEIGHT;
        while v.types.len() < n {
            v.words(weight, &mut SPACE.to_owned(), n);
            weight += 1;
        }
        v
    }

    fn push(&mut self, text: &str, kind: i32) {
        self.tokens.push(text);
        self.types.push(kind);
    }

    /// Adds a token with the merges that take its first or its last character off; twice as many merges as
    /// words is what real vocabularies have. All parts of the word are tokens already.
    fn word(&mut self, text: &str) {
        let first = text.chars().next().map_or(0, char::len_utf8);
        let last = text.char_indices().next_back().map_or(0, |(at, _)| at);
        for at in [last, first] {
            let (left, right) = text.split_at(at);
            self.merges.push(&format!("{left} {right}"));
            if first == last {
                break;
            }
        }
        self.push(text, NORMAL);
    }

    /// Adds all words that continue `start`, a space and letters, with letters of that weight together: as they
    /// are inside a text word, then as they begin one.
    fn words(&mut self, weight: usize, start: &mut String, n: usize) {
        for (letter, w) in LETTERS.chars().zip(LETTER_WEIGHT..=weight) {
            start.push(letter);
            if w < weight {
                self.words(weight - w, start, n);
            } else {
                let inner = &start[self.space.len()..];
                // Single letters are characters.
                if inner.len() > 1 && self.types.len() < n {
                    self.word(inner);
                }
                if self.types.len() < n {
                    self.word(start);
                }
            }
            start.pop();
        }
    }
}
