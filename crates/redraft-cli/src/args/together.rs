//! How answers to many requests share a model.

use super::model::at_least_one;

/// Options of commands that make several answers together.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Answers")]
pub(crate) struct TogetherArgs {
    /// Answers that are made together at most. None of them depends on it.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parallel, allow_negative_numbers = true, env = "REDRAFT_PARALLEL")]
    pub(crate) parallel: usize,

    /// Bytes of keys and values that are kept for prompts that begin like earlier ones.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, env = "REDRAFT_CACHE_BYTES")]
    pub(crate) cache_bytes: usize,

    /// Context length in tokens; prompt and whole canvases must fit [default: what the model was made for].
    #[arg(short, long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, env = "REDRAFT_CTX")]
    pub(crate) ctx: Option<usize>,
}

fn parallel(text: &str) -> Result<usize, String> {
    const MOST: usize = 256;
    match text.parse() {
        Ok(n @ 1..=MOST) => Ok(n),
        _ => Err(format!("expected a whole number in 1..={MOST}")),
    }
}
