//! Images in use: references in pools and rules, canaries, verdicts, and decisions of people.
//!
//! The builds are made up here; builders and the tree have their own tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::image::{BuildNumber, ImageDefinition, ImageRollout};
use engine::images::{
    ImageFacts, PersonalDecision, advance, refresh_pools, start_canary, use_build,
};
use serde_json::{Value, json};

use crate::ask::{Answer, Who};
use crate::configurations::refused;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, pool};
use crate::image_samples::{build, definition, referring};

const LINUX: &str = "fleetwright:/image/linux";

impl Fleet {
    /// A restricted image, a client that lacks its role, and a client that has it.
    async fn restricted_image(&self) -> (Who, Who, ImageDefinition) {
        let mut body = definition(&json!({}));
        body["usableBy"] = json!(["image-users"]);
        self.put(LINUX, body.clone()).await.expect(200);
        let own = ["worker-manager:*"];
        let other = self.client("people/one", &own).await;
        let user = self
            .client("people/two", &[own[0], "assume:image-users"])
            .await;
        (other, user, ImageDefinition::parse(&body).unwrap())
    }

    /// All calls that write or plan new pools with this image.
    async fn calls_with(&self, n: usize, image: &Value, by: &Who) -> Vec<(&'static str, Answer)> {
        let mut config = referring();
        config["image"] = image.clone();
        let of_pool = pool("one", 0, 10, &[config]);
        let values = json!({"owner": "o@example.com", "description": "d", "maxCapacity": 1,
            "providers": {"one": {}}, "one": {"workerConfig": {}, "image": image}});
        let rule = json!({"conditions": null, "description": "", "values": values});
        let mut in_list = rule.clone();
        in_list["ruleId"] = json!("all");
        let of_rules = json!({"description": "", "workerTypes": [format!("pp/rules{n}")],
            "rules": [in_list]});
        let (by_hand, rules) = (
            format!("pp%2Fbyhand{n}"),
            format!("/worker-configuration/c{n}"),
        );
        let plan = format!("/plan-worker-pool/{by_hand}");
        let by_hand = format!("/worker-pool/{by_hand}");
        let mut answers = Vec::new();
        for (title, call) in [
            ("plan a pool", self.post(&plan, of_pool.clone())),
            ("create a pool", self.put(&by_hand, of_pool.clone())),
            ("update a pool", self.post(&by_hand, of_pool)),
            (
                "plan rules",
                self.post(&format!("{rules}/plan"), of_rules.clone()),
            ),
            ("create rules", self.put(&rules, of_rules.clone())),
            ("update rules", self.post(&rules, of_rules)),
            (
                "replace a rule",
                self.post(&format!("{rules}/rule/all"), rule),
            ),
        ] {
            answers.push((title, call.by(by).await));
        }
        answers
    }

    pub(crate) async fn make_image(&self, canary: Value) -> ImageDefinition {
        let body = definition(&canary);
        self.put(LINUX, body.clone()).await.expect(200);
        ImageDefinition::parse(&body).unwrap()
    }

    /// The steps of the rollout while these builds exist, and the pools after it.
    pub(crate) async fn roll_out(
        &self,
        definition: &ImageDefinition,
        builds: &[u64],
    ) -> ImageRollout {
        let facts = self.facts(definition, builds).await;
        let rollout = advance(&self.app.engine, facts, self.now()).await.unwrap();
        let round = refresh_pools(&self.app.engine, |_| false).await.unwrap();
        assert!(round.failed.is_empty(), "{:?}", round.failed);
        rollout
    }

    pub(crate) async fn facts(
        &self,
        definition: &ImageDefinition,
        builds: &[u64],
    ) -> Arc<ImageFacts> {
        let image = definition.name.clone();
        let read = self.read(move |tx| store::image_rollouts::get(tx, &image));
        let standing = read.await.map(|rollout| rollout.standing);
        let builds = builds.iter().map(|number| build(self.now(), *number));
        Arc::new(ImageFacts {
            definition: definition.clone(),
            builds: builds.collect(),
            standing: standing.unwrap_or_default(),
        })
    }

