//! Pages of machines.

use std::collections::BTreeSet;

use super::inventory::Machine;
use super::{Call, FakeCloud, launched};
use crate::{CloudError, OwnedMachine, OwnedPage, Region, Sighting};

impl FakeCloud {
    /// A page of the machines in a region that have not ended and that are wanted.
    pub(super) async fn page(
        &self,
        region: &Region,
        after: Option<&str>,
        call: Call,
        is_wanted: fn(&Machine) -> bool,
    ) -> Result<OwnedPage, CloudError> {
        let Region::Group(group) = region else {
            return Ok(OwnedPage::default());
        };
        self.wait_while_hanging(BTreeSet::from([group.clone()]), call)
            .await;
        let mut state = self.state();
        state.begin(call)?;
        if let Some(error) = state.unlisted.get(group) {
            return Err(error.clone());
        }
        let at = state.as_of(self.now());
        let owned = |machine: &Machine| {
            let sighting = machine.seen(at);
            let exists = matches!(sighting, Sighting::Alive | Sighting::Ending);
            let is_wanted = machine.key.group == *group && is_wanted(machine);
            (exists && is_wanted).then(|| OwnedMachine {
                token: machine.token.clone(),
                pool_id: Some(machine.key.pool_id.clone()),
                machine: launched(machine),
                sighting: (!state.omits_sightings).then_some(sighting),
            })
        };
        let answer = state.inventory.all().filter_map(owned).collect();
        let mut answer = state.repeat_if_scripted(answer);
        let Some(size) = state.page_size else {
            return Ok(OwnedPage::only(answer));
        };
        answer.sort_by(|one: &OwnedMachine, other| one.machine.id.cmp(&other.machine.id));
        let begin = after.and_then(|after| after.parse().ok()).unwrap_or(0);
        let end = begin + size;
        Ok(OwnedPage {
            next: (answer.len() > end).then(|| end.to_string()),
            machines: answer.into_iter().skip(begin).take(size).collect(),
        })
    }
}
