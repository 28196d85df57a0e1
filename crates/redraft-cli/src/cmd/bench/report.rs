//! Reports of `redraft bench` in files: lines of JSON to collect, and a page for a browser.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::Spread;

/// Files of a report.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Files")]
pub(super) struct ReportArgs {
    /// Append the object of --json to FILE, as one line.
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,

    /// Write a page for a browser, which needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ReportArgs {
    /// Writes the files that are asked for.
    ///
    /// # Errors
    /// A file that cannot be written, with its name.
    pub(super) fn write(&self, report: &impl Serialize, page: &Page) -> anyhow::Result<()> {
        if let Some(path) = &self.jsonl {
            let line = serde_json::to_string(report)? + "\n";
            let append = |path: &Path| -> std::io::Result<()> {
                std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
            };
            append(path).with_context(|| format!("--jsonl {}", path.display()))?;
        }
        if let Some(path) = &self.html {
            std::fs::write(path, page.html()).with_context(|| format!("--html {}", path.display()))?;
        }
        Ok(())
    }
}

/// What a page shows.
pub(super) struct Page {
    /// What was measured, where and how: a line each.
    pub(super) facts: Vec<String>,
    /// Times, with a bar each.
    pub(super) bars: Vec<(String, Spread)>,
    pub(super) tables: Vec<Table>,
}

/// A table of a page.
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    :root{color-scheme:light dark}table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;font-weight:600}\
    th,td{padding:.2rem .8rem;border-bottom:1px solid #8886;text-align:right}\
    th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}text{font-size:13px;fill:currentColor}\
    rect{fill:#4a7fd0}line{stroke:currentColor}";

/// The picture, in its own units: its width.
const WIDTH: f64 = 800.0;
/// Where bars begin.
const BEGIN: f64 = 200.0;
/// Length of the longest bar with its line.
const LONGEST: f64 = 420.0;
/// Height of a line.
const LINE: f64 = 26.0;

impl Page {
    fn html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>redraft bench</title>\
             <style>{STYLE}</style></head><body>\n<h1>redraft bench</h1>\n<p>"
        );
        out.push_str(&self.facts.iter().map(|f| escaped(f)).collect::<Vec<_>>().join("<br>\n"));
        out.push_str("</p>\n");
        self.picture(&mut out);
        for table in &self.tables {
            let row = |cells: Vec<String>, tag: &str| {
                let cells = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escaped(c)));
                format!("<tr>{}</tr>\n", cells.collect::<String>())
            };
            let head = row(table.head.iter().map(ToString::to_string).collect(), "th");
            let rows: String = table.rows.iter().map(|r| row(r.clone(), "td")).collect();
            let _ =
                write!(out, "<table><caption>{}</caption>\n{head}{rows}</table>\n", escaped(&table.caption));
        }
        out.push_str("</body></html>\n");
        out
    }

    /// A bar for each median, with a line from the least to the largest.
    fn picture(&self, out: &mut String) {
        let most = self.bars.iter().map(|(_, s)| s.max).fold(0.0, f64::max);
        if most <= 0.0 {
            return;
        }
        let height = LINE * self.bars.len() as f64;
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"seconds of a step\">"
        );
        for (i, (label, s)) in self.bars.iter().enumerate() {
            let y = LINE * i as f64;
            let x = |seconds: f64| BEGIN + LONGEST * seconds / most;
            let (middle, text) = (y + LINE / 2.0, y + LINE / 2.0 + 4.0);
            let _ = writeln!(
                out,
                "<text x=\"0\" y=\"{text}\">{}</text><rect x=\"{BEGIN}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>\
                 <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
                 <text x=\"{:.1}\" y=\"{text}\">{} s</text>",
                escaped(label),
                y + 4.0,
                x(s.median) - BEGIN,
                LINE - 8.0,
                x(s.min),
                x(s.max),
                x(s.max) + 8.0,
                s.text(),
            );
        }
        out.push_str("</svg>\n");
    }
}

/// Text of a page, whatever a model or a command is called.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_medians_and_is_not_broken_by_names() {
        let page = Page {
            facts: vec!["<script>&\"".into()],
            bars: vec![
                ("a <b>".into(), Spread::of(vec![1.0, 2.0, 4.0]).unwrap()),
                ("b".into(), Spread::of(vec![1.0]).unwrap()),
            ],
            tables: vec![Table { caption: "t".into(), head: vec!["x"], rows: vec![vec!["<1".into()]] }],
        };
        let html = page.html();
        assert!(html.contains("&lt;script&gt;&amp;&quot;") && !html.contains("<script>"), "{html}");
        assert!(html.contains("<td>&lt;1</td>") && html.contains("a &lt;b&gt;"), "{html}");
        // The largest is as long as bars are; a median of 2 of 4 is half of that.
        assert!(html.contains("width=\"210.0\"") && html.contains("x2=\"620.0\""), "{html}");
        assert!(html.contains("2.000 (1.000 .. 4.000) s"), "{html}");
        let none = Page { bars: vec![], ..page };
        assert!(!none.html().contains("<svg"));
    }
}
