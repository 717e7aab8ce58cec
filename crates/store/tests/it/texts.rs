//! Texts are the same on both databases: bytewise order, any character, any reasonable length.

use proptest::prelude::*;
use store::{MAX_TEXT_BYTES, StoreError, pools, roles};

use crate::samples::{pool, pool_id, role};
use crate::world::{on_both, read, write};

on_both!(names_are_ordered_bytewise, |database| {
    let store = database.migrated().await;
    let mut names = vec![
        "a-b",
        "aB",
        "ab",
        "A",
        "a_b",
        "a",
        "Z",
        "a.b",
        "b",
        "a1",
        "hook-id:x/*",
    ];
    let stored = names.clone();
    write(&store, move |tx| {
        for name in &stored {
            roles::insert(tx, &role(name))?;
        }
        Ok(())
    })
    .await;
    names.sort_unstable();
    let listed = read(&store, |tx| roles::list(tx, None, 100)).await;
    let listed: Vec<_> = listed.iter().map(|role| role.role_id.as_str()).collect();
    assert_eq!(listed, names);
});

on_both!(
    quotes_unicode_and_long_texts_are_read_as_they_were_written,
    |database| {
        let store = database.migrated().await;
        let texts = [
            "'; DROP TABLE worker_pools; --".to_owned(),
            "\"double\" `back` \\ $1 ? :name".to_owned(),
            "日本語 🏗️ \u{7f} \r\n\t \u{10FFFF}".to_owned(),
            String::new(),
            "ü".repeat(512 * 1024),
        ];
        for (number, text) in texts.into_iter().enumerate() {
            let id = format!("a/p{number}");
            let mut stored = pool(&id, "one");
            stored.definition.description.clone_from(&text);
            stored.definition.config.insert(text.clone(), text.into());
            let expected = stored.clone();
            write(&store, move |tx| pools::insert(tx, &stored)).await;
            let found = read(&store, move |tx| pools::get(tx, &pool_id(&id))).await;
            assert!(found == Some(expected), "text {number} came back changed");
        }
    }
);

on_both!(both_databases_refuse_the_same_texts, |database| {
    let store = database.migrated().await;
    for text in ["nul \0 inside".to_owned(), "x".repeat(MAX_TEXT_BYTES + 1)] {
        let mut bad = pool("a/b", "one");
        bad.definition.description = text;
        let failed = store
            .write("bad_text", move |tx| pools::insert(tx, &bad))
            .await;
        assert!(
            matches!(failed, Err(StoreError::BadText { .. })),
            "{failed:?}"
        );
    }
    let mut escaped = pool("a/b", "one");
    escaped
        .definition
        .config
        .insert("nul".to_owned(), "\0".into());
    let expected = escaped.clone();
    write(&store, move |tx| pools::insert(tx, &escaped)).await;
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        Some(expected)
    );
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn sqlite_returns_any_text_unchanged(text in "[^\0]{0,64}") {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let database = crate::world::Database::sqlite();
        let mut stored = pool("a/b", "one");
        stored.definition.description = text;
        let expected = stored.clone();
        let found = runtime.block_on(async {
            let store = database.migrated().await;
            write(&store, move |tx| pools::insert(tx, &stored)).await;
            read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await
        });
        prop_assert_eq!(found, Some(expected));
    }
}
