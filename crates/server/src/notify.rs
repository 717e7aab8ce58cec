//! People are told of errors in worker pools: by cause and not by machine, and not too often.
//!
//! Errors are read from the stream of events, from a place that is kept in the store, and counted under their
//! causes. When it is time to tell of some, a notice is written, with the note that they have been told, and
//! then sent. Each channel does so for itself: one that does not work holds up no other, and what happens
//! meanwhile is only counted.

mod advice;
mod cause;
mod collect;
mod compose;
mod content;
mod mail;
mod message;
mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
use domain::pool::Pool;
use domain::time::Timestamp;

pub use collect::{BATCH, CollectLimits, MAX_CAUSES, Pace, collect};
pub use compose::{MAX_DUE, compose};
pub use content::{Content, Described, Further};
pub use mail::MailChannel;
pub use webhook::WebhookChannel;

use crate::config::Config;

/// A way to tell people.
#[async_trait]
pub trait Channel: Send + Sync {
    /// By which the store knows it.
    fn id(&self) -> &str;

    /// What people call it.
    fn name(&self) -> &str;

    /// Who is to be told of errors in this pool; `None`: nobody, by this channel.
    fn recipient(&self, pool: &Pool) -> Option<String>;

    /// Ends within a time limit of its own.
    async fn send(&self, letter: &Notification<'_>) -> Result<(), SendError>;
}

/// A notice on its way.
#[derive(Debug)]
pub struct Notification<'a> {
    /// By which repeats can be dropped.
    pub id: &'a str,
    pub recipient: &'a str,
    pub content: &'a Content,
    /// When it was written.
    pub created: Timestamp,
    pub now: Timestamp,
}

/// Why a notice was not sent, by what else will not be sent either.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing goes by this channel at the moment.
    #[error("{0}")]
    Channel(String),
    /// This one is refused; others may be taken.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ChannelsError {
    #[error("the configuration of notices is not usable")]
    Config(#[from] crate::config::ConfigError),
    #[error("the HTTP client for webhooks cannot be made")]
    Http(#[from] reqwest::Error),
    #[error("the encryption for mail cannot be set up")]
    Mail(#[from] lettre::transport::smtp::Error),
}

/// All channels that the configuration names. Makes no connection.
pub fn channels(config: &Config) -> Result<Vec<Arc<dyn Channel>>, ChannelsError> {
    let root_url = config.root_url();
    let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
    if let Some(server) = config.notify.mail_server()? {
        channels.push(Arc::new(MailChannel::new(&server, &root_url)?));
    }
    for hook in config.notify.hooks()? {
        channels.push(Arc::new(WebhookChannel::new(hook, &root_url)?));
    }
    Ok(channels)
}
