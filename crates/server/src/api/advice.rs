//! Advice on refusals whose texts are those of Taskcluster, because programs compare them.
//!
//! All other refusals say it themselves (`crates/tidy/tests/it/refusals.rs`).

/// The commands that list what exists, by the parameter that names the missing thing. `{…}` stands
/// for another parameter; of several rows, the first whose parameters are all known counts.
const COMMANDS: &[(&str, &str)] = &[
    ("budgetId", "fleetwright budget list"),
    ("build", "fleetwright image show {imageId}"),
    ("clientId", "fleetwright client list"),
    ("entityId", "fleetwright audit list"),
    ("from", "fleetwright image history {imageId}"),
    ("from", "fleetwright rules history {workerConfigurationId}"),
    ("imageId", "fleetwright image list"),
    (
        "launchConfigId",
        "fleetwright launch-config list {workerPoolId}",
    ),
    (
        "launchConfigId",
        "fleetwright launch-config list {workerTypeId}",
    ),
    ("name", "fleetwright task artifacts {taskId}"),
    ("name", "fleetwright secret list"),
    ("owner", "fleetwright cost --by owner"),
    ("overrideId", "fleetwright override list"),
    ("providerId", "fleetwright provider list"),
    ("provisionerId", "fleetwright queue list"),
    ("relayId", "fleetwright relay list"),
    ("roleId", "fleetwright role list"),
    ("ruleId", "fleetwright rules show {workerConfigurationId}"),
    ("runId", "fleetwright task list"),
    ("taskGroupId", "fleetwright task list"),
    ("taskId", "fleetwright task list"),
    ("taskQueueId", "fleetwright queue list"),
    ("to", "fleetwright image history {imageId}"),
    ("to", "fleetwright rules history {workerConfigurationId}"),
    ("version", "fleetwright image history {imageId}"),
    (
        "version",
        "fleetwright rules history {workerConfigurationId}",
    ),
    ("workerConfigurationId", "fleetwright rules list"),
    ("workerGroup", "fleetwright worker list {workerPoolId}"),
    (
        "workerGroup",
        "fleetwright worker list {provisionerId}/{workerType}",
    ),
    ("workerId", "fleetwright worker list {workerPoolId}"),
    (
        "workerId",
        "fleetwright worker list {provisionerId}/{workerType}",
    ),
    ("workerPoolId", "fleetwright pool list"),
    ("workerType", "fleetwright queue list"),
    ("workerTypeId", "fleetwright rules list"),
];

/// The same by the beginning of the text, where the last parameter does not name the missing thing.
const NOUNS: &[(&str, &str)] = &[
    ("Image does not exist", "fleetwright image list"),
    ("Pool ", "fleetwright pool list"),
    ("Provider ", "fleetwright provider list"),
    ("Task not found", "fleetwright task list"),
    ("Worker Pool ", "fleetwright pool list"),
    ("Worker configuration ", "fleetwright rules list"),
    ("Worker pool ", "fleetwright pool list"),
];

/// By the beginning of the text.
const TEXTS: &[(&str, &str)] = &[
    (
        "Artifact expired",
        "Its file was deleted: rerun the task to make it again",
    ),
    (
        "Artifact leads to a link cycle",
        "Let the task link to an artifact with content",
    ),
    (
        "Client already exists",
        "Update it instead, or choose another client id",
    ),
    ("Expires must be in the future", "Send a later `expires`"),
    (
        "Clients and roles are kept by another service",
        "Ask that service, which `auth.taskcluster` of the configuration names",
    ),
    (
        "Incorrect ruleId in request body",
        "Send the id in the path, or none",
    ),
    (
        "Incorrect workerConfigurationId in request body",
        "Send the id in the path, or none",
    ),
    (
        "Incorrect workerPoolId in request body",
        "Send the id in the path, or none",
    ),
    (
        "Invalid Provider",
        "`fleetwright provider list` shows what exists: correct `providerId`, or configure the provider",
    ),
    (
        "Invalid continuation token",
        "Ask for the list again without `continuationToken`",
    ),
    (
        "Launch config with ID",
        "Leave `launchConfigId` out, or choose another id",
    ),
    (
        "Only object artifacts can be finished",
        "Nothing: this one was complete when its upload was answered",
    ),
    (
        "Provider backend may be down or misconfigured",
        "`fleetwright provider list` says why. Try again when the provider is in service",
    ),
    (
        "Role already exists",
        "Update it instead, or choose another role id",
    ),
    (
        "Run not found",
        "Name a run that `fleetwright task status` shows",
    ),
    (
        "Worker already exists",
        "Choose another name: a removed worker keeps its name until it expires",
    ),
    (
        "Worker pool already exists",
        "Update it instead, or choose another id",
    ),
];

