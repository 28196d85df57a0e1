//! Traces: files of taps and recorded generations, runs that repeat a golden, and comparison.
//!
//! The format is safetensors (files of other programs are read in others, too); tensor names are those of llama.cpp's
//! graph (`attn_norm-0`, `Kcur_pos-3`, `l_out-29`, `logits`), prefixed by the pass (`enc/`, `enc2/`, `dec/`) where a file
//! holds several.

mod compare;
mod file;
mod foreign;
mod like;
mod limits;
mod name;
mod printed;
mod record;
mod replay;
mod whole;

pub use compare::{Report, Row, Tokens, compare, compare_rows};
pub(crate) use compare::{is_input, place};
pub use file::{Elements, Tensor, TraceFile};
pub use foreign::NameMap;
pub use like::{golden_name, like};
pub use limits::{Bounds, Limits, OwnLimits, Preset, name_fits};
pub(crate) use name::in_pass;
pub use name::split_layer;
pub(crate) use printed::has_rows;
pub use printed::{Given, Printed};
pub use record::{GenerationRecorder, PassRecorder, TapFilter, glob};
pub use replay::{RecordedStep, Recording};
