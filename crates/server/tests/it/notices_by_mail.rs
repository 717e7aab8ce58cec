//! Owners get mail about their pools, if they want any, from a server that talks SMTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use domain::time::MINUTE_MS;
use serde_json::{Value, json};
use server::background::Notifier;
use server::background::driver::BackgroundTask;
use server::config::{Config, MailServer, MailTls};
use server::doctor::{State, examine};
use server::notify::MailChannel;

use crate::database::{Database, on_sqlite_first};
use crate::notices::{report, with_pool};
use crate::receivers::{Mail, MailRoom, Moods};
use crate::world::{ROOT_URL, World};

const GATHER_MS: i64 = 30_000;

fn server(address: SocketAddr) -> MailServer {
    MailServer {
        host: address.ip().to_string(),
        port: address.port(),
        tls: MailTls::None,
        login: None,
        from: "Fleet <fleet@example.com>".parse().unwrap(),
        domains: None,
        time_limit: Duration::from_secs(120),
    }
}

async fn telling(world: &World, server: &MailServer) -> Notifier {
    let channel = Arc::new(MailChannel::new(server, ROOT_URL).unwrap());
    let mut task = Notifier::new(Arc::clone(&world.app), channel);
    task.activate().await.unwrap();
    task
}

async fn after(world: &World, task: &mut Notifier, room: &MailRoom, millis: i64) -> Vec<Mail> {
    task.activate().await.unwrap();
    world.clock.advance_ms(millis);
    task.activate().await.unwrap();
    room.take()
}

fn owned_by(owner: &str) -> Value {
    json!({"owner": owner, "emailOnError": true})
}

fn recipients(mails: &[Mail]) -> Vec<&str> {
    let mut all: Vec<&str> = mails
        .iter()
        .flat_map(|mail| &mail.to)
        .map(String::as_str)
        .collect();
    all.sort_unstable();
    all
}

on_sqlite_first!(only_owners_with_email_on_error_get_mail, |world| {
    let room = MailRoom::open().await;
    with_pool(world, "a/b", owned_by("ann@example.com")).await;
    with_pool(world, "a/c", owned_by("bob@example.com")).await;
    with_pool(world, "a/d", json!({"owner": "eve@example.com"})).await;
    let mut task = telling(world, &server(room.address)).await;
    for pool in ["a/b", "a/c", "a/d"] {
        for worker in ["h1", "h2"] {
            report(world, pool, worker, "Disk full", "no room").await;
        }
    }
    let mails = after(world, &mut task, &room, GATHER_MS).await;
    assert_eq!(recipients(&mails), ["ann@example.com", "bob@example.com"]);
    let mail = mails
        .iter()
        .find(|mail| mail.to == ["ann@example.com"])
        .unwrap();
    assert_eq!(mail.subject(), "[fleetwright] a/b: Disk full");
    assert!(
        mail.text.contains("How often:     2 times, from "),
        "{}",
        mail.text
    );
    assert!(!mail.text.contains("T0P-SECRET"), "{}", mail.text);
});

on_sqlite_first!(
    an_owner_who_left_or_wants_no_mail_any_more_gets_none,
    |world| {
        let room = MailRoom::open().await;
        for pool in ["a/b", "a/c"] {
            with_pool(world, pool, owned_by("ann@example.com")).await;
        }
        let mut task = telling(world, &server(room.address)).await;
        for pool in ["a/b", "a/c"] {
            report(world, pool, "h", "Disk full", "no room").await;
        }
        task.activate().await.unwrap();
        let mut left = crate::samples::pool("static", json!({}));
        left["owner"] = json!("bob@example.com");
        world
            .post("/worker-pool/a%2Fc", left.clone())
            .await
            .expect(200);
        left["emailOnError"] = json!(true);
        world.post("/worker-pool/a%2Fb", left).await.expect(200);
        let mails = after(world, &mut task, &room, GATHER_MS).await;
        assert_eq!(recipients(&mails), ["bob@example.com"]);
        assert_eq!(mails[0].subject(), "[fleetwright] a/b: Disk full");
    }
);

on_sqlite_first!(
    nothing_that_a_worker_says_becomes_a_header_or_a_command,
    |world| {
        let room = MailRoom::open().await;
        with_pool(world, "a/b", owned_by("ann@example.com")).await;
        let mut task = telling(world, &server(room.address)).await;
        let evil = "x\r\n.\r\nRCPT TO:<eve@example.com>\r\nBcc: eve@example.com";
        report(world, "a/b", "h", evil, evil).await;
        let mails = after(world, &mut task, &room, GATHER_MS).await;
        assert_eq!(mails.len(), 1);
        assert_eq!(mails[0].to, ["ann@example.com"]);
        let (head, body) = mails[0].text.split_once("\n\n").unwrap();
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(body.contains("Advice: "), "{body}");
        let commands = room.said();
        let said = |word: &str| {
            commands
                .iter()
                .filter(|line| line.starts_with(word))
                .count()
        };
        assert_eq!(said("RCPT"), 1, "{commands:?}");
    }
);

on_sqlite_first!(
    a_recipient_who_is_refused_does_not_keep_mail_from_others,
    |world| {
        let room = MailRoom::open().await;
        with_pool(world, "a/b", owned_by("ann@example.com")).await;
        with_pool(world, "a/c", owned_by("bob@example.com")).await;
        room.feel(Moods {
            refused: vec!["ann@example.com".to_owned()],
            ..Moods::default()
        });
        let mut task = telling(world, &server(room.address)).await;
        for pool in ["a/b", "a/c"] {
            report(world, pool, "h", "Disk full", "no room").await;
        }
        let mails = after(world, &mut task, &room, GATHER_MS).await;
        assert_eq!(recipients(&mails), ["bob@example.com"]);
        assert_eq!(world.log.lines("was refused").len(), 1);
        assert_eq!(world.log.lines("cannot send notices by").len(), 0);
        room.feel(Moods::default());
        let mails = after(world, &mut task, &room, 2 * MINUTE_MS).await;
        assert_eq!(recipients(&mails), ["ann@example.com"]);
    }
);

