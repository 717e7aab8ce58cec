//! Seals access tokens and secrets again that an older key sealed, so that the key can be removed.

use std::sync::Arc;

use access::seal::Keyring;
use domain::access::{ClientRecord, SecretRecord, secret_purpose, token_purpose};
use domain::id::ClientId;
use store::{Store, StoreError};

use crate::random::Random;

/// Clients of one transaction.
const PAGE: u32 = 200;
/// Secrets of one transaction: few, because each may have a megabyte.
const SECRETS_PAGE: u32 = 8;

/// How far tokens and secrets are sealed with the current key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Sealed again now.
    pub n_again: usize,
    /// No key opens them.
    pub n_shut: usize,
}

/// Seals everything again that needs it. Without older keys there is nothing to do.
pub async fn seal_again(
    store: &Store,
    keyring: &Arc<Keyring>,
    random: &Arc<Random>,
) -> Result<Sealed, StoreError> {
    let mut done = Sealed::default();
    if keyring.older_ids().next().is_some() {
        seal_tokens(store, keyring, random, &mut done).await?;
        seal_secrets(store, keyring, random, &mut done).await?;
    }
    Ok(done)
}

async fn seal_secrets(
    store: &Store,
    keyring: &Arc<Keyring>,
    random: &Arc<Random>,
    done: &mut Sealed,
) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let (keyring, random) = (Arc::clone(keyring), Arc::clone(random));
        let from = after.clone();
        let page = store.write("secrets_seal_again", move |tx| {
            let secrets = store::secrets::list(tx, &from, SECRETS_PAGE)?;
            let (mut n_again, mut n_shut) = (0, 0);
            let is_old = |it: &&SecretRecord| !keyring.is_current(&it.sealed_value);
            for secret in secrets.iter().filter(is_old) {
                let purpose = secret_purpose(&secret.name);
                let Ok(value) = keyring.open(&purpose, &secret.sealed_value) else {
                    n_shut += 1;
                    continue;
                };
                let sealed = random.with(|random| keyring.seal(&purpose, &value, random));
                store::secrets::seal_again(tx, secret, &sealed)?;
                n_again += 1;
            }
            let last = secrets.last().map(|last| last.name.clone());
            Ok::<_, StoreError>((n_again, n_shut, secrets.len(), last))
        });
        let (n_again, n_shut, n_listed, last) = page.await?;
        done.n_again += n_again;
        done.n_shut += n_shut;
        match last.filter(|_| n_listed == SECRETS_PAGE as usize) {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}

async fn seal_tokens(
    store: &Store,
    keyring: &Arc<Keyring>,
    random: &Arc<Random>,
    done: &mut Sealed,
) -> Result<(), StoreError> {
    let mut after: Option<ClientId> = None;
    loop {
        let (keyring, random) = (Arc::clone(keyring), Arc::clone(random));
        let from = after.clone();
        let page = store.write("clients_seal_again", move |tx| {
            let clients = store::clients::list(tx, "", from.as_ref(), PAGE)?;
            let (mut n_again, mut n_shut) = (0, 0);
            for client in clients.iter().filter(|it| is_old(&keyring, it)) {
                let purpose = token_purpose(&client.client_id);
                let Ok(token) = keyring.open(&purpose, &client.sealed_access_token) else {
                    n_shut += 1;
                    continue;
                };
                let sealed = random.with(|random| keyring.seal(&purpose, &token, random));
                let sealed = ClientRecord {
                    sealed_access_token: sealed,
                    ..client.clone()
                };
                store::clients::update(tx, &sealed)?;
                n_again += 1;
            }
            let last = clients.last().map(|last| last.client_id.clone());
            Ok::<_, StoreError>((n_again, n_shut, clients.len(), last))
        });
        let (n_again, n_shut, n_listed, last) = page.await?;
        done.n_again += n_again;
        done.n_shut += n_shut;
        if n_listed < PAGE as usize {
            return Ok(());
        }
        after = last;
    }
}

fn is_old(keyring: &Keyring, client: &ClientRecord) -> bool {
    !keyring.is_current(&client.sealed_access_token)
}
