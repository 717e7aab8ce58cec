//! Deletes old versions and costs, steps of budgets, silent relays, ended sessions, and the rest of
//! deleted pools.

use domain::time::{DAY_MS, Timestamp};
use store::{
    budgets, configuration_versions, cost_accounts, image_versions, processes, relays, secrets,
    sessions, turns,
};

use super::deletions::{DeletionTally, Deletions};
use crate::app::App;

/// The newest versions of a worker configuration or an image that exists are kept at any age.
const KEPT_VERSIONS: u32 = 10;
/// Announced steps of budgets are remembered for longer than any period is.
const STEPS_KEPT_DAYS: u32 = 90;
/// A relay that is silent for longer does not come back.
const SILENT_RELAYS_KEPT_DAYS: u32 = 30;
const SILENT_PROCESSES_KEPT_DAYS: u32 = 1;

/// Each kind by itself. `deletions` limits each of them.
pub(super) async fn forget_replaced(
    app: &App,
    now: Timestamp,
    deletions: Deletions,
    tally: &mut DeletionTally,
) {
    let (store, settings) = (&app.engine.store, &app.config.worker_manager);
    let days_ago = |days: u32| now.plus_millis(-i64::from(days) * DAY_MS);
    let delete = |name, before, delete| deletions.delete(store, name, before, delete);
    let replaced = days_ago(settings.version_retention_days);
    let rules = delete(
        "configuration_version_expire",
        replaced,
        |tx, before, size| configuration_versions::delete_replaced(tx, before, KEPT_VERSIONS, size),
    );
    tally.add("replaced", rules.await);
    let images = delete("image_version_expire", replaced, |tx, before, size| {
        image_versions::delete_replaced(tx, before, KEPT_VERSIONS, size)
    });
    tally.add("replaced", images.await);
    let names = ["turn_look", "turn_expire"];
    let turns = deletions.delete_found(store, names, turns::list_orphans, turns::delete_orphans);
    tally.add("replaced", turns.await);
    let steps = days_ago(STEPS_KEPT_DAYS);
    let steps = delete("budget_step_expire", steps, budgets::delete_steps_before);
    tally.add("replaced", steps.await);
    let ended = delete("session_expire", now, sessions::delete_ended);
    tally.add("sessions", ended.await);
    let expired = delete("secret_expire", now, secrets::delete_expired);
    tally.add("secrets", expired.await);
    let silent = days_ago(SILENT_RELAYS_KEPT_DAYS);
    let silent = delete("relay_expire", silent, relays::delete_silent);
    tally.add("relays", silent.await);
    let ended = days_ago(SILENT_PROCESSES_KEPT_DAYS);
    let ended = delete("process_expire", ended, processes::delete_silent);
    tally.add("processes", ended.await);
    let old_costs = days_ago(settings.cost_retention_days);
    let costs = delete("cost_expire", old_costs, cost_accounts::delete_before).await;
    // Accounts become empty only by that, so most activations need not look for them.
    let may_be_empty = !matches!(costs, Ok(0));
    tally.add("replaced", costs);
    if may_be_empty {
        let unused = delete("cost_account_expire", now, |tx, _, size| {
            cost_accounts::delete_unused(tx, size)
        });
        tally.add("replaced", unused.await);
    }
}
