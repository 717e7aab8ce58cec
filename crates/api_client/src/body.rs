//! Reads the body of a reply, within a limit.

use reqwest::Response;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("it was cut off")]
    Broken(#[from] reqwest::Error),
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
}

/// Reads a body of at most this many bytes.
pub async fn read_body(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max_bytes {
            return Err(BodyError::TooLong(max_bytes));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
