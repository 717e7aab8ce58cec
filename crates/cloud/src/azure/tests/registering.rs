//! Proofs of identity: documents that an authority of the fake signs, good and bad ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::testing::sizes_around;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::worker::{Worker, WorkerState};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::fake::FakeAzure;
use crate::azure::document::AttestedDocument;
use crate::azure::identity::{VmIds, verify};
use crate::azure::issuers::{
    CertificateSource, Downloader, Issuers, MAX_ADDRESSES, MAX_CERTIFICATE_BYTES,
    MAX_INTERMEDIATES, anchor_of, check_address,
};
use crate::tests::records::WrittenRecords;
use crate::tests::values::{edit, now, pool, worker};
use crate::{CloudError, IdentityClaim, Proof, Verification, VerifyError};

const VM_ID: &str = "5c1e0a56-11aa-4a0c-9d0c-0f5a3ce1e6a1";
const ISSUER: &str = "http://cacerts.digicert.com/fake-issuer.crt";

/// Serves certificates by their addresses, and notes what was asked for.
#[derive(Clone, Default)]
struct Served {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Served {
    fn n_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl CertificateSource for Served {
    async fn download(&self, url: &str) -> Result<Vec<u8>, String> {
        self.asked.lock().unwrap().push(url.to_owned());
        let files = self.files.lock().unwrap();
        files.get(url).cloned().ok_or_else(|| "timeout".to_owned())
    }
}

/// Azure knows the machine by one id, or not at all.
struct Known(Option<&'static str>);

#[async_trait]
impl VmIds for Known {
    async fn vm_id(&self, _claim: &IdentityClaim<'_>) -> Result<Option<String>, CloudError> {
        Ok(self.0.map(str::to_owned))
    }
}

struct Desk {
    fake: FakeAzure,
    issuers: Issuers,
    served: Served,
}

impl Desk {
    fn open() -> Self {
        let fake = FakeAzure::start();
        let authority = fake.steer("authority", &json!({}));
        let root = authority["root"].as_str().unwrap();
        let root = CertificateDer::from_pem_slice(root.as_bytes()).unwrap();
        let served = Served::default();
        let issuer = STANDARD.decode(authority["issuer-der"].as_str().unwrap());
        served
            .files
            .lock()
            .unwrap()
            .insert(ISSUER.to_owned(), issuer.unwrap());
        let roots = vec![anchor_of(&root).unwrap()];
        Self {
            issuers: Issuers::with(roots, Box::new(served.clone())),
            fake,
            served,
        }
    }

    fn document(&self, how: &Value) -> Value {
        let mut order = json!({ "vm_id": VM_ID });
        for (key, value) in how.as_object().unwrap() {
            order[key] = value.clone();
        }
        self.fake.steer("document", &order)["document"].take()
    }

    async fn judge(
        &self,
        worker: &Worker,
        document: Value,
        known: Option<&'static str>,
    ) -> Result<Verification, VerifyError> {
        let claim = IdentityClaim {
            pool: &pool(worker, &json!({})),
            worker,
            launch_config: None,
            proof: &Proof::Document(document),
            now: now(),
        };
        verify(&claim, &self.issuers, &Known(known)).await
    }

    /// The detail of a refusal, which has the message that all have.
    async fn refusal(&self, how: &Value) -> String {
        self.refusal_of(self.document(how)).await
    }

    async fn refusal_of(&self, document: Value) -> String {
        let worker = worker(WorkerState::Requested);
        let judged = self.judge(&worker, document, Some(VM_ID)).await;
        detail(judged)
    }
}

fn detail(judged: Result<Verification, VerifyError>) -> String {
    match judged.unwrap_err() {
        VerifyError::Refused(refused) => {
            assert_eq!(refused.message, "Signature validation error");
            refused.detail
        }
        VerifyError::Cloud(error) => panic!("the proof cannot be checked: {error}"),
    }
}

#[tokio::test]
async fn a_machine_with_its_document_is_verified_and_its_issuer_is_downloaded_once() {
    let desk = Desk::open();
    let (records, _keeping) = WrittenRecords::keep();
    let mut worker = worker(WorkerState::Requested);
    for n_new in [1, 0] {
        let document = desk.document(&json!({}));
        let upper = "5C1E0A56-11AA-4A0C-9D0C-0F5A3CE1E6A1";
        let verified = desk.judge(&worker, document, Some(upper)).await.unwrap();
        let new = records.take("registration-new-intermediate-certificate");
        assert_eq!(new.len(), n_new);
        assert!(new.iter().all(|record| record["url"] == ISSUER), "{new:?}");
        assert_eq!(verified.lasts_ms, 96 * 3_600_000);
    }
    assert_eq!(desk.served.n_asked(), 1);
    edit(&mut worker, |it| {
        it.terms.reregistration_timeout = Some(60_000);
        it.terms.worker_config = Some(json!({"a": 1}));
    });
    let direct = desk.document(&json!({"signer": "direct"}));
    let verified = desk.judge(&worker, direct, Some(VM_ID)).await.unwrap();
    assert_eq!(verified.lasts_ms, 60_000);
    assert_eq!(verified.worker_config, json!({"a": 1}));
}

#[tokio::test]
async fn each_wrong_document_is_refused_with_the_same_message() {
    let desk = Desk::open();
    let (records, _keeping) = WrittenRecords::keep();
    for (how, reason) in [
        (json!({"form": "changed"}), "does not match the content"),
        (json!({"form": "cut"}), "no PKCS#7 message"),
        (json!({"form": "two"}), "exactly one certificate"),
        (json!({"form": "none"}), "exactly one certificate"),
        (json!({"form": "attributes"}), "covers attributes"),
        (json!({"form": "sha1"}), "not of RSA with SHA-256"),
        (json!({"signer": "wrong-subject"}), "evil.example.com"),
        (json!({"signer": "look-alike"}), "evilmetadata.azure.com"),
        (
            json!({"signer": "untrusted-address"}),
            "not downloaded from",
        ),
        (json!({"signer": "other-root"}), "it is not valid"),
        (json!({"content": "no JSON"}), "not JSON"),
        (json!({"content": "{}"}), "no vmId"),
        (json!({"vm_id": "other"}), "is of machine \"other\""),
        (json!({"expires": "11/28/20 00:16:17 -0000"}), "expired at"),
        (json!({"expires": "soon"}), "no valid time of expiry"),
    ] {
        let detail = desk.refusal(&how).await;
        assert!(detail.contains(reason), "{how}: {detail}");
    }
    let kind = "registration-rejected-intermediate-certificate-url";
    let [rejected] = records.take(kind).try_into().unwrap();
    assert_eq!(rejected["workerPoolId"], "a/b");
    assert!(rejected["url"].as_str().unwrap().contains("://"));
    for (document, reason) in [
        (json!(""), "no PKCS#7 message"),
        (json!("no base64!"), "not base64"),
        (json!("AAAA"), "no PKCS#7 message"),
        (json!("A".repeat(65_537)), "65536 are the limit"),
        (json!({"document": 1}), "of another kind"),
    ] {
        let detail = desk.refusal_of(document).await;
        assert!(detail.contains(reason), "{detail}");
    }
}

#[tokio::test]
async fn the_checks_are_in_their_order() {
    let desk = Desk::open();
    // Wrong in all respects; each document is right in one more.
    let mut running = worker(WorkerState::Requested);
    edit(&mut running, |it| it.state = WorkerState::Running);
    let expired = "11/28/20 00:16:17 -0000";
    for (how, known, reason) in [
        (
            json!({"form": "two", "signer": "wrong-subject", "content": "x"}),
            None,
            "exactly one certificate",
        ),
        (
            json!({"form": "changed", "signer": "wrong-subject"}),
            None,
            "does not match",
        ),
        (
            json!({"signer": "wrong-subject", "content": "x"}),
            None,
            "evil.example.com",
        ),
        (
            json!({"signer": "untrusted-address", "content": "x"}),
            None,
            "not downloaded",
        ),
        (json!({"content": "x"}), None, "not JSON"),
        (json!({"expires": expired}), None, "knows no machine"),
        (
            json!({"expires": expired}),
            Some("another"),
            "the worker's is",
        ),
        (json!({"expires": expired}), Some(VM_ID), "expired at"),
        (json!({}), Some(VM_ID), "cannot become running"),
    ] {
        let document = desk.document(&how);
        let detail = detail(desk.judge(&running, document, known).await);
        assert!(detail.contains(reason), "{how}: {detail}");
    }
}

#[tokio::test]
async fn an_issuer_that_cannot_be_downloaded_is_no_refusal() {
    let desk = Desk::open();
    desk.served.files.lock().unwrap().clear();
    let worker = worker(WorkerState::Requested);
    let document = desk.document(&json!({}));
    let judged = desk.judge(&worker, document, Some(VM_ID)).await;
    let Err(VerifyError::Cloud(CloudError::Unavailable(error))) = judged else {
        panic!("it may work later: {judged:?}");
    };
    assert!(error.contains("timeout"), "{error}");
    // A file that is no certificate is a refusal.
    let junk = |bytes: &[u8]| {
        let mut files = desk.served.files.lock().unwrap();
        files.insert(ISSUER.to_owned(), bytes.to_vec());
    };
    junk(b"<html>");
    let detail = desk.refusal(&json!({})).await;
    assert!(detail.contains("with the issuer from"), "{detail}");
}

#[tokio::test]
async fn a_certificate_with_many_addresses_causes_few_downloads() {
    for count in sizes_around("cloud::azure::issuers::MAX_ADDRESSES", MAX_ADDRESSES) {
        let desk = Desk::open();
        let document = desk.document(&json!({"signer": format!("addresses-{count}")}));
        let worker = worker(WorkerState::Requested);
        let judged = desk.judge(&worker, document, Some(VM_ID)).await;
        assert_eq!(matches!(judged, Err(VerifyError::Cloud(_))), count > 0);
        assert_eq!(desk.served.n_asked(), count.min(MAX_ADDRESSES));
    }
}

#[tokio::test]
async fn a_document_from_outside_of_the_validity_of_its_certificate_is_refused() {
    let desk = Desk::open();
    let document = desk.document(&json!({}));
    let document = AttestedDocument::open(document.as_str().unwrap()).unwrap();
    let later = now().plus_millis(30 * 365 * 86_400_000);
    let worker = worker(WorkerState::Requested);
    let check = |at| desk.issuers.check(&document, &worker, at);
    check(now()).await.unwrap();
    let refused = check(later).await.unwrap_err();
    assert!(
        format!("{refused:?}").contains("CertExpired"),
        "{refused:?}"
    );
    // The roots of Mozilla do not know the fake's issuer.
    let others = Issuers::new(&[]);
    drop(others);
}

#[test]
fn only_servers_of_the_issuers_are_asked() {
    for url in [
        "http://cacerts.digicert.com/a.crt",
        "https://cacerts.digicert.cn/a.crt",
        "http://cacerts.geotrust.com:80/a.crt",
        "http://caissuers.microsoft.com/a.crt",
        "https://www.microsoft.com:443/pkiops/certs/a.crt",
    ] {
        assert_eq!(check_address(url), Ok(()), "{url}");
    }
    for url in [
        "http://www.microsoft.com/other/a.crt",
        "http://www.microsoft.com/pkiops/certs/../../other/a.crt",
        "http://cacerts.digicert.com.evil.com/a.crt",
        "http://evil.com/cacerts.digicert.com",
        "ftp://cacerts.digicert.com/a.crt",
        "file:///etc/passwd",
        "http://cacerts.digicert.com:8080/a.crt",
        "http://user@cacerts.digicert.com/a.crt",
        "http://user:word@cacerts.digicert.com/a.crt",
        "http://169.254.169.254/metadata",
        "http://[::1]/a.crt",
        "cacerts.digicert.com/a.crt",
        "",
    ] {
        assert!(check_address(url).is_err(), "{url}");
    }
}

#[test]
fn a_limited_number_of_issuers_is_kept() {
    for count in sizes_around(
        "cloud::azure::issuers::MAX_INTERMEDIATES",
        MAX_INTERMEDIATES,
    ) {
        let issuers = Issuers::with(Vec::new(), Box::new(Served::default()));
        for number in 0..count {
            issuers.keep(&CertificateDer::from(number.to_be_bytes().to_vec()));
        }
        assert_eq!(issuers.n_kept(), count.min(MAX_INTERMEDIATES));
    }
}

#[tokio::test]
async fn a_download_is_no_larger_than_a_certificate_and_follows_no_redirect() {
    use crate::vendor::recorder::Recorder;

    for size in [0, MAX_CERTIFICATE_BYTES, MAX_CERTIFICATE_BYTES + 1] {
        let server = Recorder::start().await;
        server.answer_text(200, &"x".repeat(size));
        let found = Downloader::default().download(&server.url).await;
        assert_eq!(found.is_ok(), size <= MAX_CERTIFICATE_BYTES, "{size}");
    }
    let server = Recorder::start().await;
    server.answer_with(302, &[("location", "http://127.0.0.1:1/")], json!("x"));
    let refused = Downloader::default().download(&server.url).await;
    assert_eq!(refused, Err("status 302".to_owned()));
}
