//! Keeps a template of unknown origin from overflowing the stack.
//!
//! Values of the template engine nest without limit, and printing, comparing and freeing them recurse. A
//! namespace is the one value that can come to contain itself, which no stack survives; so a namespace may
//! only be used for its attributes, which is all that templates use one for. What nests without a cycle is
//! bounded by the budget of a render, and [`STACK`] is large enough for that.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::machinery::Token;

/// Stack of reading and rendering: more than the deepest value that the budget of a render can build needs to be freed.
/// It is reserved, not used.
const STACK: usize = 1 << 30;

thread_local! {
    /// Whether this thread has [`STACK`].
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread with a large stack, which is this one when it has it.
///
/// Templates are read and rendered on such a thread. Each call starts one, which is nothing beside the work of a
/// model; who renders many prompts in a row does so inside one call of this function.
///
/// # Errors
/// Those of the system when it refuses the thread.
pub fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    if IS_LARGE.get() {
        return Ok(work());
    }
    let work = || {
        IS_LARGE.set(true);
        work()
    };
    std::thread::scope(|scope| {
        let handle = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        match handle.spawn_scoped(scope, work)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The first use of a namespace other than for an attribute: its place in the source and the name.
pub(super) fn escaping_namespace(tokens: &[(Token<'_>, Range<usize>)]) -> Option<(usize, String)> {
    let before = |i: usize, n: usize| i.checked_sub(n).map(|i| &tokens[i].0);
    let after = |i: usize| tokens.get(i + 1).map(|t| &t.0);
    let mut names = BTreeSet::new();
    for (i, (token, range)) in tokens.iter().enumerate() {
        if !matches!(token, Token::Ident("namespace")) || matches!(before(i, 1), Some(Token::Dot)) {
            continue;
        }
        // `set NAME = namespace(`
        match (before(i, 3), before(i, 2), before(i, 1), after(i)) {
            (
                Some(Token::Ident("set")),
                Some(Token::Ident(name)),
                Some(Token::Assign),
                Some(Token::ParenOpen),
            ) => {
                names.insert(*name);
            }
            _ => return Some((range.start, "namespace".to_owned())),
        }
    }
    tokens.iter().enumerate().find_map(|(i, (token, range))| {
        let Token::Ident(name) = token else { return None };
        let fine = matches!(before(i, 1), Some(Token::Dot))
            || matches!(after(i), Some(Token::Dot | Token::BracketOpen | Token::Assign));
        (names.contains(name) && !fine).then(|| (range.start, (*name).to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use minijinja::syntax::SyntaxConfig;

    use super::super::rewrite::tokens;

    fn escaping_namespace(source: &str) -> Option<(usize, String)> {
        super::escaping_namespace(&tokens(source, SyntaxConfig::default()).unwrap())
    }

    #[test]
    fn work_inside_work_stays_on_its_thread() {
        let id = || std::thread::current().id();
        let inner = || super::on_large_stack(id).unwrap();
        let (outer, inner) = super::on_large_stack(|| (id(), inner())).unwrap();
        assert!(outer == inner && outer != id());
        assert_ne!(super::on_large_stack(id).unwrap(), id(), "the thread that asked has no large stack");
    }

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
            ("{% raw %}\"{% endraw %}{% set ns = namespace() %}{% set ns.a = ns %}{# \" #}", "ns"),
            ("{% set a, b = namespace(), 1 %}", "namespace"),
        ] {
            let (at, found) = escaping_namespace(bad).unwrap_or_else(|| panic!("{bad}"));
            assert_eq!((found.as_str(), bad[at..].starts_with(name)), (name, true), "{bad}");
        }
    }
}
