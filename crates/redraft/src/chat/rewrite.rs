//! Prepares the source of a template, so that the lists and maps that it makes are counted.
//!
//! These places are put through the function that [`super::meter`] stands behind: literals (`[…]`, `{…}`,
//! `(…, …)`), what `set`, `with` and a `set` block assign, what a `for` goes through, the parameters of macros,
//! and the argument of a recursive loop. A value that a template can give a name to, and so use again, has passed one of them. The
//! tokens are those of the template engine itself. Line breaks stay where they are.

use std::ops::Range;

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::ChatError;

/// A prepared source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(super) source: String,
    /// The name of the function that admits values.
    pub(super) function: String,
    /// What was put in: offset in the original, text. Ascending.
    inserts: Vec<(usize, String)>,
}

/// Tokens in all tags of a template, and in one; tags of a template; bytes of a string and of a line in it. All
/// are far more than templates in use have. Each token can cost a few hundred bytes and a stack frame, and each tag a
/// variable. The engine folds constants from the top of an expression and then from each of its parts: that takes the
/// square of the words in a tag.
const MAX_TOKENS: usize = 50_000;
const MAX_TAG_TOKENS: usize = 2_000;
const MAX_TAGS: usize = 5_000;
const MAX_STRING: usize = 16 << 10;
const MAX_LINE: usize = 64_000;

/// The tokens of a source.
///
/// # Errors
/// The source exceeds a limit; those of the engine.
pub(super) fn tokens(
    source: &str,
    syntax: SyntaxConfig,
) -> Result<Vec<(Token<'_>, Range<usize>)>, ChatError> {
    let mut out = Vec::new();
    let (mut tags, mut in_tag) = (0, 0);
    // The engine counts columns in 16 bits, and a mistake further right is one of its own.
    let long = |line: &&str| line.len() > MAX_LINE;
    if let Some((i, line)) = source.lines().enumerate().find(|(_, line)| long(line)) {
        let what = "bytes of a line";
        return Err(ChatError::TooComplex { line: i + 1, what, found: line.len(), max: MAX_LINE });
    }
    for token in tokenize(source, false, syntax) {
        let (token, span) = token.map_err(|e| ChatError::syntax(source, None, &e))?;
        let range = span_range(source, span);
        let over =
            |what, found, max| ChatError::TooComplex { line: line_of(source, range.start), what, found, max };
        in_tag += 1;
        match &token {
            Token::VariableStart | Token::BlockStart => {
                tags += 1;
                in_tag = 0;
            }
            Token::Str(_) | Token::String(_) if range.len() > MAX_STRING => {
                return Err(over("bytes of a string", range.len(), MAX_STRING));
            }
            _ => {}
        }
        if tags > MAX_TAGS {
            return Err(over("tags", tags, MAX_TAGS));
        }
        if in_tag > MAX_TAG_TOKENS {
            return Err(over("words in a tag", in_tag, MAX_TAG_TOKENS));
        }
        out.push((token, range.clone()));
        if out.len() > MAX_TOKENS {
            return Err(over("words in tags", out.len(), MAX_TOKENS));
        }
    }
    Ok(out)
}

fn span_range(source: &str, span: Span) -> Range<usize> {
    let end = (span.end_offset as usize).min(source.len());
    (span.start_offset as usize).min(end)..end
}

