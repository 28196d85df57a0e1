//! How things look: a few styles, as escape sequences or as nothing.

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Random tokens of a position that the model has no opinion on yet.
    Noise,
    /// The model's present guess.
    Draft,
    /// A guess that entered the canvas.
    Accepted,
    /// Figures below the canvas.
    Status,
}

/// Whether styles become escape sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    /// Colours are wanted and possible.
    pub(crate) color: bool,
}

/// Ends a style.
pub(crate) const RESET: &str = "\x1b[0m";

impl Theme {
    /// What starts a style. Bold, dim and one colour only: they work on dark and light backgrounds.
    pub(crate) fn start(self, style: Style) -> &'static str {
        match style {
            _ if !self.color => "",
            Style::Noise | Style::Status => "\x1b[2m",
            Style::Draft => "",
            Style::Accepted => "\x1b[1;36m",
        }
    }

    /// What ends a style.
    pub(crate) fn end(self, style: Style) -> &'static str {
        if self.start(style).is_empty() { "" } else { RESET }
    }
}

/// Whether the environment asks for no colour and no movement (<https://no-color.org>).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
}

/// Whether the terminal can move its cursor.
pub(crate) fn dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|v| v == "dumb")
}
