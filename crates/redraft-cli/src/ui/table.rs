//! Tables of text.

use std::borrow::Cow;

use super::text::{printable, width};

/// Rows of cells with a heading, columns as wide as their widest cell. Columns named in `right` are aligned
/// to the right. The last column is not padded.
pub(crate) fn table(heading: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    long_table(heading, right, || rows.iter().cloned())
}

/// [`table`] for rows that are made anew each time, so that never more than one of them is in memory: a million
/// short rows would take half a gigabyte.
pub(crate) fn long_table<R: Iterator<Item = Vec<String>>>(
    heading: &[&str],
    right: &[usize],
    rows: impl Fn() -> R,
) -> String {
    let cell = |c: String| {
        let changed = match printable(&c) {
            Cow::Borrowed(text) if !text.contains('\n') => None,
            shown => Some(shown.replace('\n', "␊")),
        };
        changed.unwrap_or(c)
    };
    let shown = |row: Vec<String>| -> Vec<String> { row.into_iter().map(cell).collect() };
    let head: Vec<String> = heading.iter().map(|h| (*h).to_string()).collect();
    let all = || std::iter::once(head.clone()).chain(rows().map(shown));
    let mut widths = vec![0; head.len()];
    for row in all() {
        widths.iter_mut().zip(&row).for_each(|(w, cell)| *w = width(cell).max(*w));
    }
    let mut out = String::new();
    for row in all() {
        let start = out.len();
        out.push_str("  ");
        for (i, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[i] - width(cell));
            let (before, after) = if right.contains(&i) { (pad.as_str(), "") } else { ("", pad.as_str()) };
            for part in [before, cell, after, "  "] {
                out.push_str(part);
            }
        }
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            [vec!["a".into(), "1".into(), "x\ny".into()], vec!["日本".into(), "22".into(), String::new()]];
        let want = "  name   n  note\n  a      1  x␊y\n  日本  22\n";
        assert_eq!(table(&["name", "n", "note"], &[1], &rows), want);
    }
}
