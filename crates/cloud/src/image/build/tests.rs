//! Builds with real processes, also hostile ones.

mod confined;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::testing::sizes_around;
use access::Secret;
use processes::Stat;
use tokio::time::timeout;

use super::*;
use crate::image::build_log::read_log;
use crate::image::supervisor::run_build_part;

/// The supervisor is this test program, which runs only this test.
#[test]
fn this_program_can_be_the_supervisor_of_a_build() {
    if run_build_part().is_some() {
        std::process::exit(0);
    }
}

const BUILDER: &str = "FLEETWRIGHT_TEST_BUILDER";

/// The builder that another test kills is this test program, too.
#[tokio::test]
async fn this_program_can_be_a_builder_that_is_killed() {
    if let Ok(folder) = std::env::var(BUILDER) {
        let script = format!("{STUBBORN} sleep 600");
        let mut run = start(spec(Path::new(&folder), &script)).await;
        run.wait().await;
    }
}

fn this_program(test: &str) -> Vec<String> {
    let own = std::env::current_exe().unwrap();
    let test = format!("image::build::tests::{test}");
    let own = own.to_str().unwrap().to_owned();
    vec![own, test, "--exact".to_owned(), "--nocapture".to_owned()]
}

fn supervisor() -> SupervisorProgram {
    SupervisorProgram(this_program(
        "this_program_can_be_the_supervisor_of_a_build",
    ))
}

/// Processes that leave the group, the session and the environment of the build and ignore SIGTERM.
/// Each writes its id.
const STUBBORN: &str = r#"
trap '' TERM
stubborn='trap "" TERM; echo $$ >>"$0"; while :; do sleep 600; done'
sh -c "$stubborn" ids &
setsid sh -c "$stubborn" ids &
(setsid sh -c "$stubborn" ids & ) &
env -i PATH="$PATH" setsid -f sh -c "$stubborn" ids
echo $$ >>ids
while [ "$(wc -l <ids)" -lt 5 ]; do sleep 0.01; done
echo all
"#;

fn spec(root: &Path, script: &str) -> BuildSpec {
    BuildSpec {
        command: ["sh", "-c", script, "build"].map(str::to_owned).into(),
        environment: BTreeMap::new(),
        secrets: Vec::new(),
        folder: root.join("run"),
        output: "image".to_owned(),
        formats: vec!["raw".to_owned()],
        time_limit: Duration::from_secs(60),
        grace: Duration::from_millis(50),
        max_log_bytes: 1024 * 1024,
        confinement: Confinement::default(),
    }
}

async fn start(spec: BuildSpec) -> BuildRun {
    BuildRun::start(spec, &supervisor()).await.unwrap()
}

async fn run(spec: BuildSpec) -> BuildOutcome {
    start(spec).await.wait().await
}

/// The log without its last line, which is ours.
fn log_of(root: &Path) -> String {
    let (log, _) = log_and_last_line(root);
    log
}

fn log_and_last_line(root: &Path) -> (String, String) {
    let text = fs::read_to_string(root.join("run/build.log")).unwrap();
    let (log, last) = text.rsplit_once("[fleetwright] ").unwrap();
    (log.to_owned(), last.to_owned())
}

/// The length of our last line.
fn last_length(root: &Path) -> u64 {
    let (_, last) = log_and_last_line(root);
    ("[fleetwright] ".len() + last.len()) as u64
}

