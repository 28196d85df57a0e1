//! What transformers gives to chat templates beyond Jinja itself, and where Python's strings differ from Rust's.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::error::Raised;
use super::json::{self, Style};
use super::time::strftime;

/// Adds what does not depend on the render.
pub(crate) fn add_static(env: &mut Environment<'_>) {
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    env.add_filter("trim", |text: &str, chars: Option<String>| -> String {
        match chars {
            Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
            None => text.trim_matches(is_python_space).to_owned(),
        }
    });
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

/// Methods of Python's strings, lists and dicts.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let (Some(text), []) = (value.as_str(), args) {
        match name {
            "strip" => return Ok(text.trim_matches(is_python_space).into()),
            "lstrip" => return Ok(text.trim_start_matches(is_python_space).into()),
            "rstrip" => return Ok(text.trim_end_matches(is_python_space).into()),
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// What Python's `str.strip` removes: Unicode white space and the four separator controls.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
