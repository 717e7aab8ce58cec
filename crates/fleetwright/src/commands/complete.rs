//! Completes ids on the command line: asks the server, for a moment, and is silent on failure.

use std::time::Duration;

use clap::Command;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::client::{Call, FLEETWRIGHT, Flags, WORKER_MANAGER};
use crate::session::Session;

/// The person who presses a key waits no longer.
const LIMIT: Duration = Duration::from_millis(300);
/// Ids that are offered.
const MAX_IDS: usize = 1_000;

/// A list of ids.
#[derive(Clone, Copy)]
struct Ids {
    service: &'static str,
    path: &'static [&'static str],
    list: &'static str,
    /// A JSON pointer to the id of an item.
    id: &'static str,
}

/// The command, or any; the name of the value; its ids.
const VALUES: &[(Option<&str>, &str, Ids)] = &[
    (
        None,
        "POOL",
        Ids::new(FLEETWRIGHT, &["status", "pools"], "pools", "/workerPoolId"),
    ),
    (
        None,
        "PROVIDER",
        Ids::new(WORKER_MANAGER, &["providers"], "providers", "/providerId"),
    ),
    (
        None,
        "IMAGE",
        Ids::new(FLEETWRIGHT, &["images"], "images", "/imageId"),
    ),
    (
        None,
        "OVERRIDE",
        Ids::new(WORKER_MANAGER, &["overrides"], "overrides", "/overrideId"),
    ),
    (
        None,
        "BUDGET",
        Ids::new(WORKER_MANAGER, &["budgets"], "budgets", "/budgetId"),
    ),
    // Those that run: people ask about them.
    (
        None,
        "TASK",
        Ids::new(FLEETWRIGHT, &["workers"], "workers", "/task/taskId"),
    ),
    (
        Some("rules"),
        "ID",
        Ids::new(
            WORKER_MANAGER,
            &["worker-configurations"],
            "workerConfigurations",
            "/workerConfigurationId",
        ),
    ),
];

impl Ids {
    const fn new(
        service: &'static str,
        path: &'static [&'static str],
        list: &'static str,
        id: &'static str,
    ) -> Self {
        Self {
            service,
            path,
            list,
            id,
        }
    }

    fn candidates(self) -> Vec<CompletionCandidate> {
        let ids = self.read().unwrap_or_default();
        ids.into_iter().map(CompletionCandidate::new).collect()
    }

    /// `None`: no server is configured, or none answers in time.
    fn read(self) -> Option<Vec<String>> {
        let session = Session::open(&Flags::default(), false, false).ok()?;
        let call = Call::get(self.service, self.path).query("limit", Some(MAX_IDS));
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let reply = runtime.block_on(async { timeout(LIMIT, session.client.call(&call)).await });
        Some(self.of_reply(&reply.ok()?.ok()?))
    }

    fn of_reply(self, reply: &Value) -> Vec<String> {
        let items = reply[self.list].as_array().into_iter().flatten();
        let ids = items.filter_map(|item| Some(item.pointer(self.id)?.as_str()?.to_owned()));
        ids.collect()
    }
}

/// Adds the ids of the server to the arguments that name something.
pub(crate) fn with_ids(command: Command) -> Command {
    command.mut_subcommands(|noun| {
        let name = noun.get_name().to_owned();
        of_command(noun, &name)
    })
}

fn of_command(command: Command, noun: &str) -> Command {
    let command = command.mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        let [name] = names else { return arg };
        let known = VALUES
            .iter()
            .find(|(of, value, _)| *value == name.as_str() && of.is_none_or(|of| of == noun));
        match known {
            Some((_, _, ids)) => {
                let ids = *ids;
                arg.add(ArgValueCandidates::new(move || ids.candidates()))
            }
            None => arg,
        }
    });
    command.mut_subcommands(|verb| of_command(verb, noun))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_read_out_of_a_list() {
        let (_, _, pools) = VALUES[0];
        let reply = json!({"pools": [{"workerPoolId": "a/b"}, {}, {"workerPoolId": "c/d"}]});
        assert_eq!(pools.of_reply(&reply), ["a/b", "c/d"]);
        let (_, _, tasks) = VALUES.iter().find(|(_, name, _)| *name == "TASK").unwrap();
        let reply = json!({"workers": [{"workerId": "w"}, {"task": {"taskId": "t"}}]});
        assert_eq!(tasks.of_reply(&reply), ["t"]);
        assert_eq!(tasks.of_reply(&json!("odd")), [""; 0]);
    }

    #[test]
    fn arguments_that_name_something_have_candidates() {
        let command = with_ids(crate::cli::command());
        let has = |noun: &str, verb: &str| {
            let verb = command
                .find_subcommand(noun)
                .unwrap()
                .find_subcommand(verb)
                .unwrap();
            let first = verb.get_positionals().next().unwrap();
            first.get::<ArgValueCandidates>().is_some()
        };
        for (noun, verb) in [
            ("pool", "show"),
            ("task", "log"),
            ("override", "show"),
            ("budget", "show"),
            ("image", "show"),
            ("rules", "show"),
            ("provider", "test"),
        ] {
            assert!(has(noun, verb), "{noun} {verb}");
        }
        assert!(!has("client", "show"));
    }
}
