//! The server that a client command talks to, and how the command answers.

use clap::Args;
use domain::time::Timestamp;
use serde_json::Value;

use crate::client::{Call, Client, ConfigFile, Flags, from_environment, resolve};
use crate::failure::Failure;
use crate::machine;
use crate::output::{self, Column};

/// How many items of a list are wanted.
#[derive(Args, Debug)]
pub(crate) struct Limit {
    /// Show at most so many (default: all)
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// The consent to destroy something.
#[derive(Args, Debug)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// The server that a client command talks to, and how it answers to the user.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) json: bool,
    pub(crate) now: Timestamp,
}

impl Session {
    pub(crate) fn open(flags: &Flags, json: bool, verbose: bool) -> Result<Self, Failure> {
        let (file, warning) = ConfigFile::of_user()?;
        if let Some(warning) = warning {
            output::note(&format!("warning: {warning}"));
        }
        let settings = resolve(flags, &from_environment, &file)?;
        Ok(Self {
            client: Client::new(settings, verbose)?,
            json,
            now: machine::now(),
        })
    }

    /// Shows a list: all its pages.
    pub(crate) async fn list(
        &self,
        call: &Call,
        key: &str,
        columns: &[Column],
        limit: &Limit,
    ) -> Result<(), Failure> {
        let document = self.client.pages(call, key, limit.limit).await?;
        self.rows(&document, key, columns);
        Ok(())
    }

    /// Shows the list in a document.
    pub(crate) fn rows(&self, document: &Value, key: &str, columns: &[Column]) {
        if self.json {
            return output::json(document);
        }
        let items = document[key].as_array().map_or(&[][..], Vec::as_slice);
        if items.is_empty() && output::to_terminal() {
            return output::note("there are none");
        }
        output::out(&output::table(
            items,
            columns,
            self.now,
            output::screen_width(),
        ));
    }

    /// Shows one thing.
    pub(crate) fn details(&self, item: &Value, columns: &[Column]) {
        match self.json {
            true => output::json(item),
            false => output::out(&output::details(item, columns, self.now)),
        }
    }

    /// Says that it is done; a program gets the reply, if the call has one.
    pub(crate) fn done(&self, reply: &Value, text: &str) {
        match (self.json, reply) {
            (true, Value::Null) => {}
            (true, reply) => output::json(reply),
            (false, _) => output::out(text),
        }
    }

    /// Says that it is gone; a program gets the reply, or the name of it if the call has none.
    pub(crate) fn gone(&self, reply: &Value, name: &Value, text: &str) {
        let told = if reply.is_null() { name } else { reply };
        self.done(told, text);
    }
}
