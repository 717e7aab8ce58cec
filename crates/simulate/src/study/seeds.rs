//! Lists of seeds, as people write them: `11-20`, `1,5,7-9`.

use std::collections::BTreeSet;
use std::str::FromStr;

/// A study has at most this many seeds.
const MAX_SEEDS: usize = 1_000;

/// Seeds in ascending order, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSeeds {
    #[error("{0:?} is neither a seed nor a range of seeds; write them as 7 or 11-20")]
    Text(String),
    #[error("the range {0} ends before it begins")]
    Backward(String),
    #[error("there are more than {MAX_SEEDS} seeds")]
    TooMany,
}

impl FromStr for Seeds {
    type Err = BadSeeds;

    fn from_str(text: &str) -> Result<Self, BadSeeds> {
        let mut seeds = BTreeSet::new();
        for part in text.split(',') {
            let number = |digits: &str| {
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse::<u64>().ok().filter(|_| is_number);
                number.ok_or_else(|| BadSeeds::Text(part.to_owned()))
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(BadSeeds::Backward(part.to_owned()));
            }
            if last - first >= MAX_SEEDS as u64 {
                return Err(BadSeeds::TooMany);
            }
            seeds.extend(first..=last);
        }
        if seeds.len() > MAX_SEEDS {
            return Err(BadSeeds::TooMany);
        }
        Ok(Self(seeds.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn seeds(text: &str) -> Result<Vec<u64>, String> {
        let seeds: Result<Seeds, _> = text.parse();
        seeds.map(|seeds| seeds.0).map_err(|bad| bad.to_string())
    }

    #[test]
    fn seeds_are_single_numbers_and_ranges() {
        assert_eq!(seeds("7"), Ok(vec![7]));
        assert_eq!(seeds("11-13"), Ok(vec![11, 12, 13]));
        assert_eq!(seeds("3,1-2,2"), Ok(vec![1, 2, 3]));
        let largest = u64::MAX.to_string();
        assert_eq!(seeds(&largest), Ok(vec![u64::MAX]));
    }

    #[test]
    fn what_is_no_seed_is_named() {
        for text in [
            "",
            "x",
            "1,",
            "-3",
            "1-",
            "1-2-3",
            "+1",
            "1.5",
            "99999999999999999999",
        ] {
            let part = text.rsplit(',').next().unwrap();
            let expected = format!(
                "{part:?} is neither a seed nor a range of seeds; write them as 7 or 11-20"
            );
            assert_eq!(seeds(text), Err(expected), "{text}");
        }
        let backward = "the range 20-11 ends before it begins";
        assert_eq!(seeds("20-11"), Err(backward.to_owned()));
    }

    #[test]
    fn the_number_of_seeds_is_bounded() {
        for size in sizes_around("simulate::study::seeds::MAX_SEEDS", MAX_SEEDS) {
            let Some(last) = size.checked_sub(1) else {
                continue;
            };
            let one_range = seeds(&format!("0-{last}")).map(|seeds| seeds.len());
            if size <= MAX_SEEDS {
                assert_eq!(one_range, Ok(size));
            } else {
                assert_eq!(one_range, Err("there are more than 1000 seeds".to_owned()));
            }
        }
        assert!(seeds("0-999,1000").is_err());
        assert!(seeds("0-999,999").is_ok());
    }
}
