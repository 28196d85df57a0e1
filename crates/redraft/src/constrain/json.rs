//! JSON texts as languages of bytes.
//!
//! A text is written on one line, with one space or none after a comma and a colon. Numbers have 15 digits at most before
//! and after the point and exponents two, so that every reader can hold them.

use serde_json::Value;

use super::automaton::Node;
use super::regex::{json_character, plain_character};

/// How strings and names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As JSON has it.
    Json,
    /// Strings between two of these bytes, which are in no text, without escapes; names as they are where that can be read.
    Bare(u8),
}

/// Digits of an integer at most: all such integers are exact in a double.
pub(super) const DIGITS: u32 = 15;

/// The largest integer that is written.
pub(super) const LARGEST: i64 = 10i64.pow(DIGITS) - 1;

/// What stands between two items.
pub(super) fn comma() -> Node {
    Node::cat([Node::text(","), Node::text(" ").optional()])
}

/// A name, and a value after it. The name is a node of a string.
pub(super) fn member(name: Node, value: Node) -> Node {
    Node::cat([name, Node::text(":"), Node::text(" ").optional(), value])
}

/// A string whose inside is `inside`.
pub(super) fn quoted(inside: Node, style: Style) -> Node {
    let quote = || match style {
        Style::Json => Node::text("\""),
        Style::Bare(quote) => Node::bytes(&[quote]),
    };
    Node::cat([quote(), inside, quote()])
}

/// Any string of so many characters.
pub(super) fn string(min: u32, max: Option<u32>, style: Style) -> Node {
    let character = if style == Style::Json { json_character() } else { plain_character() };
    quoted(character.repeat(min, max), style)
}

/// `true` or `false`.
pub(super) fn boolean() -> Node {
    Node::alt([Node::text("true"), Node::text("false")])
}

/// A list in brackets.
pub(super) fn array(item: Node, min: u32, max: Option<u32>) -> Node {
    Node::cat([Node::text("["), item.list(comma(), min, max), Node::text("]")])
}

/// An object of any names; those that are not quoted are words.
pub(super) fn map(value: Node, style: Style) -> Node {
    let letter = || [Node::Byte(b'a', b'z'), Node::Byte(b'A', b'Z'), Node::Byte(b'_', b'_')];
    let name = match style {
        Style::Json => string(0, None, style),
        Style::Bare(_) => {
            let more = letter().into_iter().chain([Node::Byte(b'0', b'9'), Node::Byte(b'-', b'-')]);
            Node::cat([Node::alt(letter()), Node::alt(more.collect::<Vec<_>>()).repeat(0, None)])
        }
    };
    let member = member(name, value);
    Node::cat([Node::text("{"), member.list(comma(), 0, None), Node::text("}")])
}

fn digits(min: u32, max: u32) -> Node {
    Node::Byte(b'0', b'9').repeat(min, Some(max))
}

/// Any number.
pub(super) fn number() -> Node {
    let sign = Node::alt([Node::text("+"), Node::text("-")]).optional();
    let exponent = Node::cat([Node::alt([Node::text("e"), Node::text("E")]), sign, digits(1, 2)]);
    let fraction = Node::cat([Node::text("."), digits(1, DIGITS)]);
    let minus = Node::text("-").optional();
    Node::cat([minus, natural(0, LARGEST), fraction.optional(), exponent.optional()])
}

/// The integers from `lo` to `hi`, both within [`LARGEST`].
pub(super) fn integer(lo: i64, hi: i64) -> Node {
    let mut parts = Vec::new();
    if lo < 0 {
        parts.push(Node::cat([Node::text("-"), natural(1.max(-hi), -lo)]));
    }
    parts.push(natural(lo.max(0), hi));
    Node::alt(parts)
}

