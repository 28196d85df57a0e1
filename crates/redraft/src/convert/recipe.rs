//! Which tensor gets which block type.
//!
//! A recipe is either one block type for all matrices, a *pure* one, or a mix named after a file type of
//! llama.cpp, which gives the tensors that suffer most from few bits a larger type. The mixes follow
//! llama.cpp's rules for all models. Left out are its exceptions for single models (Falcon, 70B, mixtures of eight
//! experts) and its rule for fused `attn_qkv`, which no model here has.

use redraft_gguf::{CODECS, DType, Gguf, TensorInfo, codec};

use crate::Error;
use crate::file_type::{fitting, id_of, id_of_name, more_bits};
use crate::trace::glob;

/// Which tensor gets which type. In a mix, rows that do not divide into a type's blocks take a larger one that fits; a type
/// that was asked for holds the rows, or is an error.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Type of the matrices that no rule is about.
    matrices: DType,
    token_embd: Option<DType>,
    /// Patterns of names and the types of the matrices that they fit.
    overrides: Vec<(String, DType)>,
    /// None where the recipe is pure.
    mix: Option<&'static Mix>,
}

const TOKEN_EMBD: &str = "token_embd.weight";

/// A mix of types.
#[derive(Debug)]
pub struct Mix {
    /// Name, that of the file type in llama.cpp in lower case.
    pub name: &'static str,
    /// What goes where, in words.
    pub about: &'static str,
    /// Type of the matrices that the rule is silent about.
    matrices: DType,
    rule: fn(Place) -> Option<DType>,
}

/// What a matrix is for, as far as mixes make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The output head; the token embedding where the file has no other head.
    Output,
    AttnV,
    AttnOutput,
    /// Down projections, of experts too.
    FfnDown,
    Other,
}

/// A matrix: its part, and that it is number `i` of `n`. Attention values count themselves, other parts layers.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: Part,
    is_experts: bool,
    i: usize,
    n: usize,
    /// Four or more query heads share a head of values, which is small then.
    shared_values: bool,
    has_importance: bool,
}

