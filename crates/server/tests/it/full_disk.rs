//! A full disk under PostgreSQL: acknowledged changes are kept, others are refused, and the server
//! continues when there is space again.

use std::path::Path;

use serde_json::json;

use crate::database::Database;
use crate::queue_samples::task_id;
use crate::world::World;

/// Enough to fill the rest of a small disk.
const N_TASKS: u32 = 2_000;
/// Kibibytes of one row that takes up space.
const BALLAST_KIB: u32 = 512;

/// A database on a file system that is soon full, if this machine can have one.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn on_small_disk() -> Option<Database> {
    let place = std::env::var("TEST_PG_SMALL_DISK").unwrap_or_default();
    if !Path::new(&place).is_dir() {
        println!(
            "skipped: TEST_PG_SMALL_DISK names no folder (scripts/with-postgres makes it for root)"
        );
        return None;
    }
    let mut database = Database::empty_postgres()?;
    let space = format!("CREATE TABLESPACE small_disk LOCATION '{place}'");
    database.raw(&space);
    // The last parameter of the address says where the tables are.
    database
        .url
        .push_str("%20-cdefault_tablespace%3Dsmall_disk");
    Some(database)
}

#[tokio::test]
async fn acknowledged_changes_survive_a_full_disk_and_the_server_continues_after() {
    let Some(database) = on_small_disk() else {
        return;
    };
    let world = World::open(database, |_| {}).await;
    world.errors_expected.set(true);
    // Not compressible, so that it takes the space that it says.
    let ballast = format!(
        "CREATE TABLE ballast (rest TEXT) TABLESPACE small_disk;
         ALTER TABLE ballast ALTER rest SET STORAGE EXTERNAL;
         DO $$ BEGIN LOOP
            INSERT INTO ballast SELECT repeat('x', {BALLAST_KIB} * 1024);
            EXIT WHEN pg_tablespace_size('small_disk') > 46 * 1024 * 1024;
         END LOOP; END $$;"
    );
    world.database.raw(&ballast);
    let mut acknowledged = Vec::new();
    let mut refused = None;
    for number in 0..N_TASKS {
        let answer = world
            .create_task(number, json!({"payload": {"text": "x".repeat(30_000)}}))
            .await;
        match answer.status {
            200 => acknowledged.push(number),
            _ => {
                assert_eq!(answer.header("retry-after"), "5");
                answer.refused_with(503, "DatabaseUnavailable", "no space left");
                refused = Some(number);
                break;
            }
        }
    }
    let refused = refused.expect("the disk is full at last");
    for number in &acknowledged {
        assert_eq!(world.state(*number).await, "pending");
    }
    let path = format!("queue:/task/{}/status", task_id(refused));
    assert_eq!(world.get(&path).await.status, 404);

    world.database.raw("DROP TABLE ballast");
    world.create_task(refused, json!({})).await.expect(200);
    assert_eq!(world.state(refused).await, "pending");
}
