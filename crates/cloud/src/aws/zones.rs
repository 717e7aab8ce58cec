//! The availability zones of the provider's regions: the places of its launch configs.
//!
//! Rules ask for places without a call outside, so EC2's answers are kept. If the zones of one
//! region are unknown, all places are: a fleet compiled from some of the places would be removed
//! from the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::{HOUR_MS, Timestamp};

use super::AwsProvider;
use super::error::Ec2Error;
use super::parameters::Parameters;
use super::responses::{DescribeAvailabilityZones, Zone};
use crate::several_calls::run_together;
use crate::{CloudError, Fills, Place, PlacesUnknown};

/// The set-up waits this long for zones. They are not required, and the next refresh asks again.
pub(super) const SETUP_LIMIT: Duration = Duration::from_secs(2);
/// A region's zones are refreshed after this time.
const FRESH_MS: i64 = HOUR_MS;
/// Neither local zones nor Wavelength zones.
const ZONE_TYPE: &str = "availability-zone";
/// The state of zones that accept no machines from accounts without machines there.
const CLOSED: &str = "constrained";

#[derive(Default)]
pub(super) struct Zones(Mutex<BTreeMap<String, RegionZones>>);

#[derive(Default)]
struct RegionZones {
    /// EC2's last answer, and its time.
    zones: Option<(Timestamp, BTreeSet<String>)>,
    /// The error of the last try, if it failed.
    error: Option<CloudError>,
}

impl Zones {
    /// Every zone of these regions; fails for a region whose zones are unknown.
    pub(super) fn places(&self, regions: &BTreeSet<String>) -> Result<Vec<Place>, PlacesUnknown> {
        let known = self.known();
        let mut places = Vec::new();
        for region in regions {
            let entry = known.get(region);
            let Some((_, zones)) = entry.and_then(|entry| entry.zones.as_ref()) else {
                let error = entry.and_then(|entry| entry.error.as_ref());
                return Err(zones_unknown(region, error));
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
        // A negative time: the clock was set back.
        learnt.is_none_or(|(at, _)| !(0..FRESH_MS).contains(&now.millis_since(*at)))
    }

    /// Stores the zones of a region. Returns whether the last try had failed.
    pub(super) fn learn(&self, region: &str, zones: BTreeSet<String>, now: Timestamp) -> bool {
        let mut known = self.known();
        let entry = known.entry(region.to_owned()).or_default();
        entry.zones = Some((now, zones));
        entry.error.take().is_some()
    }

    /// Stores the error of a try and keeps the known zones. Returns whether the try before had
    /// succeeded.
    pub(super) fn failed(&self, region: &str, error: CloudError) -> bool {
        let mut known = self.known();
        let entry = known.entry(region.to_owned()).or_default();
        entry.error.replace(error).is_none()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, RegionZones>> {
        // Every statement leaves the state consistent, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AwsProvider {
    /// Asks for zones that are unknown or old. A failing region is logged once and asked again next
    /// time.
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
        run_together(questions).await;
    }

    async fn learn_zones_of(&self, region: &str, now: Timestamp) {
        let id = &self.id;
        let answer = self.ask_for_zones(region).await.map_err(CloudError::from);
        let answer = answer.and_then(|zones| {
            if zones.is_empty() {
                // Every region has zones. Believing an empty list would remove the fleet from
                // the region.
                Err(CloudError::Unavailable("EC2 lists no zones".to_owned()))
            } else {
                Ok(zones)
            }
        });
        match answer {
            Ok(zones) => {
                if self.zones.learn(region, zones, now) {
                    tracing::info!(provider.id = %id, "the availability zones of {region} are known again");
                }
            }
            Err(error) => {
                if self.zones.failed(region, error.clone()) {
                    tracing::warn!(provider.id = %id, error = %error,
                        "cannot ask for the availability zones of {region}; {id} keeps the known ones, if any, and asks again: {error}");
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

/// Where in a launch config the values of a place belong.
pub(crate) fn fills() -> Fills {
    let zone = "/launchConfig/Placement/AvailabilityZone";
    Fills::from([
        ("region".to_owned(), "/region".to_owned()),
        ("availabilityZone".to_owned(), zone.to_owned()),
    ])
}

/// A substitute for EC2 may ignore the filter, so check its condition here. A zone with a temporary
/// state (`information`, `impaired`, `unavailable`) is a place all the same: launch configs
/// compiled for it stay, and a launch there may fail.
fn is_plain(zone: &Zone) -> bool {
    let is = |text: &Option<String>, wanted| text.as_deref().is_none_or(|text| text == wanted);
    if zone.zone_state.as_deref() == Some(CLOSED) {
        return false;
    }
    is(&zone.zone_type, ZONE_TYPE) && is(&zone.opt_in_status, "opt-in-not-required")
}

fn zones_unknown(region: &str, error: Option<&CloudError>) -> PlacesUnknown {
    let why = match error {
        None => "EC2 has not answered yet, try again in a few minutes".to_owned(),
        Some(error @ (CloudError::Credentials(_) | CloudError::Refused(_))) => format!(
            "{error}; allow ec2:DescribeAvailabilityZones there, or list in `regions` of the provider's section the regions that it may use"
        ),
        Some(error @ (CloudError::Throttled(_) | CloudError::Unavailable(_))) => {
            format!("{error}; the provider asks again every few minutes")
        }
    };
    PlacesUnknown(format!(
        "the availability zones of region {region} are unknown: {why}"
    ))
}
