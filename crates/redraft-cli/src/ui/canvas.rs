//! The picture of a canvas: a pure function from its state to lines.
//!
//! The canvas continues the committed text: its first line starts at the column where that text ends, and
//! it wraps where the terminal itself would wrap, so that no word moves when a canvas is committed.

use std::ops::Range;

use super::text::{char_width, cut, place, printable, settled, width};
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
    /// A guess, accepted or not, that is a control token: no text of the answer.
    Marker,
    /// It is final.
    Committed,
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

/// Text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) style: Style,
    pub(crate) text: String,
    /// The column after the text, where terminals disagree on its width.
    pub(crate) end: Option<usize>,
}

/// One row of the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    pub(crate) spans: Vec<Span>,
    /// Columns.
    pub(crate) width: usize,
}

impl Line {
    fn push(&mut self, style: Style, text: &str) {
        match self.spans.last_mut() {
            Some(span) if span.style == style && span.end.is_none() => span.text.push_str(text),
            _ => self.spans.push(Span { style, text: text.to_string(), end: None }),
        }
    }

    fn of(style: Style, text: &str) -> Line {
        Line { spans: vec![Span { style, text: text.to_string(), end: None }], width: width(text) }
    }

    /// Whether what terminals make of it may have another width.
    pub(crate) fn risky(&self) -> bool {
        self.spans.iter().any(|s| s.end.is_some())
    }

    /// The text without styles.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(|s| s.text.as_str()).collect()
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
    /// Whether colours can be seen; where not, noise becomes shading.
    pub(crate) color: bool,
}

