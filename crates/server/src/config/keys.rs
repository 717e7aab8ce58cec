//! The section `[keys]`: the keys of the deployment, or those of a builder.

use std::path::PathBuf;

use access::Secret;
use access::seal::{Key, Keyring};
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// A file of lines `<id> <base64 of 32 bytes>`. The first key encrypts; all of them decrypt. A
    /// line that ends in `retired` only decrypts.
    pub file: PathBuf,
}

/// The first word of each key in a file for builders.
const OF_BUILDER: &str = "builder";
/// The last word of a key that others may know.
const RETIRED: &str = "retired";

/// The content of a file of keys.
pub(super) enum KeyFile {
    /// The keys, and those that are retired.
    Deployment(Vec<Key>, Vec<Key>),
    Builder(Vec<Key>),
}

impl KeyFile {
    /// The keys of the deployment.
    pub(super) fn deployment(self) -> Result<Keyring, String> {
        match self {
            Self::Deployment(keys, retired) => Keyring::new(keys)
                .and_then(|keyring| keyring.with_retired(retired))
                .map_err(|bad| bad.to_string()),
            Self::Builder(_) => Err(
                "has the keys of a builder: a server needs those of the deployment, from which they \
                 were derived"
                    .to_owned(),
            ),
        }
    }

    /// The keys of a builder. They are derived from those of the deployment, which a builder must
    /// not have: what it builds could read them.
    pub(super) fn builder(self) -> Result<Keyring, String> {
        match self {
            Self::Builder(keys) => Keyring::new(keys).map_err(|bad| bad.to_string()),
            Self::Deployment(..) => Err(
                "has the keys of the deployment, with which a build could do all that the server \
                 can: give the builder a file of its own, made on the server with `fleetwright keys \
                 builder --config FILE`"
                    .to_owned(),
            ),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut keys, mut retired, mut of_builder) = (Vec::new(), Vec::new(), Vec::new());
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let key = |id: &str, secret: &str| Key {
                id: id.to_owned(),
                secret: Secret::new(secret),
            };
            match words.as_slice() {
                [OF_BUILDER, id, secret] => of_builder.push(key(id, secret)),
                [id, secret] if retired.is_empty() => keys.push(key(id, secret)),
                [_, _] => return Err("has a key below a retired one: those come last".to_owned()),
                [id, secret, RETIRED] => retired.push(key(id, secret)),
                _ => return Err("has a line that is not `<id> <base64>`".to_owned()),
            }
        }
        let has_deployment = !keys.is_empty() || !retired.is_empty();
        match (has_deployment, of_builder.is_empty()) {
            (_, true) => Ok(Self::Deployment(keys, retired)),
            (false, false) => Ok(Self::Builder(of_builder)),
            (true, false) => Err(
                "has keys of the deployment and of a builder: keep them in files of their own"
                    .to_owned(),
            ),
        }
    }
}

/// The file of keys for builders.
pub fn builder_key_file(keyring: &Keyring) -> String {
    let keys = keyring.for_builders().into_iter();
    let lines = keys.map(|key| format!("{OF_BUILDER} {} {}\n", key.id, key.secret.expose()));
    let head =
        "# Keys of a builder of images: they seal the tree, sign builds, and do nothing else.\n";
    std::iter::once(head.to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use access::seal::OpenError;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn secret(number: u8) -> String {
        let last = "AEIMQUYcgkosw048".as_bytes()[usize::from(number)];
        format!("{}{}=", "A".repeat(42), char::from(last))
    }

    fn deployment(text: &str) -> Result<Keyring, String> {
        KeyFile::parse(text)?.deployment()
    }

    fn builder(text: &str) -> Result<Keyring, String> {
        KeyFile::parse(text)?.builder()
    }

    #[test]
    fn a_builder_takes_its_own_keys_only_and_a_server_those_of_the_deployment() {
        let file = format!("k1 {}\n", secret(1));
        let keyring = deployment(&file).unwrap();
        let refused = builder(&file).unwrap_err();
        assert!(refused.contains("fleetwright keys builder"), "{refused}");
        let text = builder_key_file(&keyring);
        assert!(!text.contains(&secret(1)), "{text}");
        let refused = deployment(&text).unwrap_err();
        assert!(refused.contains("has the keys of a builder"), "{refused}");
        // A server believes the seals of a builder, and none of its links or identities.
        let derived = builder(&text).unwrap();
        let tag = derived.tag("p", b"message");
        keyring
            .of_builders()
            .check_tag("p", &tag, b"message")
            .unwrap();
        let refused = keyring.check_tag("p", &tag, b"message");
        assert_eq!(refused, Err(OpenError::Refused));
        let link = derived.digest("artifact-url", &Secret::new("get"));
        assert!(!keyring.digest_matches("artifact-url", &link, &Secret::new("get")));
        assert_ne!(derived.derive("local", "w"), keyring.derive("local", "w"));
    }

    #[test]
    fn a_retired_key_opens_and_signs_nothing() {
        let old = deployment(&format!("k1 {}\n", secret(1))).unwrap();
        let (plain, mut random) = (Secret::new("token"), StdRng::seed_from_u64(7));
        let sealed = old.seal("client:a", &plain, &mut random);
        let digest = old.digest("worker:a", &plain);
        let text = format!("k2 {}\nk1 {} retired\n", secret(2), secret(1));
        let both = deployment(&text).unwrap();
        assert_eq!(both.open("client:a", &sealed).unwrap(), plain);
        assert!(!both.is_current(&sealed));
        assert!(!both.digest_matches("worker:a", &digest, &plain));
        assert!(!both.derived_matches("local", "w", &old.derive("local", "w")));
        let tag = old.tag("p", b"m");
        assert!(both.check_tag("p", &tag, b"m").is_err());
        assert!(
            both.of_builders()
                .check_tag("p", &old.of_builders().tag("p", b"m"), b"m")
                .is_err()
        );
        assert!(!builder_key_file(&both).contains("k1"));
    }

    #[test]
    fn wrong_files_are_explained() {
        for (text, problem) in [
            (String::new(), "the keyring has no key"),
            ("k1\n".to_owned(), "has a line that is not"),
            (
                format!("k1 {} later\n", secret(1)),
                "has a line that is not",
            ),
            (
                format!("k1 {} retired\n", secret(1)),
                "the keyring has no key",
            ),
            (
                format!("k1 {} retired\nk2 {}\n", secret(1), secret(2)),
                "those come last",
            ),
            (
                format!("k1 {}\nbuilder k1 {}\n", secret(1), secret(2)),
                "keep them in files of their own",
            ),
            (
                format!("k1 {}\nk1 {} retired\n", secret(1), secret(2)),
                "two keys have the id `k1`",
            ),
        ] {
            let error = deployment(&text).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
