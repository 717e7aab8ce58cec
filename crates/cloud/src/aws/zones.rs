//! The availability zones of our regions: where launch configs can put machines.
//!
//! Rules ask about them without a call outside, so what EC2 said is remembered. A region whose zones nobody knows makes
//! all of it unknown: a fleet that is compiled from half of the places would be told to leave the other half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::{HOUR_MS, Timestamp};

use super::AwsProvider;
use super::answers::{DescribeAvailabilityZones, Zone};
use super::error::Ec2Error;
use super::machines::side_by_side;
use super::parameters::Parameters;
use crate::{CloudError, Fills, Place, PlacesUnknown};

/// The set-up waits so long for zones: it is about more than these, and the next refresh asks again.
pub(super) const SETUP_LIMIT: Duration = Duration::from_secs(2);
/// A region's zones are asked for again after this time.
const FRESH_MS: i64 = HOUR_MS;
/// Neither local zones nor those at the edge of a network.
const ZONE_TYPE: &str = "availability-zone";
/// The state of zones that take no machines of those who have none there.
const CLOSED: &str = "constrained";

#[derive(Default)]
pub(super) struct Zones(Mutex<BTreeMap<String, Region>>);

#[derive(Default)]
struct Region {
    /// What EC2 said last, and when.
    zones: Option<(Timestamp, BTreeSet<String>)>,
    /// Why it could not be asked lately.
    problem: Option<CloudError>,
}

impl Zones {
    /// Every zone of these regions, or which of them is not known.
    pub(super) fn places(&self, regions: &BTreeSet<String>) -> Result<Vec<Place>, PlacesUnknown> {
        let known = self.known();
        let mut places = Vec::new();
        for region in regions {
            let entry = known.get(region);
            let Some((_, zones)) = entry.and_then(|entry| entry.zones.as_ref()) else {
                let problem = entry.and_then(|entry| entry.problem.as_ref());
                return Err(not_known(region, problem));
            };
            for zone in zones {
                places.push(Place::from([
                    ("region".to_owned(), region.clone()),
                    ("availabilityZone".to_owned(), zone.clone()),
                ]));
            }
        }
        Ok(places)
    }

    fn is_due(&self, region: &str, now: Timestamp) -> bool {
        let known = self.known();
        let learnt = known.get(region).and_then(|entry| entry.zones.as_ref());
        learnt.is_none_or(|(at, _)| now.millis_since(*at) >= FRESH_MS)
    }

    /// Returns whether that ends a trouble.
    pub(super) fn learn(&self, region: &str, zones: BTreeSet<String>, now: Timestamp) -> bool {
        let mut known = self.known();
        let entry = known.entry(region.to_owned()).or_default();
        entry.zones = Some((now, zones));
        entry.problem.take().is_some()
    }

    /// What was known stays. Returns whether the trouble is new.
    pub(super) fn failed(&self, region: &str, problem: CloudError) -> bool {
        let mut known = self.known();
        let entry = known.entry(region.to_owned()).or_default();
        entry.problem.replace(problem).is_none()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Region>> {
        // What is known is whole after every statement, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AwsProvider {
    /// Asks for zones that are not known, or not any more. What does not answer is told once, and asked again next time.
    pub(super) async fn learn_zones(&self) {
        let now = self.clock.now();
        let Ok(regions) = self.known_regions() else {
            return;
        };
        let mut questions = Vec::new();
        for region in regions.iter() {
            if self.zones.is_due(region, now) {
                questions.push(self.learn_zones_of(region, now));
            }
        }
        side_by_side(questions).await;
    }

    async fn learn_zones_of(&self, region: &str, now: Timestamp) {
        let id = &self.id;
        let answer = self.ask_for_zones(region).await.map_err(CloudError::from);
        let answer = answer.and_then(|zones| match zones.is_empty() {
            // Every region has some: to believe this would be to leave it.
            true => Err(CloudError::Unavailable("EC2 names none".to_owned())),
            false => Ok(zones),
        });
        match answer {
            Ok(zones) => {
                if self.zones.learn(region, zones, now) {
                    tracing::info!(provider.id = %id, "the availability zones of {region} are known again");
                }
            }
            Err(problem) => {
                if self.zones.failed(region, problem.clone()) {
                    tracing::warn!(provider.id = %id, error = %problem,
                        "cannot learn the availability zones of {region}; {id} goes on with those it knew, if any, and asks again: {problem}");
                }
            }
        }
    }

    async fn ask_for_zones(&self, region: &str) -> Result<BTreeSet<String>, Ec2Error> {
        let question = Parameters::default().with_filter(1, "zone-type", [ZONE_TYPE]);
        let answer: DescribeAvailabilityZones = self
            .ec2
            .call(region, "DescribeAvailabilityZones", &question)
            .await?;
        let zones = answer.availability_zone_info.items.into_iter();
        Ok(zones.filter(is_plain).map(|zone| zone.zone_name).collect())
    }
}

/// Where the values belong that places have.
pub(crate) fn fills() -> Fills {
    let zone = "/launchConfig/Placement/AvailabilityZone";
    Fills::from([
        ("region".to_owned(), "/region".to_owned()),
        ("availabilityZone".to_owned(), zone.to_owned()),
    ])
}

/// What stands in for EC2 may not know the filter. A zone that is in trouble (`information`, `impaired`, `unavailable`) is
/// a place all the same: what has been compiled for it stays, and whether it can launch now is not a matter of places.
fn is_plain(zone: &Zone) -> bool {
    let is = |text: &Option<String>, wanted| text.as_deref().is_none_or(|text| text == wanted);
    if zone.zone_state.as_deref() == Some(CLOSED) {
        return false;
    }
    is(&zone.zone_type, ZONE_TYPE) && is(&zone.opt_in_status, "opt-in-not-required")
}

fn not_known(region: &str, problem: Option<&CloudError>) -> PlacesUnknown {
    let why = match problem {
        None => "EC2 has not answered yet; ask again in a few minutes".to_owned(),
        Some(problem @ (CloudError::Credentials(_) | CloudError::Refused(_))) => format!(
            "{problem}; allow ec2:DescribeAvailabilityZones there, or name in the provider's section, as regions, those that it may use"
        ),
        Some(problem @ (CloudError::Throttled(_) | CloudError::Unavailable(_))) => {
            format!("{problem}; it is asked again every few minutes")
        }
    };
    PlacesUnknown(format!(
        "the availability zones of region {region} are not known: {why}"
    ))
}
