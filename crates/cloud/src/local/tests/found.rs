//! Processes that are found again, those of other hosts, and folders that are deleted.

use ::testing::sizes_around;

use super::*;
use crate::local::host::MAX_ENDED;
use crate::local::order::MAX_MACHINES;

#[tokio::test]
async fn a_worker_whose_process_id_was_not_stored_is_found_and_ended() {
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine.n_processes(1).await;
    fs::remove_file(machine.file(&worker, "process.json")).unwrap();
    assert_eq!(machine.seen(&worker).await, Sighting::Alive);
    assert!(machine.file(&worker, "process.json").exists());
    machine.provider.end(&worker).await.unwrap();
    machine.wait_until_ended(&worker).await;
}

#[tokio::test]
async fn a_worker_that_hides_its_environment_is_found_by_its_command_line() {
    let script = r#"[ -z "$FLEETWRIGHT_IDENTITY" ] || exec -c /bin/bash -c "$BASH_EXECUTION_STRING" "$0"
        echo hidden; while :; do /bin/sleep 600 & wait; done"#;
    let machine = Machine::running(&["/bin/bash", "-c", script, "{identity}"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let log = machine.file(&worker, "worker.log");
    machine.wait_for_file(&log).await;
    machine.n_processes(0).await;
    fs::remove_file(machine.file(&worker, "process.json")).unwrap();
    machine.provider.end(&worker).await.unwrap();
    machine.wait_until_ended(&worker).await;
}

#[tokio::test]
async fn workers_of_another_host_are_neither_seen_nor_ended_here() {
    let machine = Machine::new().await;
    let ours = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let mut theirs = ours.clone();
    edit(&mut theirs, |it| {
        it.key.group = "other-host".parse().unwrap();
        it.key.id = format!("{OTHER_TOKEN}-0").parse().unwrap();
    });
    let seen = machine.provider.look(&[theirs.clone(), ours.clone()]).await;
    assert_eq!(seen.unwrap(), [(ours.key.clone(), Sighting::Alive)]);
    assert!(machine.provider.can_end(&ours) && !machine.provider.can_end(&theirs));
    let refused = machine.provider.end(&theirs).await.unwrap_err();
    assert!(matches!(refused, CloudError::Unavailable(_)), "{refused:?}");
    assert!(
        refused.to_string().contains("a process on host other-host"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_host_that_was_renamed_still_knows_its_workers() {
    let machine = Machine::new().await;
    let mut worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let record = machine.file(&worker, "launch.json");
    edit(&mut worker, |it| it.key.group = "old-name".parse().unwrap());
    let mut launch: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    launch["workerGroup"] = json!("old-name");
    fs::write(&record, launch.to_string()).unwrap();
    assert_eq!(machine.seen(&worker).await, Sighting::Alive);
    assert!(machine.provider.can_end(&worker));
    machine.provider.end(&worker).await.unwrap();
    machine.wait_until_ended(&worker).await;
}

#[tokio::test]
async fn folders_of_ended_workers_are_kept_for_a_day() {
    let mut machine = Machine::running(&["/bin/true"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine.wait_until_ended(&worker).await;
    let unfinished = machine
        .root()
        .join(format!(".new-{}-7-x", machine.clock.now().as_millis()));
    fs::create_dir(&unfinished).unwrap();
    machine.clock.advance_ms(3_600_001);
    machine.restart().await;
    assert!(!unfinished.exists());
    machine.clock.advance_ms(86_400_000 - 3_600_001);
    machine.owned().await;
    assert!(matches!(machine.seen(&worker).await, Sighting::Ended(_)));
    machine.clock.advance_ms(1);
    machine.owned().await;
    assert_eq!(machine.seen(&worker).await, Sighting::NotFound);
    machine.provider.end(&worker).await.unwrap();
}

#[tokio::test]
async fn above_the_limit_the_oldest_folders_are_deleted_early_and_running_workers_are_listed() {
    let machine = Machine::new().await;
    let alive = machine.launch(TOKEN, 2).await.unwrap();
    let folder = |number: usize| machine.root().join(format!("dead-{number}"));
    let launch = json!({"token": OTHER_TOKEN, "workerPoolId": "test/pool",
        "workerGroup": machine.provider.0.group.as_str(), "workerId": "dead", "made": 0});
    for number in 0..MAX_ENDED + 2 {
        fs::create_dir(folder(number)).unwrap();
        fs::write(folder(number).join("launch.json"), launch.to_string()).unwrap();
        let at = machine.clock.now().as_millis() - i64::try_from(number).unwrap();
        let ended = json!({"at": at, "why": "it ended"});
        fs::write(folder(number).join("ended.json"), ended.to_string()).unwrap();
    }
    // The folder of another user's worker cannot be deleted, except by root, as which some of these
    // tests run.
    let closed = folder(MAX_ENDED + 1).join("work");
    fs::create_dir_all(closed.join("inside")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(machine.owned().await.len(), alive.len());
    let _gone = fs::set_permissions(&closed, fs::Permissions::from_mode(0o700));
    assert!((0..MAX_ENDED).all(|number| folder(number).exists()));
    assert!(!folder(MAX_ENDED).exists());
}

#[tokio::test]
async fn each_worker_is_seen_in_batches_of_a_look() {
    let machine = Machine::new().await;
    for count in sizes_around("cloud::local::LOOK_BATCH", LOOK_BATCH) {
        let named = |number: usize| {
            let mut worker = worker(WorkerState::Running);
            edit(&mut worker, |it| {
                it.key.group = machine.provider.0.group.clone();
                it.key.id = format!("w{number}").parse().unwrap();
            });
            worker
        };
        let workers: Vec<Worker> = (0..count).map(named).collect();
        let (mut n_looks, mut seen) = (0, Vec::new());
        // In batches, like a scan.
        for some in workers.chunks(machine.provider.look_batch()) {
            seen.extend(machine.provider.look(some).await.unwrap());
            n_looks += 1;
        }
        assert_eq!(n_looks, count.div_ceil(LOOK_BATCH));
        let all = workers
            .into_iter()
            .map(|it| (it.into_stored().key, Sighting::NotFound));
        assert_eq!(seen, all.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_order_above_the_limit_is_cut() {
    let machine = Machine::new().await;
    let pool = suite::pool(&machine, json!({}));
    let config = suite::launch_config(&pool, 0, serde_json::Map::new());
    let (token, most) = (
        TOKEN.parse().unwrap(),
        usize::try_from(MAX_MACHINES).unwrap(),
    );
    for count in sizes_around("cloud::local::order::MAX_MACHINES", most) {
        let order = Order::new(&LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: u32::try_from(count).unwrap(),
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &serde_json::Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: machine.clock.now(),
        });
        // Compares the order only: no test starts a thousand processes.
        assert_eq!(usize::try_from(order.machines), Ok(count.min(most)));
    }
    let workers = machine.launch(TOKEN, 3).await.unwrap();
    machine.n_processes(workers.len()).await;
}
