//! Mail to the owners of pools, by SMTP.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use domain::pool::Pool;
use lettre::message::Mailbox;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls as SmtpTls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Category;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use reqwest::Url;

use super::notice_text::{subject, text};
use super::{Channel, Notification, SendError};
use crate::config::{MailServer, MailTls};

/// Maximum length of an address by RFC 5321.
const MAX_ADDRESS: usize = 254;

pub struct MailChannel {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    time_limit: Duration,
    root_url: String,
    /// Our domain, for message ids.
    domain: String,
    /// The domains of recipients; `None`: all.
    recipient_domains: Option<Vec<String>>,
}

impl MailChannel {
    /// Opens no connection.
    pub fn new(
        server: &MailServer,
        root_url: &str,
    ) -> Result<Self, lettre::transport::smtp::Error> {
        let tls = match server.tls {
            MailTls::Starttls => SmtpTls::Required(TlsParameters::new(server.host.clone())?),
            MailTls::Implicit => SmtpTls::Wrapper(TlsParameters::new(server.host.clone())?),
            MailTls::None => SmtpTls::None,
        };
        let url = Url::parse(root_url).ok();
        let domain = url.and_then(|url| url.host_str().map(str::to_owned));
        let domain = domain.filter(|domain| !domain.contains(['[', ']']));
        let domain = domain.unwrap_or_else(|| "localhost".to_owned());
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
            .port(server.port)
            .tls(tls)
            .hello_name(ClientId::Domain(domain.clone()))
            .timeout(Some(server.time_limit));
        if let Some((user, password)) = &server.login {
            let password = password.expose().to_owned();
            builder = builder.credentials(Credentials::new(user.clone(), password));
        }
        Ok(Self {
            server: builder.build(),
            from: server.from.clone(),
            time_limit: server.time_limit,
            root_url: root_url.to_owned(),
            domain,
            recipient_domains: server.domains.clone(),
        })
    }

    /// Connects, encrypts and logs in as for a mail, and sends none.
    pub async fn greet(&self) -> Result<(), String> {
        match tokio::time::timeout(self.time_limit, self.server.test_connection()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("it closes the connection at once".to_owned()),
            Ok(Err(problem)) => Err(problem.to_string()),
            Err(_) => Err(self.too_slow()),
        }
    }

    fn too_slow(&self) -> String {
        let seconds = self.time_limit.as_secs();
        format!("the mail server took longer than {seconds} s")
    }

    fn message(&self, letter: &Notification<'_>) -> Result<Message, SendError> {
        let no_address = || SendError::Refused(format!("{:?} is not an address", letter.recipient));
        let to = address(letter.recipient).ok_or_else(no_address)?;
        let created = u64::try_from(letter.created.as_millis()).unwrap_or_default();
        let date = SystemTime::UNIX_EPOCH + Duration::from_millis(created);
        let mut builder = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .date(date)
            .message_id(Some(format!("<{}@{}>", letter.id, self.domain)))
            .subject(subject(letter.content))
            .header(ContentType::TEXT_PLAIN)
            .header(ContentTransferEncoding::QuotedPrintable)
            // Asks for no automatic replies, as the sender's mailbox is not read.
            .raw_header(header("Auto-Submitted", "auto-generated"));
        if let Some(first) = letter.content.causes.first() {
            // Mail programs put all mails about one cause into one conversation.
            let conversation = format!("<{}@{}>", first.cause_id, self.domain);
            builder = builder
                .references(conversation)
                .raw_header(header("X-Fleetwright-Pool", &first.worker_pool_id));
        }
        let message = builder.body(text(letter.content, &self.root_url));
        message.map_err(|problem| SendError::Refused(problem.to_string()))
    }
}

#[async_trait]
impl Channel for MailChannel {
    fn id(&self) -> &str {
        "notices:email"
    }

    fn name(&self) -> &str {
        "email"
    }

    fn recipient(&self, pool: &Pool) -> Option<String> {
        let definition = &pool.definition;
        let owner = address(&definition.owner).filter(|_| definition.email_on_error)?;
        // An editor of the pool chooses the owner, and the mail carries texts of workers.
        let domain = owner.domain().to_ascii_lowercase();
        let domains = self.recipient_domains.as_ref();
        let is_ours = domains.is_none_or(|domains| domains.contains(&domain));
        is_ours.then(|| owner.to_string())
    }

    async fn send(&self, letter: &Notification<'_>) -> Result<(), SendError> {
        let message = self.message(letter)?;
        match tokio::time::timeout(self.time_limit, self.server.send(message)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(problem)) => Err(failed(&problem)),
            Err(_) => Err(SendError::Channel(self.too_slow())),
        }
    }
}

/// Replies of the form x5x concern this mailbox or this mail; all others concern the server or us.
fn failed(problem: &lettre::transport::smtp::Error) -> SendError {
    let status = problem.status();
    if status.is_some_and(|code| code.category == Category::MailSystem) {
        SendError::Refused(problem.to_string())
    } else {
        SendError::Channel(problem.to_string())
    }
}

