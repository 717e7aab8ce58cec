//! The audit log: rows are added, and deleted when they are old.

use domain::audit::{AuditEntry, EntityType};
use store::audit;

use crate::samples::at;
use crate::world::{on_both, read, write};

fn entry(entity_id: &str, client_id: &str, action: &str) -> AuditEntry {
    AuditEntry {
        entity_type: EntityType::WorkerPool,
        entity_id: entity_id.to_owned(),
        action: action.to_owned(),
        client_id: client_id.to_owned(),
        created: at(5),
        source_ip: Some("::1".to_owned()),
        request_id: None,
        detail: serde_json::json!({"changed": ["owner"]}),
    }
}

on_both!(
    the_history_of_an_entity_and_of_a_client_is_oldest_first,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            audit::insert(tx, &entry("a/b", "me", "created"))?;
            audit::insert(tx, &entry("a/b", "you", "updated"))?;
            audit::insert(tx, &entry("a/c", "me", "created"))?;
            audit::insert(tx, &entry("a/b", "me", "deleted"))
        })
        .await;
        let page = read(&store, |tx| {
            audit::by_entity(tx, EntityType::WorkerPool, "a/b", None, 2)
        })
        .await;
        let entries: Vec<_> = page.iter().map(|(_, entry)| entry.clone()).collect();
        assert_eq!(
            entries,
            [
                entry("a/b", "me", "created"),
                entry("a/b", "you", "updated")
            ]
        );
        let after = page[1].0;
        let rest = read(&store, move |tx| {
            audit::by_entity(tx, EntityType::WorkerPool, "a/b", Some(after), 2)
        })
        .await;
        assert_eq!(rest.len(), 1);
        let mine = read(&store, |tx| {
            audit::by_client(tx, &"me".parse().unwrap(), None, 9)
        })
        .await;
        let mine: Vec<_> = mine
            .iter()
            .map(|(_, entry)| entry.entity_id.as_str())
            .collect();
        assert_eq!(mine, ["a/b", "a/c", "a/b"]);
        let roles = read(&store, |tx| {
            audit::by_entity(tx, EntityType::Role, "a/b", None, 2)
        })
        .await;
        assert!(roles.is_empty());
    }
);

on_both!(
    a_history_is_read_in_pages_of_the_requested_size,
    |database| {
        let store = database.migrated().await;
        let limit: u32 = 3;
        let mut n_stored = 0;
        for wanted in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
            write(&store, move |tx| {
                (n_stored..wanted)
                    .try_for_each(|_| audit::insert(tx, &entry("a/b", "me", "updated")))
            })
            .await;
            n_stored = wanted;
            let (mut seen, mut after) = (0, None);
            loop {
                let page = read(&store, move |tx| {
                    audit::by_entity(tx, EntityType::WorkerPool, "a/b", after, limit)
                })
                .await;
                seen += page.len();
                assert!(page.is_sorted_by_key(|(sequence, _)| *sequence));
                match page.last() {
                    Some((sequence, _)) => after = Some(*sequence),
                    None => break,
                }
            }
            assert_eq!(seen, wanted as usize);
            let mine = read(&store, move |tx| {
                audit::by_client(tx, &"me".parse().unwrap(), None, limit)
            });
            assert_eq!(mine.await.len(), wanted.min(limit) as usize);
        }
    }
);

on_both!(old_entries_are_deleted_first_to_last, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        [1, 2, 3, 9, 4].into_iter().try_for_each(|created| {
            let entry = AuditEntry {
                created: at(created),
                ..entry("a/b", "me", &created.to_string())
            };
            audit::insert(tx, &entry)
        })
    })
    .await;
    let delete = async |before, limit| {
        write(&store, move |tx| {
            audit::delete_before(tx, at(before), limit)
        })
        .await
    };
    assert_eq!(delete(1, 9).await, 0);
    assert_eq!(delete(9, 0).await, 0);
    assert_eq!(delete(9, 1).await, 1);
    assert_eq!(delete(3, 9).await, 1);
    // An entry after a newer one was written when the clock had been set back. It is deleted, too.
    assert_eq!(delete(9, 9).await, 2);
    let left = read(&store, |tx| {
        audit::by_entity(tx, EntityType::WorkerPool, "a/b", None, 9)
    });
    let left: Vec<_> = left.await.into_iter().map(|(_, it)| it.action).collect();
    assert_eq!(left, ["9"]);
});
