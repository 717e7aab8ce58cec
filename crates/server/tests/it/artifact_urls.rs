//! URLs of artifacts, and what their files may do in a browser.

use access::Secret;
use domain::time::Clock as _;

use crate::artifact_files::ours;
use crate::artifacts::{path, s3};
use crate::ask::Answer;
use crate::database::on_sqlite_first;
use crate::runs::{OTHER_TASK, TASK};

on_sqlite_first!(pages_of_tasks_run_nothing_and_send_no_forms, |world| {
    world.running_task().await;
    for (content_type, is_in_sandbox) in [
        ("text/html", true),
        ("application/xhtml+xml", true),
        ("image/svg+xml", true),
        ("application/pdf", false),
    ] {
        let name = format!("public/{}", content_type.replace('/', "-"));
        let url = world.upload_url(&name, content_type).await;
        world.upload(&url, "<form>").await.expect(200);
        let page = world.fetch(&path(&name)).await;
        assert_eq!(page.header("content-type"), content_type);
        let policy: Vec<_> = page.header("content-security-policy").split("; ").collect();
        assert!(policy.contains(&"default-src 'none'"), "{policy:?}");
        assert!(policy.contains(&"form-action 'none'"), "{policy:?}");
        assert_eq!(policy.contains(&"sandbox"), is_in_sandbox, "{policy:?}");
    }
});

on_sqlite_first!(a_url_is_good_for_one_thing_for_a_while, |world| {
    world.running_task().await;
    let put = world.upload_url("public/a", "text/plain").await;
    let refused = |answer: Answer| {
        let text = "This URL is invalid or has expired: ask for the artifact again";
        answer.refused(401, "AuthenticationFailed", text);
    };
    let get = put.replace("name=public%2Fa", "name=public%2Fb");
    for wrong in [
        get,
        put.replace("runs/0", "runs/1"),
        put.replace(TASK, OTHER_TASK),
        put.replace("until=1", "until=2"),
        put.replace("signature=", "signature=x"),
        put.split("&signature").next().unwrap().to_owned(),
        put.split("&until").next().unwrap().to_owned(),
        put.split('?').next().unwrap().to_owned(),
    ] {
        refused(world.upload(&wrong, "x").await);
    }
    refused(world.get(&put).anonymously().await);
    world.upload(&put, "x").await.expect(200);
    let get = ours(&world.place(&path("public/a")).await);
    refused(world.upload(&get, "y").await);
    world.clock.advance_ms(30 * 60_000);
    assert_eq!(world.get(&get).anonymously().await.text, "x");
    world.clock.advance_ms(1);
    refused(world.get(&get).anonymously().await);
    world.clock.advance_ms(15 * 60_000);
    refused(world.upload(&put, "z").await);
});

on_sqlite_first!(a_url_that_lasts_too_long_is_refused, |world| {
    world.running_task().await;
    world.create("public/a", s3("text/plain")).await;
    let put = world.upload_url("public/a", "text/plain").await;
    world.upload(&put, "x").await.expect(200);
    let now = world.clock.now().as_millis();
    let hour = 3_600_000;
    for (until, is_good) in [
        (now, true),
        (now + hour - 1, true),
        (now + hour, true),
        (now + hour + 1, false),
        (now + 10 * hour, false),
        (i64::MAX, false),
        (now - 1, false),
        (0, false),
    ] {
        // As somebody signs who has the keys.
        let text = Secret::new(format!("get\n{TASK}\n0\n{until}\npublic/a"));
        let signature = world.app.engine.keyring.digest("artifact-url", &text);
        let (start, _) = put.split_once("&until").unwrap();
        let url = format!("{start}&until={until}&signature={signature}");
        let answer = world.get(&url).anonymously().await;
        assert_eq!(answer.status, if is_good { 200 } else { 401 }, "{until}");
    }
});
