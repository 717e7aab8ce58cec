//! The columns of a table, listed once: statements, reads and writes are derived from the list.
//!
//! `columns!` has the shape of the struct for a row. A field takes one column, or several, or is a
//! struct with columns of its own. The placeholders in `table.rs` stand for the names.

use domain::Version;
use domain::time::Timestamp;

use crate::engine::{cells::Cell, row::BadRow, row::Row, value::Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of the key that identifies the row.
    Key,
    /// Written by inserts only.
    Fixed,
    /// Written by every update.
    Mutable,
    /// Counts updates. An update with an old version changes nothing.
    Version,
}

pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether it is read. Other columns are derived from the entity, and only statements refer to
    /// them.
    pub(crate) is_read: bool,
}

/// A struct that is stored as a row.
pub(crate) trait Entity: FromRow {
    /// The columns in the order of reads and writes. Keys come first, so that errors can name the
    /// row.
    fn columns() -> Vec<Column>;
    fn write<'a>(&'a self, values: &mut Values<'a>);

    /// The values of all columns of these kinds.
    fn values(&self, kinds: &'static [Kind]) -> Vec<Value<'_>> {
        let mut values = Values {
            kinds,
            values: Vec::new(),
        };
        self.write(&mut values);
        values.values
    }

    /// The values for `{values}`.
    fn inserted(&self) -> Vec<Value<'_>> {
        self.values(&[Kind::Key, Kind::Fixed, Kind::Mutable, Kind::Version])
    }

    /// The values for `{changes}` and then `{key}`.
    fn updated(&self) -> Vec<Value<'_>> {
        let mut values = self.values(&[Kind::Mutable]);
        values.extend(self.values(&[Kind::Key, Kind::Version]));
        values
    }
}

/// Read from a row or from some of its columns. A tuple is read member by member.
pub(crate) trait FromRow: Sized {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow>;
}

/// A field of an entity: one column, or several.
pub(crate) trait Field: FromRow {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>);
}

/// Values of parameters, in their order. A tuple is bound member by member.
pub(crate) trait Bind<'v> {
    fn bind(self, values: &mut Vec<Value<'v>>);
}

impl<T: Cell> Field for T {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.push(self.value());
    }
}

impl<T: Cell> FromRow for T {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let column = cells.next;
        cells.next += 1;
        T::read(cells.row, column)
    }
}

impl<'v, T: Field> Bind<'v> for &'v T {
    fn bind(self, values: &mut Vec<Value<'v>>) {
        self.write(values);
    }
}

impl<'v> Bind<'v> for Vec<Value<'v>> {
    fn bind(mut self, values: &mut Vec<Value<'v>>) {
        values.append(&mut self);
    }
}

macro_rules! bind_values {
    ($($type:ty),+) => {$(
        impl<'v> Bind<'v> for $type {
            fn bind(self, values: &mut Vec<Value<'v>>) {
                values.push(self.into());
            }
        }
    )+};
}

bind_values!(i64, u32, bool, Timestamp, Version, &'v str, String);

macro_rules! tuples {
    ($(($($member:ident)*))+) => {$(
        impl<'v, $($member: Bind<'v>),*> Bind<'v> for ($($member,)*) {
            #[expect(non_snake_case, reason = "each member has the name of its type")]
            fn bind(self, values: &mut Vec<Value<'v>>) {
                let ($($member,)*) = self;
                $($member.bind(values);)*
            }
        }

        impl<$($member: FromRow),*> FromRow for ($($member,)*) {
            fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
                Ok(($($member::read(cells)?,)*))
            }
        }
    )+};
}

