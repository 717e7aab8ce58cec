//! Every statement of this crate, to check them all at once.

use crate::error::StoreError;
use crate::session::Session;
use crate::sqlite::Mode;
use crate::statement::{PING, Statement};
use crate::store::Store;

/// Grouped by the file that owns it.
static ALL: &[&[&Statement]] = &[
    &[&PING],
    crate::migration::STATEMENTS,
    crate::access_revision::STATEMENTS,
    crate::client::STATEMENTS,
    crate::role::STATEMENTS,
    crate::cache_purge::STATEMENTS,
    crate::pool::STATEMENTS,
    crate::launch_config::STATEMENTS,
    crate::worker::STATEMENTS,
    crate::worker_list::STATEMENTS,
    crate::worker_counts::STATEMENTS,
    crate::worker_supply::STATEMENTS,
    crate::worker_running::STATEMENTS,
    crate::launch::STATEMENTS,
    crate::launch_health::STATEMENTS,
    crate::plan_record::STATEMENTS,
    crate::overrides::STATEMENTS,
    crate::turn::STATEMENTS,
    crate::worker_error::STATEMENTS,
    crate::error_stats::STATEMENTS,
    crate::queue_worker::STATEMENTS,
    crate::claimant::STATEMENTS,
    crate::task::STATEMENTS,
    crate::task_pending::STATEMENTS,
    crate::task_claimed::STATEMENTS,
    crate::task_dependency::STATEMENTS,
    crate::task_group::STATEMENTS,
    crate::task_expiry::STATEMENTS,
    crate::task_queue::STATEMENTS,
    crate::artifact::STATEMENTS,
    crate::artifact_run::STATEMENTS,
    crate::worker_metadata::STATEMENTS,
    crate::outbox::STATEMENTS,
    crate::event_stream::STATEMENTS,
    crate::event_reader::STATEMENTS,
    crate::run_outcome::STATEMENTS,
    crate::run_outcome_trim::STATEMENTS,
    crate::run_count::STATEMENTS,
    crate::run_message::STATEMENTS,
    crate::notice::STATEMENTS,
    crate::notice_cause::STATEMENTS,
    crate::audit::STATEMENTS,
    crate::configuration::STATEMENTS,
    crate::worker_type::STATEMENTS,
    crate::documentation::STATEMENTS,
    crate::write_probe::STATEMENTS,
];

impl Store {
    /// Lets the database check every statement of this program; returns how many there are.
    pub async fn check_statements(&self) -> Result<usize, StoreError> {
        self.submit(Mode::Read, check_all).await
    }
}

fn check_all(session: &mut Session) -> Result<usize, StoreError> {
    session
        .begin(Mode::Read)
        .map_err(|failure| session.error("begin", failure))?;
    let checked = ALL
        .iter()
        .copied()
        .flatten()
        .try_fold(0, |n_checked, statement| {
            let n_seen = session
                .prepare(statement)
                .map_err(|failure| session.error(statement.name, failure))?;
            if n_seen != statement.n_parameters() {
                let source = format!("the database sees {n_seen} parameters").into();
                return Err(StoreError::Query {
                    statement: statement.name,
                    source,
                });
            }
            Ok(n_checked + 1)
        });
    session.rollback();
    checked
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn parameters_first_appear_in_order_without_gaps() {
        for statement in ALL.iter().copied().flatten() {
            let mut highest = 0;
            for number in statement.parameters() {
                assert!(
                    number <= highest + 1,
                    "{}: ${number} comes too early",
                    statement.name
                );
                highest = highest.max(number);
                assert!(number > 0, "{}: $ without a number", statement.name);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names = HashSet::new();
        for statement in ALL.iter().copied().flatten() {
            assert!(
                names.insert(statement.name),
                "{} is there twice",
                statement.name
            );
        }
    }

    #[test]
    fn no_statement_reads_the_clock_of_the_database_or_locks_rows() {
        // But the one that compares that clock with ours.
        let all = ALL.iter().copied().flatten();
        for statement in all.filter(|statement| statement.name != "database_clock") {
            let sql = statement.sql.to_ascii_lowercase();
            for banned in [
                "now()",
                "current_timestamp",
                "for update",
                "skip locked",
                "random()",
            ] {
                assert!(!sql.contains(banned), "{} uses {banned}", statement.name);
            }
        }
    }
}
