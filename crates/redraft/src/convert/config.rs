//! `config.json` and `generation_config.json`: settings by their paths.

use std::cell::RefCell;
use std::collections::BTreeSet;

use redraft_gguf::{Shown, Value};
use serde_json::Value as Json;

use super::hf::{Demand, Fixed, Key, Setting};

/// Settings of a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `config.json`.
    pub(super) model: Json,
    /// `generation_config.json`; null without one.
    pub(super) generation: Json,
    /// Paths that were asked for.
    read: RefCell<BTreeSet<String>>,
}

/// Start of the paths into `generation_config.json`.
const GENERATION: &str = "generation.";

impl Config {
    /// Settings of both files.
    pub(super) fn new(model: Json, generation: Json) -> Config {
        Config { model, generation, ..Config::default() }
    }

    /// The first of the settings that is there and not null, with its path.
    pub fn get<'a>(&self, paths: &[&'a str]) -> Option<(&'a str, &Json)> {
        self.all(paths).into_iter().next()
    }

    /// Those of the settings that are there and not null, with their paths.
    fn all<'a>(&self, paths: &[&'a str]) -> Vec<(&'a str, &Json)> {
        self.read.borrow_mut().extend(paths.iter().map(|&p| p.to_owned()));
        let one = |&path: &&'a str| {
            let (root, rest) = match path.strip_prefix(GENERATION) {
                Some(rest) => (&self.generation, rest),
                None => (&self.model, path),
            };
            let found = rest.split('.').try_fold(root, |at, part| at.get(part))?;
            (!found.is_null()).then_some((path, found))
        };
        paths.iter().filter_map(one).collect()
    }

    /// That several names of one setting do not say the same.
    pub(crate) fn agree(&self, paths: &[&str]) -> Result<(), String> {
        let all = self.all(paths);
        let same = |a: &Json, b: &Json| a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a));
        match all.split_first() {
            Some(((first, x), rest)) => match rest.iter().find(|(_, y)| !same(x, y)) {
                Some((other, y)) => Err(format!(
                    "config.json: `{first}` is {}, but `{other}` is {}: they are one setting, and should be the same",
                    shortened(x),
                    shortened(y)
                )),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The paths of `config.json` that are set, were not asked for, and are none of `inert` or in one of them.
    pub(super) fn unread<'a>(&self, inert: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
        let mut left = Vec::new();
        let mut stack = vec![(String::new(), &self.model)];
        let read = self.read.borrow();
        while let Some((path, value)) = stack.pop() {
            let known = inert.clone().any(|i| i == path);
            match value {
                Json::Null => {}
                _ if known => {}
                Json::Object(members) if path.is_empty() || !members.is_empty() => {
                    let inner = |name: &String| match path.is_empty() {
                        true => name.clone(),
                        false => format!("{path}.{name}"),
                    };
                    stack.extend(members.iter().map(|(name, v)| (inner(name), v)));
                }
                _ if read.contains(&path) => {}
                _ => left.push(path),
            }
        }
        left.sort();
        left
    }

    /// An integer that fits 32 bits.
    ///
    /// # Errors
    /// What the setting is instead.
    pub fn size(&self, paths: &[&str]) -> Result<Option<u32>, String> {
        let Some((path, x)) = self.get(paths) else { return Ok(None) };
        // Python's JSON has 64.0 where somebody divided.
        let whole =
            x.as_u64().or_else(|| x.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64));
        let fits = whole.and_then(|n| u32::try_from(n).ok());
        fits.map(Some).ok_or_else(|| wrong(path, "an integer from 0 to 2^32 - 1", x))
    }

    /// A number.
    ///
    /// # Errors
    /// What the setting is instead.
    pub fn float(&self, paths: &[&str]) -> Result<Option<f64>, String> {
        let Some((path, x)) = self.get(paths) else { return Ok(None) };
        x.as_f64().filter(|x| x.is_finite()).map(Some).ok_or_else(|| wrong(path, "a number", x))
    }

    /// A flag.
    ///
    /// # Errors
    /// What the setting is instead.
    pub fn flag(&self, paths: &[&str]) -> Result<Option<bool>, String> {
        let Some((path, x)) = self.get(paths) else { return Ok(None) };
        x.as_bool().map(Some).ok_or_else(|| wrong(path, "true or false", x))
    }

    /// A size that is not zero, or nothing.
    ///
    /// # Errors
    /// What the setting is instead.
    pub fn count(&self, paths: &[&str]) -> Result<Option<u32>, String> {
        match (self.size(paths)?, self.get(paths)) {
            (Some(0), Some((path, found))) => Err(wrong(path, "at least 1", found)),
            (found, _) => Ok(found),
        }
    }

    /// A size that must be there and not zero.
    ///
    /// # Errors
    /// That it is missing, or what it is instead.
    pub fn need(&self, paths: &[&str]) -> Result<u32, String> {
        self.count(paths)?.ok_or_else(|| missing(paths))
    }

    /// What a demand finds, where it is not met.
    pub(super) fn refused(&self, demand: &Demand) -> Option<String> {
        self.all(demand.paths).into_iter().find_map(|(path, found)| self.refused_at(demand, path, found))
    }

    fn refused_at(&self, demand: &Demand, path: &str, found: &Json) -> Option<String> {
        // Members have paths of their own.
        if found.is_object() && !demand.values.is_empty() {
            return None;
        }
        let number = |s: &str| s.parse::<f64>().ok();
        let is = |x: &Json| {
            let text = x.to_string();
            demand.values.iter().any(|v| *v == text || number(v).is_some_and(|x| number(&text) == Some(x)))
        };
        // A list has one of them for each layer.
        let met = is(found) || found.as_array().is_some_and(|list| list.iter().all(is));
        (!met).then(|| {
            let values = if demand.values.is_empty() { "null".into() } else { demand.values.join(" or ") };
            format!("{}; the architecture computes something else", wrong(path, &values, found))
        })
    }

    /// The value of a key; None where there is none. `block` is what the caller says of blocks.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub(super) fn value(
        &self,
        key: &Key,
        vocab_len: u32,
        block: Option<u32>,
        notes: &mut Vec<String>,
    ) -> Result<Option<Value>, String> {
        let float = |x: f64| Value::F32(x as f32);
        Ok(match &key.from {
            Setting::Size(paths) => Some(self.need(paths)?.into()),
            Setting::OptSize(paths) => self.size(paths)?.filter(|&n| n > 0).map(Value::U32),
            Setting::OptCount(paths) => self.count(paths)?.map(Value::U32),
            Setting::Block(paths, default) => {
                if block.is_none() {
                    self.agree(paths)?;
                }
                let said = block.or(self.size(paths)?.filter(|&n| n > 0));
                if let (None, Some(n)) = (said, default) {
                    notes.push(format!(
                        "config.json does not say how long blocks are; taking {n} ({}), which --block-length changes",
                        key.name
                    ));
                }
                said.or(*default).map(Value::U32)
            }
            Setting::Float(paths) => {
                self.agree(paths)?;
                Some(float(self.float(paths)?.ok_or_else(|| missing(paths))?))
            }
            Setting::OptFloat(paths) => self.float(paths)?.map(float),
            Setting::Flag(paths, default) => Some(self.flag(paths)?.unwrap_or(*default).into()),
            Setting::Always(Fixed::Size(n)) => Some((*n).into()),
            Setting::Always(Fixed::Flag(x)) => Some((*x).into()),
            Setting::Vocab => Some(vocab_len.into()),
            Setting::Made(make) => make(self)?,
        })
    }
}

