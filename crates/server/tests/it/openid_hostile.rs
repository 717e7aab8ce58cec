//! A provider, browsers and other sites that do not behave: none of them signs anybody in.

use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS};
use serde_json::json;
use testing::sizes_around;

use crate::openid_provider::{CLIENT, Reaction, Signer};
use crate::openid_world::{BEGIN, Browser, Pair, path_of, refused, sets_a_session};
use crate::world::START_MS;

#[tokio::test]
async fn tokens_of_others_for_others_or_of_another_time_are_refused() {
    let pair = Pair::open("").await;
    let now = START_MS / 1_000;
    let wrong = [
        ("nonce", json!("other"), "(nonce)"),
        ("aud", json!("other"), "(aud)"),
        ("aud", json!([CLIENT, "other"]), "(azp)"),
        ("azp", json!("other"), "(azp)"),
        ("iss", json!("http://127.0.0.1:1"), "(iss)"),
        ("exp", json!(now - 60), "(exp)"),
        ("iat", json!(now + 120), "(nbf, iat)"),
        ("nbf", json!(now + 120), "(nbf, iat)"),
        ("sub", json!(""), "(sub)"),
    ];
    for (name, value, part) in wrong {
        let answer = pair.come_back(|claims| claims[name] = value).await;
        refused(&answer, 403, part);
    }
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
}

#[tokio::test]
async fn each_kind_of_key_signs_and_no_other_way_does() {
    let pair = Pair::open("").await;
    let signers = [Signer::ed(), Signer::ec(), Signer::rsa(), Signer::pss()];
    for (kid, signer) in ["a", "b", "c", "d"].into_iter().zip(signers) {
        pair.world.clock.advance_ms(2 * MINUTE_MS);
        let public = signer.public_as_secret();
        let key = signer.jwk(kid);
        {
            let mut script = pair.provider.script();
            script.keys = vec![key];
            (script.kid, script.signer) = (kid, signer);
        }
        assert!(sets_a_session(&pair.come_back(|_| ()).await));
        for false_signer in [
            Signer::Hmac(public),
            Signer::Nothing,
            Signer::ed(),
            Signer::rsa(),
        ] {
            let mut kept = std::mem::replace(&mut pair.provider.script().signer, false_signer);
            let answer = pair.come_back(|_| ()).await;
            refused(&answer, 403, "an ID token that is not accepted");
            std::mem::swap(&mut pair.provider.script().signer, &mut kept);
        }
    }
}

#[tokio::test]
async fn keys_are_read_again_for_an_unknown_one_once_a_minute() {
    let pair = Pair::open("").await;
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
    assert_eq!(pair.provider.n_asked("/keys"), 1);
    pair.provider.script().kid = "k2";
    for _ in 0..3 {
        refused(&pair.come_back(|_| ()).await, 403, "has no key for it");
    }
    assert_eq!(pair.provider.n_asked("/keys"), 1);
    pair.world.clock.advance_ms(MINUTE_MS);
    for _ in 0..3 {
        refused(&pair.come_back(|_| ()).await, 403, "has no key for it");
    }
    assert_eq!(pair.provider.n_asked("/keys"), 2);
    pair.world.clock.advance_ms(MINUTE_MS);
    let signer = Signer::ec();
    {
        let mut script = pair.provider.script();
        script.keys.push(signer.jwk("k2"));
        script.signer = signer;
    }
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
    assert_eq!(pair.provider.n_asked("/keys"), 3);
    assert_eq!(
        pair.provider.n_asked("/.well-known/openid-configuration"),
        1
    );
}

#[tokio::test]
async fn answers_that_are_not_tokens_are_refused() {
    let pair = Pair::open("").await;
    for (reaction, part) in [
        (Reaction::Huge, "more than 256 KiB"),
        (Reaction::Garbage, "sent no JSON"),
        (Reaction::Redirect, "answered 302"),
        (Reaction::Failure, "answered 500"),
    ] {
        pair.provider.script().reaction = reaction;
        refused(&pair.come_back(|_| ()).await, 503, part);
    }
    assert_eq!(
        pair.provider.n_asked("/keys"),
        0,
        "the redirect was not followed"
    );
    pair.provider.script().reaction = Reaction::Tokens;
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
}

#[tokio::test]
async fn a_provider_that_never_answers_ends_a_sign_in() {
    let pair = Pair::open("").await;
    pair.provider.script().reaction = Reaction::Silence;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = pair.provider.authorize(&url);
    let asking = tokio::spawn(browser.ask(pair.world.get(&path_of(&back))).send());
    pair.provider.wait_for("/token", 1).await;
    tokio::time::pause();
    let answer = asking.await.unwrap();
    refused(&answer, 503, "does not answer");
}

