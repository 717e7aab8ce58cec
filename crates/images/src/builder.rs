//! A builder: looks at images that changed, decides, and does its part.
//!
//! All builders see the same tree and decide the same. For each step, they have an order among
//! themselves: the first one starts at once, the next ones a little later, if nobody has the lock.
//! The lock decides who does it.

mod agenda;
mod build_job;
mod claims;
mod commands;
mod disk;
mod job;
mod make;
mod search;
mod tidy_job;
mod upload_job;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use async_trait::async_trait;
use backplane::tree::{Membership, TreeError, rank};
use cloud::image::{ArtifactStore, Confinement, ProvenanceKey};
use cloud::{Provider, Providers};
use domain::id::{ImageName, ProviderId};
use domain::image::{Leftover, Step, UploadTargetId};
use domain::time::Clock;
use tokio::sync::Mutex;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::agenda::{Agenda, Job, Kind};
pub use self::commands::{Commands, RunningCommand};
use self::disk::Disk;
pub use self::disk::folder_store_name;
use self::job::{JobError, JobOutcome};
use self::search::Unknown;
use crate::image_tree::{BuilderNode, ImageTree, OwnedView};
use crate::live_builds::LiveBuilds;
use crate::paths::Place;

/// Each builder after the first waits this much longer before it tries to take a step.
const STAGGER: Duration = Duration::from_millis(30);
const MAX_STAGGER: Duration = Duration::from_secs(1);
/// Pause after a job that could not be done: it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Deletions and notes at once.
const TIDY_SLOTS: usize = 8;
/// How often the builder looks which providers are in service.
const ROUND: Duration = Duration::from_secs(10);
/// Forgotten files are searched every this many rounds.
const SWEEP_ROUNDS: u32 = 60;

/// The settings of a builder.
#[derive(Clone, Debug)]
pub struct BuilderSettings {
    /// No other process has this name.
    pub name: String,
    pub host: String,
    pub folder: PathBuf,
    /// Builds side by side.
    pub build_slots: usize,
    pub upload_slots: usize,
    pub labels: BTreeSet<String>,
    pub max_log_bytes: u64,
    /// Time that the processes of a build have to end after SIGTERM.
    pub grace: Duration,
    /// An upload that takes longer has failed.
    pub upload_limit: Duration,
    /// Where servers read logs; empty: they cannot.
    pub address: String,
    /// The root URL of the deployment.
    pub deployment: String,
    /// Where the values of secrets are, by their names.
    pub secrets: BTreeMap<String, SecretFile>,
    /// As whom builds run, and what they may not do.
    pub confinement: Confinement,
}

/// A file with the value of a secret.
#[derive(Clone, Debug)]
pub struct SecretFile {
    pub path: PathBuf,
    /// The build gets it as a file, not as a variable.
    pub as_file: bool,
    /// The images that may use it; `None`: all.
    pub images: Option<BTreeSet<String>>,
}

/// The parts of the program that a builder works with.
pub struct BuilderParts {
    pub images: Arc<ImageTree>,
    pub clock: Arc<dyn Clock>,
    pub targets: Arc<dyn Targets>,
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Identifies the artifact store: all builders that use it have the same name for it.
    pub artifacts_name: String,
    pub key: ProvenanceKey,
    pub commands: Arc<dyn Commands>,
    /// Reads the secrets service of the deployment.
    pub secrets: Arc<dyn SecretsReader>,
    pub live: LiveBuilds,
}

/// Reads secrets of the secrets service for builds.
#[async_trait]
pub trait SecretsReader: Send + Sync {
    /// The value of a secret: an object, as JSON. The error is for people, and has no value.
    async fn read(&self, image: &ImageName, secret: &str) -> Result<Secret, String>;
}

/// The providers that take images.
pub trait Targets: Send + Sync {
    /// Those that are in service now.
    fn ids(&self) -> BTreeSet<ProviderId>;

    fn get(&self, id: &ProviderId) -> Option<Arc<dyn Provider>>;
}

