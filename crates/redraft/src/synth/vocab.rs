//! A made-up vocabulary of the kind and size of Gemma's: byte-pair encoding on characters, with bytes for
//! what has no token.
//!
//! Special tokens stand where they stand in the real vocabulary; the words are made by joining earlier
//! tokens, frequent English letters more often than rare ones, so that English text is split into pieces of
//! two or three letters.

use std::collections::HashSet;

use redraft_gguf::{Array, Metadata, StrArray};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// A space as a token has it.
const SPACE: char = '\u{2581}';

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
    (48, "<|tool_call>", USER_DEFINED),
    (49, "<tool_call|>", USER_DEFINED),
    (50, "<|tool_response>", USER_DEFINED),
    (51, "<tool_response|>", USER_DEFINED),
    (52, "<|\"|>", USER_DEFINED),
    (98, "<|think|>", CONTROL),
    (100, "<|channel>", USER_DEFINED),
    (101, "<channel|>", USER_DEFINED),
    (105, "<|turn>", CONTROL),
    (106, "<turn|>", CONTROL),
];

/// Ids below this are special or unused.
const N_SPECIAL: usize = 107;

/// The longest run of line breaks or spaces that is a token.
const LONGEST_RUN: usize = 31;

/// The longest word, in characters.
const LONGEST_WORD: usize = 12;

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

#[derive(Default)]
struct Vocab {
    tokens: StrArray,
    types: Vec<i32>,
    merges: StrArray,
    /// The tokens that merges can make or use.
    known: HashSet<String>,
}

impl Vocab {
    fn new(n: usize) -> Vocab {
        let mut v = Vocab::default();
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
        for c in ["\n".to_owned(), SPACE.to_string()] {
            v.known.insert(c.clone());
            v.push(&c, NORMAL);
            (2..=LONGEST_RUN).for_each(|len| v.word(c.repeat(len)));
        }
        for c in CHARS.iter().flat_map(|&(first, last)| first..=last).take(n / 8) {
            v.known.insert(c.to_string());
            v.push(&c.to_string(), NORMAL);
        }
        v.words(n);
        v
    }

    fn push(&mut self, text: &str, kind: i32) {
        self.tokens.push(text);
        self.types.push(kind);
    }

    /// Adds a token that consists of two known ones, with every merge that makes it.
    fn word(&mut self, text: String) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if self.known.contains(left) && self.known.contains(right) {
                self.merges.push(&format!("{left} {right}"));
            }
        }
        self.push(&text, NORMAL);
        self.known.insert(text);
    }

    /// Fills the vocabulary up to `n` tokens with words.
    fn words(&mut self, n: usize) {
        let letters = LETTERS.chars().map(String::from).collect::<Vec<_>>();
        // Pairs of letters, then the same at the start of a word.
        let pairs = letters.iter().flat_map(|a| letters.iter().map(move |b| format!("{a}{b}")));
        let inner = letters.iter().cloned().chain(pairs).collect::<Vec<_>>();
        let starts = inner.iter().map(|w| format!("{SPACE}{w}"));
        let mut all = inner.iter().cloned().chain(starts).collect::<Vec<_>>();
        let made = |w: &&String| w.chars().nth(1).is_some();
        for w in all.iter().filter(made) {
            if self.types.len() < n {
                self.word(w.clone());
            }
        }
        // Then whatever two earlier ones give; early ones are short and frequent, and chosen more often.
        let mut state = 1u64;
        let mut pick = |len: usize| {
            // Knuth's MMIX generator; its high bits are good enough to choose words.
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % len
            };
            draw().min(draw()).min(draw())
        };
        while self.types.len() < n {
            let text = format!("{}{}", all[pick(all.len())], inner[pick(inner.len())]);
            if text.chars().count() <= LONGEST_WORD && !self.known.contains(&text) {
                self.word(text.clone());
                all.push(text);
            }
        }
    }
}
