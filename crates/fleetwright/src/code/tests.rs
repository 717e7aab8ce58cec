//! Tests of plans made from files and the state of a server.

use std::collections::BTreeMap;

use domain::time::Timestamp;
use serde_json::{Value, json};

use super::change::{Action, Plan};
use super::definitions::{Definitions, worker_types};
use super::kind::Kind;
use super::read;
use super::server::{ServerItem, ServerState};
use super::show;
use super::style::Style;

const STYLE: Style = Style {
    in_colour: false,
    in_full: false,
};

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn now() -> Timestamp {
    "2029-12-01T00:00:00Z".parse().unwrap()
}

fn definitions(files: &[(&str, &str)]) -> Definitions {
    let folder = folder(files);
    read::read(&[folder.path().to_owned()], now()).unwrap()
}

/// The errors in these files, without the name of the folder.
fn refused(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    let paths = [folder.path().to_owned()];
    let message = read::read(&paths, now()).unwrap_err().message;
    message.replace(&format!("{}/", folder.path().display()), "")
}

fn server_state(items: &[(Kind, &str, Value)]) -> ServerState {
    let mut server_state = ServerState::default();
    for (kind, id, content) in items {
        let version = (*kind == Kind::WorkerConfiguration).then_some(1);
        if version.is_some() {
            let pools = worker_types(content).into_iter();
            server_state
                .compiled
                .extend(pools.map(|pool| (pool, (*id).to_owned())));
        }
        let stored = ServerItem {
            content: content.clone(),
            version,
        };
        server_state.items.insert((*kind, (*id).to_owned()), stored);
    }
    server_state
}

fn role(scopes: &[&str]) -> Value {
    json!({"description": "", "scopes": scopes})
}

fn pool(provider: &str) -> Value {
    json!({"providerId": provider, "description": "", "owner": "o@example.com",
        "emailOnError": false, "config": {}})
}

fn configuration(worker_types: &[&str]) -> Value {
    json!({"description": "", "workerTypes": worker_types, "rules": []})
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.changes
        .iter()
        .map(|change| {
            let action = match change.action {
                Action::Create => "create",
                Action::Update => "update",
                Action::Remove => "remove",
            };
            format!("{action} {}", change.title())
        })
        .collect()
}

