//! The logs of worker processes.

use std::os::unix::fs::symlink;

use super::*;
use crate::{LogEnd, MAX_WORKER_LOG_BYTES};

async fn log_of(machine: &Machine, worker: &Worker) -> LogEnd {
    match machine.provider.read_log(worker).await.unwrap() {
        WorkerLog::Kept(log) => log,
        other @ (WorkerLog::NotKept | WorkerLog::Missing) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_worker_that_writes_a_line_and_fails_has_that_line_in_its_log() {
    let script = "echo no server at port 80; echo giving up >&2; exit 3";
    let machine = Machine::running(&["/bin/sh", "-c", script, "{identity}"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine.wait_until_ended(&worker).await;
    let log = log_of(&machine, &worker).await;
    assert_eq!(log.bytes, b"no server at port 80\ngiving up\n");
    assert!(!log.is_cut);

    let mut other = worker.clone();
    edit(&mut other, |it| it.key.id = "other".parse().unwrap());
    let log = machine.provider.read_log(&other).await;
    assert_eq!(log, Ok(WorkerLog::Missing));
    fs::remove_file(machine.file(&worker, "worker.log")).unwrap();
    assert_eq!(log_of(&machine, &worker).await.bytes, b"");
}

#[tokio::test]
async fn the_part_of_a_log_that_was_moved_comes_first() {
    const LIMIT: usize = MAX_WORKER_LOG_BYTES;
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let sizes = [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT];
    for (old, new) in sizes
        .into_iter()
        .flat_map(|old| sizes.map(|new| (old, new)))
    {
        let text = "a".repeat(old) + &"b".repeat(new);
        fs::write(machine.file(&worker, "worker.log.1"), &text[..old]).unwrap();
        fs::write(machine.file(&worker, "worker.log"), &text[old..]).unwrap();
        let log = log_of(&machine, &worker).await;
        let wanted = &text[text.len().saturating_sub(LIMIT)..];
        assert!(log.bytes == wanted.as_bytes(), "{old} and {new}");
        assert_eq!(log.is_cut, text.len() > LIMIT, "{old} and {new}");
    }
}

#[tokio::test]
async fn a_link_in_place_of_the_log_leads_no_cut_elsewhere() {
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let (log, old) = (
        machine.file(&worker, "worker.log"),
        machine.file(&worker, "worker.log.1"),
    );
    let precious = machine.file(&worker, "precious");
    let text = "x".repeat(10 << 20);
    fs::write(&precious, &text).unwrap();
    fs::remove_file(&log).unwrap();
    symlink("precious", &log).unwrap();
    machine.owned().await;
    assert!(!old.exists());
    assert!(fs::read_to_string(&precious).unwrap() == text);

    // The log is cut, and the link in the place of its older part is replaced.
    fs::remove_file(&log).unwrap();
    fs::write(&log, &text).unwrap();
    symlink("precious", &old).unwrap();
    machine.owned().await;
    assert_eq!(fs::read(&log).unwrap(), b"");
    assert!(fs::symlink_metadata(&old).unwrap().is_file());
    assert!(fs::read_to_string(&precious).unwrap() == text);
}

#[tokio::test]
async fn a_pipe_in_place_of_a_record_is_not_waited_for() {
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let record = machine.file(&worker, "launch.json");
    fs::remove_file(&record).unwrap();
    nix::unistd::mkfifo(&record, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let log = machine.provider.read_log(&worker).await;
    assert_eq!(log, Ok(WorkerLog::Missing));
}

#[tokio::test]
async fn a_link_or_a_pipe_in_place_of_the_log_is_not_read() {
    let machine = Machine::new().await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let log = machine.file(&worker, "worker.log");
    fs::remove_file(&log).unwrap();
    symlink("identity.json", &log).unwrap();
    machine.provider.read_log(&worker).await.unwrap_err();
    fs::remove_file(&log).unwrap();
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = machine.provider.read_log(&worker).await.unwrap_err();
    assert!(refused.to_string().contains("is not a file"), "{refused}");
}
