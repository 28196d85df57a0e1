//! Tables of text.

use super::text::{printable, width};

/// Rows of cells with a heading, columns as wide as their widest cell. Columns named in `right` are aligned
/// to the right. The last column is not padded.
pub(crate) fn table(heading: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|r| r.iter().map(|c| printable(c).replace('\n', "␊")).collect()).collect();
    let head: Vec<String> = heading.iter().map(|h| (*h).to_string()).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let widths: Vec<usize> =
        (0..head.len()).map(|i| all().map(|r| r.get(i).map_or(0, |c| width(c))).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in all() {
        let mut line = String::from("  ");
        for (i, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[i] - width(cell));
            match right.contains(&i) {
                true => line.push_str(&format!("{pad}{cell}  ")),
                false => line.push_str(&format!("{cell}{pad}  ")),
            }
        }
        out.push_str(line.trim_end());
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