    pub(crate) fn decision(&self, build: u64) -> PersonalDecision {
        PersonalDecision {
            build: BuildNumber(build),
            reason: "a person wants it".to_owned(),
            audit: domain::audit::AuditEntry {
                entity_type: domain::audit::EntityType::Image,
                entity_id: "linux".to_owned(),
                action: String::new(),
                client_id: "people/ops".to_owned(),
                created: self.now(),
                source_ip: None,
                request_id: None,
                detail: json!({}),
            },
        }
    }

    /// The active launch configs of the pool: image, build, and share of the canary.
    async fn launch_configs(&self) -> Vec<String> {
        let pool = self.get("/worker-pool/pp%2Fee").await.expect(200);
        let configs = pool["config"]["launchConfigs"].as_array().cloned();
        let text = |config: &Value| {
            let own = &config["workerManager"];
            let canary = own["canary"]["share"].as_f64();
            let canary = canary.map(|share| format!(" canary {share}"));
            let (image, build) = (&config["image"], &own["images"][0]["build"]);
            format!("{image} {build}{}", canary.unwrap_or_default())
        };
        configs.unwrap_or_default().iter().map(text).collect()
    }

    /// The outcomes of runs are known.
    async fn hear_of_runs(&self) {
        while !self.events().await.is_empty() {}
        while !self.read_outcomes().await.is_null() {}
    }

    /// The ids of the launch configs by image.
    async fn ids_by_image(&self) -> BTreeMap<String, String> {
        let pool = self.get("/worker-pool/pp%2Fee").await.expect(200);
        let configs = pool["config"]["launchConfigs"].as_array().cloned();
        let id = |config: &Value| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (
                text(&config["image"]),
                text(&config["workerManager"]["launchConfigId"]),
            )
        };
        configs.unwrap_or_default().iter().map(id).collect()
    }

    async fn steps(&self) -> Vec<String> {
        let rows = self.events().await;
        let steps = rows.iter().filter(|row| row.topic.contains("/image-"));
        let text = |row: &store::outbox::OutboxRow| {
            let name = row.topic.rsplit('/').next().unwrap();
            let payload: &Value = &row.payload;
            format!(
                "{name} {} {} by {}",
                row.routing_key, payload["build"], payload["by"]
            )
        };
        steps.map(text).collect()
    }
}

fleet_on_sqlite_first!(a_pool_waits_for_its_image_and_says_so, |fleet| {
    let definition = fleet.make_image(json!({})).await;
    fleet
        .make_pool(POOL, pool("one", 0, 10, &[referring()]))
        .await;
    assert_eq!(
        fleet.launch_configs().await,
        ["{\"$image\":\"linux\"} null"]
    );
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.workers_in(POOL, "requested").await, []);
    let explained = fleet
        .get("fleetwright:/explain/pool/pp%2Fee")
        .await
        .expect(200);
    let text = explained.to_string();
    assert!(
        text.contains("waits for image linux: no build of it is ready at one"),
        "{text}"
    );
    let rollout = fleet.roll_out(&definition, &[1]).await;
    assert_eq!(rollout.standing.promoted, Some(BuildNumber(1)));
    assert_eq!(fleet.launch_configs().await, ["\"disk-1\" 1"]);
    fleet.round().await;
    assert_eq!(fleet.workers_in(POOL, "requested").await.len(), 1);
    assert_eq!(
        fleet.steps().await,
        ["image-promoted primary.linux._ 1 by \"fleetwright\""]
    );
});

fleet_on_sqlite_first!(what_a_client_reads_can_be_written_back, |fleet| {
    let definition = fleet.make_image(json!({"share": 0.5})).await;
    fleet
        .make_pool(POOL, pool("one", 0, 10, &[referring()]))
        .await;
    fleet.roll_out(&definition, &[1]).await;
    fleet.roll_out(&definition, &[1, 2]).await;
    let expected = ["\"disk-1\" 1", "\"disk-2\" 2 canary 0.5"];
    assert_eq!(fleet.launch_configs().await, expected);
    let read = fleet.get("/worker-pool/pp%2Fee").await.expect(200);
    let mut written = pool("one", 0, 20, &[]);
    written["config"]["launchConfigs"] = read["config"]["launchConfigs"].clone();
    let ids = fleet.ids_by_image().await;
    fleet.change_pool(POOL, written).await;
    assert_eq!(fleet.launch_configs().await, expected);
    assert_eq!(fleet.ids_by_image().await, ids);
});

