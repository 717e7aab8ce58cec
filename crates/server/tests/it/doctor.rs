//! The doctor finds problems that would keep a server from starting, and changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use engine::access::seal_again;
use engine::random::Random;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use server::config::Config;
use server::doctor::{Finding, State, examine};
use store::{Options, Store};

use crate::openid_provider::TestProvider;

const KEY: &str = "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const OTHER_KEY: &str = "k2 BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=\n";

/// A configuration with its files, all of them good.
fn installation(folder: &Path) -> Config {
    for (name, text) in [("keys", KEY.to_owned()), ("token", "x".repeat(44))] {
        write(&folder.join(name), &text);
    }
    let text = format!(
        r#"
        listen = "127.0.0.1:0"
        [database]
        url = "sqlite:{0}/db.sqlite"
        [keys]
        file = "{0}/keys"
        [[auth.static_clients]]
        client_id = "static/owner"
        access_token_file = "{0}/token"
        scopes = ["*"]
        [providers.static]
        kind = "static"
        "#,
        folder.display()
    );
    Config::from_toml(&text, Path::new("test.toml")).unwrap()
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn bad(findings: &[Finding]) -> Vec<&str> {
    let bad = findings
        .iter()
        .filter(|finding| finding.state != State::Good);
    bad.map(|finding| finding.what.as_str()).collect()
}

/// Starts the server once, so that there is a database.
async fn start_once(config: &Config) {
    server::run(config.clone(), async {}, |_| {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_installation_has_nothing_bad_before_and_after_its_first_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    assert_eq!(bad(&examine(&config).await), Vec::<&str>::new());
    assert!(
        !folder.path().join("db.sqlite").exists(),
        "the doctor made a database"
    );
    start_once(&config).await;
    assert_eq!(bad(&examine(&config).await), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_without_a_token_is_found_and_the_server_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    write(&folder.path().join("token"), "\n");
    let findings = examine(&config).await;
    assert!(
        bad(&findings)[0].contains("does not contain an access token"),
        "{findings:?}"
    );
    let refused = server::run(config, async {}, |_| {}).await;
    assert!(refused.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_can_enter_is_found_before_and_after_its_first_start() {
    let nobody = "no client can sign in: the configuration defines none, and the database has none";
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    let owner = std::mem::take(&mut config.auth.static_clients);
    assert_eq!(bad(&examine(&config).await), [nobody]);
    start_once(&config).await;
    assert_eq!(bad(&examine(&config).await), [nobody]);
    config.auth.static_clients = owner;
    let findings = examine(&config).await;
    assert_eq!(bad(&findings), Vec::<&str>::new());
    let can = |finding: &Finding| finding.what == "1 client can sign in";
    assert!(findings.iter().any(can), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_people_made_can_sign_in_until_they_expire() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    config.auth.static_clients.clear();
    start_once(&config).await;
    let options = Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    let keyring = config.keyring().unwrap();
    let mut rng = StdRng::seed_from_u64(7);
    let token = access::Secret::new("t".repeat(44));
    for (name, expires, can) in [
        ("team/old", "2020-01-01T00:00:00Z", false),
        ("team/new", "2999-01-01T00:00:00Z", true),
    ] {
        let id: domain::id::ClientId = name.parse().unwrap();
        let purpose = domain::access::token_purpose(&id);
        let created = "2019-01-01T00:00:00Z".parse().unwrap();
        let client = domain::access::ClientRecord {
            client_id: id,
            description: String::new(),
            scopes: Vec::new(),
            sealed_access_token: keyring.seal(&purpose, &token, &mut rng),
            expires: expires.parse().unwrap(),
            created,
            last_modified: created,
            last_date_used: created,
            last_rotated: created,
            delete_on_expiration: false,
            disabled: false,
            version: domain::Version::FIRST,
        };
        let store = Store::open(&options).unwrap();
        let written = store.write("client", move |tx| {
            store::clients::insert(tx, &client).map(drop)
        });
        written.await.unwrap();
        store.close().await;
        let findings = examine(&config).await;
        assert_eq!(bad(&findings).is_empty(), can, "{name}: {findings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_still_needed_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    start_once(&config).await;
    write(&folder.path().join("keys"), &format!("{OTHER_KEY}{KEY}"));
    let needed = examine(&config).await;
    let needed = bad(&needed);
    assert_eq!(
        needed,
        ["3 access tokens or secrets are still sealed with one of the keys k1"]
    );
    // As the background task does.
    let options = Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    let store = Store::open(&options).unwrap();
    let keyring = Arc::new(config.keyring().unwrap());
    let random = Arc::new(Random::new(StdRng::seed_from_u64(7)));
    let sealed = seal_again(&store, &keyring, &random).await.unwrap();
    assert_eq!(sealed.n_again, 3);
    drop(store);
    let findings = examine(&config).await;
    assert_eq!(bad(&findings), Vec::<&str>::new());
    let spare = "no access token or secret needs the keys k1 any more";
    let is_said = |finding: &Finding| finding.what.starts_with(spare);
    assert!(findings.iter().any(is_said), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_decrypt_nothing_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    start_once(&config).await;
    write(&folder.path().join("keys"), OTHER_KEY);
    let findings = examine(&config).await;
    assert_eq!(
        bad(&findings),
        ["no key decrypts the access tokens of 3 clients, including static/owner"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    write(
        &folder.path().join("db.sqlite"),
        &"this is no database ".repeat(500),
    );
    let findings = examine(&config).await;
    assert!(
        bad(&findings)[0].starts_with("cannot use the database"),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_database_is_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let config = installation(folder.path());
    start_once(&config).await;
    let made = std::fs::metadata(folder.path().join("db.sqlite")).unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_tasks_need_a_folder_that_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    config.data = Some(folder.path().join("not/there/yet"));
    // `doctor` warns of a builder that runs as root.
    config.roles = toml::from_str::<Config>("roles = [\"api\"]").unwrap().roles;
    assert_eq!(bad(&examine(&config).await), Vec::<&str>::new());
    assert!(!folder.path().join("not").exists());
    config.artifacts.folder = Some(folder.path().join("keys/below a file"));
    let findings = examine(&config).await;
    let cannot = bad(&findings)[0];
    assert!(
        cannot.starts_with("cannot write to the folder of artifacts and logs, "),
        "{cannot}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_queue_without_events_of_removed_workers_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    config.queue.taskcluster = Some(server::config::OutsideQueue {
        root_url: "http://127.0.0.1:1".to_owned(),
        client_id: "fleet".to_owned(),
        access_token: Some(access::Secret::new("t".repeat(44))),
        access_token_file: None,
        pulse: None,
    });
    let without =
        "the queue at http://127.0.0.1:1 gets no events of removed workers: events.amqp is not set";
    assert_eq!(bad(&examine(&config).await), [without]);
    config.events.amqp = Some(crate::broker::amqp("amqp://127.0.0.1:1/%2f"));
    let findings = examine(&config).await;
    assert!(!bad(&findings).contains(&without), "{findings:?}");
}

fn tree_in_zookeeper(servers: &str) -> server::config::Tree {
    server::config::Tree {
        kind: server::config::TreeKind::Zookeeper,
        servers: servers.to_owned(),
        insecure: true,
        ..server::config::Tree::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_without_servers_or_a_user_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    config.tree = tree_in_zookeeper("127.0.0.1:1");
    let findings = examine(&config).await;
    assert_eq!(
        bad(&findings),
        [
            "ZooKeeper at 127.0.0.1:1 is not usable: no session with the tree within 12000 ms: no \
             server of 127.0.0.1:1 accepts the connection",
            "everybody who reaches ZooKeeper at 127.0.0.1:1 can read and write the tree: it has no \
             user",
        ]
    );
    config.tree.user = Some("fleetwright".to_owned());
    config.tree.password_file = Some(folder.path().join("missing"));
    let findings = examine(&config).await;
    let first = bad(&findings)[0];
    assert!(
        first.starts_with("the tree is not usable: cannot read"),
        "{first}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_of_the_tree_is_found() {
    let Ok(zookeeper) = std::env::var("TEST_ZOOKEEPER") else {
        println!("skipped: TEST_ZOOKEEPER is not set");
        return;
    };
    let read = |name: &str| std::fs::read_to_string(format!("{zookeeper}/{name}")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    config.tree = tree_in_zookeeper(&read("main/address"));
    config.tree.root = "/doctor-does-not-create-it".to_owned();
    config.tree.user = Some("fleetwright".to_owned());
    config.tree.authentication = server::config::TreeAuthentication::Sasl;
    config.tree.password = Some(access::Secret::new(read("password")));
    assert_eq!(bad(&examine(&config).await), [""; 0]);
    config.tree.password = Some(access::Secret::new("wrong"));
    let findings = examine(&config).await;
    let problem = "is not usable: the tree refused the login: the user or the password is wrong";
    assert!(bad(&findings)[0].ends_with(problem), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_sign_ins_that_does_not_answer_is_named_and_keeps_no_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = installation(folder.path());
    let provider = TestProvider::open(0).await;
    let settings = |issuer: &str| {
        let text = format!("issuer = \"{issuer}\"\nclient_id = \"fleet\"");
        Some(toml::from_str(&text).unwrap())
    };
    config.page.openid = settings(&provider.url());
    start_once(&config).await;
    let findings = examine(&config).await;
    assert!(bad(&findings).is_empty(), "{findings:?}");
    let what = "the provider of page.openid, 127.0.0.1, answers";
    assert!(findings.iter().any(|finding| finding.what == what));
    // Nothing listens there.
    config.page.openid = settings("http://127.0.0.1:1");
    start_once(&config).await;
    let findings = examine(&config).await;
    let bad = bad(&findings);
    assert_eq!(bad.len(), 1, "{bad:?}");
    let begin = "the provider of page.openid, 127.0.0.1, is not usable: does not answer at";
    assert!(bad[0].starts_with(begin), "{bad:?}");
}
