//! Questions to one DNS server: over UDP, and over TCP if the answer was cut off.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt as _;
use hickory_net::DnsHandle as _;
use hickory_net::client::Client;
use hickory_net::proto::op::{DnsRequest, DnsRequestOptions, DnsResponse, Query, ResponseCode};
use hickory_net::proto::rr::{Name, RData, RecordType};
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::DnsRequestSender as _;
use tokio_util::task::AbortOnDropHandle;

use crate::host_name::{BadHostName, HostName};
use crate::records::{Answer, Chain, address_in, target_in, type_of};

/// A DNS server that the relay asks. It looks up names for its clients, so it is called resolver.
#[derive(Clone, Debug)]
pub struct Resolver {
    pub address: SocketAddr,
    /// Maximum time for the answer to one question.
    pub limit: Duration,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("{name} {kind}: no answer within {limit:?}")]
    Late {
        name: String,
        kind: RecordType,
        limit: Duration,
    },
    #[error("{name} {kind}: {reason}")]
    Failed {
        name: String,
        kind: RecordType,
        reason: String,
    },
    #[error("{name} {kind}: the DNS server answers {code}")]
    Refused {
        name: String,
        kind: RecordType,
        code: ResponseCode,
    },
    #[error("{name} {kind}: the chain of aliases is a circle or too long")]
    TooLong { name: String, kind: RecordType },
    #[error(transparent)]
    BadHostName(#[from] BadHostName),
}

impl Resolver {
    /// The names of an address. None is no error.
    pub(crate) async fn names_of(&self, address: IpAddr) -> Result<Answer<Name>, LookupError> {
        self.records(Name::from(address), RecordType::PTR, target_in)
            .await
    }

    /// The addresses of a name, of the same kind as this one. None is no error.
    pub(crate) async fn addresses_of(
        &self,
        host: &HostName,
        like: IpAddr,
    ) -> Result<Answer<IpAddr>, LookupError> {
        self.records(host.to_name()?, type_of(like), address_in)
            .await
    }

    /// Follows aliases, also those whose targets the server leaves out.
    async fn records<T>(
        &self,
        start: Name,
        kind: RecordType,
        value: impl Fn(&RData) -> Option<T>,
    ) -> Result<Answer<T>, LookupError> {
        let mut chain = Chain::new(start);
        loop {
            let (name, n_aliases) = (chain.end.clone(), chain.n_aliases);
            let response = self.ask(&name, kind).await?;
            let found = chain.follow(&response.answers, &value);
            let found = found.map_err(|_| LookupError::TooLong {
                name: name.to_ascii(),
                kind,
            })?;
            // An answer with an alias more and no records ends before the records.
            if !found.values.is_empty() || chain.n_aliases == n_aliases {
                return Ok(found);
            }
        }
    }

    /// The library has longer limits, so that this one ends the question.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<DnsResponse, LookupError> {
        let asked = async {
            let response = self.ask_udp(name, kind).await?;
            if response.metadata.truncation {
                return self.ask_tcp(name, kind).await;
            }
            Ok(response)
        };
        let response = tokio::time::timeout(self.limit, asked).await;
        let response = response.map_err(|_| LookupError::Late {
            name: name.to_ascii(),
            kind,
            limit: self.limit,
        })?;
        let response = response.map_err(|reason| LookupError::Failed {
            name: name.to_ascii(),
            kind,
            reason,
        })?;
        let code = response.metadata.response_code;
        if matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
            return Ok(response);
        }
        Err(LookupError::Refused {
            name: name.to_ascii(),
            kind,
            code,
        })
    }

    /// Each question has a port and a number that others cannot guess, and upper and lower case
    /// at random, which the answer must repeat.
    async fn ask_udp(&self, name: &Name, kind: RecordType) -> Result<DnsResponse, String> {
        let provider = TokioRuntimeProvider::new();
        let mut sender = UdpClientStream::builder(self.address, provider)
            .with_timeout(Some(self.limit * 2))
            .build();
        let mut options = options();
        options.case_randomization = true;
        let query = Query::query(name.clone(), kind);
        let mut responses = sender.send_message(DnsRequest::from_query(query, options));
        first(responses.next().await)
    }

    async fn ask_tcp(&self, name: &Name, kind: RecordType) -> Result<DnsResponse, String> {
        let provider = TokioRuntimeProvider::new();
        let (connecting, messages) =
            TcpClientStream::new(self.address, None, Some(self.limit * 2), provider);
        let stream = connecting
            .await
            .map_err(|error| format!("the answer was cut off, and TCP does not work: {error}"))?;
        let (client, background) =
            Client::<TokioRuntimeProvider>::with_timeout(stream, messages, self.limit * 2);
        let _background = AbortOnDropHandle::new(tokio::spawn(background));
        let query = Query::query(name.clone(), kind);
        let response = first(client.lookup(query, options()).next().await)?;
        if response.metadata.truncation {
            return Err("the answer was cut off, over TCP, too".to_owned());
        }
        Ok(response)
    }
}

fn options() -> DnsRequestOptions {
    let mut options = DnsRequestOptions::default();
    options.recursion_desired = true;
    options.use_edns = true;
    options
}

fn first<E: std::fmt::Display>(
    response: Option<Result<DnsResponse, E>>,
) -> Result<DnsResponse, String> {
    let ended = || Err("the connection ended".to_owned());
    response.map_or_else(ended, |response| {
        response.map_err(|error| error.to_string())
    })
}
