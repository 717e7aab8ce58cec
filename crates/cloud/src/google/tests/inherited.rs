//! Machines that a Taskcluster's worker manager made.

use serde_json::{Value, json};

use super::fake::{OnFake, simple};
use crate::tests::suite;
use crate::tests::values::edit;
use crate::{CloudError, Machines as _, Region, Sighting};

const ZONE: &str = "us-central1-a";

impl OnFake {
    async fn taskcluster_makes(&self, name: &str, maker: &str) {
        let number = name.len();
        let request_id = format!("00000000-0000-4000-8000-{number:012}");
        let labels = json!({"created-by": maker, "managed-by": "taskcluster",
            "worker-pool-id": "proj-x-linux"});
        let mut instance = simple();
        let taken: Vec<Value> = ["region", "zone", "workerConfig"]
            .iter()
            .filter_map(|key| instance.as_object_mut()?.remove(*key))
            .collect();
        assert_eq!(taken.len(), 3);
        instance["name"] = json!(name);
        instance["labels"] = labels;
        let insert = self.provider.compute.insert(ZONE, &request_id, instance);
        insert.await.unwrap();
    }
}

#[tokio::test]
async fn machines_of_a_taskcluster_are_listed_and_end_only_if_they_were_taken_over() {
    let world = OnFake::start().await;
    world
        .taskcluster_makes("theirs", "taskcluster-wm-google")
        .await;
    world
        .taskcluster_makes("of-another", "taskcluster-wm-google2")
        .await;
    world.launch(1).await.unwrap();
    world.google.act("settle", &json!({})).await;
    let region = Region::Group("us-central1".parse().unwrap());
    let page = world.provider.inherited_page(&region, None).await.unwrap();
    let [found] = page.machines.try_into().unwrap();
    assert_eq!((&found.token, &found.pool_id), (&None, &None));
    assert_eq!(found.machine.provider_data["name"], "theirs");
    assert_eq!(found.sighting, Some(Sighting::Alive));
    assert_eq!(world.owned().await.len(), 1, "theirs is not ours");

    let (pool, config) = world.pool(&simple());
    let mut worker = suite::row(&world, &pool, &config, found.machine);
    assert_eq!(world.seen(&worker).await, Some(Sighting::Alive));
    let refused = world.provider.end(&worker).await.unwrap_err();
    assert!(matches!(refused, CloudError::Refused(_)), "{refused}");
    edit(&mut worker, |it| it.terms.taken_over = true);
    world.provider.end(&worker).await.unwrap();
    world.google.act("settle", &json!({})).await;
    let seen = world.seen(&worker).await;
    assert!(!matches!(seen, Some(Sighting::Alive)), "{seen:?}");
}
