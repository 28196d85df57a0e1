//! Sampler options, derived from the registry of samplers: `--sampler NAME` and one flag per parameter.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use redraft::Model;
use redraft::sampler::{ParamSpec, Params, Range, SAMPLERS, SamplerSpec, sampler};

/// The sampler, and the parameters that the user set.
#[derive(Debug, Clone)]
pub(crate) struct SamplerArgs {
    /// None: the model's.
    name: Option<String>,
    overrides: Vec<(String, f64)>,
    /// From the environment: those that the sampler does not have must not make it fail.
    environment: Vec<(String, f64)>,
}

impl SamplerArgs {
    /// The sampler that a model runs with.
    ///
    /// # Errors
    /// There is none of that name.
    fn of(&self, model: &Model) -> Result<&'static SamplerSpec, redraft::Error> {
        self.name.as_deref().map_or_else(|| model.sampler(), sampler)
    }

    /// The sampler and its parameters for a model: built-in values, those of the model's makers, the file's, then the
    /// user's.
    ///
    /// # Errors
    /// A parameter that the sampler does not have or a value out of its range, by the flag; a bad value in the file.
    pub(crate) fn resolve(&self, model: &Model) -> anyhow::Result<(&'static SamplerSpec, Params)> {
        let spec = self.of(model)?;
        let known = |name: &str| spec.params.iter().find(|p| p.name == name);
        let mut all: Vec<_> = self.environment.iter().filter(|(n, _)| known(n).is_some()).cloned().collect();
        all.extend_from_slice(&self.overrides);
        for (name, x) in &all {
            let Some(p) = known(name) else {
                let flags: Vec<String> = spec.params.iter().map(|p| format!("--{}", p.flag)).collect();
                let flag = parameters().iter().find(|(p, _)| p.name == name).map_or("", |(p, _)| p.flag);
                anyhow::bail!(
                    "--{flag}: the sampler {} has no such parameter; it has {}",
                    spec.name,
                    flags.join(", ")
                );
            };
            anyhow::ensure!(
                p.range.contains(*x),
                "--{}: expected {} by the sampler {}, found {x}",
                p.flag,
                p.range,
                spec.name
            );
        }
        Ok((spec, model.params(spec, &all)?))
    }

    /// Sets a parameter of the model's sampler, by its name or its flag.
    ///
    /// # Errors
    /// The sampler has no such parameter; the value is not in its range.
    pub(crate) fn set(&mut self, model: &Model, name: &str, text: &str) -> anyhow::Result<()> {
        let spec = self.of(model)?;
        let Some(p) = spec.params.iter().find(|p| p.name == name || p.flag == name) else {
            let known: Vec<&str> = spec.params.iter().map(|p| p.flag).collect();
            anyhow::bail!("the sampler has no parameter `{name}`; it has {}", known.join(", "));
        };
        let x = value(text, &[p.range]).map_err(|e| anyhow::anyhow!("{}: {e}, found `{text}`", p.flag))?;
        self.overrides.retain(|(n, _)| n != p.name);
        self.overrides.push((p.name.to_string(), x));
        Ok(())
    }
}

/// All parameters of all samplers, those that share a flag together, each with the samplers that have it.
fn parameters() -> Vec<(&'static ParamSpec, Vec<(&'static SamplerSpec, &'static ParamSpec)>)> {
    let mut out: Vec<(&ParamSpec, Vec<_>)> = Vec::new();
    for (sampler, p) in SAMPLERS.iter().flat_map(|s| s.params.iter().map(|p| (*s, p))) {
        match out.iter_mut().find(|(q, _)| q.flag == p.flag) {
            Some((_, all)) => all.push((sampler, p)),
            None => out.push((p, vec![(sampler, p)])),
        }
    }
    out
}

fn value(text: &str, ranges: &[Range]) -> Result<f64, String> {
    let ok = |x: &f64| ranges.iter().any(|range| range.contains(*x));
    let expected = || ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    text.parse().ok().filter(ok).ok_or_else(|| format!("expected {}", expected()))
}

