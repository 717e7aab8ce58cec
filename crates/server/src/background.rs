//! Background tasks: woken or periodic, they read the current state and act on it.

mod artifact_cleanup;
mod backoff;
mod batches;
mod budgets;
mod clock_measurement;
mod costs;
mod deletions;
pub mod driver;
mod file_reload;
mod fleet_measure;
mod forget_recorded;
mod forget_replaced;
mod gauges;
mod health_check;
mod housekeeping;
mod image_measure;
mod image_mirror;
pub(crate) mod image_rollouts;
mod learner;
mod measure;
mod notifier;
mod outcomes;
mod overrides;
mod pending_task_listener;
mod pool_resources;
mod process_record;
mod provider_setup;
mod provision;
mod publish;
mod queue_claims;
mod queue_deadlines;
mod queue_housekeeping;
mod queue_releases;
mod refresh;
mod scan;
mod sealing;
mod series;
mod statistics;
mod taskcluster_measure;
mod tls_reload;
mod trace_export;
pub mod tree_keeper;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use engine::availability::PROBE_INTERVAL;

pub use artifact_cleanup::{ArtifactCleanup, ArtifactLimits};
pub use batches::Batches;
pub use budgets::Budgets;
pub use clock_measurement::ClockMeasurement;
pub use costs::Costs;
use driver::Driver;
pub use file_reload::FileReload;
pub use fleet_measure::FleetMeasure;
pub use health_check::HealthCheck;
pub use housekeeping::Housekeeping;
pub use image_measure::ImageMeasure;
pub use image_mirror::ImageMirror;
pub use image_rollouts::ImageRollouts;
pub use learner::Learner;
pub use measure::{Measure, MeasureLimits};
pub use notifier::{Notifier, NotifierLimits};
pub use outcomes::{OutcomeLimits, Outcomes, OutsideOutcomes};
pub use overrides::Overrides;
pub use pending_task_listener::PendingTaskListener;
pub use pool_resources::PoolResources;
pub use process_record::{ANNOUNCED_EVERY, ProcessRecord};
pub use provider_setup::ProviderSetup;
pub use provision::{PageLimits, Provision, ProvisionRounds};
pub use publish::{BrokerPublisher, EventPublisher, READER as BROKER_READER, leave_readers};
pub use queue_claims::QueueClaims;
pub use queue_deadlines::QueueDeadlines;
pub use queue_housekeeping::QueueHousekeeping;
pub use queue_releases::{QueueReleases, ReleaseLimits};
pub use refresh::Refresh;
pub use scan::{MachineTermination, Scan};
pub use sealing::Sealing;
pub use series::Series;
pub use statistics::MissingStatistics;
pub use taskcluster_measure::TaskclusterMeasure;
pub use tls_reload::TlsReload;
use trace_export::TraceExport;
pub use waits::WaitAccounts;

use crate::app::App;
use crate::config::Role;

