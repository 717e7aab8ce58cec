//! Where tokens come from, and how they change.

use serde_json::{Value, json};

use super::fake::{FakeGoogle, provider};
use crate::google::GoogleProvider;
use crate::tests::values::{ROOT_URL, TestClock, context_at};
use crate::vendor::recorder::Recorder;
use crate::{CloudError, Machines as _, Provider as _, SetupError};

async fn setup(google: &FakeGoogle, extra: Value) -> Result<(), SetupError> {
    provider(&google.url, ROOT_URL, &TestClock::new(), extra)
        .setup()
        .await
}

fn file(content: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content.to_string()).unwrap();
    file
}

#[tokio::test]
async fn a_key_can_be_changed_without_a_restart() {
    let google = FakeGoogle::start();
    let key = file(&google.read("account").await);
    let extra = json!({"key_file": key.path()});
    let provider = provider(&google.url, ROOT_URL, &TestClock::new(), extra);
    provider.setup().await.unwrap();
    google.act("rotate-account", &json!({})).await;
    // The token is refused, and then the old key.
    for _ in 0..2 {
        let error = provider.owned().await.unwrap_err();
        assert!(matches!(error, CloudError::Credentials(_)), "{error}");
    }
    std::fs::write(key.path(), google.read("account").await.to_string()).unwrap();
    assert!(provider.owned().await.unwrap().machines.is_empty());
}

#[tokio::test]
async fn a_token_that_was_revoked_is_replaced() {
    let google = FakeGoogle::start();
    let extra = json!({"credentials": google.read("account").await.to_string()});
    let provider = provider(&google.url, ROOT_URL, &TestClock::new(), extra);
    provider.setup().await.unwrap();
    google.act("revoke", &json!({})).await;
    // The region that is listed first gets the refusal.
    assert_eq!(provider.owned().await.unwrap().missing.len(), 1);
    assert!(provider.owned().await.unwrap().missing.is_empty());
}

#[tokio::test]
async fn without_a_key_the_metadata_server_is_asked() {
    let google = FakeGoogle::start();
    setup(&google, json!({})).await.unwrap();
}

#[tokio::test]
async fn an_external_account_exchanges_its_token() {
    let google = FakeGoogle::start();
    for (content, format) in [
        ("subject\n", json!({"type": "text"})),
        (
            "{\"t\": \"subject\"}",
            json!({"type": "json", "subject_token_field_name": "t"}),
        ),
    ] {
        let subject = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(subject.path(), content).unwrap();
        let account = json!({
            "type": "external_account", "audience": "//iam.googleapis.com/x",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": "https://sts.example/v1/token",
            "credential_source": {"file": subject.path(), "format": format},
        });
        let account = file(&account);
        let extra = json!({"key_file": account.path()});
        setup(&google, extra.clone()).await.unwrap();
        std::fs::write(subject.path(), "{\"t\": \"other\"}").unwrap();
        let error = setup(&google, extra).await.unwrap_err().to_string();
        assert!(error.contains("the subject token is not valid"), "{error}");
    }
}

#[tokio::test]
async fn an_external_account_may_take_the_role_of_a_service_account() {
    let recorder = Recorder::start().await;
    let subject = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(subject.path(), "a b&c\n").unwrap();
    let account = file(&json!({
        "type": "external_account", "audience": "//iam.googleapis.com/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.example/v1/token",
        "service_account_impersonation_url": format!("{}/impersonate", recorder.url),
        "credential_source": {"file": subject.path()},
    }));
    recorder.answer(200, json!({"access_token": "federated", "expires_in": 600}));
    let expires = "2027-01-01T00:00:00Z";
    recorder.answer(
        200,
        json!({"accessToken": "of-the-account", "expireTime": expires}),
    );
    let extra = json!({"key_file": account.path()});
    let provider = provider(&recorder.url, ROOT_URL, &TestClock::new(), extra);
    // No answer is queued for it.
    provider.setup().await.unwrap_err();
    let calls = recorder.calls();
    assert_eq!(calls[0].target, "/token");
    assert!(calls[0].body.ends_with(b"subject_token=a%20b%26c"));
    assert_eq!(calls[1].target, "/impersonate");
    assert_eq!(calls[1].header("authorization"), Some("Bearer federated"));
    assert_eq!(calls[1].json()["lifetime"], "3600s");
    let path = "/v1/projects/-/serviceAccounts/1234567890";
    assert_eq!(calls[2].target, path);
    let bearer = calls[2].header("authorization");
    assert_eq!(bearer, Some("Bearer of-the-account"));
}

#[tokio::test]
async fn tokens_are_not_asked_for_without_encryption() {
    let google = FakeGoogle::start();
    let mut account = google.read("account").await;
    account["token_uri"] = json!("http://tokens.example/token");
    let mut section = json!({"project": "p", "worker_service_account": "1",
        "endpoint": google.url, "iam_endpoint": google.url});
    section["credentials"] = json!(account.to_string());
    let config = serde_json::from_value(section).unwrap();
    let context = context_at("google", &TestClock::new());
    let error = GoogleProvider::new(&config, context).setup().await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("must have an address with https://"),
        "{error}"
    );
}

#[tokio::test]
async fn errors_of_credentials_say_what_to_correct_and_print_no_secret() {
    let google = FakeGoogle::start();
    let mut broken = google.read("account").await;
    broken["private_key"] = json!("hush");
    for (extra, text) in [
        (
            json!({"key_file": "/nowhere/key"}),
            "/nowhere/key cannot be read",
        ),
        (
            json!({"credentials": "hush"}),
            "the key is not the JSON of a service account",
        ),
        (
            json!({"credentials": broken.to_string()}),
            "private_key is not an RSA key",
        ),
    ] {
        let error = setup(&google, extra).await.unwrap_err().to_string();
        assert!(error.contains(text) && !error.contains("hush"), "{error}");
    }
    let account = google.read("account").await.to_string();
    google.fail("token", json!({"status": 503})).await;
    let error = setup(&google, json!({"credentials": account})).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the cloud is unavailable"), "{error}");
}

#[tokio::test]
async fn only_regions_and_accounts_of_the_project_are_used() {
    let google = FakeGoogle::start();
    for (extra, text) in [
        (
            json!({"regions": ["mars-north1"]}),
            "regions names mars-north1",
        ),
        (
            json!({"worker_service_account": "99"}),
            "Unknown service account: 99",
        ),
    ] {
        let error = setup(&google, extra).await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let email = "workers@project-1.iam.gserviceaccount.com";
    let extra = json!({"worker_service_account": email, "regions": ["us-east1"]});
    let provider = provider(&google.url, ROOT_URL, &TestClock::new(), extra);
    assert!(provider.places().is_err());
    provider.setup().await.unwrap();
    let places = provider.places().unwrap();
    let zones: Vec<_> = places.iter().map(|place| place["zone"].as_str()).collect();
    assert_eq!(zones, ["us-east1-b", "us-east1-c", "us-east1-d"]);
    provider.refresh().await.unwrap();
}
