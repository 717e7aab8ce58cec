//! Clients and roles, and the revision that shows caches every change.

use domain::access::RoleRecord;
use domain::id::{ClientId, RoleId};
use store::revisions::{self, AccessRevision};
use store::roles::{self, RoleChanges};
use store::{Store, clients};

use crate::samples::{at, client, role};
use crate::world::{on_both, read, write};

fn client_id(id: &str) -> ClientId {
    id.parse().unwrap()
}

fn role_id(id: &str) -> RoleId {
    id.parse().unwrap()
}

async fn revision(store: &Store) -> AccessRevision {
    read(store, revisions::current).await
}

/// Reads the changes of roles as a cache that has seen this revision.
async fn changes(store: &Store, seen: &mut AccessRevision) -> RoleChanges {
    let known = std::mem::replace(seen, revision(store).await);
    let current = seen.clone();
    read(store, move |tx| roles::changes(tx, &known, &current)).await
}

/// The ids of roles, sorted.
fn ids(roles: &[RoleRecord]) -> Vec<&str> {
    let mut ids: Vec<_> = roles.iter().map(|role| role.role_id.as_str()).collect();
    ids.sort_unstable();
    ids
}

fn changed(changes: &RoleChanges) -> Vec<&str> {
    match changes {
        RoleChanges::Changed(roles) => ids(roles),
        RoleChanges::All(roles) => panic!("all roles were read: {:?}", ids(roles)),
    }
}

fn all(changes: &RoleChanges) -> Vec<&str> {
    match changes {
        RoleChanges::All(roles) => ids(roles),
        RoleChanges::Changed(roles) => panic!("only some roles were read: {:?}", ids(roles)),
    }
}

on_both!(
    only_changes_of_clients_and_roles_increase_the_revision,
    |database| {
        let store = database.migrated().await;
        let mut last = revision(&store).await;
        let mut grown = async |expected: bool, what: &str| {
            let now = revision(&store).await;
            assert_eq!(now.n_changes() > last.n_changes(), expected, "{what}");
            assert_eq!(now != last, expected, "{what}");
            last = now;
        };
        write(&store, |tx| clients::insert(tx, &client("a"))).await;
        grown(true, "a new client").await;
        write(&store, |tx| clients::insert(tx, &client("a"))).await;
        grown(false, "a client that exists").await;
        write(&store, |tx| clients::update(tx, &client("a"))).await;
        grown(true, "a changed client").await;
        write(&store, |tx| clients::touch(tx, &[client_id("a")], at(500))).await;
        grown(false, "a client that signed").await;
        write(&store, |tx| clients::delete(tx, &client_id("b"))).await;
        grown(false, "a client that does not exist").await;
        write(&store, |tx| clients::delete_expired(tx, at(5_000), 5)).await;
        grown(true, "an expired client").await;
        write(&store, |tx| roles::insert(tx, &role("r"))).await;
        grown(true, "a new role").await;
        write(&store, |tx| roles::update(tx, &role("r"))).await;
        grown(true, "a changed role").await;
        write(&store, |tx| roles::delete(tx, &role_id("r"))).await;
        grown(true, "a deleted role").await;
        write(&store, |tx| roles::delete(tx, &role_id("r"))).await;
        grown(false, "a role that does not exist").await;
    }
);

on_both!(a_cache_reads_changed_roles_only, |database| {
    let store = database.migrated().await;
    let mut seen = AccessRevision::default();
    assert_eq!(all(&changes(&store, &mut seen).await), [""; 0]);
    for number in 0..100 {
        let id = format!("r{number:02}");
        write(&store, move |tx| roles::insert(tx, &role(&id))).await;
        let expected = format!("r{number:02}");
        assert_eq!(changed(&changes(&store, &mut seen).await), [expected]);
    }
    write(&store, |tx| {
        roles::update(tx, &role("r07"))?;
        roles::insert(tx, &role("r07"))?;
        roles::insert(tx, &role("new"))
    })
    .await;
    write(&store, |tx| roles::update(tx, &role("r50"))).await;
    write(&store, |tx| clients::insert(tx, &client("a"))).await;
    let expected = ["new", "r07", "r50"];
    assert_eq!(changed(&changes(&store, &mut seen).await), expected);
    write(&store, |tx| clients::delete(tx, &client_id("a"))).await;
    assert_eq!(changed(&changes(&store, &mut seen).await), [""; 0]);
});

