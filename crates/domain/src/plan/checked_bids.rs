//! The bids for a launch config, each checked.

use super::{Bid, Bids, MAX_BIDS};
use crate::time::Timestamp;

/// Each bid, or why it does not count; at least one of these.
pub fn separate_bids(bids: &Bids, now: Timestamp) -> Vec<Result<Bid, String>> {
    match bids.as_deref() {
        Err(why) => vec![Err(why.clone())],
        Ok([]) => vec![Err("its provider makes no bid for it now".to_owned())],
        Ok([only]) => vec![only.clone().checked(now)],
        Ok(several) => {
            let checked = |bid: &Bid| {
                let place = bid.place.clone();
                let bid = bid.clone().checked(now);
                bid.map_err(|why| match place.is_empty() {
                    true => why,
                    false => format!("{place}: {why}"),
                })
            };
            several.iter().take(MAX_BIDS).map(checked).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_bounded_number_of_bids_counts_and_a_provider_without_any_is_named() {
        let now = Timestamp::from_millis(0);
        for size in sizes_around("domain::plan::bid::MAX_BIDS", MAX_BIDS) {
            let bids = separate_bids(&Ok(vec![Bid::plain(String::new()); size]), now);
            assert_eq!(bids.len(), size.clamp(1, MAX_BIDS));
            assert_eq!(bids.iter().all(Result::is_ok), size > 0);
        }
    }

    #[test]
    fn one_of_several_bids_that_does_not_count_says_which_it_is() {
        let now = Timestamp::from_millis(0);
        let expired = Bid {
            expires: Some(now),
            ..Bid::plain("m5.large".to_owned())
        };
        let why = "its bid expired at 1970-01-01T00:00:00.000Z";
        let alone = separate_bids(&Ok(vec![expired.clone()]), now);
        assert_eq!(alone, [Err(why.to_owned())]);
        let good = Bid::plain("m5.xlarge".to_owned());
        let both = separate_bids(&Ok(vec![expired, good.clone()]), now);
        assert_eq!(both, [Err(format!("m5.large: {why}")), Ok(good)]);
    }
}
