//! The fleet: plans, launches, scans and the end of machines.
//!
//! Facts are read, `domain::plan` decides, the decision is written, and only then is a cloud
//! called. Every change is a guarded write with its events. So any process may crash on any line,
//! and two processes may do the same work at once.

mod bids;
mod decide;
mod explain_task;
mod facts;
mod first_claims;
mod launch_answers;
mod launch_config_status;
mod launch_deadlines;
mod launches;
mod learn;
mod leftovers;
mod market_facts;
mod offering_news;
mod outside_facts;
mod override_events;
mod overrides_in_force;
mod pool_errors;
mod pool_resources;
mod provider_outage;
mod reconcile;
mod recorded_pools;
mod region_look;
mod region_scan;
mod regions;
mod resource_call;
mod scan;
mod shadow_plans;
mod strategy_origin;
mod termination;
mod waits;
mod worker_end;

pub use decide::{
    CommittedPlan, ReplayError, StoredOffers, decide, is_planned, preview, replay, stored_offers,
};
pub use explain_task::{TaskExplanation, explain_task};
pub use facts::{add_launch_configs, read_facts, read_supply};
pub use first_claims::note_first_claims;
pub use launch_answers::LaunchAnswers;
pub use launch_config_status::{
    HealthPage, LaunchConfigError, LaunchConfigPage, LaunchConfigStatus, get_launch_config,
    list_launch_config_health, list_launch_configs, usual_since,
};
pub(crate) use launch_config_status::{read_active_statuses, recent_failures};
pub use launches::{LaunchTracker, PlannedLaunch, prepare_pool, start_launches};
pub use learn::{LearnLimits, LearnResult, learn};
pub(crate) use offering_news::note_registration;
pub use override_events::{announce_pause, end_override, wake_target};
pub(crate) use overrides_in_force::OverridesInForce;
pub(crate) use pool_errors::{ErrorDetails, report_pool_error, write_error_report};
pub use pool_resources::{ReleasedPools, release_unused};
pub use provider_outage::{OutageLimits, report_outage};
pub use reconcile::settle_old_launches;
pub use recorded_pools::{OfferedPool, list_offered_pools};
pub use region_scan::{ScanLimits, ScanResult};
pub use scan::Scanner;
pub use shadow_plans::{ShadowDecision, list_shadow_decisions};
pub use strategy_origin::{
    ChosenStrategy, ExplainedStrategies, StrategyOrigin, explain_strategies,
};
pub use termination::{TerminationLimits, Terminator};
pub use waits::{
    FoldLimits, Folded, ForgetLimits, READER as WAIT_READER, fold_waits, forget_waits,
    note_quiet_waits, take_quiet,
};
pub use worker_end::{mark_stopped, request_stop};
