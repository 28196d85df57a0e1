//! Regular expressions of ECMA-262, as `pattern` of a JSON schema has them.
//!
//! Source: ECMA-262, 16th edition (2025), section 22.2.1 and annex B.1.2. An expression is read with the flag `u`, under which
//! characters are code points; what only annex B allows (a `]`, `{` or `}` that is itself, a backslash before what needs none) is
//! read as there, since it means one thing. What another syntax writes and this one does not have is an error, and so are
//! look-around, backreferences and modifiers.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

/// Groups in one another at most.
const MAX_DEPTH: usize = 100;

/// Ranges of characters in a class at most, those of classes in it included.
const MAX_RANGES: usize = 1 << 16;

/// What ends a line.
const LINE_ENDS: [(char, char); 3] = [('\n', '\n'), ('\r', '\r'), ('\u{2028}', '\u{2029}')];

/// `\d`.
const DIGITS: &[(char, char)] = &[('0', '9')];

/// `\w`.
const WORD: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// `\s`: white space and line ends of the standard, with the category Zs written out.
const SPACES: &[(char, char)] = &[
    ('\t', '\r'),
    (' ', ' '),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{feff}', '\u{feff}'),
];

/// The expression of a pattern.
///
/// # Errors
/// What is wrong with it or not supported, and what to write in its place.
pub(super) fn parse(pattern: &str) -> Result<Hir, String> {
    let mut reader = Reader { rest: pattern.chars().peekable(), depth: 0, names: BTreeSet::new() };
    let hir = reader.alternatives()?;
    match reader.rest.next() {
        None => Ok(hir),
        Some(_) => Err("a \")\" without its \"(\": write \\) for the character".into()),
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// Groups around this place.
    depth: usize,
    /// Names of groups so far.
    names: BTreeSet<String>,
}

/// One character of a class, or a class in it.
enum Member {
    One(char),
    Many(ClassUnicode),
}

fn class_of(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|&(a, b)| ClassUnicodeRange::new(a, b)))
}

fn negated(mut class: ClassUnicode) -> ClassUnicode {
    class.negate();
    class
}

fn unicode(class: ClassUnicode) -> Hir {
    Hir::class(Class::Unicode(class))
}

