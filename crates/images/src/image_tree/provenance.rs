//! The signed records of builds: a build is used only if its record fits to it.

use cloud::image::{TrustedKeys, sha256_of};
use domain::image::BuildRecord;

/// A record, as far as its signature allows to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// The hash of the record.
    sha256: String,
    signed: Result<Signed, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Signed {
    /// `<image>/<build>`
    build: String,
    /// The hashes of its files.
    files: Vec<String>,
}

impl Provenance {
    pub(super) fn read(data: &[u8], trusted: &TrustedKeys) -> Self {
        let text = String::from_utf8_lossy(data);
        let signed = trusted.verify(&text).map(|statement| {
            let metadata = &statement["predicate"]["runDetails"]["metadata"];
            let files = statement["subject"].as_array().into_iter().flatten();
            let hash =
                |file: &serde_json::Value| file["digest"]["sha256"].as_str().map(str::to_owned);
            Signed {
                build: metadata["invocationId"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                files: files.filter_map(hash).collect(),
            }
        });
        Self {
            sha256: sha256_of(data),
            signed: signed.map_err(|error| error.to_string()),
        }
    }

    /// Why the record does not fit to the build; `None`: it does.
    pub(super) fn problem(&self, build: &str, record: &BuildRecord) -> Option<String> {
        let signed = match &self.signed {
            Err(error) => return Some(error.clone()),
            Ok(signed) => signed,
        };
        if record.provenance.as_ref() != Some(&self.sha256) {
            return Some("it is not the one that the builder wrote".to_owned());
        }
        if signed.build != build {
            return Some(format!("it is that of {}", signed.build));
        }
        let files = record.formats.values().flatten();
        let mut unsigned = files.filter(|file| !signed.files.contains(&file.sha256));
        let file = unsigned.next()?;
        Some(format!(
            "it does not list a file with sha256 {}",
            file.sha256
        ))
    }
}