/// The natural numbers from `lo` to `hi`.
fn natural(lo: i64, hi: i64) -> Node {
    if lo <= 1 && hi == LARGEST {
        let positive = Node::cat([Node::Byte(b'1', b'9'), digits(0, DIGITS - 1)]);
        return if lo == 1 { positive } else { Node::alt([Node::text("0"), positive]) };
    }
    let mut parts = Vec::new();
    for len in 1..=DIGITS {
        let least = if len == 1 { 0 } else { 10i64.pow(len - 1) };
        let (lo, hi) = (lo.max(least), hi.min(10i64.pow(len) - 1));
        if lo <= hi {
            parts.push(same_length(lo.to_string().as_bytes(), hi.to_string().as_bytes()));
        }
    }
    Node::alt(parts)
}

/// The numbers from `lo` to `hi`, which have as many digits.
fn same_length(lo: &[u8], hi: &[u8]) -> Node {
    let n = lo.len() as u32;
    if lo.iter().all(|&a| a == b'0') && hi.iter().all(|&b| b == b'9') {
        return digits(n, n);
    }
    let (&[a, ref lo @ ..], &[b, ref hi @ ..]) = (lo, hi) else { return Node::empty() };
    if a == b {
        return Node::cat([Node::Byte(a, a), same_length(lo, hi)]);
    }
    let mut parts = vec![
        Node::cat([Node::Byte(a, a), same_length(lo, &vec![b'9'; lo.len()])]),
        Node::cat([Node::Byte(b, b), same_length(&vec![b'0'; hi.len()], hi)]),
    ];
    if a + 1 < b {
        parts.push(Node::cat([Node::Byte(a + 1, b - 1), digits(n - 1, n - 1)]));
    }
    Node::alt(parts)
}

/// An end of a range of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    /// The number.
    pub(super) at: i64,
    /// Whether it does not belong to the range.
    pub(super) open: bool,
}

/// The numbers between two bounds, without exponents.
pub(super) fn between(lo: Bound, hi: Bound) -> Node {
    let fraction = Node::cat([Node::text("."), digits(1, DIGITS)]);
    let zeros = Node::text("0").repeat(0, Some(DIGITS / 2));
    let some = Node::cat([Node::text("."), zeros, Node::Byte(b'1', b'9'), digits(0, DIGITS / 2)]);
    // From `from` away from zero up to before `to`; not `from` itself where that is open.
    let fractions = |from: i64, open: bool, to: i64| {
        let first = if open { some.clone() } else { fraction.clone() };
        let first = if from < to { Node::cat([natural(from, from), first]) } else { Node::never() };
        Node::alt([first, Node::cat([natural(from + 1, to - 1), fraction.clone()])])
    };
    let mut parts = vec![
        integer(lo.at + i64::from(lo.open), hi.at - i64::from(hi.open)),
        fractions(lo.at.max(0), lo.open && lo.at >= 0, hi.at),
    ];
    if lo.at < 0 {
        let positive = fractions((-hi.at).max(0), hi.open && hi.at <= 0, -lo.at);
        parts.push(Node::cat([Node::text("-"), positive]));
    }
    Node::alt(parts)
}

/// Any value of at most `depth` lists and objects in one another.
pub(super) fn any(depth: u32, style: Style) -> Node {
    let plain = Node::alt([string(0, None, style), number(), boolean(), Node::text("null")]);
    (0..depth).fold(plain.clone(), |inner, _| {
        Node::alt([plain.clone(), array(inner.clone(), 0, None), map(inner, style)])
    })
}

/// Exactly this value.
pub(super) fn value(v: &Value, style: Style) -> Node {
    let list = |open: &str, parts: Vec<Node>, close: &str| {
        let mut all = vec![Node::text(open)];
        for (i, part) in parts.into_iter().enumerate() {
            all.extend((i > 0).then(comma));
            all.push(part);
        }
        all.push(Node::text(close));
        Node::cat(all)
    };
    match v {
        Value::Array(items) => list("[", items.iter().map(|v| value(v, style)).collect(), "]"),
        Value::Object(members) => {
            let one = |(name, v): (&String, &Value)| member(name_of(name, style), value(v, style));
            list("{", members.iter().map(one).collect(), "}")
        }
        Value::String(text) if style != Style::Json => quoted(Node::text(text), style),
        plain => Node::text(&plain.to_string()),
    }
}

