//! `up`: runs a server with local workers on this machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use access::Secret;
use anyhow::Context as _;
use api_client::{Credentials, is_loopback};
use clap::{Arg, Args, Command};
use cloud::ProviderConfig;
use domain::plan::StrategyName;
use server::config::{Config, ProviderTable, StaticClient};

use super::first_pool::{self, FIRST_POOL};
use super::first_role::{self, ANONYMOUS};
use super::open;
use super::remaining_workers;
use super::serve::{self, stop_signal, url_of};
use crate::client::{Client, Settings};
use crate::data_folder::DataFolder;
use crate::failure::Failure;
use crate::owner_file::{OWNER, quoted};
use crate::{machine, output};

const PROVIDERS: &str = "\
[providers.local]
kind = \"local\"

[providers.static]
kind = \"static\"

[providers.fake]
kind = \"fake\"
accepts = \"google\"
";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Folder for the database, keys and the owner's credentials (default: in your data folder)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address to listen on (default: 127.0.0.1:8080)
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Configuration file; omitted keys keep the defaults of `up`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Adds this machine's defaults to the help.
pub(crate) fn with_help(command: Command) -> Command {
    // Replaces the global option, which selects a server for client commands.
    let root_url = Arg::new("root_url")
        .long("root-url")
        .value_name("URL")
        .help("Root URL by which clients reach this server");
    let command = command.arg(root_url);
    let Ok(folder) = DataFolder::default_path() else {
        return command;
    };
    command.mut_arg("data", |data| {
        let help = "Folder for the database, keys and the owner's credentials";
        data.help(format!("{help} (default: {})", folder.display()))
    })
}

pub(crate) async fn run(arguments: Arguments, root_url: Option<String>) -> Result<(), Failure> {
    let path = match &arguments.data {
        Some(path) => path.clone(),
        None => DataFolder::default_path()?,
    };
    let data = DataFolder::open(&path)?;
    let (config, is_new) = prepare(&arguments, root_url, &data)?;
    serve::start_log(&config)?;
    let (public_url, is_tls) = (config.root_url.clone(), config.tls.is_some());
    let doctor = doctor(&arguments, &data);
    let has_owner = config.auth.taskcluster.is_none();
    let begins_with_pool = is_new && has_local_workers(&config);
    let is_private = is_private(&config);
    let reached_at = Arc::new(OnceLock::new());
    let report_remaining = report_remaining(&config, &data, Arc::clone(&reached_at));
    let ready = |address| {
        reached_at.get_or_init(|| url_of(address, is_tls));
        let root_url = public_url.unwrap_or_else(|| url_of(address, is_tls));
        if !has_owner {
            return output::out(&format!("fleetwright is ready at {root_url}"));
        }
        if let Err(failure) = data.set_root_url(&root_url) {
            output::failure(&failure);
        }
        // A TLS certificate is valid for the public URL.
        let ours = if is_tls {
            root_url.clone()
        } else {
            url_of(address, false)
        };
        let owner = data
            .owner_token()
            .and_then(|token| owner_client(ours, token));
        let first = FirstStart {
            pool: begins_with_pool,
            role: is_new && is_private,
            is_private,
        };
        let has_role = first.role;
        // Not the folder itself: its lock ends with it.
        let (folder, owner_file) = (data.path().to_owned(), data.owner_file());
        tokio::spawn(async move {
            let done = match owner {
                Ok(owner) => begin(first, &owner).await,
                Err(failure) => Err(failure),
            };
            let link = done.unwrap_or_else(|failure| {
                output::failure(&failure);
                root_url.clone()
            });
            output::out(&welcome(&root_url, &link, (&folder, &owner_file), has_role));
        });
    };
    let stop_signal = stop_signal()?;
    let stop = async move {
        stop_signal.await;
        report_remaining.await;
    };
    Box::pin(serve::run(config, stop, ready, &doctor)).await
}

/// Reports the worker processes that keep running, before the server stops.
fn report_remaining(
    config: &Config,
    data: &DataFolder,
    reached_at: Arc<OnceLock<String>>,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let providers = config.providers.0.iter();
    let local = providers.filter(|(_, provider)| matches!(provider, ProviderConfig::Local(_)));
    let local: BTreeSet<String> = local.map(|(id, _)| id.to_string()).collect();
    let token = match config.auth.taskcluster {
        None => data.owner_token().ok(),
        Some(_) => None,
    };
    async move {
        let (Some(token), Some(root_url)) = (token, reached_at.get()) else {
            return;
        };
        let report = async {
            let client = owner_client(root_url.clone(), token)?;
            remaining_workers::report(&client, local).await
        };
        let report = tokio::time::timeout(remaining_workers::TIME_LIMIT, report).await;
        if !matches!(report, Ok(Ok(()))) {
            output::note("worker processes on this machine may keep running without the server");
        }
    }
}