/// All mixes.
pub static MIXES: &[Mix] = &[
    Mix {
        name: "q4_0",
        about: "Q4_0, the head Q6_K; with importance data the down projections of the first eighth of layers Q4_1",
        matrices: DType::Q4_0,
        rule: |p| (p.has_importance && first_down(p)).then_some(DType::Q4_1),
    },
    Mix { name: "q4_1", about: "Q4_1, the head Q6_K", matrices: DType::Q4_1, rule: |_| None },
    Mix {
        name: "q5_0",
        about: "Q5_0, the head Q6_K; with importance data the down projections of the first eighth of layers Q5_1",
        matrices: DType::Q5_0,
        rule: |p| (p.has_importance && first_down(p)).then_some(DType::Q5_1),
    },
    Mix { name: "q5_1", about: "Q5_1, the head Q6_K", matrices: DType::Q5_1, rule: |_| None },
    Mix {
        name: "q2_k",
        about: "Q2_K; values, attention output and down projections Q3_K, values that four heads share Q4_K; \
            the head Q6_K",
        matrices: DType::Q2_K,
        rule: |Place { part, shared_values, .. }| match part {
            Part::AttnV if shared_values => Some(DType::Q4_K),
            Part::AttnV | Part::AttnOutput | Part::FfnDown => Some(DType::Q3_K),
            _ => None,
        },
    },
    Mix {
        name: "q2_k_s",
        about: "Q2_K; values that four heads share and the down projections of the first eighth of layers Q4_K; \
            the head Q6_K",
        matrices: DType::Q2_K,
        rule: |p| (first_down(p) || p.part == Part::AttnV && p.shared_values).then_some(DType::Q4_K),
    },
    Mix { name: "q3_k_s", about: "Q3_K, the head Q6_K", matrices: DType::Q3_K, rule: |_| None },
    Mix {
        name: "q3_k_m",
        about: "Q3_K; values, attention output and down projections Q4_K, the first of them Q5_K; the head Q6_K",
        matrices: DType::Q3_K,
        rule: |Place { part, i, n, .. }| match part {
            Part::AttnV => Some(if i < 2 { DType::Q5_K } else { DType::Q4_K }),
            Part::FfnDown => Some(if i < n / 16 { DType::Q5_K } else { DType::Q4_K }),
            Part::AttnOutput => Some(DType::Q4_K),
            _ => None,
        },
    },
    Mix {
        name: "q3_k_l",
        about: "Q3_K; values, attention output and down projections Q5_K; the head Q6_K",
        matrices: DType::Q3_K,
        rule: |p| matches!(p.part, Part::AttnV | Part::AttnOutput | Part::FfnDown).then_some(DType::Q5_K),
    },
    Mix {
        name: "q4_k_s",
        about: "Q4_K; the first four values and the down projections of the first eighth of layers Q5_K; the head Q6_K",
        matrices: DType::Q4_K,
        rule: |Place { part, i, n, .. }| match part {
            Part::AttnV => (i < 4).then_some(DType::Q5_K),
            Part::FfnDown => (i < n / 8).then_some(DType::Q5_K),
            _ => None,
        },
    },
    Mix {
        name: "q4_k_m",
        about: "Q4_K; half of the values and down projections, and the head, Q6_K",
        matrices: DType::Q4_K,
        rule: six_where_it_matters,
    },
    Mix { name: "q5_k_s", about: "Q5_K, the head Q6_K", matrices: DType::Q5_K, rule: |_| None },
    Mix {
        name: "q5_k_m",
        about: "Q5_K; half of the values and down projections, and the head, Q6_K",
        matrices: DType::Q5_K,
        rule: six_where_it_matters,
    },
    Mix { name: "iq4_nl", about: ABOUT_IQ4, matrices: DType::IQ4_NL, rule: five_where_it_matters },
    Mix { name: "iq4_xs", about: ABOUT_IQ4, matrices: DType::IQ4_XS, rule: five_where_it_matters },
    Mix {
        name: "mxfp4_moe",
        about: "experts MXFP4, everything else Q8_0",
        matrices: DType::Q8_0,
        rule: |p| Some(if p.is_experts { DType::MXFP4 } else { DType::Q8_0 }),
    },
];

const ABOUT_IQ4: &str = "the type; values that four heads share, and without importance data the down projections of \
    the first eighth of layers, Q5_K; the head Q6_K";

fn first_down(Place { part, i, n, .. }: Place) -> bool {
    part == Part::FfnDown && i < n / 8
}

fn five_where_it_matters(p: Place) -> Option<DType> {
    let down = first_down(p) && !p.has_importance;
    (down || p.part == Part::AttnV && p.shared_values).then_some(DType::Q5_K)
}

fn six_where_it_matters(Place { part, i, n, .. }: Place) -> Option<DType> {
    (matches!(part, Part::AttnV | Part::FfnDown) && more_bits(i, n)).then_some(DType::Q6_K)
}

impl Recipe {
    /// Every matrix in one type.
    ///
    /// # Errors
    /// [`Error::Request`] for a type that cannot be written, with those that can.
    pub fn pure(dtype: DType) -> Result<Recipe, Error> {
        match codec(dtype).is_some_and(|c| c.encoder().is_some()) {
            true => Ok(Recipe { matrices: dtype, token_embd: None, overrides: Vec::new(), mix: None }),
            false => Err(Error::Request {
                what: "type to write".into(),
                expected: format!("one of {}", writable().join(", ")),
                found: match codec(dtype) {
                    Some(_) => format!("{dtype}, which can only be read"),
                    None => dtype.to_string(),
                },
            }),
        }
    }

