//! Looks a configuration over, and says what is wrong and what to do about it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_client::with_causes;
use cloud::{ProviderConfig, ProviderContext, Providers};
use contract::Schemas;
use domain::access::{ClientRecord, token_purpose};
use domain::id::ClientId;
use domain::time::Clock;
use engine::artifacts::Folder;
use engine::clock::SystemClock;
use store::Store;
use tokio::net::TcpListener;

use crate::config::{Amqp, Config, OutsideAuth, OutsideQueue, StaticClient};
use crate::notify::MailChannel;
use crate::tls::Tls;
use crate::vitals::{skew_ms, skew_problem};

/// The server has this long to answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// A provider has this long to be set up.
const SET_UP_LIMIT: Duration = Duration::from_secs(20);
/// Clients are read in pages of this size.
const PAGE: u32 = 100;
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
    findings.extend(tokens(config));
    findings.extend(secret_files(config).filter_map(open_to_others));
    findings.push(providers(config));
    findings.extend(provider_set_ups(config).await);
    findings.extend(tasks_as_ourselves(config));
    findings.extend(brokers(config).await);
    findings.extend(database(config).await);
    findings.extend(artifacts(config));
    findings.extend(tls(config));
    findings.push(address(config).await);
    findings.extend(notices(config).await);
    findings
}

/// Whether people can be told of errors. Nothing is sent.
async fn notices(config: &Config) -> Vec<Finding> {
    let hooks = config.notify.hooks().unwrap_or_default();
    let open = hooks.iter().filter(|hook| !hook.is_private).map(|hook| {
        Finding::warning(
            format!("notices to the webhook at {} go in the clear", hook.host),
            "give notify.webhook.url an address that begins with https://",
        )
    });
    let mut findings: Vec<Finding> = open.collect();
    let Ok(Some(server)) = config.notify.mail_server() else {
        return findings;
    };
    let place = format!("the mail server at {}:{}", server.host, server.port);
    let greeted = match MailChannel::new(&server, &config.root_url()) {
        Ok(channel) => channel.greet().await,
        Err(problem) => Err(problem.to_string()),
    };
    findings.push(match greeted {
        Ok(()) => Finding::good(format!("{place} answers")),
        Err(problem) => Finding::bad(
            format!("{place} cannot be used: {problem}"),
            "see that notify.email has the right smtp, tls, user and password, and that nothing stands between",
        ),
    });
    findings
}

/// What tasks leave behind needs a place, if it is to be kept.
fn artifacts(config: &Config) -> Option<Finding> {
    let folder = config.artifact_folder()?;
    let place = folder.display().to_string();
    Some(match Folder::new(folder).try_out() {
        Ok(()) => Finding::good("files and logs of tasks can be kept"),
        Err(problem) => Finding::bad(
            format!("files and logs of tasks cannot be kept in {place}: {problem}"),
            "give the folder to the user that the server runs as, or name another: artifacts.folder",
        ),
    })
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
            "restore keys.file from its backup, without which no access token can be opened; for a \
             new installation make one: echo \"k1 $(head -c 32 /dev/urandom | base64)\" > keys; \
             chmod 600 keys",
        ),
    }
}

/// Tokens that the configuration gives and that are none.
fn tokens(config: &Config) -> Vec<Finding> {
    let clients = config.auth.static_clients.iter().map(StaticClient::token);
    let outside = config.auth.taskcluster.iter().map(OutsideAuth::token);
    let queue = config.queue.taskcluster.iter().map(OutsideQueue::token);
    clients
        .chain(outside)
        .chain(queue)
        .filter_map(Result::err)
        .map(|problem| {
            Finding::bad(
                format!("an access token cannot be used: {problem}"),
                "give one, in a file that only the server's user may read",
            )
        })
        .collect()
}

