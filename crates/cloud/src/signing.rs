//! Signs AWS requests; reads keys.
//!
//! EC2 and object stores that speak S3 share this, and all clouds share the HTTP client.

pub(crate) mod credentials;
pub(crate) mod http;
pub(crate) mod public_key;
pub(crate) mod sign;
