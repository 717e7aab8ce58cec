//! Rollouts of images: which build machines start from, by verdicts of canaries and by people.

use std::sync::Arc;

use domain::audit::{AuditEntry, EntityType};
use domain::event::{EventBody, ImageEvent, ImageStep};
use domain::id::ImageName;
use domain::image::{
    BuildDecision, BuildNumber, BuildView, CanaryCourse, CanaryJudgement, CanaryRun,
    CanarySettings, CoursePoint, ImageDefinition, ImageRollout, ImageSelection, RolloutStep,
    RolloutView, Standing, StoredTrial, judge, next_rollout_step, upload_ids,
};
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::{StoreError, Tx};

use super::trials;
use crate::Engine;
use crate::change::Change;
use crate::measures::IMAGE_STEPS;

/// The client of decisions that no person made.
const OWN_NAME: &str = "fleetwright";
/// The canary of an image is judged once in this time, by one of all processes. Shorter than the
/// pause between their looks, so that none of a process's own looks is left out.
const JUDGEMENT_MS: i64 = 4_000;

/// An image, as builders and the tree show it now.
#[derive(Clone, Debug)]
pub struct ImageFacts {
    pub definition: ImageDefinition,
    pub builds: Vec<BuildView>,
    /// The decisions that the tree shows.
    pub standing: Standing,
}

impl ImageFacts {
    /// Whether they include all from which the last decision was made. A server whose copy of the
    /// tree is late would take builds for removed that it does not know yet.
    fn are_current(&self, known: &ImageRollout) -> bool {
        self.standing == known.standing
    }
}

/// A decision of a person.
#[derive(Clone, Debug)]
pub struct PersonalDecision {
    pub build: BuildNumber,
    pub reason: String,
    /// The caller and the time.
    pub audit: AuditEntry,
}

