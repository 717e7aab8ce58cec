//! Checks who can sign in, and whether the keys open access tokens and secrets in the database.

use access::seal::Keyring;
use domain::access::{ClientRecord, SecretRecord, secret_purpose, token_purpose};
use domain::id::ClientId;
use domain::time::Clock as _;
use engine::clock::SystemClock;
use store::Store;

use crate::config::Config;
use crate::finding::Finding;

/// Clients are read in pages of this size.
const PAGE: u32 = 100;
/// And secrets, of which each may have a megabyte.
const SECRETS_PAGE: u32 = 8;
/// Clients whose names begin so are those of the configuration, and our own.
const STATIC: &str = "static/";

/// The clients in the database, counted.
#[derive(Debug, Default)]
pub(super) struct StoredClients {
    /// Those that people made and that can sign in now.
    n_usable: usize,
    /// Those whose tokens no key opens.
    n_shut: usize,
    first_shut: Option<ClientId>,
    /// Tokens and secrets that are not sealed with the current key.
    n_old: usize,
    /// Secrets that no key opens.
    n_shut_secrets: usize,
}

impl StoredClients {
    /// `None`: the keys or the clients cannot be read, which other checks report.
    pub(super) async fn read(config: &Config, store: &Store) -> Option<Self> {
        let (keyring, now) = (config.keyring().ok()?, SystemClock.now());
        let is_shut = |client: &ClientRecord| {
            let purpose = token_purpose(&client.client_id);
            keyring.open(&purpose, &client.sealed_access_token).is_err()
        };
        let is_usable = |client: &ClientRecord| {
            let is_static = client.client_id.as_str().starts_with(STATIC);
            !is_static && !client.disabled && client.expires > now && !is_shut(client)
        };
        let mut read = Self::default();
        let mut after: Option<ClientId> = None;
        loop {
            let page = store.scan("doctor_clients", move |tx| {
                store::clients::list(tx, "", after.as_ref(), PAGE)
            });
            let clients = page.await.ok()?;
            let of = clients.iter();
            read.n_usable += of.clone().filter(|client| is_usable(client)).count();
            let is_old = |client: &&ClientRecord| !keyring.is_current(&client.sealed_access_token);
            read.n_old += of.clone().filter(is_old).count();
            let mut shut = of.filter(|client| is_shut(client)).peekable();
            if read.first_shut.is_none() {
                read.first_shut = shut.peek().map(|client| client.client_id.clone());
            }
            read.n_shut += shut.count();
            if clients.len() < PAGE as usize {
                break;
            }
            after = clients.into_iter().next_back().map(|last| last.client_id);
        }
        read.count_secrets(&keyring, store).await?;
        Some(read)
    }

    async fn count_secrets(&mut self, keyring: &Keyring, store: &Store) -> Option<()> {
        let mut after = String::new();
        loop {
            let from = after.clone();
            let page = store.scan("doctor_secrets", move |tx| {
                store::secrets::list(tx, &from, SECRETS_PAGE)
            });
            let secrets = page.await.ok()?;
            let is_old = |secret: &&SecretRecord| !keyring.is_current(&secret.sealed_value);
            let is_shut = |secret: &&SecretRecord| {
                let purpose = secret_purpose(&secret.name);
                keyring.open(&purpose, &secret.sealed_value).is_err()
            };
            self.n_old += secrets.iter().filter(is_old).count();
            self.n_shut_secrets += secrets.iter().filter(is_shut).count();
            match secrets
                .last()
                .filter(|_| secrets.len() == SECRETS_PAGE as usize)
            {
                Some(last) => after.clone_from(&last.name),
                None => return Some(()),
            }
        }
    }
}

/// Checks that somebody can sign in. An outside auth service has its own clients.
pub(super) fn sign_in(config: &Config, stored: &StoredClients) -> Option<Finding> {
    if config.auth.taskcluster.is_some() {
        return None;
    }
    let n_clients = config.auth.static_clients.len() + stored.n_usable;
    Some(match n_clients {
        0 => Finding::bad(
            "no client can sign in: the configuration defines none, and the database has none",
            "make a token with: (umask 077; head -c 33 /dev/urandom | base64 | tr '+/' '-_' > \
             owner.token), and add [[auth.static_clients]] with client_id = \"static/owner\", \
             access_token_file and scopes = [\"*\"] to the configuration",
        ),
        1 => Finding::good("1 client can sign in"),
        several => Finding::good(format!("{several} clients can sign in")),
    })
}

/// Whether the keys open the access tokens, and which keys that takes.
pub(super) fn sealed_tokens(config: &Config, stored: &StoredClients) -> Option<Finding> {
    let keyring = config.keyring().ok()?;
    if let Some(first) = &stored.first_shut {
        let n_shut = stored.n_shut;
        return Some(Finding::bad(
            format!("no key decrypts the access tokens of {n_shut} clients, including {first}"),
            "add the lines of the previous keys below the current one in keys.file",
        ));
    }
    if stored.n_shut_secrets > 0 {
        return Some(Finding::bad(
            format!("no key decrypts {} secrets", stored.n_shut_secrets),
            "add the lines of the previous keys below the current one in keys.file",
        ));
    }
    let older: Vec<&str> = keyring.older_ids().collect();
    let older = older.join(", ");
    match (older.as_str(), stored.n_old) {
        ("", _) => None,
        (_, 0) => Some(Finding::good(format!(
            "no access token or secret needs the keys {older} any more; docs/operations.md says \
             when their lines can go"
        ))),
        (_, n_old) => Some(Finding::warning(
            format!(
                "{n_old} access tokens or secrets are still sealed with one of the keys {older}"
            ),
            "keep these lines in keys.file: a running server seals them again within ten \
             minutes",
        )),
    }
}
