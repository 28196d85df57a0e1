//! The page for people: its files, which are part of the program.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// What the page may do: ask this server, and run and show what this server sent as a file.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; style-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Paths, types and texts.
pub(crate) const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/page.css", CSS, include_str!("page/page.css")),
    ("/page/page.js", JS, include_str!("page/page.js")),
    ("/page/answer.js", JS, include_str!("page/answer.js")),
    ("/page/canvas.js", JS, include_str!("page/canvas.js")),
    ("/page/common.js", JS, include_str!("page/common.js")),
    ("/page/recording.js", JS, include_str!("page/recording.js")),
    ("/page/server.js", JS, include_str!("page/server.js")),
    ("/page/settings.js", JS, include_str!("page/settings.js")),
];

/// Whether a path needs no key because the page is there.
pub(crate) fn is_page(path: &str) -> bool {
    FILES.iter().any(|(p, ..)| *p == path)
}

/// Adds the files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    FILES
        .iter()
        .fold(router, |router, &(path, kind, text)| router.route(path, get(async move || file(kind, text))))
}

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        // Another version of the program may listen here next time.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands between `begin` and the next `end`, everywhere.
    fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
        text.split(begin).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
    }

    #[test]
    fn files_ask_for_each_other_and_for_nothing_else() {
        let html = FILES[0].2;
        let mut wanted: Vec<String> = Vec::new();
        wanted
            .extend(between(html, "<link rel=\"stylesheet\" href=\"", "\"").iter().map(|f| format!("/{f}")));
        wanted.extend(between(html, "<script type=\"module\" src=\"", "\"").iter().map(|f| format!("/{f}")));
        assert_eq!(wanted, ["/page/page.css", "/page/page.js"]);
        for (path, kind, text) in FILES {
            if kind == JS {
                for file in between(text, "} from \"", "\"") {
                    wanted.push(format!("/page/{}", file.strip_prefix("./").unwrap()));
                }
            }
            let own = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains("http:") && !own.contains("https:"), "{path}");
            assert!(!text.contains("innerHTML") && !text.contains("import("), "{path}");
        }
        wanted.sort();
        wanted.dedup();
        let mut there: Vec<&str> = FILES[1..].iter().map(|(path, ..)| *path).collect();
        there.sort_unstable();
        assert_eq!(wanted, there);
        // What the policy forbids.
        assert!(!html.contains("<style") && !html.contains(" style="));
        assert!(!html.split_whitespace().any(|word| word.starts_with("on") && word.contains('=')));
        assert_eq!(html.matches("<script").count(), 1);
    }
}
