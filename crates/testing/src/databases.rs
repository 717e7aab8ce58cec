//! A database for each test: a copy of a template, on SQLite or PostgreSQL.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod files;
mod server;
mod template;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

pub use server::ask_server;
pub use template::Template;

const FILE: &str = "test.db";

/// Differs when the content of one of these files, or of a file in one of these folders, does.
pub fn digest(paths: &[impl AsRef<Path>]) -> String {
    let mut digest = DefaultHasher::new();
    for path in paths {
        hash(path.as_ref(), &mut digest);
    }
    format!("{:016x}", digest.finish())
}

fn hash(path: &Path, digest: &mut DefaultHasher) {
    if !path.is_dir() {
        std::fs::read(path).unwrap().hash(digest);
        return;
    }
    let files = std::fs::read_dir(path).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        hash(&file, digest);
    }
}

/// Deleted at the end of the test.
pub struct Database {
    pub url: String,
    home: Home,
}

enum Home {
    Folder(TempDir),
    /// A database on this server.
    Server {
        server: String,
        name: String,
        /// Whether it can serve another test that needs this template.
        reuse: Option<Reuse>,
    },
    Schema {
        server: String,
        name: String,
    },
}

struct Reuse {
    template: String,
    possible: AtomicBool,
}

impl Database {
    /// A file that does not exist yet.
    pub fn empty_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:{}", folder.path().join(FILE).display()),
            home: Home::Folder(folder),
        }
    }

    pub fn sqlite(template: &Template) -> Self {
        let database = Self::empty_sqlite();
        if let Home::Folder(folder) = &database.home {
            files::copy(template, &folder.path().join(FILE));
        }
        database
    }

    /// With the rows of the template: a copy of it, or a database that another test has used.
    /// PostgreSQL may know the sizes of its tables from that test. `None`, with a message to the
    /// reader, when no server is configured for tests.
    pub fn postgres(template: &Template) -> Option<Self> {
        if template.is_large {
            return Self::new_postgres(template);
        }
        let server = configured_server()?;
        let name = server::fresh_name();
        if !server::take_spare(&server, template, &name) {
            server::copy(&server, template, &name);
        }
        let reuse = Reuse {
            template: template.name.clone(),
            possible: AtomicBool::new(true),
        };
        Some(Self::on_server(server, name, Some(reuse)))
    }

    /// A copy that no test has used; `None` as above.
    pub fn new_postgres(template: &Template) -> Option<Self> {
        let server = configured_server()?;
        let name = server::fresh_name();
        server::copy(&server, template, &name);
        Some(Self::on_server(server, name, None))
    }

    fn on_server(server: String, name: String, reuse: Option<Reuse>) -> Self {
        Self {
            url: server::address_of(&server, &name),
            home: Home::Server {
                server,
                name,
                reuse,
            },
        }
    }

    /// An empty schema; `None` as above.
    pub fn empty_postgres() -> Option<Self> {
        let server = configured_server()?;
        let name = server::fresh_name();
        server::run(&server, &format!("CREATE SCHEMA {name}")).unwrap();
        Some(Self {
            url: with_parameter(&server, &format!("options=-csearch_path%3D{name}")),
            home: Home::Schema { server, name },
        })
    }

    /// Whether it is on a server.
    pub fn is_postgres(&self) -> bool {
        match self.home {
            Home::Folder(_) => false,
            Home::Server { .. } | Home::Schema { .. } => true,
        }
    }

    /// Runs SQL behind the back of the store.
    pub fn raw(&self, sql: &str) {
        match &self.home {
            Home::Folder(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
                connection.busy_timeout(Duration::from_secs(120)).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Home::Server { reuse, .. } => {
                if let Some(reuse) = reuse
                    && !changes_rows_only(sql)
                {
                    reuse.possible.store(false, Ordering::Relaxed);
                }
                server::run(&self.url, sql).unwrap();
            }
            Home::Schema { .. } => server::run(&self.url, sql).unwrap(),
        }
    }

    /// All that the files of the database hold; `None` if it is not in files of ours.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let Home::Folder(folder) = &self.home else {
            return None;
        };
        let files = std::fs::read_dir(folder.path()).unwrap();
        let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
        Some(contents.collect::<Vec<_>>().concat())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match &self.home {
            Home::Folder(_) => {}
            Home::Server {
                server,
                name,
                reuse,
            } => {
                let reuse = reuse.as_ref();
                let reuse = reuse.filter(|reuse| reuse.possible.load(Ordering::Relaxed));
                let given =
                    reuse.is_some_and(|reuse| server::give_back(server, name, &reuse.template));
                if !given {
                    server::remove(server, name);
                }
            }
            Home::Schema { server, name } => {
                server::run(server, &format!("DROP SCHEMA {name} CASCADE")).unwrap();
            }
        }
    }
}

/// The address with one more parameter, such as `application_name=a`.
pub fn with_parameter(url: &str, parameter: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{parameter}")
}

fn changes_rows_only(sql: &str) -> bool {
    let mut statements = sql.split(';').map(str::trim_start);
    statements.all(|statement| {
        let mut words = ["SELECT", "INSERT", "UPDATE", "DELETE"].iter();
        statement.is_empty() || words.any(|word| statement.starts_with(word))
    })
}

#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn configured_server() -> Option<String> {
    let server = std::env::var("TEST_PG_URL").ok();
    if server.is_none() {
        println!("skipped: TEST_PG_URL is not set");
    }
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Template {
        Template::new("test_numbers", |url| {
            let sql = "CREATE TABLE numbers (n BIGINT); INSERT INTO numbers VALUES (1), (2)";
            match url.strip_prefix("sqlite:") {
                Some(path) => rusqlite::Connection::open(path)
                    .unwrap()
                    .execute_batch(sql)
                    .unwrap(),
                None => server::run(url, sql).unwrap(),
            }
        })
    }

    fn sum(database: &Database) -> i64 {
        let question = "SELECT CAST(SUM(n) AS BIGINT) FROM numbers";
        match database.url.strip_prefix("sqlite:") {
            Some(path) => rusqlite::Connection::open(path)
                .unwrap()
                .query_row(question, (), |row| row.get(0))
                .unwrap(),
            None => ask_server(&database.url, |client| {
                client.query_one(question, &[]).unwrap().get(0)
            }),
        }
    }

    #[test]
    fn no_copy_has_the_changes_of_another() {
        let template = numbers();
        let makers: [fn(&Template) -> Option<Database>; 3] = [
            |template| Some(Database::sqlite(template)),
            Database::postgres,
            Database::new_postgres,
        ];
        for make in makers {
            for change in ["DELETE FROM numbers WHERE n = 1", "DROP TABLE numbers"] {
                let Some(changed) = make(&template) else {
                    continue;
                };
                assert_eq!(sum(&changed), 3);
                changed.raw(change);
                assert_eq!(sum(&make(&template).unwrap()), 3);
            }
        }
    }

    #[test]
    fn statements_that_may_change_tables_are_known() {
        for rows in [
            "DELETE FROM a; INSERT INTO a VALUES (1)",
            "UPDATE a SET b = 1;",
        ] {
            assert!(changes_rows_only(rows), "{rows}");
        }
        for more in [
            "DROP TABLE a",
            "DELETE FROM a; ALTER TABLE a ADD b BIGINT",
            "DO $$ $$",
        ] {
            assert!(!changes_rows_only(more), "{more}");
        }
    }
}
