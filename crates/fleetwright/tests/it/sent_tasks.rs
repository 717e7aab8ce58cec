//! `task create` with files, folders, artifacts and counts, and downloads of artifacts.

use serde_json::Value;

use crate::world::{Done, Server};

const LOCAL: &str = "local/default";

fn run_in_home(server: &Server, arguments: &[&str]) -> Done {
    let mut command = server.command(arguments);
    Done::of(command.current_dir(server.home.path(".")).output().unwrap())
}

#[test]
fn a_folder_is_sent_and_its_result_is_downloaded() {
    let server = Server::start();
    server.home.write("src/data/words.txt", "one\ntwo\n");
    let script = server.home.write(
        "src/count.sh",
        "#!/bin/sh\nmkdir out\nwc -l < data/words.txt > out/n\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, mode).unwrap();
    let folder = server.home.path("src");
    let create = [
        &["--json", "task", "create", "--pool", LOCAL, "--wait"][..],
        &["--dir", folder.to_str().unwrap()],
        &[
            "--artifact",
            "public/result=out/",
            "--artifact",
            "private/n=out/n",
        ],
        &["--", "./count.sh"],
    ];
    let done = server.run(&create.concat());
    assert_eq!(done.code, 0, "{}", done.err);
    let made: Value = serde_json::from_str(&done.out).unwrap();
    let task = made["status"]["taskId"].as_str().unwrap();
    let log = server.ok(&["task", "log", task]);
    assert!(
        log.contains("unpacked payload.mounts: files and folders: 2"),
        "{log}"
    );

    let listed = server.ok(&["task", "artifacts", task]);
    for name in ["public/result/n", "private/n", "public/logs/live.log"] {
        assert!(listed.contains(name), "{listed}");
    }
    let shown = server.ok(&["task", "download", task, "private/n", "--out", "-"]);
    assert_eq!(shown.trim(), "2");
    let download = ["task", "download", task, "public/result/n"];
    let saved = run_in_home(&server, &download);
    assert_eq!(saved.code, 0, "{}", saved.err);
    assert_eq!(server.home.read("n").trim(), "2");
    assert_eq!(run_in_home(&server, &download).code, 5);
    let forced = run_in_home(&server, &[&download[..], &["--force"]].concat());
    assert_eq!(forced.code, 0, "{}", forced.err);
    let missing = server.run(&["task", "download", task, "public/nosuch"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    let hint = format!("`fleetwright task artifacts {task}`");
    assert!(missing.err.contains(&hint), "{}", missing.err);
}

#[test]
fn a_file_defines_a_task_and_flags_take_precedence() {
    let server = Server::start();
    let text = format!(
        "taskQueueId: {LOCAL}\ndeadline: 2h\ncreated: 2020-01-01T00:00:00.000Z\npriority: low\n\
         metadata:\n  name: of the file\npayload:\n  command: [sh, -c, 'echo $A $B']\n  env: \
         {{A: file, B: file}}\n"
    );
    let file = server.home.write("task.yaml", &text);
    let create = [
        "task",
        "create",
        "--file",
        &file,
        "--env",
        "B=flag",
        "--priority",
        "high",
    ];
    let done = server.run(&[&create[..], &["--log"]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("file flag\n"), "{}", done.out);
    // The log was printed already.
    assert!(!done.err.contains("show its log"), "{}", done.err);
    let id = done.err.split(' ').find(|word| word.len() == 22).unwrap();
    let (_, definition) = server.call("GET", &format!("/api/queue/v1/task/{id}"), None);
    let definition: Value = serde_json::from_str(&definition).unwrap();
    assert_eq!(definition["metadata"]["name"], "of the file");
    assert_eq!(definition["priority"], "high");
    for (payload, field) in [("env: [x]", "env"), ("artifacts: 3", "artifacts")] {
        let text = format!("taskQueueId: {LOCAL}\npayload:\n  command: ['true']\n  {payload}\n");
        let odd = server.home.write("no-flag.yaml", &text);
        let flags = ["--env", "A=1", "--artifact", "public/x=x"];
        let refused = server.run(&[&["task", "create", "--file", &odd][..], &flags].concat());
        assert_eq!(refused.code, 2, "{}", refused.err);
        let wanted = format!("payload.{field} of --file is not a ");
        assert!(refused.err.contains(&wanted), "{}", refused.err);
    }
    let unknown = server.home.write("odd.yaml", "comand: [x]\n");
    let refused = server.run(&["task", "create", "--file", &unknown]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("unknown field \"comand\""),
        "{}",
        refused.err
    );
    let no_pool = server
        .home
        .write("no-pool.yaml", "payload: {command: [x]}\n");
    let refused = server.run(&["task", "create", "--file", &no_pool]);
    assert!(refused.err.contains("--pool is missing"), "{}", refused.err);
}

#[test]
fn several_tasks_are_one_group_and_are_waited_for_together() {
    let server = Server::start();
    let create = ["task", "create", "--pool", LOCAL, "--count", "3"];
    let quiet = server.ok(&[&create[..], &["--quiet", "--", "true"]].concat());
    assert_eq!(quiet.lines().count(), 3, "{quiet}");
    assert!(quiet.lines().all(|line| line.len() == 22), "{quiet}");
    let waited = server.ok(&[&create[..], &["--quiet", "--wait", "--", "true"]].concat());
    assert_eq!(waited.lines().count(), 3, "{waited}");
    let said = server.ok(&[&create[..], &["--", "true"]].concat());
    assert!(
        said.starts_with("created 3 tasks in local/default, group "),
        "{said}"
    );
    let group = said.split_whitespace().last().unwrap();
    let listed = server.json(&["task", "list", "--task-group", group]);
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 3, "{listed}");
    let waited = server.run(&[&create[..], &["--wait", "--", "true"]].concat());
    assert_eq!(waited.code, 0, "{}", waited.err);
    assert!(waited.err.contains("3 tasks completed"), "{}", waited.err);
    let failed = server.run(&[&create[..], &["--wait", "--", "false"]].concat());
    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(
        failed.err.contains("3 of 3 tasks did not complete"),
        "{}",
        failed.err
    );
}
