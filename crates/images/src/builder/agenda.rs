//! The jobs that a builder wants to do, and when.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::ImageName;
use domain::image::{BuildNumber, UploadTargetId};
use tokio::time::Instant;

/// A piece of work. A builder does each once at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Job {
    Build(ImageName),
    Upload(ImageName, BuildNumber, UploadTargetId),
    /// A deletion or a note, by its text.
    Tidy(ImageName, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Build,
    Upload,
    Tidy,
}

/// Wanted jobs by the moment when they may start, and images to look at again.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    waiting: BTreeMap<Kind, BTreeSet<(Instant, Job)>>,
    /// The start of each waiting job.
    starts: BTreeMap<Job, Instant>,
    /// Failures in a row, and when the next attempt may start.
    failed: BTreeMap<Job, (u32, Instant)>,
    looks: BTreeSet<(Instant, ImageName)>,
    next_looks: BTreeMap<ImageName, Instant>,
}

impl Job {
    pub(super) fn image(&self) -> &ImageName {
        match self {
            Self::Build(image) | Self::Upload(image, ..) | Self::Tidy(image, _) => image,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Build(_) => Kind::Build,
            Self::Upload(..) => Kind::Upload,
            Self::Tidy(..) => Kind::Tidy,
        }
    }
}

impl Agenda {
    /// Replaces the waiting jobs of an image. A job that waited before keeps its place.
    pub(super) fn replace(&mut self, image: &ImageName, wanted: Vec<(Job, Instant)>) {
        let wanted: BTreeMap<Job, Instant> = wanted.into_iter().collect();
        let known: Vec<Job> = self.jobs_of(image).cloned().collect();
        for job in known {
            if !wanted.contains_key(&job) {
                self.remove(&job);
            }
        }
        for (job, start) in wanted {
            if self.starts.contains_key(&job) {
                continue;
            }
            let not_before = self.failed.get(&job).map(|(_, next)| *next);
            let start = not_before.map_or(start, |next| next.max(start));
            self.starts.insert(job.clone(), start);
            self.waiting
                .entry(job.kind())
                .or_default()
                .insert((start, job));
        }
    }

    fn jobs_of<'a>(&'a self, image: &'a ImageName) -> impl Iterator<Item = &'a Job> {
        // A build of the image is its first job; the kinds are apart.
        let kinds = [
            Job::Build(image.clone()),
            Job::Upload(image.clone(), BuildNumber(0), first_target()),
            Job::Tidy(image.clone(), String::new()),
        ];
        kinds.into_iter().flat_map(move |first| {
            let jobs = self.starts.range(first.clone()..);
            jobs.map(|(job, _)| job)
                .take_while(move |job| job.kind() == first.kind() && job.image() == image)
        })
    }

    fn remove(&mut self, job: &Job) {
        if let Some(start) = self.starts.remove(job)
            && let Some(waiting) = self.waiting.get_mut(&job.kind())
        {
            waiting.remove(&(start, job.clone()));
        }
    }

    /// Takes the first job of a kind that may start now.
    pub(super) fn take(&mut self, kind: Kind, now: Instant) -> Option<Job> {
        let (start, job) = self.waiting.get(&kind)?.first()?;
        if *start > now {
            return None;
        }
        let job = job.clone();
        self.remove(&job);
        Some(job)
    }

    /// Notes how a job ended. After a failure, the next attempt waits.
    pub(super) fn ended(&mut self, job: &Job, next_attempt: Option<impl Fn(u32) -> Instant>) {
        match next_attempt {
            None => drop(self.failed.remove(job)),
            Some(next_attempt) => {
                let n_failures = self.failed.get(job).map_or(1, |(n, _)| n.saturating_add(1));
                self.failed
                    .insert(job.clone(), (n_failures, next_attempt(n_failures)));
            }
        }
    }

    /// Looks at the image again at this moment. Replaces an earlier wish.
    pub(super) fn look_at(&mut self, image: &ImageName, when: Option<Instant>) {
        if let Some(known) = self.next_looks.remove(image) {
            self.looks.remove(&(known, image.clone()));
        }
        if let Some(when) = when {
            self.next_looks.insert(image.clone(), when);
            self.looks.insert((when, image.clone()));
        }
    }

    /// An image whose moment has come.
    pub(super) fn take_look(&mut self, now: Instant) -> Option<ImageName> {
        let (when, image) = self.looks.first()?;
        if *when > now {
            return None;
        }
        let image = image.clone();
        self.look_at(&image, None);
        Some(image)
    }

    /// When something has to be done next, if jobs of these kinds can start.
    pub(super) fn next(&self, kinds: &[Kind]) -> Option<Instant> {
        let of_kinds = kinds
            .iter()
            .filter_map(|kind| self.waiting.get(kind)?.first());
        let starts = of_kinds.map(|(start, _)| *start);
        let looks = self.looks.first().map(|(when, _)| *when);
        starts.chain(looks).min()
    }