/// Files that nobody else should read.
fn secret_files(config: &Config) -> impl Iterator<Item = &Path> {
    let clients = config.auth.static_clients.iter();
    let outside = config.auth.taskcluster.iter();
    let queue = config.queue.taskcluster.iter();
    let pulse = queue.clone().filter_map(|queue| queue.pulse.as_ref());
    let events = config.events.amqp.iter();
    let mail = config.notify.email.iter();
    let hooks = config.notify.webhook.iter();
    let tls = config.tls.iter();
    std::iter::once(config.keys.file.as_path())
        .chain(tls.map(|tls| tls.key_file.as_path()))
        .chain(mail.filter_map(|mail| mail.password_file.as_deref()))
        .chain(hooks.filter_map(|hook| hook.secret_file.as_deref()))
        .chain(clients.filter_map(|client| client.access_token_file.as_deref()))
        .chain(outside.filter_map(|outside| outside.access_token_file.as_deref()))
        .chain(queue.filter_map(|queue| queue.access_token_file.as_deref()))
        .chain(events.filter_map(|amqp| amqp.url_file.as_deref()))
        .chain(pulse.filter_map(|amqp| amqp.url_file.as_deref()))
}

#[cfg(unix)]
fn open_to_others(file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        let what = format!("others may read the secret in {}", file.display());
        Finding::warning(what, format!("chmod 600 {}", file.display()))
    })
}

#[cfg(not(unix))]
fn open_to_others(_file: &Path) -> Option<Finding> {
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
        1 => Finding::good("1 provider is configured"),
        count => Finding::good(format!("{count} providers are configured")),
    }
}

/// Sets up providers that reach out, as a start of the server does. Nothing is launched.
async fn provider_set_ups(config: &Config) -> Vec<Finding> {
    let Ok(keyring) = config.keyring() else {
        return Vec::new();
    };
    let keyring = Arc::new(keyring);
    let outward = config
        .providers
        .0
        .iter()
        .filter(|(_, provider)| match provider {
            ProviderConfig::External(_) | ProviderConfig::Exec(_) | ProviderConfig::Aws(_) => true,
            // The worker processes of a running server are not for us to set up.
            ProviderConfig::Local(_) | ProviderConfig::Static(_) | ProviderConfig::Fake(_) => false,
        });
    let built = outward.map(|(id, provider)| {
        let context = ProviderContext {
            id: id.clone(),
            schemas: Schemas::new(),
            keyring: Arc::clone(&keyring),
            root_url: config.root_url(),
            data: config.data.clone(),
            clock: Arc::new(SystemClock),
        };
        (id.clone(), provider.build(context))
    });
    let providers = Providers::new(built.collect());
    let (ready, failed) = providers.set_up_missing(SET_UP_LIMIT).await;
    let ready = ready.into_iter().filter(|id| !id.is_null());
    let good = ready.map(|id| Finding::good(format!("provider {id} can be set up")));
    let bad = failed.into_iter().map(|(id, problem)| {
        Finding::bad(
            format!("provider {id} cannot be set up, and launches nothing: {problem}"),
            "see that what the section [providers] names is there and answers; a running server tries again \
             by itself",
        )
    });
    good.chain(bad).collect()
}

/// Tasks of worker processes that the server starts as itself can do what it can.
fn tasks_as_ourselves(config: &Config) -> impl Iterator<Item = Finding> {
    let providers = config.providers.0.iter();
    let by_ourselves = providers.filter(|(_, provider)| match provider {
        ProviderConfig::Local(settings) => settings.command.is_empty(),
        ProviderConfig::Static(_)
        | ProviderConfig::Fake(_)
        | ProviderConfig::External(_)
        | ProviderConfig::Exec(_)
        | ProviderConfig::Aws(_) => false,
    });
    by_ourselves.map(|(id, _)| {
        Finding::warning(
            format!(
                "tasks of provider {id} run as the user that the server runs as, and can read its \
                 keys and its database"
            ),
            "that is right if you would give everybody who may create tasks there this user's \
             account; if not, have its command start workers as another user: docs/security.md",
        )
    })
}

/// Brokers that are configured: of our own events, and of an outside queue.
async fn brokers(config: &Config) -> Vec<Finding> {
    let events = config.events.amqp.as_ref();
    let pulse = config.queue.taskcluster.as_ref();
    let pulse = pulse.and_then(|queue| queue.pulse.as_ref());
    let configured = [(events, "events.amqp"), (pulse, "queue.taskcluster.pulse")];
    let mut findings = Vec::new();
    for (amqp, key) in configured {
        if let Some(amqp) = amqp {
            findings.push(broker(amqp, key).await);
        }
    }
    findings.extend(unheard_queue(config));
    findings
}

