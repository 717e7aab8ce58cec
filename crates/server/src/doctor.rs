//! Checks a configuration and its environment, and says how to fix problems.

mod clients;

use std::sync::Arc;
use std::time::Duration;

use api_client::with_causes;
use backplane::tree::{Tree as _, TreeError, TreePath, ZookeeperSettings, ZookeeperTree};
use cloud::{ProviderConfig, ProviderContext, Providers};
use contract::Schemas;
use domain::time::Clock;
use engine::artifacts::ArtifactFolder;
use engine::clock::SystemClock;
use engine::database_clock::{skew_ms, skew_problem};
use store::Store;
use tokio::net::TcpListener;

use self::clients::StoredClients;
use crate::config::{Amqp, Config, OutsideAuth, OutsideQueue, StaticClient, TreeKind};
use crate::exposure;
pub use crate::finding::{Finding, State};
use crate::notify::MailChannel;
use crate::openid::OpenId;
use tls::TlsAcceptor;

/// Time limit of the server's answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a session with the tree. An attempt can take 4 s if the server is slow for a
/// moment, and then another one shall still fit.
const TREE_LIMIT: Duration = Duration::from_secs(12);
/// Time limit of a provider's set-up.
const SET_UP_LIMIT: Duration = Duration::from_secs(20);
/// A clock that shows an earlier time than this program's release is wrong.
const WRITTEN_MS: i64 = 1_790_000_000_000;

pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![configuration(config), keys(config), clock()];
    findings.extend(tokens(config));
    findings.extend(exposed(config));
    findings.push(providers(config));
    findings.extend(provider_set_ups(config).await);
    findings.extend(tasks_as_ourselves(config));
    findings.extend(brokers(config).await);
    findings.extend(tree(config).await);
    findings.extend(database(config).await);
    findings.extend(artifacts(config));
    findings.extend(tls(config));
    findings.push(address(config).await);
    findings.extend(notices(config).await);
    findings.extend(openid(config).await);
    findings
}

/// Checks the channels for notices of errors. Sends nothing.
async fn notices(config: &Config) -> Vec<Finding> {
    let hooks = config.notify.hooks().unwrap_or_default();
    let mut findings = Vec::new();
    for hook in hooks.iter().filter(|hook| !hook.is_private) {
        let what = format!("notices to the webhook at {} are not encrypted", hook.host);
        let advice = "change notify.webhook.url to an address that begins with https://";
        findings.push(Finding::warning(what, advice));
    }
    let Ok(Some(server)) = config.notify.mail_server() else {
        return findings;
    };
    let place = format!("the mail server at {}:{}", server.host, server.port);
    let greeted = match MailChannel::new(&server, &config.root_url()) {
        Ok(channel) => channel.greet().await,
        Err(problem) => Err(problem.to_string()),
    };
    findings.push(Finding::of(
        greeted,
        format!("{place} answers"),
        format!("{place} is not usable"),
        "check smtp, tls, user and password of notify.email, and whether a firewall blocks the \
         connection",
    ));
    findings
}

/// Asks the provider at which people sign in for its metadata and keys.
async fn openid(config: &Config) -> Option<Finding> {
    let settings = config.page.openid.as_deref()?;
    let place = format!("the provider of page.openid, {}", settings.shown_name());
    let checked = match OpenId::new(settings) {
        Ok(openid) => openid
            .check(SystemClock.now())
            .await
            .map_err(|it| it.to_string()),
        Err(problem) => Err(with_causes(&problem)),
    };
    Some(match checked {
        Ok(()) => Finding::good(format!("{place}, answers")),
        // People with access tokens sign in without it.
        Err(problem) => Finding::warning(
            format!("{place}, is not usable: {problem}"),
            "check page.openid.issuer, and whether this machine reaches it",
        ),
    })
}

/// Checks the folder for artifacts and logs.
fn artifacts(config: &Config) -> Option<Finding> {
    let folder = config.artifact_folder()?;
    let bad = format!(
        "cannot write to the folder of artifacts and logs, {}",
        folder.display()
    );
    Some(Finding::of(
        ArtifactFolder::new(folder).check_writable(),
        "the folder of artifacts and logs is writable",
        bad,
        "give the server's user access to the folder, or choose another one: artifacts.folder",
    ))
}

fn configuration(config: &Config) -> Finding {
    Finding::of(
        config.check(),
        "the configuration is valid",
        "the configuration is not valid",
        "correct the key; see docs/configuration.md",
    )
}

fn keys(config: &Config) -> Finding {
    Finding::of(
        config.keyring(),
        "the keys are readable",
        "the keys are not usable",
        "restore keys.file from its backup, without which no access token can be decrypted; for a \
         new installation make one: echo \"k1 $(head -c 32 /dev/urandom | base64)\" > keys; chmod \
         600 keys",
    )
}