    /// A mix by its name, or a pure recipe by the name of its block type where no mix has that name; upper or lower
    /// case.
    ///
    /// # Errors
    /// [`Error::Request`] for a name of neither, and for a type that cannot be written.
    pub fn from_name(name: &str) -> Result<Recipe, Error> {
        if let Some(mix) = MIXES.iter().find(|m| m.name.eq_ignore_ascii_case(name)) {
            return Ok(Recipe {
                matrices: mix.matrices,
                token_embd: None,
                overrides: Vec::new(),
                mix: Some(mix),
            });
        }
        let Some(dtype) = DType::from_name(name) else {
            let mixes: Vec<&str> = MIXES.iter().map(|m| m.name).collect();
            return Err(Error::Request {
                what: "type to write".into(),
                expected: format!(
                    "a block type ({}) or a mix ({})",
                    writable().join(", ").to_lowercase(),
                    mixes.join(", ")
                ),
                found: name.into(),
            });
        };
        Recipe::pure(dtype)
    }

    /// The same with another type for the matrices whose names fit `pattern`, in which `*` stands for any run of
    /// characters. Later calls win over earlier ones, and all of them over the type of the token embedding.
    ///
    /// # Errors
    /// As [`pure`](Self::pure).
    pub fn with_tensors(mut self, pattern: &str, dtype: DType) -> Result<Recipe, Error> {
        Recipe::pure(dtype)?;
        self.overrides.push((pattern.into(), dtype));
        Ok(self)
    }

    /// The same with another type for the token embedding, whether or not it is the output head too.
    ///
    /// # Errors
    /// As [`pure`](Self::pure).
    pub fn with_token_embd(self, dtype: DType) -> Result<Recipe, Error> {
        Recipe::pure(dtype)?;
        Ok(Recipe { token_embd: Some(dtype), ..self })
    }

    /// `general.file_type` of the file.
    pub(super) fn file_type_id(&self) -> Option<u32> {
        self.mix.map_or_else(|| id_of(self.matrices), |m| id_of_name(m.name))
    }

    /// The types of all tensors, in the order of the file. Vectors and routers keep theirs: they are small, and
    /// a router picks experts by small differences. So do tensors of integers and of unknown types.
    ///
    /// # Errors
    /// [`Error::Request`] for a pattern that fits no matrix and for a type of a token embedding that is not there,
    /// [`Error::Weights`] for types asked for, by a pattern, for the token embedding or for all matrices, that cannot hold
    /// the rows.
    pub(super) fn dtypes(&self, gguf: &Gguf, has_importance: bool) -> Result<Vec<DType>, Error> {
        let shared_values = heads_per_value(gguf) >= 4;
        if self.token_embd.is_some() && gguf.tensor(TOKEN_EMBD).is_none() {
            return Err(Error::Request {
                what: "type of the token embedding".into(),
                expected: "none, or a file that has a token embedding".into(),
                found: format!("no tensor {TOKEN_EMBD}"),
            });
        }
        let mut fits = vec![false; self.overrides.len()];
        let mut problems = Vec::new();
        let has_head = gguf.tensor("output.weight").is_some();
        let layer = |t: &TensorInfo| -> Option<usize> {
            t.name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
        };
        let n_layers = gguf.tensors().iter().filter_map(layer).max().map_or(0, |last| last.saturating_add(1));
        let mut values: Vec<usize> =
            gguf.tensors().iter().filter(|t| t.name.ends_with("attn_v.weight")).filter_map(layer).collect();
        values.sort_unstable();
        let mut dtype = |t: &TensorInfo| {
            let keep = t.dims.len() < 2
                || t.name.ends_with("ffn_gate_inp.weight")
                || t.dtype.is_integer()
                || codec(t.dtype).is_none();
            if keep {
                return t.dtype;
            }
            let (part, is_experts) = (part(t, has_head), t.dims.get(2).is_some_and(|&n| n > 1));
            let layer = layer(t).unwrap_or(0);
            let (i, n) = match part {
                Part::AttnV => (values.partition_point(|&l| l < layer), values.len()),
                _ => (layer, n_layers),
            };
            let by_mix = self.mix.and_then(|m| {
                let head = (part == Part::Output).then_some(DType::Q6_K);
                (m.rule)(Place { part, is_experts, i, n, shared_values, has_importance }).or(head)
            });
            let mut asked = self.mix.is_none().then_some(self.matrices);
            asked = self.token_embd.filter(|_| t.name == TOKEN_EMBD).or(asked);
            for ((pattern, dtype), fits) in self.overrides.iter().zip(&mut fits) {
                if glob(pattern, &t.name) {
                    (asked, *fits) = (Some(*dtype), true);
                }
            }
            match asked {
                Some(d) if d.row_bytes(t.row_len()).is_none() => {
                    problems.push(format!(
                        "{}: {d} cannot hold rows of {}: take a mix, or another type for it",
                        t.name,
                        t.row_len()
                    ));
                    d
                }
                Some(d) => d,
                None => fitting(by_mix.unwrap_or(self.matrices), t.row_len()),
            }
        };
        let dtypes = gguf.tensors().iter().map(&mut dtype).collect();
        if let Some(((pattern, _), _)) = self.overrides.iter().zip(&fits).find(|(_, fits)| !**fits) {
            return Err(Error::Request {
                what: "pattern of tensors".into(),
                expected: "one that fits a matrix of the file other than a router".into(),
                found: pattern.clone(),
            });
        }
        if problems.is_empty() { Ok(dtypes) } else { Err(Error::Weights { problems }) }
    }
}

