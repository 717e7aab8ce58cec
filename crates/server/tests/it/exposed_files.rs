//! Files that more users can read than should: found at the start and by `doctor`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use api_client::with_causes;
use server::config::Config;
use server::doctor::{Finding, State, examine};

const KEY: &str = "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

/// A folder that others may enter, with the files of a configuration.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let installation = Self(folder);
        let files = [
            ("keys", KEY.to_owned()),
            ("token", "x".repeat(44)),
            ("secret", "y".repeat(44)),
            ("build-secret", "z".repeat(44)),
            ("s3", "s".repeat(44)),
            ("config.toml", installation.text()),
        ];
        for (name, text) in files {
            std::fs::write(installation.path(name), text).unwrap();
            set_mode(&installation.path(name), 0o600);
        }
        installation
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn text(&self) -> String {
        format!(
            r#"
            listen = "127.0.0.1:0"
            data = "{0}/data"
            roles = ["api"]
            [database]
            url = "sqlite:{0}/db.sqlite"
            [keys]
            file = "{0}/keys"
            [[auth.static_clients]]
            client_id = "static/owner"
            access_token_file = "{0}/token"
            scopes = ["*"]
            [[auth.static_clients]]
            client_id = "static/other"
            access_token = "{1}"
            scopes = []
            [providers.racks]
            kind = "external"
            url = "http://127.0.0.1:9"
            secret_file = "{0}/secret"
            [images.secrets.TOKEN]
            file = "{0}/build-secret"
            [images.artifacts]
            kind = "http"
            url = "http://127.0.0.1:9"
            bucket = "images"
            region = "us-west-2"
            access_key_id = "AKIA"
            secret_access_key_file = "{0}/s3"
            "#,
            self.0.path().display(),
            "w".repeat(44),
        )
    }

    fn config(&self) -> Config {
        Config::read(&self.path("config.toml")).unwrap()
    }

    async fn start(&self) -> Result<(), String> {
        let run = server::run(self.config(), async {}, |_| {}).await;
        run.map_err(|error| with_causes(&error))
    }

    /// The findings about files, without the folder's path.
    async fn findings(&self) -> Vec<(State, String)> {
        let findings = examine(&self.config()).await;
        let about_files = |it: &&Finding| it.what.contains(" can ") && it.advice.is_some();
        let path = format!("{}/", self.0.path().display());
        let shown = |it: &Finding| (it.state, it.what.replace(&path, ""));
        let chmod = |it: &Finding| it.advice.as_ref().unwrap().starts_with("chmod ");
        let found = findings.iter().filter(about_files).filter(|it| chmod(it));
        found.map(shown).collect()
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_makes_private_files_about_which_nothing_is_to_be_said() {
    let here = Installation::new();
    assert_eq!(here.findings().await, []);
    here.start().await.unwrap();
    assert_eq!(mode(&here.path("db.sqlite")), 0o600);
    assert_eq!(here.findings().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_with_keys_that_everybody_can_read() {
    let here = Installation::new();
    set_mode(&here.path("keys"), 0o644);
    let keys = here.path("keys");
    let expected = format!(
        "all users of this machine can read or change the keys in {0}: chmod 600 {0}",
        keys.display()
    );
    assert_eq!(here.start().await.unwrap_err(), expected);
    assert!(!here.path("db.sqlite").exists(), "nothing was made");
    let what = "all users of this machine can read or change the keys in keys".to_owned();
    assert_eq!(here.findings().await, [(State::Bad, what)]);

    // A group is the choice of the operator, and the folder above may close the file.
    set_mode(&keys, 0o640);
    here.start().await.unwrap();
    assert_eq!(here.findings().await[0].0, State::Warning);
    set_mode(&keys, 0o644);
    set_mode(here.0.path(), 0o700);
    here.start().await.unwrap();
    assert_eq!(here.findings().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_file_with_secrets_that_others_can_read_is_named_and_a_server_starts() {
    let here = Installation::new();
    here.start().await.unwrap();
    std::fs::create_dir(here.path("data")).unwrap_or_default();
    let files = [
        "config.toml",
        "token",
        "secret",
        "build-secret",
        "s3",
        "db.sqlite",
    ];
    for name in files {
        set_mode(&here.path(name), 0o644);
    }
    set_mode(&here.path("data"), 0o755);
    here.start().await.unwrap();
    let all = "all users of this machine can";
    let expected = [
        "read or change the secrets in the configuration config.toml",
        "read or change the secret in token",
        "read or change the secret in secret",
        "read or change the secret in build-secret",
        "read or change the secret in s3",
        "read or change the database db.sqlite",
        "list or change the data folder data",
    ];
    let expected = expected.map(|what| (State::Warning, format!("{all} {what}")));
    assert_eq!(here.findings().await, expected);
    // To pass through the folder is no harm: all in it is closed.
    set_mode(&here.path("data"), 0o711);
    assert_eq!(here.findings().await.len(), expected.len() - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_builds_exists_and_cannot_read_the_keys() {
    let here = Installation::new();
    let mut config = here.config();
    config.images.user = Some("no-such-user".to_owned());
    config.check().unwrap();
    config.roles = Config::default().roles;
    let error = config.check().unwrap_err().to_string();
    assert_eq!(error, "images.user: this machine has no user no-such-user");
    config.images.user = Some("nobody".to_owned());
    if !nix::unistd::geteuid().is_root() {
        let error = config.check().unwrap_err().to_string();
        assert!(
            error.contains("only root can run builds as another user"),
            "{error}"
        );
        return;
    }
    config.check().unwrap();
    // A file that belongs to the user of builds is open to no others.
    let keys = here.path("keys");
    std::os::unix::fs::chown(&keys, Some(65534), Some(65534)).unwrap();
    let run = server::run(config, async {}, |_| {}).await;
    let error = with_causes(&run.unwrap_err());
    let expected = format!(
        "the user of builds, nobody, can read or change the keys in {}",
        keys.display()
    );
    assert!(error.contains(&expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_that_builds_run_as_root() {
    let here = Installation::new();
    let mut config = here.config();
    let says_so = async |config: &Config| {
        let findings = examine(config).await;
        findings
            .iter()
            .any(|it| it.what.starts_with("builds of images run as root"))
    };
    assert!(!says_so(&config).await, "it has not the role `builder`");
    config.roles = Config::default().roles;
    let is_root = nix::unistd::geteuid().is_root();
    assert_eq!(says_so(&config).await, is_root);
    if is_root {
        config.images.user = Some("nobody".to_owned());
        assert!(!says_so(&config).await);
        let about_folder = async |config: &Config| {
            let findings = examine(config).await;
            findings
                .iter()
                .any(|it| it.what.starts_with("no image can be built"))
        };
        assert!(!about_folder(&config).await);
        set_mode(here.0.path(), 0o700);
        assert!(about_folder(&config).await);
    }
}
