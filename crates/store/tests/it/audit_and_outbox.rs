//! The audit log and the outbox: rows that are only ever added, and events told at least once.

use domain::audit::{AuditEntry, EntityType};
use store::{
    audit_by_client, audit_by_entity, audit_insert, outbox_delete_published_before, outbox_depth,
    outbox_mark_published, outbox_push, outbox_take,
};

use crate::samples::{at, event, pool_id};
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
    the_history_of_a_thing_and_of_a_client_is_newest_first,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            audit_insert(tx, &entry("a/b", "me", "created"))?;
            audit_insert(tx, &entry("a/b", "you", "updated"))?;
            audit_insert(tx, &entry("a/c", "me", "created"))?;
            audit_insert(tx, &entry("a/b", "me", "deleted"))
        })
        .await;
        let page = read(&store, |tx| {
            audit_by_entity(tx, EntityType::WorkerPool, "a/b", None, 2)
        })
        .await;
        let entries: Vec<_> = page.iter().map(|(_, entry)| entry.clone()).collect();
        assert_eq!(
            entries,
            [
                entry("a/b", "me", "deleted"),
                entry("a/b", "you", "updated")
            ]
        );
        let before = page[1].0;
        let rest = read(&store, move |tx| {
            audit_by_entity(tx, EntityType::WorkerPool, "a/b", Some(before), 2)
        })
        .await;
        assert_eq!(rest.len(), 1);
        let mine = read(&store, |tx| {
            audit_by_client(tx, &"me".parse().unwrap(), None, 9)
        })
        .await;
        let mine: Vec<_> = mine
            .iter()
            .map(|(_, entry)| entry.entity_id.as_str())
            .collect();
        assert_eq!(mine, ["a/b", "a/c", "a/b"]);
        let roles = read(&store, |tx| {
            audit_by_entity(tx, EntityType::Role, "a/b", None, 2)
        })
        .await;
        assert!(roles.is_empty());
    }
);

on_both!(events_wait_in_order_until_they_are_marked, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["one", "two", "three"] {
            outbox_push(tx, &event(id, "a/b"))?;
        }
        Ok(())
    })
    .await;
    let batch = read(&store, |tx| outbox_take(tx, 2)).await;
    let ids: Vec<_> = batch.iter().map(|row| row.event_id.as_str()).collect();
    assert_eq!(ids, ["one", "two"]);
    let body = event("one", "a/b").body;
    assert_eq!(batch[0].topic, body.exchange().topic());
    assert_eq!(batch[0].routing_key, body.routing_key());
    assert_eq!(batch[0].payload, body.payload(at(7)));
    assert_eq!(batch[0].pool_id, Some(pool_id("a/b")));
    assert!(batch[0].sequence < batch[1].sequence);

    let sequences: Vec<i64> = batch.iter().map(|row| row.sequence).collect();
    write(&store, move |tx| {
        outbox_mark_published(tx, &sequences, at(100))
    })
    .await;
    assert_eq!(read(&store, outbox_depth).await, 1);
    let rest = read(&store, |tx| outbox_take(tx, 9)).await;
    assert_eq!(rest[0].event_id, "three");
    assert_eq!(
        write(&store, |tx| outbox_delete_published_before(tx, at(100), 9)).await,
        0
    );
    assert_eq!(
        write(&store, |tx| outbox_delete_published_before(tx, at(101), 1)).await,
        1
    );
    assert_eq!(
        write(&store, |tx| outbox_delete_published_before(tx, at(101), 9)).await,
        1
    );
    assert_eq!(read(&store, outbox_depth).await, 1);
});
