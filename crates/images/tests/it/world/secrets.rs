//! A secrets service with one secret.

use access::Secret;
use async_trait::async_trait;
use domain::id::ImageName;
use images::SecretsReader;

pub(crate) const SECRET: &str = "project/x/registry";

pub(crate) struct OneSecret;

#[async_trait]
impl SecretsReader for OneSecret {
    async fn read(&self, _image: &ImageName, secret: &str) -> Result<Secret, String> {
        match secret {
            SECRET => Ok(Secret::new(
                r#"{"token":"service-TOKEN","logins":{"a":"b"}}"#,
            )),
            _ => Err("it does not exist".to_owned()),
        }
    }
}
