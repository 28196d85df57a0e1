//! Text on a terminal: what may be printed, how wide it is, where it goes.
//!
//! Whatever comes from a model or a file is hostile until it has passed [`printable`]: a terminal obeys
//! escape sequences, and a model can learn to write them.
//!
//! Widths are those of grapheme clusters. Terminals agree on letters, ideographs and common accents; on joined
//! emoji, flags, variation selectors and young characters they do not. Such glyphs are marked
//! [`risky`](Glyph::risky), and whoever draws them tells the terminal afterwards where the cursor stands.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Distance of tab stops.
const TAB: usize = 8;
const SPACES: &str = "        ";

/// The text with every control character but newline and tab replaced by a visible sign.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| visible(c) == c) {
        Cow::Borrowed(text)
    } else {
        text.chars().map(visible).collect()
    }
}

/// The first characters of a text; where it has more than `most`, its length is told.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()).into(),
        None => text.into(),
    }
}

/// A visible sign for a control character; other characters, newline and tab stay.
fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        // The C1 controls: U+009B alone starts an escape sequence.
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        // Overrides and isolates of the writing direction would reorder the text around them, and their
        // deprecated relatives; annotations hide text.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' => '\u{fffd}',
        // Separators that some terminals take for a line feed.
        '\u{2028}' | '\u{2029}' => '\u{2424}',
        _ => c,
    }
}

/// What occupies its own columns: a grapheme cluster, or the spaces of a tab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glyph<'a> {
    /// What is printed.
    pub(crate) text: Cow<'a, str>,
    /// Columns.
    pub(crate) width: usize,
    /// Terminals disagree on the width.
    pub(crate) risky: bool,
}

impl<'a> Glyph<'a> {
    /// Of a cluster that is neither newline nor tab.
    fn of(cluster: &'a str) -> Glyph<'a> {
        let mut chars = cluster.chars();
        let settled = chars.next().is_some_and(settled) && chars.all(plain_mark);
        let width = cluster.width();
        if settled {
            return Glyph { text: Cow::Borrowed(cluster), width, risky: false };
        }
        match (width, cluster.chars().all(is_mark)) {
            // A mark without a base would go onto whatever stands before it.
            (0, true) => Glyph { text: Cow::Owned(format!("\u{25cc}{cluster}")), width: 1, risky: true },
            // Nothing to see: zero width space, direction marks, soft hyphen.
            (0, false) => Glyph { text: Cow::Borrowed(""), width: 0, risky: false },
            _ => Glyph { text: Cow::Borrowed(cluster), width, risky: true },
        }
    }

    /// The glyph for keeping.
    pub(crate) fn into_owned(self) -> Glyph<'static> {
        Glyph { text: Cow::Owned(self.text.into_owned()), width: self.width, risky: self.risky }
    }
}

/// Characters on whose width terminals agree.
pub(crate) fn settled(c: char) -> bool {
    matches!(c,
        ' '..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{2ff}' | '\u{370}'..='\u{482}' | '\u{48a}'..='\u{58f}'
        | '\u{5d0}'..='\u{5ea}' | '\u{620}'..='\u{64a}' | '\u{1e00}'..='\u{1fff}' | '\u{2010}'..='\u{2027}'
        | '\u{2030}'..='\u{205e}' | '\u{20a0}'..='\u{20c0}' | '\u{2190}'..='\u{2193}' | '\u{21b5}'
        | '\u{2200}'..='\u{22ff}' | '\u{2400}'..='\u{2426}' | '\u{2500}'..='\u{25a8}' | '\u{27e8}' | '\u{27e9}'
        | '\u{3001}'..='\u{3029}' | '\u{3041}'..='\u{3096}' | '\u{30a0}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{ff01}'..='\u{ff60}'
        | '\u{fffd}' | '\u{20000}'..='\u{2fffd}')
}

/// Marks that take no column in any terminal.
fn plain_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5bd}' | '\u{64b}'..='\u{65f}' | '\u{670}')
}

/// Characters that join what stands before them.
fn is_mark(c: char) -> bool {
    // A cluster never ends before such a character.
    let mut pair = String::from("a");
    pair.push(c);
    pair.graphemes(true).count() == 1
}

/// Columns of a character that [`printable`] lets pass.
pub(crate) fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Columns of a text without newlines and tabs.
pub(crate) fn width(text: &str) -> usize {
    // What most cells of tables are; taking text apart into clusters is much slower.
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return text.len();
    }
    place(text, 0, usize::MAX).map(|p| p.glyph.width).sum()
}

/// A glyph in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    /// What is printed.
    pub(crate) glyph: Glyph<'a>,
    /// Offset in the text, in bytes.
    pub(crate) at: usize,
    /// Row, counted from that of the text's start.
    pub(crate) row: usize,
    /// Column of the glyph's left edge.
    pub(crate) column: usize,
    /// It did not fit into the row before, and nothing in the text ends that row.
    pub(crate) wrapped: bool,
}

