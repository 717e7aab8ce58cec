//! Records why the tasks of pools wait, and charges the time that they waited.
//!
//! A decision that changes the cause of its pool writes a boundary of the pool's timeline, in its
//! own transaction. Runs that stopped waiting are read from the stream of events and charged in
//! batches. The transaction that charges a batch also moves the reader, so a crash neither loses a
//! wait nor charges it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::facts::Facts;
use domain::id::{LaunchToken, PoolId, TaskId, WorkerKey};
use domain::market::MAX_UNOBSERVED_MS;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::waits::{
    Accounts, BadWait, Boundary, EndedWait, MachineTimes, PlannerGap, RunWait, WaitCause, WaitPart,
    charge, cut,
};
use domain::worker::Terms;
use store::wait_accounts::MachineMoments;
use store::{StoreError, Tx};

use crate::Engine;

/// The reader of the stream that charges waits.
pub const READER: &str = "waits";
/// After a crash, another process waits this long.
const LEASE_MS: i64 = 10_000;
/// A later time than this from now is that of a wrong clock.
const AHEAD_MS: i64 = MINUTE_MS;

/// Removes the pools that need no decision, and returns those whose cause of waits has changed.
pub fn take_quiet(facts: &mut Vec<Facts>) -> Vec<(PoolId, WaitCause)> {
    let mut changed = Vec::new();
    facts.retain(|facts| {
        if !facts.is_content() {
            return true;
        }
        let wait = facts.quiet_wait();
        if facts.wait != Some(wait) {
            changed.push((facts.id().clone(), wait));
        }
        false
    });
    changed
}

/// Writes the changed causes of pools that need no decision.
pub async fn note_quiet_waits(
    engine: &Engine,
    changed: Vec<(PoolId, WaitCause)>,
    now: Timestamp,
) -> store::Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    note_waits(engine, changed, now).await
}

pub(super) async fn note_waits(
    engine: &Engine,
    changed: Vec<(PoolId, WaitCause)>,
    now: Timestamp,
) -> store::Result<()> {
    let written = engine.store.write("wait_note", move |tx| {
        store::pool_waits::note(tx, &changed, now)
    });
    written.await
}

/// Limits on how much of the stream one activation reads.
#[derive(Clone, Copy, Debug)]
pub struct FoldLimits {
    /// Messages in one transaction.
    pub messages: u32,
    /// Events that one transaction examines.
    pub span: i64,
    pub batches: usize,
}

/// The results of one activation.
#[derive(Debug, Default)]
pub struct Folded {
    /// Waits that were charged.
    pub charged: u64,
    /// Messages that could not be read, and the error of the first.
    pub bad: u64,
    pub problem: Option<BadWait>,
    is_done: bool,
}

/// Charges the waits that ended.
pub async fn fold_waits(
    engine: &Engine,
    process: &str,
    limits: FoldLimits,
) -> store::Result<Folded> {
    let now = engine.clock.now();
    let look = engine.store.read("waits_look", |tx| {
        let reader = store::event_readers::get(tx, READER)?;
        Ok::<_, StoreError>((reader, store::events::head(tx)?))
    });
    let mut done = Folded::default();
    match look.await? {
        (Some(reader), head) if reader.position < head => {
            if reader.is_held_by_another(process, now, LEASE_MS) {
                return Ok(done);
            }
        }
        (Some(_), _) => return Ok(done),
        // A migration makes this row, so it was deleted.
        (None, _) => {
            let open = |tx: &mut Tx<'_>| store::event_readers::open(tx, READER);
            engine.store.write("waits_open", open).await?;
            return Ok(done);
        }
    }
    for _ in 0..limits.batches {
        let process = process.to_owned();
        let folding = engine
            .store
            .write("waits_fold", move |tx| fold(tx, &process, now, limits));
        let folded = folding.await?;
        done.charged += folded.charged;
        done.bad += folded.bad;
        done.problem = done.problem.or(folded.problem);
        if folded.is_done {
            break;
        }
    }
    Ok(done)
}

fn fold(
    tx: &mut Tx<'_>,
    process: &str,
    now: Timestamp,
    limits: FoldLimits,
) -> store::Result<Folded> {
    let mut folded = Folded::default();
    let Some(reader) = store::event_readers::take(tx, READER, process, now, LEASE_MS)? else {
        folded.is_done = true;
        return Ok(folded);
    };
    let head = store::events::head(tx)?;
    let until = head.min(reader.position.saturating_add(limits.span));
    let messages = store::wait_messages::list(tx, reader.position, until, limits.messages)?;
    let is_full = messages.may_have_more(limits.messages);
    // A wait is charged when the times without a planner are known up to its end.
    let (known_until, _) = observed(tx, now)?;
    let mut ended = Vec::new();
    let mut place = reader.position;
    let mut is_early = false;
    for (position, body) in &messages.items {
        let ending = EndedWait::of_message(body.as_bytes())
            .map(|wait| wait.map(|wait| present(wait, now, known_until)));
        match ending {
            Ok(Some(wait)) if wait.until > known_until => {
                is_early = true;
                break;
            }
            Ok(wait) => ended.extend(wait),
            Err(problem) => {
                folded.bad += 1;
                folded.problem.get_or_insert(problem);
            }
        }
        place = *position;
    }
    if !is_early && !is_full {
        place = until;
    }
    folded.charged = ended.len() as u64;
    charge_all(tx, &ended, now)?;
    if place > reader.position && !store::event_readers::advance(tx, READER, reader.fence, place)? {
        return Err(tx.lost_race());
    }
    folded.is_done = is_early || place >= head;
    Ok(folded)
}

