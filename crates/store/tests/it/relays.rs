//! Relays: their last announcements, until they are silent for long.

use domain::relay::Relay;
use serde_json::json;
use store::relays;

use crate::samples::at;
use crate::world::{on_both, read, write};

fn relay(id: &str, last_seen: i64, served: u32) -> Relay {
    Relay {
        id: id.parse().unwrap(),
        first_seen: at(last_seen),
        last_seen: at(last_seen),
        interval_seconds: 30,
        announcement: json!({"served": served, "hosts": ["größer"]}),
    }
}

on_both!(
    a_relay_keeps_its_first_moment_and_its_last_announcement,
    |database| {
        let store = database.migrated().await;
        for (last_seen, served) in [(5, 1), (9, 2)] {
            let announced = relay("dc1", last_seen, served);
            write(&store, move |tx| relays::write(tx, &announced)).await;
        }
        let id = "dc1".parse().unwrap();
        let found = read(&store, move |tx| relays::get(tx, &id)).await;
        let wanted = Relay {
            first_seen: at(5),
            ..relay("dc1", 9, 2)
        };
        assert_eq!(found, Some(wanted));
    }
);

on_both!(silent_relays_are_deleted_the_oldest_first, |database| {
    let store = database.migrated().await;
    for (id, last_seen) in [("c", 7), ("a", 9), ("b", 3)] {
        let announced = relay(id, last_seen, 0);
        write(&store, move |tx| relays::write(tx, &announced)).await;
    }
    let ids = async || {
        let after = "a".parse().unwrap();
        let all = read(&store, |tx| relays::list(tx, None, 9)).await;
        let rest = read(&store, move |tx| relays::list(tx, Some(&after), 1)).await;
        let names = |list: Vec<Relay>| list.iter().map(|it| it.id.to_string()).collect::<String>();
        (names(all), names(rest))
    };
    assert_eq!(ids().await, ("abc".to_owned(), "b".to_owned()));
    let delete =
        async |limit| write(&store, move |tx| relays::delete_silent(tx, at(9), limit)).await;
    assert_eq!(delete(1).await, 1);
    assert_eq!(ids().await, ("ac".to_owned(), "c".to_owned()));
    assert_eq!(delete(9).await, 1);
    assert_eq!(ids().await, ("a".to_owned(), String::new()));
});
