//! Identifies a host: its address must have one name, and that name the address.
//!
//! The owner of a network may give an address any name, and the owner of a name may give it any
//! address. Only both together identify a host.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;

use crate::host_name::{BadHostName, HostName};
use crate::records::Answer;
use crate::resolver::{LookupError, Resolver};

/// Names and addresses that a refusal quotes.
const QUOTED: usize = 4;

/// Why an address identifies no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{resolver} knows no name of the address")]
    NoName { resolver: SocketAddr },
    #[error("{resolver} knows several names of the address: {names}")]
    SeveralNames { resolver: SocketAddr, names: String },
    #[error("{resolver}: {name}")]
    BadName {
        resolver: SocketAddr,
        name: BadHostName,
    },
    #[error("{resolver} says the address is {name}, which has no address")]
    NoAddress {
        resolver: SocketAddr,
        name: HostName,
    },
    #[error("{resolver} says the address is {name}, which has other addresses: {addresses}")]
    OtherAddress {
        resolver: SocketAddr,
        name: HostName,
        addresses: String,
    },
    #[error("the resolvers disagree: {first} says {name}, {second} says {other}")]
    Disagreement {
        first: SocketAddr,
        name: HostName,
        second: SocketAddr,
        other: HostName,
    },
    #[error("{resolver}: {problem}")]
    Lookup {
        resolver: SocketAddr,
        problem: LookupError,
    },
}

/// The name of a host, on which all resolvers agree, and how long their answers hold.
pub async fn identify(
    resolvers: &[Resolver],
    address: IpAddr,
) -> Result<(HostName, Duration), Refusal> {
    let answers = join_all(resolvers.iter().map(|resolver| ask(resolver, address))).await;
    let mut agreed: Option<(SocketAddr, HostName, Duration)> = None;
    for (resolver, answer) in resolvers.iter().zip(answers) {
        let (name, ttl) = answer?;
        agreed = Some(match agreed {
            None => (resolver.address, name, ttl),
            Some((first, known, known_ttl)) if known == name => (first, known, known_ttl.min(ttl)),
            Some((first, known, _)) => {
                return Err(Refusal::Disagreement {
                    first,
                    name: known,
                    second: resolver.address,
                    other: name,
                });
            }
        });
    }
    let (_, name, ttl) = agreed.expect("a relay has a resolver");
    Ok((name, ttl))
}

/// Both look-ups at one resolver.
async fn ask(resolver: &Resolver, address: IpAddr) -> Result<(HostName, Duration), Refusal> {
    let place = resolver.address;
    let failed = |problem| Refusal::Lookup {
        resolver: place,
        problem,
    };
    let Answer { values: names, ttl } = resolver.names_of(address).await.map_err(failed)?;
    let name = match names.as_slice() {
        [] => return Err(Refusal::NoName { resolver: place }),
        [name] => name.to_ascii().parse::<HostName>(),
        [_, _, ..] => {
            return Err(Refusal::SeveralNames {
                resolver: place,
                names: quoted(names.iter().map(|name| name.to_ascii())),
            });
        }
    };
    let name = name.map_err(|name| Refusal::BadName {
        resolver: place,
        name,
    })?;
    let found = resolver
        .addresses_of(&name, address)
        .await
        .map_err(failed)?;
    let canonical = |known: &IpAddr| known.to_canonical();
    if found.values.iter().any(|known| canonical(known) == address) {
        return Ok((name, ttl.min(found.ttl)));
    }
    Err(if found.values.is_empty() {
        Refusal::NoAddress {
            resolver: place,
            name,
        }
    } else {
        Refusal::OtherAddress {
            resolver: place,
            name,
            addresses: quoted(found.values.iter().map(IpAddr::to_string)),
        }
    })
}

/// The first ones, and whether there are more.
fn quoted(texts: impl ExactSizeIterator<Item = String>) -> String {
    let n_more = texts.len().saturating_sub(QUOTED);
    let mut quoted = texts.take(QUOTED).collect::<Vec<_>>().join(", ");
    if n_more > 0 {
        quoted.push_str(&format!(" and {n_more} more"));
    }
    quoted
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_refusal_quotes_a_bounded_number_of_names() {
        for n in sizes_around("relay::identify::QUOTED", QUOTED) {
            let text = quoted((0..n).map(|it| format!("x{it}")));
            assert_eq!(text.matches('x').count(), n.min(QUOTED), "{text}");
            assert_eq!(text.contains("more"), n > QUOTED);
        }
    }
}
