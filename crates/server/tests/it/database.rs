//! A database of its own for each test, dropped with it.

use std::sync::atomic::{AtomicU32, Ordering};

use postgres::NoTls;
use tempfile::TempDir;

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

pub(crate) struct Database {
    pub(crate) url: String,
    home: Home,
}

enum Home {
    File(TempDir),
    Schema { server: String, name: String },
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let home = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", home.path().join("server.db").display());
        Self {
            url,
            home: Home::File(home),
        }
    }

    /// `None`, with a word to the reader, when there is no server to test with.
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    pub(crate) fn postgres() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = std::env::var("TEST_PG_URL") else {
            println!("skipped: TEST_PG_URL is not set");
            return None;
        };
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("server_test_{}_{number}", std::process::id());
        on_server(
            &server,
            &format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"),
        );
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-csearch_path%3D{name}");
        Some(Self {
            url,
            home: Home::Schema { server, name },
        })
    }

    /// Runs SQL behind the back of the store.
    pub(crate) fn raw(&self, sql: &str) {
        match &self.home {
            Home::File(home) => {
                let connection = rusqlite::Connection::open(home.path().join("server.db")).unwrap();
                let patience = std::time::Duration::from_secs(5);
                connection.busy_timeout(patience).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Home::Schema { .. } => on_server(&self.url, sql),
        }
    }

    /// All that the files of the database hold; `None` if it is not in files of ours.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let Home::File(home) = &self.home else {
            return None;
        };
        let files = std::fs::read_dir(home.path()).unwrap();
        let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
        Some(contents.collect::<Vec<_>>().concat())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match &self.home {
            Home::File(_) => {}
            Home::Schema { server, name } => {
                on_server(server, &format!("DROP SCHEMA {name} CASCADE"));
            }
        }
    }
}

/// On its own thread, because the driver waits with a runtime of its own.
fn on_server(url: &str, statements: &str) {
    let (url, statements) = (url.to_owned(), statements.to_owned());
    let done = std::thread::spawn(move || {
        postgres::Client::connect(&url, NoTls)
            .unwrap()
            .batch_execute(&statements)
            .unwrap();
    });
    done.join().unwrap();
}
