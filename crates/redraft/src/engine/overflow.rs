//! Conversations that have become longer than the context.

/// How many of the oldest of `turns` turns to leave out, at least, so that what is left fits. `fits` says so for a
/// number of turns left out; leaving out more never makes a conversation longer, so it is asked about the logarithm
/// of `turns` times. The last turn, which is the question, always stays: `None` when it does not fit alone.
///
/// ```
/// use redraft::engine::turns_to_drop;
///
/// let tokens = [30, 10, 25, 20];
/// let fits = |dropped: usize| Ok::<bool, ()>(tokens[dropped..].iter().sum::<usize>() <= 50);
/// assert_eq!(turns_to_drop(tokens.len(), fits), Ok(Some(2)));
/// ```
///
/// # Errors
/// Those of `fits`.
pub fn turns_to_drop<E>(
    turns: usize,
    mut fits: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    let last = turns.saturating_sub(1);
    if fits(0)? {
        return Ok(Some(0));
    }
    if last == 0 || !fits(last)? {
        return Ok(None);
    }
    // `too_few` does not fit, `enough` does.
    let (mut too_few, mut enough) = (0, last);
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if fits(middle)? {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Ok(Some(enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_as_few_turns_as_possible() {
        for turns in 0..20 {
            for least in 0..25 {
                let mut asked = 0;
                let fits = |dropped| {
                    asked += 1;
                    assert!(dropped < turns.max(1), "the question stays");
                    Ok::<bool, ()>(dropped >= least)
                };
                let want = if least < turns.max(1) { Some(least) } else { None };
                assert_eq!(turns_to_drop(turns, fits), Ok(want), "{turns} {least}");
                assert!(asked <= 7, "{asked}");
            }
        }
        assert_eq!(turns_to_drop(3, |_| Err::<bool, _>("broken")), Err("broken"));
    }
}
