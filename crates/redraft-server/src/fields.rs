//! The fields of a request. Each is taken once, and one that nobody takes is an error: nothing is ignored.

use redraft::sampler::{Range, SamplerSpec};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// An object whose fields are taken one after another. Null is as good as absent.
pub(crate) struct Fields {
    map: Map<String, Value>,
    /// What stands before the names in errors, with its dot.
    path: String,
}

impl Fields {
    pub(crate) fn new(value: Value, path: &str) -> Result<Fields, ApiError> {
        let path_dot = if path.is_empty() { String::new() } else { format!("{path}.") };
        match value {
            Value::Object(map) => Ok(Fields { map, path: path_dot }),
            other => Err(ApiError::field(
                if path.is_empty() { "body" } else { path },
                format_args!("expected an object, found {}", kind(&other)),
            )),
        }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    pub(crate) fn error(&self, name: &str, message: impl std::fmt::Display) -> ApiError {
        ApiError::field(self.name(name), message)
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|v| !v.is_null())
    }

    /// Reads a field by `read`; `expected` says what would do.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        expected: impl std::fmt::Display,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let found = || match &value {
            Value::Number(n) => n.to_string(),
            other => kind(other).into(),
        };
        let wrong = || self.error(name, format_args!("expected {expected}, found {}", found()));
        read(&value).map(Some).ok_or_else(wrong)
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a string", |v| v.as_str().map(str::to_owned))
    }

    /// A string that must be there.
    pub(crate) fn needed(&mut self, name: &str) -> Result<String, ApiError> {
        self.string(name)?.ok_or_else(|| self.error(name, "expected a string"))
    }

    /// The elements of a list, each read by `read`, which gets its path; none where there is no such field.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&str, Value) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let path = self.name(name);
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(all)) => {
                all.into_iter().enumerate().map(|(i, value)| read(&format!("{path}[{i}]"), value)).collect()
            }
            Some(other) => Err(self.error(name, format_args!("expected a list, found {}", kind(&other)))),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// A whole number of at least 1.
    pub(crate) fn count(&mut self, name: &str, most: usize) -> Result<Option<usize>, ApiError> {
        self.read(name, format_args!("a whole number in 1..={most}"), |v| {
            let n = usize::try_from(v.as_u64()?).ok()?;
            (1..=most).contains(&n).then_some(n)
        })
    }

    /// A whole number of at least 0.
    pub(crate) fn natural(&mut self, name: &str, most: usize) -> Result<Option<usize>, ApiError> {
        self.read(name, format_args!("a whole number in 0..={most}"), |v| {
            usize::try_from(v.as_u64()?).ok().filter(|n| *n <= most)
        })
    }

    pub(crate) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<Option<f64>, ApiError> {
        let range = Range::Float { min, max };
        self.read(name, range, |v| v.as_f64().filter(|x| range.contains(*x)))
    }

    /// A field that is accepted with the value that changes nothing.
    pub(crate) fn only(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        let Some(value) = self.take(name) else { return Ok(()) };
        let same = |n: &Value| *n == value || n.as_f64().is_some_and(|n| value.as_f64() == Some(n));
        match neutral.iter().any(same) {
            true => Ok(()),
            false => {
                let all: Vec<String> = neutral.iter().map(ToString::to_string).collect();
                Err(self.error(name, format_args!("not supported; only {} is accepted", all.join(" or "))))
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.map.keys().cloned().collect()
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        let Some((name, _)) = self.map.iter().find(|(_, v)| !v.is_null()) else { return Ok(()) };
        Err(self.error(&shown(name), "this field is not supported"))
    }
}

/// A name from a request, at a length that a message can quote.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// The kind of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// How a canvas is to be denoised.
pub(crate) struct Sampling {
    pub(crate) sampler: &'static SamplerSpec,
    pub(crate) overrides: Vec<(String, f64)>,
}

impl Sampling {
    /// Takes the fields that say it: those of `asked`, and `diffusion` with a sampler of `fit` and its parameters, which
    /// win.
    pub(crate) fn take(
        fields: &mut Fields,
        fit: &[&'static SamplerSpec],
        own: &'static SamplerSpec,
        asked: &[&str],
    ) -> Result<Sampling, ApiError> {
        let mut diffusion = match fields.take("diffusion") {
            Some(value) => Fields::new(value, &fields.name("diffusion"))?,
            None => Fields::new(Value::Object(Map::new()), "diffusion")?,
        };
        let sampler = match diffusion.string("sampler")? {
            None => own,
            Some(name) => fit.iter().copied().find(|s| s.name == name).ok_or_else(|| {
                let names: Vec<&str> = fit.iter().map(|s| s.name).collect();
                diffusion.error("sampler", format_args!("expected one of {}", names.join(", ")))
            })?,
        };
        let mut overrides: Vec<(String, f64)> = Vec::new();
        let known = |name: &str| sampler.params.iter().find(|p| p.name == name);
        let asks = |name: &str| asked.contains(&name);
        if asks("temperature")
            && let Some(t) = fields.number("temperature", 0.0, 100.0)?
        {
            let names: &[&str] =
                if known("temperature").is_some() { &["temperature"] } else { &["t_min", "t_max"] };
            for name in names {
                let least = known(name).map_or(t, |p| least(p.range));
                // Zero asks for the most likely tokens; samplers that divide by it come as close as they can.
                let t = if t == 0.0 { least } else { t };
                set(fields, &mut overrides, sampler, "temperature", name, t)?;
            }
        }
        if asks("top_p")
            && let Some(p) = fields.number("top_p", 0.0, 1.0)?
            && (p != 1.0 || known("top_p").is_some())
        {
            set(fields, &mut overrides, sampler, "top_p", "top_p", p)?;
        }
        if asks("top_k")
            && let Some(k) = fields.natural("top_k", u32::MAX as usize)?
            && (k != 0 || known("top_k").is_some())
        {
            set(fields, &mut overrides, sampler, "top_k", "top_k", k as f64)?;
        }
        if asks("presence_penalty")
            && let Some(x) = fields.number("presence_penalty", -2.0, 2.0)?
            && x != 0.0
        {
            set(fields, &mut overrides, sampler, "presence_penalty", "presence_penalty", x)?;
        }
        for name in diffusion.names() {
            let Some(p) = known(&name) else {
                let names: Vec<&str> = sampler.params.iter().map(|p| p.name).collect();
                let message = format!("the sampler {} has the parameters {}", sampler.name, names.join(", "));
                return Err(diffusion.error(&shown(&name), message));
            };
            if let Some(x) =
                diffusion.read(p.name, p.range, |v| v.as_f64().filter(|x| p.range.contains(*x)))?
            {
                overrides.push((p.name.to_owned(), x));
            }
        }
        diffusion.finish()?;
        Ok(Sampling { sampler, overrides })
    }
}

fn least(range: Range) -> f64 {
    match range {
        Range::Int { min, .. } => f64::from(min),
        Range::Float { min, .. } => min,
    }
}

/// Sets the parameter `name` of a sampler because a field asks for it.
fn set(
    fields: &Fields,
    overrides: &mut Vec<(String, f64)>,
    sampler: &SamplerSpec,
    field: &str,
    name: &str,
    x: f64,
) -> Result<(), ApiError> {
    match sampler.params.iter().find(|p| p.name == name) {
        Some(p) if p.range.contains(x) => overrides.push((name.to_owned(), x)),
        Some(p) => {
            let message = format!("the sampler {} expects {}, found {x}", sampler.name, p.range);
            return Err(fields.error(field, message));
        }
        None => return Err(fields.error(field, format_args!("the sampler {} has none", sampler.name))),
    }
    Ok(())
}

/// Texts that end an answer: one, or a list of up to `most`.
pub(crate) fn stops(fields: &mut Fields, name: &str, most: usize) -> Result<Vec<String>, ApiError> {
    let expected = format!("a text of 1 to 256 bytes or a list of up to {most}");
    let all = fields.read(name, &expected, |v| match v {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(all) => all.iter().map(|v| v.as_str().map(str::to_owned)).collect(),
        _ => None,
    })?;
    let all = all.unwrap_or_default();
    match all.len() <= most && all.iter().all(|s| (1..=256).contains(&s.len())) {
        true => Ok(all),
        false => Err(fields.error(name, format_args!("expected {expected}"))),
    }
}

/// What a stream is to tell beside the text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stream {
    pub(crate) on: bool,
    pub(crate) usage: bool,
    pub(crate) drafts: Drafts,
}

/// What a stream tells of a canvas between two steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Drafts {
    #[default]
    None,
    Shown,
    /// With what else could stand at each position.
    Alternatives,
}

impl Stream {
    pub(crate) fn take(fields: &mut Fields) -> Result<Stream, ApiError> {
        let on = fields.flag("stream")?.unwrap_or(false);
        let mut stream = Stream { on, ..Stream::default() };
        let Some(options) = fields.take("stream_options") else { return Ok(stream) };
        if !on {
            return Err(fields.error("stream_options", "allowed only with stream = true"));
        }
        let mut options = Fields::new(options, &fields.name("stream_options"))?;
        stream.usage = options.flag("include_usage")?.unwrap_or(false);
        let drafts = options.flag("include_drafts")?.unwrap_or(false);
        let alternatives = options.flag("include_alternatives")?.unwrap_or(false);
        stream.drafts = match (drafts, alternatives) {
            (false, false) => Drafts::None,
            (true, false) => Drafts::Shown,
            (true, true) => Drafts::Alternatives,
            (false, true) => {
                return Err(options.error("include_alternatives", "allowed only with include_drafts = true"));
            }
        };
        // Asks for nothing but padding against traffic analysis, which this server does not do.
        options.only("include_obfuscation", &[Value::Bool(false)])?;
        options.finish()?;
        Ok(stream)
    }
}
