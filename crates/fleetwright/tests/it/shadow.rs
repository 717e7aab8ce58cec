//! `explain pool --shadow`: a pool is compared with its shadow.

use crate::world::Server;

#[test]
fn a_pool_is_compared_with_its_shadow() {
    let server = Server::start();
    let config = |strategies: &str| {
        let text = format!(
            r#"{{"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [], "lifecycle": {{}}{strategies}}}"#
        );
        server.home.write("watched.json", &text)
    };
    let file = format!("@{}", config(""));
    let owner = ["--owner", "a@example.com"];
    let create = ["pool", "create", "demo/cloud", "--provider", "fake"];
    server.ok(&[&create[..], &owner, &["--config", &file]].concat());
    let explain = ["explain", "pool", "demo/cloud"];
    let told = server.ok(&explain);
    assert!(told.contains("  strategy: "), "{told}");
    let told = server.ok(&[&explain[..], &["--shadow"]].concat());
    assert!(told.contains("no shadow strategy"), "{told}");
    assert!(told.contains("No decisions yet."), "{told}");

    config(r#", "strategy": "weighted", "shadowStrategy": "balanced""#);
    server.ok(&["pool", "update", "demo/cloud", "--config", &file]);
    let told = server.ok(&[&explain[..], &["--shadow"]].concat());
    assert!(
        told.contains("strategy: weighted, chosen by the pool"),
        "{told}"
    );
    assert!(
        told.contains("shadow strategy: balanced, chosen by the pool"),
        "{told}"
    );
    assert!(told.contains("balanced (shadow)"), "{told}");
    let json = server.json(&[&explain[..], &["--shadow"]].concat());
    assert_eq!(json["shadow"]["name"], "balanced");
    assert_eq!(json["now"]["agreement"], "same");

    let both = server.run(&[&explain[..], &["--shadow", "--plan", "1"]].concat());
    assert_eq!(both.code, 2, "{}", both.err);
    let none = server.run(&["explain", "pool", "demo/none", "--shadow"]);
    assert_eq!(none.code, 3, "{}", none.err);
    config(r#", "shadowStrategy": "cheapest""#);
    let bad = server.run(&["pool", "update", "demo/cloud", "--config", &file]);
    assert_ne!(bad.code, 0);
    assert!(
        bad.err
            .contains("shadowStrategy: \"cheapest\" is not a strategy"),
        "{}",
        bad.err
    );
}