impl Reader<'_> {
    fn takes(&mut self, c: char) -> bool {
        self.rest.next_if_eq(&c).is_some()
    }

    /// Takes `text` where it comes next.
    fn takes_all(&mut self, text: &str) -> bool {
        let mut ahead = self.rest.clone();
        let there = text.chars().all(|c| ahead.next() == Some(c));
        if there {
            self.rest = ahead;
        }
        there
    }

    /// Up to the end, or the `)` of the group.
    fn alternatives(&mut self) -> Result<Hir, String> {
        let mut all = vec![self.terms()?];
        while self.takes('|') {
            all.push(self.terms()?);
        }
        Ok(Hir::alternation(all))
    }

    fn terms(&mut self) -> Result<Hir, String> {
        let mut all = Vec::new();
        while let Some(&c) = self.rest.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let term = self.term()?;
            let can_repeat = !matches!(term.kind(), HirKind::Look(_));
            let term = match self.count()? {
                Some(_) if !can_repeat => return Err("an assertion cannot be repeated".into()),
                Some((min, max)) => {
                    // Which of several matches is found does not matter to a language.
                    let greedy = !self.takes('?');
                    if matches!(self.rest.peek(), Some('*' | '+' | '?')) || self.count_is_next() {
                        return Err("a repetition of a repetition: put the inner one in (?:…)".into());
                    }
                    Hir::repetition(Repetition { min, max, greedy, sub: Box::new(term) })
                }
                None => term,
            };
            all.push(term);
        }
        Ok(Hir::concat(all))
    }

    fn term(&mut self) -> Result<Hir, String> {
        let Some(c) = self.rest.next() else { return Ok(Hir::empty()) };
        Ok(match c {
            '^' => Hir::look(Look::Start),
            '$' => Hir::look(Look::End),
            '.' => unicode(negated(class_of(&LINE_ENDS))),
            '(' => self.group()?,
            '[' => unicode(self.class()?),
            '\\' => self.escape()?,
            '*' | '+' | '?' => {
                return Err(format!("nothing to repeat before {c:?}: write \\{c} for the character"));
            }
            '{' if self.counts() => {
                return Err("nothing to repeat before \"{\": write \\{ for the character".into());
            }
            c => literal(c),
        })
    }

    fn group(&mut self) -> Result<Hir, String> {
        if self.takes('?') && !self.takes(':') {
            for (start, what) in
                [("=", "look-ahead"), ("!", "look-ahead"), ("<=", "look-behind"), ("<!", "look-behind")]
            {
                if self.takes_all(start) {
                    return Err(format!("{what}, (?{start}, is not supported"));
                }
            }
            if !self.takes('<') {
                let next = self.rest.peek().map_or(String::new(), char::to_string);
                return Err(format!(
                    "(?{next} is not supported: of groups there are (…), (?:…) and (?<name>…), without flags such as (?i)"
                ));
            }
            let name: String = std::iter::from_fn(|| self.rest.next_if(|&c| c != '>')).collect();
            let is_letter = |c: char| c.is_alphabetic() || c == '_' || c == '$';
            let named = name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_numeric());
            if !self.takes('>') || !named {
                return Err("(?< is no name of a group: expected (?<name>…)".into());
            }
            if let Some(name) = self.names.replace(name) {
                return Err(format!("two groups have the name {name}"));
            }
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("expected at most {MAX_DEPTH} groups in one another"));
        }
        let inside = self.alternatives()?;
        self.depth -= 1;
        match self.takes(')') {
            true => Ok(inside),
            false => Err("unclosed group: a \"(\" without its \")\"".into()),
        }
    }

    /// Whether `n}`, `n,}` or `n,m}` comes next, after a `{`.
    fn counts(&self) -> bool {
        let mut ahead = self.rest.clone();
        let digits = |ahead: &mut Peekable<Chars<'_>>| {
            std::iter::from_fn(|| ahead.next_if(char::is_ascii_digit)).count()
        };
        if digits(&mut ahead) == 0 {
            return false;
        }
        if ahead.next_if_eq(&',').is_some() {
            digits(&mut ahead);
        }
        ahead.next() == Some('}')
    }

    /// Whether a repetition in braces comes next.
    fn count_is_next(&self) -> bool {
        let mut ahead = Reader { rest: self.rest.clone(), depth: 0, names: BTreeSet::new() };
        ahead.takes('{') && ahead.counts()
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        let text: String = std::iter::from_fn(|| self.rest.next_if(char::is_ascii_digit)).collect();
        match text.is_empty() {
            true => Ok(None),
            false => text.parse().map(Some).map_err(|_| format!("{text} repetitions are too many")),
        }
    }

    /// How often the term before is repeated, where it is.
    fn count(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        if self.takes('*') {
            return Ok(Some((0, None)));
        }
        if self.takes('+') {
            return Ok(Some((1, None)));
        }
        if self.takes('?') {
            return Ok(Some((0, Some(1))));
        }
        if !self.count_is_next() {
            return Ok(None);
        }
        self.takes('{');
        let min = self.number()?.unwrap_or(0);
        let max = if self.takes(',') { self.number()? } else { Some(min) };
        self.takes('}');
        match max {
            Some(max) if max < min => Err(format!("{{{min},{max}}}: the numbers are out of order")),
            max => Ok(Some((min, max))),
        }
    }

    /// After a backslash outside of classes.
    fn escape(&mut self) -> Result<Hir, String> {
        match self.rest.peek() {
            Some('b' | 'B') => {
                let word = self.rest.next() == Some('b');
                Ok(Hir::look(if word { Look::WordAscii } else { Look::WordAsciiNegate }))
            }
            Some('1'..='9' | 'k') => Err("backreferences are not supported".into()),
            _ => Ok(match self.member()? {
                Member::One(c) => literal(c),
                Member::Many(class) => unicode(class),
            }),
        }
    }

    /// After a backslash, in and outside of classes.
    fn member(&mut self) -> Result<Member, String> {
        let Some(c) = self.rest.next() else { return Err("it ends in a backslash".into()) };
        let many = |ranges| Ok(Member::Many(class_of(ranges)));
        let others = |ranges| Ok(Member::Many(negated(class_of(ranges))));
        match c {
            'd' => many(DIGITS),
            'D' => others(DIGITS),
            'w' => many(WORD),
            'W' => others(WORD),
            's' => many(SPACES),
            'S' => others(SPACES),
            'p' | 'P' => self.property(c).map(Member::Many),
            't' => Ok(Member::One('\t')),
            'n' => Ok(Member::One('\n')),
            'v' => Ok(Member::One('\u{b}')),
            'f' => Ok(Member::One('\u{c}')),
            'r' => Ok(Member::One('\r')),
            'c' => match self.rest.next() {
                Some(c) if c.is_ascii_alphabetic() => Ok(Member::One((c as u8 % 32).into())),
                _ => Err("\\c: expected a letter, as in \\cJ".into()),
            },
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => Ok(Member::One('\0')),
            'x' => match self.hex(2) {
                Some(n) => Ok(Member::One(char::from_u32(n).unwrap_or_default())),
                None => Err("\\x: expected two hexadecimal digits, as in \\x41".into()),
            },
            'u' => self.code_point().map(Member::One),
            c if c.is_alphanumeric() => {
                Err(format!("\\{c} is nothing in ECMA-262, which patterns of JSON schemas are written in"))
            }
            c => Ok(Member::One(c)),
        }
    }

    /// `n` hexadecimal digits.
    fn hex(&mut self, n: usize) -> Option<u32> {
        let mut ahead = self.rest.clone();
        let mut value = 0;
        for _ in 0..n {
            value = value * 16 + ahead.next()?.to_digit(16)?;
        }
        self.rest = ahead;
        Some(value)
    }

    /// After `\u`: four digits, two times four of a pair of surrogates, or any number in braces.
    fn code_point(&mut self) -> Result<char, String> {
        const EXPECTED: &str =
            "\\u: expected a character, as in \\u00e9 or \\u{1F600}; half of a pair is none";
        if self.takes('{') {
            let text: String = std::iter::from_fn(|| self.rest.next_if(char::is_ascii_hexdigit)).collect();
            let c = u32::from_str_radix(&text, 16).ok().and_then(char::from_u32).filter(|_| self.takes('}'));
            return c.ok_or_else(|| EXPECTED.into());
        }
        let first = self.hex(4).ok_or(EXPECTED)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| EXPECTED.into());
        }
        let second = if self.takes_all("\\u") { self.hex(4) } else { None };
        let second = second.filter(|n| (0xdc00..0xe000).contains(n)).ok_or(EXPECTED)?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(|| EXPECTED.into())
    }

    /// After `\p` or `\P`.
    fn property(&mut self, letter: char) -> Result<ClassUnicode, String> {
        let expected = format!(
            "\\{letter}: expected a property of Unicode, as in \\{letter}{{L}} or \\{letter}{{Script=Greek}}"
        );
        let is_name = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '=');
        let braced = self.takes('{');
        let name: String = std::iter::from_fn(|| self.rest.next_if(is_name)).collect();
        if !braced || !self.takes('}') {
            return Err(expected);
        }
        let known = ["gc", "General_Category", "sc", "Script", "scx", "Script_Extensions"];
        let valid =
            name.split_once('=').is_none_or(|(of, value)| known.contains(&of) && !value.contains('='));
        let found = regex_syntax::parse(&format!("\\{letter}{{{name}}}")).ok().filter(|_| valid);
        match found.map(Hir::into_kind) {
            Some(HirKind::Class(Class::Unicode(class))) => Ok(class),
            // A class of one character.
            Some(HirKind::Literal(of)) => {
                let text = std::str::from_utf8(&of.0).unwrap_or_default();
                Ok(ClassUnicode::new(text.chars().map(|c| ClassUnicodeRange::new(c, c))))
            }
            _ => Err(format!("{expected}; found {name:?}")),
        }
    }

    /// After a `[`.
    fn class(&mut self) -> Result<ClassUnicode, String> {
        let is_negated = self.takes('^');
        // Put in order once, at the end.
        let mut ranges = Vec::new();
        loop {
            if ranges.len() > MAX_RANGES {
                return Err(format!("expected at most {MAX_RANGES} ranges of characters in a class"));
            }
            let one = match self.rest.peek() {
                None => return Err("unclosed class: a \"[\" without its \"]\"".into()),
                Some(']') => {
                    self.takes(']');
                    let class = ClassUnicode::new(ranges);
                    return Ok(if is_negated { negated(class) } else { class });
                }
                Some(_) => self.class_member()?,
            };
            // A hyphen at the end is itself.
            let is_range = {
                let mut ahead = self.rest.clone();
                ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']')
            };
            if !is_range {
                match one {
                    Member::One(c) => ranges.push(ClassUnicodeRange::new(c, c)),
                    Member::Many(of) => ranges.extend(of.iter()),
                }
                continue;
            }
            self.takes('-');
            match (one, self.class_member()?) {
                (Member::One(a), Member::One(b)) if a <= b => ranges.push(ClassUnicodeRange::new(a, b)),
                (Member::One(a), Member::One(b)) => {
                    return Err(format!("the range {a:?} to {b:?} of a class is out of order"));
                }
                _ => return Err("a range of a class ends in a class: write \\- for the character".into()),
            }
        }
    }

    fn class_member(&mut self) -> Result<Member, String> {
        match self.rest.next() {
            Some('\\') if self.takes('b') => Ok(Member::One('\u{8}')),
            Some('\\') => self.member(),
            Some(c) => Ok(Member::One(c)),
            None => Err("unclosed class: a \"[\" without its \"]\"".into()),
        }
    }
}

