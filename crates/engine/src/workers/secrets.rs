//! The secrets that renew credentials: a keyed digest of each is stored, bound to its worker.

use access::Secret;
use access::seal::Keyring;
use domain::id::WorkerKey;

pub(super) fn digest(keyring: &Keyring, key: &WorkerKey, secret: &Secret) -> String {
    keyring.digest(&purpose(key), secret)
}

pub(super) fn matches(
    keyring: &Keyring,
    key: &WorkerKey,
    digest: &str,
    candidate: &Secret,
) -> bool {
    keyring.digest_matches(&purpose(key), digest, candidate)
}

fn purpose(key: &WorkerKey) -> String {
    format!("registration:{key}")
}
