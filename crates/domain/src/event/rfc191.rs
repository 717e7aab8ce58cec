//! The events that RFC 191 names, beside the names that Taskcluster gave them in the end.

/// A name of RFC 191 for what happens to launch configs and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc191 {
    /// The last part of the exchange's name.
    pub exchange: &'static str,
    /// The same event in the contract; `None` for what the contract has no event for.
    pub also: Option<&'static str>,
}

impl Rfc191 {
    pub const ALL: [Self; 6] = [
        named(
            "launch-configuration-created",
            Some("launch-config-created"),
        ),
        named(
            "launch-configuration-archived",
            Some("launch-config-archived"),
        ),
        named("launch-configuration-paused", None),
        named("launch-configuration-resumed", None),
        named("worker-error", Some("worker-pool-error")),
        named("worker-stopping", Some("worker-removed")),
    ];

    /// Its name for what is published to this exchange, given by its full name.
    pub fn of(topic: &str) -> Option<Self> {
        let name = topic.strip_prefix("exchange/taskcluster-worker-manager/v1/")?;
        Self::ALL.into_iter().find(|event| event.also == Some(name))
    }

    /// The name on the broker.
    pub fn topic(&self) -> String {
        format!("exchange/fleetwright/v1/{}", self.exchange)
    }
}

const fn named(exchange: &'static str, also: Option<&'static str>) -> Rfc191 {
    Rfc191 { exchange, also }
}

#[cfg(test)]
mod tests {
    use super::super::EXCHANGES;
    use super::*;

    #[test]
    fn what_has_two_names_is_an_event_of_the_contract() {
        for event in Rfc191::ALL {
            let Some(also) = event.also else { continue };
            let known = EXCHANGES.iter().find(|known| known.exchange == also);
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