/// That a setting is missing.
pub(crate) fn missing(paths: &[&str]) -> String {
    let file = if paths.iter().all(|p| p.starts_with(GENERATION)) {
        "generation_config.json"
    } else {
        "config.json"
    };
    format!("{file}: `{}` is missing", paths.join("` or `"))
}

fn wrong(path: &str, expected: &str, found: &Json) -> String {
    let (file, path) = match path.strip_prefix(GENERATION) {
        Some(rest) => ("generation_config.json", rest),
        None => ("config.json", path),
    };
    format!("{file}: `{path}`: expected {expected}, found {}", shortened(found))
}

fn shortened(value: &Json) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(100) {
        text.truncate(end);
        text.push('…');
    }
    Shown(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_paths() {
        let c = Config::new(
            serde_json::json!({"a": {"b": 64.0, "c": null}, "d": -1, "e": "x", "f": true, "g": 1e300, "h": ["y", "y"], "i": [],
                "z": 0}),
            serde_json::json!({"steps": 48}),
        );
        assert_eq!(c.size(&["a.c", "a.b"]), Ok(Some(64)));
        assert_eq!(c.size(&["a.c", "b"]), Ok(None));
        assert_eq!(c.size(&["generation.steps"]), Ok(Some(48)));
        assert_eq!(c.flag(&["f"]), Ok(Some(true)));
        for (paths, expected) in [(&["d"][..], "-1"), (&["e"], "\"x\""), (&["a"], "{"), (&["g"], "1e+300")] {
            let e = c.size(paths).unwrap_err();
            assert!(e.starts_with("config.json: `") && e.contains(expected), "{e}");
        }
        assert_eq!(c.need(&["q", "r"]), Err("config.json: `q` or `r` is missing".into()));
        assert_eq!(c.count(&["a.b"]), Ok(Some(64)));
        assert_eq!(c.count(&["q"]), Ok(None));
        assert_eq!(c.count(&["z"]), Err("config.json: `z`: expected at least 1, found 0".into()));
        assert_eq!(c.need(&["z"]), c.count(&["z"]).map(|_| 0));
        let demand = |paths, values| c.refused(&Demand { paths, values });
        assert_eq!(demand(&["a.b"], &["64"]), None);
        assert_eq!(demand(&["a.c"], &["1"]), None);
        assert!(demand(&["e"], &["\"y\""]).unwrap().contains("expected \"y\", found \"x\""));
        assert_eq!(demand(&["h"], &["\"y\""]), None);
        assert_eq!(demand(&["i"], &["\"y\""]), None);
        assert!(demand(&["h"], &["\"x\""]).unwrap().contains("[\"y\",\"y\"]"));
        // Each path is judged, objects by what is in them, unless there is to be nothing.
        assert!(demand(&["a.b", "e"], &["64"]).unwrap().contains("`e`"));
        assert_eq!(demand(&["a"], &["false"]), None);
        assert!(demand(&["a"], &[]).unwrap().contains("`a`"));
    }

    #[test]
    fn what_nobody_asked_for_is_told() {
        let c = Config::new(
            serde_json::json!({"a": {"b": 1, "c": 2, "n": null}, "d": 3, "e": {"f": {"g": 4}}, "h": [1], "i": {}}),
            Json::Null,
        );
        assert_eq!(c.size(&["a.b", "x"]), Ok(Some(1)));
        assert_eq!(c.unread(["e", "d.no"].into_iter()), ["a.c", "d", "h", "i"]);
        assert_eq!(c.size(&["a.c", "d"]), Ok(Some(2)));
        assert_eq!(c.unread(["e.f", "h", "i"].into_iter()), [""; 0]);
    }

    #[test]
    fn names_of_one_setting_say_the_same() {
        let c = Config::new(
            serde_json::json!({"a": 1e6, "b": {"a": 1_000_000}, "c": 1e4, "n": null}),
            Json::Null,
        );
        assert_eq!(c.agree(&["a", "b.a", "n", "x"]), Ok(()));
        let e = c.agree(&["n", "b.a", "c"]).unwrap_err();
        assert!(e.contains("`b.a` is 1000000, but `c` is 10000.0"), "{e}");
    }
}
