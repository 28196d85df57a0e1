//! Draws canvases in place, in the middle of an ordinary terminal: no full screen, no alternate screen.
//!
//! Committed text is printed once, as plain text that the terminal wraps and keeps in its scrollback; the
//! picture of the canvas stands below it and is rewritten in place, only where lines changed, inside
//! synchronized output (private mode 2026) where the terminal has it. Between frames the cursor rests at the
//! start of the last line of the picture.
//!
//! The terminal never wraps a line of the picture (mode 7 is off while it is drawn), and after each glyph on
//! whose width terminals disagree the cursor is put where it should be. So no text can push the picture out of
//! its place.

use std::io::{self, Stdout, Write};
use std::time::{Duration, Instant};

use super::canvas::{Area, Cell, Line, lines};
use super::hold;
use super::text::{Glyph, Placed, end_of, place, printable};
use super::theme::{Style, Theme};

/// Least time between two frames: 30 a second.
const FRAME: Duration = Duration::from_millis(33);

const SYNC_BEGIN: &str = "\x1b[?2026h";
/// Ends synchronized output.
pub(crate) const SYNC_END: &str = "\x1b[?2026l";
const HIDE_CURSOR: &str = "\x1b[?25l";
/// Shows the cursor.
pub(crate) const SHOW_CURSOR: &str = "\x1b[?25h";
const WRAP_OFF: &str = "\x1b[?7l";
/// Lets the terminal wrap lines that are too long.
pub(crate) const WRAP_ON: &str = "\x1b[?7h";
const CLEAR_LINE_END: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Columns and rows of the terminal, 80 x 24 where it does not say.
pub(crate) fn terminal_size() -> (usize, usize) {
    let (columns, rows) = crossterm::terminal::size().unwrap_or((80, 24));
    if columns < 2 || rows < 2 { (80, 24) } else { (columns.into(), rows.into()) }
}

/// stdout, written to in one go: what suspends or ends the program never comes between the parts of a frame.
pub(crate) struct Screen(Stdout);