/// Checks the access tokens in the configuration.
fn tokens(config: &Config) -> Vec<Finding> {
    let clients = config.auth.static_clients.iter().map(StaticClient::token);
    let outside = config.auth.taskcluster.iter().map(OutsideAuth::token);
    let queue = config.queue.taskcluster.iter().map(OutsideQueue::token);
    let problems = clients.chain(outside).chain(queue).filter_map(Result::err);
    let advice = "put a token into a file that only the server's user may read";
    problems
        .map(|problem| Finding::bad(format!("an access token is not usable: {problem}"), advice))
        .collect()
}

/// Files that other users can use: the server starts with most of them, and warns.
fn exposed(config: &Config) -> impl Iterator<Item = Finding> {
    let files = exposure::exposed_files(config).into_iter();
    let files = files.map(|file| {
        if file.is_refused() {
            Finding::bad(file.to_string(), file.advice())
        } else {
            Finding::warning(file.to_string(), file.advice())
        }
    });
    let builds = exposure::builds_as_root(config);
    let builds = builds.map(|text| Finding::warning(text, exposure::OWN_USER));
    let closed = exposure::closed_to_builds(config).map(|(user, folder)| {
        Finding::bad(
            format!(
                "no image can be built: user {user} of images.user cannot enter {}",
                folder.display()
            ),
            "let this user in (chmod o+x), or set images.folder to a folder that the user can \
             reach, such as /var/lib/fleetwright-builds",
        )
    });
    files.chain(builds).chain(closed)
}

fn clock() -> Finding {
    let now = SystemClock.now();
    if now.as_millis() < WRITTEN_MS {
        return Finding::bad(
            format!("the clock shows {now}, which is in the past"),
            "set the clock: signatures are valid for 15 minutes only",
        );
    }
    Finding::good(format!("the clock shows {now}"))
}

fn providers(config: &Config) -> Finding {
    match config.providers.0.len() {
        0 => Finding::warning(
            "no provider is configured",
            "add a section [providers.<id>]; pools need a provider",
        ),
        1 => Finding::good("1 provider is configured"),
        count => Finding::good(format!("{count} providers are configured")),
    }
}

/// Sets up providers of outside services, as the server does. Launches nothing.
async fn provider_set_ups(config: &Config) -> Vec<Finding> {
    let Ok(keyring) = config.keyring() else {
        return Vec::new();
    };
    let keyring = Arc::new(keyring);
    let providers = config.providers.0.iter();
    let outward = providers.filter(|(_, provider)| match provider {
        ProviderConfig::External(_)
        | ProviderConfig::Exec(_)
        | ProviderConfig::Aws(_)
        | ProviderConfig::Google(_)
        | ProviderConfig::Azure(_) => true,
        // The worker processes belong to a running server.
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
            format!("provider {id} failed to start: {problem}"),
            "check the resources that its section in [providers] names; a running server tries \
             again automatically",
        )
    });
    good.chain(bad).collect()
}

/// Warns of providers whose tasks run with the server's permissions.
fn tasks_as_ourselves(config: &Config) -> impl Iterator<Item = Finding> {
    let providers = config.providers.0.iter();
    let by_ourselves = providers.filter(|(_, provider)| match provider {
        ProviderConfig::Local(settings) => settings.command.is_empty(),
        ProviderConfig::Static(_)
        | ProviderConfig::Fake(_)
        | ProviderConfig::External(_)
        | ProviderConfig::Exec(_)
        | ProviderConfig::Aws(_)
        | ProviderConfig::Google(_)
        | ProviderConfig::Azure(_) => false,
    });
    by_ourselves.map(|(id, _)| {
        Finding::warning(
            format!(
                "tasks of provider {id} run as the server's user and can read its keys and its \
                 database"
            ),
            "this is right only if you would give everybody who may create tasks there this \
             user's account; otherwise have its command start workers as another user: \
             docs/security.md",
        )
    })
}

/// The configured brokers: for our own events, and of an outside queue.
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

/// An outside queue reads events of removed workers from its own broker, and gives their tasks to
/// other workers.
fn unheard_queue(config: &Config) -> Option<Finding> {
    let queue = config.queue.taskcluster.as_ref()?;
    config.events.amqp.is_none().then(|| {
        Finding::warning(
            format!(
                "the queue at {} gets no events of removed workers: events.amqp is not set",
                queue.root_url
            ),
            "set events.amqp to that deployment's broker; without it, tasks of removed workers \
             wait until their claims expire",
        )
    })
}

async fn broker(amqp: &Amqp, key: &str) -> Finding {
    let broker = match amqp.broker(key) {
        Ok(broker) => broker,
        Err(problem) => {
            let what = format!("the broker of {key} is not usable: {problem}");
            return Finding::bad(what, "correct the key");
        }
    };
    match broker.check().await {
        Ok(()) => Finding::good(format!("the broker of {key} answers")),
        // Events wait for the broker, so nothing is lost, and a server starts without it.
        Err(problem) => Finding::warning(
            format!("cannot use the broker of {key}: {}", with_causes(&problem)),
            "check that the broker runs, the address, the user and the password",
        ),
    }
}

