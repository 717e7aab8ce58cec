//! The events of a chaotic world: people change their minds, and machines fail.

use cloud::{Call, CloudError, FakeCloud, ImageTarget as _, ImageUpload, UploadOutcome};
use domain::id::ImageName;
use domain::launch::Cause;
use serde_json::Map;

use super::snapshot::Snapshot;
use super::world::{ChaosWorld, PROVIDERS};
use crate::world::asker;

impl ChaosWorld {
    pub(super) async fn step(&mut self) {
        match self.chance.below(24) {
            0..=4 => self.person_acts().await,
            5..=9 => self.builder_fails().await,
            10..=13 => self.provider_fails().await,
            14 => self.lose_file(),
            15 => self.late_upload().await,
            16..=17 => {
                let (per_mille, slow) = (self.chance.between(0, 60), self.chance.between(0, 300));
                self.monitor
                    .note(format!("faults {per_mille} per mille, {slow} ms"));
                self.set_faults(per_mille, slow);
            }
            18 => {
                // Faults all that time would only take long.
                self.set_faults(0, 0);
                for seat in &self.seats {
                    if let Some(builder) = &seat.builder {
                        builder.tree.suspend(false);
                    }
                }
                let hours = self.chance.between(1, 7);
                self.pass(hours * 3_600_000).await;
            }
            19 => {
                for seat in 0..self.seats.len() {
                    self.start(seat).await;
                }
            }
            20..=21 => self.build_again_and_again().await,
            _ => self.intrude().await,
        }
        self.act_as_mutant().await;
        let longest = if self.chance.percent(30) {
            600_000
        } else {
            20_000
        };
        self.pass(self.chance.between(0, longest)).await;
    }

    async fn person_acts(&mut self) {
        let names = self.names.clone();
        let name = self.chance.pick(&names).unwrap().clone();
        let asker = asker("chaos");
        match self.chance.below(9) {
            0 | 1 => self.define(&name).await,
            2 => {
                self.undefine(&name).await;
                if self.chance.percent(60) {
                    self.pass(self.chance.between(0, 30_000)).await;
                    self.define(&name).await;
                }
            }
            3 | 4 => {
                self.monitor.note(format!("request {name}"));
                let _ = self.world.images.request_build(&name, &asker).await;
            }
            5 => {
                self.monitor.note(format!("pause {name}"));
                let _ = self.world.images.pause(&name, &asker).await;
            }
            6 => {
                self.monitor.note(format!("resume {name}"));
                let _ = self.world.images.resume(&name).await;
            }
            7 => self.change_build(&name).await,
            _ => {
                let running = self.world.images.image(&name, |it| Some(it.running()?.0));
                if let Some(build) = running.flatten() {
                    self.monitor.note(format!("cancel {name} {build}"));
                    let asked = self.world.images.cancel_build(&name, build, &asker).await;
                    if asked.is_ok() {
                        let now = self.world.clock.now_ms();
                        self.cancelled.insert((name, build), now);
                    }
                }
            }
        }
    }

    /// Pins, unpins or deletes a build.
    async fn change_build(&mut self, name: &ImageName) {
        let shot = Snapshot::read(&self.monitor).await;
        let Some(image) = shot.images.get(name) else {
            return;
        };
        let builds: Vec<_> = image.builds.iter().collect();
        let Some((number, build)) = self.chance.pick(&builds).copied() else {
            return;
        };
        let number = *number;
        if build.is_pinned {
            self.monitor.note(format!("unpin {name} {number}"));
            let _ = self.world.images.unpin(name, number).await;
        } else if self.chance.percent(50) {
            self.monitor.note(format!("pin {name} {number}"));
            let _ = self.world.images.pin(name, number, &asker("chaos")).await;
        } else if let Some(known) = self.known.get_mut(name) {
            self.monitor.note(format!("delete {name} {number}"));
            known.deleted.insert(number);
            // Older ones were removed while this one counted; the next check finds what is left.
            known.good.clear();
            known.pools.named.retain(|(.., build)| *build != number.0);
            self.delete(name, number).await;
        }
    }

    async fn builder_fails(&mut self) {
        let seat = self.chance.below(self.seats.len());
        let Some(builder) = &self.seats[seat].builder else {
            self.start(seat).await;
            return;
        };
        if builder.tree.is_dead() {
            self.kill(seat).await;
            return;
        }
        match self.chance.below(8) {
            0 | 1 => self.kill(seat).await,
            2 | 3 => {
                let n_calls = self.chance.between(0, 60);
                self.monitor
                    .note(format!("b{seat} dies in {n_calls} calls"));
                builder.tree.die_after(n_calls);
            }
            4 if self.is_virtual || self.chance.percent(30) => {
                self.monitor.note(format!("b{seat} loses its session"));
                builder.session.expire().await;
            }
            5 | 7 => self.freeze(seat).await,
            6 => {
                self.monitor.note(format!("stop b{seat}"));
                if let Some(builder) = self.seats[seat].builder.take() {
                    builder.stop().await;
                }
            }
            _ => {}
        }
    }

