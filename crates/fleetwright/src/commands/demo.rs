//! `demo`: runs a server with a made-up fleet that works.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::slugid;
use anyhow::Context as _;
use api_client::Credentials;
use clap::Args;
use domain::time::Clock;
use engine::clock::SystemClock;
use server::config::Config;
use tokio_util::task::AbortOnDropHandle;

use super::open;
use super::serve::{self, stop_signal, url_of};
use super::up;
use crate::client::Client;
use crate::data_folder::DataFolder;
use crate::demo::{Api, Cast, Clouds, Floor, Load, Scene, begin, make_past};
use crate::failure::Failure;
use crate::owner_file::{OWNER, quoted};
use crate::{machine, output};

/// The hosts of the demo; its clouds are made here.
const PROVIDERS: &str = "\
[providers.datacentre]
kind = \"static\"
";
/// Failures are part of the demo, so only its own errors are shown.
const LOG_FILTER: &str = "error";
const MAX_RATE: f64 = 50.0;
const MAX_MACHINES: i64 = 2_000;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// New folder for the data, which stays (default: a temporary folder, removed at the end)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address to listen on (default: a free port of 127.0.0.1)
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = up::listen_address)]
    listen: Option<SocketAddr>,
    /// Maximum number of tasks created in a second, on average over seconds
    #[arg(long, value_name = "N", default_value = "3", value_parser = rate)]
    rate: f64,
    /// Maximum number of machines in the clouds
    #[arg(long, value_name = "N", default_value = "120",
        value_parser = clap::value_parser!(u32).range(1..=MAX_MACHINES))]
    machines: u32,
}

/// The folder of the demo; a temporary one is removed with this value.
struct DemoFolder {
    path: PathBuf,
    is_temporary: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    // Dropped last: the server has closed its files by then.
    let folder = DemoFolder::choose(arguments.data.clone());
    let data = DataFolder::open(&folder.path)?;
    let (config, owner) = prepare(&arguments, &data)?;
    serve::start_log(&config)?;
    let mut stop = Box::pin(stop_signal()?);
    let (scene, now) = (Scene::read()?, machine::now());
    let keyring = Arc::new(config.keyring().context("the new keys are damaged")?);
    let clouds = Clouds::new(&scene, keyring, arguments.machines, begin(&scene, now))?;
    let past = Box::pin(make_past(&scene, &clouds, &config, &owner, now));
    let cast = tokio::select! {
        cast = past => cast?,
        () = &mut stop => return Ok(()),
    };
    let providers = clouds.released();
    let mut driver = None;
    let ready = |address| {
        let root_url = url_of(address, false);
        if let Err(failure) = data.set_root_url(&root_url) {
            output::failure(&failure);
        }
        match drive(&scene, &clouds, cast, &root_url, arguments.rate) {
            Ok(started) => driver = Some(started),
            Err(error) => output::failure(&Failure::from(error)),
        }
        let owner = up::owner_client(root_url.clone(), owner.access_token);
        let welcome = Welcome {
            root_url,
            folder: data.path().to_owned(),
            owner_file: data.owner_file(),
            is_temporary: folder.is_temporary,
        };
        tokio::spawn(async move { output::out(&welcome.text(owner).await) });
    };
    let doctor = format!("fleetwright doctor --data {}", quoted_path(data.path()));
    let done = Box::pin(serve::run_with(config, providers, stop, ready, &doctor)).await;
    drop(driver);
    done
}

/// Starts the clients and the machines. Dropping the result ends them.
fn drive(
    scene: &Scene,
    clouds: &Clouds,
    cast: Cast,
    root_url: &str,
    rate: f64,
) -> anyhow::Result<[AbortOnDropHandle<()>; 2]> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let api = Arc::new(Api::new(root_url, Arc::clone(&clock))?);
    let seed = clock.now().as_millis().cast_unsigned();
    let load = Load::new(scene, &cast, Arc::clone(&api), clock, seed);
    let floor = Floor::new(scene, clouds, cast, api);
    let handle = AbortOnDropHandle::new;
    Ok([
        handle(tokio::spawn(load.run(rate))),
        handle(tokio::spawn(floor.run())),
    ])
}