/// A name of an object.
pub(super) fn name_of(name: &str, style: Style) -> Node {
    let special = |c: char| "{}[],:\"".contains(c) || c.is_control();
    match style {
        Style::Json => Node::text(&Value::from(name).to_string()),
        Style::Bare(_) if name.is_empty() || name.trim() != name || name.contains(special) => {
            quoted(Node::text(name), style)
        }
        Style::Bare(_) => Node::text(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::automaton::Automaton;
    use super::*;

    #[test]
    fn integers_between_bounds() {
        for (lo, hi) in [(0, 0), (0, 9), (-5, 5), (7, 123), (-120, -3), (99, 1001), (5, 4), (-1, 0)] {
            let Ok(a) = Automaton::new(&integer(lo, hi)) else {
                assert!(lo > hi);
                continue;
            };
            for n in -1500i64..1500 {
                assert_eq!(
                    a.contains(n.to_string().as_bytes()),
                    (lo..=hi).contains(&n),
                    "{n} in {lo}..={hi}"
                );
            }
            assert!(!a.contains(b"-0") && !a.contains(b"007"));
        }
        let all = Automaton::new(&integer(-LARGEST, LARGEST)).unwrap();
        assert!(all.contains(b"999999999999999") && !all.contains(b"1000000000000000"));
    }

    #[test]
    fn numbers_between_bounds() {
        let bound = |at, open| Bound { at, open };
        for lo in -3i64..=3 {
            for hi in lo..=3 {
                for open in 0..4 {
                    let (a, b) = (bound(lo, open & 1 > 0), bound(hi, open & 2 > 0));
                    let automaton = Automaton::new(&between(a, b));
                    for n in -80i32..=80 {
                        // In steps of a twentieth, written with two digits.
                        let text = format!(
                            "{}{}.{:02}",
                            if n < 0 { "-" } else { "" },
                            n.abs() / 20,
                            n.abs() % 20 * 5
                        );
                        let x = f64::from(n) / 20.0;
                        let (lo, hi) = (lo as f64, hi as f64);
                        let fits = (if a.open { x > lo } else { x >= lo })
                            && (if b.open { x < hi } else { x <= hi });
                        let got = automaton.as_ref().is_ok_and(|a| a.contains(text.as_bytes()));
                        // The upper end of a range has no fraction: `3` stands for `3.00`.
                        let end = n % 20 == 0;
                        assert!(got == fits || end && fits, "{text} in {a:?} {b:?}");
                    }
                    for n in -4i64..=4 {
                        let fits = n >= lo + i64::from(a.open) && n <= hi - i64::from(b.open);
                        let got = automaton.as_ref().is_ok_and(|a| a.contains(n.to_string().as_bytes()));
                        assert_eq!(got, fits, "{n} in {a:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn values_of_all_kinds() {
        let a = Automaton::new(&any(2, Style::Json)).unwrap();
        for text in [
            "null",
            "true",
            "-0",
            "-0.5",
            "-12.50e+07",
            "1E9",
            r#""a\n\"é""#,
            "[]",
            "{}",
            "[1, 2,[3]]",
            r#"{"a": [1],"b":{}}"#,
        ] {
            assert!(a.contains(text.as_bytes()), "{text}");
            serde_json::from_str::<Value>(text).unwrap();
        }
        for text in
            ["", "nul", "01", "1.", ".5", "1e", "1e999", "[1,]", "{a:1}", "[[[1]]]", "[1 ,2]", "\"\n\""]
        {
            assert!(!a.contains(text.as_bytes()), "{text}");
        }
        let v = serde_json::json!({"a": [1, "x\u{1}"], "b": null});
        let exactly = Automaton::new(&value(&v, Style::Json)).unwrap();
        assert!(exactly.contains(v.to_string().as_bytes()));
        assert!(
            exactly.contains(b"{\"a\": [1, \"x\\u0001\"], \"b\": null}") && !exactly.contains(b"{\"a\":[1]}")
        );
    }
}