#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error(
        "build {build} of {image} has no ready upload: wait until it is uploaded, or choose another build"
    )]
    NotReady {
        image: ImageName,
        build: BuildNumber,
    },
    #[error(
        "machines start from build {build} of {image} already: choose another build for the canary"
    )]
    InUse {
        image: ImageName,
        build: BuildNumber,
    },
    #[error(
        "no build of {0} is in use yet, so there is nothing to compare a canary with: promote a build first"
    )]
    NothingInUse(ImageName),
    #[error("the share of a canary must be above 0 and below 1, not {0}")]
    Share(f64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes the next step of a rollout, if there is one. Writes nothing if nothing changes, or if the
/// facts are older than the last decision.
///
/// A canary is judged in a read, by one process at a time. The verdict holds for the version that
/// it was read from: if another decision came first, the next look judges again.
pub async fn advance(
    engine: &Arc<Engine>,
    facts: Arc<ImageFacts>,
    now: Timestamp,
) -> Result<ImageRollout, StoreError> {
    let image = facts.definition.name.clone();
    let read = engine
        .store
        .read("image_rollout_get", move |tx| load(tx, &image, now));
    let (known, _) = read.await?;
    if !facts.are_current(&known) {
        return Ok(known);
    }
    let judged = judge_canary(engine, &facts, &known, now).await?;
    let mut next = known.clone();
    let step = take_step(&mut next, &facts, judged.as_ref(), now);
    let has_news = judged.as_ref().is_some_and(|it| !it.changed.is_empty());
    if step.is_none() && next == known && !has_news {
        return Ok(known);
    }
    let seen = known.version;
    let written = engine.change("image_rollout", now, move |change| {
        let image = &facts.definition.name;
        let (known, is_stored) = load(change.tx, image, now)?;
        if known.version != seen || !facts.are_current(&known) {
            return Ok((known, None));
        }
        for trial in judged.iter().flat_map(|it| &it.changed) {
            store::canary_trials::write(change.tx, trial)?;
        }
        let mut next = known.clone();
        let step = take_step(&mut next, &facts, judged.as_ref(), now);
        write(change, &known, &mut next, is_stored)?;
        if let Some(step) = &step {
            let run = known.canary.as_ref().zip(judged.as_ref());
            let canary = run.map(|(run, judged)| judged_canary(run, judged, now));
            announce(change, image, step, OWN_NAME, canary)?;
        }
        Ok::<_, StoreError>((next, step.map(|step| step.step)))
    });
    let (rollout, step) = written.await?;
    if let Some(step) = step {
        count(&rollout.image, step);
    }
    Ok(rollout)
}

/// Starts machines from a build from now on. If it is older than the one in use, none start from
/// the newer builds that are ready now.
pub async fn use_build(
    engine: &Arc<Engine>,
    facts: Arc<ImageFacts>,
    decision: PersonalDecision,
) -> Result<ImageRollout, RolloutError> {
    let build = decision.build;
    check_ready(&facts, build)?;
    let why = BuildDecision {
        at: decision.audit.created,
        by: decision.audit.client_id.clone(),
        reason: decision.reason.clone(),
        is_passed_over: false,
    };
    let change = move |next: &mut ImageRollout, facts: &ImageFacts| {
        let is_back = next.standing.use_build(build, &facts.builds, why.clone());
        next.canary = None;
        Ok(match is_back {
            true => ImageStep::RolledBack,
            false => ImageStep::Promoted,
        })
    };
    write_personal(engine, facts, decision, change).await
}

/// Starts a share of the new machines from a build, also after it was rolled back.
pub async fn start_canary(
    engine: &Arc<Engine>,
    facts: Arc<ImageFacts>,
    decision: PersonalDecision,
    share: Option<f64>,
) -> Result<ImageRollout, RolloutError> {
    check_ready(&facts, decision.build)?;
    let share = share.unwrap_or(facts.definition.canary.share);
    if !(share > 0.0 && share < 1.0) {
        return Err(RolloutError::Share(share));
    }
    let (build, now) = (decision.build, decision.audit.created);
    let run = CanaryRun {
        build,
        since: now,
        share,
        by: decision.audit.client_id.clone(),
        reason: decision.reason.clone(),
        verdict: String::new(),
        evidence: None,
        course: CanaryCourse::default(),
        is_expired: false,
    };
    let change = move |next: &mut ImageRollout, facts: &ImageFacts| {
        let image = facts.definition.name.clone();
        match next.standing.promoted {
            None => return Err(RolloutError::NothingInUse(image)),
            Some(promoted) if promoted == build => {
                return Err(RolloutError::InUse { image, build });
            }
            Some(_) => {}
        }
        next.standing.try_build(build, now);
        next.canary = Some(run.clone());
        Ok(ImageStep::CanaryStarted)
    };
    write_personal(engine, facts, decision, change).await
}

async fn write_personal(
    engine: &Arc<Engine>,
    facts: Arc<ImageFacts>,
    decision: PersonalDecision,
    apply: impl Fn(&mut ImageRollout, &ImageFacts) -> Result<ImageStep, RolloutError>
    + Send
    + Sync
    + 'static,
) -> Result<ImageRollout, RolloutError> {
    let now = decision.audit.created;
    let written = engine.change("image_rollout_decide", now, move |change| {
        let image = &facts.definition.name;
        let (known, is_stored) = load(change.tx, image, now)?;
        let mut next = known.clone();
        let step = apply(&mut next, &facts)?;
        store::canary_trials::delete(change.tx, image)?;
        select(&mut next, &facts);
        write(change, &known, &mut next, is_stored)?;
        let taken = RolloutStep {
            step,
            build: decision.build,
            reason: decision.reason.clone(),
        };
        let mut audit = decision.audit.clone();
        step.action().clone_into(&mut audit.action);
        audit.detail = detail(&taken, None);
        store::audit::insert(change.tx, &audit)?;
        announce_event(change, image, &taken, &audit.client_id)?;
        Ok::<_, RolloutError>((next, step))
    });
    let written = written.await;
    engine.wakeups.image_rollouts.notify_one();
    let (rollout, step) = written?;
    count(&rollout.image, step);
    Ok(rollout)
}

/// Counts a step that is written.
fn count(image: &ImageName, step: ImageStep) {
    let labels = [
        ("imageId", image.to_string()),
        ("step", step.action().to_owned()),
    ];
    metrics::counter!(IMAGE_STEPS, &labels).increment(1);
}

fn check_ready(facts: &ImageFacts, build: BuildNumber) -> Result<(), RolloutError> {
    let mut builds = facts.builds.iter();
    let image = facts.definition.name.clone();
    match builds.any(|it| it.number == build && it.has_ready_upload()) {
        true => Ok(()),
        false => Err(RolloutError::NotReady { image, build }),
    }
}

/// The rollout of an image, and whether it is stored.
fn load(tx: &mut Tx<'_>, image: &ImageName, now: Timestamp) -> store::Result<(ImageRollout, bool)> {
    let stored = store::image_rollouts::get(tx, image)?;
    let is_stored = stored.is_some();
    let rollout = stored.unwrap_or_else(|| ImageRollout::new(image.clone(), now));
    Ok((rollout, is_stored))
}

/// A verdict, and what was not known of the machines before.
struct JudgedCanary {
    judgement: CanaryJudgement,
    changed: Vec<StoredTrial>,
}

/// Judges the canary that runs, if one does, and if no process judged it a moment ago.
async fn judge_canary(
    engine: &Arc<Engine>,
    facts: &Arc<ImageFacts>,
    known: &ImageRollout,
    now: Timestamp,
) -> Result<Option<JudgedCanary>, StoreError> {
    let Some(run) = known.canary.clone() else {
        return Ok(None);
    };
    let image = known.image.clone();
    let taken = engine
        .store
        .write("image_rollout_take_judgement", move |tx| {
            store::image_rollouts::take_judgement(tx, &image, now, JUDGEMENT_MS)
        });
    if !taken.await? {
        return Ok(None);
    }
    let knows_claims = !engine.demand_source.is_outside();
    let facts = Arc::clone(facts);
    // There may be thousands of machines: neither writers nor short reads wait for this.
    let judged = engine.store.survey("image_rollout_judge", move |tx| {
        let image = &facts.definition.name;
        let trials = trials::collect(tx, image, &run, now, knows_claims)?;
        let shown: Vec<_> = trials
            .all
            .iter()
            .filter_map(StoredTrial::to_trial)
            .collect();
        let settings = CanarySettings {
            share: run.share,
            ..facts.definition.canary.clone()
        };
        Ok::<_, StoreError>(JudgedCanary {
            judgement: judge(&settings, run.since, &shown, now),
            changed: trials.changed,
        })
    });
    judged.await.map(Some)
}

/// Notes the verdict, takes the next step, and selects the uploads that follow.
fn take_step(
    next: &mut ImageRollout,
    facts: &ImageFacts,
    judged: Option<&JudgedCanary>,
    now: Timestamp,
) -> Option<RolloutStep> {
    let judgement = judged.map(|judged| &judged.judgement);
    if let (Some(run), Some(judgement)) = (&mut next.canary, judgement) {
        run.verdict = judgement.to_string();
        run.evidence = Some(judgement.evidence.clone());
        run.course.note(now, &judgement.evidence);
    }
    decide(next, facts, judgement, now)
}

/// Takes the next step, and selects the uploads that follow.
fn decide(
    next: &mut ImageRollout,
    facts: &ImageFacts,
    judgement: Option<&CanaryJudgement>,
    now: Timestamp,
) -> Option<RolloutStep> {
    next.standing.forget_missing(&facts.builds);
    let settings = &facts.definition.canary;
    let step = next_rollout_step(&RolloutView {
        builds: &facts.builds,
        standing: &next.standing,
        settings,
        verdict: judgement.map(|judgement| &judgement.verdict),
        is_expired: next.canary.as_ref().is_some_and(|run| run.is_expired),
    });
    if let Some(step) = &step {
        next.standing.apply(step, OWN_NAME, now);
        follow(next, step, settings.share, now);
    }
    select(next, facts);
    step
}

/// Begins and ends the canary with the step.
fn follow(next: &mut ImageRollout, step: &RolloutStep, share: f64, now: Timestamp) {
    match step.step {
        ImageStep::CanaryStarted => {
            next.canary = Some(CanaryRun {
                build: step.build,
                since: now,
                share,
                by: OWN_NAME.to_owned(),
                reason: step.reason.clone(),
                verdict: String::new(),
                evidence: None,
                course: CanaryCourse::default(),
                is_expired: false,
            });
        }
        ImageStep::CanaryExpired => {
            if let Some(run) = &mut next.canary {
                run.is_expired = true;
            }
        }
        ImageStep::CanaryEnded | ImageStep::Promoted | ImageStep::RolledBack => next.canary = None,
    }
}

fn select(next: &mut ImageRollout, facts: &ImageFacts) {
    let targets = facts.definition.uploads.iter().map(|target| &target.id);
    let share = next.canary.as_ref().map_or(0.0, |run| run.share);
    let selection = ImageSelection::of(&facts.builds, targets, &next.standing, share);
    if selection != next.selection {
        next.selection = selection;
        next.selected += 1;
    }
    next.uploads = upload_ids(&facts.builds);
}

/// Writes what changed.
fn write(
    change: &mut Change<'_, '_>,
    known: &ImageRollout,
    next: &mut ImageRollout,
    is_stored: bool,
) -> store::Result<()> {
    if known == next {
        return Ok(());
    }
    next.last_modified = next.last_modified.max(change.now);
    let build_of = |rollout: &ImageRollout| rollout.canary.as_ref().map(|run| run.build);
    if build_of(known) != build_of(next) {
        store::canary_trials::delete(change.tx, &next.image)?;
    }
    if is_stored {
        store::image_rollouts::update(change.tx, next)?;
        next.version = next.version.next();
    } else if !store::image_rollouts::insert(change.tx, next)? {
        return Err(change.tx.lost_race());
    }
    Ok(())
}

/// Writes the event and the audit line of a step.
fn announce(
    change: &mut Change<'_, '_>,
    image: &ImageName,
    step: &RolloutStep,
    by: &str,
    canary: Option<Value>,
) -> store::Result<()> {
    let audit = AuditEntry {
        entity_type: EntityType::Image,
        entity_id: image.to_string(),
        action: step.step.action().to_owned(),
        client_id: by.to_owned(),
        created: change.now,
        source_ip: None,
        request_id: None,
        detail: detail(step, canary),
    };
    store::audit::insert(change.tx, &audit)?;
    let build = step.build;
    let (action, reason) = (step.step.action(), &step.reason);
    tracing::info!(%image, %build, "{image} {build}: {action}: {reason}");
    announce_event(change, image, step, by)
}

fn detail(step: &RolloutStep, canary: Option<Value>) -> Value {
    let mut detail = canary.unwrap_or_else(|| json!({}));
    detail["build"] = json!(step.build.0);
    detail["reason"] = json!(step.reason);
    detail
}

/// The evidence on which a step is based, which people still see when the canary is over.
fn judged_canary(run: &CanaryRun, judged: &JudgedCanary, now: Timestamp) -> Value {
    let evidence = &judged.judgement.evidence;
    let mut course = run.course.clone();
    course.note(now, evidence);
    json!({
        "since": run.since.to_string(),
        "share": run.share,
        "evidence": evidence,
        "course": course_json(&course),
    })
}

/// The course of a canary as the API and the audit log show it.
pub fn course_json(course: &CanaryCourse) -> Value {
    let point = |point: &CoursePoint| {
        json!({
            "time": point.at.to_string(),
            "worse": point.worse,
            "asGood": point.as_good,
            "starts": point.starts,
            "failedStarts": point.failed_starts,
        })
    };
    course.points().iter().map(point).collect()
}

fn announce_event(
    change: &mut Change<'_, '_>,
    image: &ImageName,
    step: &RolloutStep,
    by: &str,
) -> store::Result<()> {
    change.announce([EventBody::Image(Box::new(ImageEvent {
        image: image.clone(),
        build: step.build.0,
        step: step.step,
        reason: step.reason.clone(),
        by: by.to_owned(),
    }))])
}
