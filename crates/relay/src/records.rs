//! Chains of records: from a name through its aliases to the records of one type.

use std::net::IpAddr;
use std::time::Duration;

use hickory_net::proto::rr::{Name, RData, Record, RecordType};

/// Aliases (CNAME) behind one name. DNS servers follow about as many.
pub(crate) const MAX_ALIASES: usize = 8;

/// The records at the end of a chain, with the shortest time of all records on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer<T> {
    pub(crate) values: Vec<T>,
    pub(crate) ttl: Duration,
}

/// The state of following a chain through one answer, or through several.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The name that has no alias so far.
    pub(crate) end: Name,
    pub(crate) n_aliases: usize,
    ttl_seconds: u32,
}

/// A chain that is longer than allowed, or a circle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Chain {
    pub(crate) fn new(start: Name) -> Self {
        Self {
            end: start,
            n_aliases: 0,
            ttl_seconds: u32::MAX,
        }
    }

    /// Follows the aliases of an answer, and returns the values of the records at the end.
    pub(crate) fn follow<T>(
        &mut self,
        answers: &[Record],
        value: impl Fn(&RData) -> Option<T>,
    ) -> Result<Answer<T>, TooLong> {
        while let Some((target, ttl)) = alias_of(&self.end, answers) {
            self.n_aliases += 1;
            if self.n_aliases > MAX_ALIASES {
                return Err(TooLong);
            }
            self.end = target.clone();
            self.ttl_seconds = self.ttl_seconds.min(ttl);
        }
        let here = answers.iter().filter(|record| record.name == self.end);
        let mut values = Vec::new();
        for record in here {
            if let Some(value) = value(&record.data) {
                values.push(value);
                self.ttl_seconds = self.ttl_seconds.min(record.ttl);
            }
        }
        Ok(Answer {
            values,
            ttl: Duration::from_secs(u64::from(self.ttl_seconds)),
        })
    }
}

fn alias_of<'a>(name: &Name, answers: &'a [Record]) -> Option<(&'a Name, u32)> {
    answers.iter().find_map(|record| {
        let RData::CNAME(target) = &record.data else {
            return None;
        };
        (record.name == *name).then_some((&target.0, record.ttl))
    })
}

/// The type of record that holds addresses of this kind.
pub(crate) fn type_of(address: IpAddr) -> RecordType {
    match address {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    }
}

pub(crate) fn address_in(record: &RData) -> Option<IpAddr> {
    if let RData::A(address) = record {
        Some(IpAddr::V4(address.0))
    } else if let RData::AAAA(address) = record {
        Some(IpAddr::V6(address.0))
    } else {
        None
    }
}

pub(crate) fn target_in(record: &RData) -> Option<Name> {
    if let RData::PTR(target) = record {
        Some(target.0.clone())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use hickory_net::proto::rr::rdata::{A, CNAME};
    use testing::sizes_around;

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn alias(from: &str, to: &str, ttl: u32) -> Record {
        Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
    }

    fn address(of: &str, last: u8, ttl: u32) -> Record {
        Record::from_rdata(name(of), ttl, RData::A(A::new(10, 0, 0, last)))
    }

    #[test]
    fn the_shortest_time_of_a_chain_counts_and_other_records_do_not() {
        let answers = [
            address("other.example.", 9, 1),
            alias("A.example.", "b.example.", 60),
            address("b.example.", 1, 300),
            address("B.example.", 2, 90),
        ];
        let mut chain = Chain::new(name("a.example."));
        let found = chain.follow(&answers, address_in).unwrap();
        assert_eq!(found.values.len(), 2);
        assert_eq!(found.ttl, Duration::from_secs(60));
    }

    #[test]
    fn a_chain_has_a_bounded_number_of_aliases() {
        for n in sizes_around("relay::records::MAX_ALIASES", MAX_ALIASES) {
            let mut answers: Vec<Record> = (0..n)
                .map(|it| {
                    alias(
                        &format!("n{it}.example."),
                        &format!("n{}.example.", it + 1),
                        9,
                    )
                })
                .collect();
            answers.push(address(&format!("n{n}.example."), 1, 9));
            let mut chain = Chain::new(name("n0.example."));
            let found = chain.follow(&answers, address_in);
            assert_eq!(found.is_ok(), n <= MAX_ALIASES, "{n}");
        }
        let circle = [
            alias("a.example.", "b.example.", 9),
            alias("b.example.", "a.example.", 9),
        ];
        let mut chain = Chain::new(name("a.example."));
        assert_eq!(chain.follow(&circle, address_in), Err(TooLong));
    }
}
