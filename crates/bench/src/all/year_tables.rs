//! The tables of a year-old database: the cost of each request, transaction and statement.

use clap::ValueEnum as _;
use serde_json::Value;

use super::Kind;
use super::markdown::{mark, table};

/// A figure of each database.
struct Column {
    title: &'static str,
    key: &'static str,
    decimals: usize,
    limit: Option<f64>,
}

impl Column {
    const fn new(title: &'static str, key: &'static str, decimals: usize) -> Self {
        Self {
            title,
            key,
            decimals,
            limit: None,
        }
    }

    /// With an aim: at most this much.
    const fn at_most(mut self, limit: f64) -> Self {
        self.limit = Some(limit);
        self
    }

    fn cell(&self, figures: &Value) -> String {
        let decimals = self.decimals;
        figures[self.key]
            .as_f64()
            .map_or_else(String::new, |value| {
                let is_missed = self.limit.is_some_and(|limit| value > limit);
                format!("{value:.decimals$}{}", mark(is_missed))
            })
    }
}

const TIMES: Column = Column::new("times", "count", 0);
const STATEMENTS: Column = Column::new("statements", "statements", 1);
const ROWS: Column = Column::new("rows", "rows", 1);
const MEDIAN: Column = Column::new("median, ms", "medianMs", 2);
const LONGEST: Column = Column::new("longest, ms", "mostMs", 2);

const OF_REQUESTS: &[Column] = &[STATEMENTS, ROWS, MEDIAN, LONGEST];
const OF_TRANSACTIONS: &[Column] = &[TIMES, MEDIAN, LONGEST];
const OF_STATEMENTS: &[Column] = &[TIMES, MEDIAN.at_most(5.0), LONGEST];

pub(super) fn text(databases: &Value) -> String {
    let of_kinds: Vec<(&str, &Value)> = Kind::value_variants()
        .iter()
        .filter_map(|kind| Some((kind.title(), databases.get(kind.key())?.get("year")?)))
        .collect();
    if of_kinds.is_empty() {
        return String::new();
    }
    let of = |title, key, columns| merged(title, columns, &tables(&of_kinds, key));
    format!(
        "\n### On the year-old database\n\n{}\n{}\n{}",
        of("Request or work", "steps", OF_REQUESTS),
        of("Transaction", "transactions", OF_TRANSACTIONS),
        of("Statement", "statements", OF_STATEMENTS)
    )
}

/// The figures of one database, by name, in their order.
struct Figures<'a> {
    database: &'a str,
    rows: Vec<(&'a str, &'a Value)>,
}

fn tables<'a>(of_kinds: &[(&'a str, &'a Value)], key: &str) -> Vec<Figures<'a>> {
    let of_kind = |(database, year): &(&'a str, &'a Value)| Figures {
        database,
        rows: match year[key].as_array() {
            Some(rows) => named(rows),
            None => slowest_first(&year[key]),
        },
    };
    of_kinds.iter().map(of_kind).collect()
}

fn named(rows: &[Value]) -> Vec<(&str, &Value)> {
    let named = rows.iter().map(|row| (row["name"].as_str(), row));
    named.filter_map(|(name, row)| Some((name?, row))).collect()
}

/// By the longest time: the median is that of small pools.
fn slowest_first(rows: &Value) -> Vec<(&str, &Value)> {
    let rows = rows.as_object().into_iter().flatten();
    let mut rows: Vec<_> = rows.map(|(name, row)| (name.as_str(), row)).collect();
    let most = |row: &Value| row[LONGEST.key].as_f64().unwrap_or_default();
    rows.sort_by(|(_, one), (_, other)| most(other).total_cmp(&most(one)));
    rows
}

/// One table for all databases, in the order of the first that has a row.
fn merged(title: &str, columns: &[Column], databases: &[Figures<'_>]) -> String {
    let mut headings = vec![title.to_owned()];
    let mut names: Vec<&str> = Vec::new();
    for Figures { database, rows } in databases {
        headings.extend(
            columns
                .iter()
                .map(|column| format!("{database}: {}", column.title)),
        );
        for (name, _) in rows {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    let cells = |name: &str| {
        let mut cells = vec![format!("`{name}`")];
        for Figures { rows, .. } in databases {
            let found = rows.iter().find(|(known, _)| *known == name);
            let figures = found.map_or(&Value::Null, |(_, row)| row);
            cells.extend(columns.iter().map(|column| column.cell(figures)));
        }
        cells
    };
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = names.into_iter().map(cells).collect();
    table(&headings, &rows)
}
