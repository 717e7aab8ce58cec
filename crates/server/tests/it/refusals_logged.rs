//! Refused requests leave lines in the log that say who tried what.

use server::config::Config;

use crate::ask::Who;
use crate::database::{Database, on_sqlite_first};
use crate::world::World;

const PATH: &str = "/worker-pools";

on_sqlite_first!(a_refusal_says_who_tried_what_from_where, |world| {
    let poor = world.client("poor/one", &[]).await;
    assert_eq!(world.get(PATH).by(&poor).await.status, 403);
    let stranger = Who::new("stranger", "x");
    assert_eq!(world.get(PATH).by(&stranger).await.status, 401);
    let wrong = Who::new("poor/one", "wrong");
    assert_eq!(world.get(PATH).by(&wrong).await.status, 401);
    assert_eq!(world.get(PATH).anonymously().await.status, 403);
    let lines = world.log.lines("refused listWorkerPools");
    for (line, parts) in lines.iter().zip([
        [
            "to poor/one at 192.0.2.7: Client ID poor/one does not have",
            "http.status=403",
        ],
        ["to stranger", "http.status=401"],
        [
            "to poor/one at 192.0.2.7: Unauthorized: Bad mac",
            "http.status=401",
        ],
        [
            "to no client at 192.0.2.7: This request requires",
            "http.status=403",
        ],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{line} has no {part}");
        }
        assert!(
            line.contains("http.path=\"/api/worker-manager/v1/worker-pools\""),
            "{line}"
        );
    }
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(!world.log.text().contains(world.root().token.expose()));
    world.get(PATH).await.expect(200);
    world.get("/worker-pool/a%2Fb").await.expect(404);
    assert_eq!(world.log.lines(": refused ").len(), 4);
});

on_sqlite_first!(a_long_id_is_shortened, |world| {
    let long = Who::new(&"x".repeat(1_000), "x");
    assert_eq!(world.get(PATH).by(&long).await.status, 401);
    let lines = world.log.lines("refused listWorkerPools");
    let [line] = lines.as_slice() else {
        panic!("{lines:#?}");
    };
    assert!(line.len() < 1_000, "{line}");
});

#[tokio::test]
async fn callers_cannot_fill_the_log() {
    let change = |config: &mut Config| config.log.refusals_per_minute = 20;
    let world = World::open(Database::sqlite(), change).await;
    let refused = || world.get(PATH).anonymously();
    for _ in 0..50 {
        assert_eq!(refused().await.status, 403);
    }
    // A tenth of the lines for one address, and the rest for others.
    assert_eq!(world.log.lines("refused listWorkerPools").len(), 2);
    for _ in 0..50 {
        assert_eq!(refused().locally().await.status, 403);
    }
    let lines = world.log.lines("refused listWorkerPools");
    assert_eq!(lines.len(), 20);
    assert!(lines[2].contains("refusals.left_out=48"), "{}", lines[2]);
}
