//! What is found again, what is left to other hosts, and what is forgotten.

use super::*;
use crate::local::host::MAX_ENDED;

#[tokio::test]
async fn a_worker_whose_number_was_not_written_down_is_found_and_ended() {
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine.n_processes(1).await;
    fs::remove_file(machine.file(&worker, "process.json")).unwrap();
    assert_eq!(machine.seen(&worker).await, Sighting::Alive);
    assert!(machine.file(&worker, "process.json").exists());
    machine.provider.end(&worker).await.unwrap();
    machine.gone(&worker).await;
}

#[tokio::test]
async fn a_worker_that_keeps_its_environment_to_itself_is_found_by_its_command_line() {
    let script = r#"[ -z "$FLEETWRIGHT_IDENTITY" ] || exec -c /bin/bash -c "$BASH_EXECUTION_STRING" "$0"
        echo hidden; while :; do /bin/sleep 600 & wait; done"#;
    let machine = Machine::running(&["/bin/bash", "-c", script, "{identity}"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let log = machine.file(&worker, "worker.log");
    machine.wait_for_file(&log).await;
    machine.n_processes(0).await;
    fs::remove_file(machine.file(&worker, "process.json")).unwrap();
    machine.provider.end(&worker).await.unwrap();
    machine.gone(&worker).await;
}

#[tokio::test]
async fn workers_of_another_host_are_neither_seen_nor_ended_here() {
    let machine = Machine::new().await;
    let ours = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let mut theirs = ours.clone();
    theirs.key.group = "other-host".parse().unwrap();
    theirs.key.id = format!("{OTHER_TOKEN}-0").parse().unwrap();
    let seen = machine.provider.look(&[theirs.clone(), ours.clone()]).await;
    assert_eq!(seen.unwrap(), [(ours.key, Sighting::Alive)]);
    let refused = machine.provider.end(&theirs).await.unwrap_err();
    assert!(matches!(refused, CloudError::Unavailable(_)), "{refused:?}");
    assert!(
        refused.to_string().contains("a process of host other-host"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_host_that_was_renamed_still_knows_its_workers() {
    let machine = Machine::new().await;
    let mut worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let record = machine.file(&worker, "launch.json");
    worker.key.group = "old-name".parse().unwrap();
    let mut launch: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    launch["workerGroup"] = json!("old-name");
    fs::write(&record, launch.to_string()).unwrap();
    assert_eq!(machine.seen(&worker).await, Sighting::Alive);
    machine.provider.end(&worker).await.unwrap();
    machine.gone(&worker).await;
}

#[tokio::test]
async fn folders_of_the_dead_are_kept_for_a_day() {
    let mut machine = Machine::running(&["/bin/true"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine.gone(&worker).await;
    let unfinished = machine
        .root()
        .join(format!(".new-{}-7-x", machine.clock.now().as_millis()));
    fs::create_dir(&unfinished).unwrap();
    machine.clock.advance_ms(3_600_001);
    machine.restart().await;
    assert!(!unfinished.exists());
    machine.clock.advance_ms(86_400_000 - 3_600_001);
    machine.owned().await;
    assert!(matches!(machine.seen(&worker).await, Sighting::Gone(_)));
    machine.clock.advance_ms(1);
    machine.owned().await;
    assert_eq!(machine.seen(&worker).await, Sighting::NotFound);
    machine.provider.end(&worker).await.unwrap();
}

#[tokio::test]
async fn of_very_many_dead_the_oldest_are_forgotten_early_and_no_living_is_missed() {
    let machine = Machine::new().await;
    let alive = machine.launch(TOKEN, 2).await.unwrap();
    for number in 0..MAX_ENDED + 3 {
        let folder = machine.root().join(format!("dead-{number}"));
        fs::create_dir(&folder).unwrap();
        let launch = json!({"token": OTHER_TOKEN, "workerPoolId": "test/pool",
            "workerGroup": machine.provider.0.group.as_str(), "workerId": format!("dead-{number}"), "made": 0});
        fs::write(folder.join("launch.json"), launch.to_string()).unwrap();
        let at = machine.clock.now().as_millis() - i64::try_from(number).unwrap();
        let ended = json!({"at": at, "why": "it ended"});
        fs::write(folder.join("ended.json"), ended.to_string()).unwrap();
    }
    assert_eq!(machine.owned().await.len(), alive.len());
    let is_kept = |number: usize| machine.root().join(format!("dead-{number}")).exists();
    assert!((0..MAX_ENDED).all(is_kept));
    assert!(!(MAX_ENDED..MAX_ENDED + 3).any(is_kept));
}
