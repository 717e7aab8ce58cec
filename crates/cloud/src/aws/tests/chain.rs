//! Credentials from AWS's default credential chain.
//!
//! The chain reads the environment of its process, so each case runs in its own process: the test
//! program again, with only one test.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::signing::credentials::{Keys, Source};
use crate::signing::http::Http;
use crate::tests::values::{TestClock, now};

/// The case that the child process runs.
const CASE: &str = "FLEETWRIGHT_TEST_CHAIN";
const CHILD: &str = "aws::tests::chain::runs_in_a_process_of_its_own";

fn child(case: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", CHILD, "--nocapture"])
        .env_clear()
        .env("HOME", "/nowhere")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env(CASE, case);
    command.envs(variables.iter().copied()).output().unwrap()
}

fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "the child ran nothing: {text}");
}

/// Does nothing unless the environment names a case.
#[tokio::test]
async fn runs_in_a_process_of_its_own() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let clock = TestClock::new();
    let region = "us-west-2".to_owned();
    let keys = Keys::new(Source::Chain, region, Http::default(), clock.clone());
    match case.as_str() {
        "environment" => {
            let found = keys.get().await.unwrap();
            assert_eq!(found.access_key_id(), "AKIDENV");
            assert_eq!(found.session_token(), Some("session"));
        }
        "container" => {
            let found = keys.get().await.unwrap();
            assert_eq!(found.access_key_id(), "AKIDTASK1");
            assert_eq!(found.session_token(), Some("token"));
            // Valid for an hour: kept for 54 minutes, and replaced after 55.
            clock.advance_ms(54 * 60_000);
            assert_eq!(keys.get().await.unwrap().access_key_id(), "AKIDTASK1");
            clock.advance_ms(2 * 60_000);
            assert_eq!(keys.get().await.unwrap().access_key_id(), "AKIDTASK2");
        }
        "nothing" => {
            let error = keys.get().await.unwrap_err().to_string();
            assert!(error.starts_with("no AWS credentials: "), "{error}");
            assert!(error.contains("default credential chain"), "{error}");
        }
        other => panic!("unknown case {other}"),
    }
}

#[test]
fn keys_in_the_environment_are_found() {
    succeeds(&child(
        "environment",
        &[
            ("AWS_ACCESS_KEY_ID", "AKIDENV"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("AWS_SESSION_TOKEN", "session"),
        ],
    ));
}

#[test]
fn without_credentials_the_error_names_the_chain() {
    succeeds(&child("nothing", &[]));
}

#[tokio::test]
async fn credentials_of_a_container_are_fetched_and_replaced_before_they_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/creds", listener.local_addr().unwrap());
    let n_asked = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&n_asked);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let asked = Arc::clone(&shared);
            tokio::spawn(async move {
                let service = service_fn(move |_| {
                    let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
                    async move { Ok::<_, std::convert::Infallible>(credentials(number)) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let variables = move || {
        child(
            "container",
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())],
        )
    };
    succeeds(&tokio::task::spawn_blocking(variables).await.unwrap());
    assert_eq!(n_asked.load(Ordering::Relaxed), 2);
}

/// The first credentials expire in an hour, the others in two.
fn credentials(number: usize) -> Response<Full<Bytes>> {
    let hours = if number == 1 { 1 } else { 2 };
    let ends = now().plus_seconds(hours * 3_600);
    let body = format!(
        r#"{{"AccessKeyId": "AKIDTASK{number}", "SecretAccessKey": "hush", "Token": "token", "Expiration": "{ends}"}}"#
    );
    Response::new(Full::new(Bytes::from(body)))
}