/// An address and nothing else: no name, no comment, no second address, no line break.
fn address(text: &str) -> Option<Address> {
    let is_plain = text.len() <= MAX_ADDRESS
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains(['<', '>', '"', ',', ';', ':', '(', ')', '\\']);
    text.parse().ok().filter(|_| is_plain)
}

fn header(name: &'static str, value: &str) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
}

#[cfg(test)]
mod tests {
    use access::Secret;
    use domain::id::ProviderId;
    use domain::pool::PoolDefinition;
    use domain::time::Timestamp;

    use super::super::notice_text::tests::{content, described};
    use super::*;

    fn channel() -> MailChannel {
        channel_to(None)
    }

    fn channel_to(domains: Option<Vec<String>>) -> MailChannel {
        let server = MailServer {
            host: "localhost".to_owned(),
            port: 1,
            tls: MailTls::None,
            login: Some(("me".to_owned(), Secret::new("hunter2"))),
            from: "Fleet <fleet@example.com>".parse().unwrap(),
            domains,
            time_limit: Duration::from_secs(1),
        };
        MailChannel::new(&server, "https://fleet.example.com").unwrap()
    }

    fn written(title: &str, recipient: &str) -> Result<String, String> {
        let content = content(vec![described("a/b", title)]);
        let letter = Notification {
            id: "n-1",
            recipient,
            content: &content,
            created: Timestamp::from_millis(1_790_000_000_000),
            now: Timestamp::from_millis(1_790_000_000_000),
        };
        let message = channel()
            .message(&letter)
            .map_err(|problem| problem.to_string())?;
        Ok(String::from_utf8(message.formatted()).unwrap())
    }

    #[test]
    fn a_mail_has_headers_for_sorting() {
        let mail = written("Disk full", "ops@example.com").unwrap();
        let (head, body) = mail.split_once("\r\n\r\n").unwrap();
        for line in [
            "From: Fleet <fleet@example.com>",
            "To: ops@example.com",
            "Subject: [fleetwright] a/b: Disk full",
            "Date: Mon, 21 Sep 2026 14:13:20 +0000",
            "Message-ID: <n-1@fleet.example.com>",
            "References: <00000000000000000000000000000000@fleet.example.com>",
            "Auto-Submitted: auto-generated",
            "X-Fleetwright-Pool: a/b",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}\n{head}");
        }
        assert!(body.contains("Advice: "), "{body}");
    }

    #[test]
    fn only_owners_in_our_domains_get_mail() {
        let ours = channel_to(Some(vec!["example.com".to_owned(), "b.example".to_owned()]));
        for (owner, is_ours) in [
            ("ann@example.com", true),
            ("ann@EXAMPLE.com", true),
            ("ann@b.example", true),
            ("ann@sub.example.com", false),
            ("ann@example.com.evil.net", false),
            ("ann@notexample.com", false),
        ] {
            let definition = PoolDefinition {
                provider_id: ProviderId::null(),
                further_provider_ids: Vec::new(),
                description: String::new(),
                config: serde_json::Map::new(),
                owner: owner.to_owned(),
                email_on_error: true,
            };
            let id = "a/b".parse().unwrap();
            let pool = Pool::new(id, definition, Timestamp::from_millis(0));
            assert_eq!(ours.recipient(&pool).is_some(), is_ours, "{owner}");
            assert!(channel().recipient(&pool).is_some(), "{owner}");
        }
    }

    #[test]
    fn no_text_of_an_error_becomes_a_header() {
        for title in [
            "x\r\nBcc: evil@example.com",
            "x\nBcc: evil@example.com\n\nbody",
            "ö\u{85}\u{2028}\r\n Bcc: evil@example.com",
            "=?utf-8?q?=0D=0ABcc:_evil@example.com?=",
        ] {
            let mail = written(title, "ops@example.com").unwrap();
            let (head, _) = mail.split_once("\r\n\r\n").unwrap();
            let names: Vec<&str> = head
                .split("\r\n")
                .filter(|line| !line.starts_with([' ', '\t']))
                .map(|line| line.split(':').next().unwrap())
                .collect();
            assert_eq!(names.len(), 10, "{head}");
            assert!(!names.contains(&"Bcc"), "{head}");
        }
    }

    #[test]
    fn an_invalid_address_gets_no_mail() {
        for text in [
            "",
            "ops",
            "ops@example.com\r\nBcc: evil@example.com",
            "ops@example.com, evil@example.com",
            "Ops <ops@example.com>",
            "\"a b\"@example.com",
            "ops@example.com>",
            "größe@example.com",
        ] {
            assert!(address(text).is_none(), "{text}");
            assert!(written("x", text).is_err(), "{text}");
        }
        assert!(address(&format!("{}@example.com", "x".repeat(300))).is_none());
        assert!(address("ops+ci@example.co.uk").is_some());
    }
}