/// The glyphs of a text that starts at column `start` of a terminal of `columns`, which wraps where the terminal
/// itself would. Newlines and invisible characters are no glyphs.
pub(crate) fn place(text: &str, start: usize, columns: usize) -> impl Iterator<Item = Placed<'_>> {
    let columns = columns.max(2);
    let (mut row, mut column) = (0, start.min(columns));
    text.grapheme_indices(true).filter_map(move |(at, cluster)| {
        if cluster == "\n" {
            (row, column) = (row + 1, 0);
            return None;
        }
        let glyph = match cluster {
            "\t" => {
                let from = if column == columns { 0 } else { column };
                let n = (TAB - from % TAB).min(columns - from);
                Glyph { text: Cow::Borrowed(&SPACES[..n]), width: n, risky: false }
            }
            _ => Glyph::of(cluster),
        };
        if glyph.text.is_empty() {
            return None;
        }
        let wrapped = column + glyph.width > columns;
        if wrapped {
            (row, column) = (row + 1, 0);
        }
        let placed = Placed { at, row, column, wrapped, glyph };
        column += placed.glyph.width;
        Some(placed)
    })
}

/// Row and column after glyphs that start at column 0 of a terminal of `columns`. A full row ends at column 0 of
/// the next one.
pub(crate) fn end_of(glyphs: &[Glyph<'_>], columns: usize) -> (usize, usize) {
    let columns = columns.max(2);
    let (mut row, mut column) = (0, 0);
    for glyph in glyphs {
        if column + glyph.width > columns {
            (row, column) = (row + 1, 0);
        }
        column += glyph.width;
    }
    if column == columns { (row + 1, 0) } else { (row, column) }
}

/// The longest start of a text that is at most `columns` wide.
pub(crate) fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for placed in place(text, 0, usize::MAX) {
        used += placed.glyph.width;
        if used > columns {
            return &text[..placed.at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, columns: usize) -> (usize, usize) {
        let glyphs: Vec<Glyph<'_>> = place(text, 0, columns).map(|p| p.glyph).collect();
        end_of(&glyphs, columns)
    }

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        let hostile = "a\x1b[2Jb\x07\r\x7f\u{9b}31m\u{202e}\u{2028}\tc\n";
        let safe = printable(hostile);
        assert_eq!(safe, "a␛[2Jb␇␍␡\u{fffd}31m\u{fffd}\u{2424}\tc\n");
        assert!(safe.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        assert!(matches!(printable("plain — text 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn glyphs_have_the_width_of_their_cluster() {
        let cases: &[(&str, usize, bool)] = &[
            ("a", 1, false),
            ("é", 1, false),
            ("e\u{301}", 1, false),
            ("日", 2, false),
            ("ש\u{5b8}", 1, false),
            ("🙂", 2, true),
            ("👍🏽", 2, true),
            ("👩\u{200d}👩\u{200d}👧", 2, true),
            ("🇫🇷", 2, true),
            ("❤\u{fe0f}", 2, true),
            ("1\u{fe0f}\u{20e3}", 2, true),
        ];
        for &(text, width, risky) in cases {
            let got: Vec<Glyph<'_>> = place(text, 0, 9).map(|p| p.glyph).collect();
            assert_eq!(got, [Glyph { text: text.into(), width, risky }], "{text}");
        }
        let lone: Vec<Glyph<'_>> = place("\u{301}\u{200b}\u{ad}\u{200f}", 0, 9).map(|p| p.glyph).collect();
        assert_eq!(lone, [Glyph { text: "\u{25cc}\u{301}".into(), width: 1, risky: true }]);
        assert!(
            is_mark('\u{200d}') && is_mark('\u{fe0f}') && is_mark('🏽') && !is_mark('x') && !is_mark('日')
        );
    }

    #[test]
    fn tabs_reach_the_next_stop() {
        let columns = |text, start, columns| -> Vec<_> {
            place(text, start, columns).map(|p| (p.row, p.column, p.glyph.width)).collect()
        };
        assert_eq!(columns("a\tb\n\tc", 0, 20), [(0, 0, 1), (0, 1, 7), (0, 8, 1), (1, 0, 8), (1, 8, 1)]);
        assert_eq!(columns("\tx", 7, 20), [(0, 7, 1), (0, 8, 1)]);
        assert_eq!(columns("\tx", 8, 10), [(0, 8, 2), (1, 0, 1)], "no further than the edge");
        assert_eq!(columns("\t", 10, 10), [(1, 0, 8)]);
    }

    #[test]
    fn wide_characters_do_not_straddle_the_edge() {
        assert_eq!(end("abcd", 4), (1, 0));
        assert_eq!(end("abc日", 4), (1, 2));
        assert_eq!(end("", 4), (0, 0));
        assert_eq!(end("e\u{301}x", 4), (0, 2), "a combining accent takes no column");
    }

    #[test]
    fn cuts_at_a_glyph() {
        assert_eq!(cut("ab日c", 3), "ab");
        assert_eq!(cut("abe\u{301}", 2), "ab");
        assert_eq!(cut("ab", 9), "ab");
    }
}