/// If a clock that was ahead ended a wait in the future, the wait counts up to what is known now.
fn present(mut wait: EndedWait, now: Timestamp, known_until: Timestamp) -> EndedWait {
    if wait.until > now.plus_millis(AHEAD_MS) {
        wait.until = known_until;
        wait.since = wait.since.min(known_until);
    }
    wait
}

/// Until when the times without a planner are known, and the one that has not ended yet.
fn observed(tx: &mut Tx<'_>, now: Timestamp) -> store::Result<(Timestamp, Option<PlannerGap>)> {
    let time = store::pool_memories::time(tx)?;
    let last = time.map_or(now, |time| time.clock);
    let gap = (now.millis_since(last) > MAX_UNOBSERVED_MS).then_some(PlannerGap {
        since: last,
        until: now,
    });
    Ok((gap.map_or(last, |gap| gap.until), gap))
}

fn charge_all(tx: &mut Tx<'_>, ended: &[EndedWait], now: Timestamp) -> store::Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let facts = WaitFacts::read(tx, ended, now)?;
    let mut accounts = Accounts::new();
    for wait in ended {
        let owner = facts.owner(&wait.queue);
        charge(&mut accounts, &wait.queue, owner, &facts.parts(wait));
    }
    store::wait_accounts::add(tx, &accounts)
}

/// The records about the waits of a batch, read in a number of statements that does not depend on
/// its size.
pub(super) struct WaitFacts {
    pools: BTreeMap<PoolId, (String, Timestamp)>,
    timelines: BTreeMap<PoolId, Vec<Boundary>>,
    machines: BTreeMap<WorkerKey, MachineMoments>,
    launched: BTreeMap<LaunchToken, Timestamp>,
    inserted: BTreeMap<TaskId, Timestamp>,
    gaps: Vec<PlannerGap>,
}

impl WaitFacts {
    pub(super) fn read(
        tx: &mut Tx<'_>,
        waits: &[EndedWait],
        now: Timestamp,
    ) -> store::Result<Self> {
        let mut since: BTreeMap<PoolId, Timestamp> = BTreeMap::new();
        for wait in waits {
            let first = since.entry(wait.queue.clone()).or_insert(wait.since);
            *first = wait.since.min(*first);
        }
        let ids: Vec<PoolId> = since.keys().cloned().collect();
        let earliest = since.values().min().copied();
        let since: Vec<(PoolId, Timestamp)> = since.into_iter().collect();
        let mut timelines: BTreeMap<PoolId, Vec<Boundary>> = BTreeMap::new();
        for (id, boundary) in store::pool_waits::timelines(tx, &since)? {
            timelines.entry(id).or_default().push(boundary);
        }
        let workers: BTreeSet<WorkerKey> = waits
            .iter()
            .filter_map(|wait| wait.worker.clone())
            .collect();
        let workers: Vec<WorkerKey> = workers.into_iter().collect();
        let machines: BTreeMap<WorkerKey, MachineMoments> =
            store::wait_accounts::machines(tx, &workers)?
                .into_iter()
                .collect();
        let tokens = machines.values().filter_map(|(.., terms)| token_of(terms));
        let tokens: BTreeSet<LaunchToken> = tokens.collect();
        let tokens: Vec<LaunchToken> = tokens.into_iter().collect();
        let firsts = waits.iter().filter(|wait| wait.run_id == 0);
        let firsts: Vec<TaskId> = firsts.map(|wait| wait.task_id.clone()).collect();
        let gaps = match earliest {
            Some(earliest) => store::wait_accounts::gaps(tx, earliest)?,
            None => Vec::new(),
        };
        let gaps = gaps.into_iter();
        let gaps = gaps.map(|(since, until)| PlannerGap { since, until });
        let (_, open_gap) = observed(tx, now)?;
        Ok(Self {
            pools: store::wait_accounts::owners(tx, &ids)?
                .into_iter()
                .collect(),
            timelines,
            launched: store::wait_accounts::launched(tx, &tokens)?
                .into_iter()
                .collect(),
            machines,
            inserted: store::wait_accounts::inserted(tx, &firsts)?
                .into_iter()
                .collect(),
            gaps: gaps.chain(open_gap).collect(),
        })
    }

    fn owner(&self, pool_id: &PoolId) -> &str {
        let pool = self.pools.get(pool_id);
        pool.map_or("", |(owner, _)| owner.as_str())
    }

