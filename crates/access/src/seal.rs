//! Stored secrets: sealed with a key from the configuration, or kept as a keyed digest.
//!
//! Each text names its key and is bound to a purpose such as `client:<id>`, so a sealed token that
//! is moved to another row does not open there. The first key seals, and all keys open. To change
//! the key, add a new key in first position, rewrite the texts for which [`Keyring::is_current`] is
//! false, then remove the old key. A key that others may know is *retired* at once: it opens what
//! it sealed, and nothing that it signs is believed.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use rand::Rng;
use subtle::ConstantTimeEq as _;

use crate::Secret;
use crate::hmac::{Hmac, Tag};

/// Keys of a keyring at most.
pub const MAX_KEYS: usize = 16;

const KEY_LENGTH: usize = 32;
const MAX_KEY_ID_LENGTH: usize = 38;
const SEALED: &str = "s1";
const DIGEST: &str = "d1";
const TAG: &str = "t1";

/// A configured key.
#[derive(Clone, Debug)]
pub struct Key {
    /// A short name that sealed texts contain: letters, digits, `_` and `-`.
    pub id: String,
    /// 32 random bytes in base64, as made by [`generate_key`].
    pub secret: Secret,
}

/// The keys that seal and open texts.
pub struct Keyring(
    /// Never empty; the first one seals.
    Vec<DerivedKeys>,
);

/// Why keys are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeyring {
    /// At least one key is needed for sealing.
    #[error("the keyring has no key")]
    Empty,
    /// Remove old keys.
    #[error("the keyring has more than {MAX_KEYS} keys")]
    TooMany,
    /// The id would not fit into a sealed text.
    #[error("key id `{0}` is not 1 to {MAX_KEY_ID_LENGTH} letters, digits, `_` or `-`")]
    BadId(String),
    /// A sealed text could mean either key.
    #[error("two keys have the id `{0}`")]
    DuplicateId(String),
    /// The key itself is invalid.
    #[error("the secret of key `{0}` is not {KEY_LENGTH} bytes in base64")]
    BadSecret(String),
}

/// Why a sealed text cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not written by `seal`.
    #[error("this is not a sealed text")]
    NotSealed,
    /// The key was removed too early, or the text is from another deployment.
    #[error("the text was sealed with key `{0}`, which is not configured")]
    UnknownKey(String),
    /// The text was changed or moved to another purpose, or another key has the key's id.
    #[error("the text was changed, moved, or sealed with another key of this id")]
    Refused,
}

/// Keys derived from one key, one for each use, so that uses cannot affect each other.
struct DerivedKeys {
    id: String,
    /// It only opens.
    is_retired: bool,
    sealing: LessSafeKey,
    nonces: [u8; KEY_LENGTH],
    digests: [u8; KEY_LENGTH],
    names: [u8; KEY_LENGTH],
    builders: [u8; KEY_LENGTH],
}

/// A new random key.
pub fn generate_key(rng: &mut dyn Rng) -> Secret {
    let mut bytes = [0; KEY_LENGTH];
    rng.fill_bytes(&mut bytes);
    Secret::new(STANDARD.encode(bytes))
}

impl Keyring {
    /// The first key seals, all keys open.
    pub fn new(keys: Vec<Key>) -> Result<Self, BadKeyring> {
        if keys.is_empty() {
            return Err(BadKeyring::Empty);
        }
        if keys.len() > MAX_KEYS {
            return Err(BadKeyring::TooMany);
        }
        let mut derived: Vec<DerivedKeys> = Vec::with_capacity(keys.len());
        for key in keys {
            if derived.iter().any(|other| other.id == key.id) {
                return Err(BadKeyring::DuplicateId(key.id));
            }
            derived.push(DerivedKeys::new(key)?);
        }
        Ok(Self(derived))
    }

    /// Adds keys that only open what they sealed.
    pub fn with_retired(self, retired: Vec<Key>) -> Result<Self, BadKeyring> {
        let mut all = self.0;
        for key in retired {
            if all.len() >= MAX_KEYS {
                return Err(BadKeyring::TooMany);
            }
            if all.iter().any(|other| other.id == key.id) {
                return Err(BadKeyring::DuplicateId(key.id));
            }
            let mut key = DerivedKeys::new(key)?;
            key.is_retired = true;
            all.push(key);
        }
        Ok(Self(all))
    }