/// The configuration for a new data folder, and the owner.
fn prepare(arguments: &Arguments, data: &DataFolder) -> Result<(Config, Credentials), Failure> {
    let mut config = Config::from_toml(PROVIDERS, Path::new("the built-in configuration"))
        .context("the built-in configuration is damaged")?;
    config.listen = arguments
        .listen
        .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.log.filter = LOG_FILTER.to_owned();
    config.database.url = data.database_url();
    config.keys.file = data.keys_file();
    config.data = Some(data.path().to_owned());
    up::provide_artifact_origin(&mut config);
    let mut rng = machine::random_source();
    data.provide_keys(&mut rng)?;
    if !data.provide_database()? {
        let folder = data.path().display();
        return Err(
            Failure::usage(format!("the folder {folder} has data already")).with_hint(
                "select a new folder with --data, or run `fleetwright up --data` on this one",
            ),
        );
    }
    let token = data.provide_owner(&config.root_url(), &mut rng)?;
    config
        .auth
        .static_clients
        .push(up::owner_with(token.clone()));
    serve::check(&config)?;
    let owner = Credentials {
        client_id: OWNER.to_owned(),
        access_token: token,
        extension: None,
    };
    Ok((config, owner))
}

/// The text that is printed when the server is ready.
struct Welcome {
    root_url: String,
    folder: PathBuf,
    owner_file: PathBuf,
    is_temporary: bool,
}

impl Welcome {
    async fn text(&self, owner: Result<Client, Failure>) -> String {
        let link = match owner {
            Ok(owner) => open::create(&owner).await,
            Err(failure) => Err(failure),
        };
        let link = link.map(|reply| reply["url"].as_str().unwrap_or_default().to_owned());
        let link = link.unwrap_or_else(|failure| {
            output::failure(&failure);
            self.root_url.clone()
        });
        let program = up::program_name();
        let end = if self.is_temporary {
            "Ctrl-C stops the demo and removes its data."
        } else {
            "Ctrl-C stops the demo. Its data stays."
        };
        format!(
            "\
fleetwright demo is ready at {}

  pages        {link}
               (signs one browser in, once; `{program} open` makes another link)
  fleet        made-up pools in three fake clouds and a datacentre, with a week of history
  data folder  {}
  credentials  {} (client {OWNER}, all scopes)

Look at it, in another terminal:

  . {}
  {program} status
  {program} pool list
  {program} health
  {program} cost --by pool
  {program} wait --since 24h
  {program} image list
  {program} explain pool proj-build/linux-large

{end}",
            self.root_url,
            self.folder.display(),
            self.owner_file.display(),
            quoted_path(&self.owner_file),
        )
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate| (0.0..=MAX_RATE).contains(rate));
    rate.ok_or_else(|| format!("expected a number from 0 to {MAX_RATE}, such as 0.5"))
}

impl DemoFolder {
    fn choose(data: Option<PathBuf>) -> Self {
        let is_temporary = data.is_none();
        let path = data.unwrap_or_else(|| {
            let name = slugid::nice(&mut machine::random_source());
            std::env::temp_dir().join(format!("fleetwright-demo-{name}"))
        });
        Self { path, is_temporary }
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            output::note(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_removed_and_a_chosen_one_stays() {
        let temporary = DemoFolder::choose(None);
        let path = temporary.path.clone();
        std::fs::create_dir(&path).unwrap();
        drop(temporary);
        assert!(!path.exists());
        let chosen = tempfile::tempdir().unwrap();
        drop(DemoFolder::choose(Some(chosen.path().to_owned())));
        assert!(chosen.path().exists());
    }

    #[test]
    fn a_rate_is_a_number_within_bounds() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for text in ["-1", "51", "NaN", "many"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
