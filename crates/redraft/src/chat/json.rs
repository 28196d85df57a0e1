//! The `tojson` filter, in the form of Python's `json.dumps`, which is what chat templates are trained with.
//!
//! Jinja's own filter escapes `<`, `>`, `&` and `'` for HTML and so does the engine's; transformers replaces it
//! with one that does not, and so does this file.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 100;

/// The arguments of the filter, named and ordered as transformers has them.
pub(crate) struct Style {
    ensure_ascii: bool,
    /// One level of indentation; `None` writes one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    separators_len: usize,
    sort_keys: bool,
    /// A character that stays as it is even with `ensure_ascii`: the engine's private marker.
    marker: Option<char>,
}

impl Style {
    /// Reads the arguments that follow the value.
    pub(crate) fn from_args(args: &[Value], kwargs: &Kwargs, marker: Option<char>) -> Result<Style, Error> {
        let take = |position: usize, name: &str| -> Result<Option<Value>, Error> {
            let value = match args.get(position) {
                Some(value) => Some(value.clone()),
                None => kwargs.get::<Option<Value>>(name)?,
            };
            Ok(value.filter(|v| !v.is_none() && !v.is_undefined()))
        };
        let ensure_ascii = take(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
        let indent = take(1, "indent")?;
        let separators = take(2, "separators")?;
        let sort_keys = take(3, "sort_keys")?.is_some_and(|v| v.is_true());
        kwargs.assert_all_used()?;

        /// Wider indentation is a mistake or an attack: it is written once per line and level.
        const MAX_INDENT: usize = 64;
        let indent = match indent {
            None => None,
            Some(v) if v.as_str().is_some() => v.as_str().map(str::to_owned),
            Some(v) => {
                Some(" ".repeat(usize::try_from(i64::try_from(v)?.max(0)).unwrap_or(usize::MAX).min(65)))
            }
        };
        if indent.as_ref().is_some_and(|i| i.len() > MAX_INDENT) {
            return Err(invalid(format!("tojson: indent is wider than {MAX_INDENT}")));
        }
        let (item_separator, key_separator) = match separators {
            // Python drops the space before a line break.
            None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
            Some(pair) => {
                let part =
                    |i: usize| pair.get_item_by_index(i).ok().and_then(|v| Some(v.as_str()?.to_owned()));
                part(0)
                    .zip(part(1))
                    .ok_or_else(|| invalid("tojson: separators are two strings".to_owned()))?
            }
        };
        let separators_len = item_separator.len() + key_separator.len();
        Ok(Style { ensure_ascii, indent, item_separator, key_separator, separators_len, sort_keys, marker })
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Writes a value. Work and memory are charged to the budget of the template while they are used: a value can
/// contain the same list many times over, so that its text is far larger than itself.
pub(crate) fn dumps(state: &State, value: &Value, style: &Style) -> Result<String, Error> {
    let mut writer = Writer { out: String::new(), state, style };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a, 'state, 'env> {
    out: String,
    state: &'a State<'state, 'env>,
    style: &'a Style,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("tojson: nested deeper than {MAX_DEPTH}")));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.items(['[', ']'], depth, value.try_iter()?, |w, item| w.value(&item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for k in value.try_iter()? {
                    entries.push((key_text(&k)?, value.get_item(&k)?));
                }
                if self.style.sort_keys {
                    // Python compares code points, and so do Rust strings.
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.items(['{', '}'], depth, entries, |w, (k, v)| {
                    w.string(&k)?;
                    w.out.push_str(&w.style.key_separator);
                    w.value(&v, depth + 1)
                })?;
            }
            other => return Err(invalid(format!("tojson: a value of type {other} has no JSON form"))),
        }
        Ok(())
    }

    /// Writes the brackets, separators and line breaks around `items`.
    fn items<T>(
        &mut self,
        [open, close]: [char; 2],
        depth: usize,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for item in items {
            // Separators come from the template and can be long.
            self.state.consume_fuel(1 + self.style.separators_len as u64 / 64)?;
            if !empty {
                self.out.push_str(&self.style.item_separator);
            }
            self.break_line(depth + 1)?;
            write(self, item)?;
            empty = false;
        }
        if !empty {
            self.break_line(depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn break_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.style.indent {
            self.state.consume_fuel((indent.len() * depth) as u64 / 64)?;
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        write_string(&mut self.out, text, self.style);
        Ok(())
    }
}

/// The text of a key. Python turns keys that are no strings into their JSON form.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number => number(key)?,
        other => return Err(invalid(format!("tojson: a key of type {other} has no JSON form"))),
    })
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() { Ok(value.to_string()) } else { Ok(float(f64::try_from(value.clone())?)) }
}

/// A float as Python's `repr` writes it: the shortest digits that read back the same, with an exponent below
/// 1e-4 and from 1e16 on.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if x == 0.0 || (-4..16).contains(&exponent) {
        // `Debug` keeps the `.0` of whole numbers but switches to exponents at other places than Python.
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn write_string(out: &mut String, text: &str, style: &Style) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (style.ensure_ascii && c > '~' && Some(c) != style.marker) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (x, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-2.5e-10, "-2.5e-10"),
            (123_456.789, "123456.789"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(x), expected);
        }
    }
}