/// An outside queue gives the tasks of removed workers to others when it hears of these, which is on its own broker.
fn unheard_queue(config: &Config) -> Option<Finding> {
    let queue = config.queue.taskcluster.as_ref()?;
    config.events.amqp.is_none().then(|| {
        Finding::warning(
            format!(
                "the queue at {} does not hear of removed workers: there is no events.amqp",
                queue.root_url
            ),
            "set events.amqp to that deployment's broker; without it, tasks of removed workers wait until their claims expire",
        )
    })
}

async fn broker(amqp: &Amqp, key: &str) -> Finding {
    let broker = match amqp.broker(key) {
        Ok(broker) => broker,
        Err(problem) => {
            let what = format!("the broker of {key} cannot be used: {problem}");
            return Finding::bad(what, "mend the key that is named");
        }
    };
    match broker.check().await {
        Ok(()) => Finding::good(format!("the broker of {key} answers")),
        // Events wait for it, so nothing is lost, and a server starts without it.
        Err(problem) => Finding::warning(
            format!(
                "the broker of {key} cannot be used: {}",
                with_causes(&problem)
            ),
            "see that it runs, that the address is right, and that it knows the user and the password",
        ),
    }
}

async fn database(config: &Config) -> Vec<Finding> {
    let options = store::Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    if let Some(file) = options.missing_file() {
        let what = format!(
            "there is no database at {} yet: the first start makes it",
            file.display()
        );
        return vec![Finding::good(what)];
    }
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
    findings.extend(database_clock(&store).await);
    let migrated = match store.pending_migrations().await {
        Ok(pending) if pending.is_empty() => {
            findings.extend(sealed_tokens(config, &store).await);
            Finding::good("the database is up to date")
        }
        Ok(pending) => Finding::warning(
            format!("the database lacks {}", pending.join(", ")),
            "run `fleetwright migrate`, or start the server, which does the same",
        ),
        Err(problem) => Finding::bad(
            format!("the database's version cannot be told: {problem}"),
            "use the program that the database was last used with, or a newer one",
        ),
    };
    findings.push(migrated);
    store.close().await;
    findings
}

/// Whether the database has the same time.
async fn database_clock(store: &Store) -> Option<Finding> {
    let before = SystemClock.now();
    let read = store.read("database_clock", store::probe::clock);
    let theirs = read.await.ok()?;
    let problem = skew_problem(skew_ms(before, SystemClock.now(), theirs))?;
    Some(Finding::warning(
        problem,
        "keep the time of both machines right with a time service (NTP): leases and credentials \
         depend on it",
    ))
}

/// Access tokens in the database that none of the keys opens.
async fn sealed_tokens(config: &Config, store: &Store) -> Option<Finding> {
    let keyring = config.keyring().ok()?;
    let is_shut = |client: &ClientRecord| {
        let purpose = token_purpose(&client.client_id);
        keyring.open(&purpose, &client.sealed_access_token).is_err()
    };
    let (mut n_shut, mut first) = (0, None);
    let mut after: Option<ClientId> = None;
    loop {
        let read = store.scan("doctor_clients", move |tx| {
            store::clients::list(tx, "", after.as_ref(), PAGE)
        });
        let clients = read.await.ok()?;
        let mut shut = clients.iter().filter(|client| is_shut(client)).peekable();
        if first.is_none() {
            first = shut.peek().map(|client| client.client_id.clone());
        }
        n_shut += shut.count();
        if clients.len() < PAGE as usize {
            break;
        }
        after = clients.into_iter().next_back().map(|last| last.client_id);
    }
    let first = first?;
    Some(Finding::bad(
        format!("no key opens the access tokens of {n_shut} clients, {first} among them"),
        "put the lines of the keys that were used before back below the present one in keys.file",
    ))
}

/// Whether connections are encrypted, by us or by a proxy.
fn tls(config: &Config) -> Option<Finding> {
    if config.is_open_without_tls() {
        let address = config.listen;
        return Some(Finding::warning(
            format!("other machines can connect to {address}, and nothing is encrypted"),
            "give a certificate in the section [tls], or put a proxy with TLS in front and say how \
             many proxies there are: server.trusted_proxies",
        ));
    }
    let files = config.tls.clone()?;
    Some(match Tls::new(files) {
        Ok(_) => Finding::good("the TLS certificate and its key can be used"),
        Err(problem) => Finding::bad(
            format!(
                "the TLS certificate cannot be used: {}",
                with_causes(&problem)
            ),
            "see that tls.certificate_file and tls.key_file name PEM files that belong together, and \
             that the server's user may read them",
        ),
    })
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
