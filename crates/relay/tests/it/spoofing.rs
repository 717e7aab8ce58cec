//! Claims of an address by DNS: only those count that both sides make.

use std::time::Duration;

use relay::{HostName, LookupError, Refusal};
use testing::dns::{self, Interposer};

use crate::zone::{LONG, Zone, identify_at};

#[tokio::test]
async fn a_host_is_known_by_the_name_that_has_its_address() {
    let Some(zone) = Zone::of("127.1.0") else {
        return;
    };
    let name = zone.name("mac-7");
    // Another address of the name does no harm: a machine may have two.
    zone.add(&[
        zone.pointer(7, &name),
        zone.host(&name, 7),
        zone.host(&name, 8),
    ]);
    assert_eq!(zone.identify(7).await.unwrap().as_str(), name);
    assert_eq!(zone.refusal(8).await, "DNS knows no name of the address");
}

#[tokio::test]
async fn an_address_without_a_name_is_refused_although_a_name_has_it() {
    let Some(zone) = Zone::of("127.1.1") else {
        return;
    };
    zone.add(&[zone.host(&zone.name("dangling"), 7)]);
    assert_eq!(zone.refusal(7).await, "DNS knows no name of the address");
}

#[tokio::test]
async fn a_name_without_the_address_is_refused() {
    let Some(zone) = Zone::of("127.1.2") else {
        return;
    };
    let (victim, nowhere) = (zone.name("victim"), zone.name("nowhere"));
    zone.add(&[
        zone.pointer(1, &victim),
        zone.host(&victim, 1),
        // The owner of the network names its address like another host,
        zone.pointer(2, &victim),
        // or like none.
        zone.pointer(3, &nowhere),
    ]);
    assert_eq!(zone.identify(1).await.unwrap().as_str(), victim);
    let text = format!("DNS says the address is {victim}, which has other addresses: 127.1.2.1");
    assert_eq!(zone.refusal(2).await, text);
    let text = format!("DNS says the address is {nowhere}, which has no address");
    assert_eq!(zone.refusal(3).await, text);
}