/// Names of the types that can be written.
fn writable() -> Vec<String> {
    CODECS.iter().filter(|c| c.encoder().is_some()).map(|c| c.dtype().to_string()).collect()
}

/// How many query heads share a head of values in the first layer; 0 where the file does not say.
fn heads_per_value(gguf: &Gguf) -> u64 {
    let m = gguf.metadata();
    let Ok(Some(arch)) = m.opt_str("general.architecture") else { return 0 };
    let first = |name: &str| {
        let key = format!("{arch}.attention.{name}");
        let of_all = m.opt_u64(&key).ok().flatten();
        of_all.or_else(|| m.i32_array(&key).ok()?.first().and_then(|&n| u64::try_from(n).ok()))
    };
    first("head_count").unwrap_or(0).checked_div(first("head_count_kv").unwrap_or(0)).unwrap_or(0)
}

fn part(t: &TensorInfo, has_head: bool) -> Part {
    match t.name.strip_suffix(".weight").and_then(|n| n.rsplit('.').next()) {
        Some("output") => Part::Output,
        Some("token_embd") if !has_head => Part::Output,
        Some("attn_v") => Part::AttnV,
        Some("attn_output") => Part::AttnOutput,
        Some("ffn_down" | "ffn_down_exps" | "ffn_down_shexp") => Part::FfnDown,
        _ => Part::Other,
    }
}

#[cfg(test)]
mod tests {
    use redraft_gguf::{Array, GgufWriter, Value};

    use super::*;

    /// A model of sixteen layers, of which every fourth has no values of its own.
    fn model() -> Gguf {
        let mut w = GgufWriter::new();
        w.metadata_mut().set("general.architecture", "any");
        let mut bytes = Vec::new();
        let mut add = |name: String, dims: &[u64], dtype: DType| {
            w.add_tensor(&name, dims, dtype).unwrap();
            let rows: u64 = dims[1..].iter().product();
            bytes.push((name, vec![0; (dtype.row_bytes(dims[0]).unwrap() * rows) as usize]));
        };
        add("token_embd.weight".into(), &[256, 2], DType::F16);
        add("ids.weight".into(), &[4, 2], DType::I32);
        // Written backwards: numbers come from names, not from the order.
        for i in (0..16).rev() {
            let b = |name: &str| format!("blk.{i}.{name}.weight");
            add(b("attn_norm"), &[256], DType::F32);
            add(b("attn_output"), &[256, 2], DType::F16);
            if i % 4 != 3 {
                add(b("attn_v"), &[256, 2], DType::F16);
            }
            add(b("ffn_gate_inp"), &[256, 2], DType::F32);
            add(b("ffn_up_exps"), &[256, 2, 3], DType::F16);
            add(b("ffn_down_exps"), &[32, 2, 3], DType::F16);
            add(b("ffn_down"), &[256, 2], DType::F16);
        }
        let mut out = w.begin(Vec::new()).unwrap();
        for (name, bytes) in bytes {
            out.write_tensor(&name, &bytes).unwrap();
        }
        Gguf::from_bytes(out.finish().unwrap().into()).unwrap()
    }