/// The steps of a start after the server is ready.
struct FirstStart {
    /// Create the first pool.
    pool: bool,
    /// Create the role of anonymous clients.
    role: bool,
    /// Only this machine can reach the server.
    is_private: bool,
}

impl FirstStart {
    async fn run(self, owner: &Client) -> Result<(), Failure> {
        if self.pool {
            first_pool::make(owner).await?;
        }
        if self.role {
            first_role::make(owner).await?;
        }
        if self.is_private {
            return Ok(());
        }
        let n_scopes = first_role::n_scopes(owner).await?;
        if n_scopes > 0 {
            output::note(&format!(
                "warning: anonymous clients have the {n_scopes} scopes of the role {ANONYMOUS}; \
                 `fleetwright role show {ANONYMOUS}` shows them, `fleetwright role delete \
                 {ANONYMOUS}` revokes them"
            ));
        }
        Ok(())
    }
}

/// The steps of a start, and the link to the pages.
async fn begin(first: FirstStart, owner: &Client) -> Result<String, Failure> {
    first.run(owner).await?;
    let link = open::create(owner).await?;
    Ok(link["url"].as_str().unwrap_or_default().to_owned())
}

/// Whether only this machine can reach the server: by its address, its root URL and no proxy.
fn is_private(config: &Config) -> bool {
    let is_here = |url: &String| url.parse().is_ok_and(|url| is_loopback(&url));
    config.listen.ip().is_loopback()
        && config.root_url.as_ref().is_none_or(is_here)
        && config.server.trusted_proxies == 0
}

/// The port of public artifacts is that of the server and this.
const ARTIFACT_PORTS_ABOVE: u16 = 10_000;

/// Pages of tasks show at an address of their own, if only this machine can reach the server.
/// Others may not reach a further port, so for them it must be configured.
pub(super) fn provide_artifact_origin(config: &mut Config) {
    let is_configured = config.artifacts.listen.is_some() || config.artifacts.origin.is_some();
    if is_configured || !is_private(config) {
        return;
    }
    let is_free = |address: &SocketAddr| std::net::TcpListener::bind(address).is_ok();
    config.artifacts.listen = Some(artifact_address(config.listen, is_free));
}

/// Usually the same port after each start, so that addresses of pages stay. Port 0 is any free one.
fn artifact_address(listen: SocketAddr, is_free: impl Fn(&SocketAddr) -> bool) -> SocketAddr {
    let (ip, port) = (listen.ip(), listen.port());
    let above = port.checked_add(ARTIFACT_PORTS_ABOVE).filter(|_| port != 0);
    let usual = above.map(|port| SocketAddr::new(ip, port));
    usual.filter(is_free).unwrap_or(SocketAddr::new(ip, 0))
}

fn has_local_workers(config: &Config) -> bool {
    let mut providers = config.providers.0.iter();
    providers.any(|(id, provider)| {
        id.as_str() == "local" && matches!(provider, ProviderConfig::Local(_))
    })
}

/// The API of the server, with the credentials of its owner.
pub(super) fn owner_client(root_url: String, access_token: Secret) -> Result<Client, Failure> {
    let credentials = Some(Credentials {
        client_id: OWNER.to_owned(),
        access_token,
        extension: None,
    });
    Client::new(
        Settings {
            root_url,
            credentials,
        },
        false,
    )
}

/// The `doctor` command for this installation.
fn doctor(arguments: &Arguments, data: &DataFolder) -> String {
    let mut command = match &arguments.config {
        Some(file) => serve::doctor(file),
        None => "fleetwright doctor".to_owned(),
    };
    if arguments.data.is_some() {
        let folder = quoted(&data.path().display().to_string());
        command.push_str(&format!(" --data {folder}"));
    }
    command
}

