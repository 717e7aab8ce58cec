//! Volumes that have outlived their machines.
//!
//! Machines and volumes are all that carries our tags. EC2 does not say when a volume was detached,
//! so its age counts.

use super::AwsProvider;
use super::error::Ec2Error;
use super::machines::Page;
use super::parameters::Parameters;
use super::responses::{DescribeVolumes, EmptyResponse, Volume};
use super::tags::{self, DEPLOYMENT, PROVIDER};
use crate::leftovers::{KEEP, Leftover, bounded, is_kept, is_old};
use crate::several_calls::{run_together, successes};
use crate::{CloudError, Region};

impl Page for DescribeVolumes {
    const ACTION: &str = "DescribeVolumes";
    type Item = Volume;

    fn into_items(self) -> (Vec<Volume>, Option<String>) {
        (self.volume_set.items, self.next_token)
    }
}

impl AwsProvider {
    pub(super) async fn remove_volumes(
        &self,
        region: &Region,
    ) -> Result<Vec<Leftover>, CloudError> {
        let Region::Group(group) = region else {
            return Ok(Vec::new());
        };
        let question = Parameters::default()
            .with_filter(1, &format!("tag:{DEPLOYMENT}"), [&self.root_url])
            .with_filter(2, &format!("tag:{PROVIDER}"), [&self.id])
            .with_filter(3, "status", ["available"]);
        let found = self.all_pages::<DescribeVolumes>(group.as_str(), question);
        let mut left = found.await?;
        left.retain(|volume| self.is_left(volume));
        let mut removals = Vec::new();
        for volume in bounded(left) {
            removals.push(self.remove_volume(group.as_str(), volume.volume_id));
        }
        successes(&self.id, run_together(removals).await)
    }

    fn is_left(&self, volume: &Volume) -> bool {
        let tags = &volume.tag_set.items;
        let made = volume
            .create_time
            .as_ref()
            .and_then(|text| text.parse().ok());
        tags::launch_of(tags, &self.root_url, &self.id).is_some()
            && !is_kept(tags::value(tags, KEEP))
            && is_old(made, self.clock.now())
    }

    async fn remove_volume(&self, region: &str, name: String) -> Result<Leftover, Ec2Error> {
        let question = Parameters::default().with("VolumeId", &name);
        match self.ec2.call(region, "DeleteVolume", &question).await {
            Ok(EmptyResponse {}) => {}
            Err(error) if error.has_code(&["InvalidVolume.NotFound"]) => {}
            Err(error) => return Err(error),
        }
        let kind = "volume";
        Ok(Leftover { kind, name })
    }
}