/// The advice for a refusal, if its text has none.
pub(super) fn advice(
    is_missing: bool,
    text: &str,
    parameters: &[(&'static str, String)],
) -> Option<String> {
    let row = TEXTS
        .iter()
        .find(|(beginning, _)| text.starts_with(beginning));
    if let Some((_, advice)) = row {
        return Some((*advice).to_owned());
    }
    // A text with a command says more than a list.
    if !is_missing || text.contains("`fleetwright ") {
        return None;
    }
    let noun = NOUNS.iter().find(|(noun, _)| text.starts_with(noun));
    let command = match noun {
        Some((_, command)) => (*command).to_owned(),
        None => command(parameters)?,
    };
    Some(format!("`{command}` lists what exists"))
}

/// For the last parameter that a row knows.
fn command(parameters: &[(&'static str, String)]) -> Option<String> {
    let rows = |name: &'static str| COMMANDS.iter().filter(move |(of, _)| *of == name);
    let mut commands = parameters
        .iter()
        .rev()
        .flat_map(|(name, _)| rows(name))
        .map(|(_, template)| filled(template, parameters));
    commands.find_map(|command| command)
}

fn filled(template: &str, parameters: &[(&'static str, String)]) -> Option<String> {
    let filled = parameters
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        });
    (!filled.contains('{')).then_some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parameters: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        parameters.iter().map(owned).collect()
    }

    #[test]
    fn a_missing_thing_has_the_command_that_lists_others() {
        let worker = of(&[
            ("workerPoolId", "demo/x"),
            ("workerGroup", "here"),
            ("workerId", "w1"),
        ]);
        let missing = |text| advice(true, text, &worker);
        assert_eq!(
            missing("Worker not found").unwrap(),
            "`fleetwright worker list demo/x` lists what exists"
        );
        assert_eq!(
            missing("Worker pool demo/x does not exist").unwrap(),
            "`fleetwright pool list` lists what exists"
        );
        assert_eq!(missing("No w1 here: `fleetwright import` makes it"), None);
        assert_eq!(advice(false, "bad", &worker), None);
    }

    #[test]
    fn a_text_of_taskcluster_has_its_advice() {
        let said = advice(false, "Invalid Provider", &[]).unwrap();
        assert!(said.contains("fleetwright provider list"), "{said}");
    }

    #[test]
    fn a_command_has_no_empty_place() {
        let known = of(&[("imageId", "small"), ("version", "3")]);
        assert_eq!(command(&known).unwrap(), "fleetwright image history small");
        assert_eq!(command(&of(&[("version", "3")])), None);
    }

    #[test]
    fn every_endpoint_about_one_thing_has_a_command() {
        // Its parameters name no things of this server.
        let without = ["websocktunnelToken"];
        let mut n_commands = 0;
        for endpoint in super::super::endpoints() {
            let names = endpoint.route.split(['<', '>']).skip(1).step_by(2);
            let parameters: Vec<_> = names.map(|name| (name, "x".to_owned())).collect();
            if parameters.is_empty() || without.contains(&endpoint.name) {
                continue;
            }
            n_commands += 1;
            assert!(command(&parameters).is_some(), "{}", endpoint.route);
        }
        assert!(n_commands > 80, "{n_commands}");
    }
}
