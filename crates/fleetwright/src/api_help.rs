//! Help for the commands that make one API call: taken from the endpoint table.

use clap::Command;
use server::api::endpoint::Endpoint;
use server::api::endpoint::Service::{self, Auth, Fleetwright, Queue, Secrets, WorkerManager};
use server::api::endpoints;

/// Command group, command, service, endpoint.
const CALLS: &[(&str, &str, Service, &str)] = &[
    ("pool", "list", WorkerManager, "listWorkerPools"),
    ("pool", "show", WorkerManager, "workerPool"),
    ("pool", "create", WorkerManager, "createWorkerPool"),
    ("pool", "delete", WorkerManager, "deleteWorkerPool"),
    ("pool", "errors", WorkerManager, "listWorkerPoolErrors"),
    ("launch-config", "list", WorkerManager, "getLaunchConfigs"),
    ("launch-config", "show", WorkerManager, "getLaunchConfig"),
    ("launch-config", "pause", WorkerManager, "pauseLaunchConfig"),
    (
        "launch-config",
        "resume",
        WorkerManager,
        "resumeLaunchConfig",
    ),
    ("pool", "runs", WorkerManager, "workerPoolState"),
    ("worker", "runs", WorkerManager, "workerState"),
    ("worker", "show", WorkerManager, "worker"),
    ("worker", "create", WorkerManager, "createWorker"),
    ("worker", "remove", WorkerManager, "removeWorker"),
    (
        "worker",
        "should-terminate",
        WorkerManager,
        "shouldWorkerTerminate",
    ),
    ("error", "list", WorkerManager, "listWorkerPoolErrors"),
    ("error", "stats", WorkerManager, "workerPoolErrorStats"),
    ("documentation", "list", WorkerManager, "documentationIndex"),
    ("relay", "list", WorkerManager, "listRelays"),
    ("relay", "show", WorkerManager, "relay"),
    ("budget", "list", WorkerManager, "listBudgets"),
    ("budget", "show", WorkerManager, "budget"),
    ("budget", "set", WorkerManager, "setBudget"),
    ("budget", "remove", WorkerManager, "removeBudget"),
    ("override", "list", WorkerManager, "listOverrides"),
    ("override", "show", WorkerManager, "override"),
    ("override", "set", WorkerManager, "setOverride"),
    ("override", "remove", WorkerManager, "removeOverride"),
    ("task", "status", Queue, "status"),
    ("task", "cancel", Queue, "cancelTask"),
    ("task", "rerun", Queue, "rerunTask"),
    ("provider", "list", Fleetwright, "listProviderStates"),
    ("process", "list", Fleetwright, "listProcesses"),
    ("client", "list", Auth, "listClients"),
    ("client", "show", Auth, "client"),
    ("client", "enable", Auth, "enableClient"),
    ("client", "disable", Auth, "disableClient"),
    ("client", "delete", Auth, "deleteClient"),
    ("secret", "delete", Secrets, "remove"),
    ("role", "list", Auth, "listRoles2"),
    ("role", "show", Auth, "role"),
    ("role", "create", Auth, "createRole"),
    ("role", "delete", Auth, "deleteRole"),
    ("scope", "current", Auth, "currentScopes"),
    ("scope", "expand", Auth, "expandScopes"),
    ("audit", "show", Auth, "getEntityHistory"),
];

/// Terms of the API and their equivalents on the command line.
const TRANSLATIONS: &[(&str, &str)] = &[
    ("Worker pools", "Pools"),
    ("Worker pool", "Pool"),
    ("worker pool", "pool"),
    ("begins with `prefix`", "begins with the text of --prefix"),
    ("; in pages if `limit` is given", ""),
    ("`includeArchived=true`", "--archived"),
    ("`includeEnded=true`", "--ended"),
    ("`updateWorker`", "`fleetwright worker update`"),
];

/// Adds the endpoint's title and description to each command that makes one API call.
pub(crate) fn with_api_texts(command: Command) -> Command {
    CALLS
        .iter()
        .fold(command, |command, (noun, verb, service, name)| {
            let endpoint = find(*service, name);
            command.mut_subcommand(noun, |noun| {
                noun.mut_subcommand(verb, |verb| {
                    let title = translate(endpoint.title);
                    let description = translate(endpoint.description);
                    let long = format!("{title}\n\n{description}");
                    verb.about(title).long_about(long)
                })
            })
        })
}

fn translate(text: &str) -> String {
    TRANSLATIONS
        .iter()
        .fold(text.to_owned(), |text, (api, command_line)| {
            text.replace(api, command_line)
        })
}

fn find(service: Service, name: &str) -> &'static Endpoint {
    endpoints()
        .iter()
        .find(|endpoint| endpoint.service == service && endpoint.name == name)
        .expect("a test asks for the help of every command")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_command_has_help() {
        let command = cli::command();
        for noun in command.get_subcommands() {
            assert!(noun.get_about().is_some(), "{}", noun.get_name());
            for verb in noun.get_subcommands() {
                let about = verb
                    .get_about()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let name = format!("{} {}", noun.get_name(), verb.get_name());
                assert!(!about.is_empty(), "{name}");
                // The comments of shared argument groups must not become a command's help.
                for common in ["Maximum number", "Consent", "An item"] {
                    assert!(!about.starts_with(common), "{name}: {about}");
                }
            }
        }
    }

    #[test]
    fn help_does_not_mention_query_parameters_and_endpoints() {
        let command = cli::command();
        let verbs = command.get_subcommands().flat_map(Command::get_subcommands);
        for verb in verbs {
            let about = verb.get_long_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            let words = about.split('`').skip(1).step_by(2);
            for word in words {
                let is_command = word == "up" || word.starts_with("fleetwright ");
                assert!(
                    is_command || word.contains(' '),
                    "{}: {word}",
                    verb.get_name()
                );
            }
        }
    }

    #[test]
    fn command_definitions_are_consistent() {
        cli::command().debug_assert();
    }
}
