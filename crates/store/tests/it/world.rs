//! A separate database for each test, deleted at its end.

use std::sync::atomic::{AtomicU32, Ordering};

use postgres::NoTls;
use store::{Options, Store, StoreError, Tx};
use tempfile::TempDir;

pub(crate) struct Database {
    pub(crate) options: Options,
    home: Home,
}

enum Home {
    File(TempDir),
    Schema { server: String, name: String },
    Alone { server: String, name: String },
}

/// Runs one test body on each database: `name::sqlite` and `name::postgres`.
macro_rules! on_both {
    ($name:ident, |$database:ident| $body:block) => {
        async fn $name($database: &crate::world::Database) $body

        mod $name {
            #[tokio::test]
            async fn sqlite() {
                super::$name(&crate::world::Database::sqlite()).await;
            }

            #[tokio::test]
            async fn postgres() {
                if let Some(database) = crate::world::Database::postgres() {
                    super::$name(&database).await;
                }
            }
        }
    };
}
pub(crate) use on_both;

impl Database {
    pub(crate) fn sqlite() -> Self {
        let home = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", home.path().join("store.db").display());
        Self {
            options: Options {
                url,
                connections: 4,
            },
            home: Home::File(home),
        }
    }

    /// Returns `None` and prints a message if no server is configured.
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    pub(crate) fn postgres() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let Ok(server) = std::env::var("TEST_PG_URL") else {
            println!("skipped: TEST_PG_URL is not set");
            return None;
        };
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        on_server(
            &server,
            &format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"),
        );
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-csearch_path%3D{name}");
        Some(Self {
            options: Options {
                url,
                connections: 4,
            },
            home: Home::Schema { server, name },
        })
    }

    /// A database that no other test uses, so that no transaction of theirs delays a clean-up.
    pub(crate) fn postgres_alone() -> Option<Self> {
        let mut database = Self::postgres()?;
        if let Home::Schema { server, name } = &database.home {
            on_server(
                server,
                &format!("CREATE DATABASE {name} TEMPLATE template0"),
            );
            let (address, rest) = server.rsplit_once('/').unwrap();
            let options = rest.split_once('?').map_or("", |(_, options)| options);
            database.options.url = format!("{address}/{name}?{options}");
            let (server, name) = (server.clone(), name.clone());
            database.home = Home::Alone { server, name };
        }
        Some(database)
    }

    /// Another, empty database of the same engine.
    pub(crate) fn another(&self) -> Self {
        match &self.home {
            Home::File(_) => Self::sqlite(),
            Home::Schema { .. } | Home::Alone { .. } => Self::postgres().unwrap(),
        }
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(&self.options).unwrap()
    }

    pub(crate) async fn migrated(&self) -> Store {
        let store = self.open();
        store.migrate(1).await.unwrap();
        store
    }

    /// Runs SQL outside of the store.
    pub(crate) fn raw(&self, sql: &str) {
        match &self.home {
            Home::File(home) => {
                let connection = rusqlite::Connection::open(home.path().join("store.db")).unwrap();
                connection
                    .busy_timeout(std::time::Duration::from_secs(120))
                    .unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Home::Schema { .. } | Home::Alone { .. } => on_server(&self.options.url, sql),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match &self.home {
            Home::File(_) => {}
            Home::Schema { server, name } => {
                on_server(server, &format!("DROP SCHEMA {name} CASCADE"));
            }
            Home::Alone { server, name } => {
                on_server(server, &format!("DROP DATABASE {name} WITH (FORCE)"));
                on_server(server, &format!("DROP SCHEMA {name} CASCADE"));
            }
        }
    }
}

fn on_server(url: &str, sql: &str) {
    let sql = sql.to_owned();
    ask_server(url, move |client| client.batch_execute(&sql).unwrap());
}

/// Asks PostgreSQL. On a separate thread, because the driver blocks on its own runtime.
pub(crate) fn ask_server<T: Send + 'static>(
    url: &str,
    ask: impl FnOnce(&mut postgres::Client) -> T + Send + 'static,
) -> T {
    let url = url.to_owned();
    let asking =
        std::thread::spawn(move || ask(&mut postgres::Client::connect(&url, NoTls).unwrap()));
    asking.join().unwrap()
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
