//! Calls of tools as a language.
//!
//! A call is written as the reader of answers reads it ([`OutputFormat`]): between two control tokens, with the arguments as JSON.
//! The control tokens are bytes that are in no text: UTF-8 has none above 0xf7.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::automaton::Node;
use super::{ConstrainError, schema};
use crate::chat::{CallForm, FORMATS, OutputFormat};
use crate::tokenizer::Tokenizer;

/// The bytes that stand for the markers around a call.
const OPEN: u8 = 0xf8;
const CLOSE: u8 = 0xf9;

/// Calls of some tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCalls {
    /// The [format](OutputFormat) of the model.
    pub format: String,
    /// What can be called.
    pub functions: Vec<Function>,
    /// Several calls may follow one another; else it is one.
    pub several: bool,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments; none: any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
}

impl ToolCalls {
    /// The language.
    ///
    /// # Errors
    /// [`ConstrainError::Calls`] for a format that does not exist, no function, a name that the format cannot write, arguments that
    /// are no object; those of the schemas.
    pub(super) fn node(&self) -> Result<Node, ConstrainError> {
        let wrong = |problem: String| ConstrainError::Calls { problem };
        let format = FORMATS.iter().find(|f| f.name == self.format);
        let form = &format.ok_or_else(|| wrong(format!("there is no format {:?}", self.format)))?.call;
        if self.functions.is_empty() {
            return Err(wrong("expected at least one function".into()));
        }
        let calls = self.functions.iter().map(|f| f.node(form)).collect::<Result<Vec<_>, _>>()?;
        let most = if self.several { None } else { Some(1) };
        Ok(Node::alt(calls).repeat(1, most))
    }
}

impl Function {
    fn node(&self, form: &CallForm) -> Result<Node, ConstrainError> {
        let wrong = |problem: String| ConstrainError::Calls { problem };
        let Function { name, parameters } = self;
        if !(form.is_name)(name) {
            return Err(wrong(format!("{name:?} is no name that can be called")));
        }
        let any = Value::Object(Map::from_iter([("type".to_owned(), "object".into())]));
        let schema = match parameters {
            None => &any,
            Some(Value::Object(of)) if of.is_empty() => &any,
            Some(of) if of["type"] == "object" => of,
            Some(_) => {
                return Err(wrong(format!("parameters of {name:?}: expected a schema of the type object")));
            }
        };
        let arguments = schema::language(schema).map_err(|e| match e {
            ConstrainError::Schema { path, problem } => {
                wrong(format!("parameters of {name:?}, {path}: {problem}"))
            }
            other => other,
        })?;
        let before = format!("{}{name}", form.before_name);
        Ok(Node::cat([Node::bytes(&[OPEN]), Node::text(&before), arguments, Node::bytes(&[CLOSE])]))
    }
}

/// The tokens that are text, and the markers around a call.
pub(super) fn with_markers(tokenizer: &Tokenizer) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let form = OutputFormat::of(tokenizer).map(|f| &f.call);
    let markers = form.map_or([None, None], |f| {
        [(f.open, OPEN), (f.close, CLOSE)].map(|(name, byte)| Some((tokenizer.token_id(name)?, vec![byte])))
    });
    let markers: Vec<(u32, Vec<u8>)> = markers.into_iter().flatten().collect();
    let ids: Vec<u32> = markers.iter().map(|(id, _)| *id).collect();
    // Tokens of single bytes are not these.
    let text = move |(id, bytes): &(u32, Vec<u8>)| !ids.contains(id) && bytes.iter().all(|&b| b < OPEN);
    tokenizer.texts().filter(text).chain(markers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::automaton::Automaton;
    use super::*;
    use crate::chat::AnswerParser;

    fn calls(functions: &[(&str, Option<Value>)], several: bool) -> ToolCalls {
        let function = |(name, parameters): &(&str, Option<Value>)| Function {
            name: (*name).into(),
            parameters: parameters.clone(),
        };
        ToolCalls { format: "gemma4".into(), functions: functions.iter().map(function).collect(), several }
    }

    #[test]
    fn calls_are_those_that_the_reader_reads() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"]});
        let functions = [("weather", Some(schema)), ("now", None)];
        let text = |s: &str| -> Vec<u8> {
            s.chars()
                .flat_map(|c| match c {
                    '<' => vec![OPEN],
                    '>' => vec![CLOSE],
                    c => c.to_string().into_bytes(),
                })
                .collect()
        };
        let several = Automaton::new(&calls(&functions, true).node().unwrap()).unwrap();
        let one = Automaton::new(&calls(&functions, false).node().unwrap()).unwrap();
        for (call, n) in [
            (r#"<call:weather{"city":"Oslo \"\n}"}>"#, 1),
            (r#"<call:weather{"city": "", "days": -3}><call:now{}>"#, 2),
            (r#"<call:now{"a": [1.5e3, {"b": null}]}>"#, 1),
        ] {
            assert!(several.contains(&text(call)), "{call}");
            assert_eq!(one.contains(&text(call)), n == 1, "{call}");
            let format = &FORMATS[0];
            let spelled: String = call
                .chars()
                .map(|c| match c {
                    '<' => format.call.open.to_owned(),
                    '>' => format.call.close.to_owned(),
                    c => c.to_string(),
                })
                .collect();
            let mut parser = AnswerParser::for_text(format);
            parser.push_text(&spelled);
            let answer = parser.finish().1;
            assert_eq!((answer.tool_calls.len(), answer.text.as_str()), (n, ""), "{spelled}");
            assert!(answer.warnings.is_empty());
        }
        for other in [
            "",
            "<call:now{}",
            "<call:weather{}>",
            r#"<call:weather{"city":5}>"#,
            "x<call:now{}>",
            "<call:f{}>",
        ] {
            assert!(!several.contains(&text(other)), "{other}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let refused = |calls: ToolCalls, expected: &str| {
            let e = calls.node().unwrap_err().to_string();
            assert!(e.contains(expected), "{e}");
        };
        refused(calls(&[], true), "at least one function");
        refused(calls(&[("a b", None)], true), "\"a b\" is no name");
        refused(calls(&[("f", Some(json!({"type": "string"})))], true), "parameters of \"f\": expected");
        let schema = json!({"type": "object", "properties": {"x": {"oneOf": []}}});
        refused(
            calls(&[("f", Some(schema))], true),
            "parameters of \"f\", #/properties/x: the keyword \"oneOf\"",
        );
        refused(ToolCalls { format: "x".into(), ..calls(&[("f", None)], true) }, "no format \"x\"");
    }
}
