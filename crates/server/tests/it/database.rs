//! A database of its own for each test, with all tables.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use testing::databases::{self, Template};

/// Runs one test body on each database: `name::sqlite` and `name::postgres`. With `parallel` in
/// front, tasks that the body spawns run on several threads.
macro_rules! on_both {
    ($name:ident, |$world:ident| $body:block) => {
        crate::database::on_both!($name, |_config| {}, |$world| $body);
    };
    ($name:ident, |$config:ident| $change:block, |$world:ident| $body:block) => {
        crate::database::on_both!(@ $name, $config $change, $world $body, (tokio::test));
    };
    ($name:ident, $change:ident, |$world:ident| $body:block) => {
        crate::database::on_both!(@ $name, config { super::$change(config) }, $world $body, (tokio::test));
    };
    (parallel $name:ident, |$world:ident| $body:block) => {
        crate::database::on_both!(@ $name, _config {}, $world $body,
            (tokio::test(flavor = "multi_thread", worker_threads = 4)));
    };
    (parallel $name:ident, $change:ident, |$world:ident| $body:block) => {
        crate::database::on_both!(@ $name, config { super::$change(config) }, $world $body,
            (tokio::test(flavor = "multi_thread", worker_threads = 4)));
    };
    (@ $name:ident, $config:ident $change:block, $world:ident $body:block, ($test:meta)) => {
        async fn $name($world: &crate::world::World) $body

        mod $name {
            use crate::database::Database;
            use crate::world::World;

            fn change($config: &mut server::config::Config) $change

            #[$test]
            async fn sqlite() {
                super::$name(&World::open(Database::sqlite(), change).await).await;
            }

            #[$test]
            async fn postgres() {
                if let Some(database) = Database::postgres() {
                    super::$name(&World::open(database, change).await).await;
                }
            }
        }
    };
}
pub(crate) use on_both;

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
