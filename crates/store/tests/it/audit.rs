//! The audit log: rows that are only ever added.

use domain::audit::{AuditEntry, EntityType};
use store::{audit_by_client, audit_by_entity, audit_insert};

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
