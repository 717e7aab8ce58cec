//! Is it really that machine? Its identity document, signed by AWS, must agree with what EC2 told us at the launch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::WorkerKey;
use domain::lifecycle;
use serde_json::{Map, Value};

use super::identity_keys::IdentityKeys;
use super::row::Row;
use crate::{IdentityClaim, Proof, ProofRefused, Verified};

const NOT_REQUESTED: &str = "This worker is either stopped or running. No need to register";
const INCOMPLETE: &str = "Request must include both a document (string) and a signature";
const NOT_SIGNED: &str = "Instance identity document validation error";
const ANOTHER: &str = "Instance validation error";

/// A document is a few hundred bytes, a signature not much more.
const MAX_DOCUMENT_BYTES: usize = 65_536;
const MAX_SIGNATURE_BYTES: usize = 8_192;

/// Every check is made, whatever the others say, so that the time it takes tells a stranger little.
pub(crate) fn verify(
    claim: &IdentityClaim<'_>,
    keys: &IdentityKeys,
) -> Result<Verified, ProofRefused> {
    let worker = claim.worker;
    let (document, signature) = match claim.proof {
        Proof::SignedDocument {
            document: Value::String(document),
            signature,
        } => (document.as_str(), signature.expose()),
        Proof::SignedDocument { .. }
        | Proof::Token(_)
        | Proof::StaticSecret(_)
        | Proof::Document(_) => ("", ""),
    };
    let unregistered = worker.check_unregistered();
    let complete = !document.is_empty() && !signature.is_empty();
    let signed = is_signed(keys, worker.key.group.as_str(), document, signature);
    let row = Row::read(&worker.provider_data);
    let agrees = agrees(document, &worker.key, row.as_ref());

    unregistered.map_err(|problem| refuse(NOT_REQUESTED, &problem.to_string()))?;
    if !complete {
        return Err(refuse(INCOMPLETE, "the proof is of another kind, or empty"));
    }
    signed.map_err(|detail| refuse(NOT_SIGNED, detail))?;
    agrees.map_err(|detail| refuse(ANOTHER, &detail))?;
    let terms = &worker.terms;
    Ok(Verified {
        lasts_ms: terms
            .reregistration_timeout
            .unwrap_or(lifecycle::DEFAULT_REREGISTRATION_MS),
        worker_config: terms
            .worker_config
            .clone()
            .unwrap_or_else(|| Value::Object(Map::new())),
    })
}

fn refuse(message: &'static str, detail: &str) -> ProofRefused {
    ProofRefused {
        message,
        detail: detail.to_owned(),
    }
}

fn is_signed(
    keys: &IdentityKeys,
    region: &str,
    document: &str,
    signature: &str,
) -> Result<(), &'static str> {
    if document.len() > MAX_DOCUMENT_BYTES || signature.len() > MAX_SIGNATURE_BYTES {
        return Err("the document or its signature is far too long");
    }
    let signature: String = signature.split_ascii_whitespace().collect();
    let signature = STANDARD
        .decode(signature)
        .map_err(|_| "the signature is not base64")?;
    if keys.verify(region, document.as_bytes(), &signature) {
        Ok(())
    } else {
        Err("no key of the region has signed this document")
    }
}

