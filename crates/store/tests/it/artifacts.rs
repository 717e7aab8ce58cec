//! Artifacts: reads, lists, updates and deletion.

use domain::artifact::{Artifact, ArtifactName, Content, Uploaded};
use domain::id::TaskId;
use store::artifacts;

use crate::samples::at;
use crate::world::{on_both, read, write};

const TASK: &str = "fN1SbArXTPSVFNUvaOlinQ";
const OTHER_TASK: &str = "fN1SbArXTPSVFNUvaOlinA";

fn task(id: &str) -> TaskId {
    id.parse().unwrap()
}

fn name(text: &str) -> ArtifactName {
    text.parse().unwrap()
}

fn artifact(task_id: &str, run_id: u32, text: &str, content: Content) -> Artifact {
    Artifact {
        task_id: task(task_id),
        run_id,
        name: name(text),
        content_type: "text/plain; charset=\"utf-8\"".to_owned(),
        expires: at(5_000),
        created: at(1),
        content,
    }
}

fn link() -> Content {
    Content::Link {
        artifact: "public/größe".to_owned(),
    }
}

fn file() -> Content {
    Content::File {
        declared_bytes: None,
        uploaded: None,
    }
}

on_both!(an_artifact_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let contents = [
        file(),
        Content::File {
            declared_bytes: Some(7),
            uploaded: Some(Uploaded {
                bytes: u64::from(u32::MAX) * 8,
                encoding: Some("gzip".to_owned()),
            }),
        },
        Content::Log,
        Content::Reference {
            url: "https://example.com/?a='b'".to_owned(),
        },
        link(),
        Content::Error {
            reason: "file-missing-on-worker".to_owned(),
            message: "no\nsuch \"file\"".to_owned(),
        },
    ];
    for (number, content) in contents.into_iter().enumerate() {
        let stored = artifact(TASK, 0, &format!("public/{number}"), content);
        let (given, again) = (stored.clone(), stored.clone());
        assert!(write(&store, move |tx| artifacts::insert(tx, &given)).await);
        assert!(!write(&store, move |tx| artifacts::insert(tx, &again)).await);
        let wanted = stored.name.clone();
        let found = read(&store, move |tx| {
            artifacts::get(tx, &task(TASK), 0, &wanted)
        });
        assert_eq!(found.await, Some(stored));
    }
    let elsewhere = read(&store, |tx| {
        artifacts::get(tx, &task(TASK), 1, &name("public/0"))
    });
    assert_eq!(elsewhere.await, None);
});

on_both!(an_update_writes_the_mutable_columns, |database| {
    let store = database.migrated().await;
    let first = artifact(TASK, 2, "public/a", file());
    let mut second = first.clone();
    second.expires = at(9_000);
    second.content_type = "x/y".to_owned();
    second.content = link();
    let (insert, update) = (first.clone(), second.clone());
    let changed = write(&store, move |tx| {
        artifacts::insert(tx, &insert)?;
        artifacts::update(tx, &update)
    });
    assert!(changed.await);
    let found = read(&store, |tx| {
        artifacts::get(tx, &task(TASK), 2, &name("public/a"))
    });
    assert_eq!(found.await, Some(second));
    let unknown = artifact(TASK, 3, "public/a", link());
    assert!(!write(&store, move |tx| artifacts::update(tx, &unknown)).await);
});

on_both!(the_artifacts_of_a_run_are_listed_by_name, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for text in ["public/b", "a", "public/a", "Z"] {
            artifacts::insert(tx, &artifact(TASK, 0, text, Content::Log))?;
        }
        artifacts::insert(tx, &artifact(TASK, 1, "other run", Content::Log))?;
        artifacts::insert(tx, &artifact(OTHER_TASK, 0, "other task", Content::Log))
    })
    .await;
    let list = async |after: Option<&'static str>, limit: u32| {
        let found = read(&store, move |tx| {
            artifacts::list(tx, &task(TASK), 0, after.map(name).as_ref(), limit)
        });
        let names = found.await.into_iter().map(|found| found.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(list(None, 3).await, ["Z", "a", "public/a"]);
    assert_eq!(list(Some("public/a"), 3).await, ["public/b"]);
});

on_both!(deleting_expired_artifacts_returns_them, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for (number, expires) in [30, 10, 20, 40].into_iter().enumerate() {
            let mut stored = artifact(TASK, 0, &number.to_string(), link());
            stored.expires = at(expires);
            artifacts::insert(tx, &stored)?;
        }
        Ok(())
    })
    .await;
    let mut gone = Vec::new();
    loop {
        let deleted = write(&store, |tx| artifacts::delete_expired(tx, at(31), 2)).await;
        if deleted.is_empty() {
            break;
        }
        assert!(deleted.len() <= 2);
        gone.extend(deleted.into_iter().map(|deleted| deleted.name.to_string()));
    }
    gone.sort();
    assert_eq!(gone, ["0", "1", "2"]);
    let left = read(&store, |tx| artifacts::list(tx, &task(TASK), 0, None, 10)).await;
    assert_eq!(left.len(), 1);
});

on_both!(a_corrupt_row_is_named, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        artifacts::insert(tx, &artifact(TASK, 7, "public/a", link()))
    })
    .await;
    database.raw("UPDATE artifacts SET details = '{\"socks\": {}}'");
    let read = store.read("test_read", |tx| {
        artifacts::get(tx, &task(TASK), 7, &name("public/a"))
    });
    let problem = read.await.unwrap_err().to_string();
    assert!(problem.contains(&format!("{TASK} 7 public/a")), "{problem}");
});
