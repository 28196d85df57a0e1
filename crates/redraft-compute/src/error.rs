//! What can go wrong while a program is built or run.

/// Errors of this crate. Each says what, where, expected and found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// Two shapes that must agree do not.
    #[error("{op}: {what} must be {expected}, found {found}")]
    Shape {
        /// Name of the op.
        op: &'static str,
        /// The argument or the relation.
        what: String,
        /// What the op needs.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// A weight's block type has no decoder.
    #[error("tensor {weight}: block type {dtype} cannot be computed with")]
    UnsupportedType {
        /// Tensor name.
        weight: String,
        /// Type name.
        dtype: String,
    },
    /// A weight's byte length does not fit its shape.
    #[error("tensor {weight}: {found} bytes do not fit the shape [experts, rows, cols] = {shape:?}")]
    WeightBytes {
        /// Tensor name.
        weight: String,
        /// Stacked matrices, rows, columns.
        shape: [usize; 3],
        /// Length found.
        found: usize,
    },
    /// A GPU or its driver failed. What was computed is lost, what the host holds is not.
    #[error("the device {device} failed: {why}")]
    Device {
        /// Name of the device.
        device: String,
        /// What the driver says.
        why: String,
    },
    /// A handle that this backend never gave out.
    #[error("{what} {id} does not exist in this backend")]
    UnknownHandle {
        /// Kind of handle.
        what: &'static str,
        /// Its number.
        id: u32,
    },
    /// An id outside a table: a token or an expert that does not exist.
    #[error("{op}: id {id} at row {row} is outside 0..{limit}")]
    IdOutOfRange {
        /// Name of the op.
        op: &'static str,
        /// The id.
        id: i64,
        /// Row in which it stands.
        row: usize,
        /// Number of entries.
        limit: usize,
    },
    /// A weight holds a NaN or an infinity, and an op met it.
    #[error(
        "tensor {weight} is damaged: {value} at [matrix, row, column] = {at:?} (met in {tap}); get the file again"
    )]
    DamagedWeight {
        /// Tensor name.
        weight: String,
        /// `NaN` or `infinity`.
        value: &'static str,
        /// The first such element.
        at: [usize; 3],
        /// Tap in which it was met, with layer.
        tap: String,
    },
    /// A NaN or an infinity came out of an op whose weights are finite.
    #[error(
        "{value} in {tap} (op {op}, row {row}, column {col}): the weights of this op are finite, so the numbers of \
         this layer are too large for the precision"
    )]
    NotFinite {
        /// Name of the op.
        op: &'static str,
        /// Tap name with layer, such as `ffn_moe_out-3`, or the next one on the way.
        tap: String,
        /// Layer, if the op belongs to one.
        layer: Option<usize>,
        /// Row (position).
        row: usize,
        /// Column.
        col: usize,
        /// `NaN` or `infinity`.
        value: &'static str,
    },
    /// The KV cache does not hold what the program was built for.
    #[error("the KV cache holds {found} tokens, the program was built for {expected}")]
    CacheLength {
        /// Tokens the program expects.
        expected: usize,
        /// Tokens in the cache.
        found: usize,
    },
    /// A program input is missing or has another size or kind.
    #[error("input {name}: expected {expected}, found {found}")]
    Input {
        /// Name of the input.
        name: String,
        /// Shape and kind.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Memory that cannot be had.
    #[error("cannot allocate {bytes} bytes for {what}")]
    OutOfMemory {
        /// What for.
        what: String,
        /// How much.
        bytes: usize,
    },
    /// A backend, CPU level or precision that does not exist here.
    #[error("{what} `{name}` is not available here; available: {available}")]
    Unavailable {
        /// `backend`, `CPU level`, `precision`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        available: String,
    },
    /// The pass was asked to stop.
    #[error("interrupted")]
    Interrupted,
}
