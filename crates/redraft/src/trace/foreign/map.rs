//! A map from names of another program to ours.

use redraft_gguf::Shown;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::trace::{Tensor, TraceFile};

/// Which tensor of theirs is which of ours. In JSON, an object: their name, and ours or what else is to be said.
///
/// ```json
/// {
///   "lm_head": "logits",
///   "model.layers.*.input_layernorm": "attn_norm-*",
///   "hidden_states.*": "l_out-{*-1}",
///   "values.*": {"name": "Vcur-*", "transpose": true}
/// }
/// ```
///
/// A `*` stands for any run of characters; in our name for what it stood for, and `{*-1}` or `{*+1}` for a number that
/// is so much less or more. Names without a `*` count first, then the others in their order. Tensors that fit none keep
/// their names.
#[derive(Debug, Clone, Default)]
pub struct NameMap {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    /// Theirs, before and after the `*`; without one the name.
    from: (String, Option<String>),
    to: To,
    transpose: bool,
}

/// Our name.
#[derive(Debug, Clone)]
enum To {
    Name(String),
    /// What stands before and after what the `*` stood for.
    Around(String, String),
    /// A number, with what is added to it.
    Number(String, i64, String),
}

/// What an entry may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    transpose: bool,
}

impl NameMap {
    /// Reads a map; `name` is that of its file, for messages.
    ///
    /// # Errors
    /// [`Error::Golden`] when it is no JSON object of names, or a name has more than one `*`.
    pub fn parse(text: &str, name: &str) -> Result<NameMap, Error> {
        let wrong = |problem: String| Error::Golden { file: name.to_string(), problem };
        let entries: Map<String, Value> = serde_json::from_str(text)
            .map_err(|e| wrong(format!("expected a map, a JSON object of their names and ours: {e}")))?;
        let mut rules = Vec::new();
        for (from, value) in entries {
            let about = |problem: String| wrong(format!("{}: {problem}", Shown(&from)));
            let entry = match value {
                Value::String(name) => Entry { name, transpose: false },
                other => Entry::deserialize(other).map_err(|e| {
                    about(format!("expected our name, or an object with \"name\" and \"transpose\": {e}"))
                })?,
            };
            let (before, after) = match from.split_once('*') {
                None => (from.as_str(), None),
                Some((_, after)) if after.contains('*') => {
                    return Err(about("expected one * at most".into()));
                }
                Some((before, after)) => (before, Some(after.to_string())),
            };
            let to = To::parse(&entry.name, after.is_some()).map_err(about)?;
            rules.push(Rule { from: (before.to_string(), after), to, transpose: entry.transpose });
        }
        rules.sort_by_key(|rule| rule.from.1.is_some());
        Ok(NameMap { rules })
    }

    /// Our name for one of theirs, and whether its first two extents are exchanged.
    pub fn renamed(&self, name: &str) -> Option<(String, bool)> {
        self.rules.iter().find_map(|rule| Some((rule.rename(name)?, rule.transpose)))
    }

    /// Renames the tensors of a file.
    pub(super) fn apply(&self, file: &mut TraceFile) -> Result<(), Error> {
        let mut given = std::mem::take(&mut file.given);
        let mut fits = false;
        for (theirs, mut tensor) in std::mem::take(&mut file.tensors) {
            let renamed = self.renamed(&theirs);
            fits |= renamed.is_some();
            let (ours, transpose) = renamed.unwrap_or_else(|| (theirs.clone(), false));
            if transpose {
                if given.contains_key(&theirs) {
                    let what =
                        "transpose needs the shape and all elements, which raw and printed tensors lack";
                    return Err(file.wrong(format!("tensor {}: {what}", Shown(&theirs))));
                }
                tensor = transposed(&tensor).ok_or_else(|| {
                    file.wrong(format!("tensor {}: transpose needs two extents and elements", Shown(&theirs)))
                })?;
            }
            if let Some(given) = given.remove(&theirs) {
                file.given.insert(ours.clone(), given);
            }
            if file.tensors.insert(ours.clone(), tensor).is_some() {
                return Err(file.wrong(format!("by the map two tensors are {}", Shown(&ours))));
            }
        }
        if !fits && !self.rules.is_empty() {
            file.notes.push("no tensor has a name of the map".into());
        }
        Ok(())
    }
}

