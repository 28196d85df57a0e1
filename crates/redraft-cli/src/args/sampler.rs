//! Sampler options, derived from the registry of samplers: `--sampler NAME` and one flag per parameter.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use redraft::gguf::Metadata;
use redraft::sampler::{ParamSpec, Params, Range, SAMPLERS, SamplerSpec, sampler};

/// The sampler, and the parameters that the user set.
#[derive(Debug, Clone)]
pub(crate) struct SamplerArgs {
    name: String,
    overrides: Vec<(String, f64)>,
}

impl SamplerArgs {
    /// The sampler and its parameters for a model: built-in values, then the file's, then the user's.
    ///
    /// # Errors
    /// Those of the registry: a parameter that the sampler does not have, a bad value in the file.
    pub(crate) fn resolve(&self, meta: &Metadata) -> Result<(&'static SamplerSpec, Params), redraft::Error> {
        let spec = sampler(&self.name)?;
        Ok((spec, spec.params(meta, &self.overrides)?))
    }

    /// Parameters of the sampler.
    pub(crate) fn specs(&self) -> &'static [ParamSpec] {
        sampler(&self.name).map_or(&[], |s| s.params)
    }

    /// Sets a parameter of the sampler, by its name or its flag.
    ///
    /// # Errors
    /// The sampler has no such parameter; the value is not in its range.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let Some(p) = self.specs().iter().find(|p| p.name == name || p.flag == name) else {
            let known: Vec<&str> = self.specs().iter().map(|p| p.flag).collect();
            return Err(format!("the sampler has no parameter `{name}`; it has {}", known.join(", ")));
        };
        let x = value(text, p.range).map_err(|e| format!("{}: {e}, found `{text}`", p.flag))?;
        self.overrides.retain(|(n, _)| n != p.name);
        self.overrides.push((p.name.to_string(), x));
        Ok(())
    }
}

/// All parameters of all samplers; where samplers share a flag, the first one.
fn parameters() -> impl Iterator<Item = &'static ParamSpec> {
    let all = || SAMPLERS.iter().flat_map(|s| s.params);
    all().enumerate().filter(move |(i, p)| !all().take(*i).any(|q| q.flag == p.flag)).map(|(_, p)| p)
}

fn value(text: &str, range: Range) -> Result<f64, String> {
    let ok = |x: &f64| match range {
        Range::Int { min, max } => x.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(x),
        Range::Float { min, max } => (min..=max).contains(x),
    };
    text.parse().ok().filter(ok).ok_or_else(|| format!("expected {range}"))
}

fn flag(p: &'static ParamSpec) -> Arg {
    let from = p.gguf_key.map_or(String::new(), |_| " unless the model file says otherwise".into());
    let name = match p.range {
        Range::Int { .. } => "N",
        Range::Float { .. } => "X",
    };
    Arg::new(p.name)
        .long(p.flag)
        .value_name(name)
        .env(format!("REDRAFT_{}", p.name.to_uppercase()))
        .value_parser(move |text: &str| value(text, p.range))
        .allow_negative_numbers(true)
        .help(format!("{} ({}) [default: {}{from}]", capital(p.doc), p.range, p.default))
        .help_heading("Sampler")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

impl clap::Args for SamplerArgs {
    fn augment_args(cmd: Command) -> Command {
        let names = SAMPLERS.iter().map(|s| PossibleValue::new(s.name).help(s.about));
        let first = SAMPLERS.first().map_or("", |s| s.name);
        let choice = Arg::new("sampler")
            .long("sampler")
            .value_name("NAME")
            .env("REDRAFT_SAMPLER")
            .default_value(first)
            .value_parser(PossibleValuesParser::new(names))
            .help("How the canvas is refined")
            .help_heading("Sampler");
        parameters().map(flag).fold(cmd.arg(choice), Command::arg)
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl clap::FromArgMatches for SamplerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SamplerArgs, clap::Error> {
        let name = matches.get_one::<String>("sampler").cloned().unwrap_or_default();
        // A variable of the environment that another sampler knows must not make this one fail.
        let known = |p: &&ParamSpec| {
            matches.value_source(p.name) == Some(ValueSource::CommandLine)
                || sampler(&name).is_ok_and(|s| s.params.iter().any(|q| q.name == p.name))
        };
        let given = |p: &ParamSpec| Some((p.name.to_string(), *matches.get_one::<f64>(p.name)?));
        let overrides = parameters().filter(known).filter_map(given).collect();
        Ok(SamplerArgs { name, overrides })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_against_the_range() {
        let int = Range::Int { min: 1, max: 48 };
        assert_eq!(value("48", int), Ok(48.0));
        for bad in ["0", "49", "1.5", "x", "", "nan"] {
            assert_eq!(value(bad, int), Err("expected an integer in 1..=48".into()), "{bad}");
        }
        assert_eq!(value("0.1", Range::Float { min: 0.0, max: 1.0 }), Ok(0.1));
    }

    #[test]
    fn flags_are_unique() {
        let mut flags: Vec<&str> = parameters().map(|p| p.flag).collect();
        let n = flags.len();
        flags.sort_unstable();
        flags.dedup();
        assert!(n > 0 && n == flags.len());
    }
}
