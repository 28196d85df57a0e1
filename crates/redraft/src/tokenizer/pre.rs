//! The kinds of `tokenizer.ggml.pre`: how a byte-level tokenizer splits text before it merges.
//!
//! One row each. The patterns are those of the models' own `tokenizer.json` files; the names are those that
//! converters write. Where llama.cpp approximates a pattern (its engine has no `\p{Lu}`), the model's own
//! pattern counts. The rule for white space at the end of the patterns is [`Step::Words`].

use super::split::Step::{self, Each, Triples, Words};

/// A row of the table.
pub(crate) struct Pre {
    /// Its names in files.
    pub(crate) names: &'static [&'static str],
    /// How text is split.
    pub(crate) steps: &'static [Step],
    /// A piece that is a token is taken whole, without merging.
    pub(crate) ignore_merges: bool,
    /// Whether a prompt starts with BOS when the file does not say.
    pub(crate) add_bos: bool,
}

/// What a file without the key gets.
pub(crate) const DEFAULT: &str = "default";

/// GPT-2: contractions, words and numbers with a space in front, the rest.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";

/// Llama 3: one other character may precede a word; numbers of up to three digits.
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Qwen 2: as Llama 3 with single digits.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Qwen 3.5: as Qwen 2 with marks in words.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Ling (Bailing) and LLaDA: as Qwen 2 with line breaks one by one at the end of white space.
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]";

/// GPT-4o: words change at capital letters; contractions belong to the word.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";

/// Tekken: as GPT-4o without contractions and with single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";

/// Kimi K2: as GPT-4o with Chinese apart.
const KIMI_K2: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Seed-Coder: as Qwen 2, but punctuation does not take line breaks along.
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+";

/// EXAONE MoE: words may be joined by single spaces.
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]";

/// MiniCPM 5, behind a split into numbers of up to three digits.
const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Qwen 2 without English contractions.
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Poro and BLOOM: everything between white space and a few marks.
const BLOOM: &str = r" ?[^(\s|.,!?\u{2026}\u{3002}\u{FF0C}\u{3001}\u{964}\u{6D4}\u{60C})]+";

/// DeepSeek-V3, behind numbers and East Asian letters.
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"##;

/// Chinese and Japanese letters, as DeepSeek-V3 has them.
const DEEPSEEK_V3_CJK: &str = r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";

/// East Asian letters, as DeepSeek LLM and Coder have them.
const DEEPSEEK_CJK: &str = r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+";

/// The letters of alphabets with two cases, as DeepSeek LLM lists them.
const DEEPSEEK_LLM_LETTERS: &str = concat!(
    r"\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}",
    r"\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}",
    r"\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}",
    r"\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}",
    r"\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}",
    r"\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}",
    r"\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}",
    r"\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
    r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}",
    r"\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}",
    r"\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}",
    r"\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+"
);

/// Punctuation, as DeepSeek LLM lists it.
const DEEPSEEK_LLM_MARKS: &str =
    r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+";

/// A row with neither of the two flags.
const fn row(names: &'static [&'static str], steps: &'static [Step]) -> Pre {
    Pre { names, steps, ignore_merges: false, add_bos: false }
}