on_sqlite_first!(mail_waits_for_a_closed_or_unreachable_server, |world| {
    let room = MailRoom::open().await;
    with_pool(world, "a/b", owned_by("ann@example.com")).await;
    room.feel(Moods {
        is_closed: true,
        ..Moods::default()
    });
    let mut task = telling(world, &server(room.address)).await;
    report(world, "a/b", "h", "Disk full", "no room").await;
    for _ in 0..3 {
        assert!(after(world, &mut task, &room, MINUTE_MS).await.is_empty());
    }
    assert_eq!(world.log.lines("cannot send notices by").len(), 1);
    room.feel(Moods::default());
    assert_eq!(after(world, &mut task, &room, MINUTE_MS).await.len(), 1);
    // The port is closed now.
    let address = room.address;
    drop(room);
    let mut task = telling(world, &server(address)).await;
    report(world, "a/b", "h", "Net down", "no route").await;
    task.activate().await.unwrap();
    world.clock.advance_ms(GATHER_MS);
    task.activate().await.unwrap();
    assert_eq!(world.log.lines("cannot send notices by").len(), 2);
});

#[tokio::test]
async fn a_silent_mail_server_times_out() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let room = MailRoom::open().await;
    room.feel(Moods {
        is_silent: true,
        ..Moods::default()
    });
    with_pool(&world, "a/b", owned_by("ann@example.com")).await;
    let quick = MailServer {
        time_limit: Duration::from_millis(200),
        ..server(room.address)
    };
    let mut task = telling(&world, &quick).await;
    report(&world, "a/b", "h", "Disk full", "no room").await;
    let done = after(&world, &mut task, &room, GATHER_MS);
    let mails = tokio::time::timeout(Duration::from_secs(120), done).await;
    assert!(mails.unwrap().is_empty());
    assert_eq!(world.log.lines("cannot send notices by").len(), 1);
}

#[tokio::test]
async fn the_password_is_used_and_never_shown() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let room = MailRoom::open().await;
    // "\0me\0hunter2"
    room.feel(Moods {
        login: Some("AG1lAGh1bnRlcjI=".to_owned()),
        ..Moods::default()
    });
    with_pool(&world, "a/b", owned_by("ann@example.com")).await;
    let login = |password: &str| MailServer {
        login: Some(("me".to_owned(), Secret::new(password))),
        ..server(room.address)
    };
    let mut task = telling(&world, &login("wrong-hunter2")).await;
    report(&world, "a/b", "h", "Disk full", "no room").await;
    assert!(after(&world, &mut task, &room, GATHER_MS).await.is_empty());
    assert_eq!(world.log.lines("who are you?").len(), 1);
    let mut task = telling(&world, &login("hunter2")).await;
    assert_eq!(after(&world, &mut task, &room, MINUTE_MS).await.len(), 1);
    assert!(!world.log.text().contains("hunter2"));
}

#[tokio::test]
async fn without_encryption_nothing_is_said_to_a_server_that_must_offer_it() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let room = MailRoom::open().await;
    with_pool(&world, "a/b", owned_by("ann@example.com")).await;
    let strict = MailServer {
        tls: MailTls::Starttls,
        login: Some(("me".to_owned(), Secret::new("hunter2"))),
        ..server(room.address)
    };
    let mut task = telling(&world, &strict).await;
    report(&world, "a/b", "h", "Disk full", "no room").await;
    assert!(after(&world, &mut task, &room, GATHER_MS).await.is_empty());
    let said = room.said();
    assert!(
        said.iter()
            .all(|line| line.starts_with("EHLO") || line == "QUIT"),
        "{said:?}"
    );
    assert_eq!(world.log.lines("cannot send notices by").len(), 1);
}

async fn findings(address: SocketAddr) -> Vec<(State, String)> {
    let text = format!(
        "[notify.email]\nsmtp = \"smtp://{address}\"\ntls = \"none\"\nfrom = \"fleet@example.com\"\n\
         time_limit_seconds = 5\n[[notify.webhook]]\nurl = \"http://hooks.example.com/T0P-SECRET\"\n"
    );
    let config = Config::from_toml(&text, Path::new("test.toml")).unwrap();
    let findings = examine(&config).await.into_iter();
    findings
        .map(|finding| (finding.state, finding.what))
        .collect()
}

#[tokio::test]
async fn the_doctor_says_whether_the_mail_server_answers() {
    let room = MailRoom::open().await;
    let address = room.address;
    let good = (State::Good, format!("the mail server at {address} answers"));
    let found = findings(address).await;
    assert!(found.contains(&good), "{found:?}");
    let clear = "notices to the webhook at hooks.example.com are not encrypted";
    assert!(
        found.contains(&(State::Warning, clear.to_owned())),
        "{found:?}"
    );
    assert!(room.take().is_empty(), "nothing is sent");
    drop(room);
    let found = findings(address).await;
    let place = format!("the mail server at {address} is not usable: ");
    let bad = found
        .iter()
        .find(|(_, what)| what.starts_with(&place))
        .unwrap();
    assert_eq!(bad.0, State::Bad);
    assert!(!format!("{found:?}").contains("T0P-SECRET"));
}