    /// The next attempt waits until then. The failures in a row are kept.
    pub(super) fn postpone(&mut self, job: &Job, until: Instant) {
        let known = self.failed.entry(job.clone()).or_insert((0, until));
        known.1 = known.1.max(until);
    }

    /// Forgets the failures of deleted images.
    pub(super) fn forget(&mut self, image: &ImageName) {
        self.failed.retain(|job, _| job.image() != image);
    }

    /// Forgets failures whose next attempt was due before this moment: others did those jobs.
    pub(super) fn forget_before(&mut self, moment: Instant) {
        self.failed.retain(|_, (_, next)| *next >= moment);
    }
}

/// Sorts before all others.
fn first_target() -> UploadTargetId {
    UploadTargetId {
        provider_id: domain::id::ProviderId::null(),
        region: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn image(name: &str) -> ImageName {
        name.parse().unwrap()
    }

    fn upload(name: &str, build: u64, target: &str) -> Job {
        Job::Upload(image(name), BuildNumber(build), target.parse().unwrap())
    }

    const NEVER: Option<fn(u32) -> Instant> = None;

    #[tokio::test(start_paused = true)]
    async fn jobs_start_in_the_order_of_their_moments_and_keep_their_place() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut agenda = Agenda::default();
        agenda.replace(&image("b"), vec![(Job::Build(image("b")), later)]);
        agenda.replace(&image("a"), vec![(Job::Build(image("a")), now)]);
        agenda.replace(&image("b"), vec![(Job::Build(image("b")), now)]);
        assert_eq!(agenda.take(Kind::Build, now), Some(Job::Build(image("a"))));
        assert_eq!(agenda.take(Kind::Build, now), None);
        assert_eq!(agenda.next(&[Kind::Build]), Some(later));
        assert_eq!(agenda.next(&[Kind::Upload]), None);
        assert_eq!(
            agenda.take(Kind::Build, later),
            Some(Job::Build(image("b")))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_are_not_wanted_any_more_go_and_others_stay() {
        let now = Instant::now();
        let mut agenda = Agenda::default();
        let tidy = Job::Tidy(image("a"), "x".to_owned());
        let all = [upload("a", 2, "aws"), upload("a", 2, "local"), tidy.clone()];
        agenda.replace(
            &image("a"),
            all.iter().cloned().map(|job| (job, now)).collect(),
        );
        agenda.replace(&image("ab"), vec![(upload("ab", 1, "aws"), now)]);
        agenda.replace(&image("a"), vec![(upload("a", 2, "local"), now)]);
        assert_eq!(agenda.take(Kind::Tidy, now), None);
        assert_eq!(
            agenda.take(Kind::Upload, now),
            Some(upload("a", 2, "local"))
        );
        assert_eq!(agenda.take(Kind::Upload, now), Some(upload("ab", 1, "aws")));
        assert_eq!(agenda.take(Kind::Upload, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_job_waits_until_it_succeeds() {
        let now = Instant::now();
        let delay = |n: u32| now + Duration::from_secs(n.into());
        let mut agenda = Agenda::default();
        let job = Job::Build(image("a"));
        agenda.ended(&job, Some(delay));
        agenda.ended(&job, Some(delay));
        agenda.replace(&image("a"), vec![(job.clone(), now)]);
        assert_eq!(agenda.next(&[Kind::Build]), Some(delay(2)));
        agenda.replace(&image("a"), Vec::new());
        agenda.ended(&job, NEVER);
        agenda.replace(&image("a"), vec![(job.clone(), now)]);
        assert_eq!(agenda.take(Kind::Build, now), Some(job));
    }

    #[tokio::test(start_paused = true)]
    async fn contention_delays_a_job_and_does_not_count() {
        let now = Instant::now();
        let delay = |n: u32| now + Duration::from_secs(n.into());
        let mut agenda = Agenda::default();
        let job = Job::Build(image("a"));
        for _ in 0..9 {
            agenda.postpone(&job, delay(1));
        }
        agenda.replace(&image("a"), vec![(job.clone(), now)]);
        assert_eq!(agenda.next(&[Kind::Build]), Some(delay(1)));
        agenda.replace(&image("a"), Vec::new());
        agenda.ended(&job, Some(delay));
        agenda.replace(&image("a"), vec![(job.clone(), now)]);
        assert_eq!(agenda.next(&[Kind::Build]), Some(delay(1)));
        agenda.forget_before(delay(2));
        agenda.replace(&image("a"), Vec::new());
        agenda.replace(&image("a"), vec![(job.clone(), now)]);
        assert_eq!(agenda.take(Kind::Build, now), Some(job));
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_is_looked_at_again_once() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut agenda = Agenda::default();
        agenda.look_at(&image("a"), Some(now));
        agenda.look_at(&image("a"), Some(later));
        assert_eq!(agenda.take_look(now), None);
        assert_eq!(agenda.next(&[]), Some(later));
        assert_eq!(agenda.take_look(later), Some(image("a")));
        assert_eq!(agenda.take_look(later), None);
    }
}
