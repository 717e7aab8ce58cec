//! A database of its own for each test, dropped with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::NoTls;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Held by the process that makes the template.
const TEMPLATE_LOCK: &str = "SELECT pg_advisory_lock(hashtext('fleetwright template'))";

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
    /// The cleanup on this server at the end.
    Server {
        server: String,
        drop: String,
    },
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

    /// With all tables: a copy of a migrated template, which takes a quarter of the time. `None`,
    /// with a message to the reader, when no server is configured for tests.
    pub(crate) fn postgres() -> Option<Self> {
        let server = server()?;
        let name = fresh_name();
        let copied = format!("CREATE DATABASE {name} TEMPLATE {}", template(&server));
        on_server(&server, &copied);
        Some(Self {
            url: address_of(&server, &name),
            home: Home::Server {
                server,
                // The store may still have connections.
                drop: format!("DROP DATABASE {name} WITH (FORCE)"),
            },
        })
    }

    /// Without tables; `None` as above.
    pub(crate) fn empty_postgres() -> Option<Self> {
        let server = server()?;
        let name = fresh_name();
        on_server(&server, &format!("CREATE SCHEMA {name}"));
        let separator = if server.contains('?') { '&' } else { '?' };
        Some(Self {
            url: format!("{server}{separator}options=-csearch_path%3D{name}"),
            home: Home::Server {
                server,
                drop: format!("DROP SCHEMA {name} CASCADE"),
            },
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
            Home::Server { .. } => on_server(&self.url, sql),
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
            Home::Server { server, drop } => on_server(server, drop),
        }
    }
}

#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn server() -> Option<String> {
    let server = std::env::var("TEST_PG_URL").ok();
    if server.is_none() {
        println!("skipped: TEST_PG_URL is not set");
    }
    server
}

fn fresh_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("server_test_{}_{number}", std::process::id())
}

/// The name of a database with all tables. The first process that needs it makes it; others wait
/// for it.
fn template(server: &str) -> &'static str {
    static TEMPLATE: OnceLock<String> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let name = format!("fleetwright_template_{}", digest_of_migrations());
        let (server, wanted) = (server.to_owned(), name.clone());
        let making = std::thread::spawn(move || make_template(&server, &wanted));
        making.join().unwrap();
        name
    })
}

fn make_template(server: &str, name: &str) {
    let mut client = postgres::Client::connect(server, NoTls).unwrap();
    client.batch_execute(TEMPLATE_LOCK).unwrap();
    let known = client.query("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]);
    if !known.unwrap().is_empty() {
        return;
    }
    // An unfinished template of another process has another name.
    let unfinished = format!("{name}_unfinished");
    let drop = format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)");
    client.batch_execute(&drop).unwrap();
    let create = format!("CREATE DATABASE {unfinished}");
    client.batch_execute(&create).unwrap();
    migrate(&address_of(server, &unfinished));
    let rename = format!("ALTER DATABASE {unfinished} RENAME TO {name}");
    client.batch_execute(&rename).unwrap();
}

fn migrate(url: &str) {
    let options = store::Options {
        url: url.to_owned(),
        connections: 1,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = store::Store::open(&options).unwrap();
        store.migrate(1).await.unwrap();
        store.close().await;
    });
}

/// Another one whenever a migration is added.
fn digest_of_migrations() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/migrations");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read(file).unwrap());
    let digest = Sha256::digest(texts.collect::<Vec<_>>().concat());
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn address_of(server: &str, database: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let (host, _) = address.rsplit_once('/').unwrap();
    format!("{host}/{database}{options}")
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