fleet_on_sqlite_first!(a_good_canary_is_promoted_and_its_machines_stay, |fleet| {
    let canary = json!({"share": 0.5, "minStarts": 3});
    let definition = fleet.make_image(canary).await;
    fleet
        .make_pool(POOL, pool("one", 0, 400, &[referring()]))
        .await;
    fleet.roll_out(&definition, &[1]).await;
    fleet.roll_out(&definition, &[1, 2]).await;
    let mut rollout = fleet.roll_out(&definition, &[1, 2]).await;
    for _ in 0..20 {
        for (worker, claim) in fleet.busy(POOL, 10).await {
            fleet.complete(&claim).await;
            fleet.leave(&worker).await;
        }
        fleet.pass_ms(MINUTE_MS);
        fleet.hear_of_runs().await;
        rollout = fleet.roll_out(&definition, &[1, 2]).await;
        if rollout.canary.is_none() {
            break;
        }
    }
    let standing = &rollout.standing;
    assert_eq!(
        (standing.promoted, standing.candidate),
        (Some(BuildNumber(2)), None),
        "{:?}",
        rollout.canary
    );
    assert_eq!(fleet.launch_configs().await, ["\"disk-2\" 2"]);
});

fleet_on_sqlite_first!(a_canary_that_never_registers_is_rolled_back, |fleet| {
    let definition = fleet.make_image(json!({"share": 0.5})).await;
    fleet
        .make_pool(POOL, pool("one", 0, 400, &[referring()]))
        .await;
    fleet.roll_out(&definition, &[1]).await;
    fleet.roll_out(&definition, &[1, 2]).await;
    let ids = fleet.ids_by_image().await;
    let mut rollout = fleet.roll_out(&definition, &[1, 2]).await;
    for _ in 0..20 {
        fleet.tasks(POOL, 10).await;
        fleet.round().await;
        for key in fleet.workers_in(POOL, "requested").await {
            let worker = fleet.worker(&key).await.unwrap();
            let config = worker.launch_config_id.as_ref().unwrap().as_str();
            if config == ids["disk-1"] {
                let running = fleet.register(&key).await;
                let claim = fleet.claim_with(&running).await;
                fleet.complete(&claim).await;
            }
        }
        fleet.hear_of_runs().await;
        fleet.listen_ms(16 * MINUTE_MS);
        fleet.scan().await;
        fleet.end().await;
        fleet.scan().await;
        rollout = fleet.roll_out(&definition, &[1, 2]).await;
        if rollout.canary.is_none() {
            break;
        }
    }
    let standing = &rollout.standing;
    assert_eq!(standing.promoted, Some(BuildNumber(1)), "{rollout:?}");
    let measured = fleet.app.telemetry.render();
    for step in ["build-promoted", "canary-started", "build-rolled-back"] {
        let line = format!("fleetwright_image_steps_total{{imageId=\"linux\",step=\"{step}\"}} 1");
        assert!(measured.contains(&line), "{line}: {measured}");
    }
    assert!(standing.rejected.contains(&BuildNumber(2)));
    let why = &standing.decisions[&BuildNumber(2)];
    assert_eq!(why.by, "fleetwright");
    assert!(why.reason.starts_with("Worse after "), "{}", why.reason);
    assert_eq!(fleet.launch_configs().await, ["\"disk-1\" 1"]);
    // It is not tried again.
    let again = fleet.roll_out(&definition, &[1, 2]).await;
    assert_eq!(again, rollout);
});

