//! Model files with real shapes and random weights, for work on speed and memory without the real weights.
//!
//! A [`Plan`] says what a file holds: metadata and tensors with their shapes, what each tensor is for and how
//! its values are spread. A [`FileType`] turns each tensor's [`Role`] into a block type, and [`write()`]
//! streams the file. Blocks are not quantized from numbers; their codes *are* random bits, under scales that
//! give the weights the spread that keeps activations finite and alive. So the disk sets the pace.
//!
//! The bytes of a file are a function of plan, file type and seed.

mod blocks;
mod file;
mod gemma4;
mod masks;
#[cfg(test)]
mod tests;
mod vocab;

pub use file::{Summary, SynthError, write};
pub use gemma4::{
    DIFFUSION_GEMMA, GEMMA4, diffusion_gemma_26b, diffusion_gemma_tiny, gemma4_26b, gemma4_26b_6l,
    gemma4_mini, gemma4_tiny,
};
pub(crate) use masks::{
    A2D_QWEN2, A2D_QWEN3, DREAM, FAST_DLLM, LLADA, LLADA_MOE, LLADA2, RND1, SDAR, SDAR_MOE,
};

use redraft_gguf::{DType, GgufError, GgufWriter, Metadata};

use crate::file_type::{fitting, id_of, more_bits};

/// What a model file holds, without the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Metadata that do not depend on the file type.
    pub metadata: Metadata,
    /// The tensors in the order of the file.
    pub tensors: Vec<TensorPlan>,
}

/// A tensor of a [`Plan`].
#[derive(Debug, Clone, PartialEq)]
pub struct TensorPlan {
    /// Name in the file.
    pub name: String,
    /// Shape in the order of the file: the contiguous dimension first.
    pub dims: Vec<u64>,
    /// What it is for, which decides its block type.
    pub role: Role,
    /// Its values.
    pub fill: Fill,
}

/// What every made-up file says of itself.
fn general(arch: &str, name: &str, size_label: &str) -> Metadata {
    let mut m = Metadata::new();
    m.set("general.architecture", arch);
    m.set("general.type", "model");
    m.set("general.name", format!("{name} (random weights)"));
    m.set(
        "general.description",
        format!("Random numbers in the shapes of {name}, to measure speed and memory. It writes no text."),
    );
    m.set("general.size_label", size_label);
    m
}

/// What a tensor is for, as far as file types make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A norm, a scale, a router: F32 in every file.
    Float,
    /// The table of token embeddings, which is the output head too.
    Embedding,
    /// Attention values and down projections, which suffer most from few bits: the tensor `index` of `of`
    /// that the model's layers have of the kind.
    Sensitive {
        /// Which one.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// Any other matrix or stack of matrices.
    Matrix,
}

/// Values of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Mean zero and this standard deviation.
    Std(f32),
    /// Between two bounds, each value as likely as any other.
    Between(f32, f32),
    /// RoPE frequency factors: 1 for so many pairs, and for the others a factor that stops their rotation.
    RopeFactors {
        /// Pairs that rotate.
        rotated: u64,
    },
}

/// A rule that gives each tensor its block type.
#[derive(Debug)]
pub struct FileType {
    /// Name on the command line.
    pub name: &'static str,
    rule: fn(Role) -> DType,
}

/// All file types that can be written.
pub static FILE_TYPES: &[FileType] = &[
    FileType { name: "q4_k_m", rule: q4_k_m },
    FileType { name: "q8_0", rule: |_| DType::Q8_0 },
    FileType { name: "f16", rule: |_| DType::F16 },
    FileType { name: "bf16", rule: |_| DType::BF16 },
    FileType { name: "f32", rule: |_| DType::F32 },
];

/// Four bits, six where it matters most.
fn q4_k_m(role: Role) -> DType {
    let six = match role {
        Role::Embedding => true,
        Role::Sensitive { index, of } => more_bits(index, of),
        Role::Float | Role::Matrix => false,
    };
    if six { DType::Q6_K } else { DType::Q4_K }
}

impl FileType {
    /// The file type of that name, upper or lower case.
    ///
    /// # Errors
    /// [`SynthError::UnknownType`] with the names that exist.
    pub fn from_name(name: &str) -> Result<&'static FileType, SynthError> {
        FILE_TYPES.iter().find(|t| t.name.eq_ignore_ascii_case(name)).ok_or_else(|| SynthError::UnknownType {
            found: name.to_owned(),
            known: FILE_TYPES.iter().map(|t| t.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// The block type of a tensor.
    pub fn dtype(&self, tensor: &TensorPlan) -> DType {
        if tensor.role == Role::Float {
            return DType::F32;
        }
        fitting((self.rule)(tensor.role), tensor.dims.first().copied().unwrap_or(0))
    }
}

impl Plan {
    /// A writer that knows metadata and tensors of the file.
    ///
    /// # Errors
    /// Those of [`GgufWriter::add_tensor`]: a shape that the block types cannot hold.
    pub fn writer(&self, file_type: &FileType) -> Result<GgufWriter, GgufError> {
        let mut w = GgufWriter::with_metadata(self.metadata.clone());
        w.metadata_mut().set("general.quantization_version", 2u32);
        if let Some(id) = id_of((file_type.rule)(Role::Matrix)) {
            w.metadata_mut().set("general.file_type", id);
        }
        for t in &self.tensors {
            w.add_tensor(&t.name, &t.dims, file_type.dtype(t))?;
        }
        Ok(w)
    }

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// As [`writer`](Self::writer).
    pub fn file_bytes(&self, file_type: &FileType) -> Result<u64, GgufError> {
        file::measure(self, self.writer(file_type)?, file_type)
    }

    /// Number of weights.
    pub fn n_weights(&self) -> u64 {
        self.tensors.iter().map(TensorPlan::n_elements).sum()
    }
}

impl TensorPlan {
    fn n_elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes of its data; `None` when the type cannot hold the shape.
    fn n_bytes(&self, dtype: DType) -> Option<u64> {
        let (&row, rest) = self.dims.split_first()?;
        dtype.row_bytes(row)?.checked_mul(rest.iter().product())
    }
}