on_both!(
    a_cache_reads_all_roles_after_a_deletion_or_a_restored_backup,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| roles::insert(tx, &role("a"))).await;
        write(&store, |tx| roles::insert(tx, &role("b"))).await;
        let mut seen = revision(&store).await;
        write(&store, |tx| roles::delete(tx, &role_id("a"))).await;
        write(&store, |tx| roles::insert(tx, &role("c"))).await;
        assert_eq!(all(&changes(&store, &mut seen).await), ["b", "c"]);
        write(&store, |tx| roles::insert(tx, &role("a"))).await;
        assert_eq!(changed(&changes(&store, &mut seen).await), ["a"]);

        let counters = "UPDATE revisions SET value = value - 1 WHERE name LIKE 'access/%'";
        database.raw(&format!(
            "{counters}; DELETE FROM roles WHERE role_id = 'a'"
        ));
        assert_eq!(all(&changes(&store, &mut seen).await), ["b", "c"]);
        database.raw("DELETE FROM revisions WHERE name <> 'access'");
        assert_eq!(all(&changes(&store, &mut seen).await), ["b", "c"]);
    }
);

on_both!(a_client_is_read_as_it_was_written_and_updated, |database| {
    let store = database.migrated().await;
    let changed = write(&store, |tx| {
        clients::insert(tx, &client("a"))?;
        assert_eq!(clients::get(tx, &client_id("a"))?, Some(client("a")));
        let mut changed = client("a");
        changed.description = "else".to_owned();
        changed.scopes.clear();
        changed.sealed_access_token = "other".to_owned();
        changed.expires = at(11);
        changed.last_modified = at(12);
        changed.last_date_used = at(13);
        changed.last_rotated = at(14);
        changed.delete_on_expiration = false;
        changed.disabled = true;
        changed.version = clients::update(tx, &changed)?;
        Ok(changed)
    })
    .await;
    let found = read(&store, |tx| clients::get(tx, &client_id("a"))).await;
    assert_eq!(found, Some(changed));
    assert!(write(&store, |tx| clients::delete(tx, &client_id("a"))).await);
});

on_both!(touching_a_client_only_increases_its_date, |database| {
    let store = database.migrated().await;
    let found = write(&store, |tx| {
        clients::insert(tx, &client("a"))?;
        clients::touch(tx, &[client_id("a"), client_id("nobody")], at(100))?;
        clients::touch(tx, &[client_id("a")], at(50))?;
        Ok(clients::get(tx, &client_id("a"))?.unwrap())
    })
    .await;
    assert_eq!(
        (found.last_date_used, found.version),
        (at(100), client("a").version)
    );
});

on_both!(clients_are_listed_by_prefix, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["a/2", "a/1", "a", "b/1", "a/3", "aa", "A/1"] {
            clients::insert(tx, &client(id))?;
        }
        Ok(())
    })
    .await;
    let list = async |prefix: &'static str, after: Option<&str>, limit| {
        let after = after.map(client_id);
        let found = read(&store, move |tx| {
            clients::list(tx, prefix, after.as_ref(), limit)
        })
        .await;
        found
            .iter()
            .map(|c| c.client_id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(list("a/", None, 2).await, ["a/1", "a/2"]);
    assert_eq!(list("a/", Some("a/2"), 2).await, ["a/3"]);
    assert_eq!(
        list("", None, 9).await,
        ["A/1", "a", "a/1", "a/2", "a/3", "aa", "b/1"]
    );
    assert_eq!(list("%", None, 9).await, [""; 0]);
});

on_both!(
    only_expired_clients_with_delete_on_expiration_are_deleted,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut keeps = client("keeps");
            keeps.delete_on_expiration = false;
            clients::insert(tx, &keeps)?;
            let mut lives = client("lives");
            lives.expires = at(9_000);
            clients::insert(tx, &lives)?;
            clients::insert(tx, &client("goes"))
        })
        .await;
        assert_eq!(
            write(&store, |tx| clients::delete_expired(tx, at(5_000), 9))
                .await
                .len(),
            1
        );
        let left = read(&store, |tx| clients::list(tx, "", None, 9)).await;
        assert_eq!(left.len(), 2);
    }
);

on_both!(a_role_is_read_as_it_was_written_and_updated, |database| {
    let store = database.migrated().await;
    let changed = write(&store, |tx| {
        assert!(roles::insert(tx, &role("r:*"))?);
        assert!(!roles::insert(tx, &role("r:*"))?);
        assert_eq!(roles::get(tx, &role_id("r:*"))?, Some(role("r:*")));
        let mut changed = role("r:*");
        changed.description = "else".to_owned();
        changed.scopes.push("more".to_owned());
        changed.last_modified = at(9);
        changed.version = roles::update(tx, &changed)?;
        roles::insert(tx, &role("q"))?;
        Ok(changed)
    })
    .await;
    assert_eq!(read(&store, roles::all).await, [role("q"), changed.clone()]);
    let after = role_id("q");
    let page = read(&store, move |tx| roles::list(tx, Some(&after), 5)).await;
    assert_eq!(page, [changed]);
});
