//! What transformers gives to chat templates beyond Jinja itself, and where Python's strings differ from Rust's.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::error::Raised;
use super::json::{self, Style};
use super::meter::Meter;
use super::time::strftime;

/// Adds what does not depend on the render.
pub(crate) fn add_static(env: &mut Environment<'_>) {
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    env.add_filter("trim", |state: &State, text: &str, chars: Option<Value>| -> Result<String, Error> {
        let Some(chars) = chars.filter(|c| !c.is_none()) else {
            return Ok(text.trim_matches(is_python_space).to_owned());
        };
        charge_set(state, text, &chars)?;
        let chars = chars.as_str().unwrap_or_default();
        Ok(text.trim_matches(|c| chars.contains(c)).to_owned())
    });
    env.add_test("lower", |state: &State, text: &str| -> Result<bool, Error> {
        state.consume_fuel(text.len() as u64 / 64)?;
        Ok(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase))
    });
    env.add_test("upper", |state: &State, text: &str| -> Result<bool, Error> {
        state.consume_fuel(text.len() as u64 / 64)?;
        Ok(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase))
    });
    // Python's `None` cannot be gone through, and its strings and dicts have `len` and `[]`.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("sequence", |value: &Value| {
        use minijinja::value::ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), Iterable | Map | Seq | String | Undefined)
    });
    // They print all that there is, for people who write templates, at a cost that nobody counts.
    env.remove_global("debug");
    env.remove_filter("pprint");
    env.set_unknown_method_callback(method);
}

/// Adds what does: the private marker of this render and its time.
pub(crate) fn add_dynamic(env: &mut Environment<'_>, marker: Option<char>, unix_seconds: i64) {
    env.add_filter(
        "tojson",
        move |state: &State, value: Value, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            let (args, kwargs) = from_args::<(&[Value], Kwargs)>(&args)?;
            let style = Style::from_args(args, &kwargs, marker)?;
            Ok(Value::from(json::dumps(state, &value, &style)?))
        },
    );
    env.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        strftime(format, unix_seconds).map_err(|directive| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know {directive}"))
        })
    });
}

/// Adds what counts: the function named `admit`, which a prepared template calls for the values it makes.
pub(crate) fn add_metered(env: &mut Environment<'_>, admit: &str, meter: &Meter) {
    let shells = meter.clone();
    env.add_function(admit.to_owned(), move |line: u32, value: Value| shells.admit(line, value));
}

/// Methods of Python's strings, lists and dicts.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        let given: usize = args.iter().filter_map(Value::as_str).map(str::len).sum();
        state.consume_fuel((text.len() + given) as u64 / 64)?;
        match (name, args) {
            ("strip", []) => return Ok(text.trim_matches(is_python_space).into()),
            ("lstrip", []) => return Ok(text.trim_start_matches(is_python_space).into()),
            ("rstrip", []) => return Ok(text.trim_end_matches(is_python_space).into()),
            ("strip" | "lstrip" | "rstrip", [chars, ..]) => charge_set(state, text, chars)?,
            ("format", _) => charge_format(state, text, args)?,
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// Charges for looking up each character of `text` in a set of characters.
fn charge_set(state: &State, text: &str, chars: &Value) -> Result<(), Error> {
    let set = chars.as_str().map_or(0, str::len) as u64;
    state.consume_fuel((text.len() as u64).saturating_mul(set) / 64)
}

/// Charges for `str.format` before it runs: the engine only charges for the result.
fn charge_format(state: &State, format: &str, args: &[Value]) -> Result<(), Error> {
    /// Wider fields are a mistake or an attack.
    const MAX_DIGITS: usize = 3;
    let mut digits = 0;
    let mut in_field = false;
    for c in format.chars() {
        match c {
            '{' => in_field = true,
            '}' => in_field = false,
            _ => {}
        }
        digits = if c.is_ascii_digit() && in_field { digits + 1 } else { 0 };
        if digits > MAX_DIGITS {
            let text = "str.format: a field is wider than 999 characters";
            return Err(Error::new(ErrorKind::InvalidOperation, text));
        }
    }
    let fields = format.matches('{').count() as u64;
    // Printing a list visits it, which is charged elsewhere; here counts how long it becomes.
    let len = |v: &Value| v.as_str().map_or_else(|| v.to_string().len(), str::len) as u64;
    let longest = args.iter().map(len).max().unwrap_or(0).saturating_add(1000);
    state.consume_fuel(fields.saturating_mul(longest) / 64)
}

/// What Python's `str.strip` removes: Unicode white space and the four separator controls.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
