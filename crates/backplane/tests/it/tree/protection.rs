//! Access lists of nodes that exist: a tree that others may write to is refused, and taken over.

use access::Secret;
use backplane::tree::{Lifetime, Tree as _, TreeError, TreeLogin, TreePath, ZookeeperTree};

use super::twin::{Server, connect, path};
use crate::broker::{WAIT_LIMIT, unique};

fn login(password: &str) -> TreeLogin {
    TreeLogin::Digest {
        user: "fleetwright".to_owned(),
        password: Secret::new(password),
    }
}

#[tokio::test]
async fn nodes_of_a_time_without_a_user_are_named_and_taken_over() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&path(&format!("/{}", unique("protected"))));
    settings.call_limit = WAIT_LIMIT;
    let everybody = connect(settings.clone()).await;
    for node in ["/fleetwright", "/fleetwright/image", "/other"] {
        everybody
            .create(&path(node), b"", Lifetime::Persistent)
            .await
            .unwrap();
    }
    let below = path("/fleetwright");
    let open = ZookeeperTree::open(settings.clone()).unwrap();
    open.connected().await.unwrap();
    // Without a user, everybody may write to everything anyway.
    open.check_protection(&below).await.unwrap();
    settings.login = Some(login("password"));
    let tree = ZookeeperTree::open(settings.clone()).unwrap();
    tree.connected().await.unwrap();
    tree.create(&path("/fleetwright/own"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let error = tree.check_protection(&below).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("3 nodes of the tree: /, /fleetwright, /fleetwright/image;"),
        "{text}"
    );
    assert!(text.contains("fleetwright tree protect"), "{text}");
    let protected = tree.protect(&below).await.unwrap();
    assert_eq!(
        protected,
        [TreePath::root(), below.clone(), path("/fleetwright/image")]
    );
    tree.check_protection(&below).await.unwrap();
    let refused = everybody
        .create(&path("/fleetwright/x"), b"", Lifetime::Persistent)
        .await;
    assert_eq!(
        refused,
        Err(TreeError::NotPermitted(path("/fleetwright/x")))
    );
    // Those of another user cannot be read at all.
    settings.login = Some(login("another password"));
    let other = ZookeeperTree::open(settings).unwrap();
    other.connected().await.unwrap();
    let error = other.check_protection(&below).await.unwrap_err();
    assert!(
        matches!(error, TreeError::Unprotected { n_nodes: 2, .. }),
        "{error}"
    );
    let error = other.protect(&below).await.unwrap_err();
    assert!(matches!(error, TreeError::NotPermitted(_)), "{error}");
}

#[tokio::test]
async fn a_tree_without_nodes_is_protected() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&path(&format!("/{}", unique("protected"))));
    settings.call_limit = WAIT_LIMIT;
    settings.login = Some(login("password"));
    let tree = ZookeeperTree::open(settings).unwrap();
    tree.connected().await.unwrap();
    tree.check_protection(&path("/fleetwright")).await.unwrap();
    assert_eq!(tree.protect(&path("/fleetwright")).await.unwrap(), []);
}
