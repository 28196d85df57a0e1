//! JSON schemas as languages of bytes.
//!
//! Every text of the language is valid under the schema; not every valid one is in it: names stand in the order of the schema,
//! objects have no others where the schema names some, and numbers are bounded. A keyword that would ask for more than that is an
//! error that names it: none is passed over but annotations, which ask for nothing.
//!
//! Source: "JSON Schema: A Media Type for Describing JSON Documents" and its validation vocabulary, draft 2020-12.

use serde_json::{Map, Value};

use super::ConstrainError;
use super::automaton::{Automaton, Node};
use super::json::{self, Bound, DIGITS, LARGEST, Style};
use super::regex;

/// Lists and objects in one another of a value that a schema says nothing of, and how often a reference goes through itself.
pub(super) const DEPTH: u32 = 3;

/// Bytes of a schema at most.
pub const MAX_BYTES: usize = 1 << 18;

/// Schemas at most, each counted as often as it is referred to.
const MAX_SCHEMAS: usize = 1 << 14;

/// Members that an object or a list names at most.
const MAX_MEMBERS: usize = 1 << 10;

/// Schemas in one another at most, references followed, each keyword and name on the way counted.
const MAX_NESTING: usize = 256;

/// Parts of the languages of values and expressions at most, each counted as often as it is referred to. This bounds
/// memory.
const MAX_PARTS: usize = 1 << 20;

/// From here on integers of JSON are read as doubles.
const LARGEST_EXACT: f64 = 9_223_372_036_854_775_808.0;

