//! Fair shares of a quota that is too small for all.

/// Max-min shares: each gets what it wants up to a common level, and the level is as high as the
/// total allows. The shares are in the order of the wishes.
pub fn fair_shares(wanted: &[f64], total: f64) -> Vec<f64> {
    let mut shares = vec![0.0; wanted.len()];
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]).then(a.cmp(b)));
    let mut left = total.max(0.0);
    for (n_served, at) in order.iter().enumerate() {
        let n_left = order.len() - n_served;
        let level = left / n_left as f64;
        shares[*at] = wanted[*at].clamp(0.0, level);
        left -= shares[*at];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_wishes_are_met_and_the_others_share_the_rest() {
        assert_eq!(fair_shares(&[60.0, 60.0, 15.0], 100.0), [42.5, 42.5, 15.0]);
        assert_eq!(fair_shares(&[10.0, 20.0], 100.0), [10.0, 20.0]);
        assert_eq!(fair_shares(&[50.0, 50.0, 50.0], 30.0), [10.0, 10.0, 10.0]);
        assert_eq!(fair_shares(&[0.0, 9.0], 4.0), [0.0, 4.0]);
        assert_eq!(fair_shares(&[5.0], 0.0), [0.0]);
        assert!(fair_shares(&[], 4.0).is_empty());
    }
}