/// Does the document speak of the machine that the worker's row stands for?
fn agrees(document: &str, worker: &WorkerKey, row: Option<&Row>) -> Result<(), String> {
    let row = row.ok_or("the worker's row does not say what EC2 told us of its machine")?;
    if document.len() > MAX_DOCUMENT_BYTES {
        return Err("the document is far too long".to_owned());
    }
    let document: Value =
        serde_json::from_str(document).map_err(|problem| format!("it is not JSON: {problem}"))?;
    let known = |text: &Option<String>| text.clone();
    for (key, expected) in [
        ("privateIp", known(&row.private_ip)),
        ("accountId", Some(row.owner.clone())),
        ("availabilityZone", known(&row.availability_zone)),
        ("architecture", known(&row.architecture)),
        ("imageId", known(&row.image_id)),
        ("instanceId", Some(worker.id.to_string())),
        ("instanceType", known(&row.instance_type)),
        ("region", Some(row.region.clone())),
    ] {
        let expected = expected.ok_or_else(|| format!("EC2 never told us its {key}"))?;
        if document[key] != *expected {
            let claimed = &document[key];
            return Err(format!("its {key} is {claimed}, EC2 told us {expected:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use access::Secret;
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
    use domain::worker::{StoredWorker, Worker, WorkerState};
    use serde_json::json;

    use crate::aws::identity_keys::PublicKey;
    use crate::provider_tests::{self, edit};

    use super::*;

    /// Signs as the metadata service of a region does.
    struct Signer(KeyPair);

    impl Signer {
        fn new() -> Self {
            Self(KeyPair::generate(KeySize::Rsa2048).unwrap())
        }

        fn keys(&self) -> IdentityKeys {
            let der = self.0.public_key().as_der().unwrap();
            let key = PublicKey::parse(&STANDARD.encode(der.as_ref())).unwrap();
            IdentityKeys::new(vec![(Some("us-west-2".to_owned()), key)])
        }

        /// With a line break in it, as the metadata service gives it.
        fn sign(&self, document: &str) -> String {
            let mut signature = vec![0; self.0.public_modulus_len()];
            self.0
                .sign(
                    &RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    document.as_bytes(),
                    &mut signature,
                )
                .unwrap();
            let mut text = STANDARD.encode(signature);
            text.insert(76, '\n');
            text
        }

        fn proof(&self, document: &str) -> Proof {
            proof(json!(document), &self.sign(document))
        }
    }

    fn proof(document: Value, signature: &str) -> Proof {
        Proof::SignedDocument {
            document,
            signature: Secret::new(signature),
        }
    }

    fn machine() -> Value {
        json!({"version": 1, "region": "us-west-2", "groups": [], "amiLaunchIndex": 0,
            "imageId": "ami-1", "instanceType": "m5.large", "architecture": "x86_64",
            "availabilityZone": "us-west-2a", "privateIp": "10.0.0.7", "owner": "123456789012",
            "state": "pending", "stateReason": null})
    }

    fn document() -> Value {
        json!({"privateIp": "10.0.0.7", "accountId": "123456789012", "version": "2017-09-30",
            "availabilityZone": "us-west-2a", "architecture": "x86_64", "imageId": "ami-1",
            "instanceId": "i-0123456789abcdef0", "instanceType": "m5.large", "region": "us-west-2"})
    }

    fn worker() -> Worker {
        let mut worker = provider_tests::worker(WorkerState::Requested);
        edit(&mut worker, |it| {
            it.key.group = "us-west-2".parse().unwrap();
            it.key.id = "i-0123456789abcdef0".parse().unwrap();
            it.provider_data = machine();
        });
        worker
    }

    fn judge(worker: Worker, proof: Proof, keys: &IdentityKeys) -> Result<Verified, ProofRefused> {
        let claim = IdentityClaim {
            pool: &provider_tests::pool(&worker, &json!({})),
            worker: &worker,
            proof: &proof,
            now: provider_tests::now(),
        };
        verify(&claim, keys)
    }

    #[test]
    fn a_machine_with_its_signed_document_is_verified_by_its_own_terms() {
        let signer = Signer::new();
        let proof = || signer.proof(&document().to_string());
        let verified = judge(worker(), proof(), &signer.keys()).unwrap();
        assert_eq!(verified.lasts_ms, 96 * 3_600_000);
        assert_eq!(verified.worker_config, json!({}));

        let mut worker = worker();
        edit(&mut worker, |it| {
            it.terms.reregistration_timeout = Some(60_000);
            it.terms.worker_config = Some(json!({"a": 1}));
        });
        let verified = judge(worker, proof(), &signer.keys()).unwrap();
        assert_eq!(verified.lasts_ms, 60_000);
        assert_eq!(verified.worker_config, json!({"a": 1}));
    }

    #[test]
    fn each_refusal_has_the_text_that_clients_know() {
        let signer = Signer::new();
        let genuine = document().to_string();
        let good = || signer.proof(&genuine);
        let running = Worker::from_stored(StoredWorker {
            state: WorkerState::Running,
            ..worker().into_stored()
        });
        let elsewhere = {
            let mut worker = worker();
            edit(&mut worker, |it| {
                it.key.group = "us-east-1".parse().unwrap()
            });
            worker
        };
        let long = "x".repeat(MAX_DOCUMENT_BYTES + 1);
        for (worker, proof, message) in [
            (running, good(), NOT_REQUESTED),
            (worker(), proof(json!({}), &signer.sign("{}")), INCOMPLETE),
            (worker(), proof(json!(genuine), ""), INCOMPLETE),
            (worker(), Proof::Token(Secret::new("t")), INCOMPLETE),
            (worker(), proof(json!(genuine), "no base64!"), NOT_SIGNED),
            (worker(), proof(json!(genuine), "AAAA"), NOT_SIGNED),
            (
                worker(),
                proof(json!(format!("{genuine} ")), &signer.sign(&genuine)),
                NOT_SIGNED,
            ),
            (worker(), Signer::new().proof(&genuine), NOT_SIGNED),
            (worker(), signer.proof(&long), NOT_SIGNED),
            (elsewhere, good(), NOT_SIGNED),
            (worker(), signer.proof("no JSON"), ANOTHER),
        ] {
            let refused = judge(worker, proof, &signer.keys()).unwrap_err();
            assert_eq!(refused.message, message, "{}", refused.detail);
            assert!(!refused.detail.is_empty());
        }
    }

    #[test]
    fn a_genuine_document_of_another_machine_is_refused_whichever_part_differs() {
        let signer = Signer::new();
        for key in [
            "privateIp",
            "accountId",
            "availabilityZone",
            "architecture",
            "imageId",
            "instanceId",
            "instanceType",
            "region",
        ] {
            for other in [json!("another"), Value::Null, json!(["us-west-2"])] {
                let mut document = document();
                document[key] = other;
                let proof = signer.proof(&document.to_string());
                let refused = judge(worker(), proof, &signer.keys()).unwrap_err();
                assert_eq!(refused.message, ANOTHER);
                assert!(refused.detail.contains(key), "{}", refused.detail);
            }
        }
    }

    #[test]
    fn what_ec2_never_told_us_matches_nothing() {
        let signer = Signer::new();
        for data in [json!({}), json!({"version": 2}), {
            let mut machine = machine();
            machine["privateIp"] = Value::Null;
            machine
        }] {
            let mut worker = worker();
            edit(&mut worker, |it| it.provider_data = data);
            let mut document = document();
            document["privateIp"] = Value::Null;
            let proof = signer.proof(&document.to_string());
            let refused = judge(worker, proof, &signer.keys()).unwrap_err();
            assert_eq!(refused.message, ANOTHER);
        }
    }

    #[test]
    fn a_region_with_a_key_of_its_own_does_not_believe_the_shared_one() {
        // Signed by AWS in us-west-2, in 2019: anybody's machine, long gone.
        let document = [
            r#"{"#,
            r#"  "accountId" : "710952102342","#,
            r#"  "availabilityZone" : "us-west-2a","#,
            r#"  "ramdiskId" : null,"#,
            r#"  "kernelId" : null,"#,
            r#"  "pendingTime" : "2019-08-15T18:19:47Z","#,
            r#"  "architecture" : "x86_64","#,
            r#"  "privateIp" : "172.31.23.159","#,
            r#"  "devpayProductCodes" : null,"#,
            r#"  "marketplaceProductCodes" : null,"#,
            r#"  "version" : "2017-09-30","#,
            r#"  "region" : "us-west-2","#,
            r#"  "imageId" : "ami-082b5a644766e0e6f","#,
            r#"  "billingProducts" : null,"#,
            r#"  "instanceId" : "i-02312cd4f06c990ca","#,
            r#"  "instanceType" : "t2.micro""#,
            r#"}"#,
        ]
        .join("\n");
        let signature = "gCB6UdLEc8np0UsBtT2OfRRvi7BW0qQ9nz/hAD4puflRu6PZBkgCGdYFWN5CVbg+c4VgjnNDiMjT\n\
            k0qFGoV18sMJVsPEVN33HbTr0nYmDbY9rWy3NssmuOg5+SUiSRfci0LgqdTtdTOcen9KLk5peh/h\n\
            58rdSJZbqCgadrDhOqA=";
        let keys = IdentityKeys::new(Vec::new());
        for region in ["us-west-2", "us-east-1", "eu-west-1"] {
            assert_eq!(
                is_signed(&keys, region, &document, signature),
                Ok(()),
                "{region}"
            );
        }
        for region in ["af-south-1", "cn-north-1", "us-gov-west-1", "ca-west-1"] {
            assert!(
                is_signed(&keys, region, &document, signature).is_err(),
                "{region}"
            );
        }
        let changed = document.replace("t2.micro", "t2.large");
        assert!(is_signed(&keys, "us-west-2", &changed, signature).is_err());
    }
}
