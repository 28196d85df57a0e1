//! Traces: files of taps and recorded generations, runs that repeat a golden, and comparison.
//!
//! The format is safetensors; tensor names are those of llama.cpp's graph (`attn_norm-0`, `Kcur_pos-3`,
//! `l_out-29`, `logits`), prefixed by the pass (`enc/`, `enc2/`, `dec/`) where a file holds several.

mod compare;
mod file;
mod like;
mod limits;
mod record;
mod replay;
mod whole;

pub use compare::{Report, Row, Tokens, compare, compare_rows};
pub(crate) use compare::{is_input, place};
pub use file::{Elements, Tensor, TraceFile};
pub use like::{golden_name, like};
pub use limits::{Bounds, Limits, OwnLimits, Preset, fits, parts};
pub use record::{GenerationRecorder, PassRecorder, TapFilter, glob};
pub use replay::{RecordedStep, Recording};
