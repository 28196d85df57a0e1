//! Sampler options, derived from the registry of samplers: `--sampler NAME` and one flag per parameter.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use redraft::Model;
use redraft::arch::{ARCHS, Noise};
use redraft::sampler::{ParamSpec, Params, Profile, Range, SAMPLERS, SamplerSpec, Stability, sampler};

use super::generate::Task;
use super::{left_out, variable};

/// The sampler, and the parameters that the user set.
#[derive(Debug, Clone)]
pub(crate) struct SamplerArgs {
    /// None: the model's.
    name: Option<String>,
    /// The name is from the environment.
    name_from_environment: bool,
    overrides: Vec<(String, f64)>,
    /// From the environment: those that do not apply must not make it fail.
    environment: Vec<(String, f64)>,
}

/// What the parameters are for.
#[derive(Clone, Copy)]
pub(crate) struct Use<'a> {
    /// The model.
    pub(crate) model: &'a Model,
    /// What it does.
    pub(crate) task: Task,
    /// Tokens of the answer at most, where the user says it.
    pub(crate) most: Option<usize>,
}

impl SamplerArgs {
    /// The sampler that a model runs with. One of the environment that does not go with the model or the task is
    /// left out.
    ///
    /// # Errors
    /// There is none of that name.
    fn of(&self, used: Use<'_>) -> Result<&'static SamplerSpec, redraft::Error> {
        match self.name.as_deref().map(sampler).transpose()? {
            Some(asked) if !self.name_from_environment || self.unfit(asked, used).is_none() => Ok(asked),
            _ => used.model.sampler(),
        }
    }

    /// Why a sampler does not go with a model or a task, where it does not.
    fn unfit(&self, spec: &SamplerSpec, used: Use<'_>) -> Option<String> {
        let model = used.model;
        if spec.masks != matches!(model.shape().noise, Noise::Mask(_)) {
            return Some(format!("{} has other canvases", model.arch().name));
        }
        if !spec.moves() {
            return None;
        }
        if matches!(used.task, Task::Gaps { .. }) {
            return Some("text around gaps stays at its place".into());
        }
        // Commands that nothing names: neither the file nor the user.
        let own = |(name, _): &&(String, f64)| spec.params.iter().any(|p| p.name == name);
        let all: Vec<_> = self.environment.iter().chain(&self.overrides).filter(own).cloned().collect();
        model.params(spec, &all).err().map(|e| e.to_string())
    }

    /// A parameter as the user wrote it.
    fn written(&self, p: &ParamSpec) -> String {
        match self.overrides.iter().any(|(name, _)| name == p.name) {
            false if self.environment.iter().any(|(name, _)| name == p.name) => variable(p.name),
            _ => format!("--{}", p.flag),
        }
    }

    /// The same for a text whose tokens stay at their places: where nobody asks for another sampler, the architecture's, also
    /// of a file whose own deletes and inserts.
    pub(crate) fn in_place(&self, model: &Model) -> SamplerArgs {
        let own = || model.arch().sampler.map(|s| s.name.to_string());
        SamplerArgs { name: self.name.clone().or_else(own), ..self.clone() }
    }

    /// What the environment says of the parameters of a sampler, and why what does not apply does not.
    fn environment(&self, spec: &SamplerSpec, used: Use<'_>) -> Vec<Result<(String, f64), String>> {
        let check = |(name, x): &(String, f64)| match spec.params.iter().find(|p| p.name == name) {
            None => Err(left_out(name, x, format!("the sampler {} has no such parameter", spec.name))),
            Some(p) if !p.range.contains(*x) => {
                Err(left_out(name, x, format!("the sampler {} expects {}", spec.name, p.range)))
            }
            Some(_) if guides(name, *x) && !used.model.shape().can_be_guided() => {
                Err(left_out(name, x, UNGUIDED))
            }
            Some(_) if used.task == (Task::Gaps { free: false }) && of_ends(name, *x) => {
                Err(left_out(name, x, NO_ENDS))
            }
            Some(_) if name == "min_tokens" && used.most.is_some_and(|most| *x > most as f64) => {
                Err(left_out(name, x, "the answer can have fewer tokens"))
            }
            Some(_) => Ok((name.clone(), *x)),
        };
        self.environment.iter().map(check).collect()
    }

    /// Notes on what of the environment does not apply to a model.
    pub(crate) fn left_out(&self, used: Use<'_>) -> Vec<String> {
        let Ok(spec) = self.of(used) else { return Vec::new() };
        let other = self.name.as_ref().filter(|name| *name != spec.name);
        let why = |name: &String| self.unfit(sampler(name).ok()?, used);
        let other = other.map(|name| left_out("sampler", name, why(name).unwrap_or_default()));
        other.into_iter().chain(self.environment(spec, used).into_iter().filter_map(Result::err)).collect()
    }

    /// The sampler and its parameters for a model: built-in values, those of the model's makers, the file's, then the
    /// user's.
    ///
    /// # Errors
    /// A parameter that the sampler does not have or a value out of its range, by the flag; a bad value in the file.
    pub(crate) fn resolve(&self, used: Use<'_>) -> anyhow::Result<(&'static SamplerSpec, Params)> {
        let (spec, model) = (self.of(used)?, used.model);
        let known = |name: &str| spec.params.iter().find(|p| p.name == name);
        let mut all: Vec<_> = self.environment(spec, used).into_iter().filter_map(Result::ok).collect();
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
            anyhow::ensure!(
                !guides(name, *x) || model.shape().can_be_guided(),
                "--{}: expected 0: {UNGUIDED}, found {x}",
                p.flag
            );
            anyhow::ensure!(
                used.task != (Task::Gaps { free: false }) || !of_ends(name, *x),
                "--{} changes nothing: {NO_ENDS}",
                p.flag
            );
        }
        let params = model.params(spec, &all).map_err(|e| match e {
            // By the name that the user knows.
            redraft::Error::Request { what, expected, found } => {
                let what = known(&what).map_or(what, |p| self.written(p));
                redraft::Error::Request { what, expected, found }
            }
            other => other,
        })?;
        Ok((spec, params))
    }