fleet_on_sqlite_first!(people_promote_roll_back_and_try_again, |fleet| {
    let definition = fleet.make_image(json!({"share": 0.25})).await;
    fleet
        .make_pool(POOL, pool("one", 0, 10, &[referring()]))
        .await;
    let engine = &fleet.app.engine;
    let facts = || fleet.facts(&definition, &[1, 2]);
    let early = start_canary(engine, facts().await, fleet.decision(2), None).await;
    assert!(
        early
            .unwrap_err()
            .to_string()
            .contains("nothing to compare")
    );
    fleet.roll_out(&definition, &[1]).await;
    fleet.roll_out(&definition, &[1, 2]).await;
    use_build(engine, facts().await, fleet.decision(2))
        .await
        .unwrap();
    fleet.roll_out(&definition, &[1, 2]).await;
    assert_eq!(fleet.launch_configs().await, ["\"disk-2\" 2"]);
    use_build(engine, facts().await, fleet.decision(1))
        .await
        .unwrap();
    fleet.roll_out(&definition, &[1, 2]).await;
    assert_eq!(fleet.launch_configs().await, ["\"disk-1\" 1"]);
    for share in [0.0, 1.0, f64::NAN] {
        let refused = start_canary(engine, facts().await, fleet.decision(2), Some(share)).await;
        assert!(refused.is_err(), "{share}");
    }
    start_canary(engine, facts().await, fleet.decision(2), Some(0.05))
        .await
        .unwrap();
    fleet.roll_out(&definition, &[1, 2]).await;
    let expected = ["\"disk-1\" 1", "\"disk-2\" 2 canary 0.05"];
    assert_eq!(fleet.launch_configs().await, expected);
    let missing = use_build(engine, facts().await, fleet.decision(3)).await;
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("build 3 of linux has no ready upload")
    );
    let steps = fleet.steps().await;
    let expected = [
        "image-promoted primary.linux._ 1 by \"fleetwright\"",
        "image-canary-started primary.linux._ 2 by \"fleetwright\"",
        "image-promoted primary.linux._ 2 by \"people/ops\"",
        "image-rolled-back primary.linux._ 1 by \"people/ops\"",
        "image-canary-started primary.linux._ 2 by \"people/ops\"",
    ];
    assert_eq!(steps, expected);
});

fleet_on_sqlite_first!(
    a_newer_build_takes_the_place_of_a_canary_without_a_verdict,
    |fleet| {
        let canary = json!({"share": 0.5, "maxSeconds": 3_600});
        let definition = fleet.make_image(canary).await;
        fleet
            .make_pool(POOL, pool("one", 0, 400, &[referring()]))
            .await;
        fleet.roll_out(&definition, &[1]).await;
        fleet.roll_out(&definition, &[1, 2]).await;
        // A start of the first canary says nothing about the second.
        fleet.tasks(POOL, 10).await;
        fleet.round().await;
        fleet.pass_ms(MINUTE_MS);
        let waiting = fleet.roll_out(&definition, &[1, 2, 3]).await;
        assert!(waiting.canary.unwrap().evidence.unwrap().canary.started > 0);
        fleet.pass_ms(60 * MINUTE_MS);
        let rollout = fleet.roll_out(&definition, &[1, 2, 3, 4]).await;
        let run = rollout.canary.unwrap();
        assert_eq!((run.build, run.is_expired), (BuildNumber(4), false));
        assert!(
            run.reason.starts_with("2 had no verdict (Undecided after ")
                && run.reason.ends_with(
                    "in 1 hour), so 4 is next: a new build is ready: 50 % of the machines, beside 1"
                ),
            "{}",
            run.reason
        );
        assert_eq!(rollout.standing.candidate, Some(BuildNumber(4)));
        let expected = ["\"disk-1\" 1", "\"disk-4\" 4 canary 0.5"];
        assert_eq!(fleet.launch_configs().await, expected);
        let image = definition.name.clone();
        let trials = fleet.read(move |tx| store::canary_trials::list(tx, &image, 100));
        assert_eq!(trials.await, []);
        let steps = fleet.steps().await;
        let started = "image-canary-started primary.linux._ 4 by \"fleetwright\"";
        assert_eq!(steps.last().map(String::as_str), Some(started));
        // No newer one waits now, so people are asked.
        fleet.pass_ms(61 * MINUTE_MS);
        let asked = fleet.roll_out(&definition, &[1, 2, 3, 4]).await;
        assert!(asked.canary.unwrap().is_expired);
        let steps = fleet.steps().await;
        let expired = "image-canary-expired primary.linux._ 4 by \"fleetwright\"";
        assert_eq!(steps, [expired]);
    }
);