#[tokio::test]
async fn a_limited_number_of_sign_ins_asks_the_provider_at_once() {
    for size in sizes_around("server::openid::provider::MAX_EXCHANGES", 16) {
        let pair = Pair::open("").await;
        pair.provider.script().reaction = Reaction::Silence;
        let mut asks = Vec::new();
        for number in 0..size {
            let mut browser = pair.browser();
            let url = browser.begin(&pair).await;
            let back = pair.provider.authorize(&url);
            let asking = tokio::spawn(browser.ask(pair.world.get(&path_of(&back))).send());
            if number < 16 {
                pair.provider.wait_for("/token", number + 1).await;
                asks.push(asking);
            } else {
                refused(&asking.await.unwrap(), 503, "asked by many people");
            }
        }
        assert_eq!(pair.provider.n_asked("/token"), size.min(16));
        asks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn a_code_is_used_once() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let first = browser.get(&pair.world, &back).await;
    assert!(sets_a_session(&first));
    // The browser kept the cookie although it was removed.
    let second = browser.get(&pair.world, &back).await;
    refused(&second, 403, "invalid_grant (the code was used)");
    browser.keep(&first);
    refused(
        &browser.get(&pair.world, &back).await,
        403,
        "did not begin this sign-in",
    );
}

#[tokio::test]
async fn a_sign_in_of_another_browser_or_time_gets_one_answer() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let mut other = pair.browser();
    other.begin(&pair).await;
    let mut texts = Vec::new();
    let forged = back.replace("state=", "state=x");
    let without = back.replace("state=", "stat=");
    let renamed = Browser {
        name: "curl",
        ..browser.clone()
    };
    let sealed_elsewhere = Browser {
        begun: "fleetwright-80-openid=s1.k1.AAAA".to_owned(),
        ..browser.clone()
    };
    for (who, path) in [
        (&other, &back),
        (&pair.browser(), &back),
        (&browser, &forged),
        (&browser, &without),
        (&renamed, &back),
        (&sealed_elsewhere, &back),
    ] {
        let answer = who.get(&pair.world, path).await;
        refused(&answer, 403, "did not begin this sign-in");
        texts.push(answer.text);
    }
    pair.world.clock.advance_ms(10 * MINUTE_MS);
    let late = browser.get(&pair.world, &back).await;
    refused(&late, 403, "did not begin this sign-in");
    texts.push(late.text);
    texts.dedup();
    assert_eq!(texts.len(), 1);
    assert_eq!(pair.provider.n_asked("/token"), 0);
}

#[tokio::test]
async fn an_error_of_the_provider_is_shown_as_text() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let error = "error=access_denied&error_description=%3Cb%3ENo%3C%2Fb%3E";
    let denied = back.replace("code=c1", error);
    let answer = browser.get(&pair.world, &denied).await;
    refused(
        &answer,
        403,
        "Corp refused the sign-in: access_denied (&lt;b&gt;No&lt;/b&gt;)",
    );
    // Another provider's answer, as RFC 9207 describes it.
    let (mixed, _) = back.split_once("iss=").unwrap();
    let answer = browser
        .get(&pair.world, &format!("{mixed}iss=https://evil.example"))
        .await;
    refused(&answer, 403, "an answer of another provider");
    pair.world.clock.advance_ms(2 * HOUR_MS);
    let supported = "authorization_response_iss_parameter_supported";
    pair.provider.script().metadata[supported] = json!(true);
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let (without, _) = back.split_once("&iss=").unwrap();
    let answer = browser.get(&pair.world, without).await;
    refused(&answer, 403, "an answer of another provider");
}

#[tokio::test]
async fn a_provider_with_unusable_metadata_is_named_and_asked_again_later() {
    let pair = Pair::open("").await;
    let browser = pair.browser();
    let url = pair.provider.url();
    pair.provider.script().metadata["issuer"] = json!(format!("{url}/"));
    for _ in 0..3 {
        let answer = browser.get(&pair.world, BEGIN).await;
        refused(&answer, 503, "set page.openid.issuer to exactly this text");
    }
    let metadata = "/.well-known/openid-configuration";
    assert_eq!(pair.provider.n_asked(metadata), 1);
    {
        let mut script = pair.provider.script();
        script.metadata["issuer"] = json!(url);
        script.metadata["token_endpoint"] = json!("http://id.example/token");
    }
    pair.world.clock.advance_ms(5 * SECOND_MS);
    let answer = browser.get(&pair.world, BEGIN).await;
    refused(&answer, 503, "is not encrypted");
    pair.provider.script().metadata["token_endpoint"] = json!(format!("{url}/token"));
    pair.world.clock.advance_ms(5 * SECOND_MS);
    assert_eq!(browser.get(&pair.world, BEGIN).await.status, 303);
}