#[derive(Debug, thiserror::Error)]
pub enum BuilderError {
    #[error("another builder uses the folder {}: give each its own `images.folder`", .0.display())]
    FolderInUse(PathBuf),
    #[error("{}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(
        "user {user} of `images.user` cannot enter {}: let this user in (chmod o+x), or set \
         `images.folder` to a folder that the user can reach, such as /var/lib/fleetwright-builds",
        folder.display()
    )]
    Closed { user: String, folder: PathBuf },
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Builds and uploads images until it is stopped.
pub struct Builder {
    parts: BuilderParts,
    settings: BuilderSettings,
    disk: Disk,
    stop: CancellationToken,
}

impl Targets for Providers {
    fn ids(&self) -> BTreeSet<ProviderId> {
        let takes_images = |(id, provider): (&ProviderId, Result<&Arc<dyn Provider>, _>)| {
            provider.ok()?.images()?;
            Some(id.clone())
        };
        self.all().filter_map(takes_images).collect()
    }

    fn get(&self, id: &ProviderId) -> Option<Arc<dyn Provider>> {
        Self::get(self, id).ok().cloned()
    }
}

impl BuilderError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Folder {
            path: path.clone(),
            error,
        }
    }
}

impl SecretFile {
    /// Whether a build of this image may get it.
    pub fn is_for(&self, image: &ImageName) -> bool {
        let images = self.images.as_ref();
        images.is_none_or(|images| images.contains(image.as_str()))
    }

    /// The value, without the line end of the file.
    fn read(&self) -> io::Result<Secret> {
        let text = std::fs::read_to_string(&self.path)?;
        Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
    }
}