    /// Refuses an answer that would have to be longer than it can be.
    ///
    /// # Errors
    /// `--min-tokens` above `most`, the tokens of the answer at most.
    pub(crate) fn check_least(&self, spec: &SamplerSpec, params: &Params, most: usize) -> anyhow::Result<()> {
        let Some(p) = spec.params.iter().find(|p| p.name == "min_tokens") else { return Ok(()) };
        let least = params.get(p.name);
        anyhow::ensure!(
            least <= most as f64,
            "{}: expected at most the {most} tokens that the answer can have (--max-tokens), found {least}",
            self.written(p)
        );
        Ok(())
    }

    /// Flags that do nothing together with the other settings.
    pub(crate) fn without_effect(
        &self,
        spec: &SamplerSpec,
        params: &Params,
        profile: &'static Profile,
    ) -> Vec<String> {
        let ask = (spec.create)(params, profile).ask(0);
        // Confidences are then those of all tokens, and the most likely one is always left.
        let undrawn = ask.raw_stats && params.get("temperature") == 0.0;
        let once = profile.stability == Stability::Canvas;
        let why = |p: &ParamSpec, x: f64| match p.name {
            "top_k" | "top_p" if undrawn && x != p.default => {
                Some(format!("the sampler {} takes the most likely token at --temperature 0", spec.name))
            }
            "stability" if once && x > 1.0 => {
                Some(format!("the profile {} compares with the step before alone", profile.name))
            }
            _ => None,
        };
        let flag = |(name, x): &(String, f64)| {
            let p = spec.params.iter().find(|p| p.name == name)?;
            why(p, *x).map(|why| format!("--{} {x} changes nothing: {why}", p.flag))
        };
        self.overrides.iter().filter_map(flag).collect()
    }