impl Screen {
    /// Of this process.
    pub(crate) fn new() -> Screen {
        Screen(io::stdout())
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = self.0.lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A glyph, and where the cursor stands after it if terminals disagree.
fn fixed(p: &Placed<'_>, columns: usize) -> String {
    let text = &p.glyph.text;
    let end = p.column + p.glyph.width;
    match (p.glyph.risky, end < columns) {
        (false, _) => text.to_string(),
        (true, true) => format!("{WRAP_OFF}{text}{WRAP_ON}\x1b[{}G{CLEAR_LINE_END}", end + 1),
        (true, false) => format!("{WRAP_OFF}{text}{WRAP_ON}\x1b[{columns}G"),
    }
}

/// The picture on the terminal.
pub(crate) struct Live<W: Write> {
    out: W,
    theme: Theme,
    size: fn() -> (usize, usize),
    /// Committed text since its last newline: the line that the picture continues.
    tail: Vec<Glyph<'static>>,
    /// What the terminal shows, and for which width and start column.
    drawn: Vec<Line>,
    drawn_columns: usize,
    drawn_start: usize,
    last_frame: Option<Instant>,
    cursor_hidden: bool,
    /// How often the program had been suspended when it last wrote.
    epoch: u64,
}

impl<W: Write> Live<W> {
    /// A picture that is not yet there. The cursor must be at the start of a line.
    pub(crate) fn new(out: W, theme: Theme, size: fn() -> (usize, usize)) -> Live<W> {
        Live {
            out,
            theme,
            size,
            tail: Vec::new(),
            drawn: Vec::new(),
            drawn_columns: 0,
            drawn_start: 0,
            last_frame: None,
            cursor_hidden: false,
            epoch: hold::epoch(),
        }
    }

    /// Whether a frame at `now` would be drawn.
    pub(crate) fn due(&self, now: Instant) -> bool {
        self.last_frame.is_none_or(|last| now.duration_since(last) >= FRAME)
    }

    /// Draws the canvas and the lines of its status. Nothing while the program runs in the background.
    pub(crate) fn frame(&mut self, cells: &[Cell], status: &[String], now: Instant) -> io::Result<()> {
        if hold::in_background() {
            return Ok(());
        }
        self.last_frame = Some(now);
        let (columns, rows) = (self.size)();
        let start = end_of(&self.tail, columns).1;
        let new = lines(cells, status, Area { start, columns, rows, color: self.theme.color });
        let mut s = self.resumed();
        s.push_str(SYNC_BEGIN);
        s.push_str(HIDE_CURSOR);
        if self.drawn_columns == columns && self.drawn_start == start {
            s.push_str(&self.to_start(columns, start));
        } else {
            s.push_str(&self.erase(columns, start));
            self.drawn.clear();
        }
        s.push_str(WRAP_OFF);
        for (i, line) in new.iter().enumerate() {
            let from = if i == 0 { start } else { 0 };
            if i > 0 {
                // Only a new line at the bottom may scroll the screen.
                s.push_str(if i < self.drawn.len() { "\r\x1b[B" } else { "\r\n" });
            }
            if self.drawn.get(i) != Some(line) {
                s.push_str(&self.row(line, from, columns));
            }
        }
        if self.drawn.len() > new.len() {
            s.push_str(CLEAR_BELOW);
        }
        s.push('\r');
        s.push_str(WRAP_ON);
        s.push_str(SYNC_END);
        self.drawn = new;
        self.drawn_columns = columns;
        self.drawn_start = start;
        self.cursor_hidden = true;
        self.write(&s)
    }

    /// A line of the picture from column `from` on.
    fn row(&self, line: &Line, from: usize, columns: usize) -> String {
        let mut s = format!("\x1b[{}G", from + 1);
        if line.risky() {
            // A glyph that is narrower than it should be would leave old text beside it.
            s.push_str(CLEAR_LINE_END);
        }
        for span in &line.spans {
            s.push_str(self.theme.start(span.style));
            s.push_str(&span.text);
            s.push_str(self.theme.end(span.style));
            if let Some(end) = span.end {
                s.push_str(&format!("\x1b[{}G", end.min(columns - 1) + 1));
            }
        }
        // After the last column the cursor stands on top of it, and clearing would take it away.
        if from + line.width < columns {
            s.push_str(CLEAR_LINE_END);
        }
        s
    }

    /// Replaces the picture by final text.
    pub(crate) fn commit(&mut self, text: &str) -> io::Result<()> {
        let columns = (self.size)().0;
        let text = printable(text);
        let mut s = self.resumed();
        let start = end_of(&self.tail, columns).1;
        s.push_str(SYNC_BEGIN);
        s.push_str(&self.erase(columns, start));
        s.push_str(self.theme.start(Style::Committed));
        let mut risky = false;
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                s.push_str("\r\n");
                self.tail.clear();
                risky = false;
            }
            for p in place(line, if i == 0 { start } else { 0 }, columns) {
                if p.wrapped && (risky || p.glyph.risky) {
                    // The terminal itself wraps where it thinks that the row is full, which may be elsewhere.
                    s.push_str("\r\n");
                }
                risky = p.glyph.risky;
                s.push_str(&fixed(&p, columns));
                self.tail.push(p.glyph.into_owned());
            }
        }
        s.push_str(self.theme.end(Style::Committed));
        if !self.tail.is_empty() && !text.is_empty() && end_of(&self.tail, columns).1 == 0 {
            // The row is full and the cursor waits on its last column. A space moves on to the next row as
            // the terminal's own wrapping, which copying undoes.
            s.push_str(if risky { "\r\n" } else { " \r" });
            s.push_str(CLEAR_LINE_END);
        }
        s.push_str(SYNC_END);
        self.drawn.clear();
        self.write(&s)
    }