fn literal(c: char) -> Hir {
    Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::super::automaton::Automaton;
    use super::super::regex::inside;
    use super::*;

    /// Whether a string is valid under a pattern; an error is that the pattern is refused.
    fn matches(automaton: &Automaton, text: &str) -> bool {
        let json = serde_json::Value::from(text).to_string();
        automaton.contains(&json.as_bytes()[1..json.len() - 1])
    }

    #[track_caller]
    fn check(pattern: &str, within: &[&str], without: &[&str]) {
        let a = Automaton::new(&inside(pattern, true).unwrap_or_else(|e| panic!("{pattern}: {e}"))).unwrap();
        within.iter().for_each(|t| assert!(matches(&a, t), "{pattern}: {t:?} is in"));
        without.iter().for_each(|t| assert!(!matches(&a, t), "{pattern}: {t:?} is not in"));
    }

    #[test]
    fn spellings_that_mean_something_else_in_rust() {
        check("^[[a]]$", &["[]", "a]"], &["a", "["]);
        check("^[[:alpha:]]$", &[":]", "a]", "[]"], &["b]", "b", "a"]);
        check("^[a&&b]$", &["a", "b", "&"], &["ab", "c"]);
        check("^[a-c--b]$", &["a", "b", "c"], &["d", "+"]);
        check("^[a-e--b]$", &["a", "e", "-", "b", "."], &[]);
        check("^[ab~~a]$", &["a", "b", "~"], &["c"]);
        check("^[^]$", &["a", "\n", "𝄞"], &["", "ab"]);
        check("^a[]|b$", &["b"], &["a", "a]"]);
        check("^[]a]|b]$", &["b]"], &["]", "a", "a]"]);
        check("^{a}$|^x{,2}$", &["{a}", "x{,2}"], &["a", "xx", ""]);
        check("^a{2}?$", &["aa"], &["", "a", "aaaa"]);
        check(r"^\cJ\x41\u0041\u{1F600}\ud83d\ude00\/\-$", &["\nAA😀😀/-"], &["JAA😀😀/-"]);
        check(r"^(?<year>\d{4})[\b]?$", &["2024", "2024\u{8}"], &["٢٠٢٤", "202"]);
        check(r"^\s\S\w\W$", &["\u{feff}x_é", "\u{a0}\u{85}9 "], &["\u{85}xx ", " xé "]);
        check(r"^[^\S ]$", &["\t", "\u{3000}"], &[" ", "x"]);
        check(r"^.$", &["\u{85}", "\t"], &["\n", "\u{2029}"]);
        check(r"^\p{Lu}\P{L}\p{Script=Greek}$", &["A1β"], &["a1β", "A1b"]);
        check(r"^[\u{10000}-\u{10ffff}]$", &["😀"], &["a"]);
        check("^[a-]$|^[-b]$|^[--0]$", &["a", "-", "b", "/", "0"], &["1"]);
    }

    #[test]
    fn what_another_syntax_writes_is_refused() {
        for (pattern, what) in [
            (r"\Aa\z", r"\A is nothing in ECMA-262"),
            (r"a\Z", r"\Z is nothing"),
            (r"a\z", r"\z is nothing"),
            (r"\h+", r"\h is nothing"),
            (r"\x{41}", "two hexadecimal digits"),
            (r"\a", r"\a is nothing"),
            (r"\Qa\E", r"\Q is nothing"),
            ("(?x)a b", "without flags"),
            ("(?i:a)", "without flags"),
            ("(?P<n>a)", "(?P is not supported"),
            ("(?>a)", "(?> is not supported"),
            ("(?#a)", "(?# is not supported"),
            ("(?=a)", "look-ahead"),
            ("(?<!a)", "look-behind"),
            ("(?<1>a)", "expected (?<name>"),
            (r"(a)\1", "backreferences"),
            (r"(?<a>x)\k<a>", "backreferences"),
            (r"\01", r"\0 is nothing"),
            (r"\cé", "expected a letter"),
            (r"\ud83d", "half of a pair"),
            (r"\ude00", "half of a pair"),
            (r"\u{110000}", "expected a character"),
            (r"\u{}", "expected a character"),
            (r"\u12", "expected a character"),
            (r"\pL", "expected a property"),
            (r"\p{^L}", "expected a property"),
            (r"\p{age=3.0}", "expected a property"),
            ("a**", "repetition of a repetition"),
            ("a++", "repetition of a repetition"),
            ("a{2}{3}", "repetition of a repetition"),
            ("*a", "nothing to repeat"),
            ("a|{2}", "nothing to repeat"),
            ("^*", "cannot be repeated"),
            ("a{3,2}", "out of order"),
            ("(?<n>a)(?<n>b)", "two groups have the name n"),
            ("a{99999999999}", "too many"),
            ("[b-a]", "out of order"),
            (r"[\d-z]", "ends in a class"),
            ("[a", "unclosed class"),
            ("a)", "without its \"(\""),
            ("(a", "unclosed group"),
            ("a\\", "ends in a backslash"),
            (r"a\b", "at the start and the end"),
        ] {
            let e = inside(pattern, true).map(|_| ()).expect_err(pattern).to_string();
            assert!(e.contains(what), "{pattern}: {e}");
        }
        let deep = |n| "(".repeat(n) + &")".repeat(n);
        assert!(parse(&deep(MAX_DEPTH)).is_ok() && parse(&deep(MAX_DEPTH + 1)).is_err());
        assert!(parse(&deep(30_000)).is_err());
        let all: String = (0x4e00..0x9f00).rev().step_by(2).filter_map(char::from_u32).collect();
        check(&format!("^[{all}]$"), &[&all[..3]], &["a"]);
        let e = parse(&format!("[{}]", r"\p{L}".repeat(1000))).unwrap_err();
        assert!(e.contains("at most 65536 ranges"), "{e}");
    }

    /// Parts of patterns: those that mean one thing, those that mean another one elsewhere, and those that mean nothing.
    const PARTS: &[&str] = &[
        "a",
        "b",
        "A",
        "-",
        "/",
        ":",
        "]",
        "}",
        "&",
        "~",
        ".",
        "é",
        "😀",
        "{",
        ",",
        "1",
        "|",
        "|",
        "(",
        ")",
        "(?:",
        "(?<n>",
        "(",
        ")",
        ")",
        "*",
        "+",
        "?",
        "{1}",
        "{0,2}",
        "{2,}",
        "[",
        "[^",
        "]",
        "]",
        "[a-b]",
        "[^a]",
        "[]",
        "[^]",
        "&&",
        "--",
        "~~",
        "[:alpha:]",
        "[[a]]",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\/",
        r"\-",
        r"\.",
        r"\[",
        r"\]",
        r"\\",
        r"\n",
        r"\t",
        r"\v",
        r"\cA",
        r"\cj",
        r"\0",
        r"\x61",
        r"\u0062",
        r"\u{1F600}",
        r"\ud83d\ude00",
        r"\p{L}",
        r"\P{Lu}",
        r"\p{Script=Greek}",
        r"\p{gc=Nd}",
        r"\x{41}",
        r"\A",
        r"\z",
        r"\h",
        r"(?i)",
        "(?P<n>",
    ];

    const TEXTS: &[&str] = &[
        "a", "b", "A", "-", "/", ":", "]", "[", "{", "}", "&", "~", ".", "é", "😀", ",", "1", "\n", "\t",
        " ", "\u{2028}", "\u{feff}", "\u{85}", "β", "\\", "^", "p", "l",
    ];

    /// An engine of ECMA-262 finds what is in the language, in whatever it takes and is not refused here.
    #[test]
    fn patterns_match_what_an_engine_of_ecma_262_matches() {
        let parts = prop::collection::vec(prop::sample::select(PARTS), 0..7);
        let text = prop::collection::vec(prop::sample::select(TEXTS), 0..5);
        let cases = (parts, prop::collection::vec(text, 24), any::<bool>(), any::<bool>());
        let (compared, found) = (Cell::new(0), Cell::new(0));
        let mut runner = TestRunner::new(ProptestConfig::with_cases(3000));
        let done = runner.run(&cases, |(parts, texts, start, end)| {
            let mut pattern = parts.concat();
            if start || end {
                pattern =
                    format!("{}(?:{pattern}){}", if start { "^" } else { "" }, if end { "$" } else { "" });
            }
            let (Some(theirs), Ok(ours)) = (engine(&pattern), inside(&pattern, true)) else { return Ok(()) };
            // A language without texts has no automaton.
            let automaton = Automaton::new(&ours).ok();
            for text in texts.iter().map(|t| t.concat()) {
                let got = automaton.as_ref().is_some_and(|a| matches(a, &text));
                prop_assert_eq!(got, theirs.find(&text).is_some(), "{} in {:?}", pattern, text);
                compared.set(compared.get() + 1);
                found.set(found.get() + usize::from(got));
            }
            Ok(())
        });
        done.unwrap();
        println!("{} texts compared, {} in their language", compared.get(), found.get());
        assert!(compared.get() > 10_000 && found.get() > 2_000);
    }

    /// The pattern with the flag `u`, or without where only annex B allows it and both would mean the same.
    fn engine(pattern: &str) -> Option<regress::Regex> {
        if let Ok(strict) = regress::Regex::with_flags(pattern, "u") {
            return Some(strict);
        }
        let halves = [r"\u{", r"\ud", r"\p", r"\P", r"\D", r"\W", r"\S", ".", "[^"];
        let differs = pattern.chars().any(|c| c > '\u{ffff}') || halves.iter().any(|p| pattern.contains(p));
        regress::Regex::new(pattern).ok().filter(|_| !differs)
    }
}
