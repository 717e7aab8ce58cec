//! Configuration as code: errors and conflicts of plans, and saved plans.

use crate::code::{apply, plan};
use crate::world::{Done, Home, Server};

const SHOP: &str = "[providers.local]\nkind = \"static\"\n\n[providers.shop]\nkind = \"fake\"\nplaces = [{ region = \"r1\" }]\n";
const BUYER: &str = r#"
workerConfigurationId: buyer
workerTypes: [demo/bought]
rules:
  - ruleId: r
    values:
      owner: o@example.com
      description: d
      maxCapacity: 4
      providers: { shop: {} }
      shop: { workerConfig: {} }
"#;

/// A server with a provider whose places the test defines.
fn shop() -> Server {
    let home = Home::new();
    let file = home.write("shop.toml", SHOP);
    Server::start_in(home, &["--config", &file])
}

#[test]
fn a_saved_plan_is_refused_if_the_places_of_a_provider_changed() {
    let server = shop();
    let file = server.home.write("fleet/buyer.yaml", BUYER);
    let saved = server.home.path("plan.json");
    let saved = saved.to_str().unwrap();
    server.ok(&["plan", "-f", &file, "--out", saved]);
    let address = server.root_url();
    let (_, home) = server.terminate();
    let places = "places = [{ region = \"r1\" }, { region = \"r2\" }]";
    let text = SHOP.replace("places = [{ region = \"r1\" }]", places);
    let config = home.write("shop.toml", &text);
    let server = Server::start_in(home, &["--config", &config]);
    // The same server, but for its port.
    let plan = server.home.read("plan.json");
    server
        .home
        .write("plan.json", &plan.replace(&address, &server.root_url()));
    let refused = server.run(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    for part in [
        "nothing was changed",
        "worker configuration buyer would have other effects than planned",
        "now: + provider=shop, region=r2: lc-",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_eq!(server.run(&["rules", "show", "buyer"]).code, 3);
}

#[test]
fn a_saved_plan_takes_over_only_pools_that_existed_when_it_was_made() {
    let server = shop();
    let file = server.home.write("fleet/buyer.yaml", BUYER);
    let saved = server.home.path("plan.json");
    let saved = saved.to_str().unwrap();
    let by_hand = |verb: &str, owner: &str| {
        let named = ["pool", verb, "demo/bought", "--owner", owner];
        server.ok(&[&named[..], &["--provider", "local"]].concat());
    };
    let adopting = ["plan", "-f", &file, "--adopt-pools", "--out", saved];
    let refused = |said: &str| {
        let refused = server.run(&["apply", "--plan", saved, "--yes"]);
        assert_eq!(refused.code, 5, "{}", refused.err);
        assert!(refused.err.contains(said), "{}", refused.err);
        assert_eq!(server.run(&["rules", "show", "buyer"]).code, 3);
    };
    server.ok(&adopting);
    by_hand("create", "one@example.com");
    refused("pool demo/bought, which worker configuration buyer takes over, was created by hand");
    let shown = server.ok(&adopting);
    let told = "pool demo/bought: created by hand, taken over";
    assert!(shown.contains(told), "{shown}");
    by_hand("update", "two@example.com");
    refused("takes over, was changed by another client");
    server.ok(&adopting);
    server.ok(&["apply", "--plan", saved, "--yes"]);
    let repeated = server.ok(&["apply", "--plan", saved, "--yes"]);
    assert!(
        repeated.ends_with("nothing to do: 1 already done\n"),
        "{repeated}"
    );
}

#[test]
fn a_pool_of_a_configuration_is_replaced_by_hand_in_one_apply() {
    for is_removed in [true, false] {
        let server = shop();
        server.home.write(
            "fleet/owns.yaml",
            "owns: { workerConfigurations: ['*'], workerPools: ['*'] }\n",
        );
        let file = server.home.write("fleet/buyer.yaml", BUYER);
        let folder = server.home.path("fleet");
        let folder = folder.to_str().unwrap();
        assert_eq!(apply(&server, folder).code, 0);
        if is_removed {
            std::fs::remove_file(&file).unwrap()
        } else {
            std::fs::write(&file, BUYER.replace("[demo/bought]", "[]")).unwrap()
        }
        let by_hand = "workerPoolId: demo/bought\nproviderId: local\nowner: me@example.com\n";
        server.home.write("fleet/hand.yaml", by_hand);
        let saved = server.home.path("plan.json");
        let saved = saved.to_str().unwrap();
        server.ok(&["plan", "-f", folder, "--out", saved]);
        let done = server.run(&["apply", "--plan", saved, "--yes"]);
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(
            server.json(&["pool", "show", "demo/bought"])["providerId"],
            "local"
        );
        assert_eq!(plan(&server, folder, &["--check"]).code, 0);
    }
}

#[test]
fn configurations_cannot_exchange_worker_types_in_one_apply() {
    let server = shop();
    let both = |one: &str, two: &str| {
        for (id, types) in [("one", one), ("two", two)] {
            let text = BUYER.replace("buyer", id).replace("demo/bought", types);
            server.home.write(&format!("fleet/{id}.yaml"), &text);
        }
    };
    both("a/x", "a/y");
    let folder = server.home.path("fleet");
    let folder = folder.to_str().unwrap();
    assert_eq!(apply(&server, folder).code, 0);
    both("a/y", "a/x");
    let refused = plan(&server, folder, &[]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(
        refused.err.contains("neither two nor one has a/y"),
        "{}",
        refused.err
    );
    // The hint resolves the conflict.
    both("", "");
    server.ok(&["apply", "-f", folder, "--yes"]);
    both("a/y", "a/x");
    assert_eq!(apply(&server, folder).code, 0);
}

#[test]
fn the_plan_reports_what_the_server_would_refuse() {
    let server = shop();
    let file = |text: &str| server.home.write("fleet/one.yaml", text);
    let refused = |text: &str, code: i32, said: &str| {
        let refused = plan(&server, &file(text), &[]);
        assert_eq!(refused.code, code, "{text}: {}", refused.err);
        assert!(refused.err.contains(said), "{}", refused.err);
    };
    let pool = "workerPoolId: a/b\nowner: o@example.com\nproviderId: ";
    refused(
        &format!("{pool}nosuch\n"),
        1,
        "unknown provider \"nosuch\"; the server has ",
    );
    refused(
        &format!("{pool}local\nconfig: {{ x: 1 }}\n"),
        1,
        "must NOT have additional properties: \"x\"",
    );
    refused(
        "clientId: static/owner\nexpires: 2040-01-01T00:00:00Z\n",
        2,
        "static/",
    );
    let pause = "overrideId: o\nregion: r\nreason: r\nuntil: 2099-01-01T00:00:00Z\n";
    refused(&format!("{pause}pause: true\n"), 2, "90 days");

    let launch_config = |memory: u32| {
        format!(
            "{pool}shop\nconfig:\n  minCapacity: 0\n  maxCapacity: 1\n  launchConfigs:\n    - {{ region: r1, stock: {memory}, workerConfig: {{}}, \
            workerManager: {{ launchConfigId: mine }} }}\n"
        )
    };
    let applied = apply(&server, &file(&launch_config(1)));
    assert_eq!(applied.code, 0, "{}", applied.err);
    refused(&launch_config(2), 5, "another launchConfigId, or none");
}

#[test]
fn apply_does_not_remove_its_own_client() {
    let server = shop();
    let made = server.json(&[
        "client",
        "create",
        "team/ci",
        "--expires",
        "1d",
        "--scope",
        "*",
    ]);
    let text = "owns: { clients: ['team/*'] }\nroles: []\n";
    let file = server.home.write("fleet/owns.yaml", text);
    let as_itself = |verb: &str| {
        let mut command = server.command(&[verb, "-f", &file]);
        command.env("TASKCLUSTER_CLIENT_ID", "team/ci").env(
            "TASKCLUSTER_ACCESS_TOKEN",
            made["accessToken"].as_str().unwrap(),
        );
        Done::of(command.output().unwrap())
    };
    for verb in ["plan", "apply"] {
        let refused = as_itself(verb);
        assert_eq!(refused.code, 5, "{}", refused.err);
        assert!(
            refused.err.contains("this command uses its credentials"),
            "{}",
            refused.err
        );
    }
    assert_eq!(apply(&server, &file).code, 0);
    assert_eq!(server.run(&["client", "show", "team/ci"]).code, 3);
}

/// Files with a configuration that defines demo/bought, a pool created by hand, and an override.
fn with_override(server: &Server, about: &str) -> String {
    server.home.write("fleet/buyer.yaml", BUYER);
    let by_hand = "workerPoolId: demo/hand\nproviderId: shop\nowner: me@example.com\nconfig:\n  minCapacity: 0\n  maxCapacity: 1\n  \
                   launchConfigs: [{ region: r1, workerConfig: {}, workerManager: { launchConfigId: mine } }]\n";
    server.home.write("fleet/hand.yaml", by_hand);
    let text = format!(
        "overrideId: o\n{about}\npause: true\nreason: r\nuntil: {}\n",
        soon(server)
    );
    server.home.write("fleet/override.yaml", &text);
    server.home.path("fleet").to_str().unwrap().to_owned()
}

/// A time after the end of all tests, by the clock of the server.
fn soon(server: &Server) -> String {
    let set = ["override", "set", "clock", "--region", "none", "--pause"];
    let set = [&set[..], &["--until", "2d", "--reason", "r"]].concat();
    server.json(&set)["until"].as_str().unwrap().to_owned()
}

#[test]
fn the_target_of_an_override_exists_or_is_created_by_the_same_plan() {
    let server = shop();
    for (about, said) in [
        (
            "workerPoolId: demo/nosuch",
            "pool demo/nosuch does not exist",
        ),
        (
            "workerPoolId: demo/bought\nlaunchConfigId: lc-nosuch",
            "pool demo/bought has no launch config lc-nosuch",
        ),
        (
            "workerPoolId: demo/hand\nlaunchConfigId: lc-nosuch",
            "pool demo/hand has no launch config lc-nosuch",
        ),
    ] {
        let folder = with_override(&server, about);
        let refused = plan(&server, &folder, &[]);
        assert_eq!(refused.code, 1, "{about}: {}{}", refused.out, refused.err);
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
    for about in [
        "workerPoolId: demo/bought",
        "workerPoolId: demo/hand\nlaunchConfigId: mine",
    ] {
        let folder = with_override(&server, about);
        let planned = plan(&server, &folder, &[]);
        assert_eq!(planned.code, 0, "{about}: {}", planned.err);
    }
    let folder = with_override(&server, "workerPoolId: demo/hand\nlaunchConfigId: mine");
    assert_eq!(apply(&server, &folder).code, 0);
    let listed = server.json(&["launch-config", "list", "demo/bought"]);
    let id = listed["launchConfigs"][0]["launchConfigId"].as_str();
    let about = format!("workerPoolId: demo/bought\nlaunchConfigId: {}", id.unwrap());
    let text = server.home.read("fleet/override.yaml");
    let text = text.replace("overrideId: o\n", "overrideId: another\n");
    let known = "workerPoolId: demo/hand\nlaunchConfigId: mine";
    server
        .home
        .write("fleet/another.yaml", &text.replace(known, &about));
    let applied = apply(&server, &folder);
    assert_eq!(applied.code, 0, "{}", applied.err);
}

#[test]
fn a_refused_plan_is_not_saved_and_not_reported_as_out_of_date() {
    let server = shop();
    let saved = server.home.path("plan.json");
    let saved = saved.to_str().unwrap();
    let file = server.home.write(
        "lost.yaml",
        "workerPoolId: demo/lost\nproviderId: nosuch\nowner: o@example.com\n",
    );
    let refused = server.run(&["plan", "-f", &file, "--out", saved]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(!server.home.path("plan.json").exists());

    let file = server.home.write("fleet/buyer.yaml", BUYER);
    server.ok(&["plan", "-f", &file, "--out", saved]);
    let mut plan: serde_json::Value = serde_json::from_str(&server.home.read("plan.json")).unwrap();
    plan["errors"] = serde_json::json!(["that makes no sense"]);
    server.home.write("plan.json", &plan.to_string());
    let refused = server.run(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    let said = "the plan cannot be applied: that makes no sense";
    assert!(refused.err.contains(said), "{}", refused.err);
}
