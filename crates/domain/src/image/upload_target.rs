//! Where builds are uploaded: a provider, and one of its regions if it has several.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::content_hash::hash;
use super::format::ImageFormat;
use super::reader::ObjectReader;
use crate::id::{BadId, ProviderId, WorkerGroup, text_in_json};

/// Identifies a target of an image: `aws`, or `aws:eu-west-1`. Also the name of its node in the
/// tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadTargetId {
    pub provider_id: ProviderId,
    pub region: Option<WorkerGroup>,
}

/// Where builds are uploaded, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadTarget {
    pub id: UploadTargetId,
    /// `None`: the first format of the definition.
    pub format: Option<ImageFormat>,
    /// Only the provider reads them.
    pub options: Map<String, Value>,
}

impl UploadTarget {
    /// Identifies how a format is uploaded here. If it changes, a new upload is needed.
    pub fn hash(&self, format: &ImageFormat) -> String {
        hash(&json!({"format": format, "options": self.options}))
    }
}

impl fmt::Display for UploadTargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.region {
            None => write!(f, "{}", self.provider_id),
            Some(region) => write!(f, "{}:{region}", self.provider_id),
        }
    }
}

impl FromStr for UploadTargetId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let (provider_id, region) = match text.split_once(':') {
            None => (text, None),
            Some((provider_id, region)) => (provider_id, Some(region)),
        };
        Ok(Self {
            provider_id: provider_id.parse()?,
            region: region.map(str::parse).transpose()?,
        })
    }
}

text_in_json!(UploadTargetId);

/// Reads the member `uploads`.
pub(super) fn read_list(reader: &mut ObjectReader<'_>, most: usize) -> Vec<UploadTarget> {
    let targets = reader.objects("uploads", most, |upload| {
        let provider_id: Option<ProviderId> = upload.parsed("providerId");
        if provider_id
            .as_ref()
            .is_some_and(|id| id.as_str().is_empty())
        {
            upload.wrong("providerId", "must not be empty");
        }
        let region = upload.maybe_parsed("region");
        let format = upload.maybe_parsed("format");
        let options = upload.object("options").cloned().unwrap_or_default();
        Some(UploadTarget {
            id: UploadTargetId {
                provider_id: provider_id?,
                region,
            },
            format,
            options,
        })
    });
    let ids: Vec<String> = targets.iter().map(|target| target.id.to_string()).collect();
    reader.refuse_twice("uploads", &ids);
    targets
}