#[test]
fn lists_and_single_things_in_all_formats_make_one_fleet() {
    let definitions = definitions(&[
        (
            "a.yaml",
            "roles:\n  - { roleId: one, scopes: [a] }\nclients: []\n",
        ),
        ("sub/b.json", r#"{"roleId": "two", "scopes": []}"#),
        (
            "sub/c.toml",
            "workerPoolId = \"a/b\"\nproviderId = \"p\"\nowner = \"o@example.com\"\n",
        ),
        ("d.yml", "# nothing yet\n"),
        (".hidden.yaml", "nonsense: 1\n"),
        ("README.md", "# not ours\n"),
    ]);
    let names: Vec<_> = definitions
        .items
        .keys()
        .map(|(_, id)| id.as_str())
        .collect();
    assert_eq!(names, ["one", "two", "a/b"]);
    let pool = &definitions.items[&(Kind::WorkerPool, "a/b".to_owned())];
    assert!(pool.place.ends_with("c.toml"));
    assert_eq!(pool.content["config"], json!({}));
}

#[test]
fn each_error_has_its_file_and_path() {
    let refused = refused(&[
        ("a.yaml", "pools: []\nroles: { x: 1 }\nclients: [1]\n"),
        (
            "b.yaml",
            "roles:\n  - { roleId: r, scope: [] }\n  - { roleId: r, scopes: [1] }\n  - { scopes: [] }\n",
        ),
        ("c.yaml", "roles: [{ roleId: ok, scopes: [] }]\n"),
        ("d.yaml", "roles: [{ roleId: ok, scopes: [] }]\n"),
        ("e.yaml", "clientId: c\nexpires: soon\naccessToken: x\n"),
        ("f.yaml", "clientId: c\nexpires: soon\n"),
        ("g.yaml", "workerPoolId: Nonsense\n"),
        (
            "h.yaml",
            "workerConfigurationId: w\nworkerTypes: [a, a]\nrules: [{ ruleId: x, values: 1 }]\n",
        ),
        ("i.yaml", "a: [\n"),
        ("j.json", "[]"),
        ("l.yaml", "clientId: d\n"),
        (
            "m.yaml",
            "clientId: static/owner\nexpires: 2030-01-01T00:00:00Z\n",
        ),
        (
            "k.yaml",
            "overrides:\n  - { overrideId: o, until: 2030-01-01T00:00:00Z, reason: r, pause: true }\n  - { overrideId: p, until: 2030-01-01T00:00:00Z, reason: r, region: x, pause: true, maxCapacity: 1 }\n",
        ),
    ]);
    insta::assert_snapshot!(refused, @r#"
    a.yaml:3: /clients/0: must be a mapping
    a.yaml:1: /pools: unknown key; a file has any of the lists roles, clients, images, workerConfigurations, workerPools, overrides, budgets, or one item with its roleId or clientId or imageId or workerConfigurationId or workerPoolId or overrideId or budgetId
    a.yaml:2: /roles: must be a list
    b.yaml:2: /roles/0/scope: a role has no such key; it has roleId, description, scopes
    b.yaml:3: /roles/1/scopes/0: role r: must be string
    b.yaml:4: /roles/2: roleId is missing
    d.yaml:1: /roles/0: role ok is already defined in c.yaml: /roles/0
    e.yaml:3: /accessToken: access tokens must not be in files
    f.yaml:2: /expires: client c: must match format "date-time"
    g.yaml:1: /workerPoolId: "Nonsense" is not a worker pool id: it must match ^[a-zA-Z0-9-_]{1,38}\/[a-z]([-a-z0-9]{0,36}[a-z0-9])?$
    h.yaml:2: /workerTypes/1: worker configuration w: `a` is listed twice
    h.yaml:3: /rules/0/values: worker configuration w: rule "x": values are a mapping, found a number
    i.yaml:1:4: not valid YAML: unclosed bracket '['
    j.json: must be a mapping: any of the lists roles, clients, images, workerConfigurations, workerPools, overrides, budgets, or one item with its roleId or clientId or imageId or workerConfigurationId or workerPoolId or overrideId or budgetId
    k.yaml:2: /overrides/0: override o: needs one target: a workerPoolId (optionally with a launchConfigId), a workerConfigurationId, a providerId or a region
    k.yaml:3: /overrides/1: override p: needs one effect: pause: true, or minCapacity, maxCapacity or both
    l.yaml: client d: must have required property 'expires'
    m.yaml:1: /clientId: clients whose names begin with static/ are defined in the server's configuration
    "#);
}

#[test]
fn overrides_that_have_ended_are_left_out() {
    let mut definitions = definitions(&[(
        "a.yaml",
        "overrides:\n  - { overrideId: old, until: 2020-01-01T00:00:00Z, reason: r, region: x, pause: true }\n  - { overrideId: new, until: 2030-01-01T00:00:00Z, reason: r, workerPoolId: a/b, maxCapacity: 1 }\n",
    )]);
    let ended = definitions.without_ended(now());
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].0, "old");
    let plan = Plan::new(&definitions, &ServerState::default(), true);
    assert_eq!(steps(&plan), ["create override new"]);
}

#[test]
fn an_override_by_itself_is_not_taken_for_the_pool_that_it_names() {
    let text =
        "overrideId: o\nworkerPoolId: a/b\npause: true\nreason: r\nuntil: 2030-01-01T00:00:00Z\n";
    let definitions = definitions(&[("a.yaml", text)]);
    assert!(
        definitions
            .items
            .contains_key(&(Kind::Override, "o".to_owned()))
    );
}