/// Checks the login at ZooKeeper, and whether others can read the tree. Changes nothing.
async fn tree(config: &Config) -> Vec<Finding> {
    if config.tree.kind == TreeKind::Embedded {
        return Vec::new();
    }
    let settings = match config.tree.zookeeper() {
        Ok(settings) => settings,
        Err(problem) => {
            let what = format!("the tree is not usable: {problem}");
            return vec![Finding::bad(what, "correct the key; see docs/tree.md")];
        }
    };
    let place = format!("ZooKeeper at {}", settings.servers);
    let is_open = settings.login.is_none();
    let mut findings = vec![Finding::of(
        check_tree(settings).await,
        format!("{place} answers"),
        format!("{place} is not usable"),
        "check tree.servers, the user with its password, and the certificates; see docs/tree.md",
    )];
    if is_open {
        findings.push(Finding::warning(
            format!("everybody who reaches {place} can read and write the tree: it has no user"),
            "set tree.user and tree.password_file",
        ));
    }
    findings
}

/// The root may be missing: the first start creates it.
async fn check_tree(settings: ZookeeperSettings) -> Result<(), TreeError> {
    let settings = ZookeeperSettings {
        creates_root: false,
        call_limit: TREE_LIMIT,
        ..settings
    };
    let tree = ZookeeperTree::open(settings)?;
    match tree.connected().await {
        Err(error) if !error.is_no_node() => Err(error),
        Err(_) => Ok(()),
        Ok(_) => tree.children(&TreePath::root()).await.map(drop),
    }
}

async fn database(config: &Config) -> Vec<Finding> {
    let options = store::Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    if let Some(file) = options.missing_file() {
        let file = file.display();
        let what = format!("the database at {file} does not exist yet: the first start creates it");
        let mut findings = vec![Finding::good(what)];
        findings.extend(clients::sign_in(config, &StoredClients::default()));
        return findings;
    }
    let unreachable = |problem: String| {
        Finding::bad(
            format!("cannot use the database: {problem}"),
            "check that it runs, database.url, and the permissions of the user",
        )
    };
    let store = match Store::open(&options) {
        Ok(store) => store,
        Err(problem) => return vec![unreachable(problem.to_string())],
    };
    if let Err(problem) = store.ping().await {
        return vec![unreachable(problem.to_string())];
    }
    let engine = store.engine().name();
    let mut findings = vec![Finding::good(format!("the database ({engine}) answers"))];
    findings.extend(database_clock(&store).await);
    // `None`: the database is new, or the keys are not readable.
    let stored = StoredClients::read(config, &store).await;
    let migrated = match store.pending_migrations().await {
        Ok(pending) if pending.is_empty() => {
            if let Some(stored) = stored {
                findings.extend(clients::sealed_tokens(config, &stored));
                findings.extend(clients::sign_in(config, &stored));
            }
            Finding::good("the database is up to date")
        }
        Ok(pending) => {
            if config.keyring().is_ok() {
                findings.extend(clients::sign_in(config, &stored.unwrap_or_default()));
            }
            let what = match pending.as_slice() {
                [one] => format!("the database lacks the migration {one}"),
                several => format!("the database lacks {} migrations", several.len()),
            };
            let advice = "run `fleetwright migrate`, or start the server, which does the same";
            Finding::warning(what, advice)
        }
        Err(problem) => Finding::bad(
            format!("cannot read the version of the database: {problem}"),
            "use the program that last used the database, a newer one, or a new database",
        ),
    };
    findings.push(migrated);
    store.close().await;
    findings
}

/// Compares the database's clock with ours.
async fn database_clock(store: &Store) -> Option<Finding> {
    let before = SystemClock.now();
    let read = store.read("database_clock", store::probe::clock);
    let theirs = read.await.ok()?;
    let skew_ms = skew_ms(before, SystemClock.now(), theirs);
    let problem = skew_problem(skew_ms)?;
    Some(Finding::warning(
        problem,
        "synchronise the clocks of both machines with a time service (NTP): the server uses the \
         time of the database, and workers and clients that of their machines",
    ))
}

/// Checks whether connections are encrypted, by the server or by a proxy.
fn tls(config: &Config) -> Option<Finding> {
    if config.is_open_without_tls() {
        let address = config.listen;
        return Some(Finding::warning(
            format!("other machines can connect to {address}, and connections are not encrypted"),
            "configure a certificate in the section [tls], or a proxy with TLS and the number of \
             proxies: server.trusted_proxies",
        ));
    }
    let files = config.tls.clone()?;
    Some(Finding::of(
        TlsAcceptor::new(files).map_err(|problem| with_causes(&problem)),
        "the TLS certificate and its key are usable",
        "the TLS certificate is not usable",
        "check that tls.certificate_file and tls.key_file are PEM files that belong together, and \
         that the server's user may read them",
    ))
}

/// Checks that our server answers at the address, or that the address is free.
async fn address(config: &Config) -> Finding {
    let address = config.listen;
    if TcpListener::bind(address).await.is_ok() {
        let what = format!("{address} is free: no server runs there at the moment");
        return Finding::good(what);
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
            "find the program that listens there, or the proxy in front of it; root_url must lead \
             to this server",
        ),
        Err(problem) => Finding::bad(
            format!("{address} is in use, and {url} does not answer: {problem}"),
            "find the program that listens there, and check root_url",
        ),
    }
}
