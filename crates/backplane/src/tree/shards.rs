//! Shards: which member keeps which key, by rendezvous hashing.
//!
//! When a member joins or leaves, only the keys that it keeps move.

/// The member that keeps a key: the one with the highest weight for it; `None` without members.
///
/// The order of the members does not matter. All versions of the program agree.
pub fn keeper<'a>(key: &str, members: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let weighted = members
        .into_iter()
        .map(|member| (weight(key, member), member));
    weighted.max().map(|(_, member)| member)
}

/// The place of a member in the order in which members take a key: 0 for its keeper; `None` if it
/// is not among them.
pub fn rank<'a>(
    key: &str,
    member: &str,
    members: impl IntoIterator<Item = &'a str>,
) -> Option<usize> {
    let own = (weight(key, member), member);
    let (mut n_before, mut is_member) = (0, false);
    for other in members {
        is_member |= other == member;
        n_before += usize::from((weight(key, other), other) > own);
    }
    is_member.then_some(n_before)
}

/// FNV-1a over the length of the key, the key and the member, and a mix of the bits.
fn weight(key: &str, member: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let length = u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes();
    let bytes = length.into_iter().chain(key.bytes()).chain(member.bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn names(n_members: usize) -> Vec<String> {
        (0..n_members)
            .map(|number| format!("host-{number}"))
            .collect()
    }

    #[test]
    fn the_ranks_of_members_are_different_and_begin_with_the_keeper() {
        let names = names(5);
        let members = || names.iter().map(String::as_str);
        let mut ranks: Vec<usize> = members()
            .map(|member| rank("debian", member, members()).unwrap())
            .collect();
        let first = ranks.iter().position(|rank| *rank == 0).unwrap();
        assert_eq!(keeper("debian", members()), Some(names[first].as_str()));
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3, 4]);
        assert_eq!(rank("debian", "stranger", members()), None);
    }

    #[test]
    fn without_members_no_key_has_a_keeper_and_with_one_it_keeps_all() {
        assert_eq!(keeper("a", []), None);
        assert_eq!(keeper("a", ["m"]), Some("m"));
        assert_eq!(keeper("", ["m", "m"]), Some("m"));
    }

    #[test]
    fn keys_are_spread_evenly() {
        let members = names(7);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for number in 0..7_000 {
            let members = members.iter().map(String::as_str);
            *counts
                .entry(keeper(&format!("image-{number}"), members).unwrap())
                .or_default() += 1;
        }
        assert_eq!(counts.len(), 7);
        assert!(
            counts.values().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn only_the_keys_of_a_member_that_leaves_move_and_the_order_does_not_matter() {
        let members = names(5);
        let fewer = &members[..4];
        for number in 0..1_000 {
            let key = format!("image-{number}");
            let before = keeper(&key, members.iter().map(String::as_str));
            let reversed = keeper(&key, members.iter().rev().map(String::as_str));
            assert_eq!(before, reversed);
            let after = keeper(&key, fewer.iter().map(String::as_str));
            assert!(before == after || before == Some("host-4"));
        }
    }

    #[test]
    fn the_keepers_of_these_keys_never_change() {
        let keepers = ["ubuntu", "debian", "centos", "a", ""]
            .map(|key| keeper(key, ["x", "y", "z"]).unwrap());
        assert_eq!(keepers, ["y", "y", "x", "y", "x"]);
    }
}