#[test]
fn a_pool_cannot_be_made_twice_over() {
    let refused = refused(&[
        (
            "a.yaml",
            "workerConfigurationId: one\nworkerTypes: [x]\nrules: []\n",
        ),
        (
            "b.yaml",
            "workerConfigurationId: two\nworkerTypes: [worker-manager/x]\nrules: []\n",
        ),
        (
            "c.yaml",
            "workerPoolId: worker-manager/x\nproviderId: p\nowner: o@example.com\n",
        ),
    ]);
    insta::assert_snapshot!(refused, @r"
    b.yaml: worker configuration two defines pool worker-manager/x, and so does worker configuration one in a.yaml
    c.yaml: it defines pool worker-manager/x, and so does worker configuration one in a.yaml
    ");
}

#[test]
fn a_folder_cannot_define_items_that_it_does_not_own() {
    let refused = refused(&[
        ("owns.yaml", "owns: { roles: [\"team:*\"] }\n"),
        (
            "a.yaml",
            "roles: [{ roleId: other }, { roleId: \"team:x\" }]\n",
        ),
    ]);
    assert_eq!(
        refused,
        "a.yaml:1: /roles/0: role other is not owned: owns lists team:* for roles"
    );
    let refused = self::refused(&[("a.yaml", "owns: {}\n"), ("b.yaml", "owns: {}\n")]);
    assert_eq!(
        refused,
        "b.yaml:1: /owns: already in a.yaml; only one file of a folder may have it"
    );
}

#[test]
fn only_what_differs_is_done() {
    let definitions = definitions(&[(
        "a.yaml",
        "roles: [{ roleId: same, scopes: [b, a] }, { roleId: other, scopes: [x] }, { roleId: new }]\n",
    )]);
    let server_state = server_state(&[
        (Kind::Role, "same", role(&["a", "b"])),
        (Kind::Role, "other", role(&["y"])),
        (Kind::Role, "theirs", role(&[])),
    ]);
    let plan = Plan::new(&definitions, &server_state, true);
    assert_eq!(steps(&plan), ["create role new", "update role other"]);
    assert_eq!(plan.same, BTreeMap::from([(Kind::Role, 1)]));
    insta::assert_snapshot!(show::lines(&plan, STYLE).join("\n"), @r#"
    + role new (0 scopes)
    ~ role other
        - /scopes: "y"
        + /scopes: "x"
    "#);
}

#[test]
fn only_owned_items_without_a_definition_are_removed() {
    let definitions = definitions(&[
        (
            "owns.yaml",
            "owns: { roles: [\"team:*\"], workerPools: [\"x/*\"], clients: [\"*\"] }\n",
        ),
        ("a.yaml", "roles: [{ roleId: \"team:a\" }]\n"),
    ]);
    let client = json!({"description": "", "scopes": [], "expires": "2030-01-01T00:00:00.000Z"});
    let server_state = server_state(&[
        (Kind::Role, "team:a", role(&[])),
        (Kind::Role, "team:old", role(&[])),
        (Kind::Role, "other", role(&[])),
        (Kind::WorkerPool, "x/old", pool("p")),
        (Kind::WorkerPool, "x/going", pool("null-provider")),
        (Kind::WorkerPool, "x/compiled", pool("p")),
        (Kind::WorkerPool, "y/theirs", pool("p")),
        (
            Kind::WorkerConfiguration,
            "theirs",
            configuration(&["x/compiled"]),
        ),
        (Kind::Client, "old", client.clone()),
        (Kind::Client, "static/owner", client),
    ]);
    let removed = [
        "remove pool x/old",
        "remove client old",
        "remove role team:old",
    ];
    assert_eq!(
        steps(&Plan::new(&definitions, &server_state, true)),
        removed
    );
    assert!(
        Plan::new(&definitions, &server_state, false)
            .changes
            .is_empty()
    );
}

#[test]
fn roles_and_clients_come_first_and_removals_last() {
    let definitions = definitions(&[
        (
            "owns.yaml",
            "owns: { roles: [\"*\"], clients: [\"*\"], workerConfigurations: [\"*\"], workerPools: [\"*\"] }\n",
        ),
        (
            "a.yaml",
            "workerPools: [{ workerPoolId: a/b, providerId: p, owner: o@example.com }]\nclients: [{ clientId: c, expires: 2030-01-01T00:00:00Z }]\n",
        ),
        (
            "b.yaml",
            "workerConfigurationId: new\nworkerTypes: [x]\nrules: []\n",
        ),
        ("c.yaml", "roles: [{ roleId: r }]\n"),
    ]);
    let server_state = server_state(&[
        (Kind::Role, "old", role(&[])),
        (Kind::WorkerPool, "a/old", pool("p")),
        (Kind::WorkerConfiguration, "old", configuration(&["y"])),
    ]);
    assert_eq!(
        steps(&Plan::new(&definitions, &server_state, true)),
        [
            "create role r",
            "create client c",
            "create worker configuration new",
            "create pool a/b",
            "remove pool a/old",
            "remove worker configuration old",
            "remove role old",
        ]
    );
}

#[test]
fn a_configuration_gives_up_a_worker_type_before_another_gets_it() {
    let definitions = definitions(&[
        ("owns.yaml", "owns: { workerConfigurations: [\"*\"] }\n"),
        (
            "a.yaml",
            "workerConfigurations:\n  - { workerConfigurationId: a, workerTypes: [x], rules: [] }\n  - { workerConfigurationId: b, workerTypes: [y], rules: [] }\n  - { workerConfigurationId: c, workerTypes: [], rules: [] }\n  - { workerConfigurationId: d, workerTypes: [z], rules: [] }\n",
        ),
    ]);
    let server_state = server_state(&[
        (Kind::WorkerConfiguration, "a", configuration(&[])),
        (Kind::WorkerConfiguration, "b", configuration(&["x"])),
        (Kind::WorkerConfiguration, "c", configuration(&["y"])),
        (Kind::WorkerConfiguration, "gone", configuration(&["z"])),
    ]);
    assert_eq!(
        steps(&Plan::new(&definitions, &server_state, true)),
        [
            "update worker configuration c",
            "update worker configuration b",
            "update worker configuration a",
            "remove worker configuration gone",
            "create worker configuration d",
        ]
    );
}

#[test]
fn a_pool_that_a_configuration_makes_is_not_made_by_hand() {
    let definitions = definitions(&[(
        "a.yaml",
        "workerPoolId: a/b\nproviderId: p\nowner: o@example.com\n",
    )]);
    let server_state = server_state(&[
        (Kind::WorkerPool, "a/b", pool("q")),
        (Kind::WorkerConfiguration, "w", configuration(&["a/b"])),
    ]);
    let plan = Plan::new(&definitions, &server_state, true);
    assert_eq!(plan.conflicts.len(), 1, "{:?}", plan.conflicts);
    assert!(
        plan.conflicts[0].contains("worker configuration w"),
        "{}",
        plan.conflicts[0]
    );
}

#[test]
fn a_pool_that_a_configuration_gives_up_is_made_by_hand_after_that() {
    let definitions = definitions(&[
        (
            "owns.yaml",
            "owns: { workerConfigurations: [\"*\"], workerPools: [\"*\"] }\n",
        ),
        (
            "a.yaml",
            "workerPools: [{ workerPoolId: a/b, providerId: p, owner: o@example.com }]\n",
        ),
    ]);
    // Even if it looks right now: the server deletes it with the configuration.
    for provider in ["p", "q"] {
        let server_state = server_state(&[
            (Kind::WorkerPool, "a/b", pool(provider)),
            (Kind::WorkerConfiguration, "w", configuration(&["a/b"])),
        ]);
        let plan = Plan::new(&definitions, &server_state, true);
        let expected = ["remove worker configuration w", "update pool a/b"];
        assert_eq!(steps(&plan), expected, "{provider}");
        assert_eq!((plan.conflicts.len(), plan.n_same()), (0, 0));
    }
}

#[test]
fn configurations_that_exchange_worker_types_are_a_conflict_with_a_way_out() {
    let configurations = |types: [&str; 4]| {
        let of = |(id, types): (&str, &str)| {
            format!("  - {{ workerConfigurationId: {id}, workerTypes: [{types}], rules: [] }}\n")
        };
        let listed = ["after", "m0", "m1", "other"].into_iter().zip(types);
        format!(
            "workerConfigurations:\n{}",
            listed.map(of).collect::<String>()
        )
    };
    let text = configurations(["w", "y", "x", "u"]);
    let definitions = definitions(&[("a.yaml", &text)]);
    let server_state = server_state(&[
        (Kind::WorkerConfiguration, "m0", configuration(&["x", "w"])),
        (Kind::WorkerConfiguration, "m1", configuration(&["y"])),
        (Kind::WorkerConfiguration, "other", configuration(&["v"])),
    ]);
    let plan = Plan::new(&definitions, &server_state, true);
    assert_eq!(
        plan.conflicts,
        [
            "worker configurations exchange worker types in a cycle: m0 waits for \
             worker-manager/y of m1, m1 waits for worker-manager/x of m0. Use two steps: first \
             apply files in which neither m1 nor m0 has worker-manager/y, then these"
        ]
    );
}
