//! Verifies an EC2 instance: its identity document must be signed by AWS and agree with its launch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::WorkerKey;
use serde_json::Value;

use super::identity_keys::IdentityKeys;
use super::row::Row;
use crate::{IdentityClaim, Proof, ProofRefused, Verification};

const NOT_REQUESTED: &str = "This worker is either stopped or running. No need to register";
const INCOMPLETE: &str = "Request must include both a document (string) and a signature";
const NOT_SIGNED: &str = "Instance identity document validation error";
const DIFFERENT_MACHINE: &str = "Instance validation error";

/// Longest identity document; real ones have a few hundred bytes.
const MAX_DOCUMENT_BYTES: usize = 65_536;
const MAX_SIGNATURE_BYTES: usize = 8_192;

/// Makes every check, whatever the others say, so that the time this takes tells an attacker
/// little.
pub(crate) fn verify(
    claim: &IdentityClaim<'_>,
    keys: &IdentityKeys,
) -> Result<Verification, ProofRefused> {
    let worker = claim.worker;
    let (document, signature) = match claim.proof {
        Proof::SignedDocument {
            document: Value::String(document),
            signature,
        } => (document.as_str(), signature.expose()),
        Proof::SignedDocument { .. }
        | Proof::Token(_)
        | Proof::StaticSecret(_)
        | Proof::Document(_)
        | Proof::Relay => ("", ""),
    };
    let unregistered = worker.check_unregistered();
    let complete = !document.is_empty() && !signature.is_empty();
    let signed = is_signed(keys, worker.key.group.as_str(), document, signature);
    let row = Row::read(&worker.provider_data);
    let agrees = agrees(document, &worker.key, row.as_ref());

    unregistered.map_err(|error| ProofRefused::new(NOT_REQUESTED, error.to_string()))?;
    if !complete {
        let detail = "the proof is empty or of another kind";
        return Err(ProofRefused::new(INCOMPLETE, detail));
    }
    signed.map_err(|detail| ProofRefused::new(NOT_SIGNED, detail))?;
    agrees.map_err(|detail| ProofRefused::new(DIFFERENT_MACHINE, detail))?;
    Ok(Verification::by_terms(&worker.terms))
}

fn is_signed(
    keys: &IdentityKeys,
    region: &str,
    document: &str,
    signature: &str,
) -> Result<(), &'static str> {
    if document.len() > MAX_DOCUMENT_BYTES || signature.len() > MAX_SIGNATURE_BYTES {
        return Err("the document or its signature is too long");
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

/// Whether the document describes the machine that EC2 reported for this worker at its launch.
fn agrees(document: &str, worker: &WorkerKey, row: Option<&Row>) -> Result<(), String> {
    let row = row.ok_or("the worker's row has no data of its machine")?;
    if document.len() > MAX_DOCUMENT_BYTES {
        return Err("the document is too long".to_owned());
    }
    let document: Value = serde_json::from_str(document)
        .map_err(|error| format!("the document is not JSON: {error}"))?;

    for (key, expected) in [
        ("privateIp", row.private_ip.clone()),
        ("accountId", Some(row.owner.clone())),
        ("availabilityZone", row.availability_zone.clone()),
        ("architecture", row.architecture.clone()),
        ("imageId", row.image_id.clone()),
        ("instanceId", Some(worker.id.to_string())),
        ("instanceType", row.instance_type.clone()),
        ("region", Some(row.region.clone())),
    ] {
        let expected =
            expected.ok_or_else(|| format!("EC2 has not reported the {key} of this machine"))?;
        if document[key] != *expected {
            let claimed = &document[key];
            return Err(format!(
                "the document says {key} {claimed}, EC2 reported {expected:?}"
            ));
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

    use crate::signing::public_key::PublicKey;
    use crate::tests::values::{self, edit};

    use super::*;

    /// Signs like the metadata service of a region.
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

        /// The result contains a line break, like a signature of the metadata service.
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
        let mut worker = values::worker(WorkerState::Requested);
        edit(&mut worker, |it| {
            it.key.group = "us-west-2".parse().unwrap();
            it.key.id = "i-0123456789abcdef0".parse().unwrap();
            it.provider_data = machine();
        });
        worker
    }

    fn judge(
        worker: Worker,
        proof: Proof,
        keys: &IdentityKeys,
    ) -> Result<Verification, ProofRefused> {
        let claim = IdentityClaim {
            pool: &values::pool(&worker, &json!({})),
            worker: &worker,
            launch_config: None,
            proof: &proof,
            now: values::now(),
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
    fn each_refusal_has_the_message_that_clients_know() {
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
            (worker(), signer.proof("no JSON"), DIFFERENT_MACHINE),
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
                assert_eq!(refused.message, DIFFERENT_MACHINE);
                assert!(refused.detail.contains(key), "{}", refused.detail);
            }
        }
    }

    #[test]
    fn a_value_that_ec2_did_not_report_matches_nothing() {
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
            assert_eq!(refused.message, DIFFERENT_MACHINE);
        }
    }

    #[test]
    fn a_region_with_its_own_key_does_not_accept_the_shared_one() {
        // A document that AWS signed in us-west-2, in 2019. Its machine no longer exists.
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
