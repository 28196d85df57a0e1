//! A terminal for tests: what would be on the screen after these bytes.

use super::text::char_width;

/// Rows of everything that was ever shown, the scrollback included; the screen is the last `rows` of them.
pub(super) struct Vt {
    columns: usize,
    rows: usize,
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// The cursor waits on the last column for the next character.
    pending: bool,
    pub(super) cursor_visible: bool,
}

impl Vt {
    pub(super) fn new(columns: usize, rows: usize) -> Vt {
        let lines = vec![Vec::new()];
        Vt { columns, rows, lines, row: 0, column: 0, pending: false, cursor_visible: true }
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
                c => self.put(c),
            }
        }
    }

    fn put(&mut self, c: char) {
        let w = char_width(c);
        if self.pending || self.column + w > self.columns {
            self.down();
            self.column = 0;
        }
        let line = &mut self.lines[self.row];
        while line.len() < self.column + w {
            line.push(' ');
        }
        line[self.column] = c;
        if w == 2 {
            line[self.column + 1] = '\0';
        }
        self.column += w;
        if self.column == self.columns {
            (self.column, self.pending) = (self.columns - 1, true);
        }
    }

    fn csi(&mut self, arg: &str, last: &str) {
        let n = arg.parse().unwrap_or(1usize);
        match (arg, last) {
            ("?25", "l") => self.cursor_visible = false,
            ("?25", "h") => self.cursor_visible = true,
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

    /// All rows as text, without empty ones below the cursor.
    pub(super) fn all(&self) -> Vec<String> {
        let mut rows: Vec<String> = self
            .lines
            .iter()
            .map(|l| l.iter().filter(|&&c| c != '\0').collect::<String>().trim_end().to_string())
            .collect();
        while rows.len() > self.row + 1 && rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}
