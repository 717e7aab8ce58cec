//! Canaries: launch configs that get a share of the machines of another one.
//!
//! A strategy does not see them. Of the machines that it takes from a launch config, a share starts
//! from the canary beside it. Which ones is drawn, so that both groups are comparable.

use std::collections::BTreeMap;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::health::Condition;
use super::notes::Notes;
use super::{Award, Health, Offer, Snapshot, Tries};
use crate::id::{ImageName, LaunchConfigId};
use crate::image_reference::canary_mark;
use crate::launch_config::LaunchConfig;

/// The launch config beside which a canary starts machines, and its share of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CanaryOffer {
    pub of: LaunchConfigId,
    pub share: f64,
    /// `None`: a machine of the canary is known to have started well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<CanaryRoom>,
}

/// How many further machines of a canary may start while none is known to have started well. All
/// its launch configs share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CanaryRoom {
    pub image: ImageName,
    pub machines: u64,
}

impl CanaryOffer {
    /// `None`: the launch config is no canary.
    pub(super) fn of(config: &LaunchConfig) -> Option<Self> {
        let mark = canary_mark(&config.configuration)?;
        Some(Self {
            of: mark.of,
            share: mark.share,
            room: None,
        })
    }

    /// Limits the machines that start while it is not known whether any can. More than decide
    /// would only be more broken ones.
    pub(crate) fn limit(&mut self, config: &LaunchConfig, rooms: &BTreeMap<ImageName, u64>) {
        let image = canary_mark(&config.configuration).map(|mark| mark.image);
        self.room = image.and_then(|image| {
            let machines = *rooms.get(&image)?;
            Some(CanaryRoom { image, machines })
        });
    }

    pub(super) fn text(&self) -> String {
        let percent = self.share * 100.0;
        let of = &self.of;
        format!("a canary, which gets {percent:.0} % of the machines of {of}")
    }
}

/// Gives canaries their share of the machines.
pub(super) fn share_out(
    snapshot: &Snapshot,
    awards: &mut Vec<Award>,
    notes: &mut Notes,
    rng: &mut dyn Rng,
) {
    let canaries = snapshot.offers.iter();
    let canaries: Vec<(&Offer, &CanaryOffer)> = canaries
        .filter_map(|offer| Some((offer, offer.canary.as_ref()?)))
        .collect();
    let mut given = Vec::new();
    let mut started: BTreeMap<&ImageName, u32> = BTreeMap::new();
    for (offer, canary) in canaries {
        let mut awards = awards.iter_mut();
        // The canary bids for the same kinds of machines, as only its image is another one.
        let is_base = |award: &&mut Award| {
            award.launch_config_id == canary.of
                && award.bid_number == offer.bid_number
                && award.capacity_each == offer.capacity_each.max(1)
        };
        let Some(award) = awards.find(is_base) else {
            continue;
        };
        let most = usable_machines(snapshot, offer);
        // The share, rounded up or down at random, so that it is right on average.
        let share = canary.share * f64::from(award.machines) + rng.random::<f64>();
        let machines = (0..award.machines.min(most)).take_while(|n| f64::from(n + 1) <= share);
        let Ok(wanted) = u32::try_from(machines.count()) else {
            continue;
        };
        let machines = match &canary.room {
            None => wanted,
            Some(CanaryRoom { image, machines }) => {
                let started = started.entry(image).or_default();
                let room = u32::try_from(*machines).unwrap_or(u32::MAX);
                let machines = wanted.min(room.saturating_sub(*started));
                *started += machines;
                machines
            }
        };
        if machines < wanted {
            notes.add(format!(
                "{}: {machines} instead of {wanted} machines as a canary: no machine of this canary \
                 has claimed a task yet",
                snapshot.name_of(offer)
            ));
        }
        if machines == 0 {
            continue;
        }
        award.machines -= machines;
        notes.add(format!(
            "{}: {machines} of the machines of {}, as its canary",
            snapshot.name_of(offer),
            canary.of
        ));
        let bid = offer.bid.as_ref().ok();
        given.push(Award {
            launch_config_id: offer.launch_config_id.clone(),
            bid_number: offer.bid_number,
            provider_id: award.provider_id.clone(),
            machines,
            capacity_each: award.capacity_each,
            max_price: award.max_price,
            price: bid.and_then(|bid| bid.price),
            data: bid.map(|bid| bid.data.clone()).unwrap_or_default(),
        });
    }
    awards.retain(|award| award.machines > 0);
    awards.extend(given);
}

/// How many machines a canary can give now.
fn usable_machines(snapshot: &Snapshot, offer: &Offer) -> u32 {
    let left = offer.machines(snapshot.settings.max_capacity, snapshot.now);
    let left = left.unwrap_or(0);
    // Machines that do not work are what the canary is to find out; its share bounds the harm.
    let refusals = Health {
        never_registered: 0,
        overdue: 0,
        silent: 0,
        ..offer.health
    };
    let tries = Tries {
        plans_without_workers: 0,
        ..offer.tries
    };
    let most = match refusals.condition(&tries, snapshot.now) {
        Condition::Usable(_) => left,
        Condition::Due => left.min(1),
        Condition::Resting { .. }
        | Condition::ShutOff { .. }
        | Condition::OnTrial { .. }
        | Condition::Awaited => 0,
    };
    u32::try_from(most).unwrap_or(u32::MAX)
}
