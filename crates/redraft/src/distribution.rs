//! Distributions over the vocabulary, each given as a row of logits.

/// Kullback-Leibler divergence of the distribution with logits `p` from the one with `q`, of which there are as many, in
/// nats: the sum of p · (ln p − ln q). Never negative, where rounding would make it so.
pub(crate) fn divergence(p: &[f64], q: &[f64]) -> f64 {
    let lse = |x: &[f64]| {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
    };
    let (zp, zq) = (lse(p), lse(q));
    let kl: f64 = p.iter().zip(q).map(|(p, q)| (p - zp).exp() * ((p - zp) - (q - zq))).sum();
    // Not `max`, which hides what is no number.
    if kl < 0.0 { 0.0 } else { kl }
}

/// Ids of the `n` largest logits, fewer where there are fewer; the lower one of equals comes first.
pub(crate) fn largest(x: &[f64], n: usize) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::with_capacity(n + 1);
    for (id, &logit) in x.iter().enumerate() {
        if best.len() < n || best.last().is_some_and(|&last| logit > x[last]) {
            best.insert(best.partition_point(|&b| x[b] >= logit), id);
            best.truncate(n);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_that_of_the_definition() {
        let (p, q) = ([0.5f64, 0.25, 0.25], [0.25f64, 0.25, 0.5]);
        let logits = |p: &[f64; 3], shift: f64| p.map(|p| p.ln() + shift);
        let want = 0.5 * 2f64.ln() - 0.25 * 2f64.ln();
        assert!((divergence(&logits(&p, 3.0), &logits(&q, -7.0)) - want).abs() < 1e-12);
        assert_eq!(divergence(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert!(divergence(&[1.0, f64::NAN], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn rounding_makes_no_divergence_negative() {
        let p: Vec<f64> = (0..50).map(|i| f64::from(i) * 0.37 % 5.0).collect();
        for shift in 1..200 {
            let q: Vec<f64> = p.iter().map(|x| x + f64::from(shift) * 0.1).collect();
            let kl = divergence(&p, &q);
            assert!((0.0..1e-12).contains(&kl), "{shift}: {kl}");
        }
    }

    #[test]
    fn the_lower_of_equals_comes_first() {
        assert_eq!(largest(&[1.0, 3.0, 3.0, 2.0], 2), [1, 2]);
        assert_eq!(largest(&[2.0, 1.0], 2), [0, 1]);
        assert_eq!(largest(&[1.0, 1.0, 5.0], 2), [2, 0]);
        assert_eq!(largest(&[5.0, 0.0, 1.0], 2), [0, 2]);
        assert_eq!(largest(&[0.0, 4.0, 2.0, 4.0, 1.0, 3.0, 2.0], 5), [1, 3, 5, 2, 6]);
        assert_eq!(largest(&[1.0, 2.0], 5), [1, 0]);
    }
}
