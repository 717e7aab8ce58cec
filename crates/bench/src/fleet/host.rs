//! The server without its listeners: an app on the database of the benchmark, with a simulated
//! cloud.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::{Secret, slugid};
use anyhow::Context as _;
use api_client::{Call, Credentials};
use cloud::{Provider, ProviderConfig, StaticSettings};
use domain::plan::StrategyName;
use engine::clock::SystemClock;
use engine::random::Random;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use server::api::listener::Server;
use server::app::App;
use server::background::driver::Driver;
use server::config::{Config, StaticClient};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cloud::BenchCloud;
use crate::child::OWNER;
use crate::prepare::signed;
use crate::processor::Meter;
use crate::{machine, postgres};

pub(crate) struct Host {
    pub(crate) app: Arc<App>,
    pub(crate) cloud: Arc<BenchCloud>,
    token: Secret,
    /// Of this process and its database.
    pub(crate) meter: Meter,
}

/// The host with a listener: it serves requests and runs its background tasks.
pub(crate) struct Open {
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    driver: Driver,
}

impl Host {
    pub(crate) async fn start(
        folder: &Path,
        database: &str,
        strategy: StrategyName,
        provider: &str,
    ) -> anyhow::Result<Self> {
        let mut config = Config::default();
        config.planning.default_strategy = Some(strategy);
        config.database.url = database.to_owned();
        config.keys.file = folder.join("keys");
        let token = Secret::new(slugid::secret(&mut machine::chance()));
        config.auth.static_clients.push(StaticClient {
            client_id: OWNER.to_owned(),
            access_token: Some(token.clone()),
            access_token_file: None,
            scopes: vec!["*".to_owned()],
            description: String::new(),
        });
        let fixed = "static".parse().context("this is a provider's name")?;
        let kind = ProviderConfig::Static(StaticSettings::default());
        config.providers.0.push((fixed, kind));
        let cloud = Arc::new(BenchCloud::default());
        let further = vec![(
            provider
                .parse()
                .context("the provider's name is well-formed")?,
            Arc::clone(&cloud) as Arc<dyn Provider>,
        )];
        let random = Random::new(StdRng::seed_from_u64(7));
        let clock = Arc::new(SystemClock);
        // The costs are the same as in a server.
        server::telemetry::Telemetry::of_process();
        let app = server::start::start_with(config, clock, random, further).await;
        let app = app.context("the app cannot start")?;
        let meter = Meter {
            server: std::process::id(),
            database: postgres::postmaster(database).await?,
        };
        Ok(Self {
            app,
            cloud,
            token,
            meter,
        })
    }

    pub(crate) async fn open(&self) -> anyhow::Result<Open> {
        let mut open = self.serve().await?;
        server::background::start(&self.app, &mut open.driver);
        Ok(open)
    }

    /// Waits until the background tasks have nothing to do, at most this long.
    pub(crate) async fn settle(&self, limit: Duration) {
        self.meter.settle(limit).await;
    }

    /// Serves requests without background tasks.
    pub(crate) async fn serve(&self) -> anyhow::Result<Open> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let stop = CancellationToken::new();
        let driver = Driver::new(Arc::clone(&self.app.engine.clock), stop.clone());
        let server = Arc::new(Server::new(Arc::clone(&self.app)));
        let credentials = Credentials {
            client_id: OWNER.to_owned(),
            access_token: self.token.clone(),
            extension: None,
        };
        Ok(Open {
            address,
            credentials,
            serving: tokio::spawn(server.serve(listener, stop.clone())),
            stop,
            driver,
        })
    }

    pub(crate) async fn stop(&self) {
        self.app.engine.launch_tracker.finish().await;
        self.app.engine.store.close().await;
    }
}

impl Open {
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let _ended = self.serving.await;
        self.driver.join().await;
    }

    pub(crate) fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        signed(call, self.address, Some(&self.credentials))
    }
}

/// The peak memory of this process, if the system reports it.
pub(crate) fn peak_bytes() -> Option<u64> {
    machine::memory_bytes("self", "VmHWM:")
}
