//! A separate database for each test, deleted at its end.

use std::path::Path;
use std::sync::LazyLock;

use store::{Options, Store, StoreError, Tx, year_old};
use testing::databases::{self, Template};

pub(crate) use testing::databases::ask_server;

use crate::year_old::year;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

static MIGRATED: LazyLock<Template> = LazyLock::new(|| {
    let name = format!("migrated_{}", digest(&["migrations"]));
    Template::new(name, |url| fill(url, async |_| ()))
});

static YEAR_OLD: LazyLock<Template> = LazyLock::new(|| {
    let digest = digest(&[
        "migrations",
        "src/year_old",
        "src/year_old.rs",
        "tests/it/year_old.rs",
        "tests/it/world.rs",
    ]);
    Template::large(format!("year_old_{digest}"), |url| {
        fill(url, async |store| {
            year_old::fill(store, year()).await.unwrap();
        });
        // Otherwise PostgreSQL would do so during a test, and plan in another way from then on.
        if url.starts_with("postgres") {
            ask_server(url, |client| client.batch_execute("VACUUM").unwrap());
        }
    })
});

fn digest(paths: &[&str]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| Path::new(CRATE).join(path))
        .collect();
    databases::digest(&paths)
}

/// Makes all tables in an empty database, and the rest on them.
fn fill(url: &str, rest: impl AsyncFnOnce(&Store)) {
    let options = Options {
        url: url.to_owned(),
        connections: 1,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let store = Store::open(&options).unwrap();
        store.migrate(1).await.unwrap();
        rest(&store).await;
        store.close().await;
    });
}

pub(crate) struct Database {
    pub(crate) options: Options,
    home: databases::Database,
}

/// Runs one test body on each database: `name::sqlite` and `name::postgres`. In front of the name
/// may stand `empty` (without tables), `new` (no test has used it), or `year_old`.
macro_rules! on_both {
    ($name:ident, |$database:ident| $body:block) => {
        crate::world::on_both!(@ $name, $database $body, sqlite, postgres);
    };
    (empty $name:ident, |$database:ident| $body:block) => {
        crate::world::on_both!(@ $name, $database $body, empty_sqlite, empty_postgres);
    };
    (new $name:ident, |$database:ident| $body:block) => {
        crate::world::on_both!(@ $name, $database $body, sqlite, new_postgres);
    };
    (year_old $name:ident, |$database:ident| $body:block) => {
        crate::world::on_both!(@ $name, $database $body, year_old_sqlite, year_old_postgres);
    };
    (@ $name:ident, $database:ident $body:block, $sqlite:ident, $postgres:ident) => {
        async fn $name($database: &crate::world::Database) $body

        mod $name {
            #[tokio::test]
            async fn sqlite() {
                super::$name(&crate::world::Database::$sqlite()).await;
            }

            #[tokio::test]
            async fn postgres() {
                if let Some(database) = crate::world::Database::$postgres() {
                    super::$name(&database).await;
                }
            }
        }
    };
}
pub(crate) use on_both;

impl Database {
    pub(crate) fn sqlite() -> Self {
        Self::new(databases::Database::sqlite(&MIGRATED))
    }

    /// `None`, with a message to the reader, when no server is configured for tests.
    pub(crate) fn postgres() -> Option<Self> {
        databases::Database::postgres(&MIGRATED).map(Self::new)
    }

    /// A database that no test has used: PostgreSQL has not counted its tables. `None` as above.
    pub(crate) fn new_postgres() -> Option<Self> {
        databases::Database::new_postgres(&MIGRATED).map(Self::new)
    }

    /// As a large fleet leaves it after a year.
    pub(crate) fn year_old_sqlite() -> Self {
        Self::new(databases::Database::sqlite(&YEAR_OLD))
    }

    pub(crate) fn year_old_postgres() -> Option<Self> {
        databases::Database::postgres(&YEAR_OLD).map(Self::new)
    }

    /// Without tables.
    pub(crate) fn empty_sqlite() -> Self {
        Self::new(databases::Database::empty_sqlite())
    }

    /// Without tables; `None` as above.
    pub(crate) fn empty_postgres() -> Option<Self> {
        databases::Database::empty_postgres().map(Self::new)
    }

    fn new(home: databases::Database) -> Self {
        let options = Options {
            url: home.url.clone(),
            connections: 4,
        };
        Self { options, home }
    }

    /// Another database of the same engine.
    pub(crate) fn another(&self) -> Self {
        match self.home.is_postgres() {
            false => Self::sqlite(),
            true => Self::postgres().unwrap(),
        }
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(&self.options).unwrap()
    }

    /// Opens it, and makes the tables unless they are there.
    pub(crate) async fn migrated(&self) -> Store {
        let store = self.open();
        store.migrate(1).await.unwrap();
        store
    }

    /// Runs SQL outside of the store.
    pub(crate) fn raw(&self, sql: &str) {
        self.home.raw(sql);
    }
}

/// Runs a write transaction that must succeed.
pub(crate) async fn write<T: Send + 'static>(
    store: &Store,
    f: impl FnMut(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> T {
    store.write("test_write", f).await.unwrap()
}

/// Runs a read transaction that must succeed.
pub(crate) async fn read<T: Send + 'static>(
    store: &Store,
    f: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
) -> T {
    store.read("test_read", f).await.unwrap()
}
