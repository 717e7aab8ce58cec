//! News of offerings, until they are in the memory of their offering.

use domain::id::ProviderId;
use domain::market::{OfferingId, OfferingNews};
use domain::time::Timestamp;

use crate::engine::{BadRow, Cells, FromRow, Result, Table, Tx, statements, to_json};

static TABLE: Table = Table::unlisted("offering_news", 1);

macro_rules! news {
    ($($rest:literal),+) => {
        concat!(
            "SELECT n.sequence, n.offering, n.provider_id, n.observed, n.news ",
            $($rest),+
        )
    };
}

statements! { TABLE;
    INSERT "offering_news_insert" =
        "INSERT INTO offering_news (offering, provider_id, observed, news) \
         VALUES ($1, $2, $3, $4)";
    OLDEST "offering_news_oldest" =
        news!("FROM offering_news AS n ORDER BY n.sequence LIMIT $1");
    // With `+ 0`, the order does not come from the key, which would be read completely.
    NEWEST "offering_news_newest" = news!(
        "FROM json_each($1) AS v CROSS JOIN offering_news AS n WHERE n.offering = v.value ->> 0 ",
        "ORDER BY n.sequence + 0 DESC LIMIT $2");
    DELETE "offering_news_delete" =
        "DELETE FROM offering_news WHERE sequence >= $1 AND sequence <= $2";
    DELETE_BEFORE "offering_news_delete_before" =
        "DELETE FROM offering_news WHERE sequence IN (\
         SELECT sequence FROM offering_news ORDER BY sequence LIMIT $1) AND observed < $2";
}

/// A row of news.
#[derive(Clone, Debug, PartialEq)]
pub struct NewsRow {
    pub sequence: i64,
    pub offering: OfferingId,
    pub provider_id: ProviderId,
    pub observed: Timestamp,
    /// `None`: another version of the program wrote it, in a form that is not known.
    pub news: Option<OfferingNews>,
}

impl FromRow for NewsRow {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (sequence, offering) = (cells.next()?, cells.next()?);
        let (provider_id, observed): (_, _) = (cells.next()?, cells.next()?);
        let news: String = cells.next()?;
        Ok(Self {
            sequence,
            offering,
            provider_id,
            observed,
            news: serde_json::from_str(&news).ok(),
        })
    }
}

pub fn insert(
    tx: &mut Tx<'_>,
    offering: &OfferingId,
    provider_id: &ProviderId,
    news: OfferingNews,
    observed: Timestamp,
) -> Result<()> {
    let text = to_json(&news);
    tx.run(&INSERT, (offering, provider_id, observed, &text))
}

/// The oldest rows of all offerings, in their order.
pub fn oldest(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<NewsRow>> {
    tx.rows(&OLDEST, limit)
}

/// The newest rows of these offerings together, in their order.
pub fn newest_of(tx: &mut Tx<'_>, offerings: &[OfferingId], limit: u32) -> Result<Vec<NewsRow>> {
    let list = list(offerings);
    let mut rows: Vec<NewsRow> = tx.rows(&NEWEST, (&list, limit))?;
    rows.reverse();
    Ok(rows)
}

/// Deletes these rows, which this transaction has read without leaving any out.
pub fn delete(tx: &mut Tx<'_>, rows: &[NewsRow]) -> Result<()> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Ok(());
    };
    tx.run(&DELETE, (first.sequence, last.sequence))
}

/// Looks at `limit` rows from the first on, and deletes those from before this time. Call it again
/// while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (limit, before))
}

/// Offerings as a list in one parameter.
pub(crate) fn list(offerings: &[OfferingId]) -> String {
    let rows: Vec<[&str; 1]> = offerings.iter().map(|id| [id.as_str()]).collect();
    to_json(&rows)
}
