//! The beginning of a list: as many rows as were asked for, but no more bytes than one answer should hold.
//!
//! What is large is measured before it is read, since a driver may hold a whole answer in memory. Both
//! databases know the size of a text without reading it.

use crate::engine::error::StoreError;
use crate::engine::row::{BadRow, Row};
use crate::engine::statement::Statement;
use crate::engine::tx::Tx;
use crate::engine::value::Value;

/// So many bytes of documents are read at once, or a single one that is larger.
pub const MAX_PART_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    pub items: Vec<T>,
    /// There is more, and was to be read, but would have been too much at once.
    pub is_cut: bool,
}

impl<T> Part<T> {
    /// Whether there may be more, if at most so many were asked for.
    pub fn may_go_on(&self, limit: u32) -> bool {
        self.is_cut || self.items.len() >= limit as usize
    }
}

/// How many of these sizes, from the first on, are not too much together; one at least.
pub(crate) fn fitting(sizes: impl IntoIterator<Item = u64>, max_bytes: u64) -> u32 {
    let mut total = 0_u64;
    let fitting = sizes.into_iter().take_while(|size| {
        let is_first = total == 0;
        total = total.saturating_add((*size).max(1));
        is_first || total <= max_bytes
    });
    fitting.fold(0, |count, _| count + 1)
}

/// Reads what `list` lists. `sizes` says how large each of the same rows is; the last value of both is how
/// many rows there may be.
pub(crate) fn read<T>(
    tx: &mut Tx<'_>,
    sizes: &'static Statement,
    list: &'static Statement,
    keys: &[Value<'_>],
    limit: u32,
    read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
) -> Result<Part<T>, StoreError> {
    read_within(tx, MAX_PART_BYTES, sizes, list, keys, limit, read)
}

/// The same with another bound.
pub(crate) fn read_within<T>(
    tx: &mut Tx<'_>,
    max_bytes: u64,
    sizes: &'static Statement,
    list: &'static Statement,
    keys: &[Value<'_>],
    limit: u32,
    read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
) -> Result<Part<T>, StoreError> {
    let mut values = keys.to_vec();
    values.push(limit.into());
    let sizes: Vec<u64> = tx.rows(sizes, &values, |row| row.number(0))?;
    let count = fitting(sizes.iter().copied(), max_bytes);
    values.pop();
    values.push(count.into());
    Ok(Part {
        items: tx.rows(list, &values, read)?,
        is_cut: (count as usize) < sizes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_counted_from_the_first_on() {
        let fitting = |sizes: Vec<u64>| fitting(sizes, MAX_PART_BYTES);
        assert_eq!(fitting(vec![]), 0);
        assert_eq!(
            fitting(vec![MAX_PART_BYTES * 9, 1]),
            1,
            "one is always read"
        );
        assert_eq!(fitting(vec![1, MAX_PART_BYTES - 1]), 2);
        assert_eq!(fitting(vec![1, MAX_PART_BYTES]), 1);
        assert_eq!(
            fitting(vec![1, MAX_PART_BYTES, 1]),
            1,
            "none is passed over"
        );
        assert_eq!(fitting(vec![0; 1_000]), 1_000);
    }
}