fleet_on_sqlite_first!(rules_refer_to_images_and_only_their_pools_change, |fleet| {
    let definition = fleet.make_image(json!({})).await;
    let values = json!({
        "owner": "ops@example.com", "description": "d", "maxCapacity": 10,
        "providers": {"one": {}}, "one": {"workerConfig": {}},
    });
    let image = json!({"one": {"image": {"$image": "linux"}}});
    let rules = json!([
        {"ruleId": "all", "conditions": null, "values": values, "description": ""},
        {"ruleId": "linux", "conditions": {"workerType": "pp/ee"}, "values": image,
            "description": ""},
    ]);
    let document = json!({"description": "", "workerTypes": ["pp/ee", "pp/other"], "rules": rules});
    fleet
        .put("/worker-configuration/c", document)
        .await
        .expect(200);
    assert_eq!(
        fleet.launch_configs().await,
        ["{\"$image\":\"linux\"} null"]
    );
    let other = fleet.get("/worker-pool/pp%2Fother").await.expect(200);
    fleet.roll_out(&definition, &[1]).await;
    assert_eq!(fleet.launch_configs().await, ["\"disk-1\" 1"]);
    fleet.roll_out(&definition, &[1, 2]).await;
    let expected = ["\"disk-1\" 1", "\"disk-2\" 2 canary 0.1"];
    assert_eq!(fleet.launch_configs().await, expected);
    assert_eq!(
        fleet.get("/worker-pool/pp%2Fother").await.expect(200),
        other
    );
    // An edit of the rules keeps the canary, and gets what it had.
    let ids = fleet.ids_by_image().await;
    let rule = json!({"conditions": {"workerType": "pp/ee"}, "values":
        {"maxCapacity": 20, "one": {"image": {"$image": "linux"}}}, "description": ""});
    fleet
        .post("/worker-configuration/c/rule/linux", rule)
        .await
        .expect(200);
    assert_eq!(fleet.launch_configs().await, expected);
    assert_eq!(fleet.ids_by_image().await, ids);
});

fleet_on_sqlite_first!(bad_references_are_refused_with_their_place, |fleet| {
    let with = |image: Value| {
        let mut config = referring();
        config["image"] = image;
        pool("one", 0, 10, &[config])
    };
    let put = |body: Value| fleet.put("/worker-pool/pp%2Fee", body);
    let text = refused(put(with(json!({"$image": "linux"}))), 400).await;
    assert!(text.contains("Image linux does not exist"), "{text}");
    let text = refused(put(with(json!({"$image": 3}))), 400).await;
    assert!(
        text.contains("/image/$image must be the name of an image"),
        "{text}"
    );
    fleet.make_image(json!({})).await;
    let mut own = referring();
    own["workerManager"] = json!({"launchConfigId": "mine"});
    let text = refused(put(pool("one", 0, 10, &[own])), 400).await;
    assert!(text.contains("cannot have an id of its own"), "{text}");
    put(with(json!({"$image": "linux"}))).await.expect(200);
    let text = refused(fleet.delete(LINUX), 409).await;
    assert!(text.contains("pp/ee"), "{text}");
    fleet.delete_pool(POOL).await;
    fleet.delete(LINUX).await.expect(200);
});

fleet_test!(
    only_holders_of_its_roles_may_use_a_restricted_image,
    |fleet| {
        let (other, user, definition) = fleet.restricted_image().await;
        fleet.roll_out(&definition, &[1, 2]).await;
        // By its name, and by the ids of the upload in use, of an older one, and of an unknown one.
        let images = [
            json!({"$image": "linux"}),
            json!("disk-2"),
            json!("disk-1"),
            json!("disk-3"),
        ];
        for (n, image) in images.iter().enumerate() {
            if n < 3 {
                for (_, answer) in fleet.calls_with(n, image, &other).await {
                    answer.refused_with(403, "InsufficientScopes", "assume:image-users");
                }
            }
            let by = if n < 3 { &user } else { &other };
            for (title, answer) in fleet.calls_with(n, image, by).await {
                assert_eq!(
                    answer.status,
                    200,
                    "{title} with {image}: {}",
                    answer.body()
                );
            }
        }
    }
);
