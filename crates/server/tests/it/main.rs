//! The server against its contract: in-process requests on SQLite, and on PostgreSQL when
//! `TEST_PG_URL` names one.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod ask;
mod authenticate;
mod authorization;
mod clients;
mod database;
mod doctor;
mod error_reports;
mod events;
mod expiration;
mod hawk;
mod limits;
mod never_fails;
mod order;
mod outside_auth;
mod paging;
mod pools_read;
mod pools_written;
mod providers;
mod races;
mod references;
mod registration;
mod reregistration;
mod restart;
mod roles;
mod routing;
mod samples;
mod temporary;
mod tidy;
mod workers_declared;
mod workers_listed;
mod world;
