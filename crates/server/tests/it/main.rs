//! The server against its contract: in-process requests on SQLite, and on PostgreSQL when
//! `TEST_PG_URL` names one.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod artifact_files;
mod artifacts;
mod ask;
mod authenticate;
mod authorization;
mod broker;
mod clients;
mod configurations;
mod configurations_told;
mod database;
mod doctor;
mod error_reports;
mod event_stream;
mod events;
mod expiration;
mod fleet_clouds;
mod fleet_explained;
mod fleet_leaving;
mod fleet_limits;
mod fleet_loop;
mod fleet_outcomes;
mod fleet_scan;
mod fleet_several;
mod fleet_storm;
mod fleet_two_processes;
mod fleet_world;
mod hawk;
mod limits;
mod never_fails;
mod notices;
mod notices_by_mail;
mod order;
mod outside_auth;
mod outside_queue;
mod paging;
mod pools_judged_outside;
mod pools_read;
mod pools_written;
mod providers;
mod publishing;
mod queue_authorization;
mod queue_background;
mod queue_changes;
mod queue_claims;
mod queue_counts;
mod queue_create;
mod queue_dependencies;
mod queue_samples;
mod queue_unheard;
mod queue_view_authorization;
mod queue_views;
mod queue_waiting;
mod queue_workers;
mod races;
mod receivers;
mod references;
mod registration;
mod reregistration;
mod restart;
mod roles;
mod routing;
mod runs;
mod samples;
mod task_log;
mod temporary;
mod tidy;
mod worker_state;
mod worker_state_outside;
mod workers_declared;
mod workers_listed;
mod world;
