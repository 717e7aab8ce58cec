//! A database of its own for each test. A PostgreSQL database serves one test after another, and is
//! emptied in between, because creating and dropping one takes longer than most tests.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

use postgres::NoTls;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Held by the process that makes the template.
const TEMPLATE_LOCK: &str = "SELECT pg_advisory_lock(hashtext('fleetwright template'))";

/// Databases that no test uses have a name that begins so.
const SPARE: &str = "server_spare";

/// Keeps the rows that migrations write, so that they can be written again.
const KEEP_FIRST_ROWS: &str = "
    CREATE SCHEMA first_rows;
    DO $$
    DECLARE name text; has_rows boolean;
    BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO has_rows;
            IF has_rows THEN
                EXECUTE format('CREATE TABLE first_rows.%I AS TABLE public.%1$I', name);
            END IF;
        END LOOP;
    END $$";

/// Makes a used database equal to the template. To delete a few rows is quicker than to truncate.
const RESTORE: &str = "
    DO $$
    DECLARE name text; size bigint;
    BEGIN
        FOR name, size IN SELECT relname, pg_relation_size(oid) FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
            IF size > 65536 THEN
                EXECUTE format('TRUNCATE public.%I', name);
            ELSIF size > 0 THEN
                EXECUTE format('DELETE FROM public.%I', name);
            END IF;
        END LOOP;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'first_rows' LOOP
            EXECUTE format('INSERT INTO public.%I TABLE first_rows.%1$I', name);
        END LOOP;
        PERFORM setval(format('public.%I', sequencename)::regclass, 1, false)
            FROM pg_sequences WHERE schemaname = 'public';
    END $$";

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

pub(crate) struct Database {
    pub(crate) url: String,
    home: Home,
}

enum Home {
    File(TempDir),
    /// A database on this server, which can serve another test.
    Server {
        server: String,
        name: String,
        reusable: AtomicBool,
    },
    Schema {
        server: String,
        name: String,
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

    /// With all tables: a spare database, or a copy of a migrated template. `None`, with a message
    /// to the reader, when no server is configured for tests.
    pub(crate) fn postgres() -> Option<Self> {
        let server = server()?;
        let name = fresh_name();
        if !take_spare(&server, &name) {
            let copied = format!("CREATE DATABASE {name} TEMPLATE {}", template(&server));
            on_server(&server, &copied).unwrap();
        }
        Some(Self {
            url: address_of(&server, &name),
            home: Home::Server {
                server,
                name,
                reusable: AtomicBool::new(true),
            },
        })
    }

    /// Without tables; `None` as above.
    pub(crate) fn empty_postgres() -> Option<Self> {
        let server = server()?;
        let name = fresh_name();
        on_server(&server, &format!("CREATE SCHEMA {name}")).unwrap();
        let separator = if server.contains('?') { '&' } else { '?' };
        Some(Self {
            url: format!("{server}{separator}options=-csearch_path%3D{name}"),
            home: Home::Schema { server, name },
        })
    }

    /// Runs SQL behind the back of the store.
    pub(crate) fn raw(&self, sql: &str) {
        match &self.home {
            Home::File(home) => {
                let connection = rusqlite::Connection::open(home.path().join("server.db")).unwrap();
                let patience = std::time::Duration::from_secs(120);
                connection.busy_timeout(patience).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Home::Server { reusable, .. } => {
                // The statement may change tables.
                reusable.store(false, Ordering::Relaxed);
                on_server(&self.url, sql).unwrap();
            }
            Home::Schema { .. } => on_server(&self.url, sql).unwrap(),
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
            Home::Server {
                server,
                name,
                reusable,
            } => {
                if !reusable.load(Ordering::Relaxed) || give_back(server, name).is_err() {
                    drop_database(server, name);
                }
            }
            Home::Schema { server, name } => {
                on_server(server, &format!("DROP SCHEMA {name} CASCADE")).unwrap();
            }
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

/// Gives a spare database this name, if there is one. Processes share them, so another one may take
/// the same at this moment.
fn take_spare(server: &str, name: &str) -> bool {
    let pattern = format!("{SPARE}_{}_%", digest_of_migrations());
    let taken = on_server(
        server,
        &format!(
            "DO $$
            DECLARE spare text;
            BEGIN
                FOR spare IN SELECT datname FROM pg_database WHERE datname LIKE '{pattern}' LOOP
                    BEGIN
                        EXECUTE format('ALTER DATABASE %I RENAME TO {name}', spare);
                        RETURN;
                    EXCEPTION WHEN invalid_catalog_name OR object_in_use THEN
                    END;
                END LOOP;
                RAISE 'no spare database';
            END $$"
        ),
    );
    if taken.is_err() {
        return false;
    }
    let restored = on_server(&address_of(server, name), RESTORE);
    if restored.is_err() {
        drop_database(server, name);
    }
    restored.is_ok()
}

/// Under a name that the store, which may still have connections and make new ones, does not know.
fn give_back(server: &str, name: &str) -> Result<(), postgres::Error> {
    let spare = format!("{SPARE}_{}_{name}", digest_of_migrations());
    on_server(
        server,
        &format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}';
            ALTER DATABASE {name} RENAME TO {spare}"
        ),
    )
}

fn drop_database(server: &str, name: &str) {
    on_server(server, &format!("DROP DATABASE {name} WITH (FORCE)")).unwrap();
}

/// The name of a database with all tables. The first process that needs it makes it; others wait
/// for it.
fn template(server: &str) -> &'static str {
    static TEMPLATE: OnceLock<String> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let name = format!("fleetwright_template2_{}", digest_of_migrations());
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
    on_server(&address_of(server, &unfinished), KEEP_FIRST_ROWS).unwrap();
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
fn digest_of_migrations() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/migrations");
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        let texts = files.iter().map(|file| std::fs::read(file).unwrap());
        let digest = Sha256::digest(texts.collect::<Vec<_>>().concat());
        let bytes = digest.iter().take(8);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    });
    &DIGEST
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
fn on_server(url: &str, statements: &str) -> Result<(), postgres::Error> {
    let run = || postgres::Client::connect(url, NoTls)?.batch_execute(statements);
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}
