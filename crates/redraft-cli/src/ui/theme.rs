//! How things look: a few styles, as escape sequences.

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Random tokens of a position that the model has no opinion on yet.
    Noise,
    /// The model's present guess.
    Draft,
    /// A guess that entered the canvas.
    Accepted,
    /// A control token among guesses.
    Marker,
    /// Final text.
    Committed,
    /// Figures below the canvas.
    Status,
}

/// How styles become escape sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    /// Colours are wanted; without them weight alone tells styles apart.
    pub(crate) color: bool,
}

/// Ends a style.
pub(crate) const RESET: &str = "\x1b[0m";

impl Theme {
    /// What starts a style. Drafts, accepted and final text differ from each other and from what is dim in colour and
    /// in weight; no colour is one that either a dark or a light background hides.
    pub(crate) fn start(self, style: Style) -> &'static str {
        match (style, self.color) {
            (Style::Noise | Style::Marker | Style::Status, _) => "\x1b[2m",
            (Style::Draft, true) => "\x1b[3;35m",
            (Style::Draft, false) => "\x1b[3m",
            (Style::Accepted, true) => "\x1b[1;36m",
            (Style::Accepted, false) => "\x1b[1m",
            (Style::Committed, _) => "",
        }
    }

    /// What ends a style.
    pub(crate) fn end(self, style: Style) -> &'static str {
        if self.start(style).is_empty() { "" } else { RESET }
    }
}

/// Whether the environment asks for no colour (<https://no-color.org>).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
}

/// Whether the terminal can move its cursor.
pub(crate) fn obeys_escape_sequences() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    #[cfg(windows)]
    return !dumb && crossterm::ansi_support::supports_ansi();
    #[cfg(not(windows))]
    !dumb
}
