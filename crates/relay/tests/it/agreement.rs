//! Several resolvers must agree, and answers hold as long as their shortest record.

use std::time::Duration;

use relay::{Refusal, Resolver, identify};
use testing::dns;

use crate::zone::{LONG, Zone, identify_at};

#[tokio::test]
async fn resolvers_that_disagree_identify_nobody() {
    let Some(zone) = Zone::of("127.2.0") else {
        return;
    };
    let (name, other) = (zone.name("mac-7"), zone.name("forged"));
    let both = zone.servers;
    let asked = || identify_at(&both, "127.2.0.7", LONG);
    let records = |name: &str| [zone.pointer(7, name), zone.host(name, 7)];
    dns::update(both[0], &records(&name));
    let refusal = asked().await.unwrap_err();
    assert_eq!(refusal, Refusal::NoName { resolver: both[1] });
    dns::update(both[1], &records(&other));
    let refusal = asked().await.unwrap_err().to_string();
    let text = format!(
        "the resolvers disagree: {} says {name}, {} says {other}",
        both[0], both[1]
    );
    assert_eq!(refusal, text);
    let delete = format!("delete {} PTR", dns::reverse("127.2.0.7"));
    dns::update(both[1], &[delete]);
    dns::update(both[1], &records(&name));
    assert_eq!(asked().await.unwrap().as_str(), name);
}

#[tokio::test]
async fn an_answer_holds_as_long_as_its_shortest_record() {
    let Some(zone) = Zone::of("127.2.1") else {
        return;
    };
    let name = zone.name("mac-7");
    zone.add(&[zone.pointer(7, &name), format!("add {name} 7 A 127.2.1.7")]);
    let resolver = Resolver {
        address: zone.servers[0],
        limit: LONG,
    };
    let (_, ttl) = identify(&[resolver], "127.2.1.7".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(ttl, Duration::from_secs(7));
}
