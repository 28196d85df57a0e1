//! Texts with gaps: `The capital is [[3]].`
//!
//! A gap is `[[N]]`, of N tokens, or `[[]]`, of a length that is found; `[[...]]` and `[[…]]` are the same. Of three or more
//! brackets the last two begin it. `\[[` is the two brackets themselves; backslashes right before two brackets are
//! written twice, elsewhere they stand for themselves.

/// Tokens of a gap at most.
pub const MAX_GAP: usize = 65_536;

/// A part of a text with gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text that is given.
    Text(String),
    /// A gap of so many tokens, or of a length that is to be found.
    Gap(Option<usize>),
}

/// What is wrong with a text with gaps.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FillError {
    /// Nothing to fill.
    #[error("there is no gap in the text: [[3]] is one of three tokens, [[]] one of any length")]
    NoGap,
    /// A gap without its end.
    #[error(
        "the gap at character {at} has no end: expected ]] after it (\\[[ stands for the brackets themselves)"
    )]
    Unclosed {
        /// Characters before its brackets, plus one.
        at: usize,
    },
    /// Something else between the brackets.
    #[error(
        "the gap at character {at}: expected nothing, ... or a number of tokens in 1..={MAX_GAP} between the brackets, \
         found {found} (\\[[ stands for the brackets themselves)"
    )]
    Length {
        /// Characters before its brackets, plus one.
        at: usize,
        /// What is there.
        found: String,
    },
    /// Nothing says where one gap ends and the next begins.
    #[error(
        "gap {gap} is of any length and gap {} follows it without text between them, which would say where it ends: \
         give it a length, as in [[3]]", gap + 1
    )]
    Adjacent {
        /// The first of the two, counted from 1.
        gap: usize,
    },
}

/// Longest text between brackets that an error quotes.
const QUOTED: usize = 40;

/// The parts of a text, at least one of which is a gap. Texts are not empty, and no two follow each other.
///
/// ```
/// use redraft::fill::{Segment, parse};
///
/// let text = |s: &str| Segment::Text(s.into());
/// assert_eq!(parse("a[[3]] [[]]")?, [text("a"), Segment::Gap(Some(3)), text(" "), Segment::Gap(None)]);
/// assert_eq!(parse(r"x\[[0]] = [[2]]")?, [text("x[[0]] = "), Segment::Gap(Some(2))]);
/// # Ok::<(), redraft::fill::FillError>(())
/// ```
///
/// # Errors
/// [`FillError`], with the place.
pub fn parse(text: &str) -> Result<Vec<Segment>, FillError> {
    let place = |at: usize| text[..at].chars().count() + 1;
    let mut segments = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let slashes = rest.len() - rest.trim_start_matches('\\').len();
        let run = &rest[slashes..];
        let brackets = run.len() - run.trim_start_matches('[').len();
        if brackets < 2 {
            // Up to the next character that means something, this one included.
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let len = rest[first..].find(['\\', '[']).map_or(rest.len(), |i| first + i);
            let len = if slashes > 0 { slashes } else { len };
            literal.push_str(&rest[..len]);
            at += len;
            continue;
        }
        literal.extend(std::iter::repeat_n('\\', slashes / 2));
        if slashes % 2 == 1 {
            literal.push_str("[[");
            at += slashes + 2;
            continue;
        }
        literal.extend(std::iter::repeat_n('[', brackets - 2));
        let opens = at + slashes + brackets - 2;
        let body = &text[opens + 2..];
        let end = body.find("]]").ok_or_else(|| FillError::Unclosed { at: place(opens) })?;
        if !literal.is_empty() {
            segments.push(Segment::Text(std::mem::take(&mut literal)));
        }
        segments.push(Segment::Gap(length(&body[..end], || place(opens))?));
        at = opens + 2 + end + 2;
    }
    if !literal.is_empty() {
        segments.push(Segment::Text(literal));
    }
    if !segments.iter().any(|s| matches!(s, Segment::Gap(_))) {
        return Err(FillError::NoGap);
    }
    check_adjacent(&segments)?;
    Ok(segments)
}

/// `at` says the place of its gap, which takes a look at all text before it.
fn length(body: &str, at: impl Fn() -> usize) -> Result<Option<usize>, FillError> {
    let digits = |body: &str| !body.is_empty() && body.bytes().all(|b| b.is_ascii_digit());
    match body.trim() {
        "" | "..." | "…" => Ok(None),
        n => n.parse().ok().filter(|k| digits(n) && (1..=MAX_GAP).contains(k)).map(Some).ok_or_else(|| {
            let mut found: String = n.chars().take(QUOTED).collect();
            if found.len() < n.len() {
                found.push('…');
            }
            FillError::Length { at: at(), found }
        }),
    }
}

fn check_adjacent(segments: &[Segment]) -> Result<(), FillError> {
    let mut gaps = 0;
    // Whether the last gap is of any length, and nothing but white space came after it.
    let mut free = false;
    for segment in segments {
        match segment {
            Segment::Text(text) => free &= text.trim().is_empty(),
            Segment::Gap(len) => {
                if free {
                    return Err(FillError::Adjacent { gap: gaps });
                }
                gaps += 1;
                free = len.is_none();
            }
        }
    }
    Ok(())
}

