//! The picture of a canvas: a pure function from its state to lines.
//!
//! The canvas continues the committed text: its first line starts at the column where that text ends, and
//! it wraps where the terminal itself would wrap, so that no word moves when a canvas is committed.

use super::text::{char_width, cut, expand_tabs, printable, width};
use super::theme::Style;

/// What is known of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Noise.
    Noise,
    /// The model's present guess.
    Draft,
    /// Its guess entered the canvas.
    Accepted,
}

/// One position of the canvas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its piece of text, as it came out of the model.
    pub(crate) text: String,
    /// What is known of it.
    pub(crate) state: State,
}

/// Figures below the canvas.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Status {
    /// Canvas, counted from 1.
    pub(crate) canvas: usize,
    /// Step, counted from 1.
    pub(crate) step: usize,
    /// Steps at most.
    pub(crate) steps_max: usize,
    /// Accepted positions.
    pub(crate) accepted: usize,
    /// Positions.
    pub(crate) canvas_len: usize,
    /// Mean entropy in nats.
    pub(crate) mean_entropy: f32,
    /// Milliseconds of a step, mean over the canvas.
    pub(crate) ms_per_step: f64,
    /// Tokens that the user has got, per second; none before the first canvas is committed.
    pub(crate) tok_s: Option<f64>,
}

impl Status {
    /// One line of text.
    pub(crate) fn line(&self) -> String {
        let Status { canvas, step, steps_max, accepted, canvas_len, mean_entropy, ms_per_step, tok_s } = self;
        // One digit after the point where there is room for it.
        let short = |x: f64| if x < 10.0 { format!("{x:.1}") } else { format!("{x:.0}") };
        let speed = tok_s.map_or(String::new(), |t| format!(" · {} tok/s", short(t)));
        format!(
            "canvas {canvas} step {step}/{steps_max} · accepted {accepted}/{canvas_len} · entropy \
             {mean_entropy:.3} · {} ms/step{speed}",
            short(*ms_per_step)
        )
    }
}

/// One row of the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    /// Texts with their styles; neighbours differ in style.
    pub(crate) spans: Vec<(Style, String)>,
    /// Columns.
    pub(crate) width: usize,
}

impl Line {
    fn push(&mut self, style: Style, c: char) {
        match self.spans.last_mut() {
            Some((s, text)) if *s == style => text.push(c),
            _ => self.spans.push((style, c.to_string())),
        }
        self.width += char_width(c);
    }

    fn of(style: Style, text: &str) -> Line {
        Line { spans: vec![(style, text.to_string())], width: width(text) }
    }

    /// The text without styles.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(|s| s.1.as_str()).collect()
    }
}

/// What the picture has to fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// Column at which the first line starts.
    pub(crate) start: usize,
    /// Columns of the terminal.
    pub(crate) columns: usize,
    /// Rows of the terminal.
    pub(crate) rows: usize,
    /// Whether styles can be seen; where not, noise becomes shading.
    pub(crate) styled: bool,
}

/// Lines of the canvas with the status line as the last. Lines that do not fit into the rows of the terminal
/// are left out from below, and the status line says how many.
pub(crate) fn lines(cells: &[Cell], status: &str, area: Area) -> Vec<Line> {
    let columns = area.columns.max(2);
    let mut lines = vec![Line::default()];
    let mut column = area.start.min(columns - 1);
    for cell in cells {
        let style = match cell.state {
            State::Noise => Style::Noise,
            State::Draft => Style::Draft,
            State::Accepted => Style::Accepted,
        };
        for c in shown(cell, column, area.styled).chars() {
            let w = char_width(c);
            if c == '\n' || column + w > columns {
                lines.push(Line::default());
                column = 0;
            }
            if c != '\n'
                && let Some(line) = lines.last_mut()
            {
                line.push(style, c);
                column += w;
            }
        }
    }
    // A canvas of nothing needs no line of its own, unless the committed text stands on it.
    if area.start == 0 && lines.len() == 1 && lines[0].spans.is_empty() {
        lines.clear();
    }
    let room = area.rows.max(2) - 1;
    let hidden = lines.len().saturating_sub(room);
    lines.truncate(room);
    let status = match hidden {
        0 => status.to_string(),
        1 => format!("+1 line · {status}"),
        n => format!("+{n} lines · {status}"),
    };
    lines.push(Line::of(Style::Status, fitting(&status, columns)));
    lines
}

/// As many of the status line's figures as fit, from the left.
fn fitting(status: &str, columns: usize) -> &str {
    let mut rest = status;
    while width(rest) > columns {
        match rest.rfind(" · ") {
            Some(at) => rest = &rest[..at],
            None => return cut(rest, columns),
        }
    }
    rest
}

