//! Calls of tools as a language.
//!
//! A call is written as the reader of answers reads it ([`OutputFormat`]): between two control tokens, with strings between two others.
//! The control tokens are bytes that are in no text: UTF-8 has none above 0xf7.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::automaton::Node;
use super::json::Style;
use super::schema::Spent;
use super::{ConstrainError, schema};
use crate::chat::{CallForm, FORMATS, OutputFormat};
use crate::tokenizer::Tokenizer;

/// The bytes that stand for the markers around a call, and around a string.
const OPEN: u8 = 0xf8;
const CLOSE: u8 = 0xf9;
const QUOTE: u8 = 0xfa;

/// Functions at most.
const MAX_FUNCTIONS: usize = 128;

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
    /// are no object; [`ConstrainError::TooLarge`]; those of the schemas, which are bounded together.
    pub(super) fn node(&self) -> Result<Node, ConstrainError> {
        let wrong = |problem: String| ConstrainError::Calls { problem };
        let format = FORMATS.iter().find(|f| f.name == self.format);
        let form = &format.ok_or_else(|| wrong(format!("there is no format {:?}", self.format)))?.call;
        if self.functions.is_empty() {
            return Err(wrong("expected at least one function".into()));
        }
        let found = self.functions.len();
        if found > MAX_FUNCTIONS {
            return Err(ConstrainError::TooLarge { what: "functions", found, limit: MAX_FUNCTIONS });
        }
        let mut spent = Spent::default();
        let calls = self.functions.iter().map(|f| f.node(form, &mut spent)).collect::<Result<Vec<_>, _>>()?;
        let most = if self.several { None } else { Some(1) };
        Ok(Node::alt(calls).repeat(1, most))
    }
}

impl Function {
    fn node(&self, form: &CallForm, spent: &mut Spent) -> Result<Node, ConstrainError> {
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
        let arguments = schema::language_in(schema, Style::Bare(QUOTE), spent).map_err(|e| match e {
            ConstrainError::Schema { path, problem } => {
                wrong(format!("parameters of {name:?}, {path}: {problem}"))
            }
            other => other,
        })?;
        let before = format!("{}{name}", form.before_name);
        Ok(Node::cat([Node::bytes(&[OPEN]), Node::text(&before), arguments, Node::bytes(&[CLOSE])]))
    }
}

/// The tokens that are text, and the markers of a call.
pub(super) fn with_markers(tokenizer: &Tokenizer) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let form = OutputFormat::of(tokenizer).map(|f| &f.call);
    let markers = form.map_or([None, None, None], |f| {
        [(f.open, OPEN), (f.close, CLOSE), (f.quote, QUOTE)]
            .map(|(name, byte)| Some((tokenizer.token_id(name)?, vec![byte])))
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
                    '\'' => vec![QUOTE],
                    c => c.to_string().into_bytes(),
                })
                .collect()
        };
        let several = Automaton::new(&calls(&functions, true).node().unwrap()).unwrap();
        let one = Automaton::new(&calls(&functions, false).node().unwrap()).unwrap();
        for (call, n) in [
            ("<call:weather{city:'Oslo \"\n}\\'}>", 1),
            ("<call:weather{city:'', days: -3}><call:now{}>", 2),
            ("<call:now{a: [1.5e3, {b: null}],c_2:{d:'x'}}>", 1),
        ] {
            assert!(several.contains(&text(call)), "{call}");
            assert_eq!(one.contains(&text(call)), n == 1, "{call}");
            let format = &FORMATS[0];
            let spelled: String = call
                .chars()
                .map(|c| match c {
                    '<' => format.call.open.to_owned(),
                    '>' => format.call.close.to_owned(),
                    '\'' => format.call.quote.to_owned(),
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
            "<call:weather{city:5}>",
            r#"<call:weather{"city":"x"}>"#,
            "x<call:now{}>",
            "<call:f{}>",
        ] {
            assert!(!several.contains(&text(other)), "{other}");
        }
    }

    #[test]
    fn strings_and_names_are_written_without_escapes() {
        let schema = json!({"type": "object", "properties": {"a b": {"enum": ["x\"y", 1, ["z"]]}, "c:d": {"type": "string", "pattern": "^n.\\\\$"},
            "e": {"type": ["string", "null"], "const": "q"}}, "required": ["a b", "c:d", "e"]});
        let node = calls(&[("f", Some(schema))], false).node().unwrap();
        let automaton = Automaton::new(&node).unwrap();
        let bytes = |s: &str| -> Vec<u8> {
            let byte = |c| match c {
                '<' => vec![OPEN],
                '>' => vec![CLOSE],
                '\'' => vec![QUOTE],
                c => String::from(c).into_bytes(),
            };
            s.chars().flat_map(byte).collect()
        };
        for value in ["'x\"y'", "1", "['z']"] {
            assert!(
                automaton.contains(&bytes(&format!("<call:f{{a b:{value},'c:d':'n\"\\',e:'q'}}>"))),
                "{value}"
            );
        }
        assert!(!automaton.contains(&bytes("<call:f{a b:1,c:d:'n.\\',e:'q'}>")));
        assert!(!automaton.contains(&bytes("<call:f{a b:1,'c:d':'n.\\',e:null}>")));
    }

    #[test]
    fn functions_share_what_bounds_a_schema() {
        let members = |of: &dyn Fn(usize) -> Value| {
            let all: Map<String, Value> = (0..100).map(|i| (format!("m{i}"), of(i))).collect();
            json!({"type": "object", "properties": all})
        };
        // 101 schemas, a hundred times.
        let mut schema = members(&|_| json!({"$ref": "#/$defs/d"}));
        schema["$defs"] = json!({"d": members(&|_| json!({"type": "null"}))});
        let function = ("f", Some(schema));
        let found = |n: usize| calls(&vec![function.clone(); n], true).node().map(|_| ());
        assert_eq!(found(1), Ok(()));
        assert!(matches!(found(2), Err(ConstrainError::TooLarge { found, .. }) if found == (1 << 14) + 1));
        let bytes = json!({"type": "object", "description": "x".repeat(schema::MAX_BYTES / 2)});
        let found = |n: usize| calls(&vec![("f", Some(bytes.clone())); n], true).node().map(|_| ());
        assert_eq!(found(1), Ok(()));
        assert!(matches!(found(2), Err(ConstrainError::TooLarge { what: "bytes of JSON schema", .. })));
        let found = |n: usize| calls(&vec![("f", None); n], true).node().map(|_| ());
        assert_eq!(found(128), Ok(()));
        assert_eq!(found(129), Err(ConstrainError::TooLarge { what: "functions", found: 129, limit: 128 }));
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
