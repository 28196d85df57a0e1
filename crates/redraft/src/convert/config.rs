//! `config.json` and `generation_config.json`: settings by their paths.

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
}

/// Start of the paths into `generation_config.json`.
const GENERATION: &str = "generation.";

impl Config {
    /// The first of the settings that is there and not null, with its path.
    pub fn get<'a>(&self, paths: &[&'a str]) -> Option<(&'a str, &Json)> {
        paths.iter().find_map(|&path| {
            let (root, rest) = match path.strip_prefix(GENERATION) {
                Some(rest) => (&self.generation, rest),
                None => (&self.model, path),
            };
            let found = rest.split('.').try_fold(root, |at, part| at.get(part))?;
            (!found.is_null()).then_some((path, found))
        })
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

    /// A size that must be there and not zero.
    ///
    /// # Errors
    /// That it is missing, or what it is instead.
    pub fn need(&self, paths: &[&str]) -> Result<u32, String> {
        match (self.size(paths)?, self.get(paths)) {
            (Some(0), Some((path, found))) => Err(wrong(path, "at least 1", found)),
            (Some(n), _) => Ok(n),
            (None, _) => Err(missing(paths)),
        }
    }

    /// What a demand finds, where it is not met.
    pub(super) fn refused(&self, demand: &Demand) -> Option<String> {
        let (path, found) = self.get(demand.paths)?;
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
            Setting::Block(paths, default) => {
                let said = block.or(self.size(paths)?.filter(|&n| n > 0));
                if let (None, Some(n)) = (said, default) {
                    notes.push(format!(
                        "config.json does not say how long blocks are; taking {n} ({}), which --block-length changes",
                        key.name
                    ));
                }
                said.or(*default).map(Value::U32)
            }
            Setting::Float(paths) => Some(float(self.float(paths)?.ok_or_else(|| missing(paths))?)),
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
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(100) {
        found.truncate(end);
        found.push('…');
    }
    format!("{file}: `{path}`: expected {expected}, found {}", Shown(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_paths() {
        let c = Config {
            model: serde_json::json!({"a": {"b": 64.0, "c": null}, "d": -1, "e": "x", "f": true, "g": 1e300, "h": ["y", "y"], "i": []}),
            generation: serde_json::json!({"steps": 48}),
        };
        assert_eq!(c.size(&["a.c", "a.b"]), Ok(Some(64)));
        assert_eq!(c.size(&["a.c", "b"]), Ok(None));
        assert_eq!(c.size(&["generation.steps"]), Ok(Some(48)));
        assert_eq!(c.flag(&["f"]), Ok(Some(true)));
        for (paths, expected) in [(&["d"][..], "-1"), (&["e"], "\"x\""), (&["a"], "{"), (&["g"], "1e+300")] {
            let e = c.size(paths).unwrap_err();
            assert!(e.starts_with("config.json: `") && e.contains(expected), "{e}");
        }
        assert_eq!(c.need(&["q", "r"]), Err("config.json: `q` or `r` is missing".into()));
        let demand = |paths, values| c.refused(&Demand { paths, values });
        assert_eq!(demand(&["a.b"], &["64"]), None);
        assert_eq!(demand(&["a.c"], &["1"]), None);
        assert!(demand(&["e"], &["\"y\""]).unwrap().contains("expected \"y\", found \"x\""));
        assert_eq!(demand(&["h"], &["\"y\""]), None);
        assert_eq!(demand(&["i"], &["\"y\""]), None);
        assert!(demand(&["h"], &["\"x\""]).unwrap().contains("[\"y\",\"y\"]"));
    }
}