/// All rows.
const TABLE: &[Pre] = &[
    row(&[DEFAULT], &[Each(r"[\p{P}\$\+<=>\^~\|]+"), Words(GPT2), Each(r"\p{N}+"), Each("[0-9][0-9][0-9]")]),
    row(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "modern-bert",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
        ],
        &[Words(GPT2)],
    ),
    Pre {
        names: &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[Words(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
    },
    row(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[Words(LLAMA3)]),
    row(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[Words(QWEN2)],
    ),
    row(&["qwen35"], &[Words(QWEN35)]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Words(BAILING)]),
    row(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Each(r"\p{N}"), Words(GPT2)],
    ),
    row(&["falcon"], &[Each(r"[\p{P}\$\+<=>\^~\|`]+"), Words(GPT2), Each("[0-9][0-9][0-9]")]),
    row(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[Words(GPT4O)]),
    Pre { names: &["tekken"], steps: &[Words(TEKKEN)], ignore_merges: true, add_bos: true },
    row(&["kimi-k2"], &[Words(KIMI_K2)]),
    row(
        &["deepseek-llm"],
        &[
            Each(r"[\r\n]"),
            Each(DEEPSEEK_LLM_LETTERS),
            Each(DEEPSEEK_LLM_MARKS),
            Each(r"\s+$"),
            Each(DEEPSEEK_CJK),
            Each(r"\p{N}+"),
        ],
    ),
    row(
        &["deepseek-coder"],
        &[Each(r"[\r\n]"), Each(r"\s?\p{L}+"), Each(r"\s?\p{P}+"), Each(DEEPSEEK_CJK), Each(r"\p{N}")],
    ),
    row(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Each(r"\p{N}{1,3}"), Each(DEEPSEEK_V3_CJK), Words(DEEPSEEK_V3)],
    ),
    row(&["poro-chat", "bloom", "gpt3-finnish"], &[Each(BLOOM)]),
    row(&["viking"], &[Each(BLOOM), Each(r"\p{N}")]),
    row(&["superbpe"], &[Each(r"\p{N}+"), Triples]),
    row(&["seed-coder"], &[Words(SEED_CODER)]),
    row(&["exaone-moe"], &[Words(EXAONE_MOE)]),
    Pre {
        names: &["minicpm5"],
        steps: &[Each(r"\p{N}{1,3}"), Words(MINICPM5)],
        ignore_merges: true,
        add_bos: false,
    },
    row(&["ufakzeka"], &[Words(UFAKZEKA)]),
    row(&["laguna"], &[Each(r"[^\n]+|\n+"), Words(QWEN2)]),
];

/// How `tokenizer.json` says what is [`Words`]' own here: white space before a word leaves its last character to it.
const WHITE_SPACE: &str = r"|\s+(?!\S)|\s+";

/// GPT-2's pattern, which a `tokenizer.json` may leave out.
pub(crate) fn gpt2_pattern() -> String {
    [GPT2, WHITE_SPACE].concat()
}

/// The pattern of a name as a `tokenizer.json` has it; None where it takes more than one.
pub(crate) fn pattern_of(name: &str) -> Option<String> {
    match find(name)?.steps {
        [Words(own)] => Some([own, WHITE_SPACE].concat()),
        _ => None,
    }
}

/// The name of the way that splits by the pattern of a `tokenizer.json`; `preferred` is taken among those that split alike.
pub(crate) fn of_pattern(pattern: &str, ignore_merges: bool, preferred: &str) -> Option<&'static str> {
    // Possessive repetition makes these patterns faster and matches the same.
    let plain = pattern.replace("?+", "?").replace("++", "+");
    let words = plain.strip_suffix(WHITE_SPACE)?;
    let is = |p: &&Pre| matches!(p.steps, [Words(own)] if *own == words) && p.ignore_merges == ignore_merges;
    let row = TABLE.iter().find(is)?;
    row.names.iter().find(|n| **n == preferred).or(row.names.first()).copied()
}

/// The row of a name.
pub(crate) fn find(name: &str) -> Option<&'static Pre> {
    TABLE.iter().find(|p| p.names.contains(&name))
}

/// Whether two names stand for the same way of splitting.
pub(crate) fn same(a: &str, b: &str) -> bool {
    find(a).zip(find(b)).is_some_and(|(a, b)| std::ptr::eq(a, b))
}

/// All names, in alphabetical order.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = TABLE.iter().flat_map(|p| p.names).copied().collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::super::split::Splitter;
    use super::*;

    #[test]
    fn patterns_of_tokenizer_files_are_known() {
        let bailing = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
        assert_eq!(of_pattern(bailing, false, "llada-moe"), Some("llada-moe"));
        assert_eq!(of_pattern(bailing, false, "qwen2"), Some("bailingmoe"));
        assert_eq!(of_pattern(bailing, true, "qwen2"), None);
        assert_eq!(of_pattern(&gpt2_pattern(), false, "gpt-2"), Some("gpt-2"));
        assert_eq!(of_pattern(&[LLAMA3, WHITE_SPACE].concat(), true, ""), Some("llama3"));
        assert_eq!(of_pattern(&[LLAMA3, WHITE_SPACE].concat(), false, ""), Some("dbrx"));
        assert_eq!(of_pattern(r"\s+", false, ""), None);
    }

    #[test]
    fn names_are_unique_and_patterns_compile() {
        let mut unique = names();
        unique.dedup();
        assert_eq!(unique.len(), names().len());
        for pre in TABLE {
            assert_eq!(Splitter::new(pre.steps).split("").len(), 0, "{:?}", pre.names);
        }
    }
}
