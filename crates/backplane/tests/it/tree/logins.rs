//! Logins, access lists and certificates of ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use backplane::tree::{
    Lifetime, Tree, TreeError, TreeLogin, TreePath, TreeTls, ZookeeperSettings, ZookeeperTree,
};

use super::twin::{Server, connect, path, within};
use crate::broker::{WAIT_LIMIT, unique};

fn root() -> TreePath {
    path(&format!("/{}/below", unique("login")))
}

fn digest(user: &str, password: &str) -> Option<TreeLogin> {
    let (user, password) = (user.to_owned(), Secret::new(password));
    Some(TreeLogin::Digest { user, password })
}

fn sasl(user: &str, password: &str) -> Option<TreeLogin> {
    let (user, password) = (user.to_owned(), Secret::new(password));
    Some(TreeLogin::Sasl { user, password })
}

/// No other user reads, writes, lists or deletes any node that the owner created.
async fn check_refused(other: &Arc<dyn Tree>, base: &TreePath) {
    for node in [
        base.parent().unwrap(),
        base.clone(),
        base.join("secret").unwrap(),
    ] {
        let refused = TreeError::NotPermitted(node.clone());
        assert_eq!(other.get(&node).await, Err(refused.clone()));
        assert_eq!(other.set(&node, b"", None).await, Err(refused.clone()));
        assert_eq!(other.children(&node).await, Err(refused));
        let child = node.join("child").unwrap();
        let created = other.create(&child, b"", Lifetime::Persistent).await;
        assert_eq!(created, Err(TreeError::NotPermitted(child)));
    }
    let secret = base.join("secret").unwrap();
    let deleted = other.delete(&secret, None).await;
    assert_eq!(deleted, Err(TreeError::NotPermitted(secret)));
}

/// An owner, and others without a login, with another one, and with a wrong password.
async fn check_owner(settings: ZookeeperSettings, others: Vec<Option<TreeLogin>>) {
    let base = settings.root.clone();
    let owner = connect(settings.clone()).await;
    owner
        .create(&path("/secret"), b"data", Lifetime::Persistent)
        .await
        .unwrap();
    owner
        .create_sequential(&path("/secret"), "n", b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    let ops = [backplane::tree::Op::create(path("/of-multi"), "")];
    owner.multi(&ops).await.unwrap();
    for login in others {
        let root = TreePath::root();
        let other = connect(ZookeeperSettings {
            login,
            root,
            ..settings.clone()
        })
        .await;
        check_refused(&other, &base).await;
        let node = base.join("of-multi").unwrap();
        assert_eq!(other.get(&node).await, Err(TreeError::NotPermitted(node)));
    }
    let again = connect(settings).await;
    assert_eq!(again.get(&path("/secret")).await.unwrap().data, b"data");
}

#[tokio::test]
async fn only_the_owner_of_a_digest_reads_and_writes() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&root());
    settings.login = digest("fleetwright", "password");
    let others = vec![
        None,
        digest("fleetwright", "wrong"),
        digest("other", "password"),
    ];
    check_owner(settings, others).await;
}

#[tokio::test]
async fn only_the_owner_of_a_sasl_login_reads_and_writes() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&root());
    let password = server.read("password");
    settings.login = sasl("fleetwright", &password);
    let other = sasl("stranger", &server.read("stranger.password"));
    let others = vec![None, other, digest("fleetwright", &password)];
    check_owner(settings, others).await;
}

