//! `open`: signs a browser in, without a form.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};

use super::Session;
use crate::client::{Call, Client, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Page to open, such as waiting or pools/demo/linux (default: the start page)
    #[arg(value_name = "PAGE")]
    page: Option<String>,
    /// Print the link only
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let reply = create(&session.client).await?;
    let mut url = reply["url"].as_str().unwrap_or_default().to_owned();
    if let Some(page) = &arguments.page {
        let page = format!("/{}", page.trim_start_matches('/'));
        // The link has a query already.
        let link = api_client::Call::to(api_client::Method::GET, url);
        url = link.query("to", Some(page)).resource;
    }
    if session.json {
        output::json(&reply);
        return Ok(());
    }
    if !arguments.print && show(&url) {
        output::note("opened the page in your browser; the link works once, within ten minutes");
    }
    output::out(&url);
    Ok(())
}

/// Makes a link for the client of these credentials.
pub(super) async fn create(client: &Client) -> Result<Value, Failure> {
    let Some(credentials) = client.credentials() else {
        return Err(Failure::usage(
            "a sign-in link needs credentials; the server's public pages need no link".to_owned(),
        ));
    };
    let mut body = json!({
        "clientId": credentials.client_id,
        "accessToken": credentials.access_token.expose(),
    });
    if let Some(certificate) = credentials.extension.as_deref().and_then(certificate_of) {
        body["certificate"] = certificate;
    }
    let call = Call::post(FLEETWRIGHT, &["sign-in-links"], body).to("make a sign-in link");
    client.call(&call).await
}

/// The certificate in the `ext` of signatures.
fn certificate_of(extension: &str) -> Option<Value> {
    let fields: Value = serde_json::from_slice(&STANDARD.decode(extension).ok()?).ok()?;
    fields.get("certificate").cloned()
}

/// Opens the link, if this terminal belongs to a desktop.
fn show(url: &str) -> bool {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if has("DISPLAY") || has("WAYLAND_DISPLAY") {
        "xdg-open"
    } else {
        return false;
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    std::io::stdout().is_terminal() && started.is_ok()
}