impl To {
    fn parse(text: &str, star: bool) -> Result<To, String> {
        let odd = || Err(format!("expected a name with one * or {{*-1}} at most, found {}", Shown(text)));
        let Some((before, after)) = text.split_once('*') else { return Ok(To::Name(text.into())) };
        if after.contains('*') {
            return odd();
        }
        if !star {
            return Err("our name has a *, theirs none".into());
        }
        let Some(before) = before.strip_suffix('{') else {
            return Ok(To::Around(before.into(), after.into()));
        };
        match after.split_once('}').map(|(n, after)| (n.parse::<i32>(), after)) {
            Some((Ok(add), after)) => Ok(To::Number(before.into(), add.into(), after.into())),
            _ => odd(),
        }
    }
}

impl Rule {
    fn rename(&self, name: &str) -> Option<String> {
        let (before, after) = &self.from;
        let Some(after) = after else {
            return match &self.to {
                To::Name(to) if name == before => Some(to.clone()),
                _ => None,
            };
        };
        let middle = name.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
        Some(match &self.to {
            To::Name(to) => to.clone(),
            To::Around(before, after) => format!("{before}{middle}{after}"),
            To::Number(before, add, after) => {
                let n = i64::from(middle.parse::<u32>().ok()?) + add;
                (n >= 0).then(|| format!("{before}{n}{after}"))?
            }
        })
    }
}

/// With its first two extents exchanged, those of 1 before them aside; none of what has no two, or no elements.
fn transposed(t: &Tensor) -> Option<Tensor> {
    let mut shape = t.shape.clone();
    while shape.len() > 2 && shape[0] == 1 {
        shape.remove(0);
    }
    let (&[a, b], rest) = (shape.first_chunk()?, &shape[2..]);
    if t.data.is_empty() {
        return None;
    }
    let inner: usize = rest.iter().product();
    let order = (0..b).flat_map(|j| (0..a).map(move |i| i * b + j));
    let order: Vec<usize> = order.flat_map(|block| block * inner..(block + 1) * inner).collect();
    shape.swap(0, 1);
    Some(Tensor { shape, data: t.data.reordered(&order) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Elements;

    fn map(text: &str) -> Result<NameMap, String> {
        NameMap::parse(text, "map.json").map_err(|e| e.to_string())
    }

    #[test]
    fn names_are_mapped_by_pattern_and_number() {
        let m = map(
            r#"{"hidden_states.*": "l_out-{*-1}", "hidden_states.0": "inp_embd", "model.layers.*.input_layernorm": "attn_norm-*",
                "x.*": {"name": "dec/{*+2}", "transpose": true}, "*.out": "same"}"#,
        )
        .unwrap();
        let to = |name: &str| m.renamed(name);
        let plain = |name: &str| Some((name.to_string(), false));
        assert_eq!(to("hidden_states.3"), plain("l_out-2"));
        assert_eq!(to("hidden_states.0"), plain("inp_embd"), "names without * come first");
        assert_eq!(to("model.layers.11.input_layernorm"), plain("attn_norm-11"));
        assert_eq!(to("x.5"), Some(("dec/7".into(), true)));
        assert_eq!((to("a.out"), to("other"), to("hidden_states.x")), (plain("same"), None, None));
        for (text, said) in [
            ("[]", "JSON object"),
            (r#"{"a*b*": "x"}"#, "one * at most"),
            (r#"{"a": "x*"}"#, "theirs none"),
            (r#"{"a*": "x{*-}"}"#, "{*-1}"),
            (r#"{"a*": "**"}"#, "{*-1}"),
            (r#"{"a": {"name": "x", "rows": 1}}"#, "unknown field"),
            (r#"{"a": 3}"#, "expected our name"),
        ] {
            assert!(map(text).unwrap_err().contains(said), "{text}");
        }
    }

    #[test]
    fn tensors_are_transposed_and_no_name_is_given_twice() {
        let mut file = TraceFile::default();
        file.insert("a", vec![1, 2, 3, 2], Elements::I32((0..12).collect()));
        file.insert("b", vec![1], Elements::I32(vec![5]));
        let mut again = file.clone();
        map(r#"{"a": {"name": "c", "transpose": true}}"#).unwrap().apply(&mut file).unwrap();
        assert_eq!(file.tensors["c"].shape, [3, 2, 2]);
        assert_eq!(file.tensors["c"].data, Elements::I32(vec![0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]));
        assert_eq!((file.tensors.len(), file.notes.len()), (2, 0));
        let error = map(r#"{"a": "b"}"#).unwrap().apply(&mut again.clone()).unwrap_err().to_string();
        assert!(error.contains("two tensors are b"), "{error}");
        let flat = map(r#"{"b": {"name": "b", "transpose": true}}"#).unwrap();
        assert!(flat.apply(&mut again.clone()).unwrap_err().to_string().contains("two extents"));
        map(r#"{"q": "r"}"#).unwrap().apply(&mut again).unwrap();
        assert_eq!(again.notes, ["no tensor has a name of the map"]);
    }
}