    /// The ids of all keys but the first one.
    pub fn older_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().skip(1).map(|key| key.id.as_str())
    }

    /// The keys whose signatures are believed.
    fn trusted(&self) -> impl Iterator<Item = &DerivedKeys> {
        self.0.iter().filter(|key| !key.is_retired)
    }

    /// Seals a text. It can be opened only with the same purpose.
    pub fn seal(&self, purpose: &str, plain: &Secret, rng: &mut dyn Rng) -> String {
        let key = &self.0[0];
        let nonce = key.nonce(purpose, plain, rng);
        let mut sealed = plain.expose().as_bytes().to_vec();
        key.sealing
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(purpose),
                &mut sealed,
            )
            .expect("a text is far below the 64 GiB that the cipher takes");
        sealed.splice(..0, nonce);
        format!("{SEALED}.{}.{}", key.id, URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a text that was sealed with this purpose.
    pub fn open(&self, purpose: &str, sealed: &str) -> Result<Secret, OpenError> {
        let (key_id, body) = parts(sealed, SEALED).ok_or(OpenError::NotSealed)?;
        let key = self
            .key(key_id)
            .ok_or_else(|| OpenError::UnknownKey(key_id.to_owned()))?;
        let mut bytes = URL_SAFE_NO_PAD
            .decode(body)
            .map_err(|_| OpenError::NotSealed)?;
        let (nonce, body) = bytes
            .split_first_chunk_mut::<NONCE_LEN>()
            .ok_or(OpenError::NotSealed)?;
        let plain = key
            .sealing
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(purpose),
                body,
            )
            .map_err(|_| OpenError::Refused)?;
        let text = String::from_utf8(plain.to_vec()).map_err(|_| OpenError::Refused)?;
        body.fill(0);
        Ok(Secret::new(text))
    }

    /// A keyed digest, for a secret that is only compared.
    pub fn digest(&self, purpose: &str, secret: &Secret) -> String {
        let key = &self.0[0];
        format!(
            "{DIGEST}.{}.{}",
            key.id,
            key.digest(purpose, secret).to_base64_url()
        )
    }

    /// Whether any of the keys made the digest of this secret with this purpose. Takes constant
    /// time with regard to the secret.
    pub fn digest_matches(&self, purpose: &str, digest: &str, candidate: &Secret) -> bool {
        let found = parts(digest, DIGEST).and_then(|(key_id, body)| {
            let key = self.trusted().find(|key| key.id == key_id)?;
            Some((key, URL_SAFE_NO_PAD.decode(body).ok()?))
        });
        found.is_some_and(|(key, tag)| key.digest(purpose, candidate).0.ct_eq(&tag).into())
    }

    /// A tag that only a holder of the key can make: it authenticates a message to other processes
    /// of the deployment.
    pub fn tag(&self, purpose: &str, message: &[u8]) -> String {
        let key = &self.0[0];
        let tag = add_bound(Hmac::new(&key.digests), purpose, message);
        format!("{TAG}.{}.{}", key.id, tag.to_base64_url())
    }

    /// Whether any of the keys made the tag of this message with this purpose.
    pub fn check_tag(&self, purpose: &str, tag: &str, message: &[u8]) -> Result<(), OpenError> {
        let (key_id, body) = parts(tag, TAG).ok_or(OpenError::NotSealed)?;
        let key = self.trusted().find(|key| key.id == key_id);
        let key = key.ok_or_else(|| OpenError::UnknownKey(key_id.to_owned()))?;
        let expected = add_bound(Hmac::new(&key.digests), purpose, message);
        let given = URL_SAFE_NO_PAD.decode(body);
        let given = given.map_err(|_| OpenError::NotSealed)?;
        if expected.0.ct_eq(&given).into() {
            return Ok(());
        }
        Err(OpenError::Refused)
    }

    /// The keys of processes that build images. They are derived from these, so a server has them,
    /// too; a builder that has no others can do nothing else.
    pub fn for_builders(&self) -> Vec<Key> {
        let keys = self.trusted();
        keys.map(|key| Key {
            id: key.id.clone(),
            secret: Secret::new(STANDARD.encode(key.builders)),
        })
        .collect()
    }

    /// A keyring of the keys for builders.
    pub fn of_builders(&self) -> Self {
        let keys = self.for_builders().into_iter();
        let keys = keys.map(|key| DerivedKeys::new(key).expect("a derived key has 32 bytes"));
        Self(keys.collect())
    }

    /// A secret of 44 letters, digits, `_` and `-` that is derived from a name, so that it need not
    /// be stored.
    pub fn derive(&self, purpose: &str, name: &str) -> Secret {
        self.0[0].derive(purpose, name)
    }

    /// The secrets that all keys derive from this name, the newest key's first.
    pub fn derive_all(&self, purpose: &str, name: &str) -> Vec<Secret> {
        self.trusted()
            .map(|key| key.derive(purpose, name))
            .collect()
    }

    /// Whether any of the keys derives the candidate from this name with this purpose. Takes
    /// constant time with regard to the candidate.
    pub fn derived_matches(&self, purpose: &str, name: &str, candidate: &Secret) -> bool {
        self.trusted().fold(false, |found, key| {
            found | (key.derive(purpose, name) == *candidate)
        })
    }

    /// Whether the first key made this text. If not, open it and seal it again.
    pub fn is_current(&self, sealed_or_digest: &str) -> bool {
        let mut parts = [SEALED, DIGEST, TAG]
            .into_iter()
            .filter_map(|kind| parts(sealed_or_digest, kind));
        parts
            .next()
            .is_some_and(|(key_id, _)| key_id == self.0[0].id)
    }

    fn key(&self, id: &str) -> Option<&DerivedKeys> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Keyring ")?;
        formatter
            .debug_list()
            .entries(self.0.iter().map(|key| &key.id))
            .finish()
    }
}