    /// The types of a kind of tensor by ascending layer.
    fn types(gguf: &Gguf, recipe: &str, kind: &str) -> String {
        let dtypes = Recipe::from_name(recipe).unwrap().dtypes(gguf, false).unwrap();
        let mut found: Vec<(usize, DType)> = Vec::new();
        for (t, d) in gguf.tensors().iter().zip(dtypes) {
            let name = t.name.strip_suffix(".weight").unwrap();
            match name.strip_prefix("blk.").and_then(|n| n.split_once('.')) {
                Some((layer, k)) if k == kind => found.push((layer.parse().unwrap(), d)),
                None if name == kind => found.push((0, d)),
                _ => {}
            }
        }
        found.sort_unstable();
        let first = |d: &DType| d.to_string().split('_').next().unwrap().to_string();
        found.iter().map(|(_, d)| first(d)).collect::<Vec<_>>().join(" ")
    }

    /// Worked out by hand from the rules in words. Twelve layers have values: number 0 is the first eighth,
    /// 10 and 11 are the last, and from number 1 on every third one counts.
    #[test]
    fn mixes_give_more_bits_where_they_say() {
        let g = model();
        for (recipe, kind, want) in [
            ("q4_k_m", "attn_v", "Q6 Q4 Q4 Q6 Q4 Q4 Q6 Q4 Q4 Q6 Q6 Q6"),
            ("q4_k_m", "ffn_down", "Q6 Q6 Q4 Q4 Q6 Q4 Q4 Q6 Q4 Q4 Q6 Q4 Q4 Q6 Q6 Q6"),
            ("q5_k_m", "attn_v", "Q6 Q5 Q5 Q6 Q5 Q5 Q6 Q5 Q5 Q6 Q6 Q6"),
            ("q4_k_s", "attn_v", "Q5 Q5 Q5 Q5 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q4_k_s", "ffn_down", "Q5 Q5 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q3_k_m", "attn_v", "Q5 Q5 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q3_k_m", "ffn_down", "Q5 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q3_k_m", "attn_output", "Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q3_k_l", "attn_output", "Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5"),
            ("q3_k_s", "ffn_up_exps", "Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3"),
            // Rows of 32: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K.
            ("q4_k_s", "ffn_down_exps", "Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5"),
            ("q4_k_m", "ffn_down_exps", "Q8 Q8 Q5 Q5 Q8 Q5 Q5 Q8 Q5 Q5 Q8 Q5 Q5 Q8 Q8 Q8"),
            ("q4_k_m", "token_embd", "Q6"),
            ("q5_0", "ffn_up_exps", "Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5 Q5"),
            ("q8_0", "token_embd", "Q8"),
            ("q2_k", "ffn_down", "Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3"),
            ("q2_k", "attn_v", "Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3 Q3"),
            ("q2_k_s", "attn_v", "Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2"),
            ("q2_k_s", "ffn_down", "Q4 Q4 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2 Q2"),
            ("iq4_xs", "ffn_down", "Q5 Q5 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4 IQ4"),
            ("q4_0", "ffn_down", "Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4 Q4"),
            ("q4_0", "token_embd", "Q6"),
            ("q4_k_m", "ids", "I32"),
            ("mxfp4_moe", "token_embd", "Q8"),
        ] {
            assert_eq!(types(&g, recipe, kind), want, "{recipe} {kind}");
        }
        for kind in ["ffn_up_exps", "ffn_down_exps"] {
            assert!(types(&g, "mxfp4_moe", kind).split(' ').all(|t| t == "MXFP4"), "{kind}");
        }
        for kind in ["attn_norm", "ffn_gate_inp"] {
            assert!(types(&g, "q2_k", kind).split(' ').all(|t| t == "F32"), "{kind}");
        }
        let e = Recipe::from_name("q4_k").unwrap().dtypes(&g, false).unwrap_err().to_string();
        assert!(e.contains("blk.3.ffn_down_exps.weight: Q4_K cannot hold rows of 32"), "{e}");
        let recipe = Recipe::from_name("Q3_K_M").unwrap().with_token_embd(DType::Q8_0).unwrap();
        let dtypes = recipe.dtypes(&g, false).unwrap();
        assert_eq!((dtypes[0], recipe.file_type_id()), (DType::Q8_0, Some(12)));
    }

