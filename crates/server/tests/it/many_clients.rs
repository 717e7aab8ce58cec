//! Functions that read all clients read them page by page, and miss none.

use std::sync::Arc;

use domain::Version;
use domain::access::ClientRecord;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use server::doctor::examine;
use server::start::start_with;
use testing::sizes_around;

use crate::database::on_both;
use crate::world::World;

const PAGE: usize = 100;

/// Writes `count` clients whose tokens no key decrypts.
async fn clients(world: &World, prefix: &str, count: usize) {
    let (now, prefix) = (world.now(), prefix.to_owned());
    world
        .write(move |tx| {
            for number in 0..count {
                let record = ClientRecord {
                    client_id: format!("{prefix}{number:05}").parse().unwrap(),
                    description: String::new(),
                    scopes: Vec::new(),
                    sealed_access_token: "k1:nonsense".to_owned(),
                    expires: now.plus_millis(1_000),
                    created: now,
                    last_modified: now,
                    last_date_used: now,
                    last_rotated: now,
                    delete_on_expiration: true,
                    disabled: false,
                    version: Version::FIRST,
                };
                assert!(store::clients::insert(tx, &record)?);
            }
            Ok(())
        })
        .await;
}

async fn static_clients(world: &World) -> Vec<String> {
    let list = |tx: &mut store::Tx<'_>| store::clients::list(tx, "static/", None, 10_000);
    let clients = world.read(list).await.into_iter();
    clients.map(|client| client.client_id.to_string()).collect()
}

on_both!(
    no_static_client_that_is_not_configured_survives_a_start,
    |world| {
        let configured = static_clients(world).await;
        for count in sizes_around("server::start::PAGE", PAGE) {
            // Some come before those of the configuration, and some after.
            clients(world, "static/a", count).await;
            clients(world, "static/z", count).await;
            let random = Random::new(StdRng::seed_from_u64(99));
            let clock = Arc::clone(&world.clock) as _;
            let config = world.app.config.clone();
            start_with(config, clock, random, Vec::new()).await.unwrap();
            assert_eq!(static_clients(world).await, configured);
        }
    }
);

on_both!(the_doctor_counts_all_clients_that_no_key_opens, |world| {
    let mut n_there = 0;
    for count in sizes_around("server::doctor::clients::PAGE", PAGE) {
        clients(world, &format!("of-{count}/"), count - n_there).await;
        n_there = count;
        let findings = examine(&world.app.config).await;
        let told = findings.iter().find_map(|finding| {
            let found = finding
                .what
                .strip_prefix("no key decrypts the access tokens of ")?;
            Some(found.split_once(' ')?.0.parse::<usize>().unwrap())
        });
        assert_eq!(told.unwrap_or(0), count);
    }
});

on_both!(the_doctor_counts_all_secrets_that_no_key_opens, |world| {
    let mut n_there = 0;
    for count in sizes_around("server::doctor::clients::SECRETS_PAGE", 8) {
        let now = world.now();
        world
            .write(move |tx| {
                for number in n_there..count {
                    let secret = domain::access::SecretRecord {
                        name: format!("s/{number:05}"),
                        sealed_value: "sealed by a lost key".to_owned(),
                        expires: now,
                        last_modified: now,
                    };
                    store::secrets::put(tx, &secret)?;
                }
                Ok(())
            })
            .await;
        n_there = count;
        let findings = examine(&world.app.config).await;
        let expected = format!("no key decrypts {count} secrets");
        let is_said = findings.iter().any(|finding| finding.what == expected);
        assert_eq!(is_said, count > 0, "{count}: {findings:?}");
    }
});
