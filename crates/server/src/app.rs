//! The state that requests and background tasks share.

use std::sync::Arc;

use access::seal::Keyring;
use domain::time::Timestamp;
use engine::Engine;
use images::LiveBuilds;

use crate::authentication::{Authenticator, Holders};
use crate::config::{Config, ConfiguredSecrets};
use crate::events::EventStream;
use crate::fleet_status::LastStatus;
use crate::health::HealthMonitor;
use crate::hosts::Hosts;
use crate::limits::{BodyBudget, OpenCalls, RefusalLog};
use crate::notify::Channel;
use crate::openid::OpenId;
use crate::pool_replies::PoolReplies;
use crate::telemetry::{Telemetry, Traces};
use crate::tree::SharedTree;
use crate::what_if::WhatIfs;
use tls::TlsAcceptor;

pub struct App {
    pub config: Config,
    /// The hosts that clients may address.
    pub hosts: Hosts,
    /// The state that the workflows share.
    pub engine: Arc<Engine>,
    /// The keys that builders have, too.
    pub builder_keys: Arc<Keyring>,
    pub secrets: ConfiguredSecrets,
    pub authenticator: Arc<dyn Authenticator>,
    pub telemetry: Telemetry,
    /// `None`: no collector of traces is configured.
    pub traces: Option<Arc<Traces>>,
    pub events: EventStream,
    /// The channels for notices of errors.
    pub notices: Vec<Arc<dyn Channel>>,
    /// The provider at which people sign in to the pages.
    pub openid: Option<Arc<OpenId>>,
    /// `None`: connections are not encrypted, unless a proxy does that.
    pub tls: Option<Arc<TlsAcceptor>>,
    pub health: HealthMonitor,
    /// Memory for the bodies of requests.
    pub body_budget: BodyBudget,
    pub open_calls: OpenCalls,
    /// Counted apart, so that registrations keep no client of the same address out.
    pub failed_authentications: OpenCalls,
    /// Limits the log lines about refused requests.
    pub refusals: RefusalLog,
    pub pool_replies: PoolReplies,
    pub fleet_status: Arc<LastStatus>,
    pub what_ifs: Arc<WhatIfs>,
    pub started: Timestamp,
    /// Empty until the server runs.
    pub tree: SharedTree,
    /// The builds that run in this process.
    pub live_builds: LiveBuilds,
}

impl App {
    /// The parts that tell who holds credentials.
    pub fn holders(&self) -> Holders<'_> {
        Holders {
            authenticator: &*self.authenticator,
            engine: &self.engine,
            failed: &self.failed_authentications,
        }
    }
}