/// What a cell shows. Noise stays on its line: its newlines and tabs are signs.
fn shown(cell: &Cell, column: usize, styled: bool) -> String {
    let text = printable(&cell.text);
    match (cell.state, styled) {
        (State::Noise, true) => text.chars().map(|c| if c == '\n' || c == '\t' { '↵' } else { c }).collect(),
        (State::Noise, false) => "░".repeat(width(&text).clamp(1, 12)),
        _ => expand_tabs(&text, column).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, state: State) -> Cell {
        Cell { text: text.into(), state }
    }

    fn area(start: usize, columns: usize, rows: usize) -> Area {
        Area { start, columns, rows, styled: true }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn spans_follow_states_and_the_status_is_last() {
        let cells = [
            cell("The", State::Accepted),
            cell(" capital", State::Accepted),
            cell(" of", State::Draft),
            cell("\nzz", State::Noise),
        ];
        let l = lines(&cells, "step 1/2", area(0, 40, 10));
        assert_eq!(texts(&l), ["The capital of↵zz", "step 1/2"]);
        let want = [(Style::Accepted, "The capital"), (Style::Draft, " of"), (Style::Noise, "↵zz")];
        assert_eq!(l[0].spans, want.map(|(s, t)| (s, t.to_string())));
        assert_eq!(l[0].width, 17);
    }

    #[test]
    fn wraps_at_the_width_from_the_start_column_on() {
        let cells = [cell("abcdef", State::Draft), cell("日本", State::Draft)];
        let l = lines(&cells, "s", area(3, 5, 10));
        assert_eq!(texts(&l), ["ab", "cdef", "日本", "s"], "a wide character does not straddle the edge");
        assert!(l.iter().all(|l| l.width <= 5));
    }

    #[test]
    fn draft_newlines_break_lines_and_tabs_are_spaces() {
        let cells = [cell("a\n", State::Draft), cell("\n", State::Accepted), cell("\tb", State::Draft)];
        assert_eq!(texts(&lines(&cells, "s", area(0, 20, 10))), ["a", "", "        b", "s"]);
    }

    #[test]
    fn a_canvas_taller_than_the_screen_is_cut_and_says_so() {
        let cells: Vec<Cell> = (0..10).map(|i| cell(&format!("{i}\n"), State::Draft)).collect();
        assert_eq!(texts(&lines(&cells, "st", area(0, 20, 4))), ["0", "1", "2", "+8 lines · st"]);
        assert_eq!(lines(&cells, "st", area(0, 20, 0)).len(), 2, "even on a screen without rows");
    }

    #[test]
    fn control_characters_are_signs() {
        let cells = [cell("\x1b[31m", State::Draft), cell("\u{9b}", State::Noise)];
        assert_eq!(texts(&lines(&cells, "s", area(0, 20, 5)))[0], "␛[31m\u{fffd}");
    }

    #[test]
    fn without_styles_noise_is_shading() {
        let cells = [cell("Paris", State::Accepted), cell(" qx", State::Noise), cell("", State::Noise)];
        let l = lines(&cells, "s", Area { styled: false, ..area(0, 20, 5) });
        assert_eq!(l[0].text(), "Paris░░░░");
    }

    #[test]
    fn an_empty_canvas_is_its_status_alone() {
        assert_eq!(texts(&lines(&[], "prompt 3/9", area(0, 20, 5))), ["prompt 3/9"]);
        assert_eq!(texts(&lines(&[], "s", area(4, 20, 5))), ["", "s"], "below the committed text");
    }

    #[test]
    fn the_status_line_is_cut_to_the_terminal() {
        let status =
            Status { canvas: 1, step: 3, steps_max: 48, accepted: 7, canvas_len: 32, ..Status::default() };
        assert_eq!(status.line(), "canvas 1 step 3/48 · accepted 7/32 · entropy 0.000 · 0.0 ms/step");
        let fast = Status { tok_s: Some(12.34), ms_per_step: 31.4, ..status };
        assert!(fast.line().ends_with("31 ms/step · 12 tok/s"), "{}", fast.line());
        let shown = |columns| lines(&[], &status.line(), area(0, columns, 5))[0].text();
        assert_eq!(shown(40), "canvas 1 step 3/48 · accepted 7/32");
        assert_eq!(shown(9), "canvas 1 ");
        let usual =
            Status { canvas: 2, step: 12, accepted: 216, canvas_len: 256, ms_per_step: 168.0, ..fast };
        assert!(width(&usual.line()) <= 80, "a common terminal shows all of it");
    }
}