    /// The connection is lost for a while. Meanwhile the session may end.
    async fn freeze(&mut self, seat: usize) {
        let longest = self.chance.between(1, 60_000);
        self.monitor.note(format!("b{seat} is suspended"));
        if let Some(builder) = &self.seats[seat].builder {
            builder.tree.suspend(true);
        }
        self.pass(self.chance.between(0, longest)).await;
        if let Some(builder) = &self.seats[seat].builder {
            if self.chance.percent(if self.is_virtual { 70 } else { 10 }) {
                self.monitor.note(format!("b{seat} loses its session"));
                builder.session.expire().await;
            }
            self.pass_quietly(self.chance.between(0, 3_000)).await;
            self.monitor.note(format!("b{seat} is connected again"));
            builder.tree.suspend(false);
        }
    }

    async fn provider_fails(&mut self) {
        let provider = *self.chance.pick(&PROVIDERS).unwrap();
        let cloud = self.world.cloud(provider);
        let outcomes = [
            UploadOutcome::Refused(Cause::Quota),
            UploadOutcome::Refused(Cause::Unavailable),
            UploadOutcome::AnswerLost,
            UploadOutcome::CallLost,
            UploadOutcome::HalfDone,
            UploadOutcome::Slow(self.chance.between(1_000, 400_000)),
            UploadOutcome::Made,
            self.lie(&cloud),
        ];
        let n_outcomes = self.chance.between(1, 4);
        for _ in 0..n_outcomes {
            let outcome = self.chance.pick(&outcomes).unwrap().clone();
            self.monitor.note(format!("{provider}: {outcome:?}"));
            cloud.next_uploads([outcome]);
        }
        for call in [Call::DeleteImage, Call::OwnedImages, Call::UploadImage] {
            if self.chance.percent(30) {
                self.monitor.note(format!("{provider}: {call:?} fails"));
                cloud.fail_next(call, CloudError::Unavailable("chaos".to_owned()));
            }
        }
    }

    /// Builds follow each other, and a target may lack some of them.
    async fn build_again_and_again(&mut self) {
        if self.chance.percent(60) {
            let provider = *self.chance.pick(&PROVIDERS).unwrap();
            self.monitor.note(format!("{provider} is down"));
            for _ in 0..self.chance.between(5, 15) {
                let down = CloudError::Unavailable("it is down".to_owned());
                let cloud = self.world.cloud(provider);
                cloud.fail_next(Call::UploadImage, down);
            }
        }
        for _ in 0..self.chance.between(1, 6) {
            for name in self.names.clone() {
                self.monitor.note(format!("request {name}"));
                let asker = asker("chaos");
                let _ = self.world.images.request_build(&name, &asker).await;
            }
            self.pass(self.chance.between(60_000, 900_000)).await;
        }
    }

    /// The target says that an upload is ready as an image that does not exist, or is another's.
    fn lie(&self, cloud: &FakeCloud) -> UploadOutcome {
        let images = cloud.images();
        let other = self
            .chance
            .pick(&images)
            .filter(|_| self.chance.percent(60));
        let external_id = other.map_or("nowhere".to_owned(), |it| it.external_id.clone());
        UploadOutcome::Lie {
            is_found: other.is_some() && self.chance.percent(50),
            external_id,
        }
    }

    fn lose_file(&self) {
        let seat = self.chance.pick(&self.seats).unwrap();
        if let Some(key) = self.chance.pick(&seat.store.keys()) {
            self.monitor.note(format!("lose {key}"));
            seat.store.lose(key);
        }
    }

    /// The request of a dead builder arrives after its record was deleted.
    async fn late_upload(&self) {
        if !self.is_virtual {
            return;
        }
        self.monitor.note("a late upload".to_owned());
        let token = format!("late-{}", self.chance.between(0, 9))
            .parse()
            .unwrap();
        let checksum = cloud::Checksum {
            sha256: "ab".repeat(32),
            size_bytes: 1,
        };
        let upload = ImageUpload {
            token: &token,
            name: "late",
            format: "raw",
            path: None,
            location: None,
            checksum: &checksum,
            region: None,
            options: &Map::new(),
            metadata: &Default::default(),
            progress: &Default::default(),
        };
        let _ = self.world.cloud("fake").upload_image(&upload).await;
    }
}
