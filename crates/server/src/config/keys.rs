//! The section `[keys]`: the keys of the deployment, or those of a builder.

use std::path::PathBuf;

use access::Secret;
use access::seal::{Key, Keyring};
use serde::Deserialize;

use super::{Config, ConfigError, read};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// A file of lines `<id> <base64 of 32 bytes>`. The first key encrypts; all of them decrypt. A line
    /// that ends in `retired` only decrypts.
    pub file: PathBuf,
}

/// The first word of each key in a file for builders.
const OF_BUILDER: &str = "builder";
/// The last word of a key that others may know.
const RETIRED: &str = "retired";

enum KeyFile {
    /// The keys, and those that are retired.
    Deployment(Vec<Key>, Vec<Key>),
    Builder(Vec<Key>),
}

impl Config {
    /// The keys of the deployment.
    pub fn keyring(&self) -> Result<Keyring, ConfigError> {
        match self.key_file()? {
            KeyFile::Deployment(keys, retired) => Keyring::new(keys)
                .and_then(|keyring| keyring.with_retired(retired))
                .map_err(|bad| wrong(&bad.to_string())),
            KeyFile::Builder(_) => Err(wrong(
                "has the keys of a builder: a server needs those of the deployment, from which they \
                 were derived",
            )),
        }
    }

    /// The keys of a builder. They are derived from those of the deployment, which a builder must not
    /// have: what it builds could read them.
    pub fn builder_keyring(&self) -> Result<Keyring, ConfigError> {
        match self.key_file()? {
            KeyFile::Builder(keys) => Keyring::new(keys).map_err(|bad| wrong(&bad.to_string())),
            KeyFile::Deployment(..) => Err(wrong(
                "has the keys of the deployment, with which a build could do all that the server can: \
                 give the builder a file of its own, made on the server with `fleetwright keys \
                 builder --config FILE`",
            )),
        }
    }

    fn key_file(&self) -> Result<KeyFile, ConfigError> {
        if self.keys.file.as_os_str().is_empty() {
            let problem = "is missing: give a file of keys, one `<id> <base64>` per line";
            return Err(wrong(problem));
        }
        parse(&read(&self.keys.file)?)
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

fn wrong(problem: &str) -> ConfigError {
    ConfigError::value("keys.file", problem)
}

fn parse(text: &str) -> Result<KeyFile, ConfigError> {
    let (mut of_deployment, mut retired, mut of_builder) = (Vec::new(), Vec::new(), Vec::new());
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let key = |id: &str, secret: &str| Key {
            id: id.to_owned(),
            secret: Secret::new(secret),
        };
        match words.as_slice() {
            [OF_BUILDER, id, secret] => of_builder.push(key(id, secret)),
            [id, secret] if retired.is_empty() => of_deployment.push(key(id, secret)),
            [_, _] => {
                return Err(wrong(
                    "has a key below a retired one: retired keys come last",
                ));
            }
            [id, secret, RETIRED] => retired.push(key(id, secret)),
            _ => return Err(wrong("has a line that is not `<id> <base64>`")),
        }
    }
    let has_deployment = !of_deployment.is_empty() || !retired.is_empty();
    match (!has_deployment, of_builder.is_empty()) {
        (_, true) => Ok(KeyFile::Deployment(of_deployment, retired)),
        (true, false) => Ok(KeyFile::Builder(of_builder)),
        (false, false) => Err(wrong(
            "has keys of the deployment and of a builder: keep them in files of their own",
        )),
    }
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

    fn with(folder: &tempfile::TempDir, text: &str) -> Config {
        let file = folder.path().join("keys");
        std::fs::write(&file, text).unwrap();
        let mut config = Config::default();
        config.keys.file = file;
        config
    }

    #[test]
    fn a_builder_takes_its_own_keys_only_and_a_server_those_of_the_deployment() {
        let folder = tempfile::tempdir().unwrap();
        let server = with(&folder, &format!("k1 {}\n", secret(1)));
        let keyring = server.keyring().unwrap();
        let refused = server.builder_keyring().unwrap_err().to_string();
        assert!(refused.contains("fleetwright keys builder"), "{refused}");
        let text = builder_key_file(&keyring);
        assert!(!text.contains(&secret(1)), "{text}");
        let builder = with(&folder, &text);
        let refused = builder.keyring().unwrap_err().to_string();
        assert!(refused.contains("has the keys of a builder"), "{refused}");
        // What a builder signs, a server believes, and nothing that only the server signs.
        let derived = builder.builder_keyring().unwrap();
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
        let folder = tempfile::tempdir().unwrap();
        let old = with(&folder, &format!("k1 {}\n", secret(1)));
        let old = old.keyring().unwrap();
        let (plain, mut random) = (Secret::new("token"), StdRng::seed_from_u64(7));
        let sealed = old.seal("client:a", &plain, &mut random);
        let digest = old.digest("worker:a", &plain);
        let text = format!("k2 {}\nk1 {} retired\n", secret(2), secret(1));
        let both = with(&folder, &text).keyring().unwrap();
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
        let folder = tempfile::tempdir().unwrap();
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
                "retired keys come last",
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
            let error = with(&folder, &text).keyring().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
