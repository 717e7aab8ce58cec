//! Parts of lists: at most the requested number of rows, and at most as many bytes as one answer
//! should hold.
//!
//! Rows are measured before they are read, since a driver may hold a complete answer in memory.
//! Both databases know the size of a text without reading it.

use crate::engine::{columns::Bind, columns::FromRow, error::Result, statement::Statement, tx::Tx};

/// At most this many bytes of documents are read at once, unless the first document alone is
/// larger.
pub const MAX_PART_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    pub items: Vec<T>,
    /// Requested rows were left out because they would not fit.
    pub is_cut: bool,
}

/// A complete list.
impl<T> From<Vec<T>> for Part<T> {
    fn from(items: Vec<T>) -> Self {
        let is_cut = false;
        Self { items, is_cut }
    }
}

impl<T> Part<T> {
    /// Whether the list may have more rows, if at most `limit` were requested.
    pub fn may_have_more(&self, limit: u32) -> bool {
        self.is_cut || self.items.len() >= limit as usize
    }
}

/// How many of these sizes, from the first on, fit into `max_bytes`; at least one.
pub(crate) fn count_fitting(sizes: impl IntoIterator<Item = u64>, max_bytes: u64) -> u32 {
    let mut total = 0_u64;
    let fitting = sizes.into_iter().take_while(|size| {
        let is_first = total == 0;
        total = total.saturating_add((*size).max(1));
        is_first || total <= max_bytes
    });
    fitting.fold(0, |count, _| count + 1)
}

/// Reads the rows of `list`, as many as fit. `sizes` returns the sizes of the same rows. The last
/// parameter of both statements is the limit.
pub(crate) fn read<'v, T: FromRow>(
    tx: &mut Tx<'_>,
    sizes: &'static Statement,
    list: &'static Statement,
    keys: impl Bind<'v> + Copy,
    limit: u32,
) -> Result<Part<T>> {
    read_within(tx, MAX_PART_BYTES, sizes, list, keys, limit)
}

/// Like `read`, with another limit of bytes.
pub(crate) fn read_within<'v, T: FromRow>(
    tx: &mut Tx<'_>,
    max_bytes: u64,
    sizes: &'static Statement,
    list: &'static Statement,
    keys: impl Bind<'v> + Copy,
    limit: u32,
) -> Result<Part<T>> {
    // The first row is always read.
    if limit <= 1 {
        return Ok(tx.rows(list, (keys, limit))?.into());
    }
    let sizes: Vec<u64> = tx.rows(sizes, (keys, limit))?;
    if sizes.is_empty() {
        return Ok(Vec::new().into());
    }
    let count = count_fitting(sizes.iter().copied(), max_bytes);
    Ok(Part {
        items: tx.rows(list, (keys, count))?,
        is_cut: (count as usize) < sizes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_before_the_first_row_that_does_not_fit() {
        let fitting = |sizes: Vec<u64>| count_fitting(sizes, MAX_PART_BYTES);
        assert_eq!(fitting(vec![]), 0);
        assert_eq!(
            fitting(vec![MAX_PART_BYTES * 9, 1]),
            1,
            "the first row is always read"
        );
        assert_eq!(fitting(vec![1, MAX_PART_BYTES - 1]), 2);
        assert_eq!(fitting(vec![1, MAX_PART_BYTES]), 1);
        assert_eq!(fitting(vec![1, MAX_PART_BYTES, 1]), 1, "no row is skipped");
        assert_eq!(fitting(vec![0; 1_000]), 1_000);
    }
}
