//! Placeholders in statements, filled in from the list of a table's columns.
//!
//! For a table whose columns are listed (`columns.rs`), `{columns}` is the columns that are read,
//! `{written}` the columns of a new row, `{values}` its parameters, `{changes}` the assignments of
//! an update, `{excluded}` the assignments of an upsert, `{key}` the condition that finds a row,
//! and `{next}` the next parameter. Parameters are numbered on from the highest before the
//! placeholder.

use crate::engine::{columns::Column, columns::Entity, columns::Kind};

pub(crate) struct Table {
    pub(crate) name: &'static str,
    columns: Columns,
}

enum Columns {
    /// The statements list the columns themselves. This many at the start of an answer are the key.
    Unlisted(usize),
    Of(fn() -> Vec<Column>),
    /// The columns of several tables, with the alias of each table.
    Joined(&'static [(&'static str, &'static Table)]),
}

impl Table {
    /// A table whose statements list their columns themselves, key columns first.
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

    /// Number of key columns, which are at the start of an answer.
    pub(crate) fn n_key_columns(&self) -> usize {
        match &self.columns {
            Columns::Unlisted(count) => *count,
            Columns::Of(columns) => of_kind(&columns(), Kind::Key).count(),
            Columns::Joined(tables) => tables.first().map_or(0, |(_, table)| table.n_key_columns()),
        }
    }

    /// Replaces the placeholders of a template.
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

    /// The text for one placeholder, if `parameter` is the highest parameter before it.
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
            // The database reports the error.
            unknown => format!("{{{unknown}}}"),
        }
    }

    /// The columns that are read, each with this prefix.
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

/// The highest number of a parameter.
pub(super) fn highest_parameter(sql: &str) -> usize {
    parameters(sql).max().unwrap_or(0)
}

/// The numbers of the parameters, in the order in which they appear.
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
    fn placeholders_become_columns_and_parameters() {
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
