//! Builds are confined: they cannot read their builder.

use std::os::unix::fs::chown;
use std::process::Command;

use super::*;

/// The user and the group `nobody`, who owns nothing.
const NOBODY: u32 = 65534;
const READER: &str = "FLEETWRIGHT_TEST_READER";
const CREDENTIAL: &str = "hunter2-of-the-builder";

/// The builder that another test starts as another user is this test program, too.
#[tokio::test]
async fn this_program_can_be_a_builder_whose_build_reads_its_supervisor() {
    if let Ok(folder) = std::env::var(READER) {
        let script = r#"
            for one in environ mem auxv; do
                cat "/proc/$PPID/$one" >/dev/null && echo "$one was read"
            done
            tr '\0' '\n' </proc/$PPID/environ
            cat /proc/self/status | grep ^Uid
            printf abc >"$FLEETWRIGHT_OUTPUT.raw"
        "#;
        run(spec(Path::new(&folder), script)).await.result.unwrap();
    }
}

/// A copy of this program in a folder of `nobody`, and the words to run it as that user. Other
/// users than root have no other user: they run it themselves.
fn as_nobody(root: &Path, test: &str) -> Command {
    let mut words = this_program(test);
    if !nix::unistd::geteuid().is_root() {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        return command;
    }
    let copy = root.join("program");
    fs::copy(&words[0], &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    chown(root, Some(NOBODY), Some(NOBODY)).unwrap();
    words[0] = copy.display().to_string();
    let mut command = Command::new("setpriv");
    let user = format!("--reuid={NOBODY}");
    let group = format!("--regid={NOBODY}");
    command
        .args([&user, &group, "--clear-groups", "--"])
        .args(words);
    command
}

#[test]
fn a_build_cannot_read_its_supervisor() {
    let root = tempfile::tempdir().unwrap();
    let test = "confined::this_program_can_be_a_builder_whose_build_reads_its_supervisor";
    let builder = as_nobody(root.path(), test)
        .env(READER, root.path())
        .env("AWS_SECRET_ACCESS_KEY", CREDENTIAL)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&builder.stdout);
    assert!(builder.status.success(), "{text}");
    let log = log_of(root.path());
    let own = nix::unistd::geteuid();
    let user = if own.is_root() { NOBODY } else { own.as_raw() };
    assert!(log.contains(&format!("Uid:\t{user}\t")), "{log}");
    assert_eq!(log.matches("Permission denied").count(), 4, "{log}");
    assert!(
        !log.contains("was read") && !log.contains(CREDENTIAL),
        "{log}"
    );
}

/// Root may read the memory of every process, so it must not have what a build could use.
#[tokio::test]
async fn the_supervisor_has_nothing_of_our_environment() {
    let allowed = ["PATH", "LANG", PART, FOLDER_VARIABLE];
    let is_left_out = |name: &str| !allowed.contains(&name);
    assert!(std::env::vars().any(|(name, _)| is_left_out(&name)));
    let root = tempfile::tempdir().unwrap();
    let script = r#"cat "/proc/$PPID/environ" >environ; echo end"#;
    let mut run = start(spec(root.path(), &format!("{script}; exec sleep 600"))).await;
    run.progress().wait_for(|bytes| *bytes > 0).await.unwrap();
    let id = run.child.id().unwrap();
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    run.cancel();
    run.wait().await;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let text = String::from_utf8(environment).unwrap();
    let names = text
        .split_terminator('\0')
        .map(|it| it.split('=').next().unwrap());
    let names: std::collections::BTreeSet<_> = names.collect();
    assert!(
        names.contains(PART) && !names.iter().any(|name| is_left_out(name)),
        "{names:?}"
    );
}

fn nobody() -> Option<Confinement> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can run builds as another user");
        return None;
    }
    let account = permissions::Account::named("nobody").unwrap();
    Some(Confinement {
        account: Some(account),
        no_new_privs: true,
    })
}

/// A folder that other users may pass through, with a file of root that they cannot read.
fn passable_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(root.path().join("keys"), CREDENTIAL).unwrap();
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(root.path().join("keys"), closed).unwrap();
    root
}

#[tokio::test]
async fn a_build_runs_as_its_own_user_and_reaches_nothing_else() {
    let Some(confinement) = nobody() else {
        return;
    };
    let account = confinement.account.clone().unwrap();
    let root = passable_root();
    let script = r#"
        id -u; id -G; echo "$USER $LOGNAME"; pwd
        grep ^NoNewPrivs /proc/self/status
        echo x >"$HOME/mine" && echo x >"$TMPDIR/mine" && cat "$TOKEN_FILE"; echo
        cat "$FLEETWRIGHT_BUILD/../keys" "/proc/$PPID/environ" 2>&1
        ls "$FLEETWRIGHT_BUILD" 2>&1
        for one in build.log output; do
            mv "$FLEETWRIGHT_BUILD/$one" "$FLEETWRIGHT_BUILD/other" 2>&1
            rm -f "$FLEETWRIGHT_BUILD/build.log" 2>&1
        done
        printf abc >"$FLEETWRIGHT_OUTPUT.raw"
    "#;
    let mut spec = spec(root.path(), script);
    spec.confinement = confinement;
    spec.secrets.push(BuildSecret {
        as_file: true,
        ..secret("TOKEN", "a-secret-of-this-build")
    });
    let made = run(spec).await.result.unwrap();
    assert_eq!(made[0].checksum.size_bytes, 3);
    let log = log_of(root.path());
    let groups: Vec<String> = account.groups.iter().map(u32::to_string).collect();
    let work = root.path().join("run/work");
    let begins = format!(
        "{}\n{}\nnobody nobody\n{}\nNoNewPrivs:\t1\n[redacted]\n",
        account.user,
        groups.join(" "),
        work.display()
    );
    assert!(log.starts_with(&begins), "{log}");
    // The keys, the environment of the supervisor, the list, two moves and two removals.
    assert_eq!(log.matches("Permission denied").count(), 7, "{log}");
    assert!(!log.contains(CREDENTIAL), "{log}");
}

#[tokio::test]
async fn failures_of_a_build_with_its_own_user_have_the_same_texts() {
    let Some(confinement) = nobody() else {
        return;
    };
    let root = passable_root();
    let mut spec = spec(root.path(), "");
    spec.confinement = confinement;
    spec.command = vec!["/no/such/program".to_owned()];
    let error = run(spec).await.result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the program /no/such/program does not exist"
    );
}

#[tokio::test]
async fn nothing_of_another_user_survives_its_supervisor() {
    let Some(confinement) = nobody() else {
        return;
    };
    let root = passable_root();
    let script = STUBBORN.replace("env -i", "env");
    let mut spec = spec(root.path(), &format!("{script} sleep 600"));
    spec.confinement = confinement;
    let mut run = start(spec).await;
    until_all_run(root.path()).await;
    run.child.start_kill().unwrap();
    let error = run.wait().await.result.unwrap_err();
    assert_eq!(error.to_string(), "the supervisor of the build was killed");
    assert_eq!(alive(root.path()), Vec::<i32>::new());
}
