//! All statements of this crate, for checks of every statement.

use crate::engine::error::StoreError;
use crate::engine::session::Session;
use crate::engine::sqlite::Mode;
use crate::engine::statement::{PING, Statement};
use crate::engine::store::Store;

/// Grouped by file.
static ALL: &[&[&Statement]] = &[
    &[&PING],
    crate::engine::migration::STATEMENTS,
    crate::access::revisions::STATEMENTS,
    crate::access::clients::STATEMENTS,
    crate::access::roles::STATEMENTS,
    crate::queue::cache_purges::STATEMENTS,
    crate::fleet::pools::STATEMENTS,
    crate::fleet::launch_configs::STATEMENTS,
    crate::fleet::workers::STATEMENTS,
    crate::fleet::worker_counts::STATEMENTS,
    crate::fleet::worker_supply::STATEMENTS,
    crate::fleet::running_workers::STATEMENTS,
    crate::fleet::launches::STATEMENTS,
    crate::fleet::launch_health::STATEMENTS,
    crate::fleet::plans::STATEMENTS,
    crate::fleet::overrides::STATEMENTS,
    crate::engine::turns::STATEMENTS,
    crate::history::worker_errors::STATEMENTS,
    crate::history::error_stats::STATEMENTS,
    crate::queue::queue_workers::STATEMENTS,
    crate::queue::claimants::STATEMENTS,
    crate::queue::tasks::STATEMENTS,
    crate::queue::pending_tasks::STATEMENTS,
    crate::queue::claimed_tasks::STATEMENTS,
    crate::queue::demand::STATEMENTS,
    crate::queue::dependencies::STATEMENTS,
    crate::queue::task_groups::STATEMENTS,
    crate::queue::task_queues::STATEMENTS,
    crate::queue::artifacts::STATEMENTS,
    crate::queue::worker_metadata::STATEMENTS,
    crate::history::outbox::STATEMENTS,
    crate::history::events::STATEMENTS,
    crate::history::event_readers::STATEMENTS,
    crate::history::run_outcomes::STATEMENTS,
    crate::history::kept_runs::STATEMENTS,
    crate::history::run_counts::STATEMENTS,
    crate::history::run_messages::STATEMENTS,
    crate::history::notices::STATEMENTS,
    crate::history::notice_causes::STATEMENTS,
    crate::history::audit::STATEMENTS,
    crate::configuration::configurations::STATEMENTS,
    crate::configuration::configuration_versions::STATEMENTS,
    crate::configuration::worker_types::STATEMENTS,
    crate::configuration::documentation::STATEMENTS,
    crate::engine::probe::STATEMENTS,
];

impl Store {
    /// Lets the database prepare every statement, and returns their number.
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
                let source = format!("the database finds {n_seen} parameters").into();
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
    use crate::engine::table::parameters;

    #[test]
    fn parameters_first_appear_in_order_without_gaps() {
        for statement in ALL.iter().copied().flatten() {
            let mut highest = 0;
            for number in parameters(statement.sql()) {
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
                "{} is used twice",
                statement.name
            );
        }
    }

    #[test]
    fn no_statement_reads_the_clock_of_the_database_or_locks_rows() {
        // Except the statement that compares this clock with ours.
        let all = ALL.iter().copied().flatten();
        for statement in all.filter(|statement| statement.name != "database_clock") {
            let sql = statement.sql().to_ascii_lowercase();
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
