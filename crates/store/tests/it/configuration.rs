//! Worker configurations: lists do not read the documents.

use domain::Version;
use domain::configuration::{Action, StoredConfiguration, VersionRecord};
use domain::id::ConfigurationId;
use serde_json::json;
use store::{configuration_versions, configurations};

use crate::samples::at;
use crate::world::{on_both, read, write};

fn id() -> ConfigurationId {
    "build".parse().unwrap()
}

fn stored(description: &str, version: i64) -> StoredConfiguration {
    StoredConfiguration {
        id: id(),
        document: json!({
            "description": description, "workerTypes": ["b", "a"], "rules": [{"ruleId": "r"}]
        }),
        market: json!({}),
        created: at(1),
        last_modified: at(version),
        version: Version(version),
    }
}

on_both!(
    a_list_of_configurations_does_not_read_documents,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| configurations::insert(tx, &stored("one", 1))).await;
        write(&store, |tx| {
            configurations::update(tx, &stored("two", 2), Version(1))
        })
        .await;
        let expected = json!({"description": "two", "workerTypes": ["b", "a"]});
        // Reading these documents would fail.
        database.raw("UPDATE worker_configurations SET document = 'no', market = 'no'");
        let listed = read(&store, |tx| configurations::list(tx, None, 10)).await;
        assert_eq!(listed[0].summary, expected);
        assert_eq!(
            (listed[0].last_modified, listed[0].version),
            (at(2), Version(2))
        );
        // Written by an older program, without a summary.
        let document = stored("two", 2).document;
        database.raw(&format!(
            "UPDATE worker_configurations SET summary = NULL, document = '{document}'"
        ));
        let listed = read(&store, |tx| configurations::list(tx, None, 10)).await;
        assert_eq!(listed[0].summary, expected);
    }
);

on_both!(a_list_of_versions_does_not_read_documents, |database| {
    let store = database.migrated().await;
    for version in 1..=2 {
        let record = VersionRecord {
            id: id(),
            version: Version(version),
            action: Action::Updated,
            document: json!({}),
            market: json!({}),
            client_id: "me".to_owned(),
            reason: format!("because {version}"),
            created: at(version),
        };
        write(&store, move |tx| {
            configuration_versions::insert(tx, &record)
        })
        .await;
    }
    database.raw("UPDATE worker_configuration_versions SET document = 'no', market = 'no'");
    let listed = read(&store, |tx| {
        configuration_versions::list(tx, &id(), None, 10)
    })
    .await;
    let listed: Vec<_> = listed
        .iter()
        .map(|listed| (listed.version.0, listed.reason.as_str()))
        .collect();
    assert_eq!(listed, [(2, "because 2"), (1, "because 1")]);
});
