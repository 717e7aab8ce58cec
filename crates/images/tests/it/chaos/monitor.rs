//! Watches what builders do while they do it, and notes what must not happen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use backplane::tree::{Op, Tree, TreePath, lock_path};
use domain::id::ImageName;
use domain::image::{
    BuildFailureCause, BuildNumber, BuildRecord, BuildState, UploadRecord, UploadState,
};
use images::Place;

/// Shared by all builders of a world.
pub(super) struct Monitor {
    /// A session without faults.
    tree: Arc<dyn Tree>,
    problems: Mutex<Vec<String>>,
    trace: Mutex<Vec<String>>,
    live: Mutex<BTreeMap<u64, (ImageName, BuildNumber)>>,
    next_run: AtomicU64,
    /// No further faults.
    is_calm: AtomicBool,
}

/// A build command that runs, until it is dropped.
pub(super) struct LiveRun {
    monitor: Arc<Monitor>,
    number: u64,
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        let live = self.monitor.live.lock();
        live.unwrap_or_else(PoisonError::into_inner)
            .remove(&self.number);
    }
}

impl Monitor {
    pub(super) fn new(tree: Arc<dyn Tree>) -> Arc<Self> {
        Arc::new(Self {
            tree,
            problems: Mutex::default(),
            trace: Mutex::default(),
            live: Mutex::default(),
            next_run: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
        })
    }

    pub(super) fn tree(&self) -> &Arc<dyn Tree> {
        &self.tree
    }

    pub(super) fn note(&self, line: String) {
        let trace = self.trace.lock();
        trace.unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub(super) fn problem(&self, text: String) {
        self.note(format!("PROBLEM {text}"));
        let problems = self.problems.lock();
        problems.unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let problems = self.problems.lock();
        problems.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn trace(&self) -> Vec<String> {
        let trace = self.trace.lock();
        trace.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn calm(&self) {
        self.is_calm.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// Notes what was written, for the trace.
    pub(super) fn note_writes(&self, ops: &[Op], is_done: bool) {
        for op in ops {
            let (path, data) = match op {
                Op::Set { path, data, .. } => (path, data),
                Op::CreateSequential { parent, data, .. } => (parent, data),
                Op::Create { .. } | Op::Delete { .. } | Op::Check { .. } => continue,
            };
            let record: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
            let how = if is_done { "" } else { "not " };
            let (state, error) = (&record["state"], &record["error"]);
            self.note(format!("  {how}written: {path} {state} {error}"));
        }
    }

    /// A build command starts. At most one whose lock exists may run.
    pub(super) async fn begin_build(
        self: &Arc<Self>,
        image: &ImageName,
        build: BuildNumber,
    ) -> LiveRun {
        let number = self.next_run.fetch_add(1, Ordering::SeqCst);
        let live: Vec<BuildNumber> = {
            let live = self.live.lock();
            let mut live = live.unwrap_or_else(PoisonError::into_inner);
            live.insert(number, (image.clone(), build));
            let of_image = live.values().filter(|(other, _)| other == image);
            of_image.map(|(_, build)| *build).collect()
        };
        let run = LiveRun {
            monitor: Arc::clone(self),
            number,
        };
        let mut with_lock = Vec::new();
        for build in live {
            let path = Place::Build(image.clone(), build).path().unwrap();
            let Ok(node) = self.tree.get(&path).await else {
                continue;
            };
            let fence = BuildRecord::parse(&node.data).ok().and_then(|it| it.fence);
            let builds = Place::Builds(image.clone());
            if self.is_contender(&builds, fence).await {
                with_lock.push(build);
            }
        }
        if with_lock.len() > 1 {
            self.problem(format!(
                "I17: {image} is built twice at once: {with_lock:?}"
            ));
        }
        run
    }

    /// Whether the lock of the node has a contender with this number.
    async fn is_contender(&self, locked: &Place, fence: Option<u64>) -> bool {
        let directory = lock_path(&locked.path().unwrap()).unwrap();
        for name in self.tree.children(&directory).await.unwrap_or_default() {
            if let Ok(node) = self.tree.get(&directory.join(&name).unwrap()).await
                && u64::try_from(node.stat.created_by).ok() == fence
            {
                return true;
            }
        }
        false
    }

    /// The results among these operations whose lock is lost already, before they are carried out.
    pub(super) async fn results_without_lock(&self, ops: &[Op]) -> Vec<String> {
        let mut found = Vec::new();
        for (path, locked, fence) in results(ops) {
            if !self.is_contender(&locked, fence).await {
                found.push(path.to_string());
            }
        }
        found
    }
}

/// The results that are written, each with the place that its builder must have locked, and the
/// number of its lock.
pub(super) fn results<'o>(ops: &'o [Op]) -> Vec<(&'o TreePath, Place, Option<u64>)> {
    let result = |op: &'o Op| {
        let Op::Set { path, data, .. } = op else {
            return None;
        };
        let place = Place::of(path)?;
        if let Place::Build(image, _) = place {
            let record = BuildRecord::parse(data).ok()?;
            let locked = Place::Builds(image);
            return is_build_result(&record).then_some((path, locked, record.fence));
        }
        let Place::Upload(image, build, target, _) = place else {
            return None;
        };
        let record = UploadRecord::parse(data).ok()?;
        let locked = Place::Uploads(image, build, target);
        is_upload_result(&record).then_some((path, locked, record.fence))
    };
    ops.iter().filter_map(result).collect()
}

fn is_build_result(record: &BuildRecord) -> bool {
    match record.state {
        BuildState::Failed { cause, .. } => cause != BuildFailureCause::BuilderDied,
        // A build that lost its files is written without a lock.
        BuildState::Ready => record.artifacts.is_some(),
        BuildState::Building | BuildState::Deleting => false,
    }
}

fn is_upload_result(record: &UploadRecord) -> bool {
    match record.state {
        UploadState::Failed { abandoned, .. } => !abandoned,
        UploadState::Ready => true,
        UploadState::Uploading | UploadState::Deleting => false,
    }
}
