//! Text from files in messages: what is shown of it, and how.

use std::fmt::{self, Write as _};

/// Characters that are shown.
const LONGEST: usize = 100;

/// Text from a file, fit for one line of a message: control characters and overrides of the writing direction
/// are escaped, a long text is cut and its length told.
///
/// ```
/// use redraft_gguf::Shown;
///
/// assert_eq!(Shown("blk.0.attn_q.weight").to_string(), "blk.0.attn_q.weight");
/// assert_eq!(Shown("a\nb\u{1b}[2J").to_string(), r"a\nb\u{1b}[2J");
/// assert!(Shown(&"x".repeat(9000)).to_string().ends_with("x… (9000 bytes)"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.0.chars().enumerate() {
            if i == LONGEST {
                return write!(f, "… ({} bytes)", self.0.len());
            }
            if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}