tuples! { (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// For statements without parameters.
impl<'v> Bind<'v> for () {
    fn bind(self, _: &mut Vec<Value<'v>>) {}
}

/// Collects the values of columns of some kinds.
pub(crate) struct Values<'a> {
    kinds: &'static [Kind],
    values: Vec<Value<'a>>,
}

impl<'a> Values<'a> {
    pub(crate) fn put(&mut self, kind: Kind, field: &'a impl Field) {
        if self.kinds.contains(&kind) {
            field.write(&mut self.values);
        }
    }

    pub(crate) fn put_derived(&mut self, kind: Kind, value: impl Into<Value<'a>>) {
        if self.kinds.contains(&kind) {
            self.values.push(value.into());
        }
    }
}

/// The columns of a row, read one after the other.
pub(crate) struct Cells<'r, 'a> {
    row: &'r Row<'a>,
    next: usize,
}

impl<'r, 'a> Cells<'r, 'a> {
    pub(crate) fn of(row: &'r Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    pub(crate) fn next<T: FromRow>(&mut self) -> Result<T, BadRow> {
        T::read(self)
    }

    /// Reads an entity from a joined table whose row may be missing.
    pub(crate) fn joined<T: Entity>(&mut self) -> Result<Option<T>, BadRow> {
        if self.row.is_null(self.next)? {
            let columns = T::columns();
            self.next += columns.iter().filter(|column| column.is_read).count();
            return Ok(None);
        }
        T::read(self).map(Some)
    }
}

/// Reads a struct from columns in the order of these fields.
macro_rules! from_row {
    ($type:ident { $($field:ident),+ }) => {
        impl $crate::engine::FromRow for $type {
            fn read(
                cells: &mut $crate::engine::Cells<'_, '_>,
            ) -> Result<Self, $crate::engine::BadRow> {
                Ok(Self { $($field: cells.next()?),+ })
            }
        }
    };
}
pub(crate) use from_row;

/// Declares the columns of a type, by its shape. `also` lists columns that are only written.
/// `Worker(StoredWorker)` is a type whose fields only its module writes: rows are read into the
/// type in the brackets.
macro_rules! columns {
    (
        $entity:ident: $type:ident $(($stored:ident))?
        { $($field:ident: $kind:ident $body:tt),+ $(,)? }
        $(also { $($also_kind:ident $also:literal = $value:expr),+ $(,)? })?
    ) => {
        impl $crate::engine::Entity for $type {
            fn columns() -> Vec<$crate::engine::columns::Column> {
                let mut columns = Vec::new();
                $($crate::engine::columns!(@name columns $kind $body);)+
                $($($crate::engine::columns!(@name columns $also_kind $also, false);)+)?
                columns
            }

            fn write<'a>(&'a self, values: &mut $crate::engine::columns::Values<'a>) {
                let $entity = self;
                $($crate::engine::columns!(@write values $entity $field $kind $body);)+
                $($(
                    values.put_derived($crate::engine::columns::Kind::$also_kind, $value);
                )+)?
            }
        }

        impl $crate::engine::FromRow for $type {
            fn read(
                cells: &mut $crate::engine::Cells<'_, '_>,
            ) -> Result<Self, $crate::engine::BadRow> {
                Ok($crate::engine::columns!(@made $type $($stored)? {
                    $($field: $crate::engine::columns!(@read cells $kind $body)),+
                }))
            }
        }
    };

    (@made $type:ident { $($fields:tt)+ }) => { $type { $($fields)+ } };
    (@made $type:ident $stored:ident { $($fields:tt)+ }) => {
        $type::from_stored($stored { $($fields)+ })
    };

    (@name $columns:ident $type:ident { $($field:ident: $kind:ident $body:tt),+ $(,)? }) => {
        $($crate::engine::columns!(@name $columns $kind $body);)+
    };
    (@name $columns:ident $kind:ident [$($name:literal),+]) => {
        $($crate::engine::columns!(@name $columns $kind $name, true);)+
    };
    (@name $columns:ident $kind:ident $name:literal) => {
        $crate::engine::columns!(@name $columns $kind $name, true)
    };
    (@name $columns:ident $kind:ident $name:literal, $is_read:literal) => {
        $columns.extend([$crate::engine::columns::Column {
            name: $name,
            kind: $crate::engine::columns::Kind::$kind,
            is_read: $is_read,
        }])
    };

    (
        @write $values:ident $owner:ident $owned:ident
        $type:ident { $($field:ident: $kind:ident $body:tt),+ $(,)? }
    ) => {
        let inner = &$owner.$owned;
        $($crate::engine::columns!(@write $values inner $field $kind $body);)+
    };
    (@write $values:ident $owner:ident $field:ident $kind:ident $name:tt) => {
        $values.put($crate::engine::columns::Kind::$kind, &$owner.$field)
    };

    (@read $cells:ident $type:ident { $($field:ident: $kind:ident $body:tt),+ $(,)? }) => {
        $type { $($field: $crate::engine::columns!(@read $cells $kind $body)),+ }
    };
    (@read $cells:ident $kind:ident $name:tt) => { $cells.next()? };
}
pub(crate) use columns;
