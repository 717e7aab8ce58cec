//! The names of RFC 191 for events that Taskcluster publishes under other names too.

/// An event name of RFC 191 about launch configs or workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc191 {
    /// The last part of the exchange's name.
    pub exchange: &'static str,
    /// The name of the same event on our own exchange.
    pub also: &'static str,
}

impl Rfc191 {
    pub const ALL: [Self; 6] = [
        named("launch-configuration-created", "launch-config-created"),
        named("launch-configuration-archived", "launch-config-archived"),
        named("launch-configuration-paused", "launch-config-paused"),
        named("launch-configuration-resumed", "launch-config-resumed"),
        named("worker-error", "worker-pool-error"),
        named("worker-stopping", "worker-removed"),
    ];

    /// The second name of the events of an exchange, which is given by its full name.
    pub fn of(topic: &str) -> Option<Self> {
        let name = topic.strip_prefix("exchange/taskcluster-worker-manager/v1/")?;
        Self::ALL.into_iter().find(|event| event.also == name)
    }

    /// The name on the broker.
    pub fn topic(&self) -> String {
        format!("exchange/fleetwright/v1/{}", self.exchange)
    }
}

const fn named(exchange: &'static str, also: &'static str) -> Rfc191 {
    Rfc191 { exchange, also }
}

#[cfg(test)]
mod tests {
    use super::super::EXCHANGES;
    use super::*;

    #[test]
    fn every_name_is_a_second_one_of_an_event() {
        for event in Rfc191::ALL {
            let known = EXCHANGES.iter().find(|known| known.exchange == event.also);
            assert_eq!(Rfc191::of(&known.unwrap().topic()), Some(event));
        }
        assert_eq!(
            Rfc191::of("exchange/taskcluster-queue/v1/worker-removed"),
            None
        );
        let topic = Rfc191::ALL[0].topic();
        assert_eq!(
            topic,
            "exchange/fleetwright/v1/launch-configuration-created"
        );
    }
}