/// Starts the background tasks of this process's roles.
pub fn start(app: &Arc<App>, driver: &mut Driver) {
    let every = Duration::from_secs;
    let own = || Arc::clone(app);
    let engine = || Arc::clone(&app.engine);
    let plays = |role| app.config.roles.include(role);
    let fleet = &app.config.fleet;
    let bell = Arc::clone(&app.engine.wakeups.publish);
    driver.start_woken(every(1), bell, EventPublisher(own()));
    let released = Arc::clone(&app.engine.queue.releases.wakeup);
    driver.start_woken(every(5), released, QueueReleases(engine()));
    driver.start(PROBE_INTERVAL, HealthCheck(own()));
    driver.start(ANNOUNCED_EVERY, ProcessRecord(own()));
    driver.start(ProviderSetup::PERIOD, ProviderSetup::new(engine()));
    driver.start(every(10), FileReload(engine()));
    for refresh in Refresh::each(&app.engine) {
        let bell = app.engine.wakeups.refresh(refresh.provider_id());
        driver.start_woken(every(10), bell, refresh);
    }
    start_images(app, driver);
    if let Some(traces) = &app.traces {
        driver.start(every(2), TraceExport(Arc::clone(traces)));
    }
    if let Some(tls) = &app.tls {
        driver.start(every(10), TlsReload(Arc::clone(tls)));
    }
    if plays(Role::Provisioner) {
        let bell = Arc::clone(&app.engine.wakeups.provision);
        driver.start_woken(fleet.round(), bell, Provision::new(engine()));
        driver.start(fleet.round(), ProvisionRounds(engine()));
        driver.start(every(5), Overrides(engine()));
        driver.start(every(15), Budgets(engine()));
        driver.start(every(60), PoolResources(engine()));
        let scan_ms = i64::try_from(fleet.scan().as_millis()).unwrap_or(i64::MAX / 4);
        driver.start(every(30), Learner::new(engine(), scan_ms));
        if let Some(pulse) = app.engine.demand_source.pulse() {
            driver.start(every(1), PendingTaskListener::new(own(), pulse));
        }
    }
    if plays(Role::Scanner) {
        for scan in Scan::each(&app.engine) {
            driver.start(fleet.scan(), scan);
        }
        for ending in MachineTermination::each(&app.engine) {
            let bell = app.engine.wakeups.ending(ending.provider_id());
            driver.start_woken(fleet.scan(), bell, ending);
        }
    }
    if let Some(broker) = app.events.broker.clone()
        && plays(Role::Publisher)
    {
        let bell = Arc::clone(&app.events.published);
        driver.start_woken(every(1), bell, BrokerPublisher::new(own(), broker));
    }
    if plays(Role::Publisher) {
        for channel in app.notices.clone() {
            driver.start(every(2), Notifier::new(own(), channel));
        }
    }
    if plays(Role::Housekeeper) {
        start_housekeeping(app, driver);
    }
}

/// Accounts, deadlines, measures, and the removal of what is old.
fn start_housekeeping(app: &Arc<App>, driver: &mut Driver) {
    let every = Duration::from_secs;
    let own = || Arc::clone(app);
    let engine = || Arc::clone(&app.engine);
    if let Some(pulse) = app.engine.demand_source.pulse() {
        driver.start(every(1), OutsideOutcomes::new(engine(), pulse));
    }
    if !app.engine.demand_source.is_outside() {
        driver.start(every(1), Outcomes(own()));
        driver.start(every(5), WaitAccounts::new(own()));
    }
    driver.start(every(10), Costs(engine()));
    driver.start(every(15), Series::new(engine()));
    if app.engine.store.engine() == store::Engine::Postgres {
        driver.start(every(10), MissingStatistics(engine()));
    }
    driver.start(every(2), QueueClaims(engine()));
    driver.start(every(5), QueueDeadlines(engine()));
    driver.start(deletions::PERIOD, QueueHousekeeping::new(engine()));
    driver.start(every(30), Measure(own()));
    driver.start(every(30), FleetMeasure::new(own()));
    if app.config.metrics.taskcluster_names || app.engine.taskcluster_records {
        driver.start(every(30), TaskclusterMeasure::new(own()));
    }
    driver.start(deletions::PERIOD, Housekeeping::new(own()));
    driver.start(every(300), ArtifactCleanup::new(engine()));
    driver.start(every(600), Sealing(engine()));
}

/// Images: their copy in the tree, their rollouts, their measures.
fn start_images(app: &Arc<App>, driver: &mut Driver) {
    let every = Duration::from_secs;
    let own = || Arc::clone(app);
    let bell = Arc::clone(&app.engine.wakeups.images);
    driver.start_woken(every(60), bell, ImageMirror::new(own()));
    driver.start(every(15), ImageMeasure::new(own()));
    let bell = Arc::clone(&app.engine.wakeups.image_rollouts);
    driver.start_woken(every(5), bell, ImageRollouts::new(own()));
}