/// What a parameter does and may be; where samplers differ in it, for each of them.
fn help(all: &[(&SamplerSpec, &ParamSpec)]) -> String {
    // Texts are made for specs that differ: every start of the program makes them.
    let mut kinds: Vec<(&ParamSpec, Vec<&str>)> = Vec::new();
    for &(sampler, p) in all {
        match kinds.iter_mut().find(|(q, _)| *q == p) {
            Some((_, names)) => names.push(sampler.name),
            None => kinds.push((p, vec![sampler.name])),
        }
    }
    let text = |p: &ParamSpec| {
        let from = if p.gguf_key.is_some() { " unless the model file says otherwise" } else { "" };
        format!("{} ({}) [default: {}{from}]", capital(p.doc), p.range, p.default)
    };
    match &kinds[..] {
        [(p, _)] => text(p),
        kinds => {
            let one = |(p, names): &(&ParamSpec, Vec<&str>)| format!("{}: {}", names.join(", "), text(p));
            kinds.iter().map(one).collect::<Vec<_>>().join(". ")
        }
    }
}

fn flag((p, all): (&'static ParamSpec, Vec<(&'static SamplerSpec, &'static ParamSpec)>)) -> Arg {
    let name = match p.range {
        Range::Int { .. } => "N",
        Range::Float { .. } => "X",
    };
    let mut ranges: Vec<Range> = Vec::new();
    for (_, p) in &all {
        if !ranges.contains(&p.range) {
            ranges.push(p.range);
        }
    }
    Arg::new(p.name)
        .long(p.flag)
        .value_name(name)
        .env(format!("REDRAFT_{}", p.name.to_uppercase()))
        .value_parser(move |text: &str| value(text, &ranges))
        .allow_negative_numbers(true)
        .help(help(&all))
        .help_heading("Sampler")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

impl clap::Args for SamplerArgs {
    fn augment_args(cmd: Command) -> Command {
        let names = SAMPLERS.iter().map(|s| PossibleValue::new(s.name).help(s.about));
        let choice = Arg::new("sampler")
            .long("sampler")
            .value_name("NAME")
            .env("REDRAFT_SAMPLER")
            .value_parser(PossibleValuesParser::new(names))
            .help("How the canvas is refined [default: as the model's makers do]")
            .help_heading("Sampler");
        parameters().into_iter().map(flag).fold(cmd.arg(choice), Command::arg)
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl clap::FromArgMatches for SamplerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SamplerArgs, clap::Error> {
        let given = |p: &ParamSpec| Some((p.name.to_string(), *matches.get_one::<f64>(p.name)?));
        let flagged = |p: &&ParamSpec| matches.value_source(p.name) == Some(ValueSource::CommandLine);
        let all: Vec<&ParamSpec> = parameters().into_iter().map(|(p, _)| p).collect();
        Ok(SamplerArgs {
            name: matches.get_one::<String>("sampler").cloned(),
            overrides: all.iter().copied().filter(flagged).filter_map(given).collect(),
            environment: all.iter().copied().filter(|p| !flagged(p)).filter_map(given).collect(),
        })
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
        assert_eq!(value("48", &[int]), Ok(48.0));
        for bad in ["0", "49", "1.5", "x", "", "nan"] {
            assert_eq!(value(bad, &[int]), Err("expected an integer in 1..=48".into()), "{bad}");
        }
        let float = Range::Float { min: 0.0, max: 1.0 };
        assert_eq!(value("0.1", &[float]), Ok(0.1));
        assert_eq!(value("0.5", &[int, float]), Ok(0.5));
        let e = Err("expected an integer in 1..=48 or a number in 0..=1".into());
        assert_eq!(value("1.5", &[int, float]), e);
    }

    #[test]
    fn flags_are_unique() {
        let mut flags: Vec<&str> = parameters().iter().map(|(p, _)| p.flag).collect();
        let n = flags.len();
        flags.sort_unstable();
        flags.dedup();
        assert!(n > 0 && n == flags.len());
    }

    #[test]
    fn a_shared_flag_says_whose_default_is_whose() {
        let all = parameters();
        let (_, steps) = all.iter().find(|(p, _)| p.flag == "steps").unwrap();
        let text = help(steps);
        assert!(
            text.starts_with("entropy-bound: Denoising steps of a canvas at most (an integer in 1..=4096)"),
            "{text}"
        );
        assert!(text.contains(". origin, maskgit-plus") && text.contains("[default: 0]"), "{text}");
        let (_, eps) = all.iter().find(|(p, _)| p.flag == "eps").unwrap();
        assert!(help(eps).starts_with("Time at which the schedule ends"), "{}", help(eps));
    }
}
