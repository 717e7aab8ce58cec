//! Relays: hosts on addresses of this machine ask one, which asks real DNS servers and a server.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testing::dns::{self, Interposer};

use crate::queue_calls::wait_for;
use crate::relay_world::{POOL, Relay, Reply, Site};
use crate::world::Server;

const TEXT: &str = "The relay gives this address no credentials; its log says why";

fn name(host: &str) -> String {
    format!("{host}.fleet.test")
}

/// A host with matching records.
fn host(server: SocketAddr, address: &str, host: &str) {
    let record = format!("add {} 300 A {address}", name(host));
    dns::update(server, &[dns::pointer(address, &name(host)), record]);
}

fn assert_refused(reply: &Reply) {
    assert_eq!(reply.status, 403, "{}", reply.body);
    assert_eq!(reply.body, json!({"code": "Refused", "message": TEXT}));
}

#[test]
fn a_host_gets_the_credentials_of_its_worker_and_others_get_one_refusal() {
    let Some(site) = Site::start() else {
        return;
    };
    host(site.dns[0], "127.9.0.7", "box-7.aa");
    host(site.dns[0], "127.9.0.8", "other-8.aa");
    dns::update(
        site.dns[0],
        &[
            // An address with the name of another host, and one with a name that makes no worker.
            dns::pointer("127.9.0.9", &name("box-7.aa")),
            dns::pointer(
                "127.9.0.10",
                &name("box-7.aa-long-long-long-long-long-long-long-long"),
            ),
            format!(
                "add {} 60 A 127.9.0.10",
                name("box-7.aa-long-long-long-long-long-long-long-long")
            ),
        ],
    );
    let relay = site.relay("");
    let reply = relay.ask("127.9.0.7", "/v1/registration");
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = &reply.body;
    assert_eq!(body["rootUrl"], site.server.root_url());
    assert_eq!(body["workerPoolId"], POOL);
    assert_eq!(
        (&body["workerGroup"], &body["workerId"]),
        (&json!("aa"), &json!("box-7"))
    );
    let client = &body["registration"]["credentials"]["clientId"];
    assert_eq!(client, &format!("worker/static/{POOL}/aa/box-7"));
    assert_eq!(body["registration"]["secret"].as_str().unwrap().len(), 44);
    let plain = relay.ask("127.9.0.7", "/v1/credentials").body;
    let (left, right) = POOL.split_once('/').unwrap();
    assert_eq!(
        (&plain["provisionerId"], &plain["workerType"]),
        (&json!(left), &json!(right))
    );
    assert_eq!(plain["clientId"], *client);
    let worker = site.server.json(&["worker", "show", POOL, "aa", "box-7"]);
    assert_eq!(worker["state"], "running");

    for (address, part) in [
        ("127.9.0.1", "knows no name of the address"),
        ("127.9.0.8", "no rule is about other-8.aa.fleet.test"),
        ("127.9.0.9", "which has other addresses: 127.9.0.7"),
        ("127.9.0.10", "makes no worker"),
    ] {
        assert_refused(&relay.ask(address, "/v1/registration"));
        relay.wait_for_log(&format!("refused {address}: "), part);
    }
    for header in [
        "X-Forwarded-For: 127.9.0.7",
        "Forwarded: for=127.9.0.7",
        "Via: 1.1 proxy",
    ] {
        assert_refused(&relay.ask_with("127.9.0.7", "/v1/registration", header));
        assert_refused(&relay.ask_with("127.9.0.1", "/v1/registration", header));
    }
    relay.wait_for_log(
        "refused 127.9.0.7: ",
        "x-forwarded-for: it came through a proxy",
    );
    // Reading is not asking: no page of a browser gets credentials.
    assert_eq!(
        relay.send("127.9.0.7", "GET", "/v1/credentials", "").status,
        404
    );
    assert_eq!(relay.send("127.9.0.1", "GET", "/health", "").status, 200);
}

#[test]
fn an_ipv4_host_is_the_same_at_a_listener_of_both_kinds() {
    let Some(site) = Site::start() else {
        return;
    };
    host(site.dns[0], "127.9.1.7", "box-7.bb");
    let relay = site.relay_at("[::]:0", "");
    let reply = relay.ask("127.9.1.7", "/v1/registration");
    assert_eq!(reply.body["workerId"], "box-7", "{}", reply.body);
}

