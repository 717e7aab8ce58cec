//! The part of servers: they decide which builds machines start from, and pools name the images.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::ImageName;
use domain::image::{
    BuildDecision, BuildView, CanaryMetric, CanarySettings, CanaryStarts, CanaryVerdict,
    GroupEvidence, ImageInUse, RolloutView, Standing, image_in_use, next_rollout_step,
};
use domain::time::Clock as _;

use super::mutants::Mutant;
use super::world::ChaosWorld;

/// Servers look this often at the latest.
const LOOK_MS: i64 = 240_000;
/// The pools of an image may fail to be brought up to date this many times in a row.
const MAX_LATE: u32 = 2;

/// The launch configs of the pools that use an image.
#[derive(Debug, Default)]
pub(super) struct Pools {
    /// The images that launch configs name, with their targets and builds.
    pub(super) named: BTreeSet<(String, String, u64)>,
    n_late: u32,
}

fn starts(known: u32) -> CanaryStarts {
    CanaryStarts { known, all: known }
}

impl ChaosWorld {
    /// Time passes, and servers look at all images from time to time.
    pub(super) async fn pass(&mut self, milliseconds: i64) {
        let mut left = milliseconds;
        while self.is_virtual && left > LOOK_MS {
            self.pass_quietly(LOOK_MS).await;
            left -= LOOK_MS;
            self.look_as_server().await;
        }
        self.pass_quietly(left).await;
        self.look_as_server().await;
    }

    /// Time that is not virtual passes much more slowly than the clock, so launch configs could
    /// name an image for longer than they do.
    async fn look_as_server(&mut self) {
        if !self.is_virtual {
            return;
        }
        self.act_as_mutant().await;
        // Until now, machines started from what launch configs named before.
        for problem in self.missing_images(&self.present_images()) {
            self.monitor.problem(problem);
        }
        for name in self.names.clone() {
            self.decide(&name).await;
            self.refresh_pools(&name);
        }
    }

    /// Takes the next step of a rollout, with a verdict by chance.
    async fn decide(&mut self, name: &ImageName) {
        let now = self.world.clock.now();
        let view = self.world.images.view(name, now);
        let Some(view) = view.filter(|view| view.definition.is_some()) else {
            return;
        };
        let mut standing = view.standing.clone();
        standing.forget_missing(&view.builds);
        let verdict = match self.monitor.is_calm() {
            true => None,
            false => self.verdict(),
        };
        let step = next_rollout_step(&RolloutView {
            builds: &view.builds,
            standing: &standing,
            settings: &CanarySettings::default(),
            verdict: verdict.as_ref(),
            is_expired: true,
        });
        if let Some(step) = step {
            let (action, build) = (step.step.action(), step.build);
            self.monitor.note(format!("{name} {build}: {action}"));
            standing.apply(&step, "fleetwright", now);
        } else if !self.monitor.is_calm() && self.chance.percent(5) {
            self.let_a_person_decide(&mut standing, &view.builds);
        }
        self.write_standing(name, standing).await;
    }

    fn verdict(&self) -> Option<CanaryVerdict> {
        match self.chance.below(self.patience) {
            0 => Some(CanaryVerdict::Promote { starts: starts(60) }),
            1 => Some(CanaryVerdict::RollBack {
                starts: starts(4),
                metric: CanaryMetric::Starts,
                canary: GroupEvidence::default(),
                control: GroupEvidence::default(),
            }),
            2 => Some(CanaryVerdict::Expired {
                starts: starts(0),
                max_seconds: 60,
            }),
            _ => None,
        }
    }

    fn let_a_person_decide(&self, standing: &mut Standing, builds: &[BuildView]) {
        let ready = builds.iter().filter(|build| build.has_ready_upload());
        let ready: Vec<&BuildView> = ready.collect();
        let Some(build) = self.chance.pick(&ready) else {
            return;
        };
        let now = self.world.clock.now();
        let number = build.number;
        if self.chance.percent(50) && standing.promoted.is_some_and(|it| it != number) {
            self.monitor.note(format!("a person tries {number}"));
            standing.try_build(number, now);
        } else {
            self.monitor.note(format!("a person uses {number}"));
            let decision = BuildDecision {
                at: now,
                by: "people/ops".to_owned(),
                reason: "chaos".to_owned(),
                is_passed_over: false,
            };
            standing.use_build(number, builds, decision);
        }
    }

    async fn write_standing(&mut self, name: &ImageName, mut standing: Standing) {
        if self.mutant == Some(Mutant::ForgetsReplaced) {
            standing.replaced.clear();
        }
        let written = self.world.images.mirror_standing(name, &standing).await;
        let view = self.world.images.view(name, self.world.clock.now());
        if written.is_ok()
            && let Some(known) = self.known.get_mut(name)
        {
            // Those that went while the builds that are now rolled back counted went rightly.
            let exists = |number| {
                view.iter()
                    .flat_map(|it| &it.builds)
                    .any(|it| it.number == number)
            };
            known
                .good
                .retain(|build| !standing.rejected.contains(build) && exists(*build));
            known.served.clear();
        }
    }

    /// The launch configs name what machines start from now, unless their pools fail.
    fn refresh_pools(&mut self, name: &ImageName) {
        let now = self.world.clock.now();
        let view = self.world.images.view(name, now);
        let Some(known) = self.known.get_mut(name) else {
            return;
        };
        let is_late = known.pools.n_late < MAX_LATE && self.chance.percent(20);
        known.pools.n_late = if is_late { known.pools.n_late + 1 } else { 0 };
        let Some(view) = view.filter(|_| !is_late) else {
            return;
        };
        let Some(definition) = view.definition else {
            return;
        };
        known.pools.named.clear();
        for target in &definition.uploads {
            let ImageInUse { in_use, canary } =
                image_in_use(&view.builds, &target.id, &view.standing);
            let images = in_use.into_iter().chain(canary);
            known.pools.named.extend(
                images.map(|image| (target.id.to_string(), image.external_id, image.build.0)),
            );
        }
    }

    /// The images that launch configs name and that do not exist.
    pub(super) fn missing_images(&self, present: &BTreeSet<(String, String)>) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, known) in &self.known {
            for (target, id, build) in &known.pools.named {
                if !present.contains(&(target.clone(), id.clone())) {
                    problems.push(format!(
                        "I17: machines of {target} start from {name} {build}, but {id} was deleted"
                    ));
                }
            }
        }
        problems
    }
}

/// Two uploads of one image: the deletion of one would be that of the other.
pub(super) fn shared_images<'a>(
    ready: impl Iterator<Item = (String, &'a str, &'a str)>,
) -> Vec<String> {
    let mut owners: BTreeMap<(&str, &str), String> = BTreeMap::new();
    let mut problems = Vec::new();
    for (build, target, id) in ready {
        if let Some(other) = owners
            .insert((target, id), build.clone())
            .filter(|it| *it != build)
        {
            problems.push(format!(
                "I17: {other} and {build} are both {id} at {target}"
            ));
        }
    }
    problems
}
