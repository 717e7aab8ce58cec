//! Questions to a provider about one machine that is made for them.

use std::collections::BTreeSet;

use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::pool::Pool;
use domain::worker::{NewWorker, Terms, Worker};
use serde_json::Value;

use super::finding::{
    ConformanceHost, ProviderQuestion as Question, answer, limited, not_applicable,
};
use crate::{LaunchOrder, LaunchedMachine, Machines, OwnedMachine, Sighting};

/// Questions that have no answer without a machine.
const WITHOUT_MACHINE: [Question; 6] = [
    Question::SecondLaunch,
    Question::Alive,
    Question::Listed,
    Question::End,
    Question::SecondEnd,
    Question::Gone,
];

/// The one machine, before it is made.
pub(super) struct MachineRun<'a> {
    pub(super) machines: &'a dyn Machines,
    pub(super) host: &'a dyn ConformanceHost,
    pub(super) provider_id: &'a ProviderId,
    pub(super) token: &'a LaunchToken,
    pub(super) pool: &'a Pool,
    pub(super) launch_config: &'a LaunchConfig,
    pub(super) bid: &'a Bid,
    pub(super) pool_data: &'a Value,
    pub(super) root_url: &'a str,
}

impl MachineRun<'_> {
    /// Makes the machine, asks about it, and ends it whatever the answers are.
    pub(super) async fn ask(&self) {
        let made = self.launch().await;
        let mut workers = match &made {
            Ok(machines) => self.rows(machines.clone()),
            // The answer may be lost, and the machine be made.
            Err(_) => self.forgotten().await,
        };
        let launched = made.and_then(|machines| match machines.as_slice() {
            [machine] => Ok(format!("{}/{}", machine.group, machine.id)),
            [] => Err("it made no machine and gave no reason".to_owned()),
            _ => Err(format!("it made {} machines", machines.len())),
        });
        let has_launched = launched.is_ok();
        answer(self.host, Question::Launch, launched);
        if workers.is_empty() {
            for question in WITHOUT_MACHINE {
                not_applicable(self.host, question, "it made no machine");
            }
            return;
        }
        if has_launched {
            let again = self.second_launch(&mut workers).await;
            answer(self.host, Question::SecondLaunch, again);
        } else {
            not_applicable(self.host, Question::SecondLaunch, "the first order failed");
        }
        answer(self.host, Question::Alive, self.alive(&workers).await);
        answer(self.host, Question::Listed, self.listed(&workers).await);
        self.host.begin_end();
        answer(self.host, Question::End, self.end(&workers).await);
        answer(self.host, Question::SecondEnd, self.end(&workers).await);
        answer(self.host, Question::Gone, self.gone(workers).await);
    }

    async fn launch(&self) -> Result<Vec<LaunchedMachine>, String> {
        let order = LaunchOrder {
            token: self.token,
            pool: self.pool,
            launch_config: self.launch_config,
            machines: 1,
            capacity_each: self.bid.capacity_each.unwrap_or(1),
            max_price: None,
            price: self.bid.price,
            bid_data: &self.bid.data,
            pool_data: self.pool_data,
            root_url: self.root_url,
            now: self.host.now(),
        };
        limited(self.machines.launch(&order)).await
    }

    /// The machines that an order without an answer made.
    async fn forgotten(&self) -> Vec<Worker> {
        let owned = self.own().await.unwrap_or_default();
        self.rows(owned.into_iter().map(|it| it.machine).collect())
    }

    /// Machines that the second order made beside the first are ended, too.
    async fn second_launch(&self, workers: &mut Vec<Worker>) -> Result<String, String> {
        let again = self.launch().await?;
        let known: Vec<WorkerKey> = workers.iter().map(|it| it.key.clone()).collect();
        let mut others = self.rows(again.clone());
        others.retain(|it| !known.contains(&it.key));
        let first = others.first().map(|it| it.key.clone());
        workers.extend(others);
        match first {
            Some(key) => Err(format!("it made another one: {}/{}", key.group, key.id)),
            None if again.is_empty() => Err("it returned no machine".to_owned()),
            None => Ok("it returned the same machine".to_owned()),
        }
    }

    async fn alive(&self, workers: &[Worker]) -> Result<String, String> {
        loop {
            let seen = limited(self.machines.look(workers)).await?;
            let ended = seen.iter().find(|(_, sighting)| has_ended(sighting));
            if let Some((key, Sighting::Ended(_))) = ended {
                return Err(format!("{}/{} has ended by itself", key.group, key.id));
            }
            let is_alive = |worker: &Worker| {
                let mut seen = seen.iter();
                seen.any(|(key, it)| *key == worker.key && *it == Sighting::Alive)
            };
            if workers.iter().all(is_alive) {
                return Ok("alive".to_owned());
            }
            if !self.host.wait().await {
                let last = seen.first().map(|(_, sighting)| sighting);
                return Err(format!("it was not seen alive in time; last: {last:?}"));
            }
        }
    }

    async fn listed(&self, workers: &[Worker]) -> Result<String, String> {
        loop {
            let own = self.own().await?;
            let is_listed = |worker: &Worker| {
                let mut own = own.iter();
                own.any(|it| {
                    (&it.machine.group, &it.machine.id) == (&worker.key.group, &worker.key.id)
                })
            };
            if own.len() > workers.len() {
                return Err(format!(
                    "its list has {} machines with the token",
                    own.len()
                ));
            }
            if workers.iter().all(is_listed) {
                return Ok("with the token".to_owned());
            }
            if !self.host.wait().await {
                return Err("its list did not have the machine with the token in time".to_owned());
            }
        }
    }

    async fn end(&self, workers: &[Worker]) -> Result<String, String> {
        for worker in workers {
            limited(self.machines.end(worker)).await?;
        }
        Ok("yes".to_owned())
    }

    /// Ends them repeatedly, as the server does, until they have left the list.
    async fn gone(&self, mut workers: Vec<Worker>) -> Result<String, String> {
        loop {
            let own = self.own().await;
            // The machine of an order without an answer is found here at last.
            if let Ok(own) = &own {
                let mut others = self.rows(own.iter().map(|it| it.machine.clone()).collect());
                others.retain(|it| workers.iter().all(|known| known.key != it.key));
                workers.extend(others);
            }
            let seen = limited(self.machines.look(&workers)).await;
            if let (Ok(own), Ok(seen)) = (&own, &seen)
                && own
                    .iter()
                    .all(|it| it.sighting.as_ref().is_some_and(has_ended))
                && seen.iter().all(|(_, sighting)| has_ended(sighting))
            {
                return Ok("yes".to_owned());
            }
            if !self.host.wait().await {
                let problem = own.err().or_else(|| seen.err());
                return Err(problem.unwrap_or_else(|| "it is still there".to_owned()));
            }
            // A failure shows in the next look.
            let _tried = self.end(&workers).await;
        }
    }

    /// The machines with the token. A list may have one more than once.
    async fn own(&self) -> Result<Vec<OwnedMachine>, String> {
        let mut own = limited(self.machines.owned()).await?.machines;
        let mut names = BTreeSet::new();
        own.retain(|it| {
            let name = (it.machine.group.clone(), it.machine.id.clone());
            it.token.as_ref() == Some(self.token) && names.insert(name)
        });
        Ok(own)
    }

    fn rows(&self, machines: Vec<LaunchedMachine>) -> Vec<Worker> {
        let row = |machine| self.row(machine);
        machines.into_iter().map(row).collect()
    }

    /// The machine as the worker that its provider looks at and ends.
    fn row(&self, machine: LaunchedMachine) -> Worker {
        let now = self.host.now();
        let new = NewWorker {
            key: machine.key(self.pool.id.clone()),
            provider_id: self.provider_id.clone(),
            launch_config_id: Some(self.launch_config.id.clone()),
            capacity: 1,
            price: self.bid.price,
            expires: now.plus_millis(Worker::DEFAULT_LIFE_MS),
            terms: Terms::default(),
            provider_data: machine.provider_data,
        };
        new.request(now)
    }
}

fn has_ended(sighting: &Sighting) -> bool {
    match sighting {
        Sighting::Ended(_) | Sighting::NotFound => true,
        Sighting::Alive | Sighting::Ending => false,
    }
}