    /// The parts of a wait; those of the first run begin when the task was created.
    pub(super) fn parts(&self, wait: &EndedWait) -> Vec<WaitPart> {
        let mut parts = Vec::new();
        let inserted = self.inserted.get(&wait.task_id).copied();
        if let Some(inserted) = inserted.filter(|at| wait.run_id == 0 && *at < wait.since) {
            parts.push(WaitPart {
                cause: WaitCause::Dependencies,
                since: inserted,
                until: wait.since,
            });
        }
        let run = RunWait {
            since: wait.since,
            until: wait.until,
            machine: wait.worker.as_ref().and_then(|key| self.machine(key)),
            pool_made: self.pools.get(&wait.queue).map(|(_, created)| *created),
        };
        let timeline = self.timelines.get(&wait.queue);
        let timeline = timeline.map_or(&[][..], Vec::as_slice);
        parts.extend(cut(&run, timeline, &self.gaps));
        parts
    }

    /// `None`: it is not known when the worker registered.
    fn machine(&self, key: &WorkerKey) -> Option<MachineTimes> {
        let (made, first_claim, terms) = self.machines.get(key)?;
        let token = token_of(terms);
        Some(MachineTimes {
            decided: token.and_then(|token| self.launched.get(&token).copied()),
            made: *made,
            registered: Timestamp::from_millis(terms.registered_at?),
            first_claim: *first_claim,
        })
    }
}

fn token_of(terms: &Terms) -> Option<LaunchToken> {
    terms.launch_token.as_ref()?.parse().ok()
}

/// Keeps timelines and accounts bounded. Returns the number of rows that were deleted.
pub async fn forget_waits(
    engine: &Arc<Engine>,
    process: &str,
    limits: ForgetLimits,
) -> store::Result<u64> {
    let now = engine.clock.now();
    let mut n_deleted = 0;
    for _ in 0..limits.batches {
        let process = process.to_owned();
        // The writer does not wait for this look.
        let look = engine.store.survey("waits_look", move |tx| {
            store::pool_waits::list_crowded(tx, limits.kept, limits.pools)
        });
        let crowded = look.await?;
        let n_crowded = crowded.len() as u64;
        let written = engine.store.write("waits_forget", move |tx| {
            let before = needed_since(tx, now)?;
            let n_old = store::pool_waits::forget_before(tx, before, limits.rows)?;
            let n_orphans = store::pool_waits::forget_orphans(tx, before, limits.rows)?;
            store::pool_waits::trim(tx, &crowded, limits.kept)?;
            let mut n_accounts = 0;
            for (span_ms, kept_ms) in limits.accounts {
                let before = now.plus_millis(-kept_ms);
                let n_times =
                    store::wait_accounts::delete_before(tx, span_ms, before, limits.rows)?;
                n_accounts += n_times;
                if n_times > 0 && span_ms == DAY_MS {
                    n_accounts += forget_accounts(tx, &process, now, limits.rows)?;
                }
            }
            Ok::<_, StoreError>(n_old + n_orphans + n_accounts)
        });
        let n_rows = written.await?;
        n_deleted += n_rows;
        if n_rows < u64::from(limits.rows) && n_crowded < u64::from(limits.pools) {
            break;
        }
    }
    Ok(n_deleted)
}

/// Deletes accounts without times, as the reader that adds to them, so that they are not used at
/// the same time.
fn forget_accounts(
    tx: &mut Tx<'_>,
    process: &str,
    now: Timestamp,
    limit: u32,
) -> store::Result<u64> {
    match store::event_readers::take(tx, READER, process, now, LEASE_MS)? {
        Some(_) => store::wait_accounts::delete_unused(tx, limit),
        None => Ok(0),
    }
}

/// Limits on what is kept, and on one activation that deletes the rest.
#[derive(Clone, Copy, Debug)]
pub struct ForgetLimits {
    /// Boundaries of a pool.
    pub kept: u32,
    /// Rows in a transaction.
    pub rows: u32,
    /// Pools whose timelines are cut in a transaction.
    pub pools: u32,
    pub batches: usize,
    /// How long the accounts of each length of period are kept, in milliseconds.
    pub accounts: [(i64, i64); 2],
}

/// Boundaries that end before this moment concern no wait.
fn needed_since(tx: &mut Tx<'_>, now: Timestamp) -> store::Result<Timestamp> {
    let oldest = store::task_waits::oldest(tx)?;
    // Servers whose clocks differ may know of a run that waits a little longer.
    let oldest = oldest.map(|since| since.plus_millis(-HOUR_MS));
    let reader = store::event_readers::get(tx, READER)?;
    let unread = match reader {
        Some(reader) => store::events::time_after(tx, reader.position)?,
        None => None,
    };
    let usual = now.plus_millis(-KEPT_MS);
    let unread = unread.map(|(_, created)| created.plus_millis(-KEPT_MS));
    Ok([oldest, unread]
        .into_iter()
        .flatten()
        .fold(usual, Timestamp::min))
}

/// Boundaries of at least this time are kept, for people and for waits that are not charged yet.
const KEPT_MS: i64 = DAY_MS;
