//! SQLite and PostgreSQL: connections, transactions, statements and migrations.

pub(crate) mod attempts;
mod backoff;
pub(crate) mod cells;
pub(crate) mod columns;
pub(crate) mod counts;
pub(crate) mod error;
mod failure;
mod lock;
pub(crate) mod migration;
pub(crate) mod options;
pub(crate) mod part;
mod postgres_session;
pub mod probe;
mod retry_locks;
mod row;
pub(crate) mod session;
mod simulation;
mod simulation_state;
pub(crate) mod sqlite;
pub(crate) mod statement;
pub mod statistics;
mod stopwatch;
pub(crate) mod store;
pub(crate) mod table;
mod tls;
pub mod turns;
pub(crate) mod tx;
pub(crate) mod value;

pub(crate) use columns::{Bind, Cells, Entity, Field, FromRow, columns, from_row};
pub(crate) use error::{Result, StoreError};
pub(crate) use part::Part;
pub(crate) use row::BadRow;
pub(crate) use statement::{AFTER_ALL, Statement, statements};
pub(crate) use table::Table;
pub(crate) use tx::{ALL_ROWS, Tx};
pub(crate) use value::{Value, to_json};
