//! Documentation: stored unchanged, replaced completely, and deleted with its subject.

use domain::documentation::{Record, Subject};
use store::{documentation, pools};

use crate::samples::{at, pool, pool_id};
use crate::world::{Database, on_both, read, write};

/// A joined tarball: twice what an upload may have (`documentation::MAX_UPLOAD_BYTES`).
const LARGEST_BYTES: usize = 8 << 20;

fn configuration(id: &str) -> Subject {
    Subject::Configuration(id.parse().unwrap())
}

fn worker_type(id: &str) -> Subject {
    Subject::WorkerType(pool_id(id))
}

fn record(subject: Subject, made: i64) -> Record {
    Record {
        subject,
        title: "Größe & \"more\"".to_owned(),
        digest: format!("d{made}"),
        packed_bytes: 3,
        unpacked_bytes: 16 << 20,
        n_files: 500,
        created: at(made),
        last_modified: at(made),
    }
}

fn with_configuration(database: &Database) {
    database.raw(
        "INSERT INTO worker_configurations (worker_configuration_id, document, market, created, \
         last_modified, version) VALUES ('build', '{}', '{}', 1, 1, 1); \
         INSERT INTO worker_types (worker_pool_id, worker_configuration_id, payload_schema, \
         check_payload) VALUES ('worker-manager/opt', 'build', NULL, 0)",
    );
}

on_both!(
    documentation_is_read_as_it_was_written_and_replaced,
    |database| {
        let store = database.migrated().await;
        let bytes: Vec<u8> = (0..=255).collect();
        let first = record(configuration("a.b-c_D"), 10);
        let (put, content) = (first.clone(), bytes.clone());
        write(&store, move |tx| documentation::put(tx, &put, &content)).await;
        let subject = first.subject.clone();
        let found = read(&store, move |tx| documentation::get(tx, &subject)).await;
        assert_eq!(found, Some((first.clone(), bytes)));

        let second = record(first.subject.clone(), 20);
        let put = second.clone();
        write(&store, move |tx| documentation::put(tx, &put, b"")).await;
        let expected = Record {
            created: at(10),
            ..second
        };
        let subject = first.subject.clone();
        let found = read(&store, move |tx| documentation::get(tx, &subject)).await;
        assert_eq!(found, Some((expected.clone(), Vec::new())));
        let subject = first.subject.clone();
        let found = read(&store, move |tx| documentation::get_record(tx, &subject)).await;
        assert_eq!(found, Some(expected));

        for expected in [true, false] {
            let subject = first.subject.clone();
            let gone = write(&store, move |tx| documentation::delete(tx, &subject)).await;
            assert_eq!(gone, expected);
        }
    }
);

on_both!(the_largest_possible_tarball_is_stored, |database| {
    let store = database.migrated().await;
    let bytes = vec![0xff; LARGEST_BYTES];
    let record = record(worker_type("a/b"), 1);
    let (put, content, subject) = (record.clone(), bytes.clone(), record.subject.clone());
    write(&store, move |tx| documentation::put(tx, &put, &content)).await;
    let found = read(&store, move |tx| documentation::get(tx, &subject)).await;
    assert!(found == Some((record, bytes)));
});

on_both!(pages_contain_every_record_once, |database| {
    let store = database.migrated().await;
    // A configuration and a worker type may have the same name.
    let subjects = [
        configuration("A"),
        configuration("a"),
        worker_type("a/a"),
        worker_type("b/a"),
    ];
    for subject in subjects.iter().rev().cloned() {
        let record = record(subject, 1);
        write(&store, move |tx| documentation::put(tx, &record, b"x")).await;
    }
    let mut seen: Vec<Subject> = Vec::new();
    loop {
        let last = seen.last().cloned();
        let page = read(&store, move |tx| {
            let after = last.as_ref().map(|last| (last.kind(), last.id()));
            documentation::list(tx, after, 2)
        });
        let page = page.await;
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|record| record.subject));
    }
    assert_eq!(seen, subjects);
});

on_both!(the_subject_and_its_configuration_are_found, |database| {
    let store = database.migrated().await;
    with_configuration(database);
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    for (subject, expected) in [
        (configuration("build"), true),
        (configuration("other"), false),
        (worker_type("a/b"), true),
        (worker_type("a/c"), false),
    ] {
        let exists = read(&store, move |tx| {
            documentation::subject_exists(tx, &subject)
        });
        assert_eq!(exists.await, expected);
    }
    for (id, expected) in [("worker-manager/opt", Some("build")), ("a/b", None)] {
        let found = read(&store, move |tx| {
            documentation::configuration_of(tx, &pool_id(id))
        });
        assert_eq!(found.await.as_ref().map(|id| id.as_str()), expected);
    }
});

on_both!(
    documentation_without_a_subject_is_deleted_in_batches,
    |database| {
        let store = database.migrated().await;
        with_configuration(database);
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        let kept = [configuration("build"), worker_type("a/b")];
        let orphans = [
            configuration("b"),
            configuration("c"),
            worker_type("build/opt"),
        ];
        for subject in kept.iter().chain(&orphans).cloned() {
            let record = record(subject, 1);
            write(&store, move |tx| documentation::put(tx, &record, b"x")).await;
        }
        for expected in [2, 1, 0] {
            let gone = write(&store, |tx| documentation::delete_orphans(tx, 2)).await;
            assert_eq!(gone, expected);
        }
        let left = read(&store, |tx| documentation::list(tx, None, 9)).await;
        let left: Vec<_> = left.into_iter().map(|record| record.subject).collect();
        assert_eq!(left, kept);
    }
);
