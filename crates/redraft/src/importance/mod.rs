//! How much each input of a matrix matters: collected while a model runs, and read by who quantizes it.
//!
//! Files are those of `llama-imatrix`: GGUF files with `general.type` = `imatrix`. For each matrix `NAME` such a file has
//! `NAME.in_sum2`, `[inputs, matrices]`, the sums of the squares of what the matrix was multiplied by, and `NAME.counts`,
//! `[1, matrices]`, how many vectors were summed; each expert of a stack is a matrix of its own. Their quotient, the
//! mean square of an input, is the weight that the error of that column gets.

mod collector;
mod mean_squares;

pub use collector::ImportanceCollector;
pub use mean_squares::Importance;

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