    /// Takes the picture away, ends the last line of the committed text and shows the cursor again.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let columns = (self.size)().0;
        let mut s = self.resumed();
        let start = end_of(&self.tail, columns).1;
        s.push_str(&self.erase(columns, start));
        if start > 0 {
            s.push_str("\r\n");
        }
        if std::mem::take(&mut self.cursor_hidden) {
            s.push_str(SHOW_CURSOR);
        }
        self.drawn.clear();
        self.tail.clear();
        self.write(&s)
    }

    /// After the program was suspended the cursor is at the start of some later line: the line that the picture
    /// continues is written there again.
    fn resumed(&mut self) -> String {
        if std::mem::replace(&mut self.epoch, hold::epoch()) == self.epoch {
            return String::new();
        }
        self.drawn.clear();
        let mut s = String::from("\r");
        let columns = (self.size)().0;
        let text: String = self.tail.iter().map(|g| &*g.text).collect();
        place(&text, 0, columns).for_each(|p| s.push_str(&fixed(&p, columns)));
        if !text.is_empty() && end_of(&self.tail, columns).1 == 0 {
            s.push_str(" \r");
        }
        s
    }

    /// Moves from the resting place of the cursor to where the picture starts.
    fn to_start(&self, columns: usize, start: usize) -> String {
        match self.rows_below_start(columns) {
            0 => format!("\r\x1b[{}G", start + 1),
            up => format!("\r\x1b[{up}A\x1b[{}G", start + 1),
        }
    }

    /// Moves to where the picture starts and takes it away, row by row: there are terminals that move what is
    /// cleared into the scrollback when the whole screen is.
    fn erase(&self, columns: usize, start: usize) -> String {
        let mut s = self.to_start(columns, start);
        let Some(last) = self.drawn.last() else { return s };
        let rows = self.rows_below_start(columns) + last.width.div_ceil(columns.max(2)).max(1) - 1;
        s.push_str(CLEAR_LINE_END);
        for _ in 0..rows {
            s.push_str("\r\x1b[B");
            s.push_str(CLEAR_LINE_END);
        }
        if rows > 0 {
            s.push_str(&format!("\x1b[{rows}A"));
        }
        s.push_str(&format!("\r\x1b[{}G", start + 1));
        s
    }

    /// Rows between the start of the picture and the cursor. After a change of width the terminal has
    /// wrapped anew what it shows, the line that the picture continues included.
    fn rows_below_start(&self, columns: usize) -> usize {
        let Some((_, above)) = self.drawn.split_last() else { return 0 };
        let Some((first, others)) = above.split_first() else { return 0 };
        if columns == self.drawn_columns {
            return above.len();
        }
        let columns = columns.max(2);
        let rows = |width: usize| width.div_ceil(columns).max(1);
        let (start_row, start) = end_of(&self.tail, columns);
        let before = start_row * columns + start;
        let first_rows = rows(before + first.width).max(start_row + 1) - start_row;
        first_rows + others.iter().map(|l| rows(l.width)).sum::<usize>()
    }

    fn write(&mut self, s: &str) -> io::Result<()> {
        self.out.write_all(s.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Live<W> {
    /// An error left the picture on the terminal.
    fn drop(&mut self) {
        if !self.drawn.is_empty() {
            // The error itself is what the user hears of.
            let _ = self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::canvas::State;
    use super::super::vt::{Vt, Widths};
    use super::*;

    const PLAIN: Theme = Theme { color: true };

    fn size() -> (usize, usize) {
        (20, 6)
    }

    fn cells(texts: &[&str]) -> Vec<Cell> {
        texts.iter().map(|t| Cell { text: t.to_string(), state: State::Draft }).collect()
    }

    fn status(text: &str) -> [String; 1] {
        [text.to_string()]
    }

    fn live() -> Live<Vec<u8>> {
        Live::new(Vec::new(), PLAIN, size)
    }

    /// What a terminal of 20 x 6 shows after the bytes so far.
    fn screen(live: &Live<Vec<u8>>) -> Vec<String> {
        let mut vt = Vt::new(20, 6, Widths::Clusters);
        vt.feed(&String::from_utf8(live.out.clone()).unwrap());
        vt.all()
    }

    #[test]
    fn frames_replace_each_other_in_place() {
        let mut l = live();
        let now = Instant::now();
        l.frame(&cells(&["one ", "two\n", "three\n", "four"]), &status("s1"), now).unwrap();
        assert_eq!(screen(&l), ["one two", "three", "four", "s1"]);
        l.frame(&cells(&["one ", "2\n", "three"]), &status("s2"), now).unwrap();
        assert_eq!(screen(&l), ["one 2", "three", "s2"]);
        l.frame(&cells(&["x\n", "three\n", "y\n", "z"]), &status("s2"), now).unwrap();
        assert_eq!(screen(&l), ["x", "three", "y", "z", "s2"]);
        l.commit("final").unwrap();
        l.finish().unwrap();
        assert_eq!(screen(&l), ["final", ""]);
    }

    #[test]
    fn unchanged_lines_are_not_written_again() {
        let mut l = live();
        let now = Instant::now();
        l.frame(&cells(&["same\n", "a"]), &status("s"), now).unwrap();
        let before = l.out.len();
        l.frame(&cells(&["same\n", "b"]), &status("s"), now).unwrap();
        let written = String::from_utf8(l.out[before..].to_vec()).unwrap();
        assert!(!written.contains("same") && written.contains('b'), "{written:?}");
    }

    #[test]
    fn the_canvas_continues_the_committed_line() {
        let mut l = live();
        let now = Instant::now();
        l.commit("Once upon").unwrap();
        l.frame(&cells(&[" a", " time there was", "\nend"]), &status("s"), now).unwrap();
        assert_eq!(screen(&l), ["Once upon a time the", "re was", "end", "s"]);
        l.commit(" a time there was\n").unwrap();
        l.frame(&cells(&["more"]), &status("s"), now).unwrap();
        assert_eq!(screen(&l), ["Once upon a time the", "re was", "more", "s"]);
        l.commit("more").unwrap();
        l.finish().unwrap();
        assert_eq!(screen(&l), ["Once upon a time the", "re was", "more", ""]);
    }

    #[test]
    fn a_full_row_moves_on_without_a_newline() {
        let mut l = live();
        l.commit("12345678901234567890").unwrap();
        l.frame(&cells(&["next"]), &status("s"), Instant::now()).unwrap();
        assert_eq!(screen(&l), ["12345678901234567890", "next", "s"]);
        l.commit("next").unwrap();
        l.finish().unwrap();
        assert_eq!(screen(&l), ["12345678901234567890", "next", ""]);
    }

    #[test]
    fn the_scrollback_keeps_committed_text_once() {
        let mut l = live();
        let now = Instant::now();
        for i in 0..5 {
            let text = format!("{i}a\n{i}b\n{i}c\n");
            l.frame(&cells(&[&text.to_uppercase()]), &status("s"), now).unwrap();
            l.commit(&text).unwrap();
        }
        l.finish().unwrap();
        let want: Vec<String> = (0..5).flat_map(|i| ["a", "b", "c"].map(|c| format!("{i}{c}"))).collect();
        assert_eq!(screen(&l)[..15], want);
    }

    #[test]
    fn a_canvas_as_tall_as_the_screen_leaves_nothing_behind() {
        let mut l = live();
        let now = Instant::now();
        l.commit("start\n").unwrap();
        let tall = (0..9).map(|i| format!("{i}\n")).collect::<String>();
        l.frame(&cells(&[&tall]), &status("s"), now).unwrap();
        l.frame(&cells(&[&tall]), &status("t"), now).unwrap();
        l.commit("end\n").unwrap();
        l.finish().unwrap();
        assert_eq!(screen(&l), ["start", "end", ""]);
    }

    #[test]
    fn an_error_takes_the_picture_away_and_shows_the_cursor() {
        let mut out = Vec::new();
        let mut l = Live::new(&mut out, PLAIN, size);
        l.commit("kept").unwrap();
        l.frame(&cells(&["draft"]), &status("s"), Instant::now()).unwrap();
        drop(l);
        let mut vt = Vt::new(20, 6, Widths::Clusters);
        vt.feed(std::str::from_utf8(&out).unwrap());
        assert_eq!((vt.all(), vt.cursor_visible), (vec!["kept".to_string(), String::new()], true));
    }

    #[test]
    fn at_most_thirty_frames_a_second() {
        let mut l = live();
        let now = Instant::now();
        assert!(l.due(now));
        l.frame(&[], &status("s"), now).unwrap();
        assert!(!l.due(now + Duration::from_millis(20)));
        assert!(l.due(now + Duration::from_millis(34)));
    }

    #[test]
    fn a_narrower_terminal_has_more_rows_above_the_cursor() {
        let mut l = live();
        l.commit("1234567890").unwrap();
        l.frame(&cells(&["abcdefgh\n", "123456789012345"]), &status("status"), Instant::now()).unwrap();
        assert_eq!(l.rows_below_start(20), 2);
        // 8 wide: 1234567890abcdefgh takes 3 rows, of which the picture starts on the second.
        assert_eq!(l.rows_below_start(8), 2 + 2);
        assert_eq!(l.rows_below_start(40), 2);
    }

    #[test]
    fn after_a_suspension_the_picture_starts_anew_below() {
        let mut l = live();
        let now = Instant::now();
        l.commit("one\nand a tail").unwrap();
        l.frame(&cells(&[" draft"]), &status("s"), now).unwrap();
        l.out.extend_from_slice(b"\r\nshell\r\n");
        l.epoch += 1;
        l.frame(&cells(&[" draft 2"]), &status("s"), now).unwrap();
        assert_eq!(screen(&l), ["one", "and a tail draft", "s", "shell", "and a tail draft 2", "s"]);
        l.commit(" end").unwrap();
        l.finish().unwrap();
        assert_eq!(screen(&l)[3..], ["shell", "and a tail end", ""]);
    }

    /// Texts on whose width terminals disagree, or that move the cursor, or that a terminal obeys.
    const NASTY: &[&str] = &[
        "a",
        "bc ",
        "word",
        "\n",
        "\t",
        "é",
        "e\u{301}",
        "\u{301}",
        "日本",
        "ｱ",
        "한",
        "\u{1112}\u{1161}",
        "🙂",
        "👍🏽",
        "👩\u{200d}👩\u{200d}👧",
        "🇫🇷",
        "🇫",
        "❤\u{fe0f}",
        "1\u{fe0f}\u{20e3}",
        "\u{200d}",
        "\u{fe0f}",
        "🏽",
        "שלום",
        "مَر",
        "क्षि",
        "ก็",
        "\u{200f}",
        "\u{202e}",
        "\x1b[2J",
        "\u{9b}5A",
        "\r",
        "\u{ad}",
        "\u{200b}",
        "\u{feff}",
        "\u{2028}",
        "",
    ];

    fn nasty() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::sample::select(NASTY), 0..14).prop_map(|x| x.concat())
    }

    fn canvas() -> impl Strategy<Value = Vec<Cell>> {
        let state = proptest::sample::select(&[State::Noise, State::Draft, State::Accepted][..]);
        let text = prop_oneof![nasty(), proptest::sample::select(NASTY).prop_map(String::from)];
        proptest::collection::vec((text, state).prop_map(|(text, state)| Cell { text, state }), 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever width a terminal gives to a glyph: each line of the picture is as wide as computed, and after
        /// the answer the terminal shows what it shows when only the text is written.
        #[test]
        fn nothing_is_left_behind(
            canvases in proptest::collection::vec((proptest::collection::vec(canvas(), 1..4), nasty()), 1..4),
            widths in proptest::sample::select(&[Widths::Clusters, Widths::Chars, Widths::Narrow][..]),
        ) {
            let mut l = live();
            let mut text_only = live();
            let now = Instant::now();
            for (frames, text) in &canvases {
                for cells in frames {
                    l.frame(cells, &status("st"), now).unwrap();
                    let mut vt = Vt::new(20, 6, widths);
                    vt.feed(std::str::from_utf8(&l.out).unwrap());
                    let rows = vt.all();
                    prop_assert!(rows.last().is_some_and(|l| l.ends_with("st")), "{:?}", rows);
                    prop_assert!(vt.wraps);
                    let below = vt.row();
                    for (i, line) in l.drawn.iter().enumerate() {
                        let from = if i == 0 { l.drawn_start } else { 0 };
                        let row = below + 1 + i - l.drawn.len();
                        prop_assert!(vt.used(row) <= from + line.width, "{:?} {:?}", line, rows);
                    }
                }
                l.commit(text).unwrap();
                text_only.commit(text).unwrap();
            }
            l.finish().unwrap();
            text_only.finish().unwrap();
            let shown = |l: &Live<Vec<u8>>| {
                let mut vt = Vt::new(20, 6, widths);
                vt.feed(std::str::from_utf8(&l.out).unwrap());
                (vt.all(), vt.row())
            };
            let (got, row) = shown(&l);
            let (want, want_row) = shown(&text_only);
            prop_assert_eq!(got, want);
            prop_assert_eq!(row, want_row);
        }
    }
}
