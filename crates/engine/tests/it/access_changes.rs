//! Clients and roles are made, changed and deleted.

use domain::access::ClientRecord;
use domain::audit::EntityType;
use domain::id::{ClientId, RoleId};
use domain::time::{DAY_MS, MINUTE_MS};
use engine::access::{
    AccessError, ClientRequest, RoleRequest, create_client, create_role, delete_client,
    reset_client, set_client_disabled, update_client, update_role,
};

use crate::world::World;

fn id() -> ClientId {
    "project/client".parse().unwrap()
}

fn asked(world: &World, description: &str) -> ClientRequest {
    ClientRequest {
        description: description.to_owned(),
        scopes: vec!["queue:*".to_owned()],
        expires: world.now().plus_millis(DAY_MS),
        delete_on_expiration: false,
    }
}

async fn create(
    world: &World,
    asked: ClientRequest,
) -> Result<(ClientRecord, access::Secret), AccessError> {
    let audit = world.audit(EntityType::Client, id().as_str(), "created");
    create_client(&world.engine, id(), asked, audit).await
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_token_and_is_noted() {
    let world = World::new().await;
    let asked = asked(&world, "one");
    let (_, first) = create(&world, asked.clone()).await.unwrap();
    world.advance_ms(MINUTE_MS);
    let (_, second) = create(&world, asked.clone()).await.unwrap();
    assert_eq!(first, second);
    assert_eq!(world.n_events().await, 1);
    assert_eq!(
        world.actions(EntityType::Client, id().as_str()).await,
        ["created", "token-given-again"]
    );
    let another = ClientRequest {
        description: "two".to_owned(),
        ..asked.clone()
    };
    let refused = create(&world, another).await.unwrap_err();
    assert!(matches!(refused, AccessError::ClientExists), "{refused}");
    world.advance_ms(15 * MINUTE_MS);
    let late = create(&world, asked).await.unwrap_err();
    assert!(matches!(late, AccessError::ClientExists), "{late}");
}

#[tokio::test]
async fn a_client_is_changed_only_at_the_version_that_its_caller_saw() {
    let world = World::new().await;
    let (seen, old_token) = create(&world, asked(&world, "one")).await.unwrap();
    let audit = |action| world.audit(EntityType::Client, id().as_str(), action);
    let disabled = set_client_disabled(&world.engine, id(), true, audit("disabled"));
    assert!(disabled.await.unwrap().disabled);
    let update = |version| {
        let asked = asked(&world, "two");
        update_client(&world.engine, id(), version, asked, audit("updated"))
    };
    let refused = update(seen.version).await.unwrap_err();
    assert!(matches!(refused, AccessError::ClientChanged), "{refused}");
    let reset = reset_client(&world.engine, id(), audit("reset"));
    let (reset, new_token) = reset.await.unwrap();
    assert_ne!(old_token, new_token);
    let updated = update(reset.version).await.unwrap();
    assert_eq!(
        (updated.description.as_str(), updated.disabled),
        ("two", true)
    );
    for _ in 0..2 {
        let deleted = delete_client(&world.engine, id(), audit("deleted"));
        deleted.await.unwrap();
    }
    let missing = update(updated.version).await.unwrap_err();
    assert!(matches!(missing, AccessError::NoSuchClient), "{missing}");
    let mut actions = world.actions(EntityType::Client, id().as_str()).await;
    actions.sort();
    assert_eq!(
        actions,
        ["created", "deleted", "disabled", "reset", "updated"]
    );
    assert_eq!(world.n_events().await, 5);
}

#[tokio::test]
async fn roles_that_expand_each_other_without_end_are_refused() {
    let world = World::new().await;
    let role = |name: &str, scope: &str| {
        let asked = RoleRequest {
            description: String::new(),
            scopes: vec![scope.to_owned()],
        };
        let audit = world.audit(EntityType::Role, name, "created");
        create_role(&world.engine, name.parse().unwrap(), asked, audit)
    };
    let first = role("a*", "assume:b<..>x").await.unwrap();
    let refused = role("b*", "assume:a<..>y").await.unwrap_err();
    assert!(matches!(refused, AccessError::Role(_)), "{refused}");
    role("b*", "queue:<..>").await.unwrap();
    let id: RoleId = "b*".parse().unwrap();
    let asked = RoleRequest {
        description: String::new(),
        scopes: vec!["assume:a<..>y".to_owned()],
    };
    let audit = world.audit(EntityType::Role, id.as_str(), "updated");
    let changed = update_role(&world.engine, id, first.version, asked, audit);
    let refused = changed.await.unwrap_err();
    assert!(matches!(refused, AccessError::Role(_)), "{refused}");
    assert_eq!(world.n_events().await, 2);
}
