//! Lists of machines: ours, and those that a Taskcluster's worker manager made.

use super::AwsProvider;
use super::error::Ec2Error;
use super::machines::{instances, page_parameters, sighting};
use super::parameters::Parameters;
use super::responses::{DescribeInstances, Instance, Tag};
use super::row;
use super::tags::{self, CREATED_BY, DEPLOYMENT, MANAGED_BY, PROVIDER, TASKCLUSTER};
use crate::{OwnedMachine, OwnedPage};
use domain::id::LaunchToken;

/// Not those that are shutting down: nothing can stop that.
const NOT_ENDED: [&str; 4] = ["pending", "running", "stopping", "stopped"];

impl AwsProvider {
    /// A page of our machines. Ends those that are stopped.
    pub(super) async fn page_in(
        &self,
        region: &str,
        after: Option<&str>,
    ) -> Result<OwnedPage, Ec2Error> {
        let question = Parameters::default()
            .with_filter(1, &format!("tag:{DEPLOYMENT}"), [&self.root_url])
            .with_filter(2, &format!("tag:{PROVIDER}"), [&self.id]);
        let answer = self.not_ended(region, question, after).await?;
        let found: Vec<&Instance> = instances(&answer.reservation_set.items).collect();
        self.end_stopped(region, found.iter().copied()).await;
        Ok(page(region, answer, |tags| {
            tags::launch_of(tags, &self.root_url, &self.id)
        }))
    }

    pub(super) async fn inherited_in(
        &self,
        region: &str,
        after: Option<&str>,
    ) -> Result<OwnedPage, Ec2Error> {
        let question = Parameters::default()
            .with_filter(1, &format!("tag:{MANAGED_BY}"), [TASKCLUSTER])
            .with_filter(2, &format!("tag:{CREATED_BY}"), [tags::maker(&self.id)]);
        let answer = self.not_ended(region, question, after).await?;
        Ok(page(region, answer, |tags| {
            tags::is_of_taskcluster(tags, &self.id).then_some(None)
        }))
    }

    async fn not_ended(
        &self,
        region: &str,
        question: Parameters,
        after: Option<&str>,
    ) -> Result<DescribeInstances, Ec2Error> {
        let question = question.with_filter(3, "instance-state-name", NOT_ENDED);
        let page = page_parameters(question, after);
        self.ec2.call(region, "DescribeInstances", &page).await
    }
}

/// The machines whose tags `launch_of` knows, with the launch that it returns.
fn page(
    region: &str,
    answer: DescribeInstances,
    launch_of: impl Fn(&[Tag]) -> Option<Option<LaunchToken>>,
) -> OwnedPage {
    let mut machines = Vec::new();
    for reservation in &answer.reservation_set.items {
        for instance in &reservation.instances_set.items {
            let tags = &instance.tag_set.items;
            let Some(token) = launch_of(tags) else {
                continue;
            };
            let groups = &reservation.group_set;
            let machine = row::machine(region, &reservation.owner_id, groups, instance);
            let sighting = sighting(instance);
            machines.extend(machine.map(|machine| OwnedMachine {
                token,
                pool_id: tags::pool_of(tags),
                machine,
                sighting,
            }));
        }
    }
    OwnedPage {
        machines,
        next: answer.next_token.filter(|token| !token.is_empty()),
    }
}
