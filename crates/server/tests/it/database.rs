//! A database of its own for each test, with all tables.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use testing::databases::{self, Template};

/// The tests of a module in which `run` takes a database. Those in a module `long` run only in
/// `./check all`.
macro_rules! on_databases {
    (both, $test:meta) => {
        #[$test]
        async fn sqlite() {
            Box::pin(run(crate::database::Database::sqlite())).await;
        }

        #[$test]
        async fn postgres() {
            if let Some(database) = crate::database::Database::postgres() {
                Box::pin(run(database)).await;
            }
        }
    };
    (long, $test:meta) => {
        mod long {
            use super::run;

            crate::database::on_databases!(both, $test);
        }
    };
    (sqlite_first, $test:meta) => {
        #[$test]
        async fn sqlite() {
            Box::pin(run(crate::database::Database::sqlite())).await;
        }

        mod long {
            use super::run;

            #[$test]
            async fn postgres() {
                if let Some(database) = crate::database::Database::postgres() {
                    Box::pin(run(database)).await;
                }
            }
        }
    };
}
pub(crate) use on_databases;

/// Runs one test body on each database: `name::sqlite` and `name::postgres`. With `parallel` in
/// front, tasks that the body spawns run on several threads.
macro_rules! on_both {
    ($($test:tt)*) => {
        crate::database::test_of_world!(both $($test)*);
    };
}
pub(crate) use on_both;

/// As `on_both`, for a body to which the kind of database does not matter: in `./check` it runs on
/// SQLite only. A body with races, several processes, batches, pages, counts of statements, the
/// order of rows, or texts as they are stored belongs on both.
macro_rules! on_sqlite_first {
    ($($test:tt)*) => {
        crate::database::test_of_world!(sqlite_first $($test)*);
    };
}
pub(crate) use on_sqlite_first;

/// As `on_both`, only in `./check all`: for what a smaller body shows, too.
macro_rules! on_both_in_long {
    ($($test:tt)*) => {
        crate::database::test_of_world!(long $($test)*);
    };
}
pub(crate) use on_both_in_long;

macro_rules! test_of_world {
    ($lanes:ident $name:ident, |$world:ident| $body:block) => {
        crate::database::test_of_world!($lanes $name, |_config| {}, |$world| $body);
    };
    ($lanes:ident $name:ident, |$config:ident| $change:block, |$world:ident| $body:block) => {
        crate::database::test_of_world!(@ $lanes $name, $config $change, $world $body, (tokio::test));
    };
    ($lanes:ident $name:ident, $change:ident, |$world:ident| $body:block) => {
        crate::database::test_of_world!(@ $lanes $name, config { super::$change(config) },
            $world $body, (tokio::test));
    };
    ($lanes:ident parallel $name:ident, |$world:ident| $body:block) => {
        crate::database::test_of_world!(@ $lanes $name, _config {}, $world $body,
            (tokio::test(flavor = "multi_thread", worker_threads = 4)));
    };
    ($lanes:ident parallel $name:ident, $change:ident, |$world:ident| $body:block) => {
        crate::database::test_of_world!(@ $lanes $name, config { super::$change(config) },
            $world $body, (tokio::test(flavor = "multi_thread", worker_threads = 4)));
    };
    (@ $lanes:ident $name:ident, $config:ident $change:block, $world:ident $body:block,
        ($test:meta)) => {
        async fn $name($world: &crate::world::World) $body

        mod $name {
            fn change($config: &mut server::config::Config) $change

            async fn run(database: crate::database::Database) {
                super::$name(&crate::world::World::open(database, change).await).await;
            }

            crate::database::on_databases!($lanes, $test);
        }
    };
}
pub(crate) use test_of_world;

/// As insta's, in a test that runs on both databases in one process.
macro_rules! assert_snapshot {
    ($value:expr, @$expected:literal) => {{
        let value = ($value).to_string();
        insta::allow_duplicates! { insta::assert_snapshot!(value, @$expected) }
    }};
}
pub(crate) use assert_snapshot;

static MIGRATED: LazyLock<Template> = LazyLock::new(|| {
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/migrations");
    let name = format!("migrated_{}", databases::digest(&[migrations]));
    Template::new(name, |url| {
        let options = store::Options {
            url: url.to_owned(),
            connections: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let store = store::Store::open(&options).unwrap();
            store.migrate(1).await.unwrap();
            store.close().await;
        });
    })
});

pub(crate) struct Database(databases::Database);

impl Database {
    pub(crate) fn sqlite() -> Self {
        Self(databases::Database::sqlite(&MIGRATED))
    }

    /// `None`, with a message to the reader, when no server is configured for tests.
    pub(crate) fn postgres() -> Option<Self> {
        databases::Database::postgres(&MIGRATED).map(Self)
    }

    /// Without tables; `None` as above.
    pub(crate) fn empty_postgres() -> Option<Self> {
        databases::Database::empty_postgres().map(Self)
    }
}

impl Deref for Database {
    type Target = databases::Database;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Database {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