#[test]
fn a_thousand_requests_are_answered_from_what_is_known() {
    const HOSTS: u8 = 20;
    const REQUESTS: usize = 50;
    let Some(site) = Site::start() else {
        return;
    };
    for number in 1..=HOSTS {
        host(
            site.dns[0],
            &format!("127.9.2.{number}"),
            &format!("box-{number}.cc"),
        );
    }
    let between = Interposer::start(Some(site.dns[0]));
    let relay = site.relay_with(
        &[between.address],
        "127.0.0.1:0",
        "[limits]\nrequests_per_second = 1000000\n",
    );
    let mut secrets = std::collections::BTreeSet::new();
    for _ in 0..REQUESTS {
        let replies = relay.ask_at_once((1..=HOSTS).map(|number| format!("127.9.2.{number}")));
        for reply in replies {
            assert_eq!(reply.status, 200, "{}", reply.body);
            secrets.insert(
                reply.body["registration"]["secret"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    assert_eq!(between.n_questions(), 2 * usize::from(HOSTS));
    // Each registration has a new secret. On a slow machine they are renewed after 30 seconds.
    assert!(secrets.len() < 10 * usize::from(HOSTS), "{}", secrets.len());
    let requests = usize::from(HOSTS) * REQUESTS;
    wait_for("all requests are announced", || {
        let shown = site.server.json(&["relay", "show", "dc1"]);
        (shown["served"] == requests).then_some(())
    });
}

#[test]
fn one_address_has_a_limit_of_requests() {
    let Some(site) = Site::start() else {
        return;
    };
    host(site.dns[0], "127.9.3.7", "box-7.dd");
    let relay = site.relay("[limits]\nrequests_per_second = 1\n");
    // Of many requests at once, two are in the same second.
    let late = wait_for("a request is too much", || {
        let replies = relay.ask_at_once(std::iter::repeat_n("127.9.3.7".to_owned(), 20));
        replies.into_iter().find(|reply| reply.status == 429)
    });
    assert_eq!(late.body["code"], "TooManyRequests");
}

#[test]
fn a_relay_says_that_the_worker_manager_is_away_and_goes_on_when_it_is_back() {
    let Some(site) = Site::start() else {
        return;
    };
    let (dns, listen) = (site.dns[0], site.listen.clone());
    host(dns, "127.9.4.7", "box-7.ee");
    host(dns, "127.9.4.8", "box-8.ee");
    let relay = site.relay("");
    assert_eq!(relay.ask("127.9.4.7", "/v1/registration").status, 200);
    let (_, home) = site.server.terminate();
    let away = relay.ask("127.9.4.8", "/v1/registration");
    assert_eq!(away.status, 503, "{}", away.body);
    assert!(away.head.contains("retry-after: 1"), "{}", away.head);
    relay.wait_for_log("refused 127.9.4.8: ", "the worker manager is away: ");
    relay.wait_for_log(
        "the relay is not announced: ",
        "the worker manager is away: ",
    );
    let _server = Server::start_in(home, &["--listen", &listen]);
    wait_for("the host is served", || {
        (relay.ask("127.9.4.8", "/v1/registration").status == 200).then_some(())
    });
    relay.wait_for_log("the relay is announced again", "");
}

#[test]
fn relays_are_listed_with_their_hosts_until_they_are_silent() {
    let Some(site) = Site::start() else {
        return;
    };
    host(site.dns[0], "127.9.5.7", "box-7.ff");
    let relay = site.relay("");
    relay.ask("127.9.5.7", "/v1/registration");
    relay.ask("127.9.5.1", "/v1/registration");
    let shown = wait_for("both requests are announced", || {
        let shown = site.server.json(&["relay", "show", "dc1"]);
        let hosts = shown["hosts"].as_array().unwrap().len();
        (hosts == 2).then_some(shown)
    });
    assert_eq!(
        (&shown["served"], &shown["refused"]),
        (&json!(1), &json!(1))
    );
    let outcome = |address: &str| {
        let mut hosts = shown["hosts"].as_array().unwrap().iter();
        hosts.find(|host| host["address"] == address).unwrap()["outcome"].clone()
    };
    assert_eq!(outcome("127.9.5.7"), "served");
    assert_eq!(outcome("127.9.5.1"), "refused");
    let text = site.server.ok(&["relay", "list"]);
    assert!(text.contains("dc1") && text.contains(POOL), "{text}");
    let text = site.server.ok(&["relay", "show", "dc1"]);
    assert!(text.contains("box-7.ff.fleet.test"), "{text}");
    assert!(text.contains("knows no name of the address"), "{text}");
    drop(relay);
    wait_for("the relay is silent", || {
        let listed = site.server.json(&["relay", "list"]);
        listed["relays"][0].get("silentSince").map(drop)
    });
}

#[test]
fn a_worker_gets_its_registration_from_the_relay_and_works_until_its_host_is_renamed() {
    let Some(site) = Site::start() else {
        return;
    };
    // The kernel gives connections of this machine this address.
    let (address, right) = ("127.0.0.1", "box-1.hh");
    let short = |name: &str| format!("add {name} 1 A {address}");
    let pointer = dns::pointer(address, &name(right)).replace(" 300 ", " 1 ");
    dns::update(site.dns[0], &[pointer, short(&name(right))]);
    let relay = site.relay("");
    let work = site.server.home.path("work").display().to_string();
    let worker = site.worker(&["--relay-url", &relay.url(), "--work-dir", &work]);
    let payload = json!({"command": ["echo", "hello from a host"], "maxRunTime": 60});
    let task = site.server.create_task(POOL, &payload);
    let run = site.server.resolved(&task);
    assert_eq!(run["state"], "completed", "{run} {}", worker.log());
    assert_eq!(
        (&run["workerGroup"], &run["workerId"]),
        (&json!("hh"), &json!("box-1"))
    );
    drop(worker);
    // Renamed in the zone of names only: its address has the old name.
    dns::update(
        site.dns[0],
        &[
            format!("delete {} A", name(right)),
            short(&name("box-2.hh")),
        ],
    );
    wait_for("the renamed host is refused", || {
        let reply = relay.ask(address, "/v1/registration");
        (reply.status == 403).then_some(())
    });
    let delete = format!("delete {} PTR", dns::reverse(address));
    dns::update(site.dns[0], &[delete]);
}

#[test]
fn the_example_of_the_documentation_works() {
    let Some(site) = Site::start() else {
        return;
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/datacentre.md");
    let text = std::fs::read_to_string(folder).unwrap();
    let block = |start: &str| {
        let (_, rest) = text.split_once(start).unwrap();
        let (block, _) = rest.split_once("\n```").unwrap();
        format!("{}{block}", start.split_once('\n').unwrap().1)
    };
    let out = site.shell(&block("```sh\nfleetwright pool create"));
    let token = out.split_whitespace().next_back().unwrap();
    site.server.home.write("example/relay-token", token);
    let mut toml = block("```toml\nrelay_id");
    let (before, rest) = toml.split_once("[tls]").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    toml = format!("{before}{after}");
    let resolvers = format!("{:?}", site.dns.map(|it: SocketAddr| it.to_string()));
    for (from, to) in [
        ("https://fleet.example.com", site.server.root_url().as_str()),
        ("0.0.0.0:8126", "127.0.0.1:0"),
        ("[\"10.0.0.2:53\", \"10.0.0.3:53\"]", &resolvers),
        ("dc1.example.com", "dc1.fleet.test"),
    ] {
        assert!(toml.contains(from), "{from}");
        toml = toml.replace(from, to);
    }
    let file = site.server.home.write("example/relay.toml", &toml);
    for server in site.dns {
        let record = "add mac-7.dc1.fleet.test 60 A 127.9.7.7".to_owned();
        dns::update(
            server,
            &[dns::pointer("127.9.7.7", "mac-7.dc1.fleet.test"), record],
        );
    }
    let relay = Relay::start(&site.server.home, &file);
    let reply = relay.ask("127.9.7.7", "/v1/credentials");
    assert_eq!(
        reply.body["clientId"], "worker/static/hardware/mac/dc1/mac-7",
        "{}",
        reply.body
    );
    if !site.has_program("jq") || !site.has_program("curl") {
        return;
    }
    let script = block("```sh\numask 077")
        .replace("https://relay.dc1.example.com:8126", &relay.url())
        .replace("curl ", "curl --interface 127.9.7.7 ");
    site.shell(&script);
    let runner: Value = serde_json::from_str(&site.server.home.read("start-worker.yml")).unwrap();
    assert_eq!(runner["provider"]["clientID"], reply.body["clientId"]);
    assert_eq!(runner["provider"]["workerPoolID"], "hardware/mac");
    assert_eq!(
        runner["workerConfig"]["certificate"],
        reply.body["certificate"]
    );
}
