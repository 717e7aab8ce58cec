//! Calls JSON APIs of vendors.
//!
//! A vendor has a table of its error codes, a source of tokens, and one caller ([`Rest`]). Each
//! call is sent once, has a time limit, and reads a limited answer.

mod endpoint;
mod error;
mod notes;
mod operations;
mod pause;
#[cfg(test)]
pub(crate) mod recorder;
mod request;
mod rest;
mod tokens;

pub(crate) use endpoint::is_endpoint;
pub(crate) use error::{CauseTable, Failure, Vendor, VendorError};
pub(crate) use notes::Notes;
pub(crate) use operations::{AskOperation, Operations, Progress};
pub(crate) use request::{Ask, Content};
pub(crate) use rest::{Answer, Page, RawAnswer, Rest, all_pages};
pub(crate) use tokens::{Token, TokenSource, Tokens};