/// The text that [`parse`] takes apart into these parts.
pub fn print(segments: &[Segment]) -> String {
    let mut out = String::new();
    for (i, segment) in segments.iter().enumerate() {
        match segment {
            Segment::Gap(None) => out.push_str("[[]]"),
            Segment::Gap(Some(n)) => out.push_str(&format!("[[{n}]]")),
            Segment::Text(text) => {
                let gap_follows = matches!(segments.get(i + 1), Some(Segment::Gap(_)));
                print_text(text, gap_follows, &mut out);
            }
        }
    }
    out
}

fn print_text(text: &str, gap_follows: bool, out: &mut String) {
    let mut rest = text;
    while !rest.is_empty() {
        let slashes = rest.len() - rest.trim_start_matches('\\').len();
        let run = &rest[slashes..];
        let after = run.trim_start_matches('[');
        let brackets = run.len() - after.len();
        let meant = brackets >= 2 || gap_follows && after.is_empty() && slashes + brackets > 0;
        out.extend(std::iter::repeat_n('\\', if meant { 2 * slashes } else { slashes }));
        out.extend(std::iter::repeat_n("\\[[", brackets / 2));
        out.extend(std::iter::repeat_n('[', brackets % 2));
        rest = after;
        if slashes + brackets == 0 {
            let len = rest.find(['\\', '[']).unwrap_or(rest.len());
            out.push_str(&rest[..len]);
            rest = &rest[len..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(s: &str) -> Segment {
        Segment::Text(s.into())
    }

    const FREE: Segment = Segment::Gap(None);

    fn gap(n: usize) -> Segment {
        Segment::Gap(Some(n))
    }

    #[test]
    fn gaps_and_text() {
        for (written, want) in [
            ("[[1]]", vec![gap(1)]),
            ("[[]]", vec![FREE]),
            ("[[...]]x[[…]]", vec![FREE, text("x"), FREE]),
            ("a [[ 12 ]] b", vec![text("a "), gap(12), text(" b")]),
            ("[[2]][[3]][[]]", vec![gap(2), gap(3), FREE]),
            ("é[1]\\n[[65536]]]", vec![text("é[1]\\n"), gap(65536), text("]")]),
            ("x = [[[3]]]", vec![text("x = ["), gap(3), text("]")]),
            (r"\[[3]] [[4]]", vec![text("[[3]] "), gap(4)]),
            (r"\\[[3]]", vec![text(r"\"), gap(3)]),
            (r"\\\[[3]][[1]]", vec![text(r"\[[3]]"), gap(1)]),
            (r"\[ [\ [[3]]", vec![text(r"\[ [\ "), gap(3)]),
        ] {
            assert_eq!(parse(written), Ok(want), "{written}");
        }
    }

    #[test]
    fn what_is_no_gap_is_an_error_with_its_place() {
        let error = |s: &str| parse(s).unwrap_err().to_string();
        for none in ["", "text", "[3]", r"\[[3]]", r"\[[[3]]", "[ [3]]"] {
            assert_eq!(parse(none), Err(FillError::NoGap), "{none}");
        }
        assert!(error("é [[3").starts_with("the gap at character 3 has no end: expected ]]"));
        assert!(error("[[3]] [[").starts_with("the gap at character 7 has no end"));
        for wrong in
            ["0", "65537", "99999999", "99999999999999999999999", "-1", "+1", "1.5", "x", "1, 2], [3"]
        {
            let e = error(&format!("a[[{wrong}]]"));
            assert!(e.starts_with("the gap at character 2: expected nothing, ... or a number"), "{e}");
            assert!(e.contains(&format!("found {wrong} (")) && e.contains("1..=65536"), "{e}");
        }
        assert!(error(&format!("[[{}]]", "é".repeat(99))).contains(&format!("found {}… (", "é".repeat(40))));
        for two in ["[[]][[]]", "[[]] [[2]]", "a[[3]] [[]] \n[[5]]"] {
            assert!(error(two).contains("without text between them"), "{}", error(two));
        }
        assert!(error("a[[3]] [[]] \n[[5]]").starts_with("gap 2 is of any length and gap 3 follows"));
        assert!(parse("[[3]] [[3]] [[]]").is_ok());
    }

    /// The place of a gap is looked for in all text before it, which nobody does for gaps that are right.
    #[test]
    fn many_gaps_take_no_longer_each() {
        let n = 1_000_000;
        let segments = parse(&"é[[1]]".repeat(n)).unwrap();
        assert!(segments.len() == 2 * n && segments[2 * n - 1] == gap(1));
    }

    proptest! {
        #[test]
        fn anything_parses_or_is_an_error(s in r"[\[\]\\0-9. a…\n]{0,24}") {
            if let Ok(segments) = parse(&s) {
                prop_assert_eq!(parse(&print(&segments)), Ok(segments));
            }
        }

        #[test]
        fn what_is_printed_parses_again(
            texts in prop::collection::vec(r"[\[\]\\3a]{0,9}", 1..5),
            gaps in prop::collection::vec(prop::option::of(1usize..=MAX_GAP), 1..5),
        ) {
            let mut segments = Vec::new();
            for (i, gap) in gaps.iter().enumerate() {
                segments.extend(texts.get(i).filter(|t| !t.is_empty()).map(|t| text(t)));
                segments.push(Segment::Gap(*gap));
            }
            segments.extend(texts.get(gaps.len()).filter(|t| !t.is_empty()).map(|t| text(t)));
            if check_adjacent(&segments).is_ok() {
                prop_assert_eq!(parse(&print(&segments)), Ok(segments));
            }
        }
    }
}
