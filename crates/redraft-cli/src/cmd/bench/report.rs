//! Reports of `redraft bench` in files: lines of JSON to collect, and a page for a browser.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::Spread;
use crate::ui::page::{Picture, Table, escaped};
use crate::{files, ui};

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
    /// What stands in the way of the page, before anything is measured. `model` is read.
    ///
    /// # Errors
    /// As [`files::check_result`].
    pub(super) fn check(&self, model: Option<&Path>) -> anyhow::Result<()> {
        let others = [model, self.jsonl.as_deref()];
        let Some(path) = &self.html else { return Ok(()) };
        files::check_result(path, files::Kind::Page, &others).context("--html")
    }

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
            files::write_result(path, files::Kind::Page, page.html().as_bytes()).context("--html")?;
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
        let svg = self.picture();
        let pictures = svg.map(|svg| Picture { svg, caption: String::new() }).into_iter().collect();
        let (facts, tables) = (self.facts.clone(), self.tables.clone());
        ui::page::Page { title: "redraft bench", facts, pictures, tables }.html()
    }

    /// A bar for each median, with a line from the least to the largest.
    fn picture(&self) -> Option<String> {
        let most = self.bars.iter().map(|(_, s)| s.max).fold(0.0, f64::max);
        if most <= 0.0 {
            return None;
        }
        let height = LINE * self.bars.len() as f64;
        let mut out = format!(
            "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"seconds of a step\">"
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
        Some(out)
    }
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
            tables: vec![Table {
                caption: "t".into(),
                head: vec!["x"],
                words: &[],
                rows: vec![vec!["<1".into()]],
            }],
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