    /// Sets a parameter of the model's sampler, by its name or its flag.
    ///
    /// # Errors
    /// The sampler has no such parameter; the value is not in its range.
    pub(crate) fn set(&mut self, used: Use<'_>, name: &str, text: &str) -> anyhow::Result<()> {
        let spec = self.of(used)?;
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

/// Whether a parameter asks for classifier-free guidance.
fn guides(name: &str, x: f64) -> bool {
    name == "cfg_scale" && x > 0.0
}

/// Whether a parameter says when an answer may end.
fn of_ends(name: &str, x: f64) -> bool {
    ["min_tokens", "end_last"].contains(&name) && x > 0.0
}

const NO_ENDS: &str =
    "no gap of free length ends the text, and only there the model decides where an answer ends";

const UNGUIDED: &str = "classifier-free guidance needs a model that keeps no prompt in a cache";

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

/// Other defaults of a parameter of some samplers, those of the models' makers: ` (sdar, sdar-moe: 0.85; llada2: 0.95)`.
fn defaults_of_makers(samplers: &[&SamplerSpec], p: &ParamSpec) -> String {
    let mut groups: Vec<(f64, Vec<&str>)> = Vec::new();
    for arch in ARCHS.iter().filter(|a| a.sampler.is_some_and(|s| samplers.iter().any(|t| t.name == s.name)))
    {
        let theirs = arch.defaults.iter().find(|(name, x)| *name == p.name && *x != p.default);
        let Some((_, x)) = theirs else { continue };
        match groups.iter_mut().find(|(y, _)| y == x) {
            Some((_, names)) => names.push(arch.name),
            None => groups.push((*x, vec![arch.name])),
        }
    }
    let groups: Vec<String> = groups.iter().map(|(x, names)| format!("{}: {x}", names.join(", "))).collect();
    if groups.is_empty() { String::new() } else { format!(" ({})", groups.join("; ")) }
}

/// What a parameter does and may be, for the samplers that have it.
fn help(all: &[(&SamplerSpec, &ParamSpec)]) -> String {
    let mut kinds: Vec<(&ParamSpec, Vec<&SamplerSpec>)> = Vec::new();
    for (sampler, p) in all {
        match kinds.iter_mut().find(|(q, _)| q == p) {
            Some((_, samplers)) => samplers.push(sampler),
            None => kinds.push((p, vec![sampler])),
        }
    }
    let one = |(p, samplers): &(&ParamSpec, Vec<&SamplerSpec>)| {
        let names: Vec<&str> = samplers.iter().map(|s| s.name).collect();
        let theirs = defaults_of_makers(samplers, p);
        let from = if p.gguf_key.is_some() { " unless the model file says otherwise" } else { "" };
        let (names, text) = (names.join(", "), capital(p.doc));
        format!("{names}: {text} ({}) [default: {}{theirs}{from}]", p.range, p.default)
    };
    kinds.iter().map(one).collect::<Vec<_>>().join(". ")
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
        .env(variable(p.name))
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
            name_from_environment: matches.value_source("sampler") == Some(ValueSource::EnvVariable),
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

    /// As the registry of architectures says.
    #[test]
    fn defaults_of_the_makers_are_told() {
        let text = |flag: &str| help(&parameters().iter().find(|(p, _)| p.flag == flag).unwrap().1);
        let threshold = text("threshold");
        assert!(threshold.contains("[default: 0.9 (llada2: 0.95; sdar, sdar-moe: 0.85)]"), "{threshold}");
        assert!(text("temperature").contains("[default: 0 (dream: 0.2)]"), "{}", text("temperature"));
        assert!(text("top-p").ends_with("[default: 1 (dream, fast-dllm: 0.95)]"), "{}", text("top-p"));
        assert!(text("factor").starts_with("dynamic-threshold: As many tokens n are"), "{}", text("factor"));
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
        let text = help(eps);
        assert!(
            text.starts_with("origin, maskgit-plus, topk-margin, entropy: Time at which the sch"),
            "{text}"
        );
    }
}
