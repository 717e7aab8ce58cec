//! The answer of a strategy service, and whether a plan can follow it.

use serde::{Deserialize, Serialize};

use super::{Offer, Snapshot};
use crate::id::{LaunchConfigId, StrategyServiceId, WorkerGroup, WorkerId};
use crate::text::one_line;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// An older answer is not followed.
pub const MAX_ANSWER_AGE_MS: i64 = MINUTE_MS;
/// Maximum number of reasons in an answer.
pub const MAX_SERVICE_REASONS: usize = 20;
/// Maximum number of characters of a reason.
pub const MAX_REASON_CHARS: usize = 500;

/// The answer of a strategy service about a pool, or why there is no valid answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceAnswer {
    pub service: StrategyServiceId,
    pub asked: Timestamp,
    /// Units of the pool that counted against its maximum when the service was asked.
    pub units: u64,
    /// `Err`: why the answer cannot be used.
    pub outcome: Result<Proposal, String>,
}

/// A valid answer. It is followed within the limits of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proposal {
    #[serde(default)]
    pub launches: Vec<ProposedLaunch>,
    /// All workers that are to stop. Others stay.
    #[serde(default)]
    pub stop: Vec<ProposedStop>,
    /// For people.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// The answer is not followed from this moment on.
    #[serde(default)]
    pub expires: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposedLaunch {
    pub launch_config_id: LaunchConfigId,
    /// See [`Offer::bid_number`].
    #[serde(default, skip_serializing_if = "super::is_first")]
    pub bid_number: u32,
    pub machines: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposedStop {
    pub worker_group: WorkerGroup,
    pub worker_id: WorkerId,
}

impl ProposedLaunch {
    /// Whether its machines are those of this offer.
    pub(super) fn is_of(&self, offer: &Offer) -> bool {
        self.launch_config_id == offer.launch_config_id && self.bid_number == offer.bid_number
    }
}

impl Proposal {
    /// The same with reasons that can be printed: bounded, in one line each.
    #[must_use]
    pub fn with_printable_reasons(mut self) -> Self {
        let printable = |reason: &String| one_line(reason, MAX_REASON_CHARS);
        let reasons = self.reasons.iter().take(MAX_SERVICE_REASONS).map(printable);
        self.reasons = reasons.filter(|reason| !reason.is_empty()).collect();
        self
    }
}

impl ServiceAnswer {
    /// `Err`: why it cannot be followed at this moment.
    fn proposal(&self, now: Timestamp) -> Result<&Proposal, String> {
        let proposal = self.outcome.as_ref().map_err(String::clone)?;
        if let Some(expires) = proposal.expires.filter(|expires| *expires <= now) {
            return Err(format!("its answer expired at {expires}"));
        }
        let age_ms = now.millis_since(self.asked);
        if !(-MAX_ANSWER_AGE_MS..=MAX_ANSWER_AGE_MS).contains(&age_ms) {
            let seconds = age_ms / SECOND_MS;
            return Err(format!("its answer is {seconds} s old"));
        }
        Ok(proposal)
    }
}

impl Snapshot {
    /// The answer that the plan follows. `Err`: why the fallback decides; `None`: no service is
    /// asked.
    pub(super) fn proposal(&self) -> Option<Result<&Proposal, String>> {
        let external = self.settings.external.as_ref()?;
        let Some(answer) = &self.answer else {
            return Some(Err("it was not asked".to_owned()));
        };
        if answer.service != external.service {
            let other = &answer.service;
            return Some(Err(format!("the answer is from {other}")));
        }
        Some(answer.proposal(self.now))
    }

    /// The machines that this answer starts within the launch configs of the pool, in units.
    pub(super) fn proposed_units(&self, proposal: &Proposal) -> f64 {
        let units = proposal.launches.iter().filter_map(|launch| {
            let offer = self.offers.iter().find(|offer| launch.is_of(offer))?;
            let each = u64::from(offer.capacity_each.max(1));
            Some(launch.machines.saturating_mul(each))
        });
        super::need::exact(units.fold(0, u64::saturating_add))
    }

    /// Units that were added to the pool after the service was asked.
    pub(super) fn units_since_asked(&self) -> u64 {
        let answer = self.answer.as_ref();
        answer.map_or(0, |answer| self.capacity.all().saturating_sub(answer.units))
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_bounded_number_of_reasons_is_kept() {
        let bound = MAX_SERVICE_REASONS;
        for count in sizes_around("domain::plan::proposal::MAX_SERVICE_REASONS", bound) {
            let proposal = Proposal {
                reasons: vec!["because".to_owned(); count],
                ..Proposal::default()
            };
            let kept = proposal.with_printable_reasons().reasons.len();
            assert_eq!(kept, count.min(MAX_SERVICE_REASONS));
        }
    }

    #[test]
    fn a_reason_becomes_one_bounded_line() {
        let long = "x".repeat(MAX_REASON_CHARS + 1);
        let proposal = Proposal {
            reasons: vec!["a\u{1b}[31m\nb".to_owned(), " \n ".to_owned(), long],
            ..Proposal::default()
        };
        let reasons = proposal.with_printable_reasons().reasons;
        assert_eq!(reasons[0], "a [31m b");
        let mark = 1;
        assert_eq!(reasons[1].chars().count(), MAX_REASON_CHARS + mark);
        assert_eq!(reasons.len(), 2);
    }
}
