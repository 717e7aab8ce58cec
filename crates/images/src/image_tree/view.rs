//! The facts about an image, for the decision what to do next.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{ImageName, ProviderId};
use domain::image::{
    BuildBudget, BuildNumber, BuildRecord, BuildRequest, BuildView, FileReach, HeldLock,
    ImageDefinition, ImagePause, ImageView, LiveBuilder, Standing, Step, UploadTargetId,
    UploadView, next_build, next_steps,
};
use domain::time::Timestamp;

use super::ImageTree;
use super::known::Known;
use super::node::{BuildNode, BuilderNode, ImageNode, Note, TargetNode};

/// The facts about an image at one moment.
#[derive(Clone, Debug)]
pub struct OwnedView {
    pub name: ImageName,
    pub definition: Option<ImageDefinition>,
    pub builds: Vec<BuildView>,
    pub build_lock: Option<HeldLock>,
    pub request: Option<BuildRequest>,
    pub pause: Option<ImagePause>,
    pub pinned: BTreeSet<BuildNumber>,
    pub standing: Standing,
    pub builders: Vec<LiveBuilder>,
    pub providers: BTreeSet<ProviderId>,
    pub now: Timestamp,
}

impl ImageTree {
    /// The facts about an image; `None`: the tree has no such image, or nothing is to be done with
    /// it because of a problem.
    pub fn view(&self, name: &ImageName, now: Timestamp) -> Option<OwnedView> {
        let known = self.known();
        let image = known.images.get(name)?;
        if image.problem().is_some() {
            return None;
        }
        Some(OwnedView::of(&known, name, image, now))
    }

    /// The same for a server, which knows by itself which builds are in use.
    pub fn view_of_server(&self, name: &ImageName, now: Timestamp) -> Option<OwnedView> {
        let known = self.known();
        let image = known.images.get(name)?;
        if image.problem_without_standing().is_some() {
            return None;
        }
        Some(OwnedView::of(&known, name, image, now))
    }
}

impl OwnedView {
    fn of(known: &Known, name: &ImageName, image: &ImageNode, now: Timestamp) -> Self {
        let mirrored = image.definition.as_ref();
        let builds = image.builds.iter();
        let builds = builds.map(|(number, build)| view_of_build(*number, build, &known.builders));
        let pinned = image.builds.iter().filter(|(_, build)| build.pin.is_some());
        Self {
            name: name.clone(),
            definition: mirrored.map(|mirrored| mirrored.definition.clone()),
            builds: builds.collect(),
            build_lock: image.build_lock(),
            request: image.request.as_ref().map(|note| BuildRequest {
                at: note.at,
                by: note.by.clone(),
                reason: note.reason.clone(),
            }),
            pause: image
                .pause
                .as_ref()
                .map(|Note { by, reason, .. }| ImagePause {
                    by: by.clone(),
                    reason: reason.clone(),
                }),
            pinned: pinned.map(|(number, _)| *number).collect(),
            standing: image.standing.clone(),
            builders: live_builders(known),
            providers: match &known.providers {
                Some(providers) => providers.clone(),
                None => named_providers(image),
            },
            now,
        }
    }

    pub fn steps(&self) -> Vec<Step> {
        next_steps(&self.borrowed())
    }

    /// The build that can be made now, or why none is. `None`: the image was removed.
    pub fn next_build(&self) -> Option<Step> {
        next_build(&self.borrowed())
    }

    fn borrowed(&self) -> ImageView<'_> {
        ImageView {
            name: &self.name,
            definition: self.definition.as_ref(),
            builds: &self.builds,
            build_lock: self.build_lock.as_ref(),
            request: self.request.as_ref(),
            pause: self.pause.as_ref(),
            pinned: &self.pinned,
            standing: &self.standing,
            builders: &self.builders,
            providers: &self.providers,
            // Each builder limits its own builds.
            budget: BuildBudget {
                running: 0,
                limit: usize::MAX,
            },
            now: self.now,
        }
    }

    /// The view as if the caller did not hold the lock of builds.
    #[must_use]
    pub fn without_build_lock(mut self, fence: u64) -> Self {
        self.build_lock = self.build_lock.filter(|lock| lock.fence != fence);
        self
    }

    /// The view as if unfinished builds were marked as abandoned.
    #[must_use]
    pub fn with_abandoned_builds(mut self) -> Self {
        for build in &mut self.builds {
            let abandoned = build.record.clone().map(|record| record.abandon(self.now));
            if let Some(Ok(record)) = abandoned {
                build.record = Some(record);
            }
        }
        self
    }

    /// The view as if the caller did not hold the lock of these uploads.
    #[must_use]
    pub fn without_upload_lock(
        mut self,
        build: BuildNumber,
        target: &UploadTargetId,
        fence: u64,
    ) -> Self {
        let mut builds = self.builds.iter_mut();
        if let Some(build) = builds.find(|it| it.number == build)
            && build
                .upload_locks
                .get(target)
                .is_some_and(|lock| lock.fence == fence)
        {
            build.upload_locks.remove(target);
        }
        self
    }

    pub fn build(&self, number: BuildNumber) -> Option<&BuildRecord> {
        let build = self.builds.iter().find(|build| build.number == number)?;
        build.record.as_ref()
    }
}

/// The providers that the image names. They count as configured until a server says more, so that
/// no record of an upload is taken for a leftover.
fn named_providers(image: &ImageNode) -> BTreeSet<ProviderId> {
    let uploaded = image.builds.values().flat_map(|it| it.targets.keys());
    let defined = image
        .definition
        .iter()
        .flat_map(|it| &it.definition.uploads);
    let targets = uploaded.chain(defined.map(|target| &target.id));
    targets.map(|target| target.provider_id.clone()).collect()
}

fn view_of_build(
    number: BuildNumber,
    build: &BuildNode,
    builders: &BTreeMap<String, BuilderNode>,
) -> BuildView {
    let uploads = build
        .targets
        .iter()
        .flat_map(|(target, node)| views_of_uploads(target, node));
    let locks = build.targets.iter();
    let locks = locks.filter_map(|(target, node)| Some((target.clone(), node.lock()?)));
    BuildView {
        number,
        record: build.record.clone(),
        is_cancelled: build.cancel.is_some(),
        files: files(build.record.as_ref(), builders),
        uploads: uploads.collect(),
        upload_locks: locks.collect(),
    }
}

fn views_of_uploads(target: &UploadTargetId, node: &TargetNode) -> Vec<UploadView> {
    let uploads = node.uploads.iter().map(|(number, upload)| UploadView {
        number: *number,
        target: target.clone(),
        record: upload.record.clone(),
    });
    uploads.collect()
}

/// The builders that reach the files of the build.
fn files(record: Option<&BuildRecord>, builders: &BTreeMap<String, BuilderNode>) -> FileReach {
    let store = record.and_then(|record| record.artifacts.as_ref());
    let reaching = builders
        .iter()
        .filter(|(_, builder)| store.is_some_and(|store| builder.artifacts.contains(store)));
    FileReach {
        is_shared: false,
        builders: reaching.map(|(name, _)| name.clone()).collect(),
    }
}

fn live_builders(known: &Known) -> Vec<LiveBuilder> {
    let builders = known.builders.iter().map(|(name, builder)| LiveBuilder {
        name: name.clone(),
        labels: builder.labels.clone(),
        is_busy: false,
    });
    builders.collect()
}
