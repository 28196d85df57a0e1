//! From a prompt to committed canvases: passes, draws, steps, stop rules, events.

mod batch;
mod cache;
mod canvas;
mod check;
mod constrained;
mod denoise;
mod draws;
mod generate;
mod given;
mod memory;
mod overflow;
mod pass;
mod penalties;
mod picture;
mod probabilities;
mod result;
mod run;
mod session;

pub use batch::{Batch, Finished, JobId, OnJobEvent};
pub use cache::{BlockCache, BlockStep};
pub use canvas::{canvas_pass, canvas_passes};
pub(crate) use check::commands;
pub use draws::{Draws, Philox, first_canvas};
pub use generate::{
    CanvasReport, DEFAULT_MAX_TOKENS, Digests, Event, Finish, Generation, Request, StepEvent, Timings,
    default_max_tokens, generate,
};
pub use given::{Given, Slot, Window};
pub use memory::MemoryEstimate;
pub(crate) use memory::dry;
pub use overflow::turns_to_drop;
pub use pass::{CanvasPass, Previous, Sampling, TapSink};
use penalties::Place;
pub use penalties::{Penalties, PlaceBan};
pub use picture::{Picture, PositionState};
pub use probabilities::{Revealed, TokenProbability};
pub use result::CanvasResult;
pub use session::Session;
