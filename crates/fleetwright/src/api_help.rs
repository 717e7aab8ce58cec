//! Help for the commands that make one API call: taken from the endpoint table.

use clap::Command;
use server::api::endpoint::{Endpoint, Service};
use server::api::endpoints;

/// Command group, command, service, endpoint.
const CALLS: &[(&str, &str, Service, &str)] = &[
    ("pool", "list", Service::WorkerManager, "listWorkerPools"),
    ("pool", "show", Service::WorkerManager, "workerPool"),
    ("pool", "create", Service::WorkerManager, "createWorkerPool"),
    ("pool", "delete", Service::WorkerManager, "deleteWorkerPool"),
    (
        "pool",
        "errors",
        Service::WorkerManager,
        "listWorkerPoolErrors",
    ),
    (
        "launch-config",
        "list",
        Service::WorkerManager,
        "listWorkerPoolLaunchConfigs",
    ),
    (
        "worker",
        "list",
        Service::WorkerManager,
        "listWorkersForWorkerPool",
    ),
    ("pool", "runs", Service::WorkerManager, "workerPoolState"),
    ("worker", "runs", Service::WorkerManager, "workerState"),
    ("worker", "show", Service::WorkerManager, "worker"),
    ("worker", "create", Service::WorkerManager, "createWorker"),
    ("worker", "remove", Service::WorkerManager, "removeWorker"),
    (
        "worker",
        "should-terminate",
        Service::WorkerManager,
        "shouldWorkerTerminate",
    ),
    (
        "error",
        "list",
        Service::WorkerManager,
        "listWorkerPoolErrors",
    ),
    (
        "error",
        "stats",
        Service::WorkerManager,
        "workerPoolErrorStats",
    ),
    (
        "documentation",
        "list",
        Service::WorkerManager,
        "documentationIndex",
    ),
    ("override", "list", Service::WorkerManager, "listOverrides"),
    ("override", "show", Service::WorkerManager, "override"),
    ("override", "set", Service::WorkerManager, "setOverride"),
    (
        "override",
        "remove",
        Service::WorkerManager,
        "removeOverride",
    ),
    ("task", "status", Service::Queue, "status"),
    ("task", "cancel", Service::Queue, "cancelTask"),
    ("provider", "list", Service::WorkerManager, "listProviders"),
    ("client", "list", Service::Auth, "listClients"),
    ("client", "show", Service::Auth, "client"),
    ("client", "enable", Service::Auth, "enableClient"),
    ("client", "disable", Service::Auth, "disableClient"),
    ("client", "delete", Service::Auth, "deleteClient"),
    ("role", "list", Service::Auth, "listRoles2"),
    ("role", "show", Service::Auth, "role"),
    ("role", "create", Service::Auth, "createRole"),
    ("role", "delete", Service::Auth, "deleteRole"),
    ("scope", "current", Service::Auth, "currentScopes"),
    ("scope", "expand", Service::Auth, "expandScopes"),
    ("audit", "show", Service::Auth, "getEntityHistory"),
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
                for common in ["Maximum number", "Consent"] {
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
