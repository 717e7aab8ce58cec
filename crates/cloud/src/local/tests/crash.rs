//! The parent is killed between any two steps of a launch.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Environment variables of a parent that kills itself: its folder, and the step of its second
/// worker.
const CRASH_FOLDER: &str = "FLEETWRIGHT_TEST_CRASH_FOLDER";
const CRASH_STEP: &str = "FLEETWRIGHT_TEST_CRASH_STEP";
const THIS_TEST: &str =
    "local::tests::crash::whenever_the_parent_is_killed_no_process_is_lost_and_none_is_doubled";

/// Kills the process, like `kill -9`, after the step that the environment names, for its second
/// worker.
fn die_at(step: Step) {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    if std::env::var(CRASH_STEP).is_ok_and(|wanted| wanted == format!("{step:?}"))
        && SEEN.fetch_add(1, Ordering::SeqCst) == 1
    {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
}

async fn launch_and_die(folder: &Path) {
    let clock = TestClock::new();
    let settings = settings(&["/bin/sleep", "600"], 10);
    let context = context(folder, &clock);
    let mut machine = Machine::new().await;
    machine.provider = LocalProvider::with_steps(context, settings, die_at);
    machine.provider.setup().await.unwrap();
    let _ = machine.launch(TOKEN, 3).await;
    unreachable!("it was killed before");
}

/// Runs this test program as the parents that kill themselves.
#[tokio::test]
async fn whenever_the_parent_is_killed_no_process_is_lost_and_none_is_doubled() {
    if let Some(folder) = std::env::var_os(CRASH_FOLDER) {
        return launch_and_die(Path::new(&folder)).await;
    }
    for (step, n_alive) in [(Step::Intended, 1), (Step::Started, 2), (Step::Recorded, 2)] {
        let mut machine = Machine::new().await;
        let parent = Program::new(std::env::current_exe().unwrap())
            .args([THIS_TEST, "--exact", "--nocapture"])
            .env(CRASH_FOLDER, machine.data.path())
            .env(CRASH_STEP, format!("{step:?}"))
            .output()
            .unwrap();
        let status = parent.status.signal();
        assert_eq!(
            status,
            Some(9),
            "{step:?}: {}",
            String::from_utf8_lossy(&parent.stdout)
        );

        machine.restart().await;
        let id = |number| format!("{TOKEN}-{number}");
        let ids: Vec<_> = (0..n_alive).map(id).collect();
        assert_eq!(
            machine.owned().await,
            ids,
            "{step:?}: all running workers are found by their token"
        );
        machine.n_processes(n_alive).await;

        // The same launch again starts the workers that never started, and no second process of the
        // others.
        let workers = machine.launch(TOKEN, 3).await.unwrap();
        assert_eq!(workers.len(), 3);
        machine.n_processes(n_alive + 1).await;
        assert_eq!(machine.seen(&workers[0]).await, Sighting::Alive);
        assert_eq!(machine.seen(&workers[2]).await, Sighting::Alive);
        match step {
            Step::Intended => assert_eq!(
                machine.wait_until_ended(&workers[1]).await,
                "its process was never started"
            ),
            Step::Started | Step::Recorded => {
                assert_eq!(machine.seen(&workers[1]).await, Sighting::Alive);
            }
        }
        for worker in &workers {
            machine.provider.end(worker).await.unwrap();
            machine.wait_until_ended(worker).await;
        }
        machine.n_processes(0).await;
    }
}
