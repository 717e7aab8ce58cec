//! Tests of identity tokens.

use access::Secret;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::engine::general_purpose::STANDARD;
use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::json;

use super::*;
use crate::CloudError;
use crate::identity::REFUSED;
use crate::signing::http::Http;
use crate::tests::values::{self, TestClock, edit};
use crate::vendor::recorder::Recorder;

const EXPECTED: Expected<'_> = Expected {
    audience: "https://fleet.example.com",
    project: "project-1",
    account: "1234567890",
};

struct Signer(KeyPair);

impl Signer {
    fn new() -> Self {
        Self(KeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    fn public(&self) -> String {
        STANDARD.encode(self.0.public_key().as_der().unwrap().as_ref())
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        let random = SystemRandom::new();
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &random,
                signed.as_bytes(),
                &mut signature,
            )
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A signer, and the certificates that name its key `k1`.
async fn world() -> (Signer, Certificates, Recorder) {
    let (signer, recorder) = (Signer::new(), Recorder::start().await);
    recorder.answer(200, json!({"k1": signer.public()}));
    let clock = TestClock::new();
    let certificates = Certificates::new(recorder.url.clone(), Http::default(), clock);
    (signer, certificates, recorder)
}

fn header() -> Value {
    json!({"alg": "RS256", "kid": "k1", "typ": "JWT"})
}

fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let now = values::now().as_millis() / 1_000;
    let mut claims = json!({
        "iss": "https://accounts.google.com", "aud": "https://fleet.example.com",
        "sub": "1234567890", "azp": "1234567890", "iat": now, "exp": now + 3_600,
        "email": "w@project-1.iam.gserviceaccount.com", "email_verified": true,
        "google": {"compute_engine": {"project_id": "project-1", "project_number": 1,
            "instance_id": "4815162342", "instance_name": "a-b-token",
            "zone": "us-central1-a", "instance_creation_timestamp": now}},
    });
    change(&mut claims);
    claims
}

fn worker() -> Worker {
    let mut worker = values::worker(WorkerState::Requested);
    edit(&mut worker, |it| {
        it.key.group = "us-central1-a".parse().unwrap();
        it.key.id = "4815162342".parse().unwrap();
        it.provider_data = Row::new("project-1", "us-central1-a", "a-b-token", "e2").to_value();
    });
    worker
}

async fn judged(
    worker: &Worker,
    proof: &Proof,
    certificates: &Certificates,
) -> Result<Verification, VerifyError> {
    let claim = IdentityClaim {
        pool: &values::pool(worker, &json!({})),
        worker,
        launch_config: None,
        proof,
        now: values::now(),
    };
    verify(&claim, EXPECTED, certificates).await
}

/// The reason of the refusal, whose message is always the same.
async fn refusal(worker: &Worker, token: &str, certificates: &Certificates) -> String {
    let proof = Proof::Token(Secret::new(token));
    match judged(worker, &proof, certificates).await.unwrap_err() {
        VerifyError::Refused(refused) => {
            assert_eq!(refused.message, REFUSED);
            refused.detail
        }
        VerifyError::Cloud(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_machine_with_its_token_is_verified_by_its_own_terms() {
    let (signer, certificates, _) = world().await;
    let mut worker = worker();
    edit(&mut worker, |it| {
        it.terms.reregistration_timeout = Some(60_000);
        it.terms.worker_config = Some(json!({"a": 1}));
    });
    for issuer in ISSUERS {
        let claims = claims(|it| it["iss"] = json!(issuer));
        let proof = Proof::Token(Secret::new(signer.sign(&header(), &claims)));
        let verified = judged(&worker, &proof, &certificates).await.unwrap();
        assert_eq!(verified.lasts_ms, 60_000);
        assert_eq!(verified.worker_config, json!({"a": 1}));
    }
}

#[tokio::test]
async fn a_genuine_token_with_another_claim_is_refused_whichever_it_is() {
    let (signer, certificates, _) = world().await;
    let now = values::now().as_millis() / 1_000;
    let machine = "/google/compute_engine";
    for (pointer, value, reason) in [
        ("/iss".to_owned(), json!("https://evil"), "the issuer"),
        ("/iss".to_owned(), json!(null), "the issuer"),
        ("/aud".to_owned(), json!("https://other"), "aud of"),
        ("/aud".to_owned(), json!([EXPECTED.audience]), "aud of"),
        ("/sub".to_owned(), json!("12345678901"), "sub of"),
        ("/sub".to_owned(), json!(1_234_567_890), "sub of"),
        (format!("{machine}/project_id"), json!("p2"), "project_id"),
        (format!("{machine}/instance_id"), json!("1"), "instance_id"),
        (
            format!("{machine}/instance_name"),
            json!("x"),
            "instance_name",
        ),
        (format!("{machine}/zone"), json!("us-central1-b"), "zone of"),
        ("/exp".to_owned(), json!(now - 300), "the token has expired"),
        ("/exp".to_owned(), json!(now + 86_401), "valid for too long"),
        ("/exp".to_owned(), json!("soon"), "no end"),
        ("/iat".to_owned(), json!(now + 301), "from the future"),
        ("/iat".to_owned(), json!(null), "no time of issue"),
    ] {
        let claims = claims(|it| *it.pointer_mut(&pointer).unwrap() = value.clone());
        let token = signer.sign(&header(), &claims);
        let detail = refusal(&worker(), &token, &certificates).await;
        assert!(detail.contains(reason), "{pointer} {value}: {detail}");
    }
    let slow = claims(|it| {
        it["iat"] = json!(now - 3_899);
        it["exp"] = json!(now - 299);
    });
    let proof = Proof::Token(Secret::new(signer.sign(&header(), &slow)));
    assert!(judged(&worker(), &proof, &certificates).await.is_ok());
}

#[tokio::test]
async fn a_token_that_google_did_not_sign_is_refused() {
    let (signer, certificates, recorder) = world().await;
    let good = signer.sign(&header(), &claims(|_| ()));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let forged = Signer::new().sign(&header(), &claims(|_| ()));
    let other = claims(|it| it["google"]["compute_engine"]["instance_id"] = json!("7"));
    let other = URL_SAFE_NO_PAD.encode(other.to_string());
    let moved = format!("{}.{other}.{signature}", signed.split_once('.').unwrap().0);
    let with = |header: Value| signer.sign(&header, &claims(|_| ()));
    for (token, reason) in [
        (forged, "the signature"),
        (moved, "the signature"),
        (format!("{signed}."), "the signature"),
        (signed.to_owned(), "not three parts"),
        (format!("{good}.x"), "not three parts"),
        (String::new(), "not three parts"),
        ("é.é.é".to_owned(), "not three parts"),
        ("x".repeat(MAX_TOKEN_BYTES + 1), "too long"),
        (
            with(json!({"alg": "none", "kid": "k1"})),
            "not signed with RS256",
        ),
        (
            with(json!({"alg": "HS256", "kid": "k1"})),
            "not signed with RS256",
        ),
        (with(json!({"alg": "RS256"})), "names no key"),
        (with(json!({"alg": "RS256", "kid": "k2"})), "no certificate"),
    ] {
        let detail = refusal(&worker(), &token, &certificates).await;
        assert!(detail.contains(reason), "{token}: {detail}");
    }
    assert_eq!(recorder.calls().len(), 1, "invented ids cause no calls");
}

#[tokio::test]
async fn only_requested_workers_with_data_of_their_machine_register() {
    let (signer, certificates, _) = world().await;
    let good = signer.sign(&header(), &claims(|_| ()));
    let running = Worker::from_stored(StoredWorker {
        state: WorkerState::Running,
        ..worker().into_stored()
    });
    let detail = refusal(&running, &good, &certificates).await;
    assert!(detail.contains("running"), "{detail}");
    let mut empty = worker();
    edit(&mut empty, |it| it.provider_data = json!({}));
    let detail = refusal(&empty, &good, &certificates).await;
    assert!(detail.contains("no data of its machine"), "{detail}");
    let proof = Proof::StaticSecret(Secret::new(good));
    let refused = judged(&worker(), &proof, &certificates).await;
    assert!(matches!(refused, Err(VerifyError::Refused(_))));
}

#[tokio::test]
async fn while_google_has_no_certificates_the_worker_may_try_again() {
    let recorder = Recorder::start().await;
    let http = Http::default();
    let certificates = Certificates::new(recorder.url.clone(), http, TestClock::new());
    let token = Signer::new().sign(&header(), &claims(|_| ()));
    let proof = Proof::Token(Secret::new(token));
    let error = judged(&worker(), &proof, &certificates).await.unwrap_err();
    assert!(matches!(
        error,
        VerifyError::Cloud(CloudError::Unavailable(_))
    ));
}