fn ids(root: &Path) -> Vec<i32> {
    let text = fs::read_to_string(root.join("run/work/ids")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn alive(root: &Path) -> Vec<i32> {
    let is_alive = |id: &i32| Stat::of(*id).is_ok_and(|stat| stat.is_alive);
    ids(root).into_iter().filter(is_alive).collect()
}

/// Waits for a state of the system.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // Time: between looks at the state.
    let mut rounds = tokio::time::interval(Duration::from_millis(5));
    let waited = timeout(Duration::from_secs(60), async {
        while !is_so() {
            rounds.tick().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("waited for {what}"));
}

async fn until_all_run(root: &Path) {
    until("five processes", || alive(root).len() == 5).await;
}

#[tokio::test]
async fn a_build_has_its_own_environment_and_makes_checked_files() {
    let root = tempfile::tempdir().unwrap();
    let mut spec = spec(
        root.path(),
        r#"env | sort; pwd; cat; printf abc >"$1.raw"; echo x >&2"#,
    );
    spec.command.push("{output}".to_owned());
    spec.environment
        .insert("RELEASE".to_owned(), "bookworm".to_owned());
    spec.environment
        .insert("NAME".to_owned(), "<{output}>".to_owned());
    let outcome = run(spec).await;
    let made = outcome.result.unwrap();
    let output = root.path().join("run/output/image");
    assert_eq!(made[0].path, output.with_extension("raw"));
    assert_eq!(made[0].checksum.size_bytes, 3);
    assert_eq!(outcome.exit_code, Some(0));
    assert!(outcome.peak_memory_kib > 100, "{}", outcome.peak_memory_kib);
    let log = log_of(root.path());
    assert_eq!(
        outcome.log.bytes,
        log.len() as u64 + last_length(root.path())
    );
    let (_, last) = log_and_last_line(root.path());
    assert!(
        last.starts_with("exit code 0 after ") && last.ends_with(" s\n"),
        "{last}"
    );
    let path = |name: &str| root.path().join("run").join(name).display().to_string();
    for line in [
        "RELEASE=bookworm".to_owned(),
        format!("NAME=<{}>", output.display()),
        format!("FLEETWRIGHT_OUTPUT={}", output.display()),
        format!("HOME={}", path("work")),
        format!("TMPDIR={}", path("tmp")),
        path("work"),
        "x".to_owned(),
    ] {
        assert!(log.lines().any(|it| it == line), "{line} in {log}");
    }
    assert!(!log.contains("CARGO") && !log.contains(PART), "{log}");
}

#[tokio::test]
async fn secrets_reach_the_build_and_not_its_log() {
    let root = tempfile::tempdir().unwrap();
    let script =
        r#"echo "$TOKEN"; printf %s "$KEY_FILE"; cat "$KEY_FILE"; cp "$KEY_FILE" "$1.raw""#;
    let mut spec = spec(root.path(), script);
    spec.command.push("{output}".to_owned());
    for (name, value, as_file) in [
        ("TOKEN", "hunter2hunter2", false),
        ("KEY", "long key\n", true),
    ] {
        spec.secrets.push(BuildSecret {
            name: name.to_owned(),
            value: Secret::new(value.to_owned()),
            as_file,
        });
    }
    assert!(!format!("{spec:?}").contains("hunter2"));
    let outcome = run(spec).await;
    let made = outcome.result.unwrap();
    assert_eq!(fs::read_to_string(&made[0].path).unwrap(), "long key\n");
    let file = root.path().join("run/secrets/KEY").display().to_string();
    assert_eq!(
        log_of(root.path()),
        format!("[redacted]\n{file}[redacted]\n")
    );
    assert!(
        !root.path().join("run/secrets").exists(),
        "files of secrets are deleted"
    );
}

#[tokio::test]
async fn a_silent_build_is_ended_at_its_time_limit() {
    let root = tempfile::tempdir().unwrap();
    let mut spec = spec(root.path(), "exec sleep 600");
    spec.time_limit = Duration::from_millis(500);
    let outcome = run(spec).await;
    let error = outcome.result.unwrap_err().to_string();
    assert_eq!(
        error,
        "the build exceeded its time limit of 0.5 s and was ended"
    );
    assert!(outcome.duration >= Duration::from_millis(500));
}

#[tokio::test]
async fn nothing_survives_the_end_of_the_command() {
    let root = tempfile::tempdir().unwrap();
    let script = format!(r#"{STUBBORN} printf abc >"$FLEETWRIGHT_OUTPUT.raw""#);
    let outcome = run(spec(root.path(), &script)).await;
    assert_eq!(outcome.result.unwrap().len(), 1);
    assert_eq!(ids(root.path()).len(), 5);
    assert_eq!(alive(root.path()), Vec::<i32>::new());
}

#[tokio::test]
async fn nothing_survives_the_time_limit_a_cancelled_and_a_dropped_build() {
    for end in ["time limit", "cancel", "drop"] {
        let root = tempfile::tempdir().unwrap();
        let mut spec = spec(root.path(), &format!("{STUBBORN} sleep 600"));
        if end == "time limit" {
            spec.time_limit = Duration::from_secs(2);
        }
        let mut run = start(spec).await;
        until_all_run(root.path()).await;
        match end {
            "time limit" => {
                let error = run.wait().await.result.unwrap_err();
                assert!(matches!(error, BuildError::TimeLimit(_)), "{error}");
            }
            "cancel" => {
                run.cancel();
                let error = run.wait().await.result.unwrap_err();
                assert_eq!(error.to_string(), "the build was cancelled");
            }
            _ => {
                drop(run);
                until("the end", || alive(root.path()).is_empty()).await;
            }
        }
        assert_eq!(ids(root.path()).len(), 5);
        assert_eq!(alive(root.path()), Vec::<i32>::new(), "{end}");
    }
}

#[tokio::test]
async fn a_build_ends_when_the_program_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let words = this_program("this_program_can_be_a_builder_that_is_killed");
    let mut builder = std::process::Command::new(&words[0])
        .args(&words[1..])
        .env(BUILDER, root.path())
        .spawn()
        .unwrap();
    until_all_run(root.path()).await;
    builder.kill().unwrap();
    builder.wait().unwrap();
    until("the end", || alive(root.path()).is_empty()).await;
    assert_eq!(ids(root.path()).len(), 5);
}

#[tokio::test]
async fn a_build_whose_supervisor_is_killed_ends_as_far_as_it_kept_its_environment() {
    let root = tempfile::tempdir().unwrap();
    let script = STUBBORN.replace("env -i", "env");
    let mut run = start(spec(root.path(), &format!("{script} sleep 600"))).await;
    until_all_run(root.path()).await;
    run.child.start_kill().unwrap();
    let error = run.wait().await.result.unwrap_err();
    assert_eq!(error.to_string(), "the supervisor of the build was killed");
    assert_eq!(alive(root.path()), Vec::<i32>::new());
}

#[tokio::test]
async fn a_build_may_clean_up_after_sigterm() {
    let root = tempfile::tempdir().unwrap();
    let script = "trap 'echo cleaned; exit 3' TERM; echo begun; while :; do sleep 0.01; done";
    let mut spec = spec(root.path(), script);
    // If this was waited for, the test would not end.
    spec.grace = Duration::from_secs(3_600);
    let mut run = start(spec).await;
    run.progress().wait_for(|bytes| *bytes > 0).await.unwrap();
    // A dropped wait does no harm.
    // Time: the build does not end by itself.
    assert!(timeout(Duration::from_millis(1), run.wait()).await.is_err());
    run.cancel();
    let again = run.wait().await;
    let outcome = run.wait().await;
    assert_eq!(again.exit_code, outcome.exit_code);
    assert!(matches!(outcome.result, Err(BuildError::Cancelled)));
    assert_eq!(outcome.exit_code, Some(3));
    let log = log_of(root.path());
    assert!(
        log.starts_with("begun\n") && log.ends_with("cleaned\n"),
        "{log}"
    );
}

#[tokio::test]
async fn each_failure_has_its_own_text() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::write(at("plain"), "echo hello").unwrap();
    fs::write(at("script"), "#!/no/such/interpreter\n").unwrap();
    fs::write(at("noise"), [0_u8, 1, 2, 3]).unwrap();
    for name in ["script", "noise"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = |name: &str| at(name).display().to_string();
    let cases: Vec<(Vec<String>, &str)> = vec![
        (
            vec!["no-such-program".to_owned()],
            "the program no-such-program is in no folder of the builder's PATH",
        ),
        (
            vec!["/no/such".to_owned()],
            "the program /no/such does not exist",
        ),
        (
            vec![path("plain")],
            "plain is not executable: Permission denied",
        ),
        (
            vec![path("script")],
            "script cannot be run: the interpreter that its first line names",
        ),
        // The system runs a file without a first line of its own by a shell.
        (vec![path("noise")], "the command exited with 127"),
        (
            vec![root.path().display().to_string()],
            "is not executable: Permission denied",
        ),
        (shell("exit 7"), "the command exited with 7"),
        (shell("exit 127"), "the command exited with 127"),
        (shell("kill -KILL $$"), "the command was killed by signal 9"),
        (
            shell("kill -SEGV $$"),
            "the command was killed by signal 11",
        ),
        (shell("true"), "the build has succeeded, but it made no "),
        (
            shell(": >\"$FLEETWRIGHT_OUTPUT.raw\""),
            "image.raw is empty",
        ),
    ];
    for (number, (command, expected)) in cases.into_iter().enumerate() {
        let mut spec = spec(&at(&number.to_string()), "");
        spec.command = command;
        let error = run(spec).await.result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
    }
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).into()
}

/// Makes a specification wrong.
type Change = fn(&mut BuildSpec);

fn secret(name: &str, value: &str) -> BuildSecret {
    BuildSecret {
        name: name.to_owned(),
        value: Secret::new(value.to_owned()),
        as_file: false,
    }
}

fn set(spec: &mut BuildSpec, name: &str, value: &str) {
    spec.environment.insert(name.to_owned(), value.to_owned());
}

#[tokio::test]
async fn a_specification_that_cannot_run_is_refused_before_anything_is_made() {
    let root = tempfile::tempdir().unwrap();
    let good = || spec(root.path(), "true");
    let cases: [(Change, &str); 9] = [
        (|it| it.command.clear(), "the command of the build is empty"),
        (
            |it| it.command[0].clear(),
            "the command of the build is empty",
        ),
        (
            |it| it.output = "a/b".to_owned(),
            "\"a/b\" cannot be part of a file name",
        ),
        (
            |it| it.formats[0] = "..".to_owned(),
            "\"..\" cannot be part",
        ),
        (|it| set(it, "A=B", ""), "\"A=B\" cannot be the name"),
        (|it| set(it, "A", "\0"), "must not have NUL"),
        (
            |it| it.secrets.push(secret("1", "long")),
            "\"1\" cannot be the name",
        ),
        (
            |it| it.secrets.push(secret("S", "abc\n")),
            "secret S has fewer than 4",
        ),
        (
            |it| it.secrets.push(secret("S", "ab\0cd")),
            "secret S has a NUL",
        ),
    ];
    for (change, expected) in cases {
        let mut spec = good();
        change(&mut spec);
        let error = BuildRun::start(spec, &supervisor()).await.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
    for length in sizes_around("the length", MAX_SPEC_BYTES) {
        let mut spec = good();
        let others: usize = spec.command.iter().map(String::len).sum();
        spec.command.push("x".repeat(length.saturating_sub(others)));
        assert_eq!(spec.check().is_ok(), length <= MAX_SPEC_BYTES, "{length}");
    }
    let mut both = good();
    set(&mut both, "A", "");
    both.secrets.push(secret("A", "long"));
    let error = BuildRun::start(both, &supervisor()).await.err().unwrap();
    assert!(
        error.to_string().contains("A is a secret and a variable"),
        "{error}"
    );
    assert!(!root.path().join("run").exists());
    fs::create_dir(root.path().join("run")).unwrap();
    let error = BuildRun::start(good(), &supervisor())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.ends_with("run: File exists (os error 17)"), "{error}");
    let nothing = SupervisorProgram(vec!["/no/such".to_owned()]);
    let elsewhere = spec(&root.path().join("other"), "true");
    let error = BuildRun::start(elsewhere, &nothing)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("cannot prepare the build: the supervisor: "),
        "{error}"
    );
}

#[tokio::test]
async fn the_log_can_be_read_while_it_grows_and_keeps_its_beginning_and_its_end() {
    let root = tempfile::tempdir().unwrap();
    let script = r#"printf first; while [ ! -e go ]; do sleep 0.01; done; seq 100000; echo last
        printf abc >"$FLEETWRIGHT_OUTPUT.raw""#;
    let mut spec = spec(root.path(), script);
    spec.max_log_bytes = 4_096;
    let log = spec.log_path();
    let mut run = start(spec).await;
    let mut progress = run.progress();
    progress.wait_for(|bytes| *bytes == 5).await.unwrap();
    let piece = read_log(&log, 4_096, 0, 100).unwrap();
    assert_eq!((piece.bytes.as_slice(), piece.next), (&b"first"[..], 5));
    fs::write(root.path().join("run/work/go"), "").unwrap();
    let outcome = run.wait().await;
    assert!(outcome.result.is_ok());
    let total = 5 + 588_895 + 5 + last_length(root.path());
    assert_eq!(outcome.log.bytes, total);
    assert!(outcome.log.left_out > 580_000 && outcome.log.error.is_none());
    assert_eq!(*progress.borrow_and_update(), total);
    let text = log_of(root.path());
    assert!(text.len() <= 4_096 && text.starts_with("first1\n2\n"));
    assert!(text.ends_with("99999\n100000\nlast\n"));
    let left_out = format!(
        "{:016} bytes of the log are left out here",
        outcome.log.left_out
    );
    assert!(text.contains(&left_out), "{left_out}");
}

#[tokio::test]
async fn a_full_disk_is_named() {
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    let script = r#"head -c 4000000 /dev/zero >"$FLEETWRIGHT_OUTPUT.raw""#;
    let outcome = run(spec(disk.path(), script)).await;
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, BuildError::DiskFull { .. }), "{error}");
    let run_folder = disk.path().join("run");
    let expected = format!(
        "the disk of {} is full: the command exited with 1",
        run_folder.display()
    );
    assert_eq!(error.to_string(), expected);
    fs::remove_dir_all(&run_folder).unwrap();
    // The log itself fills the disk: the build goes on, and the outcome says what is missing.
    let mut noisy = spec(disk.path(), "seq 1000000; echo end");
    noisy.max_log_bytes = 100_000_000;
    let outcome = run(noisy).await;
    assert_eq!(outcome.exit_code, Some(0));
    let log = outcome.log;
    assert!(log.error.unwrap().contains("No space left on device"));
    let last = "[fleetwright] exit code 0 after 0.0 s\n".len() as u64;
    assert!(
        (last..last + 3).contains(&(log.bytes - 6_888_896 - 4)),
        "{}",
        log.bytes
    );
}

/// A file system in memory that is soon full.
pub(crate) struct SmallDisk(PathBuf, Option<tempfile::TempDir>);

impl SmallDisk {
    /// `None`, with a printed note, where this is not permitted.
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output();
        if !mounted.is_ok_and(|it| it.status.success()) {
            eprintln!("skipped: a file system cannot be mounted here");
            return None;
        }
        Some(Self(folder.path().to_owned(), Some(folder)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        if !unmounted.is_ok_and(|it| it.success()) {
            // Its content must not be deleted through the mount.
            std::mem::forget(self.1.take());
        }
    }
}