/// The line of an offset, from 1.
pub(super) fn line_of(source: &str, at: usize) -> usize {
    source.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

impl Prepared {
    /// Prepares `source`, whose tokens are given.
    pub(super) fn new(source: &str, tokens: &[(Token<'_>, Range<usize>)]) -> Prepared {
        let mut function = "metered".to_owned();
        while source.contains(&function) {
            function.push('_');
        }
        let mut walk = Walk { source, function: &function, inserts: Vec::new(), line: 1, line_at: 0 };
        walk.tags(tokens);
        let mut inserts = walk.inserts;
        // At one place the text that closes comes first: tokens are walked in order and opens are added late.
        inserts.sort_by_key(|i| (i.0, !i.1.starts_with(')')));
        let mut out = String::with_capacity(source.len() + source.len() / 4);
        let mut at = 0;
        for (to, text) in &inserts {
            out.push_str(&source[at..*to]);
            out.push_str(text);
            at = *to;
        }
        out.push_str(&source[at..]);
        Prepared { source: out, function, inserts }
    }

    /// The offset in the original of an offset in the prepared source.
    pub(super) fn original(&self, offset: usize) -> usize {
        let mut added = 0;
        for (at, text) in &self.inserts {
            if at + added >= offset {
                break;
            }
            added = (added + text.len()).min(offset - at);
        }
        offset - added
    }
}

/// A bracket that is open.
struct Open {
    at: usize,
    line: usize,
    /// Makes a value, as opposed to calling something or looking something up.
    literal: bool,
    comma: bool,
    /// Closes with this many additional brackets: the argument of a recursive loop.
    argument: bool,
}

struct Walk<'a> {
    source: &'a str,
    function: &'a str,
    inserts: Vec<(usize, String)>,
    /// The line of `line_at`, an offset.
    line: usize,
    line_at: usize,
}

impl Walk<'_> {
    fn line(&mut self, at: usize) -> usize {
        self.line += self.source.get(self.line_at..at).map_or(0, |s| s.matches('\n').count());
        self.line_at = at.max(self.line_at);
        self.line
    }

    fn open(&mut self, at: usize, line: usize, extra: &str) {
        self.inserts.push((at, format!("{}({line},{extra}", self.function)));
    }

    fn tags(&mut self, tokens: &[(Token<'_>, Range<usize>)]) {
        let mut rest = tokens;
        // Targets of `set` blocks that are open.
        let mut blocks: Vec<&str> = Vec::new();
        while let [(token, _), tail @ ..] = rest {
            rest = tail;
            if !matches!(token, Token::VariableStart | Token::BlockStart) {
                continue;
            }
            let ends = |(t, _): &&(Token<'_>, _)| matches!(t, Token::VariableEnd | Token::BlockEnd);
            let len = tail.iter().take_while(|t| !ends(t)).count();
            let (inside, after) = tail.split_at(len);
            let close = after.first().map_or(self.source.len(), |(_, r)| r.start);
            match (token, inside) {
                (Token::VariableStart, _) => self.expression(inside),
                (Token::BlockStart, [(Token::Ident(name), _), inside @ ..]) => match *name {
                    "if" | "elif" | "do" | "filter" => self.expression(inside),
                    "set" if !inside.iter().any(|(t, _)| matches!(t, Token::Assign)) => {
                        let filter = |(t, _): &&(Token<'_>, _)| !matches!(t, Token::Pipe);
                        let end = inside.iter().take_while(filter).last().map_or(0, |(_, r)| r.end);
                        let start = inside.first().map_or(0, |(_, r)| r.start);
                        blocks.push(self.source.get(start..end).unwrap_or_default());
                    }
                    "set" | "with" => self.assignments(inside, close, *name == "with"),
                    "endset" => {
                        let line = self.line(close);
                        if let Some(target) = blocks.pop() {
                            let admit =
                                format!(" %}}{{% set {target} = {}({line},({target})) ", self.function);
                            self.inserts.push((close, admit));
                        }
                    }
                    "for" => self.loop_over(inside),
                    "macro" => self.parameters(inside, close),
                    "call" => {
                        // `call(x) f(…)`: the first brackets hold parameters.
                        let closes = |(t, _): &(Token<'_>, _)| matches!(t, Token::ParenClose);
                        let from = match inside.first() {
                            Some((Token::ParenOpen, _)) => {
                                inside.iter().position(closes).map_or(0, |i| i + 1)
                            }
                            _ => 0,
                        };
                        self.expression(&inside[from..]);
                    }
                    _ => continue,
                },
                _ => continue,
            }
            rest = after;
        }
    }

    /// `a = x`, or `a = x, b = y` in a `with`: each right side is admitted.
    fn assignments(&mut self, tokens: &[(Token<'_>, Range<usize>)], close: usize, several: bool) {
        let mut rest = tokens;
        while let Some(equals) = rest.iter().position(|(t, _)| matches!(t, Token::Assign)) {
            let right = &rest[equals + 1..];
            let mut depth = 0usize;
            let comma = |(t, _): &(Token<'_>, _)| {
                match t {
                    Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
                    Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                        depth = depth.saturating_sub(1);
                    }
                    _ => {}
                }
                several && depth == 0 && matches!(t, Token::Comma)
            };
            let len = right.iter().position(comma).unwrap_or(right.len());
            let (value, after) = right.split_at(len);
            if let [(_, first), ..] = value {
                let line = self.line(first.start);
                self.open(first.start, line, "(");
                match value {
                    // What a namespace starts with gets names like everything else.
                    [
                        (Token::Ident("namespace"), _),
                        (Token::ParenOpen, _),
                        fields @ ..,
                        (Token::ParenClose, r),
                    ] => {
                        self.assignments(fields, r.start, true);
                    }
                    _ => self.expression(value),
                }
                let end = value.last().map_or(close, |(_, r)| r.end);
                self.inserts.push((end, "))".into()));
            }
            rest = after;
        }
    }

    /// `a in x`, perhaps with `if y` or `recursive` after it.
    fn loop_over(&mut self, tokens: &[(Token<'_>, Range<usize>)]) {
        let is_in = |(t, _): &(Token<'_>, _)| matches!(t, Token::Ident("in"));
        let from = tokens.iter().position(is_in).map_or(tokens.len(), |i| i + 1);
        let tokens = &tokens[from..];
        let mut depth = 0usize;
        let ends = |(i, (t, _)): (usize, &(Token<'_>, _))| {
            match t {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    depth = depth.saturating_sub(1)
                }
                _ => {}
            }
            let dotted = i > 0 && matches!(tokens[i - 1].0, Token::Dot | Token::Pipe);
            depth == 0
                && i > 0
                && !dotted
                && (matches!(t, Token::Ident("if"))
                    || (i + 1 == tokens.len() && matches!(t, Token::Ident("recursive"))))
        };
        let len = tokens.iter().enumerate().position(ends).unwrap_or(tokens.len());
        let (over, rest) = tokens.split_at(len);
        if let ([(_, first), ..], Some((_, last))) = (over, over.last()) {
            let line = self.line(first.start);
            self.open(first.start, line, "(");
            self.expression(over);
            self.inserts.push((last.end, "))".into()));
        }
        self.expression(rest);
    }

    /// `name(a, b=x)`: each parameter is admitted at the start of the macro.
    fn parameters(&mut self, tokens: &[(Token<'_>, Range<usize>)], close: usize) {
        self.expression(tokens);
        let line = self.line(close);
        let mut depth = 0usize;
        let mut names = String::new();
        for pair in tokens.windows(2) {
            match &pair[0].0 {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    depth = depth.saturating_sub(1);
                }
                _ => {}
            }
            if let (Token::ParenOpen | Token::Comma, Token::Ident(name)) = (&pair[0].0, &pair[1].0)
                && depth == 1
            {
                names.push_str(&format!(" %}}{{% set {name} = {}({line},({name}))", self.function));
            }
        }
        if !names.is_empty() && close < self.source.len() {
            // A space, since `%}` may follow a name at once.
            self.inserts.push((close, names + " "));
        }
    }

    /// Admits the literals of an expression.
    fn expression(&mut self, tokens: &[(Token<'_>, Range<usize>)]) {
        let mut stack: Vec<Open> = Vec::new();
        for (i, (token, range)) in tokens.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| &tokens[i].0);
            match token {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                    let dotted = i >= 2 && matches!(tokens[i - 2].0, Token::Dot | Token::Pipe);
                    let argument = matches!((token, before), (Token::ParenOpen, Some(Token::Ident("loop"))));
                    let line = self.line(range.start);
                    if argument {
                        self.open(range.end, line, "(");
                    }
                    let literal = before.is_none_or(|t| !ends_operand(t, dotted));
                    stack.push(Open { at: range.start, line, literal, comma: false, argument });
                }
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    let Some(open) = stack.pop() else { return };
                    let tuple = open.comma || !matches!(token, Token::ParenClose);
                    if open.argument {
                        self.inserts.push((range.start, "))".into()));
                    }
                    if open.literal && tuple {
                        self.open(open.at, open.line, "");
                        self.inserts.push((range.end, ")".into()));
                    }
                }
                Token::Comma => {
                    if let Some(open) = stack.last_mut() {
                        open.comma = true;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether a bracket after this token calls or looks up, instead of making a value.
fn ends_operand(token: &Token<'_>, dotted: bool) -> bool {
    match token {
        Token::Ident("in" | "and" | "or" | "not" | "if" | "else" | "is") => dotted,
        Token::Ident(_) | Token::Str(_) | Token::String(_) => true,
        Token::Int(_) | Token::Int128(_) | Token::Float(_) => true,
        Token::ParenClose | Token::BracketClose | Token::BraceClose => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(source: &str) -> Prepared {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
        Prepared::new(source, &tokens(source, syntax).unwrap())
    }

    #[test]
    fn what_makes_values_is_wrapped() {
        for (source, expected) in [
            ("{{ [1, x[0]] }}", "{{ M(1,[1, x[0]]) }}"),
            ("a\n{{ f({'a': (1, 2)}, (3)) }}", "a\n{{ f(M(2,{'a': M(2,(1, 2))}), (3)) }}"),
            ("{% if x in ['a'] and not (y) %}", "{% if x in M(1,['a']) and not (y) %}"),
            (
                "{% for (a, b) in [[1]] if a in (1,) %}",
                "{% for (a, b) in M(1,(M(1,[M(1,[1])]))) if a in M(1,(1,)) %}",
            ),
            ("{%- set ns.a = b + c -%}", "{%- set ns.a = M(1,(b + c)) -%}"),
            ("{% set a, b = 1, 2%}", "{% set a, b = M(1,(1, 2))%}"),
            (
                "{% set a.b | f -%}[1]{% endset -%}",
                "{% set a.b | f -%}[1]{% endset %}{% set a.b = M(1,(a.b)) -%}",
            ),
            ("{% for a in x.if[0] recursive %}", "{% for a in M(1,(x.if[0])) recursive %}"),
            ("{% for a in recursive %}", "{% for a in M(1,(recursive)) %}"),
            ("{% with a = f(x=1, y=2), b = [] %}", "{% with a = M(1,(f(x=1, y=2))), b = M(1,(M(1,[]))) %}"),
            (
                "{% macro f(a, b=[1, 2]) -%}",
                "{% macro f(a, b=M(1,[1, 2])) %}{% set a = M(1,(a)) %}{% set b = M(1,(b)) -%}",
            ),
            ("{% call(x) f([]) %}", "{% call(x) f(M(1,[])) %}"),
            ("{{ loop([a]) }}", "{{ loop(M(1,(M(1,[a])))) }}"),
            ("{% raw %}{{ [1] }}{% endraw %}{# [1] #}", "{% raw %}{{ [1] }}{% endraw %}{# [1] #}"),
            ("{{ x.in[0] }}{{ '[1]' }}", "{{ x.in[0] }}{{ '[1]' }}"),
            ("{{ ]1[ }}{{ 2( }}", "{{ ]1[ }}{{ 2( }}"),
            (
                "{% set n = namespace(a=[1], b=f(1, c=2)) %}",
                "{% set n = M(1,(namespace(a=M(1,(M(1,[1]))), b=M(1,(f(1, c=2)))))) %}",
            ),
        ] {
            let found = prepared(source).source.replace("metered", "M");
            assert_eq!(found.replace("  ", " "), expected, "{source}");
        }
    }

    #[test]
    fn sources_beyond_the_limits_are_refused() {
        for (source, expected) in [
            ("\n".to_owned() + &"{{ a }}".repeat(6000), "line 2: 5001 tags"),
            (format!("{{{{ 1{} }}}}", "+1".repeat(20_000)), "line 1: 2001 words in a tag"),
            (format!("{{{{ 1{} }}}}", "+1".repeat(900)).repeat(28), "line 1: 50001 words in tags"),
            (format!("\n\n{{{{ '{}' }}}}", "a".repeat(20_000)), "line 3: 20002 bytes of a string"),
            ("\n".to_owned() + &"<".repeat(65_000), "line 2: 65000 bytes of a line"),
        ] {
            let error = tokens(&source, SyntaxConfig::default()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_name_is_not_in_the_template() {
        assert_eq!(prepared("{{ metered([metered_]) }}").function, "metered__");
    }

    #[test]
    fn places_are_those_of_the_original() {
        let p = prepared("{{ [1] ~ x }}");
        assert_eq!(p.source, "{{ metered(1,[1]) ~ x }}");
        for (at, original) in [(0, 0), (3, 3), (9, 3), (13, 3), (14, 4), (15, 5), (17, 6), (20, 9)] {
            assert_eq!(p.original(at), original, "{at}");
        }
    }
}
