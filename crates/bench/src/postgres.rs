//! The PostgreSQL server beside the measured one.

use anyhow::Context as _;
use tokio_postgres::{Client, NoTls};

use crate::processor;

/// The process that started all others of the database's server, if that runs on this machine.
/// `None` for other databases.
pub(crate) async fn postmaster(url: &str) -> anyhow::Result<Option<u32>> {
    if url.starts_with("sqlite:") {
        return Ok(None);
    }
    let client = connect(url).await?;
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    let process: i32 = row
        .and_then(|row| row.try_get(0))
        .context("PostgreSQL does not say which process serves this connection")?;
    let process = u32::try_from(process).ok();
    Ok(process.and_then(processor::parent_with_same_name))
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.context("cannot connect to PostgreSQL")?;
    tokio::spawn(async move {
        // A broken connection is noticed by the next statement.
        let _shows_there = connection.await;
    });
    Ok(client)
}

/// Creates a database, as a copy of another one if that is given.
pub(crate) async fn create(url: &str, name: &str, template: Option<&str>) -> anyhow::Result<()> {
    let copied = template.map(|of| format!(" TEMPLATE {of} STRATEGY FILE_COPY"));
    let create = format!("CREATE DATABASE {name}{}", copied.unwrap_or_default());
    let created = connect(url).await?.batch_execute(&create).await;
    created.context("cannot create a database: its user needs the right to do so")
}

pub(crate) async fn remove(url: &str, name: &str) -> anyhow::Result<()> {
    let remove = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    let removed = connect(url).await?.batch_execute(&remove).await;
    removed.with_context(|| format!("cannot remove the database {name}"))
}

pub(crate) async fn vacuum(url: &str) -> anyhow::Result<()> {
    let vacuumed = connect(url).await?.batch_execute("VACUUM (ANALYZE)").await;
    vacuumed.context("cannot vacuum the filled database")
}

/// The size of the database in bytes.
pub(crate) async fn size(url: &str) -> anyhow::Result<u64> {
    let row = connect(url)
        .await?
        .query_one("SELECT pg_database_size(current_database())", &[])
        .await;
    let size = row.and_then(|row| row.try_get::<_, i64>(0));
    Ok(size
        .context("PostgreSQL does not say how large the database is")?
        .unsigned_abs())
}

/// The server's version.
pub(crate) async fn version(url: &str) -> anyhow::Result<String> {
    let row = connect(url)
        .await?
        .query_one("SHOW server_version", &[])
        .await;
    let version = row.and_then(|row| row.try_get(0));
    version.context("PostgreSQL does not say its version")
}

/// The URL of another database of the same server.
pub(crate) fn address_of(url: &str, name: &str) -> String {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let server = match address.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split('/').next().unwrap_or_default();
            format!("{scheme}://{host}")
        }
        None => address.to_owned(),
    };
    let separator = if options.is_empty() { "" } else { "?" };
    format!("{server}/{name}{separator}{options}")
}

/// The name of the database in a URL that `address_of` made.
pub(crate) fn name_in(url: &str) -> &str {
    let address = url.split('?').next().unwrap_or_default();
    address.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_of_a_server_has_the_same_options() {
        for (url, expected) in [
            ("postgres://me:x@h:5/a", "postgres://me:x@h:5/b"),
            ("postgres://h", "postgres://h/b"),
            (
                "postgresql://h/a?sslmode=disable",
                "postgresql://h/b?sslmode=disable",
            ),
        ] {
            assert_eq!(address_of(url, "b"), expected);
            assert_eq!(name_in(expected), "b");
        }
    }
}
