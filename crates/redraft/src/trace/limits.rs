//! Tolerances of a comparison: three presets, and limits of one's own by the names of tensors.

use redraft_gguf::Shown;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{glob, split_layer};

/// How exact the candidate's arithmetic is meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// f32 throughout: 1e-9.
    #[default]
    F32,
    /// Activations in f16 or bf16: 1e-3.
    Half,
    /// 8-bit activations: 3e-2.
    Quant,
}

/// Tolerances of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Preset; only `F32` also asks for the same argmax in every row of the logits.
    pub preset: Preset,
    /// Of all tensors.
    pub bounds: Bounds,
    /// Golden results that the candidate lacks are failures.
    pub all: bool,
    /// Limits of the tensors that a pattern [`name_fits`], instead of those of all; where several fit the last counts.
    pub by_name: Vec<(String, OwnLimits)>,
}

impl From<Preset> for Limits {
    fn from(preset: Preset) -> Limits {
        let x = match preset {
            Preset::F32 => 1e-9,
            Preset::Half => 1e-3,
            Preset::Quant => 3e-2,
        };
        Limits { preset, bounds: Bounds::relative(x), all: false, by_name: Vec::new() }
    }
}

/// Limits of some tensors; what is not said is as for all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnLimits {
    /// As [`Bounds::one_minus_cos`].
    pub one_minus_cos: Option<f64>,
    /// As [`Bounds::nmse`].
    pub nmse: Option<f64>,
    /// As [`Bounds::max_abs`].
    pub max_abs: Option<f64>,
}

/// What a tensor may differ by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// 1 − cosine at most.
    pub one_minus_cos: f64,
    /// Sum of squared differences over the sum of squares of the golden, at most.
    pub nmse: f64,
    /// Largest difference, if it matters.
    pub max_abs: Option<f64>,
}

impl Bounds {
    /// The same for both relative errors, and any largest difference.
    pub fn relative(x: f64) -> Bounds {
        Bounds { one_minus_cos: x, nmse: x, max_abs: None }
    }
}

/// Tensors of trajectories into which self-conditioning carries rounding from step to step.
const CARRIED: &[&str] = &["raw_logits", "entropy", "mean_entropy"];

impl Limits {
    /// What holds for the tensor `name`, of a trajectory or not.
    pub fn of(&self, name: &str, trajectory: bool) -> Bounds {
        // 1e-6 where rounding is carried over steps: an honest f32 run stays below 3e-8.
        let carried = trajectory && self.preset == Preset::F32 && CARRIED.contains(&name);
        let slack = if carried { 1e-6 / Limits::from(self.preset).bounds.nmse } else { 1.0 };
        let mut bounds = self.bounds;
        bounds.one_minus_cos *= slack;
        bounds.nmse *= slack;
        for (_, own) in self.by_name.iter().filter(|(pattern, _)| name_fits(pattern, name)) {
            bounds.one_minus_cos = own.one_minus_cos.unwrap_or(bounds.one_minus_cos);
            bounds.nmse = own.nmse.unwrap_or(bounds.nmse);
            bounds.max_abs = own.max_abs.or(bounds.max_abs);
        }
        bounds
    }

    /// Reads [`by_name`](Self::by_name) from JSON: an object with an object of limits for each pattern, such as
    /// `{"l_out": {"nmse": 1e-6}, "logits": {"one_minus_cos": 1e-4, "max_abs": 0.5}}`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(json: &[u8]) -> Result<Vec<(String, OwnLimits)>, String> {
        let example = r#"expected {"PATTERN": {"one_minus_cos": X, "nmse": X, "max_abs": X}}"#;
        let Entries(object) = serde_json::from_slice(json).map_err(|e| format!("{e}: {example}"))?;
        let each = |(pattern, value): (String, serde_json::Value)| {
            let own =
                OwnLimits::deserialize(value).map_err(|e| format!("{}: {e}: {example}", Shown(&pattern)))?;
            let negative = |x: Option<f64>| x.is_some_and(|x| x < 0.0);
            if [own.one_minus_cos, own.nmse, own.max_abs].into_iter().any(negative) {
                return Err(format!("{}: a limit is a number of at least 0", Shown(&pattern)));
            }
            Ok((pattern, own))
        };
        object.into_iter().map(each).collect()
    }
}

/// The members of a JSON object in their order, none of them twice.
struct Entries(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Entries, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                let mut entries: Vec<(String, serde_json::Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if entries.iter().any(|(other, _)| *other == name) {
                        return Err(M::Error::custom(format!("{} stands twice", Shown(&name))));
                    }
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Object)
    }
}

/// Whether the name of a tensor, its part after the pass (`dec/`), or that part without the layer (`-3`) fits a pattern, in
/// which `*` stands for any run of characters.
pub fn name_fits(pattern: &str, name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    let (_, bare, _) = split_layer(name);
    [name, base, bare].iter().any(|text| glob(pattern, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_with_and_without_pass_and_layer() {
        for pattern in ["dec/l_out-3", "l_out-3", "l_out", "l_*", "*", "*out*", "dec/*"] {
            assert!(name_fits(pattern, "dec/l_out-3"), "{pattern}");
        }
        for pattern in ["out", "enc/*", "l_out-*4", ""] {
            assert!(!name_fits(pattern, "dec/l_out-3"), "{pattern}");
        }
    }

    #[test]
    fn limits_of_ones_own_replace_what_they_say_and_no_more() {
        let by_name = Limits::parse(
            br#"{"*": {"nmse": 1e-4}, "l_out": {"one_minus_cos": 0.5, "max_abs": 2}, "l_out-1": {"nmse": 0}}"#,
        )
        .unwrap();
        let mut limits = Limits { by_name, ..Preset::Half.into() };
        limits.bounds.max_abs = Some(9.0);
        let of = |name| {
            let b = limits.of(name, false);
            (b.one_minus_cos, b.nmse, b.max_abs)
        };
        assert_eq!(of("logits"), (1e-3, 1e-4, Some(9.0)));
        assert_eq!(of("dec/l_out-0"), (0.5, 1e-4, Some(2.0)));
        assert_eq!(of("dec/l_out-1"), (0.5, 0.0, Some(2.0)));
        // Rounding that self-conditioning carries on, unless it is said otherwise.
        let plain = Limits::from(Preset::F32);
        assert_eq!((plain.of("entropy", true).nmse, plain.of("entropy", false).nmse), (1e-6, 1e-9));
        let own = Limits::parse(br#"{"entropy": {"nmse": 1e-12}}"#).unwrap();
        assert_eq!(Limits { by_name: own, ..plain }.of("entropy", true).nmse, 1e-12);
    }

    #[test]
    fn wrong_limits_say_where_and_what() {
        for (json, said) in [
            (r#"["l_out"]"#, "expected"),
            (r#"{"l_out": {"nsme": 1}}"#, "l_out: unknown field `nsme`"),
            (r#"{"l_out": {"nmse": "1"}}"#, "l_out: invalid type"),
            (r#"{"l_out": {"nmse": -1}}"#, "l_out: a limit is a number of at least 0"),
            (r#"{"l_out": 1}"#, "l_out: invalid type"),
            ("{", "EOF"),
            (r#"{"l_out": {"nmse": 1}, "l_out": {"nmse": 2}}"#, "l_out stands twice"),
        ] {
            let e = Limits::parse(json.as_bytes()).unwrap_err();
            assert!(e.contains(said), "{json}: {e}");
        }
    }
}
