//! The call of a tool as Gemma 4 writes it: `call:NAME{key:value,…}`. Strings stand between two quote tokens
//! and have no escapes; keys stand bare or between quote tokens; the rest is JSON. Strings in JSON form are
//! read too, since models write them.

use serde_json::{Map, Number, Value};

/// Deepest nesting of a value.
const MAX_DEPTH: usize = 64;

/// What stands before the name of a tool.
pub(super) const BEFORE_NAME: &str = "call:";

/// Longest name of a tool.
const MAX_NAME: usize = 256;

/// What a call is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    Char(char),
    /// The quote token.
    Quote,
}

/// Reads a call: the tool's name and arguments.
///
/// # Errors
/// What is wrong, and at which symbol.
pub(super) fn call(symbols: &[Symbol]) -> Result<(String, Map<String, Value>), String> {
    let mut r = Reader { symbols, at: 0 };
    r.space();
    for c in BEFORE_NAME.chars() {
        r.expect(c, "`call:` and a name")?;
    }
    let name = r.bare(in_name);
    if !is_name(&name) {
        return Err(r.wrong("the name of a tool"));
    }
    r.space();
    let arguments = r.object(0)?;
    r.space();
    match r.peek() {
        None => Ok((name, arguments)),
        Some(_) => Err(r.wrong("the end of the call")),
    }
}

/// Whether a tool can have that name.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(in_name)
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.:/".contains(c)
}

struct Reader<'a> {
    symbols: &'a [Symbol],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<Symbol> {
        self.symbols.get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> String {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(Symbol::Quote) => "a quote token".to_owned(),
            Some(Symbol::Char(c)) => format!("{c:?}"),
        };
        format!("expected {expected} at character {}, found {found}", self.at)
    }

    /// Takes `c` if it is next.
    fn take(&mut self, c: char) -> bool {
        let next = self.peek() == Some(Symbol::Char(c));
        self.at += usize::from(next);
        next
    }

    fn expect(&mut self, c: char, what: &str) -> Result<(), String> {
        if self.take(c) { Ok(()) } else { Err(self.wrong(what)) }
    }

    fn space(&mut self) {
        self.bare(|c| c.is_ascii_whitespace());
    }

    /// The characters that follow as long as they are such.
    fn bare(&mut self, accept: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while let Some(Symbol::Char(c)) = self.peek().filter(|s| matches!(s, Symbol::Char(c) if accept(*c))) {
            out.push(c);
            self.at += 1;
        }
        out
    }

    fn object(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        self.expect('{', "`{`")?;
        let mut out = Map::new();
        loop {
            self.space();
            if self.take('}') {
                return Ok(out);
            }
            let start = self.at;
            let key = self.key()?;
            self.space();
            self.expect(':', "`:`")?;
            let value = self.value(depth + 1)?;
            if out.insert(key.clone(), value).is_some() {
                return Err(format!("the key {key:?} at character {start} stands there twice"));
            }
            self.space();
            if !self.take(',') {
                self.expect('}', "`,` or `}`")?;
                return Ok(out);
            }
        }
    }

    fn key(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(Symbol::Quote) => self.quoted(),
            Some(Symbol::Char('"')) => self.json_string(),
            _ => {
                let key = self.bare(|c| !"{}[],:\"".contains(c) && !c.is_control());
                match key.trim_end() {
                    "" => Err(self.wrong("a key")),
                    key => Ok(key.to_owned()),
                }
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} at character {}", self.at));
        }
        self.space();
        match self.peek() {
            Some(Symbol::Quote) => Ok(Value::String(self.quoted()?)),
            Some(Symbol::Char('"')) => Ok(Value::String(self.json_string()?)),
            Some(Symbol::Char('{')) => Ok(Value::Object(self.object(depth)?)),
            Some(Symbol::Char('[')) => self.array(depth),
            _ => self.word(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.expect('[', "`[`")?;
        let mut out = Vec::new();
        loop {
            self.space();
            if self.take(']') {
                return Ok(Value::Array(out));
            }
            out.push(self.value(depth + 1)?);
            self.space();
            if !self.take(',') {
                self.expect(']', "`,` or `]`")?;
                return Ok(Value::Array(out));
            }
        }
    }

    /// A string between quote tokens: anything but a quote token.
    fn quoted(&mut self) -> Result<String, String> {
        self.at += 1;
        let text = self.bare(|_| true);
        match self.peek() {
            Some(Symbol::Quote) => {
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.wrong("the end of a string")),
        }
    }

    /// A string in JSON form.
    fn json_string(&mut self) -> Result<String, String> {
        let start = self.at;
        let mut raw = String::from("\"");
        self.at += 1;
        loop {
            raw.push_str(&self.bare(|c| c != '"' && c != '\\'));
            match self.peek() {
                Some(Symbol::Char('"')) => break,
                Some(Symbol::Char(_)) => {
                    raw.push('\\');
                    self.at += 1;
                    if let Some(Symbol::Char(c)) = self.peek() {
                        raw.push(c);
                        self.at += 1;
                    }
                }
                _ => return Err(self.wrong("the end of a string")),
            }
        }
        self.at += 1;
        raw.push('"');
        serde_json::from_str(&raw).map_err(|e| format!("the string at character {start}: {e}"))
    }

    /// `true`, `false`, `null` (the template writes `None`), or a number.
    fn word(&mut self) -> Result<Value, String> {
        let start = self.at;
        let word = self.bare(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        match word.as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" | "None" => Ok(Value::Null),
            _ => number(&word).map(Value::Number).ok_or_else(|| {
                self.at = start;
                self.wrong("a value")
            }),
        }
    }
}

