//! Members: the processes that use the tree now.

use std::collections::BTreeMap;
use std::sync::Arc;

use backplane::tree::{Lifetime, MEMBERS_PATH, Member, Membership, Tree, TreeEvent, members};

use super::on_both;
use super::twin::{Twin, path, within};

on_both! {
    a_member_joins_and_leaves
    a_member_joins_again_after_the_loss_of_its_session
    a_member_joins_again_when_its_node_was_deleted
    a_member_that_leaves_does_not_end_the_next_one_of_its_name
    nodes_that_are_no_members_are_left_out
}

fn member(role: &str) -> Member {
    Member {
        role: vec![role.to_owned()],
        address: "10.0.0.1:80".to_owned(),
        version: "1".to_owned(),
    }
}

/// Waits until these are the members.
async fn expect(tree: &Arc<dyn Tree>, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, Member> = expected
        .iter()
        .map(|(name, role)| ((*name).to_owned(), member(role)))
        .collect();
    let mut watch = tree.watch_subtree(&path(MEMBERS_PATH)).await.unwrap();
    within(async {
        while members(tree).await.unwrap() != expected {
            assert_ne!(watch.next().await, None::<TreeEvent>);
        }
    })
    .await;
}

async fn a_member_joins_and_leaves(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    expect(&a, &[]).await;
    let first = Membership::join(&a, "host-1", &member("api"))
        .await
        .unwrap();
    let second = Membership::join(&b, "host-2", &member("builder"))
        .await
        .unwrap();
    expect(&a, &[("host-1", "api"), ("host-2", "builder")]).await;
    // The same process joins again with other roles.
    let again = Membership::join(&a, "host-1", &member("scanner"))
        .await
        .unwrap();
    expect(&b, &[("host-1", "scanner"), ("host-2", "builder")]).await;
    second.leave().await.unwrap();
    expect(&a, &[("host-1", "scanner")]).await;
    drop((first, again));
    expect(&b, &[]).await;
}

async fn a_member_joins_again_after_the_loss_of_its_session(twin: &Twin) {
    let (session, other) = (twin.session().await, twin.session().await.tree);
    let membership = Membership::join(&session.tree, "host", &member("api"))
        .await
        .unwrap();
    expect(&other, &[("host", "api")]).await;
    let (stat, watch) = other
        .watch_node(&path("/fleetwright/members/host"))
        .await
        .unwrap();
    let next = session.expire().await;
    within(watch.changed()).await;
    expect(&other, &[("host", "api")]).await;
    let rejoined = other
        .exists(&path("/fleetwright/members/host"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rejoined.owner, Some(next.0));
    assert_ne!(rejoined.owner, stat.unwrap().owner);
    membership.leave().await.unwrap();
    expect(&other, &[]).await;
}

async fn a_member_joins_again_when_its_node_was_deleted(twin: &Twin) {
    let (tree, other) = (twin.session().await.tree, twin.session().await.tree);
    let membership = Membership::join(&tree, "host", &member("api"))
        .await
        .unwrap();
    for _ in 0..3 {
        let node = path("/fleetwright/members/host");
        let before = other.exists(&node).await.unwrap().unwrap();
        other.delete(&node, None).await.unwrap();
        expect(&other, &[("host", "api")]).await;
        let after = other.exists(&node).await.unwrap().unwrap();
        assert!(after.created_by > before.created_by);
    }
    membership.leave().await.unwrap();
    expect(&other, &[]).await;
}

async fn a_member_that_leaves_does_not_end_the_next_one_of_its_name(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = path("/fleetwright/members/host");
    let first = Membership::join(&a, "host", &member("api")).await.unwrap();
    let builder = member("builder");
    let next = Membership::join(&b, "host", &builder);
    let (left, next) = tokio::join!(first.leave(), within(next));
    left.unwrap();
    let _next = next.unwrap();
    let joined = b.exists(&node).await.unwrap().unwrap();
    // Whatever the process that left still says is said before the next answer.
    for tree in [&a, &b] {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tree.exists(&node).await.unwrap().unwrap(), joined);
    }
    expect(&a, &[("host", "builder")]).await;
}

async fn nodes_that_are_no_members_are_left_out(twin: &Twin) {
    let tree = twin.session().await.tree;
    let membership = Membership::join(&tree, "host", &member("api"))
        .await
        .unwrap();
    for (name, text) in [("other", "no json"), ("empty", ""), ("list", "[]")] {
        let node = path(MEMBERS_PATH).join(name).unwrap();
        tree.create(&node, text.as_bytes(), Lifetime::Ephemeral)
            .await
            .unwrap();
    }
    expect(&tree, &[("host", "api")]).await;
    membership.leave().await.unwrap();
    assert!(
        Membership::join(&tree, "a/b", &member("api"))
            .await
            .is_err()
    );
}
