//! A terminal for tests: what would be on the screen after these bytes.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use super::text::char_width;

/// How a terminal measures what it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Widths {
    /// Grapheme clusters, as the Unicode standard has them.
    Clusters,
    /// Character by character: joined emoji stand side by side.
    Chars,
    /// Character by character, and emoji are as narrow as in an old font.
    Narrow,
}

/// Rows of everything that was ever shown, the scrollback included; the screen is the last `rows` of them.
pub(super) struct Vt {
    columns: usize,
    rows: usize,
    widths: Widths,
    /// Cells; the second cell of a wide glyph is empty.
    lines: Vec<Vec<String>>,
    row: usize,
    column: usize,
    /// The cursor waits on the last column for the next character.
    pending: bool,
    /// Row and column of the last glyph, while a mark can still join it.
    last: Option<(usize, usize)>,
    pub(super) cursor_visible: bool,
    /// Mode 7.
    pub(super) wraps: bool,
}

impl Vt {
    pub(super) fn new(columns: usize, rows: usize, widths: Widths) -> Vt {
        Vt {
            columns,
            rows,
            widths,
            lines: vec![Vec::new()],
            row: 0,
            column: 0,
            pending: false,
            last: None,
            cursor_visible: true,
            wraps: true,
        }
    }

    fn top(&self) -> usize {
        self.lines.len().saturating_sub(self.rows)
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push(Vec::new());
        }
        self.pending = false;
    }

    pub(super) fn feed(&mut self, s: &str) {
        let mut chars = s.chars();
        while let Some(c) = chars.next() {
            if c.is_control() {
                self.last = None;
            }
            match c {
                '\r' => (self.column, self.pending) = (0, false),
                '\n' => self.down(),
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['), "only CSI sequences");
                    let rest = chars.as_str();
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).expect("a final character");
                    self.csi(&rest[..end], &rest[end..=end]);
                    chars = rest[end + 1..].chars();
                }
                c => {
                    assert!(!c.is_control(), "{c:?}");
                    self.put(c);
                }
            }
        }
    }

    fn width(&self, c: char) -> usize {
        match self.widths {
            Widths::Narrow if char_width(c) == 2 && c > '\u{1f000}' && c < '\u{20000}' => 1,
            _ => char_width(c),
        }
    }

    fn put(&mut self, c: char) {
        if let Some((row, column)) = self.last {
            let joined = format!("{}{c}", self.lines[row][column]);
            let joins = match self.widths {
                Widths::Clusters => joined.graphemes(true).count() == 1,
                Widths::Chars | Widths::Narrow => self.width(c) == 0,
            };
            if joins {
                // A variation selector can make a glyph wide.
                let wider = self.widths == Widths::Clusters
                    && joined.width() == 2
                    && self.column == column + 1
                    && column + 2 <= self.columns
                    && !self.pending;
                self.lines[row][column] = joined;
                if wider {
                    self.occupy(column + 1, String::new());
                    self.moved_to(column + 2);
                }
                return;
            }
        }
        let w = self.width(c);
        if w == 0 {
            return;
        }
        if self.wraps && (self.pending || self.column + w > self.columns) {
            self.down();
            self.column = 0;
        }
        // Without wrapping the last columns are written over.
        let column = self.column.min(self.columns - w);
        self.occupy(column, c.to_string());
        if w == 2 {
            self.occupy(column + 1, String::new());
        }
        self.last = Some((self.row, column));
        self.moved_to(column + w);
    }

    fn moved_to(&mut self, column: usize) {
        self.pending = column == self.columns && self.wraps;
        self.column = column.min(self.columns - 1);
    }

    /// Sets one cell; half a wide glyph is no glyph.
    fn occupy(&mut self, column: usize, text: String) {
        let line = &mut self.lines[self.row];
        while line.len() <= column {
            line.push(" ".into());
        }
        if line[column].is_empty() && column > 0 && !text.is_empty() {
            line[column - 1] = " ".into();
        }
        if line.get(column + 1).is_some_and(String::is_empty) {
            line[column + 1] = " ".into();
        }
        line[column] = text;
    }

    fn csi(&mut self, arg: &str, last: &str) {
        let n = arg.parse().unwrap_or(1usize);
        match (arg, last) {
            ("?25", "l") => self.cursor_visible = false,
            ("?25", "h") => self.cursor_visible = true,
            ("?7", "l") => self.wraps = false,
            ("?7", "h") => self.wraps = true,
            ("?2026", "h" | "l") | (_, "m") => {}
            (_, "A") => (self.row, self.pending) = (self.row.saturating_sub(n).max(self.top()), false),
            (_, "B") => {
                (self.row, self.pending) = ((self.row + n).min(self.top() + self.rows - 1), false);
                while self.lines.len() <= self.row {
                    self.lines.push(Vec::new());
                }
            }
            (_, "G") => (self.column, self.pending) = ((n - 1).min(self.columns - 1), false),
            ("", "K") => self.lines[self.row].truncate(self.column),
            ("", "J") => {
                self.lines[self.row].truncate(self.column);
                let row = self.row;
                self.lines[row + 1..].iter_mut().for_each(Vec::clear);
            }
            _ => panic!("unknown sequence ESC [ {arg} {last}"),
        }
    }

    /// The row of the cursor, counted from the first one ever.
    pub(super) fn row(&self) -> usize {
        self.row
    }

    /// Columns of a row up to its last glyph.
    pub(super) fn used(&self, row: usize) -> usize {
        self.lines[row].iter().rposition(|cell| cell != " ").map_or(0, |at| at + 1)
    }

    /// All rows as text, without empty ones below the cursor.
    pub(super) fn all(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.lines.iter().map(|l| l.concat().trim_end().to_string()).collect();
        while rows.len() > self.row + 1 && rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}
