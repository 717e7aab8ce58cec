//! `/ready` reports whether the process works.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use server::background::HealthCheck;
use server::background::driver::BackgroundTask;
use server::config::Config;
use server::run::RunError;

use crate::database::on_both;

on_both!(
    a_process_whose_database_takes_no_writes_is_not_ready,
    |world| {
        let ready = async || {
            let answer = world.get("root:/ready").anonymously().await;
            (answer.status, answer.text)
        };
        assert_eq!(ready().await, (200, "ready\n".to_owned()));
        world.database.raw("DROP TABLE revisions");
        // The answer holds for a few seconds: asking often makes no writes.
        assert_eq!(ready().await.0, 200);
        world.clock.advance_ms(5_000);
        let refused = (503, "the database cannot be written\n".to_owned());
        assert_eq!(ready().await, refused);
        assert_eq!(ready().await, refused);
        world.errors_expected.set(true);
        let logged = world.log.lines("cannot write to the database");
        assert_eq!(logged.len(), 1, "{logged:?}");
        world
            .database
            .raw("CREATE TABLE revisions (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)");
        world.clock.advance_ms(5_000);
        assert_eq!(ready().await.0, 200);
    }
);

on_both!(
    every_process_hears_workers_as_long_as_its_database_answers,
    |world| {
        let mut task = HealthCheck(world.app.clone());
        let listening = &world.app.engine.availability;
        let started = listening.since(world.now());
        for _ in 0..3 {
            world.clock.advance_ms(50_000);
            task.activate().await.unwrap();
            assert_eq!(listening.since(world.now()), started);
        }
        world.errors_expected.set(true);
        world.database.raw("DROP TABLE revisions");
        world.clock.advance_ms(50_000);
        task.activate().await.unwrap_err();
        assert_eq!(listening.gap(world.now()), None);
        world.clock.advance_ms(10_001);
        assert_eq!(listening.gap(world.now()), Some(world.now()));
    }
);

fn config(folder: &Path) -> Config {
    let keys = folder.join("keys");
    std::fs::write(&keys, "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    // Nothing starts with keys that others can read.
    std::fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndatabase.url = \"sqlite:{0}/db\"\nkeys.file = \"{0}/keys\"\n",
        folder.display()
    );
    Config::from_toml(&text, Path::new("test.toml")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_one_sqlite_file_is_refused_and_a_dead_one_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (started, has_started) = tokio::sync::oneshot::channel();
    let first = tokio::spawn(server::run(
        config(folder.path()),
        async move { drop(stopped.await) },
        |_| started.send(()).unwrap(),
    ));
    has_started.await.unwrap();
    let second = server::run(config(folder.path()), async {}, |_| ()).await;
    let problem = second.unwrap_err();
    assert!(matches!(problem, RunError::InUse(_)), "{problem}");
    let text = problem.to_string();
    assert!(
        text.starts_with("another server uses the database "),
        "{text}"
    );
    assert!(text.contains("stop that server first"), "{text}");
    stop.send(()).unwrap();
    first.await.unwrap().unwrap();
    // The lock file still exists, as after a crash, and no process holds the lock.
    assert!(folder.path().join("db.lock").exists());
    server::run(config(folder.path()), async {}, |_| ())
        .await
        .unwrap();
}
