//! Names of taps: a pass, what it is, a layer.

/// The parts of a name: `enc/l_out-3` is `("enc", "l_out", Some(3))`, `logits` is `("", "logits", None)`.
pub fn split_layer(name: &str) -> (&str, &str, Option<usize>) {
    let (pass, base) = name.rsplit_once('/').unwrap_or(("", name));
    let digits = |l: &&str| !l.is_empty() && l.bytes().all(|b| b.is_ascii_digit());
    match base.rsplit_once('-').and_then(|(n, l)| Some((n, Some(l).filter(digits)?.parse().ok()?))) {
        Some((bare, layer)) => (pass, bare, Some(layer)),
        None => (pass, base, None),
    }
}

/// The name of another tap of the same pass.
pub(crate) fn in_pass(pass: &str, name: &str) -> String {
    if pass.is_empty() { name.to_string() } else { format!("{pass}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_pass_and_a_layer_or_not() {
        assert_eq!(split_layer("enc/l_out-3"), ("enc", "l_out", Some(3)));
        assert_eq!(split_layer("logits"), ("", "logits", None));
        assert_eq!(split_layer("dec/result_norm"), ("dec", "result_norm", None));
        for odd in ["a-", "a-x", "a-+3", "a-99999999999999999999", "-"] {
            assert_eq!(split_layer(odd), ("", odd, None));
        }
        assert_eq!(split_layer("a/b/c-d-0"), ("a/b", "c-d", Some(0)));
        assert_eq!((in_pass("", "x"), in_pass("enc2", "x")), ("x".into(), "enc2/x".into()));
    }
}