impl DerivedKeys {
    fn new(key: Key) -> Result<Self, BadKeyring> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let fits = (1..=MAX_KEY_ID_LENGTH).contains(&key.id.len());
        if !fits || !key.id.bytes().all(allowed) {
            return Err(BadKeyring::BadId(key.id));
        }
        let text = key.secret.expose().trim();
        let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
        let bytes = engines.iter().find_map(|engine| engine.decode(text).ok());
        let Some(bytes) = bytes.filter(|bytes| bytes.len() == KEY_LENGTH) else {
            return Err(BadKeyring::BadSecret(key.id));
        };
        let derive = |purpose: &str| Hmac::new(&bytes).add(purpose).tag().0;
        let sealing = UnboundKey::new(&AES_256_GCM, &derive("fleetwright seal 1"))
            .expect("an AES-256 key is 32 bytes");
        Ok(Self {
            sealing: LessSafeKey::new(sealing),
            nonces: derive("fleetwright nonce 1"),
            digests: derive("fleetwright digest 1"),
            is_retired: false,
            names: derive("fleetwright name 1"),
            builders: derive("fleetwright builder 1"),
            id: key.id,
        })
    }

    /// Random, and mixed with the sealed text: if randomness repeats (after a machine image is
    /// restored, for example), two different texts still get different nonces.
    fn nonce(&self, purpose: &str, plain: &Secret, rng: &mut dyn Rng) -> [u8; NONCE_LEN] {
        let mut random = [0; KEY_LENGTH];
        rng.fill_bytes(&mut random);
        let random = Hmac::new(&self.nonces).add_bytes(&random);
        let tag = add_bound(random, purpose, plain.expose().as_bytes());
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.0[..NONCE_LEN]);
        nonce
    }

    /// 43 characters of base64 after a letter: a text that begins with `-` is hard to pass on a
    /// command line.
    fn derive(&self, purpose: &str, name: &str) -> Secret {
        let tag = add_bound(Hmac::new(&self.names), purpose, name.as_bytes());
        Secret::new(format!("s{}", tag.to_base64_url()))
    }

    fn digest(&self, purpose: &str, secret: &Secret) -> Tag {
        add_bound(
            Hmac::new(&self.digests),
            purpose,
            secret.expose().as_bytes(),
        )
    }
}

/// Adds purpose and message, with a length first, so that no two pairs make the same message.
fn add_bound(hmac: Hmac, purpose: &str, message: &[u8]) -> Tag {
    hmac.add(&format!("{}:{purpose}", purpose.len()))
        .add_bytes(message)
        .tag()
}

/// The key id and the body of a text of this kind.
fn parts<'a>(text: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(kind)?.strip_prefix('.')?.split_once('.')
}