    #[test]
    fn heads_that_share_values_and_importance_data_change_mixes() {
        let mut m = model().metadata().clone();
        m.set("any.attention.head_count", 8u32);
        m.set("any.attention.head_count_kv", Value::Array(Array::I32(vec![2, 8])));
        let g = model().with_metadata(m);
        for recipe in ["q2_k", "q2_k_s"] {
            assert!(types(&g, recipe, "attn_v").split(' ').all(|t| t == "Q4"), "{recipe}");
        }
        assert!(types(&g, "iq4_nl", "attn_v").split(' ').all(|t| t == "Q5"));
        let of = |recipe: &str, name: &str| {
            let i = g.tensors().iter().position(|t| t.name == name).unwrap();
            Recipe::from_name(recipe).unwrap().dtypes(&g, true).unwrap()[i]
        };
        assert_eq!(of("iq4_xs", "blk.1.ffn_down.weight"), DType::IQ4_XS);
        assert_eq!(of("q4_0", "blk.1.ffn_down.weight"), DType::Q4_1);
        assert_eq!(of("q5_0", "blk.2.ffn_down.weight"), DType::Q5_0);
    }

    #[test]
    fn the_last_pattern_that_fits_wins() {
        let g = model();
        let base = || Recipe::from_name("q4_k_m").unwrap().with_token_embd(DType::Q8_0).unwrap();
        let with = |recipe: Recipe, pattern: &str, d: DType| recipe.with_tensors(pattern, d).unwrap();
        let recipe = with(with(base(), "*", DType::F16), "blk.1.ffn_*", DType::Q8_0);
        let dtypes = recipe.dtypes(&g, false).unwrap();
        let of = |name: &str| dtypes[g.tensors().iter().position(|t| t.name == name).unwrap()];
        assert_eq!(of("token_embd.weight"), DType::F16);
        assert_eq!(of("blk.1.ffn_down_exps.weight"), DType::Q8_0);
        assert_eq!((of("blk.1.ffn_gate_inp.weight"), of("blk.1.attn_norm.weight")), (DType::F32, DType::F32));
        let e = with(base(), "blk.*.attn_norm*", DType::F16).dtypes(&g, false).unwrap_err().to_string();
        assert!(e.contains("found blk.*.attn_norm*"), "{e}");
        let e = with(base(), "*down_exps*", DType::Q4_K).dtypes(&g, false).unwrap_err().to_string();
        assert!(e.contains("blk.15.ffn_down_exps.weight: Q4_K cannot hold rows of 32"), "{e}");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let text = |e: Error| e.to_string();
        let e = text(Recipe::from_name("iq2_xs").unwrap_err());
        assert!(e.contains("found IQ2_XS, which can only be read") && e.contains("MXFP4"), "{e}");
        let e = text(Recipe::from_name("q9").unwrap_err());
        assert!(e.contains("found q9") && e.contains("q3_k_m"), "{e}");
        let e = text(Recipe::pure(DType(99)).unwrap_err());
        assert!(e.contains("found type 99"), "{e}");
        let q8 = Recipe::pure(DType::Q8_0).unwrap();
        assert!(q8.with_token_embd(DType::I32).is_err());
    }
}
