//! How a checkpoint of Hugging Face's `transformers` becomes a model file, as data: which of its tensors are which, and
//! which of its settings are which metadata. Each architecture says it in its own file, mostly with the tables that
//! families share ([`tables`](super::tables)).

use redraft_gguf::Value;

use super::config::Config;

/// What one architecture's checkpoints look like.
pub struct HfSpec {
    /// `architectures` of `config.json`.
    pub classes: &'static [&'static str],
    /// `model_type` of `config.json`, where the class is not known.
    pub model_types: &'static [&'static str],
    /// Tensors that become tensors.
    pub tensors: &'static [&'static [Tensor]],
    /// Starts of the names of tensors that are for something else, such as images.
    pub ignored: &'static [&'static str],
    /// Starts of names that are other names for the same tensors, each with the one that is in the table.
    pub twins: &'static [(&'static str, &'static str)],
    /// Tensors that are made from settings, in F32.
    pub made: &'static [Made],
    /// Settings that become metadata, in the order of the file.
    pub keys: &'static [&'static [Key]],
    /// Settings that must have one of these values, or none, for the model to be what the architecture computes.
    pub demands: &'static [&'static [Demand]],
    /// Paths of settings that do not change what the model computes, and all that is in them. What is neither here nor
    /// read is named in a warning.
    pub inert: &'static [&'static [&'static str]],
    /// Whether prompts begin with the token for that, where it is not as the tokenizer says.
    pub add_bos: Option<bool>,
}

/// A tensor under both names. `{N}` is the layer, and `{E}` the expert where experts stand one by one: they are
/// stacked.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    /// Name in the checkpoint.
    pub hf: &'static str,
    /// Name in the file.
    pub gguf: &'static str,
    /// Which rows, in which order.
    pub rows: Rows,
}

/// Rows of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// All, as they are.
    Same,
    /// Of each head, those of its two halves in turn: what rotates together comes to stand side by side. The key of the
    /// number of heads.
    Paired(&'static str),
    /// Of each matrix of a stack, one of two equal parts.
    Half(usize),
}

/// A tensor of the same values.
pub(crate) const fn same(hf: &'static str, gguf: &'static str) -> Tensor {
    Tensor { hf, gguf, rows: Rows::Same }
}

/// A tensor that is made.
pub struct Made {
    /// Its name in the file.
    pub gguf: &'static str,
    /// Its elements.
    pub values: fn(&Config) -> Result<Vec<f32>, String>,
}

/// A metadata key and where its value comes from.
pub struct Key {
    /// Name without the architecture's prefix; names that begin with `diffusion.` have none.
    pub name: &'static str,
    /// Its value.
    pub from: Setting,
}

/// A key of that name.
pub(crate) const fn key(name: &'static str, from: Setting) -> Key {
    Key { name, from }
}

/// Where a value comes from. Settings are named by paths (`rope_parameters.rope_theta`), of which the first that is
/// there and not null counts; those of `generation_config.json` begin with `generation.`.
pub enum Setting {
    /// An integer that must be there.
    Size(&'static [&'static str]),
    /// An integer; zero and nothing are the same.
    OptSize(&'static [&'static str]),
    /// An integer that is not zero, or nothing.
    OptCount(&'static [&'static str]),
    /// The length of a block: what the caller says, an integer of the settings, or else this number, with a note. All of
    /// the paths that are there must agree.
    Block(&'static [&'static str], Option<u32>),
    /// A number that must be there. All of the paths that are there must agree.
    Float(&'static [&'static str]),
    /// A number.
    OptFloat(&'static [&'static str]),
    /// A flag, or else this.
    Flag(&'static [&'static str], bool),
    /// The same in all checkpoints.
    Always(Fixed),
    /// The rows of the embedding.
    Vocab,
    /// Something else; an error is what is wrong with the settings.
    Made(fn(&Config) -> Result<Option<Value>, String>),
}

/// A value that does not depend on the checkpoint.
#[derive(Debug, Clone, Copy)]
pub enum Fixed {
    /// u32.
    Size(u32),
    /// bool.
    Flag(bool),
}

/// A setting and the values that it may have, in JSON, beside null and nothing; of a list each element. What is in an
/// object is judged by its own paths.
pub struct Demand {
    /// Its paths, each of which is judged.
    pub paths: &'static [&'static str],
    /// Values.
    pub values: &'static [&'static str],
}

/// A demand on a setting.
pub(crate) const fn demand(paths: &'static [&'static str], values: &'static [&'static str]) -> Demand {
    Demand { paths, values }
}

impl HfSpec {
    /// All tensors.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &'static Tensor> {
        self.tensors.iter().copied().flatten()
    }

    /// The places of a name of the checkpoint: each tensor that it is, or is a part of.
    pub(super) fn places(&self, name: &Name) -> Vec<(usize, &'static Tensor)> {
        self.tensors().enumerate().filter(|(_, t)| t.hf == name.pattern).collect()
    }

    /// The name under which the table has what is called `name`.
    pub(super) fn other_name(&self, name: &str) -> Option<String> {
        self.twins.iter().find_map(|(twin, own)| Some(format!("{own}{}", name.strip_prefix(twin)?)))
    }

    /// Whether a tensor is for something that is left out.
    pub(super) fn ignores(&self, name: &str) -> bool {
        // Frequencies, which older checkpoints repeat; they follow from the base.
        name.ends_with(".rotary_emb.inv_freq") || self.ignored.iter().any(|start| name.starts_with(start))
    }
}

/// A name of the checkpoint with its numbers taken out.
pub(super) struct Name {
    /// With `{N}` for the first number and `{E}` for the second.
    pub(super) pattern: String,
    pub(super) layer: Option<usize>,
    pub(super) expert: Option<usize>,
}

impl Name {
    pub(super) fn new(text: &str) -> Name {
        let mut numbers = [None; 2];
        let mut found = 0;
        let part = |part| {
            // Only as it would be written, so that no two names are the same place.
            let number = str::parse::<usize>(part).ok().filter(|n| n.to_string() == part);
            match (number, numbers.get_mut(found)) {
                (Some(n), Some(place)) => {
                    *place = Some(n);
                    found += 1;
                    ["{N}", "{E}"][found - 1]
                }
                _ => part,
            }
        };
        let pattern = text.split('.').map(part).collect::<Vec<_>>().join(".");
        Name { pattern, layer: numbers[0], expert: numbers[1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_out_of_names() {
        let name = Name::new("model.layers.12.mlp.experts.3.up_proj.weight");
        assert_eq!(name.pattern, "model.layers.{N}.mlp.experts.{E}.up_proj.weight");
        assert_eq!((name.layer, name.expert), (Some(12), Some(3)));
        let name = Name::new("a.01.b.2.c.3.d.4");
        assert_eq!(
            (name.pattern.as_str(), name.layer, name.expert),
            ("a.01.b.{N}.c.{E}.d.4", Some(2), Some(3))
        );
    }
}
