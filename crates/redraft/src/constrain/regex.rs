//! Regular expressions as languages of bytes.
//!
//! Syntax is that of the crate `regex`, with the meanings that ECMA-262 gives `\d`, `\w`, `\s`: a digit is one of ten. A schema's
//! patterns are of ECMA-262 altogether ([`ecma`]).

use std::cell::Cell;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look};
use regex_syntax::utf8::Utf8Sequences;

use super::automaton::Node;
use super::{ConstrainError, ecma};

/// Bytes of an expression at most.
const MAX_BYTES: usize = 1 << 16;

/// Parts of the language of an expression at most, which bounds memory: a class of Unicode has thousands.
const MAX_PARTS: usize = 1 << 20;

/// How a character of the text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// As itself.
    Plain,
    /// As in a JSON string.
    Json,
}

/// The texts that an expression matches from start to end.
///
/// # Errors
/// [`ConstrainError::Regex`] where it is none, and for assertions about places other than start and end.
pub(super) fn whole(pattern: &str) -> Result<Node, ConstrainError> {
    check_len(pattern)?;
    let parser = ParserBuilder::new().nest_limit(100).build().parse(&with_classes_of_ecma(pattern));
    let hir = parser.map_err(|e| {
        let problem = match e {
            regex_syntax::Error::Parse(e) => e.kind().to_string(),
            regex_syntax::Error::Translate(e) => e.kind().to_string(),
            other => other.to_string(),
        };
        ConstrainError::Regex { pattern: pattern.into(), problem }
    })?;
    // What matches from start to end needs no marks that say so.
    anchored(&hir, pattern, Writing::Plain, &Node::empty())
}

/// The insides of strings in which an expression matches somewhere, as `pattern` of a schema asks: of JSON, or without escapes.
///
/// # Errors
/// As [`whole`].
pub(super) fn inside(pattern: &str, escapes: bool) -> Result<Node, ConstrainError> {
    check_len(pattern)?;
    let hir =
        ecma::parse(pattern).map_err(|problem| ConstrainError::Regex { pattern: pattern.into(), problem })?;
    let (any, writing) = match escapes {
        true => (json_character(), Writing::Json),
        false => (plain_character(), Writing::Plain),
    };
    anchored(&hir, pattern, writing, &any.repeat(0, None))
}

/// A character of a string without escapes: no control character but ends of lines and tabs.
pub(super) fn plain_character() -> Node {
    let ranges = [('\t', '\n'), (' ', char::MAX)].map(|(a, b)| ClassUnicodeRange::new(a, b));
    class(&ClassUnicode::new(ranges), Writing::Plain)
}

/// A character of a JSON string: as itself, or after a backslash. `\u` and `\/` are not needed, and no character needs them
/// but control characters, which are left out.
pub(super) fn json_character() -> Node {
    class(&ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)]), Writing::Json)
}

fn check_len(pattern: &str) -> Result<(), ConstrainError> {
    match pattern.len() {
        0..=MAX_BYTES => Ok(()),
        found => {
            Err(ConstrainError::TooLarge { what: "bytes of the regular expression", found, limit: MAX_BYTES })
        }
    }
}

/// Writes the classes that ECMA-262 knows out.
fn with_classes_of_ecma(pattern: &str) -> String {
    const SPACES: &str = r"\t\n\x0B\x0C\r \u{A0}\u{FEFF}\u{2028}\u{2029}\p{Zs}";
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('d')) => out.push_str("[0-9]"),
            ('\\', Some('D')) => out.push_str("[^0-9]"),
            ('\\', Some('w')) => out.push_str("[0-9A-Za-z_]"),
            ('\\', Some('W')) => out.push_str("[^0-9A-Za-z_]"),
            ('\\', Some('s')) => out.push_str(&format!("[{SPACES}]")),
            ('\\', Some('S')) => out.push_str(&format!("[^{SPACES}]")),
            (_, other) => out.extend([Some(c), other].into_iter().flatten()),
        }
    }
    out
}

/// The expression, with `around` before and after it where it is not anchored.
fn anchored(hir: &Hir, pattern: &str, writing: Writing, around: &Node) -> Result<Node, ConstrainError> {
    Reader { pattern, writing, around, parts: Cell::new(0) }.node(hir, true, true)
}

struct Reader<'a> {
    pattern: &'a str,
    writing: Writing,
    around: &'a Node,
    /// Parts of all characters and classes so far.
    parts: Cell<usize>,
}

impl Reader<'_> {
    fn problem(&self, problem: &str) -> ConstrainError {
        ConstrainError::Regex { pattern: self.pattern.into(), problem: problem.into() }
    }

    /// `first`, `last`: nothing of the expression comes before or after.
    fn node(&self, hir: &Hir, first: bool, last: bool) -> Result<Node, ConstrainError> {
        let text = "it has bytes that are no text";
        let of = match hir.kind() {
            HirKind::Capture(group) => return self.node(&group.sub, first, last),
            HirKind::Alternation(parts) => {
                let parts: Result<Vec<_>, _> = parts.iter().map(|p| self.node(p, first, last)).collect();
                return Ok(Node::alt(parts?));
            }
            HirKind::Concat(parts) => {
                let end = parts.len() - 1;
                let part = |(i, p)| self.node(p, first && i == 0, last && i == end);
                return Ok(Node::cat(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?));
            }
            // With nothing on the other side, the other side is open.
            HirKind::Look(Look::Start) if first => return Ok(self.open(Node::empty(), false, last)),
            HirKind::Look(Look::End) if last => return Ok(self.open(Node::empty(), first, false)),
            HirKind::Look(_) => {
                return Err(self.problem(
                    "assertions (^, $, \\b) are supported at the start and the end of the expression only",
                ));
            }
            HirKind::Empty => Node::empty(),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).map_err(|_| self.problem(text))?;
                Node::cat(text.chars().map(|c| character(c, self.writing)).collect::<Vec<_>>())
            }
            HirKind::Class(Class::Unicode(of)) => class(of, self.writing),
            HirKind::Class(Class::Bytes(of)) => {
                let of = of.to_unicode_class().ok_or_else(|| self.problem(text))?;
                class(&of, self.writing)
            }
            HirKind::Repetition(r) => {
                let node = self.node(&r.sub, false, false)?.repeat(r.min, r.max);
                return Ok(self.open(node, first, last));
            }
        };
        let found = self.parts.get() + of.size();
        if found > MAX_PARTS {
            let what = "parts of the regular expression, of which a class has many";
            return Err(ConstrainError::TooLarge { what, found, limit: MAX_PARTS });
        }
        self.parts.set(found);
        Ok(self.open(of, first, last))
    }

    fn open(&self, node: Node, first: bool, last: bool) -> Node {
        let around = |yes: bool| if yes { self.around.clone() } else { Node::empty() };
        Node::cat([around(first), node, around(last)])
    }
}

