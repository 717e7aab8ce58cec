//! Notifications of errors in worker pools, grouped by cause and limited in number.
//!
//! Errors are read from the stream of events, from a stored position, and counted by cause. When
//! some are due, one transaction writes a notice and marks its errors as reported; then the notice
//! is sent. Each channel works on its own, so a failed channel delays no other, and meanwhile its
//! errors are counted.

mod advice;
mod collect;
mod content;
mod mail;
mod next_notice;
mod notice_text;
mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
use domain::pool::Pool;
use domain::time::Timestamp;

pub use collect::{BATCH, CollectLimits, MAX_CAUSES, Pace, collect};
pub use content::{Content, Described, Further};
pub use mail::MailChannel;
pub use next_notice::{MAX_DUE, compose};
pub use webhook::WebhookChannel;

use crate::config::Config;

/// A way to send notices.
#[async_trait]
pub trait Channel: Send + Sync {
    /// The id of the channel in the store.
    fn id(&self) -> &str;

    /// The name of the channel for people.
    fn name(&self) -> &str;

    /// The recipient of notices about this pool; `None`: no notices by this channel.
    fn recipient(&self, pool: &Pool) -> Option<String>;

    /// Ends within a time limit of its own.
    async fn send(&self, letter: &Notification<'_>) -> Result<(), SendError>;
}

/// A notice to be sent.
#[derive(Debug)]
pub struct Notification<'a> {
    /// The notice's id, to drop repeats.
    pub id: &'a str,
    pub recipient: &'a str,
    pub content: &'a Content,
    /// When the notice was written.
    pub created: Timestamp,
    pub now: Timestamp,
}

/// Why a notice was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The channel does not work at the moment.
    #[error("{0}")]
    Channel(String),
    /// This notice was refused; others may be accepted.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ChannelsError {
    #[error("the configuration of notices is not valid")]
    Config(#[from] crate::config::ConfigError),
    #[error("cannot create the HTTP client for webhooks")]
    Http(#[from] reqwest::Error),
    #[error("cannot set up the encryption for mail")]
    Mail(#[from] lettre::transport::smtp::Error),
}

/// All channels of the configuration. Connects to none of them.
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
