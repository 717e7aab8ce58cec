//! Looks a configuration over, and says what is wrong and what to do about it.

use std::path::Path;
use std::time::Duration;

use domain::time::Clock;
use store::Store;
use tokio::net::TcpListener;

use crate::clock::SystemClock;
use crate::config::Config;

/// The server has this long to answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// A clock that shows an earlier time than this program was written at is wrong.
const WRITTEN_MS: i64 = 1_790_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Good,
    Warning,
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    pub state: State,
    /// What to do.
    pub advice: Option<String>,
}

impl Finding {
    fn good(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state: State::Good,
            advice: None,
        }
    }

    fn bad(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state: State::Bad,
            advice: Some(advice.into()),
        }
    }

    fn warning(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Warning,
            ..Self::bad(what, advice)
        }
    }
}

pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![configuration(config), keys(config), clock()];
    findings.extend(key_file_mode(&config.keys.file));
    findings.push(providers(config));
    findings.extend(database(config).await);
    findings.push(address(config).await);
    findings
}

fn configuration(config: &Config) -> Finding {
    match config.check() {
        Ok(()) => Finding::good("the configuration makes sense"),
        Err(problem) => Finding::bad(
            format!("the configuration does not make sense: {problem}"),
            "mend the key that is named; docs/configuration.md describes each",
        ),
    }
}

fn keys(config: &Config) -> Finding {
    match config.keyring() {
        Ok(_) => Finding::good("the keys can be read"),
        Err(problem) => Finding::bad(
            format!("the keys cannot be used: {problem}"),
            "restore keys.file from its backup; without it no access token can be opened",
        ),
    }
}

#[cfg(unix)]
fn key_file_mode(file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        let what = format!("others may read the keys in {}", file.display());
        Finding::warning(what, format!("chmod 600 {}", file.display()))
    })
}

#[cfg(not(unix))]
fn key_file_mode(_file: &Path) -> Option<Finding> {
    None
}

fn clock() -> Finding {
    let now = SystemClock.now();
    if now.as_millis() < WRITTEN_MS {
        return Finding::bad(
            format!("the clock shows {now}, which is long past"),
            "set the clock: signatures are good for 15 minutes only",
        );
    }
    Finding::good(format!("the clock shows {now}"))
}

fn providers(config: &Config) -> Finding {
    match config.providers.0.len() {
        0 => Finding::warning(
            "no provider is configured",
            "add a section [providers.<id>]; without one no pool can be made",
        ),
        count => Finding::good(format!("{count} providers are configured")),
    }
}

async fn database(config: &Config) -> Vec<Finding> {
    let options = store::Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    let unreachable = |problem: String| {
        Finding::bad(
            format!("the database cannot be used: {problem}"),
            "see that it runs, that database.url is right, and that this user may use it",
        )
    };
    let store = match Store::open(&options) {
        Ok(store) => store,
        Err(problem) => return vec![unreachable(problem.to_string())],
    };
    if let Err(problem) = store.ping().await {
        return vec![unreachable(problem.to_string())];
    }
    let mut findings = vec![Finding::good(format!(
        "the database ({}) answers",
        store.engine().name()
    ))];
    findings.push(match store.pending_migrations().await {
        Ok(pending) if pending.is_empty() => Finding::good("the database is up to date"),
        Ok(pending) => Finding::warning(
            format!("the database lacks {}", pending.join(", ")),
            "run `fleetwright migrate`, or start the server, which does the same",
        ),
        Err(problem) => Finding::bad(
            format!("the database's version cannot be told: {problem}"),
            "use the program that the database was last used with, or a newer one",
        ),
    });
    store.close().await;
    findings
}

/// Either a server of ours answers at the address, or it is free.
async fn address(config: &Config) -> Finding {
    let address = config.listen;
    if TcpListener::bind(address).await.is_ok() {
        return Finding::good(format!(
            "{address} is free: no server runs there at the moment"
        ));
    }
    let url = format!("{}/live", config.root_url());
    let client = reqwest::Client::builder().timeout(TIME_LIMIT).build();
    let answer = match client {
        Ok(client) => client.get(&url).send().await,
        Err(problem) => Err(problem),
    };
    match answer {
        Ok(reply) if reply.status().is_success() => {
            Finding::good(format!("a server answers at {}", config.root_url()))
        }
        Ok(reply) => Finding::bad(
            format!("{url} answers {}", reply.status()),
            "see what else listens there, or what stands between; root_url must lead to us",
        ),
        Err(problem) => Finding::bad(
            format!("{address} is taken, and {url} does not answer: {problem}"),
            "see what else listens there, or whether root_url is right",
        ),
    }
}
