//! A report as one page for a browser: it needs no other file, asks nothing of the network, and shows texts of others as
//! texts.

use std::fmt::Write as _;

/// A page.
pub(crate) struct Page {
    pub(crate) title: &'static str,
    /// What it is about: a line each.
    pub(crate) facts: Vec<String>,
    pub(crate) pictures: Vec<Picture>,
    pub(crate) tables: Vec<Table>,
}

/// A picture.
pub(crate) struct Picture {
    /// An `<svg>` element, its texts [`escaped`]. What is to be seen on dark and bright pages has the color
    /// `currentColor`.
    pub(crate) svg: String,
    /// What it shows, in words; may be empty.
    pub(crate) caption: String,
}

/// A table.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) head: Vec<&'static str>,
    /// Columns of words, which begin at the left; the others are of numbers.
    pub(crate) words: &'static [usize],
    pub(crate) rows: Vec<Vec<String>>,
}

// `.bars` are pictures whose shapes have no colors of their own.
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    :root{color-scheme:light dark}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
    caption{text-align:left;font-weight:600}th,td{padding:.2rem .8rem;border-bottom:1px solid #8886;text-align:right;\
    white-space:nowrap}.w{text-align:left}figure{margin:1rem 0}svg{width:100%;height:auto}\
    .bars text{font-size:13px;fill:currentColor}.bars rect{fill:#4a7fd0}.bars line{stroke:currentColor}";

/// What tells a page of this program from others.
pub(crate) const MARK: &str = "<meta name=\"generator\" content=\"redraft\">";

impl Page {
    /// The text of the file.
    pub(crate) fn html(&self) -> String {
        let title = escaped(self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{MARK}\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>"
        );
        out.push_str(&self.facts.iter().map(|f| escaped(f)).collect::<Vec<_>>().join("<br>\n"));
        out.push_str("</p>\n");
        for picture in &self.pictures {
            let caption = escaped(&picture.caption);
            let _ = write!(out, "<figure>\n{}<figcaption>{caption}</figcaption></figure>\n", picture.svg);
        }
        for table in &self.tables {
            let cell = |tag: &str, (i, text): (usize, &str)| {
                let class = if table.words.contains(&i) { " class=\"w\"" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", escaped(text))
            };
            let row = |cells: String| format!("<tr>{cells}</tr>\n");
            let head = row(table.head.iter().copied().enumerate().map(|c| cell("th", c)).collect());
            let cells =
                |r: &Vec<String>| r.iter().map(String::as_str).enumerate().map(|c| cell("td", c)).collect();
            let rows: String = table.rows.iter().map(|r| row(cells(r))).collect();
            let _ =
                write!(out, "<table><caption>{}</caption>\n{head}{rows}</table>\n", escaped(&table.caption));
        }
        out.push_str("</body></html>\n");
        out
    }
}

/// Text of a page, whatever a model or a command is called.
pub(crate) fn escaped(text: &str) -> String {
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
    fn texts_of_others_stay_texts() {
        let text = || "<script>&\"".to_string();
        let page = Page {
            title: "t",
            facts: vec![text()],
            pictures: vec![Picture { svg: "<svg></svg>\n".into(), caption: text() }],
            tables: vec![Table {
                caption: text(),
                head: vec!["x"],
                words: &[0],
                rows: vec![vec![text(), "1".into()]],
            }],
        };
        let html = page.html();
        assert_eq!(html.matches("&lt;script&gt;&amp;&quot;").count(), 4, "{html}");
        assert!(
            !html.contains("<script>")
                && html.contains("<tr><td class=\"w\">&lt;script&gt;&amp;&quot;</td><td>1</td></tr>")
        );
    }
}