/// Keywords that ask for nothing.
const ANNOTATIONS: [&str; 13] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Keywords of the ends of a range.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/// Types, and the keywords that speak of them alone.
const TYPES: [(&str, &[&str]); 7] = [
    ("object", &["properties", "required", "additionalProperties"]),
    ("array", &["items", "prefixItems", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("number", &BOUNDS),
    ("integer", &BOUNDS),
    ("boolean", &[]),
    ("null", &[]),
];

/// Formats of strings, as expressions. Days that not every year has are left out.
const FORMATS: [(&str, &str); 5] = [
    ("date", DATE),
    ("time", TIME),
    ("date-time", ""),
    ("uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"),
    ("ipv4", r"^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$"),
];
const DATE: &str =
    r"^\d{4}-(02-(0[1-9]|1\d|2[0-8])|(0[469]|11)-(0[1-9]|[12]\d|30)|(0[13578]|1[02])-(0[1-9]|[12]\d|3[01]))$";
const TIME: &str = r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$";

/// The language of a schema, in JSON.
///
/// # Errors
/// [`ConstrainError::Schema`] with the path and the keyword of what is not supported or wrong; [`ConstrainError::TooLarge`].
pub(super) fn language(schema: &Value) -> Result<Node, ConstrainError> {
    language_in(schema, Style::Json, &mut Spent::default())
}

/// What the schemas of one language have taken so far, together.
#[derive(Debug, Default)]
pub(super) struct Spent {
    bytes: usize,
    schemas: usize,
    /// Parts of values and expressions, and steps that were taken to see which values of `enum` fit.
    parts: usize,
    work: usize,
}

/// The language of a schema, in a style. `spent`: by the schemas before it; what bounds one schema bounds all of them together.
///
/// # Errors
/// As [`language`].
pub(super) fn language_in(schema: &Value, style: Style, spent: &mut Spent) -> Result<Node, ConstrainError> {
    spent.bytes = spent.bytes.saturating_add(schema.to_string().len());
    if spent.bytes > MAX_BYTES {
        return Err(ConstrainError::TooLarge {
            what: "bytes of JSON schema",
            found: spent.bytes,
            limit: MAX_BYTES,
        });
    }
    Reader { root: schema, path: Vec::new(), references: Vec::new(), spent, style, any: any_in(style) }
        .schema(schema)
}

/// Any value of at most `DEPTH - 1` and `DEPTH` levels.
fn any_in(style: Style) -> [Node; 2] {
    [DEPTH - 1, DEPTH].map(|depth| json::any(depth, style))
}

struct Reader<'a> {
    root: &'a Value,
    /// Names and numbers on the way from the root.
    path: Vec<String>,
    /// References on the way.
    references: Vec<&'a str>,
    spent: &'a mut Spent,
    style: Style,
    /// Any value of at most `DEPTH - 1` and `DEPTH` levels, which all places share.
    any: [Node; 2],
}

impl<'a> Reader<'a> {
    fn problem(&self, problem: impl Into<String>) -> ConstrainError {
        let step = |s: &String| format!("/{}", s.replace('~', "~0").replace('/', "~1"));
        let path = self.path.iter().map(step).collect::<String>();
        ConstrainError::Schema { path: format!("#{path}"), problem: problem.into() }
    }

    /// What `of` gives one step further on the path.
    fn at<T>(
        &mut self,
        step: impl ToString,
        of: impl FnOnce(&mut Self) -> Result<T, ConstrainError>,
    ) -> Result<T, ConstrainError> {
        self.path.push(step.to_string());
        let done = of(self)?;
        self.path.pop();
        Ok(done)
    }

    /// Any value.
    fn any(&self) -> Node {
        self.any[1].clone()
    }

    /// A node whose size the schema does not bound as its number of schemas does.
    fn counted(&mut self, node: Node) -> Result<Node, ConstrainError> {
        self.spend(node.size())?;
        Ok(node)
    }

    fn spend(&mut self, parts: usize) -> Result<(), ConstrainError> {
        self.spent.parts = self.spent.parts.saturating_add(parts);
        if self.spent.parts > MAX_PARTS {
            return Err(ConstrainError::TooLarge {
                what: "parts of the values and expressions of the JSON schema, counted as often as they are referred to",
                found: self.spent.parts,
                limit: MAX_PARTS,
            });
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value) -> Result<Node, ConstrainError> {
        self.spent.schemas += 1;
        if self.spent.schemas > MAX_SCHEMAS {
            return Err(ConstrainError::TooLarge {
                what: "parts of the JSON schema, counted as often as they are referred to",
                found: self.spent.schemas,
                limit: MAX_SCHEMAS,
            });
        }
        if self.path.len() > MAX_NESTING {
            return Err(ConstrainError::TooLarge {
                what: "keywords and names in one another in the JSON schema, references followed",
                found: self.path.len(),
                limit: MAX_NESTING,
            });
        }
        match schema {
            Value::Bool(true) => Ok(self.any()),
            Value::Bool(false) => Ok(Node::never()),
            Value::Object(of) => self.object_of(of),
            other => Err(self.problem(format!("expected a schema: an object, true or false; found {other}"))),
        }
    }

    fn object_of(&mut self, of: &'a Map<String, Value>) -> Result<Node, ConstrainError> {
        let typed = |key: &str| TYPES.iter().any(|(_, keywords)| keywords.contains(&key));
        let whole = ["$ref", "anyOf", "allOf"];
        for key in of.keys().map(String::as_str) {
            let known = ["type", "enum", "const"].contains(&key) || whole.contains(&key) || typed(key);
            if !known && !ANNOTATIONS.contains(&key) {
                return Err(self.problem(format!("the keyword {key:?} is not supported{}", instead_of(key))));
            }
        }
        if let Some(key) = whole.into_iter().find(|key| of.contains_key(*key)) {
            let beside = of.keys().find(|k| *k != key && !ANNOTATIONS.contains(&k.as_str()));
            if let Some(other) = beside {
                return Err(self.problem(format!("{other:?} beside {key:?} is not supported")));
            }
            return match (key, &of[key]) {
                ("$ref", Value::String(to)) => self.reference(to),
                ("anyOf", Value::Array(all)) if !all.is_empty() => self.at(key, |r| r.any_of(all)),
                ("allOf", Value::Array(all)) if all.len() == 1 => {
                    self.at(key, |r| r.at(0, |r| r.schema(&all[0])))
                }
                ("allOf", Value::Array(_)) => {
                    Err(self.problem("\"allOf\" of several schemas is not supported: write them as one"))
                }
                _ => Err(self.problem(format!("{key:?} is not of the type that it must have"))),
            };
        }
        if let Some(node) = self.values(of)? {
            return Ok(node);
        }
        let types = self.types(of)?;
        if types.is_empty() {
            return Ok(self.any());
        }
        let parts: Result<Vec<_>, _> = types.into_iter().map(|t| self.of_type(t, of)).collect();
        Ok(Node::alt(parts?))
    }

    fn any_of(&mut self, all: &'a [Value]) -> Result<Node, ConstrainError> {
        let one = |(i, schema)| self.at(i, |r| r.schema(schema));
        Ok(Node::alt(all.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?))
    }

    fn reference(&mut self, to: &'a str) -> Result<Node, ConstrainError> {
        let local =
            to.strip_prefix('#').and_then(percent_decoded).filter(|p| p.is_empty() || p.starts_with('/'));
        let Some(schema) = local.and_then(|pointer| self.root.pointer(&pointer)) else {
            return Err(
                self.problem(format!("\"$ref\" to {to:?}: expected a place in this schema, as #/$defs/NAME"))
            );
        };
        // What goes through itself ends somewhere.
        if self.references.iter().filter(|r| **r == to).count() > DEPTH as usize {
            return Ok(Node::never());
        }
        self.references.push(to);
        let node = self.at("$ref", |r| r.schema(schema))?;
        self.references.pop();
        Ok(node)
    }

    /// The types that a schema names, or those that its keywords speak of; none is any value.
    fn types(&self, of: &Map<String, Value>) -> Result<Vec<&'static str>, ConstrainError> {
        let known = |name: &Value| {
            let found = TYPES.iter().map(|(t, _)| *t).find(|t| name.as_str() == Some(t));
            let names: Vec<&str> = TYPES.iter().map(|(t, _)| *t).collect();
            found.ok_or_else(|| {
                self.problem(format!(
                    "\"type\": expected one of {}, or a list; found {name}",
                    names.join(", ")
                ))
            })
        };
        match of.get("type") {
            Some(Value::Array(names)) if !names.is_empty() => names.iter().map(known).collect(),
            Some(name) => Ok(vec![known(name)?]),
            None => {
                // Integers are numbers.
                let spoken =
                    TYPES.iter().filter(|(t, k)| *t != "integer" && k.iter().any(|k| of.contains_key(*k)));
                Ok(spoken.map(|(t, _)| *t).collect())
            }
        }
    }

    /// The values of `const` and `enum` that fit the other keywords.
    fn values(&mut self, of: &'a Map<String, Value>) -> Result<Option<Node>, ConstrainError> {
        let listed: Vec<&Value> = match (of.get("const"), of.get("enum")) {
            (None, None) => return Ok(None),
            (Some(one), None) => vec![one],
            (None, Some(Value::Array(all))) => all.iter().collect(),
            (Some(one), Some(Value::Array(all))) => all.iter().filter(|v| *v == one).collect(),
            (_, Some(other)) => {
                return Err(self.problem(format!("\"enum\": expected a list of values, found {other}")));
            }
        };
        listed.iter().try_for_each(|value| self.check_exact(value))?;
        for key in BOUNDS {
            self.bound(of, key)?;
        }
        let types = if of.contains_key("type") { self.types(of)? } else { Vec::new() };
        let typed = of.keys().any(|k| TYPES.iter().any(|(_, keywords)| keywords.contains(&k.as_str())));
        let mut rest = Vec::new();
        if typed {
            // Values are compared as JSON.
            let own = (self.style != Style::Json).then(|| (self.style, self.any.clone()));
            if own.is_some() {
                (self.style, self.any) = (Style::Json, any_in(Style::Json));
            }
            let bytes = listed.iter().map(|v| v.to_string().len()).sum::<usize>();
            let all = if types.is_empty() { self.types(of)? } else { types.clone() };
            // Numbers are compared as such, however they are written.
            for t in all.into_iter().filter(|t| !["number", "integer"].contains(t)) {
                let node = self.of_type(t, of)?;
                self.spent.work = self.spent.work.saturating_add(bytes);
                let automaton = match Automaton::spending(&node, &mut self.spent.work) {
                    Err(ConstrainError::Empty) => None,
                    other => Some(other?),
                };
                rest.push((t, automaton));
            }
            if let Some(own) = own {
                (self.style, self.any) = own;
            }
        }
        let fits = |v: &&Value| {
            let is = |t: &str| match t {
                "integer" => v.is_i64() || v.is_u64() || v.as_f64().is_some_and(|x| x.fract() == 0.0),
                t => t == type_of(v),
            };
            // Keywords say nothing of values of other types.
            let text = v.to_string();
            let of_rest = |(t, a): &(&str, Option<Automaton>)| {
                is(t) && !a.as_ref().is_some_and(|a| a.contains(text.as_bytes()))
            };
            if v.is_number() && !within(v, of) {
                return false;
            }
            (types.is_empty() || types.iter().any(|t| is(t))) && !rest.iter().any(of_rest)
        };
        let fitting: Vec<Node> =
            listed.into_iter().filter(fits).map(|v| json::value(v, self.style)).collect();
        if fitting.is_empty() {
            return Err(self.problem("no value of \"enum\" or \"const\" fits the other keywords"));
        }
        self.counted(Node::alt(fitting)).map(Some)
    }

    /// Numbers that are read as others than they were written would be wrong in every reply.
    fn check_exact(&self, value: &Value) -> Result<(), ConstrainError> {
        match value {
            Value::Array(all) => all.iter().try_for_each(|v| self.check_exact(v)),
            Value::Object(members) => members.values().try_for_each(|v| self.check_exact(v)),
            // Larger integers are read as the nearest double.
            Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|x| x.abs() >= LARGEST_EXACT) => {
                Err(self.problem(format!(
                    "\"enum\" or \"const\": expected numbers below 2^63, which are kept digit by digit, found {n}: write it as \
                     a string"
                )))
            }
            _ => Ok(()),
        }
    }

    fn of_type(&mut self, name: &str, of: &'a Map<String, Value>) -> Result<Node, ConstrainError> {
        match name {
            "object" => self.object(of),
            "array" => self.array(of),
            "string" => self.string(of),
            "number" | "integer" => self.number(of, name == "integer"),
            "boolean" => Ok(json::boolean()),
            _ => Ok(Node::text("null")),
        }
    }

    /// A natural number.
    fn count(&self, of: &Map<String, Value>, key: &str) -> Result<Option<u32>, ConstrainError> {
        let Some(value) = of.get(key) else { return Ok(None) };
        // 2.0 is an integer, too.
        let x = value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(x));
        match x {
            Some(x) => Ok(Some(x as u32)),
            None => Err(self.problem(format!("{key:?}: expected a natural number, found {value}"))),
        }
    }

    fn string(&mut self, of: &Map<String, Value>) -> Result<Node, ConstrainError> {
        let (min, max) = (self.count(of, "minLength")?, self.count(of, "maxLength")?);
        let text = |key: &str| match of.get(key) {
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            None => Ok(None),
            Some(other) => Err(self.problem(format!("{key:?}: expected a string, found {other}"))),
        };
        let (pattern, format) = (text("pattern")?, text("format")?);
        let many = [pattern.is_some(), format.is_some(), min.is_some() || max.is_some()];
        if many.iter().filter(|&&one| one).count() > 1 {
            return Err(
                self.problem("\"pattern\", \"format\" and lengths beside each other are not supported")
            );
        }
        let style = self.style;
        let inside = |pattern: &str| Ok(json::quoted(regex::inside(pattern, style == Style::Json)?, style));
        let node = match (pattern, format) {
            (Some(pattern), _) => inside(pattern).map_err(|e: ConstrainError| self.problem(e.to_string()))?,
            (_, Some("date-time")) => {
                let (date, time) = (DATE.trim_end_matches('$'), TIME.trim_start_matches('^'));
                inside(&format!("{date}T{time}"))?
            }
            (_, Some(format)) => match FORMATS.iter().find(|(name, _)| *name == format) {
                Some((_, pattern)) => inside(pattern)?,
                None => {
                    let known: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
                    let known = known.join(", ");
                    return Err(
                        self.problem(format!("\"format\": expected one of {known}; found {format:?}"))
                    );
                }
            },
            _ => return Ok(json::string(min.unwrap_or(0), max, style)),
        };
        self.counted(node)
    }

    /// A bound of numbers, and its value.
    fn bound<'v>(
        &self,
        of: &'v Map<String, Value>,
        key: &str,
    ) -> Result<Option<(&'v Value, f64)>, ConstrainError> {
        let Some(value) = of.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(x) => Ok(Some((value, x))),
            None => Err(self.problem(format!("{key:?}: expected a number, found {value}"))),
        }
    }

    fn number(&self, of: &Map<String, Value>, integer: bool) -> Result<Node, ConstrainError> {
        let mut bounds = [Bound { at: -LARGEST, open: false }, Bound { at: LARGEST, open: false }];
        let mut bounded = false;
        for ((end, open), key) in [(0, false), (1, false), (0, true), (1, true)].into_iter().zip(BOUNDS) {
            let Some((value, x)) = self.bound(of, key)? else { continue };
            let beyond = if end == 0 { x > LARGEST as f64 } else { x < -(LARGEST as f64) };
            if beyond {
                return Err(self.problem(format!(
                    "{key:?}: numbers have {DIGITS} digits at most here, none of which {value} allows"
                )));
            }
            let whole = x.fract() == 0.0;
            if !whole && !integer {
                return Err(self.problem(format!("{key:?} of a number: expected an integer, found {value}")));
            }
            bounded = true;
            // Of integers a bound between two of them is the next one.
            let near = if end == 0 { x.ceil() } else { x.floor() };
            let at = near.clamp(-(LARGEST as f64) - 1.0, LARGEST as f64 + 1.0) as i64;
            let new = Bound { at, open: open && whole };
            let old = &mut bounds[end];
            let tighter = if end == 0 { at > old.at } else { at < old.at };
            if tighter || at == old.at && new.open {
                *old = new;
            }
        }
        let [lo, hi] = bounds;
        match (integer, bounded) {
            (true, _) => Ok(json::integer(
                (lo.at + i64::from(lo.open)).max(-LARGEST),
                (hi.at - i64::from(hi.open)).min(LARGEST),
            )),
            (false, true) => Ok(json::between(lo, hi)),
            (false, false) => Ok(json::number()),
        }
    }

    fn array(&mut self, of: &'a Map<String, Value>) -> Result<Node, ConstrainError> {
        let (min, max) = (self.count(of, "minItems")?.unwrap_or(0), self.count(of, "maxItems")?);
        if max.is_some_and(|max| max < min) {
            return Ok(Node::never());
        }
        let first = match of.get("prefixItems") {
            None => Vec::new(),
            Some(Value::Array(all)) => {
                let one = |(i, schema)| self.at("prefixItems", |r| r.at(i, |r| r.schema(schema)));
                all.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?
            }
            Some(other) => {
                return Err(self.problem(format!("\"prefixItems\": expected a list, found {other}")));
            }
        };
        let item = match of.get("items") {
            None => self.any(),
            Some(schema) => self.at("items", |r| r.schema(schema))?,
        };
        if first.is_empty() {
            return Ok(json::array(item, min, max));
        }
        self.check_members(first.len())?;
        let n = first.len() as u32;
        let beyond = |most: u32| most.saturating_sub(n);
        let more = Node::cat([json::comma(), item]).repeat(beyond(min), max.map(beyond));
        let part = |(i, part): (u32, Node)| match i {
            0 => part,
            _ => Node::cat([json::comma(), part]),
        };
        let mut parts: Vec<Node> = (0..n).zip(first).map(part).collect();
        parts.truncate(max.unwrap_or(n) as usize);
        // What follows the last of them belongs to it.
        if let Some(last) = parts.last_mut() {
            *last = Node::cat([last.clone(), more]);
        }
        let rest = Node::First { parts: parts.into(), min };
        Ok(Node::cat([Node::text("["), rest, Node::text("]")]))
    }

    fn check_members(&self, found: usize) -> Result<(), ConstrainError> {
        match found <= MAX_MEMBERS {
            true => Ok(()),
            false => Err(self.problem(format!("expected at most {MAX_MEMBERS} members, found {found}"))),
        }
    }

    fn object(&mut self, of: &'a Map<String, Value>) -> Result<Node, ConstrainError> {
        let none = Map::new();
        let properties = match of.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(other) => {
                return Err(self.problem(format!("\"properties\": expected an object, found {other}")));
            }
        };
        let required: Vec<&str> = match of.get("required") {
            None => Vec::new(),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).collect()
            }
            Some(other) => {
                return Err(self.problem(format!("\"required\": expected a list of names, found {other}")));
            }
        };
        if let Some(name) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(self.problem(format!("\"required\" names {name:?}, which \"properties\" does not")));
        }
        let (open, close) = (Node::text("{"), Node::text("}"));
        if let Some(schema) = of.get("additionalProperties") {
            let value = self.at("additionalProperties", |r| r.schema(schema))?;
            if properties.is_empty() {
                return Ok(json::map(value, self.style));
            }
            // Other names are left out, but what is not supported in their schema is said.
        }
        if of.get("properties").is_none() {
            return Ok(json::map(self.any[0].clone(), self.style));
        }
        let mut members = Vec::new();
        for (name, schema) in properties_of(of) {
            let value = self.at("properties", |r| r.at(name, |r| r.schema(schema)))?;
            members.push((
                json::member(json::name_of(name, self.style), value),
                required.contains(&name.as_str()),
            ));
        }
        self.check_members(members.len())?;
        let after = |(member, required): &(Node, bool)| {
            let next = Node::cat([json::comma(), member.clone()]);
            if *required { next } else { next.optional() }
        };
        let after: Vec<Node> = members.iter().map(after).collect();
        // One of those up to the first that is required comes first; the others can be left out.
        let one_required = members.iter().position(|(_, required)| *required);
        // Each that can come first holds all that can follow.
        let firsts = one_required.map_or(members.len(), |i| i + 1);
        self.spend((1..=members.len()).rev().take(firsts).sum())?;
        let mut first: Vec<Node> = members
            .iter()
            .enumerate()
            .take(firsts)
            .map(|(i, (member, _))| Node::cat([std::slice::from_ref(member), &after[i + 1..]].concat()))
            .collect();
        first.extend(one_required.is_none().then(Node::empty));
        Ok(Node::cat([open, Node::alt(first), close]))
    }
}

/// Text with its `%41` as characters; None where it is none.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(out).ok()
}

/// Whether a number is within the bounds of a schema; what is no bound is found where the schema is read.
fn within(value: &Value, of: &Map<String, Value>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let whole = |v: &Value| v.as_i64().map(i128::from).or(v.as_u64().map(i128::from));
    let is = |key: &str, allowed: [std::cmp::Ordering; 2]| {
        let Some(bound) = of.get(key) else { return true };
        let order = match (whole(value), whole(bound)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => value.as_f64().zip(bound.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
        };
        order.is_none_or(|o| allowed.contains(&o))
    };
    is("minimum", [Greater, Equal])
        && is("maximum", [Less, Equal])
        && is("exclusiveMinimum", [Greater, Greater])
        && is("exclusiveMaximum", [Less, Less])
}

/// The properties of a schema that has some.
fn properties_of(of: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    of.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn type_of(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What to write in place of a keyword.
fn instead_of(keyword: &str) -> &'static str {
    match keyword {
        "oneOf" => ": use \"anyOf\" where no value fits two of the schemas",
        "nullable" => ": add \"null\" to \"type\"",
        "$anchor" | "$dynamicRef" | "$recursiveRef" => ": refer by \"$ref\" to #/$defs/NAME",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