/// Prepares the configuration and the data folder; returns whether the database is new.
fn prepare(
    arguments: &Arguments,
    root_url: Option<String>,
    data: &DataFolder,
) -> Result<(Config, bool), Failure> {
    let mut is_new = false;
    let mut config = configuration(arguments.config.as_deref(), data)?;
    config.listen = arguments.listen.unwrap_or(config.listen);
    config.root_url = root_url
        .or(config.root_url)
        .map(|url| url.trim_end_matches('/').to_owned());
    let is_any = config.listen.ip().is_unspecified() && config.listen.port() != 0;
    if config.root_url.is_none() && is_any {
        config.root_url = Some(url_of(config.listen, config.tls.is_some()));
    }
    provide_artifact_origin(&mut config);
    let mut rng = machine::random_source();
    if config.keys.file == data.keys_file() {
        data.provide_keys(&mut rng)?;
    }
    config.keyring().map_err(|error| {
        Failure::failed(format!(
            "the keys in {} are damaged: {error}",
            config.keys.file.display()
        ))
        .with_hint(
            "restore the file from a backup, or delete the data folder and all its data to start \
                again",
        )
    })?;
    if config.database.url == data.database_url() {
        is_new = data.provide_database()?;
    }
    // If another deployment manages clients, a local owner has no effect.
    if config.auth.taskcluster.is_none() {
        let token = data.provide_owner(&config.root_url(), &mut rng)?;
        config.auth.static_clients.push(owner_with(token));
    }
    serve::check(&config)?;
    Ok((config, is_new))
}

/// The client that may do everything.
pub(super) fn owner_with(token: Secret) -> StaticClient {
    StaticClient {
        client_id: OWNER.to_owned(),
        access_token: Some(token),
        access_token_file: None,
        scopes: vec!["*".to_owned()],
        description: "The owner of this server, created on its first start.".to_owned(),
    }
}

/// The configuration with the defaults of `up`: paths in the data folder, providers, and the
/// strategy `balanced`.
pub(crate) fn configuration(file: Option<&Path>, data: &DataFolder) -> Result<Config, Failure> {
    let mut config = Config::from_toml(PROVIDERS, Path::new("the built-in configuration"))
        .context("the built-in configuration is damaged")?;
    if let Some(file) = file {
        let built_in = std::mem::replace(&mut config, serve::read(file)?).providers;
        config.providers = merged(built_in, config.providers);
    }
    if config.database.url.is_empty() {
        config.database.url = data.database_url();
    }
    if config.keys.file.as_os_str().is_empty() {
        config.keys.file = data.keys_file();
    }
    config.data.get_or_insert_with(|| data.path().to_owned());
    let planning = &mut config.planning;
    planning
        .default_strategy
        .get_or_insert(StrategyName::Balanced);
    Ok(config)
}

/// The configured providers in their order, then the built-in ones with other names.
fn merged(built_in: ProviderTable, mut configured: ProviderTable) -> ProviderTable {
    for (id, provider) in built_in.0 {
        if configured.0.iter().all(|(other, _)| *other != id) {
            configured.0.push((id, provider));
        }
    }
    configured
}

pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    };
    address.map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:8080 or localhost:8080".to_owned()
    })
}

fn welcome(root_url: &str, link: &str, (folder, owner): (&Path, &Path), has_role: bool) -> String {
    let program = program_name();
    let anonymous = if has_role {
        format!(
            "\n  anonymous    clients on this machine may read public artifacts, tasks and their \
             status\n               (role {ANONYMOUS}; `{program} role delete {ANONYMOUS}` \
             revokes this)"
        )
    } else {
        String::new()
    };
    // Commands find the server of the default folder.
    let is_default = DataFolder::default_path().is_ok_and(|path| path == folder);
    let source = match is_default {
        true => String::new(),
        false => format!("  . {}\n", quoted(&owner.display().to_string())),
    };
    let of_data = match is_default {
        true => String::new(),
        false => format!(" --data {}", quoted(&folder.display().to_string())),
    };
    format!(
        "\
fleetwright is ready at {root_url}

  pages        {link}
               (signs one browser in, once; `{program} open` makes another link)
  data folder  {}
  credentials  {} (client {OWNER}, all scopes){anonymous}

Try, in another terminal:

{source}  {program} task create --pool {FIRST_POOL} --log -- echo hello
  {program} explain pool {FIRST_POOL}

Ctrl-C stops the server, and so does `{program} down{of_data}`; a second one stops it at once.",
        folder.display(),
        owner.display(),
    )
}