#[tokio::test]
async fn several_names_are_refused() {
    let Some(zone) = Zone::of("127.1.3") else {
        return;
    };
    let (one, two) = (zone.name("one"), zone.name("two"));
    zone.add(&[
        zone.pointer(7, &one),
        zone.pointer(7, &two),
        zone.host(&one, 7),
        zone.host(&two, 7),
    ]);
    let refusal = zone.refusal(7).await;
    assert!(
        refusal.starts_with("DNS knows several names of the address: "),
        "{refusal}"
    );
    assert!(
        refusal.contains(&one) && refusal.contains(&two),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_name_that_changes_between_the_look_ups_is_refused() {
    let Some(zone) = Zone::of("127.1.4") else {
        return;
    };
    let name = zone.name("mac-7");
    zone.add(&[zone.pointer(7, &name), zone.host(&name, 7)]);
    let between = Interposer::start(Some(zone.servers[0]));
    between.hold(dns::A);
    let address = zone.address(7);
    let asking = tokio::spawn({
        let (servers, address) = ([between.address], address.clone());
        async move { identify_at(&servers, &address, LONG).await }
    });
    let between = tokio::task::spawn_blocking(move || {
        between.wait_until_held();
        between
    });
    let between = between.await.unwrap();
    zone.add(&[format!("delete {name} A"), zone.host(&name, 9)]);
    between.release();
    let refusal = asking.await.unwrap().unwrap_err();
    assert!(matches!(refusal, Refusal::OtherAddress { .. }), "{refusal}");
}

#[tokio::test]
async fn upper_case_is_the_same_name_and_other_alphabets_only_in_their_ascii_form() {
    let Some(zone) = Zone::of("127.1.5") else {
        return;
    };
    let (name, idn) = (zone.name("mac-7"), zone.name("xn--grn-hoa"));
    zone.add(&[
        zone.pointer(7, &name.to_uppercase()),
        zone.host(&name, 7),
        zone.pointer(8, &idn),
        zone.host(&idn, 8),
        zone.pointer(9, &zone.name("gr\\195\\188n")),
        zone.pointer(10, &zone.name("a_b")),
        zone.pointer(11, &zone.name("a\\047b")),
        zone.pointer(12, &zone.name("a\\.b")),
    ]);
    assert_eq!(zone.identify(7).await.unwrap().as_str(), name);
    assert_eq!(zone.identify(8).await.unwrap().as_str(), idn);
    for last in 9..=12 {
        let refusal = zone.identify(last).await.unwrap_err();
        assert!(
            matches!(refusal, Refusal::BadName { .. }),
            "{last}: {refusal}"
        );
    }
}

#[tokio::test]
async fn aliases_are_followed_on_both_ways_but_not_in_circles() {
    let Some(zone) = Zone::of("127.1.6") else {
        return;
    };
    let alias = |from: &str, to: &str| format!("add {from} 60 CNAME {to}.");
    let (name, other, real) = (zone.name("mac-7"), zone.name("alias"), zone.name("real"));
    let (round, about) = (zone.name("round"), zone.name("about"));
    let part = format!(
        "7.0-15.{}",
        dns::reverse(&zone.address(0)).split_once('.').unwrap().1
    );
    zone.add(&[
        // As for a part of a network (RFC 2317).
        alias(&dns::reverse(&zone.address(7)), &part),
        format!("add {part} 60 PTR {name}."),
        alias(&name, &other),
        alias(&other, &real),
        zone.host(&real, 7),
        zone.pointer(8, &round),
        alias(&round, &about),
        alias(&about, &round),
    ]);
    // The name of the address counts, not the end of its aliases.
    assert_eq!(zone.identify(7).await.unwrap().as_str(), name);
    // This server notices circles itself.
    let refusal = zone.identify(8).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Lookup { .. }), "{refusal}");
    let chain = |it: u8| zone.name(&format!("chain-{it}"));
    let mut changes = vec![zone.pointer(9, &chain(0)), zone.host(&chain(9), 9)];
    changes.extend((0..9).map(|it| alias(&chain(it), &chain(it + 1))));
    zone.add(&changes);
    let refusal = zone.identify(9).await.unwrap_err();
    let Refusal::Lookup { problem, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert!(matches!(problem, LookupError::TooLong { .. }), "{refusal}");
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_asked_for_over_tcp() {
    let Some(zone) = Zone::of("127.1.7") else {
        return;
    };
    let name = zone.name("mac-7");
    let mut changes = vec![zone.pointer(7, &name)];
    // More than 512 bytes.
    changes.extend((7..107).map(|last| zone.host(&name, last)));
    changes.extend((0..40).map(|it| zone.pointer(8, &zone.name(&format!("name-{it}")))));
    zone.add(&changes);
    assert_eq!(zone.identify(7).await.unwrap().as_str(), name);
    let refusal = zone.refusal(8).await;
    assert!(refusal.ends_with(" and 36 more"), "{refusal}");
}

#[tokio::test]
async fn a_server_that_is_late_or_knows_nothing_identifies_nobody() {
    let Some(zone) = Zone::of("127.1.8") else {
        return;
    };
    let silent = Interposer::start(None);
    // Time: the answer never comes.
    let limit = Duration::from_millis(50);
    let refusal = identify_at(&[silent.address], "127.1.8.7", limit).await;
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.ends_with("no answer within 50ms"), "{refusal}");
    // A network of others.
    let refusal = identify_at(&[zone.servers[0]], "10.0.0.7", LONG).await;
    let refusal = refusal.unwrap_err().to_string();
    let part = "7.0.0.10.in-addr.arpa. PTR: the DNS server answers Query Refused";
    assert!(refusal.contains(part), "{refusal}");
}

#[tokio::test]
async fn an_ipv6_host_is_known_by_its_ipv6_address() {
    let Some(zone) = Zone::of("127.1.9") else {
        return;
    };
    let name = zone.name("mac-7");
    zone.add(&[
        dns::pointer("::9", &name),
        format!("add {name} 60 AAAA ::9"),
        dns::pointer("::8", &name),
    ]);
    let identified = |address: &'static str| identify_at(&zone.servers[..1], address, LONG);
    assert_eq!(
        identified("::9").await,
        Ok(name.parse::<HostName>().unwrap())
    );
    let refusal = identified("::8").await.unwrap_err();
    assert!(matches!(refusal, Refusal::OtherAddress { .. }), "{refusal}");
}
