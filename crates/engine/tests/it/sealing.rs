//! Access tokens and secrets are sealed again with the first key, so that older keys can go.

use std::sync::Arc;

use access::Secret;
use access::seal::{Key, Keyring, generate_key};
use domain::Version;
use domain::access::{ClientRecord, SecretRecord, secret_purpose, token_purpose};
use domain::id::ClientId;
use engine::access::{Sealed, seal_again};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use store::StoreError;
use testing::sizes_around;

use crate::world::World;

fn keyring(names: &[&str]) -> Arc<Keyring> {
    let key = |name: &&str| {
        let mut random = StdRng::seed_from_u64(name.len() as u64);
        let secret = generate_key(&mut random);
        let id = (*name).to_owned();
        Key { id, secret }
    };
    Arc::new(Keyring::new(names.iter().map(key).collect()).unwrap())
}

fn client(world: &World, keyring: &Keyring, number: usize) -> ClientRecord {
    let client_id: ClientId = format!("c/{number:05}").parse().unwrap();
    let purpose = token_purpose(&client_id);
    let mut random = StdRng::seed_from_u64(number as u64);
    let token = Secret::new(format!("token-{number}"));
    let now = world.now();
    ClientRecord {
        client_id,
        description: String::new(),
        scopes: Vec::new(),
        sealed_access_token: keyring.seal(&purpose, &token, &mut random),
        expires: now,
        created: now,
        last_modified: now,
        last_date_used: now,
        last_rotated: now,
        delete_on_expiration: false,
        disabled: false,
        version: Version::FIRST,
    }
}

async fn insert(world: &World, clients: Vec<ClientRecord>) {
    let inserted = world.engine.store.write("test", move |tx| {
        for client in &clients {
            assert!(store::clients::insert(tx, client)?);
        }
        Ok::<_, StoreError>(())
    });
    inserted.await.unwrap();
}

async fn clients(world: &World) -> Vec<ClientRecord> {
    let read = world
        .engine
        .store
        .read("test", |tx| store::clients::list(tx, "", None, 100_000));
    read.await.unwrap()
}

#[tokio::test]
async fn tokens_of_an_older_key_are_sealed_again_and_open_without_it() {
    let (old, both, new) = (keyring(&["o"]), keyring(&["new", "o"]), keyring(&["new"]));
    for n_clients in sizes_around("engine::access::sealing::PAGE", 200) {
        let world = World::new().await;
        let records = (0..n_clients).map(|number| client(&world, &old, number));
        insert(&world, records.collect()).await;
        let (store, random) = (&world.engine.store, &world.engine.random);
        // With the old key alone, there is nothing to do.
        let done = seal_again(store, &old, random).await.unwrap();
        assert_eq!(done, Sealed::default());
        let done = seal_again(store, &both, random).await.unwrap();
        assert_eq!((done.n_again, done.n_shut), (n_clients, 0));
        let again = seal_again(store, &both, random).await.unwrap();
        assert_eq!(again, Sealed::default());
        let sealed = clients(&world).await;
        assert_eq!(sealed.len(), n_clients);
        for (number, client) in sealed.iter().enumerate() {
            let purpose = token_purpose(&client.client_id);
            let token = new.open(&purpose, &client.sealed_access_token).unwrap();
            assert_eq!(token.expose(), format!("token-{number}"));
        }
    }
}

#[tokio::test]
async fn a_token_that_no_key_opens_stays_and_is_counted() {
    let world = World::new().await;
    let (lost, old) = (keyring(&["lost"]), keyring(&["o"]));
    insert(
        &world,
        vec![client(&world, &lost, 1), client(&world, &old, 2)],
    )
    .await;
    let before = clients(&world).await;
    let (store, random) = (&world.engine.store, &world.engine.random);
    let done = seal_again(store, &keyring(&["new", "o"]), random)
        .await
        .unwrap();
    assert_eq!((done.n_again, done.n_shut), (1, 1));
    let after = clients(&world).await;
    assert_eq!(before[0], after[0]);
}

fn secret(world: &World, keyring: &Keyring, number: usize) -> SecretRecord {
    let name = format!("s/{number:05}");
    let value = Secret::new(format!("{{\"number\":{number}}}"));
    let mut random = StdRng::seed_from_u64(number as u64);
    SecretRecord {
        sealed_value: keyring.seal(&secret_purpose(&name), &value, &mut random),
        name,
        expires: world.now(),
        last_modified: world.now(),
    }
}

async fn put(world: &World, secrets: Vec<SecretRecord>) {
    let written = world.engine.store.write("test", move |tx| {
        for secret in &secrets {
            store::secrets::put(tx, secret)?;
        }
        Ok::<_, StoreError>(())
    });
    written.await.unwrap();
}

async fn secrets(world: &World) -> Vec<SecretRecord> {
    let store = &world.engine.store;
    let read = store.read("test", |tx| store::secrets::list(tx, "", 100_000));
    read.await.unwrap()
}

#[tokio::test]
async fn secrets_of_an_older_key_are_sealed_again_and_open_without_it() {
    let (old, both, new) = (keyring(&["o"]), keyring(&["new", "o"]), keyring(&["new"]));
    for n_secrets in sizes_around("engine::access::sealing::SECRETS_PAGE", 8) {
        let world = World::new().await;
        let records = (0..n_secrets).map(|number| secret(&world, &old, number));
        put(&world, records.collect()).await;
        let (store, random) = (&world.engine.store, &world.engine.random);
        let done = seal_again(store, &both, random).await.unwrap();
        assert_eq!((done.n_again, done.n_shut), (n_secrets, 0));
        let again = seal_again(store, &both, random).await.unwrap();
        assert_eq!(again, Sealed::default());
        let sealed = secrets(&world).await;
        assert_eq!(sealed.len(), n_secrets);
        for (number, secret) in sealed.iter().enumerate() {
            let value = new.open(&secret_purpose(&secret.name), &secret.sealed_value);
            assert_eq!(value.unwrap().expose(), format!("{{\"number\":{number}}}"));
        }
    }
}

#[tokio::test]
async fn a_secret_that_no_key_opens_stays_and_is_counted() {
    let world = World::new().await;
    let (lost, old) = (keyring(&["lost"]), keyring(&["o"]));
    let both = vec![secret(&world, &lost, 1), secret(&world, &old, 2)];
    put(&world, both.clone()).await;
    let (store, random) = (&world.engine.store, &world.engine.random);
    let now = keyring(&["new", "o"]);
    let done = seal_again(store, &now, random).await.unwrap();
    assert_eq!((done.n_again, done.n_shut), (1, 1));
    let after = secrets(&world).await;
    assert_eq!(after[0], both[0]);
    assert_ne!(after[1], both[1]);
}
