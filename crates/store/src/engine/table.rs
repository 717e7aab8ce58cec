//! What a statement says about a table, filled in from the list of its columns.
//!
//! Of a table whose columns are listed (`columns.rs`), `{columns}` names those that are read, `{written}` those
//! of a new row, `{values}` the parameters of a new row, `{changes}` what an update sets, `{excluded}` what an
//! upsert sets, `{key}` the condition that finds a row, and `{next}` the next parameter. Parameters are
//! numbered on from the highest before the placeholder.

use super::columns::{Column, Entity, Kind};

pub(crate) struct Table {
    pub(crate) name: &'static str,
    columns: Columns,
}

enum Columns {
    /// The statements name them; so many at the start of an answer name the row.
    Unlisted(usize),
    Of(fn() -> Vec<Column>),
    /// Of several tables, by the names that these have in the statements.
    Joined(&'static [(&'static str, &'static Table)]),
}

impl Table {
    /// A table whose statements name their columns themselves, with the key's columns first.
    pub(crate) const fn unlisted(name: &'static str, n_key_columns: usize) -> Self {
        Self {
            name,
            columns: Columns::Unlisted(n_key_columns),
        }
    }

    pub(crate) const fn of<T: Entity>(name: &'static str) -> Self {
        Self {
            name,
            columns: Columns::Of(T::columns),
        }
    }

    pub(crate) const fn joined(
        name: &'static str,
        tables: &'static [(&'static str, &'static Self)],
    ) -> Self {
        Self {
            name,
            columns: Columns::Joined(tables),
        }
    }

    /// How many columns at the start of an answer name the row.
    pub(crate) fn n_key_columns(&self) -> usize {
        match &self.columns {
            Columns::Unlisted(count) => *count,
            Columns::Of(columns) => of_kind(&columns(), Kind::Key).count(),
            Columns::Joined(tables) => tables.first().map_or(0, |(_, table)| table.n_key_columns()),
        }
    }

    /// Puts names and parameters into the places of a template.
    pub(super) fn fill(&self, template: &'static str) -> String {
        let mut sql = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (placeholder, after) = after.split_once('}').unwrap_or((after, ""));
            sql.push_str(before);
            sql.push_str(&self.expand(placeholder, highest_parameter(&sql)));
            rest = after;
        }
        sql + rest
    }

    /// What one placeholder stands for, after parameters up to this one.
    fn expand(&self, placeholder: &str, mut parameter: usize) -> String {
        let columns = match &self.columns {
            Columns::Of(columns) => columns(),
            Columns::Unlisted(_) | Columns::Joined(_) => Vec::new(),
        };
        let mut next = || {
            parameter += 1;
            format!("${parameter}")
        };
        match placeholder {
            "columns" => self.read_columns(""),
            "written" => list(&columns, |column| column.name.to_owned()),
            "values" => list(&columns, |_| next()),
            "changes" => {
                let mutable = of_kind(&columns, Kind::Mutable);
                let changed = mutable.map(|column| format!("{} = {}", column.name, next()));
                let counted = of_kind(&columns, Kind::Version)
                    .map(|column| format!("{name} = {name} + 1", name = column.name));
                join(changed.collect::<Vec<_>>().into_iter().chain(counted), ", ")
            }
            "excluded" => {
                let mutable = of_kind(&columns, Kind::Mutable);
                join(
                    mutable.map(|column| format!("{name} = excluded.{name}", name = column.name)),
                    ", ",
                )
            }
            "key" => {
                let key = columns
                    .iter()
                    .filter(|column| matches!(column.kind, Kind::Key | Kind::Version));
                join(
                    key.map(|column| format!("{} = {}", column.name, next())),
                    " AND ",
                )
            }
            "next" => next(),
            // The database refuses it.
            unknown => format!("{{{unknown}}}"),
        }
    }

    /// The columns that are read, each after this prefix.
    fn read_columns(&self, prefix: &str) -> String {
        match &self.columns {
            Columns::Unlisted(_) => String::new(),
            Columns::Of(columns) => {
                let columns = columns();
                let read = columns.iter().filter(|column| column.is_read);
                join(read.map(|column| format!("{prefix}{}", column.name)), ", ")
            }
            Columns::Joined(tables) => join(
                tables
                    .iter()
                    .map(|(alias, table)| table.read_columns(&format!("{alias}."))),
                ", ",
            ),
        }
    }
}

fn of_kind(columns: &[Column], kind: Kind) -> impl Iterator<Item = &Column> {
    columns.iter().filter(move |column| column.kind == kind)
}

fn list(columns: &[Column], text: impl FnMut(&Column) -> String) -> String {
    join(columns.iter().map(text), ", ")
}

fn join(parts: impl Iterator<Item = String>, separator: &str) -> String {
    parts.collect::<Vec<_>>().join(separator)
}

/// The highest number after a `$`.
pub(super) fn highest_parameter(sql: &str) -> usize {
    parameters(sql).max().unwrap_or(0)
}

/// The numbers after each `$`, as they appear.
pub(crate) fn parameters(sql: &str) -> impl Iterator<Item = usize> {
    sql.split('$').skip(1).map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit);
        digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::columns::columns;

    #[test]
    fn placeholders_stand_for_the_columns_and_number_on() {
        struct Thing {
            id: String,
            made: i64,
            name: Option<String>,
            version: domain::Version,
        }
        columns! { thing: Thing {
            id: Key "thing_id",
            made: Fixed "made",
            name: Mutable "name",
            version: Version "version",
        } also { Mutable "has_name" = thing.name.is_some() } }
        static TABLE: Table = Table::of::<Thing>("things");
        static JOINED: Table = Table::joined("things", &[("t", &TABLE), ("u", &TABLE)]);
        let filled = |table: &Table, template| table.fill(template);
        for (template, expected) in [
            (
                "SELECT {columns} FROM things",
                "SELECT thing_id, made, name, version FROM things",
            ),
            (
                "INSERT INTO things ({written}, more) VALUES ({values}, {next})",
                "INSERT INTO things (thing_id, made, name, version, has_name, more) \
                 VALUES ($1, $2, $3, $4, $5, $6)",
            ),
            (
                "UPDATE things SET more = $1, {changes} WHERE {key}",
                "UPDATE things SET more = $1, name = $2, has_name = $3, version = version + 1 \
                 WHERE thing_id = $4 AND version = $5",
            ),
            (
                "SET {excluded}",
                "SET name = excluded.name, has_name = excluded.has_name",
            ),
            ("SELECT {other}", "SELECT {other}"),
        ] {
            assert_eq!(filled(&TABLE, template), expected);
        }
        assert_eq!(
            filled(&JOINED, "SELECT {columns}"),
            "SELECT t.thing_id, t.made, t.name, t.version, u.thing_id, u.made, u.name, u.version"
        );
        assert_eq!((TABLE.n_key_columns(), JOINED.n_key_columns()), (1, 1));
        let thing = Thing {
            id: "a".into(),
            made: 1,
            name: None,
            version: domain::Version(7),
        };
        let written = format!("{:?}", thing.inserted());
        let expected = r#"[Text("a"), Integer(1), Null, Integer(7), Integer(0)]"#;
        assert_eq!(written, expected);
        let written = format!("{:?}", thing.updated());
        assert_eq!(written, r#"[Null, Integer(0), Text("a"), Integer(7)]"#);
    }
}