impl Builder {
    /// Takes the builder's folder. Removes what an earlier run left in it.
    pub async fn open(
        parts: BuilderParts,
        settings: BuilderSettings,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, BuilderError> {
        let account = settings.confinement.account.as_ref();
        let disk = Disk::open(&settings.folder, account).await?;
        parts.live.set_builder(&settings.name);
        Ok(Arc::new(Self {
            parts,
            settings,
            disk,
            stop,
        }))
    }

    /// Works until it is stopped, and ends running builds then.
    pub async fn run(self: &Arc<Self>) -> Result<(), BuilderError> {
        let mut registered = self.node();
        let path = Place::Builder(self.settings.name.clone()).path();
        let path = path.map_err(TreeError::from)?;
        let membership =
            Membership::join_at(self.images().tree(), path, text(&registered)?).await?;
        let mut revision = self.images().revision();
        let mut work = Work {
            builder: Arc::clone(self),
            agenda: Agenda::default(),
            running: BTreeSet::new(),
            jobs: JoinSet::new(),
            tasks: HashMap::new(),
            seen: 0,
            unknown: Arc::default(),
            search: None,
        };
        let (mut next_round, mut n_rounds) = (Instant::now(), 0_u32);
        while !self.stop.is_cancelled() {
            if Instant::now() >= next_round {
                next_round = Instant::now() + ROUND;
                let current = self.node();
                if current != registered {
                    membership.replace(text(&current)?);
                    registered = current;
                }
                if let Some(moment) = Instant::now().checked_sub(LONGEST_PAUSE) {
                    work.agenda.forget_before(moment);
                }
                n_rounds += 1;
                if n_rounds % SWEEP_ROUNDS == 1 {
                    work.sweep();
                }
            }
            work.consider_changes();
            work.start_jobs();
            let next = work.next().map_or(next_round, |next| next.min(next_round));
            tokio::select! {
                () = self.stop.cancelled() => {}
                _ = revision.changed() => {}
                Some(ended) = work.jobs.join_next_with_id() => work.note(ended),
                () = tokio::time::sleep_until(next) => {}
            }
        }
        while let Some(ended) = work.jobs.join_next_with_id().await {
            work.note(ended);
        }
        // If this fails, the node ends with the session.
        let _ = membership.leave().await;
        Ok(())
    }

    fn images(&self) -> &Arc<ImageTree> {
        &self.parts.images
    }

    fn node(&self) -> BuilderNode {
        let settings = &self.settings;
        BuilderNode {
            host: settings.host.clone(),
            builder_id: self.disk.id.clone(),
            labels: settings.labels.clone(),
            slots: settings.build_slots,
            artifacts: [self.parts.artifacts_name.clone(), self.disk.store_name()].into(),
            providers: self.parts.targets.ids(),
            address: settings.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The place of this builder among those that can take a step; `None`: it cannot.
    fn rank<'a>(&self, key: &str, able: impl IntoIterator<Item = &'a str>) -> Option<usize> {
        rank(key, &self.settings.name, able)
    }

    /// The builders that can upload to a provider.
    fn with_provider(&self, provider: &ProviderId) -> Vec<String> {
        let builders = self.images().builders();
        let able = builders
            .into_iter()
            .filter(|(_, it)| it.providers.contains(provider));
        able.map(|(name, _)| name).collect()
    }
}

fn text(node: &BuilderNode) -> Result<Vec<u8>, TreeError> {
    serde_json::to_vec(node).map_err(|error| TreeError::Unexpected(error.to_string()))
}

/// The jobs of a builder that runs.
struct Work {
    builder: Arc<Builder>,
    agenda: Agenda,
    running: BTreeSet<Job>,
    jobs: JoinSet<JobOutcome>,
    tasks: HashMap<Id, Job>,
    /// The revision of the copy up to which changes were considered.
    seen: u64,
    /// Files that the last search did not find in the tree.
    unknown: Arc<Mutex<Unknown>>,
    search: Option<AbortOnDropHandle<()>>,
}

impl Work {
    fn consider_changes(&mut self) {
        let changes = self.builder.images().changed_since(self.seen);
        self.seen = changes.revision;
        for image in changes.images {
            self.consider(&image);
        }
        let now = Instant::now();
        while let Some(image) = self.agenda.take_look(now) {
            self.consider(&image);
        }
    }

    /// Decides the next steps of an image, and which of them are ours.
    fn consider(&mut self, image: &ImageName) {
        let builder = Arc::clone(&self.builder);
        let now = builder.parts.clock.now();
        let Some(view) = builder.images().view(image, now) else {
            self.agenda.replace(image, Vec::new());
            self.agenda.look_at(image, None);
            self.agenda.forget(image);
            return;
        };
        let (mut wanted, mut look) = (Vec::new(), None);
        let start = Instant::now();
        for step in view.steps() {
            if let Step::Wait { until, .. } = &step {
                look = [look, *until].into_iter().flatten().min();
                continue;
            }
            let Some((job, rank)) = job_of(&builder, &view, step) else {
                continue;
            };
            if !self.running.contains(&job) {
                wanted.push((job, start + stagger(rank)));
            }
        }
        self.agenda.replace(image, wanted);
        let look = look.map(|until| {
            let ms = u64::try_from(until.millis_since(now)).unwrap_or(0);
            start + Duration::from_millis(ms.saturating_add(1))
        });
        self.agenda.look_at(image, look);
    }

    fn slots(&self, kind: Kind) -> usize {
        let settings = &self.builder.settings;
        let limit = match kind {
            Kind::Build => settings.build_slots,
            Kind::Upload => settings.upload_slots,
            Kind::Tidy => TIDY_SLOTS,
        };
        let running = self.running.iter().filter(|job| job.kind() == kind);
        limit.saturating_sub(running.count())
    }

    fn start_jobs(&mut self) {
        let now = Instant::now();
        for kind in [Kind::Tidy, Kind::Upload, Kind::Build] {
            for _ in 0..self.slots(kind) {
                let Some(job) = self.agenda.take(kind, now) else {
                    break;
                };
                self.running.insert(job.clone());
                let (builder, own) = (Arc::clone(&self.builder), job.clone());
                let task = self
                    .jobs
                    .spawn(async move { builder.carry_out(&own).await });
                self.tasks.insert(task.id(), job);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let kinds = [Kind::Build, Kind::Upload, Kind::Tidy];
        let free: Vec<Kind> = kinds
            .into_iter()
            .filter(|kind| self.slots(*kind) > 0)
            .collect();
        self.agenda.next(&free)
    }

    fn note(&mut self, ended: Result<(Id, JobOutcome), JoinError>) {
        let (id, result) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(JobError::Other(error.to_string()))),
        };
        let Some(job) = self.tasks.remove(&id) else {
            return;
        };
        self.running.remove(&job);
        let pause = |n_failures: u32| Instant::now() + pause(n_failures);
        match &result {
            Ok(()) => {
                self.agenda.ended(&job, None::<fn(u32) -> Instant>);
                // If it still seems to be wanted, the copy of the tree is behind.
                if job.kind() != Kind::Build {
                    self.agenda.postpone(&job, Instant::now() + FIRST_PAUSE);
                }
            }
            Err(error) if error.is_contention() => {
                error.log(&job);
                self.agenda.postpone(&job, Instant::now() + FIRST_PAUSE);
            }
            Err(error) => {
                error.log(&job);
                self.agenda.ended(&job, Some(pause));
            }
        }
        let image = job.image().clone();
        self.consider(&image);
    }

    /// Searches for forgotten files and images. If the last search still runs, it goes on instead.
    fn sweep(&mut self) {
        if self.search.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let (builder, unknown) = (Arc::clone(&self.builder), Arc::clone(&self.unknown));
        self.search = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut unknown = unknown.lock().await;
            *unknown = builder.remove_unknown(&unknown).await;
        })));
    }
}

