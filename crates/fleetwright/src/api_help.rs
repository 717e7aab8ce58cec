//! Help for the commands that are one call of the API: its own words, from the endpoint table.

use clap::Command;
use server::api::endpoint::{Endpoint, Service};
use server::api::endpoints;

/// Noun, verb, service, endpoint.
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

/// What the API calls by its own names, in the words of the command line.
const IN_OUR_WORDS: &[(&str, &str)] = &[
    (
        "whose id begins with `prefix`",
        "whose id begins with what --prefix gives",
    ),
    ("; in pages if `limit` is given", ""),
    ("with `includeArchived=true`", "with --archived"),
    ("with `includeEnded=true`", "with --ended"),
    (
        "Use `updateWorker` to change one",
        "`fleetwright worker update` changes one",
    ),
];

pub(crate) fn with_texts_of_api(command: Command) -> Command {
    CALLS
        .iter()
        .fold(command, |command, (noun, verb, service, name)| {
            let endpoint = find(*service, name);
            command.mut_subcommand(noun, |noun| {
                noun.mut_subcommand(verb, |verb| {
                    verb.about(endpoint.title).long_about(format!(
                        "{}\n\n{}",
                        endpoint.title,
                        in_our_words(endpoint)
                    ))
                })
            })
        })
}

fn in_our_words(endpoint: &Endpoint) -> String {
    IN_OUR_WORDS
        .iter()
        .fold(endpoint.description.to_owned(), |text, (theirs, ours)| {
            text.replace(theirs, ours)
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
    fn every_command_says_what_it_does() {
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
                // What is common to commands must not show through as their help.
                for common in ["How many items", "The consent"] {
                    assert!(!about.starts_with(common), "{name}: {about}");
                }
            }
        }
    }

    #[test]
    fn help_does_not_speak_of_parameters_and_endpoints() {
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
    fn the_definitions_of_the_commands_hold_together() {
        cli::command().debug_assert();
    }
}