/// A JSON number. Whole numbers beyond 64 bits have no exact form and are none.
fn number(word: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(word).ok()?;
    let whole = word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    (!whole || number.is_i64() || number.is_u64()).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `'` stands for the quote token.
    fn read(text: &str) -> Result<(String, Value), String> {
        let symbol = |c| if c == '\'' { Symbol::Quote } else { Symbol::Char(c) };
        call(&text.chars().map(symbol).collect::<Vec<_>>()).map(|(n, a)| (n, Value::Object(a)))
    }

    #[test]
    fn calls_are_read() {
        for (text, name, arguments) in [
            ("call:f{}", "f", json!({})),
            (" call:file-search.v2 { } ", "file-search.v2", json!({})),
            ("call:f{a:'x',b:1,c:true}", "f", json!({"a": "x", "b": 1, "c": true})),
            ("call:f{a:'{[\",:\n]}'}", "f", json!({"a": "{[\",:\n]}"})),
            (
                "call:f{a:[1,[],{b:null}],c:{d:'',e:None}}",
                "f",
                json!({"a": [1, [], {"b": null}], "c": {"d": "", "e": null}}),
            ),
            (
                "call:f{ a : 1.5e3 , 'b c' : -2 , \"d\":\"\\u00e9\\n\" ,}",
                "f",
                json!({"a": 1500.0, "b c": -2, "d": "é\n"}),
            ),
            ("call:f{größe:18446744073709551615}", "f", json!({"größe": u64::MAX})),
        ] {
            assert_eq!(read(text), Ok((name.to_owned(), arguments)), "{text}");
        }
    }

    #[test]
    fn what_is_no_call_says_why() {
        let deep = format!("call:f{{a:{}1{}}}", "[".repeat(70), "]".repeat(70));
        let long = format!("call:{}{{}}", "n".repeat(300));
        for (text, expected) in [
            ("", "expected `call:` and a name at character 0, found the end"),
            ("f{}", "found 'f'"),
            ("call:{}", "expected the name of a tool at character 5, found '{'"),
            ("call:f", "expected `{` at character 6, found the end"),
            ("call:f{a:1", "expected `,` or `}`"),
            ("call:f{a:'x", "expected the end of a string"),
            ("call:f{a:\"x", "expected the end of a string"),
            ("call:f{a:\"\\x\"}", "the string at character 9"),
            ("call:f{a:London}", "expected a value at character 9, found 'L'"),
            ("call:f{a:01}", "expected a value"),
            ("call:f{a:1e999}", "expected a value"),
            ("call:f{a:123456789012345678901234567890}", "expected a value"),
            ("call:f{a:}", "expected a value"),
            ("call:f{:1}", "expected a key"),
            ("call:f{a 1}", "expected `:`"),
            ("call:f{a:1,a:2}", "the key \"a\" at character 11 stands there twice"),
            ("call:f{a:1}}", "expected the end of the call"),
            ("call:f{a:1 'x'}", "expected `,` or `}`"),
            (deep.as_str(), "nested deeper than 64"),
            (long.as_str(), "the name of a tool"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
