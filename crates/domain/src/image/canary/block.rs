//! Blocks: machines of the canary, and the machines of the control group beside them.
//!
//! Only the order and the groups decide which machines form a block, never an outcome. So if both
//! images are alike, each machine of a block is equally likely to be the one that failed.

use super::trial::CanaryGroup;

/// A block has at most this many machines of each group.
pub(super) const MAX_GROUP: usize = 20;
/// A block has at least about this many machines.
const BLOCK: f64 = 10.0;

/// Both groups have a member, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block<T> {
    pub canary: Vec<T>,
    pub control: Vec<T>,
}

/// How many members of each group complete a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockShape {
    pub n_canary: usize,
    pub n_control: usize,
}

impl BlockShape {
    /// As many of each group as the share of the canary makes likely.
    pub(super) fn of_share(share: f64) -> Self {
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.5
        };
        let smaller = share.min(1.0 - share);
        let (few, many) = if smaller * BLOCK < 1.0 {
            // Division by 0 gives infinity, which is cut to the maximum.
            (1, count((1.0 - smaller) / smaller))
        } else {
            let few = count(smaller * BLOCK);
            (few, count(BLOCK) - few)
        };
        let (n_canary, n_control) = if share <= 0.5 {
            (few, many)
        } else {
            (many, few)
        };
        Self {
            n_canary,
            n_control,
        }
    }

    /// Cuts a sequence into blocks. A block ends as soon as it has enough of both groups; of a
    /// group with too many, the last ones are used. The incomplete last block is left out.
    pub(super) fn cut<T>(self, sequence: impl Iterator<Item = (CanaryGroup, T)>) -> Vec<Block<T>> {
        let mut blocks = Vec::new();
        let mut open = Block::new();
        for (group, member) in sequence {
            match group {
                CanaryGroup::Canary => open.canary.push(member),
                CanaryGroup::Control => open.control.push(member),
            }
            if open.canary.len() >= self.n_canary && open.control.len() >= self.n_control {
                keep_last(&mut open.canary);
                keep_last(&mut open.control);
                blocks.push(std::mem::replace(&mut open, Block::new()));
            }
        }
        blocks
    }
}

impl<T> Block<T> {
    fn new() -> Self {
        Self {
            canary: Vec::new(),
            control: Vec::new(),
        }
    }

    /// The same block with a value for each member. `None`: a member has none.
    pub(super) fn map<V>(&self, value: impl Fn(&T) -> Option<V>) -> Option<Block<V>> {
        let canary = self.canary.iter().map(&value).collect::<Option<_>>()?;
        let control = self.control.iter().map(&value).collect::<Option<_>>()?;
        Some(Block { canary, control })
    }

    /// Each machine of the canary, with its own share of the control machines, which may be empty.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&T, &[T])> {
        let (n_canary, n_control) = (self.canary.len(), self.control.len());
        self.canary.iter().enumerate().map(move |(place, canary)| {
            let first = place * n_control / n_canary;
            let end = (place + 1) * n_control / n_canary;
            (canary, &self.control[first..end])
        })
    }
}

fn keep_last<T>(members: &mut Vec<T>) {
    let surplus = members.len().saturating_sub(MAX_GROUP);
    members.drain(..surplus);
}

fn count(number: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and the result is limited"
    )]
    let count = number.round() as usize;
    count.clamp(1, MAX_GROUP)
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn shape(share: f64) -> (usize, usize) {
        let shape = BlockShape::of_share(share);
        (shape.n_canary, shape.n_control)
    }

    #[test]
    fn a_block_has_the_groups_in_the_ratio_of_the_share() {
        assert_eq!(shape(0.1), (1, 9));
        assert_eq!(shape(0.05), (1, 19));
        assert_eq!(shape(0.01), (1, 20));
        assert_eq!(shape(0.0), (1, 20));
        assert_eq!(shape(0.25), (3, 7));
        assert_eq!(shape(0.5), (5, 5));
        assert_eq!(shape(0.8), (8, 2));
        assert_eq!(shape(0.95), (19, 1));
        assert_eq!(shape(1.0), (20, 1));
        assert_eq!(shape(f64::NAN), (5, 5));
        assert_eq!(shape(f64::INFINITY), (5, 5));
        assert_eq!(shape(-3.0), (1, 20));
    }

    #[test]
    fn the_members_of_a_group_in_a_block_are_limited_to_the_last() {
        let shape = BlockShape {
            n_canary: 1,
            n_control: 2,
        };
        for size in sizes_around("domain::image::canary::block::MAX_GROUP", MAX_GROUP) {
            let controls = (0..size).map(|place| (CanaryGroup::Control, place));
            let canary = [(CanaryGroup::Canary, 1_000)];
            let blocks = shape.cut(controls.chain(canary));
            if size < 2 {
                assert_eq!(blocks, [], "{size}");
                continue;
            }
            assert_eq!(blocks[0].canary, [1_000]);
            let first = size.saturating_sub(MAX_GROUP);
            assert_eq!(blocks[0].control, (first..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_control_machine_of_a_block_belongs_to_one_machine_of_the_canary() {
        for (n_canary, n_control) in [(1, 9), (3, 7), (5, 5), (8, 2), (20, 1)] {
            let block = Block {
                canary: (0..n_canary).collect(),
                control: (0..n_control).collect(),
            };
            let pairs: Vec<_> = block.pairs().collect();
            let canary: Vec<usize> = pairs.iter().map(|(canary, _)| **canary).collect();
            let control: Vec<usize> = pairs.iter().flat_map(|(_, it)| it.to_vec()).collect();
            assert_eq!((canary, control), (block.canary.clone(), block.control));
        }
    }
}
