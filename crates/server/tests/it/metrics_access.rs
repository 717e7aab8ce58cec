//! `/metrics` is for programs on this machine, and not for requests that only claim to be local.

use std::sync::Arc;

use server::api::listener::Server;

use crate::ask::Ask;
use crate::database::Database;
use crate::world::World;

fn metrics(world: &World) -> Ask {
    world.get("root:/metrics").anonymously()
}

async fn is_hidden(ask: Ask) -> bool {
    let answer = ask.await;
    answer.status == 404 && !answer.text.contains("fleetwright_build_info")
}

#[tokio::test]
async fn programs_here_read_metrics_and_pages_of_other_sites_do_not() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    for host in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "127.9.9.9",
        "[::1]:8080",
    ] {
        let answer = metrics(&world).locally().header("host", host).await;
        assert_eq!(answer.status, 200, "{host}");
        assert!(answer.text.contains("fleetwright_build_info"));
        for name in [
            "access-control-allow-origin",
            "access-control-allow-methods",
            "access-control-allow-headers",
            "access-control-expose-headers",
        ] {
            assert_eq!(answer.header(name), "", "{name}");
        }
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
}

#[tokio::test]
async fn a_site_that_has_taken_our_address_reads_no_metrics() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "[2001:db8::1]",
        "",
    ] {
        assert!(
            is_hidden(metrics(&world).locally().header("host", host)).await,
            "{host}"
        );
    }
}

#[tokio::test]
async fn no_header_makes_a_request_local_and_any_of_a_proxy_makes_it_foreign() {
    let world = World::open(Database::sqlite(), |config| {
        config.server.trusted_proxies = 1
    })
    .await;
    assert!(is_hidden(metrics(&world).header("host", "localhost")).await);
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("via", "1.1 localhost"),
        ("x-forwarded-host", "localhost"),
    ] {
        let from_afar = metrics(&world).header("host", "localhost");
        assert!(is_hidden(from_afar.header(name, value)).await, "{name}");
        let passed_on = metrics(&world).locally();
        assert!(is_hidden(passed_on.header(name, value)).await, "{name}");
    }
}

#[tokio::test]
async fn metrics_with_an_address_of_their_own_are_read_there_by_everybody_and_nowhere_else() {
    let world = World::open(Database::sqlite(), |config| {
        config.metrics.listen = Some(([192, 0, 2, 1], 9090).into());
    })
    .await;
    assert!(is_hidden(metrics(&world).locally()).await);
    let door = Arc::new(Server::of_metrics(Arc::clone(&world.app)));
    let ask = |method, path: &str| {
        let ask = Ask::new(Arc::clone(&door), method, path, world.now());
        ask.header("x-forwarded-for", "192.0.2.9")
    };
    let answer = ask(http::Method::GET, "root:/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("fleetwright_build_info"));
    assert_eq!(answer.header("access-control-allow-origin"), "");
    assert_eq!(ask(http::Method::POST, "root:/metrics").await.status, 404);
    for path in [
        "root:/",
        "root:/live",
        "root:/ready",
        "queue:/ping",
        "/ping",
    ] {
        assert_eq!(ask(http::Method::GET, path).await.status, 404, "{path}");
    }
}

fn with_token(folder: &tempfile::TempDir, config: &mut server::config::Config) {
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-the-scraper-alone\n").unwrap();
    config.metrics.token_file = Some(file);
}

/// Other tokens and other schemes are refused.
async fn only_the_token_opens(ask: impl Fn() -> Ask) {
    for header in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer a-token-of-the-scraper-alon",
        "Bearer a-token-of-the-scraper-alone2",
        "Basic a-token-of-the-scraper-alone",
        "a-token-of-the-scraper-alone",
    ] {
        let refused = ask().header("authorization", header).await;
        assert_eq!(refused.status, 401, "{header}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        assert_eq!(refused.header("access-control-allow-origin"), "");
        assert!(!refused.text.contains("fleetwright_build_info"));
    }
    assert_eq!(ask().await.status, 401);
    let right = "Bearer a-token-of-the-scraper-alone";
    let twice = ask().header("authorization", right);
    let twice = twice.header("authorization", right).await;
    assert_eq!(twice.status, 401);
    for scheme in ["Bearer", "bearer"] {
        let header = right.replace("Bearer", scheme);
        let answer = ask().header("authorization", &header).await;
        assert_eq!(answer.status, 200, "{header}");
        assert!(answer.text.contains("fleetwright_build_info"));
    }
}

#[tokio::test]
async fn with_a_token_metrics_are_read_from_anywhere_by_those_who_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(Database::sqlite(), |config| with_token(&folder, config)).await;
    only_the_token_opens(|| metrics(&world)).await;
    only_the_token_opens(|| metrics(&world).locally()).await;
    let proxied = || metrics(&world).header("x-forwarded-for", "192.0.2.9");
    only_the_token_opens(proxied).await;
    assert!(!world.log.text().contains("of-the-scraper"));
}

#[tokio::test]
async fn an_address_of_its_own_may_need_a_token_too() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(Database::sqlite(), |config| {
        with_token(&folder, config);
        config.metrics.listen = Some(([192, 0, 2, 1], 9090).into());
    })
    .await;
    let door = Arc::new(Server::of_metrics(Arc::clone(&world.app)));
    only_the_token_opens(|| {
        Ask::new(
            Arc::clone(&door),
            http::Method::GET,
            "root:/metrics",
            world.now(),
        )
    })
    .await;
    let elsewhere = metrics(&world).header("authorization", "Bearer a-token-of-the-scraper-alone");
    assert!(is_hidden(elsewhere).await);
}
