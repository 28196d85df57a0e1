//! Keeps a template of unknown origin from overflowing the stack.
//!
//! Values of the template engine nest without limit, and printing, comparing and freeing them recurse. A
//! namespace is the one value that can come to contain itself, which no stack survives; so a namespace may
//! only be used for its attributes, which is all that templates use one for. What nests without a cycle is
//! bounded by the budget of a render, and [`STACK`] is large enough for that.

/// Stack of a render: more than the deepest value that the budget of a render can build needs to be freed.
/// It is reserved, not used.
const STACK: usize = 1 << 30;

/// Runs `render` on a thread with a large stack.
///
/// # Errors
/// Those of the system when it refuses the thread.
pub(super) fn on_large_stack<T: Send>(render: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let handle = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        match handle.spawn_scoped(scope, render)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// An identifier in a tag: its text, where it stands, and the characters before and after it that are not
/// white space.
struct Word<'a> {
    text: &'a str,
    at: usize,
    before: Option<char>,
    after: Option<char>,
}

/// The first use of a namespace other than for an attribute: its place in `source` and the name.
pub(super) fn escaping_namespace(source: &str) -> Option<(usize, String)> {
    let words = words(source);
    let made = |i: usize| {
        // `set NAME = namespace(`
        let [set, name, function] = words.get(i.checked_sub(2)?..=i)? else { return None };
        let fine = set.text == "set" && name.after == Some('=') && function.before == Some('=');
        (fine && function.after == Some('(')).then_some(name.text)
    };
    let mut names = Vec::new();
    for (i, w) in words.iter().enumerate() {
        if w.text != "namespace" || w.before == Some('.') {
            continue;
        }
        match made(i) {
            Some(name) => names.push(name),
            None => return Some((w.at, w.text.to_owned())),
        }
    }
    let escapes = |w: &&Word<'_>| {
        names.contains(&w.text) && w.before != Some('.') && !matches!(w.after, Some('.' | '[' | '='))
    };
    words.iter().find(escapes).map(|w| (w.at, w.text.to_owned()))
}

/// The identifiers inside `{% %}` and `{{ }}`, outside strings and comments.
fn words(source: &str) -> Vec<Word<'_>> {
    let mut out: Vec<Word<'_>> = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("{%").into_iter().chain(rest.find("{{")).chain(rest.find("{#")).min() {
        let tag = &rest[at..];
        let close = match &tag[..2] {
            "{%" => "%}",
            "{{" => "}}",
            _ => "#}",
        };
        let inside = if close == "#}" {
            tag.find(close).map_or(tag.len(), |end| end + 2)
        } else {
            let start = source.len() - tag.len() + 2;
            2 + tag_words(&tag[2..], start, close, &mut out)
        };
        rest = tag.get(inside..).unwrap_or_default();
    }
    out
}

/// Adds the identifiers of a tag and returns its length, the closing mark included.
fn tag_words<'a>(tag: &'a str, start: usize, close: &str, out: &mut Vec<Word<'a>>) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut at, mut before) = (0, None);
    while let Some(c) = tag[at..].chars().next() {
        if tag[at..].starts_with(close) {
            return at + close.len();
        }
        let len = match c {
            '"' | '\'' => string_len(&tag[at..], c),
            c if is_word(c) => {
                let text = &tag[at..];
                let len = text.find(|c| !is_word(c)).unwrap_or(text.len());
                let after = text[len..].trim_start().chars().next();
                out.push(Word { text: &text[..len], at: start + at, before, after });
                len
            }
            c => c.len_utf8(),
        };
        if !c.is_whitespace() {
            before = Some(c);
        }
        at += len;
    }
    at
}

/// Length of a string literal with its quotes.
fn string_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return i + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_for_their_attributes() {
        for fine in [
            "{% set ns = namespace(last='', n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "ns {# ns #} {% set ns = namespace() %}{{ 'ns' ~ \"it's ns\" }}{{ tool.ns }}{{ tool.namespace }}{{ ns['n'] }}",
            "{{ namespaces }}{{ f(ns=1) }}",
        ] {
            assert_eq!(escaping_namespace(fine), None, "{fine}");
        }
        for (bad, name) in [
            ("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a }}", "ns"),
            ("{% set ns = namespace() %}{% set ns.a = [ns] %}", "ns"),
            ("{%- set ns=namespace() -%}{% set b = ns %}", "ns"),
            ("{% set ns = namespace() %}{{ ns }}", "ns"),
            ("{% set f = namespace %}{% set ns = f() %}", "namespace"),
            ("{{ namespace(a=1).a }}", "namespace"),
            ("{% set a, b = namespace(), 1 %}", "namespace"),
        ] {
            let (at, found) = escaping_namespace(bad).unwrap_or_else(|| panic!("{bad}"));
            assert_eq!((found.as_str(), bad[at..].starts_with(name)), (name, true), "{bad}");
        }
    }
}