#[tokio::test]
async fn a_wrong_password_for_sasl_is_an_error_at_once() {
    let Some(server) = Server::main() else {
        return;
    };
    for login in [sasl("fleetwright", "wrong"), sasl("nobody", "x")] {
        let mut settings = server.settings(&root());
        settings.login = login;
        settings.call_limit = WAIT_LIMIT;
        let tree = ZookeeperTree::open(settings).unwrap();
        let error = within(tree.connected()).await.unwrap_err();
        let text = "the tree refused the login: the user or the password is wrong";
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn certificates_are_checked_by_both_sides() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&root());
    settings.servers = server.read("main/tls_address");
    let key = Secret::new(server.read("client.key"));
    let identity = Some((server.read("client.pem"), key));
    let tls = |ca: &str, identity| {
        Some(TreeTls {
            ca: server.read(ca),
            identity,
        })
    };
    // With certificates: by the address and by the name, and with a login.
    let port = settings.servers.rsplit(':').next().unwrap().to_owned();
    for servers in [settings.servers.clone(), format!("localhost:{port}")] {
        let mut settings = settings.clone();
        settings.servers = servers;
        settings.root = root();
        settings.tls = tls("ca.pem", identity.clone());
        settings.login = digest("fleetwright", "password");
        let plain = ZookeeperSettings {
            servers: server.address(),
            tls: None,
            ..settings.clone()
        };
        let tree = connect(settings).await;
        tree.create(&path("/a"), b"x", Lifetime::Persistent)
            .await
            .unwrap();
        assert_eq!(
            connect(plain).await.get(&path("/a")).await.unwrap().data,
            b"x"
        );
    }
    // Without ours, with an authority that did not sign the server's, and without TLS.
    for tls in [tls("ca.pem", None), tls("client.pem", identity), None] {
        let tree = ZookeeperTree::open(ZookeeperSettings {
            tls,
            call_limit: Duration::from_secs(5),
            ..settings.clone()
        })
        .unwrap();
        let error = within(tree.connected()).await.unwrap_err();
        assert!(matches!(error, TreeError::Disconnected { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("accepts the connection"), "{error}");
    }
}

#[tokio::test]
async fn a_root_that_must_exist_is_not_created() {
    let Some(server) = Server::main() else {
        return;
    };
    let mut settings = server.settings(&root());
    settings.creates_root = false;
    let tree = ZookeeperTree::open(settings.clone()).unwrap();
    let error = within(tree.connected()).await.unwrap_err();
    assert_eq!(error, TreeError::NoNode(settings.root.clone()));
    let everything = connect(server.settings(&TreePath::root())).await;
    let parent = settings.root.parent().unwrap();
    assert_eq!(everything.exists(&parent).await, Ok(None));
}

#[tokio::test]
async fn settings_with_errors_are_refused() {
    let settings = |change: &dyn Fn(&mut ZookeeperSettings)| {
        let mut settings = ZookeeperSettings {
            servers: "127.0.0.1:1".to_owned(),
            root: TreePath::root(),
            creates_root: true,
            session: Duration::from_secs(10),
            call_limit: Duration::from_secs(1),
            login: None,
            tls: None,
        };
        change(&mut settings);
        ZookeeperTree::open(settings)
    };
    assert!(settings(&|_| {}).is_ok());
    let tls = |ca: &str| {
        Some(TreeTls {
            ca: ca.to_owned(),
            identity: None,
        })
    };
    for (problem, change) in [
        (
            "servers",
            (&|s: &mut ZookeeperSettings| s.servers = "x".to_owned()) as &dyn Fn(&mut _),
        ),
        ("session_seconds", &|s: &mut ZookeeperSettings| {
            s.session = Duration::from_millis(999)
        }),
        ("session_seconds", &|s: &mut ZookeeperSettings| {
            s.session = Duration::from_secs(3_601)
        }),
        ("time limit", &|s: &mut ZookeeperSettings| {
            s.call_limit = Duration::ZERO
        }),
        ("user", &|s: &mut ZookeeperSettings| {
            s.login = digest("", "x")
        }),
        ("user", &|s: &mut ZookeeperSettings| {
            s.login = digest("a:b", "x")
        }),
        ("user", &|s: &mut ZookeeperSettings| {
            s.login = sasl(&"a".repeat(129), "x")
        }),
        ("password", &|s: &mut ZookeeperSettings| {
            s.login = sasl("a", "")
        }),
        ("tls.ca", &|s: &mut ZookeeperSettings| {
            s.tls = tls("no certificate")
        }),
    ] {
        let error = settings(change).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    // Nothing listens at this port: calls end at their time limit.
    let tree = settings(&|_| {}).unwrap();
    let error = within(tree.get(&path("/a"))).await.unwrap_err();
    assert!(
        matches!(
            error,
            TreeError::Disconnected {
                limit_ms: 1_000,
                ..
            }
        ),
        "{error}"
    );
}
