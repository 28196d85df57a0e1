//! Text on a terminal: what may be printed, how wide it is, where it ends.
//!
//! Whatever comes from a model or a file is hostile until it has passed [`printable`]: a terminal obeys
//! escape sequences, and a model can learn to write them.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// Distance of tab stops.
const TAB: usize = 8;

/// The text with every control character but newline and tab replaced by a visible sign.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| visible(c) == c) {
        Cow::Borrowed(text)
    } else {
        text.chars().map(visible).collect()
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
        // Overrides of the writing direction would reorder the text around them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    }
}

/// Columns of a character that [`printable`] lets pass.
pub(crate) fn char_width(c: char) -> usize {
    UnicodeWidthChar::width(c).unwrap_or(0)
}

/// Columns of a text without newlines.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Spaces instead of each tab, for a text that starts at `column` of its line.
pub(crate) fn expand_tabs(text: &str, mut column: usize) -> Cow<'_, str> {
    if !text.contains('\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + TAB);
    for c in text.chars() {
        match c {
            '\t' => {
                let n = TAB - column % TAB;
                out.extend(std::iter::repeat_n(' ', n));
                column += n;
            }
            '\n' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += char_width(c);
            }
        }
    }
    Cow::Owned(out)
}

/// Row and column after a text without newlines that starts at column 0 of a terminal of `columns`. A full
/// row ends at column 0 of the next one.
pub(crate) fn end_of(text: &str, columns: usize) -> (usize, usize) {
    let columns = columns.max(2);
    let (mut row, mut column) = (0, 0);
    for c in text.chars() {
        let w = char_width(c);
        if column + w > columns {
            (row, column) = (row + 1, 0);
        }
        column += w;
    }
    if column == columns { (row + 1, 0) } else { (row, column) }
}

/// The longest start of a text that is at most `columns` wide.
pub(crate) fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += char_width(c);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        let hostile = "a\x1b[2Jb\x07\r\x7f\u{9b}31m\u{202e}\tc\n";
        let safe = printable(hostile);
        assert_eq!(safe, "a␛[2Jb␇␍␡\u{fffd}31m\u{fffd}\tc\n");
        assert!(safe.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        assert!(matches!(printable("plain — text 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn tabs_reach_the_next_stop() {
        assert_eq!(expand_tabs("a\tb\n\tc", 0), "a       b\n        c");
        assert_eq!(expand_tabs("\tx", 7), " x");
    }

    #[test]
    fn wide_characters_do_not_straddle_the_edge() {
        assert_eq!(end_of("abcd", 4), (1, 0));
        assert_eq!(end_of("abc日", 4), (1, 2));
        assert_eq!(end_of("", 4), (0, 0));
        assert_eq!(end_of("e\u{301}x", 4), (0, 2), "a combining accent takes no column");
    }

    #[test]
    fn cuts_at_a_character() {
        assert_eq!(cut("ab日c", 3), "ab");
        assert_eq!(cut("ab", 9), "ab");
    }
}