/// Lines of the canvas, with the lines of the status as the last. Lines that do not fit into the rows of the
/// terminal are left out from below, and the status says how many.
pub(crate) fn lines(cells: &[Cell], status: &[String], area: Area) -> Vec<Line> {
    let columns = area.columns.max(2);
    let start = area.start.min(columns - 1);
    let (text, styles) = shown(cells, area.color);
    let mut styles = styles.into_iter();
    let mut style = styles.next();
    let mut lines = vec![Line::default()];
    for p in place(&text, start, columns) {
        while style.as_ref().is_some_and(|(range, _)| range.end <= p.at) {
            style = styles.next();
        }
        lines.resize_with(lines.len().max(p.row + 1), Line::default);
        let (Some(line), Some((_, style))) = (lines.get_mut(p.row), &style) else { continue };
        line.push(*style, &p.glyph.text);
        let end = p.column + p.glyph.width;
        line.width = end - if p.row == 0 { start } else { 0 };
        if let Some(span) = line.spans.last_mut().filter(|_| p.glyph.risky) {
            span.end = Some(end);
        }
    }
    // Newlines at the end make lines, too.
    let newlines = text.bytes().rev().take_while(|&b| b == b'\n').count();
    lines.resize_with(lines.len() + newlines, Line::default);
    // A canvas of nothing needs no line of its own, unless the committed text stands on it.
    if start == 0 && lines.len() == 1 && lines[0].spans.is_empty() {
        lines.clear();
    }
    let rows = area.rows.max(2);
    // The first line of the status stays, whatever else does not fit.
    let n_status = status.len().min((rows / 2).max(1));
    let room = rows - n_status;
    let hidden = lines.len().saturating_sub(room);
    lines.truncate(room);
    for (i, text) in status.iter().take(n_status).enumerate() {
        let text = match (i, hidden) {
            (0, 1) => format!("+1 line · {text}"),
            (0, 2..) => format!("+{hidden} lines · {text}"),
            _ => text.clone(),
        };
        lines.push(Line::of(Style::Status, fitting(&text, columns)));
    }
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

/// The text of all cells, and the style of each stretch of it.
fn shown(cells: &[Cell], color: bool) -> (String, Vec<(Range<usize>, Style)>) {
    let mut text = String::new();
    let mut styles = Vec::with_capacity(cells.len());
    for cell in cells {
        let from = text.len();
        let style = match cell.state {
            State::Noise => Style::Noise,
            State::Draft => Style::Draft,
            State::Accepted => Style::Accepted,
            State::Marker => Style::Marker,
            State::Committed => Style::Committed,
        };
        match (cell.state, color) {
            (State::Noise, true) => text.extend(printable(&cell.text).chars().map(noise)),
            (State::Noise, false) => text.push_str(&"░".repeat(width(&printable(&cell.text)).clamp(1, 12))),
            _ => text.push_str(&printable(&cell.text)),
        }
        styles.push((from..text.len(), style));
    }
    (text, styles)
}

/// Noise stays on its line and joins nothing: what could is a sign.
fn noise(c: char) -> char {
    match c {
        '\n' | '\t' => '↵',
        _ if settled(c) && char_width(c) > 0 => c,
        _ => '·',
    }
}

/// Entropies in nats from which on a bar is the next higher one.
const BARS: [(f32, char); 8] =
    [(0.005, '▁'), (0.02, '▂'), (0.1, '▃'), (0.3, '▄'), (0.7, '▅'), (1.5, '▆'), (3.0, '▇'), (5.0, '█')];

/// A line of bars, one for each stretch of the canvas: the mean entropy there, on a scale that is the same for all
/// canvases. Empty without positions.
pub(crate) fn entropy_bars(entropy: &[f32], columns: usize) -> String {
    let label = "entropy ";
    let bars = columns.saturating_sub(label.len()).clamp(1, 64).min(entropy.len().max(1));
    let bar = |i: usize| {
        let stretch = &entropy[i * entropy.len() / bars..(i + 1) * entropy.len() / bars];
        let mean = stretch.iter().sum::<f32>() / stretch.len().max(1) as f32;
        BARS.iter().rev().find(|b| mean >= b.0).map_or(' ', |b| b.1)
    };
    if entropy.is_empty() {
        String::new()
    } else {
        (0..bars).map(bar).fold(label.to_string(), |s, c| s + &c.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, state: State) -> Cell {
        Cell { text: text.into(), state }
    }

    fn area(start: usize, columns: usize, rows: usize) -> Area {
        Area { start, columns, rows, color: true }
    }

    fn lines(cells: &[Cell], status: &str, area: Area) -> Vec<Line> {
        super::lines(cells, &[status.to_string()], area)
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
        assert_eq!(l[0].spans, want.map(|(style, t)| Span { style, text: t.to_string(), end: None }));
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
    fn without_colours_noise_is_shading() {
        let cells = [cell("Paris", State::Accepted), cell(" qx", State::Noise), cell("", State::Noise)];
        let l = lines(&cells, "s", Area { color: false, ..area(0, 20, 5) });
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

    #[test]
    fn clusters_over_several_cells_are_one_glyph() {
        let cells = [cell("👩", State::Draft), cell("\u{200d}👧x", State::Accepted)];
        let l = lines(&cells, "s", area(0, 20, 5));
        let span = |style, text: &str, end| Span { style, text: text.into(), end };
        let want = [span(Style::Draft, "👩\u{200d}👧", Some(2)), span(Style::Accepted, "x", None)];
        assert_eq!((&l[0].spans[..], l[0].width, l[0].risky()), (&want[..], 3, true));
        // Noise never joins its neighbours.
        let cells = [cell("👩", State::Draft), cell("\u{200d}👧\u{301}日", State::Noise)];
        assert_eq!(lines(&cells, "s", area(0, 20, 5))[0].text(), "👩···日");
    }

    #[test]
    fn a_small_screen_keeps_the_first_line_of_the_status() {
        let status = ["a".to_string(), "b".to_string()];
        let cells = [cell("1\n2\n3", State::Draft)];
        let shown = |rows| texts(&super::lines(&cells, &status, area(0, 20, rows)));
        assert_eq!(shown(9), ["1", "2", "3", "a", "b"]);
        assert_eq!(shown(4), ["1", "2", "+1 line · a", "b"]);
        assert_eq!(shown(2), ["1", "+2 lines · a"]);
    }

    #[test]
    fn bars_are_means_on_a_fixed_scale() {
        assert_eq!(entropy_bars(&[0.0, 0.01, 0.5, 9.0], 80), "entropy  ▁▄█");
        assert_eq!(entropy_bars(&[0.0, 0.2, 4.0, 4.0], 10), "entropy ▃▇");
        assert_eq!(entropy_bars(&[], 80), "");
        assert_eq!(entropy_bars(&[1.0], 0), "entropy ▅");
    }
}
