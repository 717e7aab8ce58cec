//! All statements of this crate, for checks of every statement.

use std::collections::BTreeMap;

use domain::time::Timestamp;

use crate::engine::{
    Result, Statement, StoreError, explain, explain::Explanation, explain::Joins, session::Session,
    sqlite::Mode, statement::PING, store::Lane, store::Store,
};

/// The lists of these files, by folder.
macro_rules! lists {
    ($($folder:ident: $($file:ident)+;)+) => {
        &[&[&PING], $($(crate::$folder::$file::STATEMENTS),+),+]
    };
}

static ALL: &[&[&Statement]] = lists! {
    engine: migration probe turns;
    access: clients revisions roles secrets sessions;
    configuration: canary_trials configuration_versions configurations documentation
        image_rollouts image_users image_versions images worker_types;
    cost: cost_accounts cost_reports meters;
    fleet: all_workers budgets host_numbers launch_configs launch_failures launch_health launches
        listed_workers machine_moments
        offering_memories offering_news overrides plans pool_memories pool_news pool_resources
        pool_waits pools processes provider_counts relays running_workers selected_workers
        shadow_plans started_workers worker_counts worker_supply workers;
    history: audit error_causes error_stats event_readers events kept_runs notice_causes notices
        outbox recorded_gaps recorded_runs recorded_workers run_counts run_messages run_outcomes
        series series_points
        wait_accounts wait_messages worker_errors;
    queue: announced_tasks artifacts cache_purges claimants claimed_tasks demand dependencies
        pending_tasks queue_workers task_groups task_queues task_waits tasks worker_metadata;
    tree: database_identity tree_nodes tree_owners;
};

impl Store {
    /// Lets the database prepare every statement, and returns their number.
    pub async fn check_statements(&self) -> Result<usize> {
        self.submit(Lane::Read, check_all).await
    }

    /// How the database runs every statement.
    pub async fn explain_statements(
        &self,
        joins: Joins,
        now: Timestamp,
    ) -> Result<Vec<Explanation>> {
        let all = ALL.iter().copied().flatten().copied();
        self.submit(Lane::Read, move |session| {
            explain::explain(session, all, joins, now)
        })
        .await
    }

    /// The number of rows of each table.
    pub async fn count_rows(&self) -> Result<BTreeMap<String, u64>> {
        self.submit(Lane::Read, explain::count_rows).await
    }
}

fn check_all(session: &mut Session) -> Result<usize> {
    session.once("check", Mode::Read, |session| {
        let mut all = ALL.iter().copied().flatten();
        all.try_fold(0, |n_checked, statement| {
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
        })
    })
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
