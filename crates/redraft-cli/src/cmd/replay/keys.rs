//! What keys mean to the player.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Next,
    Previous,
    NextCanvas,
    PreviousCanvas,
    First,
    Last,
    PlayOrPause,
    Faster,
    Slower,
    Suspend,
    Interrupt,
    Leave,
}

impl Action {
    /// What a key asks for, if anything.
    pub(super) fn of(key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Interrupt),
                KeyCode::Char('d') => Some(Action::Leave),
                KeyCode::Char('z') => Some(Action::Suspend),
                _ => None,
            };
        }
        Some(match key.code {
            KeyCode::Right | KeyCode::Char('l' | 'n') => Action::Next,
            KeyCode::Left | KeyCode::Char('h' | 'p') => Action::Previous,
            KeyCode::Down | KeyCode::PageDown | KeyCode::Char('j') => Action::NextCanvas,
            KeyCode::Up | KeyCode::PageUp | KeyCode::Char('k') => Action::PreviousCanvas,
            KeyCode::Home | KeyCode::Char('g') => Action::First,
            KeyCode::End | KeyCode::Char('G') => Action::Last,
            KeyCode::Char(' ') => Action::PlayOrPause,
            KeyCode::Char('+' | '=') => Action::Faster,
            KeyCode::Char('-' | '_') => Action::Slower,
            KeyCode::Esc | KeyCode::Char('q') => Action::Leave,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_help_says() {
        let plain = |code| Action::of(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Right), Some(Action::Next));
        assert_eq!(plain(KeyCode::PageUp), Some(Action::PreviousCanvas));
        assert_eq!(plain(KeyCode::Char(' ')), Some(Action::PlayOrPause));
        assert_eq!(plain(KeyCode::Char('x')), None);
        let control = |c| Action::of(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!(control('c'), Some(Action::Interrupt));
        assert_eq!(control('l'), None, "Ctrl-L is not l");
        let up = KeyEvent::new_with_kind(KeyCode::Right, KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(Action::of(up), None, "a key acts once");
    }
}
