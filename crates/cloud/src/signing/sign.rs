//! Signs requests with AWS Signature Version 4: posted forms for EC2, and requests to S3.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use domain::time::Timestamp;

pub(crate) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const SERVICE: &str = "ec2";

/// The headers that sign a posted form.
pub(crate) fn headers(
    url: &str,
    body: &str,
    region: &str,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<Vec<(String, String)>, String> {
    let request = SignableRequest::new(
        "POST",
        url,
        [("content-type", FORM)].into_iter(),
        SignableBody::Bytes(body.as_bytes()),
    )
    .map_err(|error| error.to_string())?;
    let scope = Scope {
        service: SERVICE,
        region,
        settings: SigningSettings::default(),
    };
    signed_headers(request, scope, credentials, now)
}

/// The headers that sign a request to S3, whose body has this SHA-256.
pub(crate) fn s3_headers(
    method: &str,
    url: &str,
    headers: &[(String, String)],
    body_sha256: &str,
    region: &str,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<Vec<(String, String)>, String> {
    let named = headers.iter();
    let request = SignableRequest::new(
        method,
        url,
        named.map(|(name, value)| (name.as_str(), value.as_str())),
        SignableBody::Precomputed(body_sha256.to_owned()),
    )
    .map_err(|error| error.to_string())?;
    let mut settings = SigningSettings::default();
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let scope = Scope {
        service: "s3",
        region,
        settings,
    };
    signed_headers(request, scope, credentials, now)
}

struct Scope<'a> {
    service: &'static str,
    region: &'a str,
    settings: SigningSettings,
}

fn signed_headers(
    request: SignableRequest<'_>,
    scope: Scope<'_>,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<Vec<(String, String)>, String> {
    let identity = credentials.clone().into();
    let parameters = SigningParams::builder()
        .identity(&identity)
        .region(scope.region)
        .name(scope.service)
        .time(system_time(now))
        .settings(scope.settings)
        .build()
        .map_err(|error| error.to_string())?
        .into();
    let (signed, _signature) = sign(request, &parameters)
        .map_err(|error| error.to_string())?
        .into_parts();
    let (headers, _query) = signed.into_parts();
    Ok(headers
        .iter()
        .map(|header| (header.name().to_owned(), header.value().to_owned()))
        .collect())
}

/// Times before 1970 become 1970; they sign nothing.
fn system_time(now: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{digest, hmac};

    use super::*;

    const URL: &str = "https://ec2.us-west-2.amazonaws.com/";
    const BODY: &str = "Action=DescribeRegions&Version=2016-11-15";

    fn signed(session_token: Option<&str>) -> Vec<(String, String)> {
        let token = session_token.map(str::to_owned);
        let credentials = Credentials::new("AKID", "hush", token, None, "test");
        let now = "2026-11-21T06:07:08.999Z".parse().unwrap();
        headers(URL, BODY, "us-west-2", &credentials, now).unwrap()
    }

    fn value<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
        let header = headers.iter().find(|(own, _)| own == name);
        &header.unwrap_or_else(|| panic!("no header {name}")).1
    }

    fn sha256(text: &str) -> String {
        hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
    }

    fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The algorithm again, step by step as AWS describes it.
    fn expected_signature(canonical: &str) -> String {
        let scope = "20261121/us-west-2/ec2/aws4_request";
        let text = format!(
            "AWS4-HMAC-SHA256\n20261121T060708Z\n{scope}\n{}",
            sha256(canonical)
        );
        let key = ["20261121", "us-west-2", "ec2", "aws4_request"]
            .iter()
            .fold(b"AWS4hush".to_vec(), |key, part| hmac_sha256(&key, part));
        hex(&hmac_sha256(&key, &text))
    }

    #[test]
    fn the_signature_is_that_of_the_canonical_request() {
        let canonical = format!(
            "POST\n/\n\n\
             content-type:application/x-www-form-urlencoded; charset=utf-8\n\
             host:ec2.us-west-2.amazonaws.com\n\
             x-amz-date:20261121T060708Z\n\n\
             content-type;host;x-amz-date\n{}",
            sha256(BODY)
        );
        let headers = signed(None);
        assert_eq!(value(&headers, "x-amz-date"), "20261121T060708Z");
        assert_eq!(
            value(&headers, "authorization"),
            format!(
                "AWS4-HMAC-SHA256 Credential=AKID/20261121/us-west-2/ec2/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date, Signature={}",
                expected_signature(&canonical)
            )
        );
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let canonical = format!(
            "POST\n/\n\n\
             content-type:application/x-www-form-urlencoded; charset=utf-8\n\
             host:ec2.us-west-2.amazonaws.com\n\
             x-amz-date:20261121T060708Z\n\
             x-amz-security-token:session\n\n\
             content-type;host;x-amz-date;x-amz-security-token\n{}",
            sha256(BODY)
        );
        let headers = signed(Some("session"));
        assert_eq!(value(&headers, "x-amz-security-token"), "session");
        let authorization = value(&headers, "authorization");
        let signature = format!("Signature={}", expected_signature(&canonical));
        assert!(authorization.ends_with(&signature), "{authorization}");
    }
}