/// The job of a step for this builder, and its place in the order of builders.
fn job_of(builder: &Builder, view: &OwnedView, step: Step) -> Option<(Job, usize)> {
    let image = view.name.clone();
    let live = || view.builders.iter().map(|builder| builder.name.as_str());
    match step {
        Step::Build { builders, .. } => {
            let rank = builder.rank(image.as_str(), builders.iter().map(String::as_str))?;
            Some((Job::Build(image), rank))
        }
        Step::Upload {
            build,
            target,
            builders,
            ..
        } => {
            let rank = rank_for_upload(builder, &image, &target, builders)?;
            Some((Job::Upload(image, build, target), rank))
        }
        Step::Wait { .. } => None,
        Step::DeleteUpload { ref target, .. } => {
            let able = builder.with_provider(&target.provider_id);
            let rank = builder.rank(image.as_str(), able.iter().map(String::as_str))?;
            Some((tidy(image, &step), rank))
        }
        Step::RemoveLeftover(Leftover::Build(number)) => {
            let rank = match builder.reaching(view, number) {
                reaching if reaching.is_empty() => builder.rank(image.as_str(), live()),
                reaching => builder.rank(image.as_str(), reaching.iter().map(String::as_str)),
            };
            Some((tidy(image, &step), rank?))
        }
        Step::MarkBuildAbandoned { .. }
        | Step::MarkUploadAbandoned { .. }
        | Step::DeleteBuild { .. }
        | Step::RemoveLeftover(_)
        | Step::ClearRequest { .. } => {
            let rank = builder.rank(image.as_str(), live())?;
            Some((tidy(image, &step), rank))
        }
    }
}

fn tidy(image: ImageName, step: &Step) -> Job {
    Job::Tidy(image, format!("{step:?}"))
}

fn rank_for_upload(
    builder: &Builder,
    image: &ImageName,
    target: &UploadTargetId,
    mut builders: Vec<String>,
) -> Option<usize> {
    let able = builder.with_provider(&target.provider_id);
    builders.retain(|name| able.contains(name));
    builder.rank(
        &format!("{image} {target}"),
        builders.iter().map(String::as_str),
    )
}

fn stagger(rank: usize) -> Duration {
    let times = u32::try_from(rank).unwrap_or(u32::MAX);
    STAGGER.saturating_mul(times).min(MAX_STAGGER)
}

fn pause(n_failures: u32) -> Duration {
    let doublings = n_failures.saturating_sub(1).min(16);
    FIRST_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE)
}
