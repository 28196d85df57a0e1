//! How an answer is shown while it comes about.

use clap::ValueEnum;

use crate::answer::View;
use crate::args::Given;
use crate::out::Out;
use crate::ui::theme::{no_color, obeys_escape_sequences};

/// Options of commands that show a canvas.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LiveArgs {
    // First, since the others take what they read.
    #[command(flatten)]
    given: Given,

    /// When to show the canvas while it is refined. auto: on a terminal, unless NO_COLOR is set; always: even
    /// where stdout does not look like a terminal, without colours where NO_COLOR is set.
    #[arg(long, value_name = "WHEN", default_value = "auto", env = "REDRAFT_LIVE")]
    live: When,

    /// Below the live canvas show the entropy of each part of it: a higher bar is less certain.
    #[arg(long, env = "REDRAFT_ENTROPY_BARS", value_parser = clap::builder::FalseyValueParser::new())]
    entropy_bars: bool,
}

/// `--live`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal.
    Auto,
    /// Anywhere.
    Always,
    /// Nowhere.
    Never,
}

impl LiveArgs {
    /// What there is to show.
    ///
    /// # Errors
    /// A flag about a canvas that is not shown.
    pub(crate) fn view(&self, out: Out) -> anyhow::Result<View<'static>> {
        let live = match self.live {
            _ if out.json => false,
            When::Auto => out.terminal && !no_color() && obeys_escape_sequences(),
            When::Always => true,
            When::Never => false,
        };
        if let Some(flag) = self.given.first_of(&["live", "entropy_bars"]) {
            anyhow::ensure!(
                !out.json || self.live == When::Never,
                "{flag} is for the live canvas, and --json prints one object instead"
            );
            anyhow::ensure!(
                !self.entropy_bars || self.live != When::Never,
                "--entropy-bars are below the live canvas, and --live never shows none"
            );
            if self.entropy_bars && !live {
                out.warn("--entropy-bars are below the live canvas, which is shown on a terminal only (--live always)");
            }
        }
        Ok(View { live, entropy: self.entropy_bars, head: None })
    }
}