/// The name of this program if the shell finds it, or else its path.
pub(super) fn program_name() -> String {
    let Ok(here) = std::env::current_exe() else {
        return "fleetwright".to_owned();
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join("fleetwright"))
        .find_map(|candidate| candidate.canonicalize().ok());
    if found.is_some() && found == here.canonicalize().ok() {
        "fleetwright".to_owned()
    } else {
        quoted(&here.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_configuration_has_local_workers_and_two_to_try() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        let config = configuration(None, &data).unwrap();
        let ids: Vec<_> = config
            .providers
            .0
            .iter()
            .map(|(id, _)| id.to_string())
            .collect();
        assert_eq!(ids, ["local", "static", "fake"]);
        assert_eq!(config.database.url, data.database_url());
        let defaults = config.planning.defaults();
        assert_eq!(defaults.strategy, StrategyName::Balanced);
    }

    #[test]
    fn a_file_may_choose_another_strategy_for_up() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        let strategy = |text: &str| {
            let file = folder.path().join("up.toml");
            std::fs::write(&file, text).unwrap();
            let config = configuration(Some(&file), &data).unwrap();
            config.planning.defaults().strategy
        };
        assert_eq!(strategy(""), StrategyName::Balanced);
        let weighted = "[planning]\ndefault_strategy = \"weighted\"\n";
        assert_eq!(strategy(weighted), StrategyName::Weighted);
    }

    #[test]
    fn a_server_is_private_if_neither_its_address_nor_a_proxy_leads_others_to_it() {
        for (text, expected) in [
            ("", true),
            ("root_url = \"http://localhost:80\"\n", true),
            ("root_url = \"https://fleet.example.com\"\n", false),
            ("listen = \"0.0.0.0:80\"\n", false),
            ("[server]\ntrusted_proxies = 1\n", false),
        ] {
            let config = Config::from_toml(text, Path::new("x.toml")).unwrap();
            assert_eq!(is_private(&config), expected, "{text}");
        }
    }

    #[test]
    fn only_a_private_server_gets_an_origin_of_artifacts_unless_one_is_configured() {
        for (text, expected) in [
            ("listen = \"127.0.0.1:0\"\n", Some("127.0.0.1:0")),
            ("listen = \"0.0.0.0:80\"\n", None),
            ("root_url = \"https://fleet.example.com\"\n", None),
            ("[server]\ntrusted_proxies = 1\n", None),
            ("[artifacts]\norigin = \"http://127.0.0.1:1\"\n", None),
            (
                "[artifacts]\nlisten = \"127.0.0.1:1\"\n",
                Some("127.0.0.1:1"),
            ),
        ] {
            let mut config = Config::from_toml(text, Path::new("x.toml")).unwrap();
            provide_artifact_origin(&mut config);
            let expected: Option<SocketAddr> = expected.map(|address| address.parse().unwrap());
            assert_eq!(config.artifacts.listen, expected, "{text}");
        }
    }

    #[test]
    fn the_port_of_artifacts_is_free_and_usually_the_same() {
        for (listen, is_free, expected) in [
            ("127.0.0.1:8080", true, "127.0.0.1:18080"),
            ("127.0.0.1:8080", false, "127.0.0.1:0"),
            ("[::1]:8080", true, "[::1]:18080"),
            ("127.0.0.1:55535", true, "127.0.0.1:65535"),
            ("127.0.0.1:55536", true, "127.0.0.1:0"),
            ("127.0.0.1:0", true, "127.0.0.1:0"),
        ] {
            let address = artifact_address(listen.parse().unwrap(), |_| is_free);
            assert_eq!(address, expected.parse().unwrap(), "{listen}");
        }
    }

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        assert_eq!(
            listen_address("localhost:80"),
            Ok(SocketAddr::from(([127, 0, 0, 1], 80)))
        );
        assert!(listen_address("[::1]:80").is_ok());
        for wrong in [
            "8080",
            "127.0.0.1",
            "localhost",
            "example.com:80",
            "localhost:99999",
        ] {
            assert!(listen_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_damaged_key_file_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        std::fs::write(data.keys_file(), "k1 nonsense\n").unwrap();
        let arguments = Arguments {
            data: None,
            listen: None,
            config: None,
        };
        let failure = prepare(&arguments, None, &data).unwrap_err();
        assert!(failure.message.contains("damaged"), "{}", failure.message);
        assert!(failure.hint.unwrap().contains("backup"));
        assert!(!data.owner_file().exists());
    }
}