/// Characters that a JSON string holds after a backslash, and what stands there.
const ESCAPED: [(char, u8); 7] =
    [('"', b'"'), ('\\', b'\\'), ('\u{8}', b'b'), ('\u{c}', b'f'), ('\n', b'n'), ('\r', b'r'), ('\t', b't')];

fn character(c: char, writing: Writing) -> Node {
    class(&ClassUnicode::new([ClassUnicodeRange::new(c, c)]), writing)
}

fn class(of: &ClassUnicode, writing: Writing) -> Node {
    let mut plain = of.clone();
    let mut parts = Vec::new();
    if writing == Writing::Json {
        let escaped = [('\0', '\u{1f}'), ('"', '"'), ('\\', '\\')];
        plain.difference(&ClassUnicode::new(escaped.map(|(a, b)| ClassUnicodeRange::new(a, b))));
        let has = |c: char| of.iter().any(|range| (range.start()..=range.end()).contains(&c));
        parts.extend(
            ESCAPED.iter().filter(|(c, _)| has(*c)).map(|&(_, letter)| Node::bytes(&[b'\\', letter])),
        );
    }
    for range in plain.iter() {
        for sequence in Utf8Sequences::new(range.start(), range.end()) {
            let bytes = sequence.as_slice().iter().map(|b| Node::Byte(b.start, b.end));
            parts.push(Node::cat(bytes.collect::<Vec<_>>()));
        }
    }
    Node::alt(parts)
}

#[cfg(test)]
mod tests {
    use super::super::automaton::Automaton;
    use super::*;

    #[track_caller]
    fn check(node: Node, within: &[&str], without: &[&str]) {
        let a = Automaton::new(&node).unwrap();
        within.iter().for_each(|t| assert!(a.contains(t.as_bytes()), "{t:?} is in"));
        without.iter().for_each(|t| assert!(!a.contains(t.as_bytes()), "{t:?} is not in"));
    }

    #[test]
    fn expressions_match_from_start_to_end() {
        let re = |pattern: &str| whole(pattern).unwrap();
        check(re("ab*(c|d)?"), &["a", "abbb", "abc", "ad"], &["", "ab ", "xa", "acd"]);
        check(re("^(yes|no)$"), &["yes", "no"], &["yesno", "y"]);
        check(re("^yes$|^no$"), &["yes", "no"], &["yesno"]);
        check(re(r"\d{3}-\d{2,}"), &["123-45", "123-4567"], &["123-4", "١٢٣-45"]);
        check(re(r"[^\d\s]+\.\w"), &["é.x", "a€.9"], &["1.x", "a b.x", "aXx"]);
        check(re("(?i)ok|[À-ý]{2}"), &["OK", "oK", "éü"], &["é", "K"]);
        check(re("."), &["x", "\r", "𝄞"], &["\n", "", "xx"]);
        check(re(""), &[""], &["x"]);
    }

    #[test]
    fn patterns_of_schemas_look_inside_strings() {
        let re = |pattern: &str| inside(pattern, true).unwrap();
        check(re("b+"), &["b", "abbc", r#"\"b\n"#], &["", "a", "\"b", "b\n", r"b\x"]);
        check(re("^b+$"), &["b", "bb"], &["ab", "bc"]);
        check(re("^b|c$"), &["bx", "xc", "b"], &["xb", "cx"]);
        check(re(r#"^["\\/\n]$"#), &[r#"\""#, r"\\", "/", r"\n"], &["\"", "\\", "\n", r"\/"]);
        check(re("^.$"), &["é", r#"\""#, r"\t"], &[r"\n", r"\r", "\u{2028}"]);
        check(re(r"^\/$"), &["/"], &["x"]);
        check(json_character(), &["a", "\u{7f}", "€", r"\\"], &["", "\\", "\u{1}", "ab"]);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let problem = |pattern: &str| whole(pattern).unwrap_err().to_string();
        assert!(problem("a(").contains("unclosed group"), "{}", problem("a("));
        for look in [r"\bx", "a^b", "(?m)^a", "a$b"] {
            assert!(problem(look).contains("start and the end"), "{look}: {}", problem(look));
        }
        assert!(problem(r"(a)\1").contains("backreferences"), "{}", problem(r"(a)\1"));
        assert!(problem("(?=a)").contains("look-around"), "{}", problem("(?=a)"));
        assert!(problem(&"a".repeat(70_000)).contains("65536"));
        assert!(problem(&r"\p{L}".repeat(10_000)).contains("parts of the regular expression"));
        assert!(whole(&r"\p{L}".repeat(100)).is_ok());
    }
}
