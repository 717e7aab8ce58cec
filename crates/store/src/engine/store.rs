//! `Store`: named transactions, run on threads that own connections.
//!
//! The closure of a transaction is synchronous code and stays on one thread. So the same code
//! serves both drivers, and nothing is borrowed across an await. SQLite has one writing thread,
//! reading threads for long reads, and a few connections on which short reads run immediately, on
//! the caller's thread. PostgreSQL has equal threads for everything. Both have a few more threads
//! for the surveys of background tasks.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use flume::{Receiver, Sender};

use crate::engine::{
    backoff::Backoff, checkpoints::Checkpoints, counts::Counter, counts::Counts,
    error::DriverError, error::Result, error::StoreError, failure::Failure, jobs, jobs::Answer,
    jobs::Job, jobs::Work, lock::lock, migration, options::Options, options::Target,
    postgres_session::PostgresSession, retries, retries::RetryLocks, session::Connection,
    session::Session, simulation_state::SimulationState, sqlite::Mode, sqlite::SqliteSession, tls,
    touched::PoolStamp, touched::Touched, tx::Tx,
};

/// The number of connections for which there is one more, for surveys.
const CONNECTIONS_FOR_SURVEY: usize = 4;
/// Transactions that wait for a thread. Further callers wait until the queue has room.
const QUEUE_LENGTH: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// Cheap to clone. The threads end when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    engine: Engine,
    pub(crate) options: Options,
    pub(crate) simulation: SimulationState,
    pub(crate) counter: Counter,
    touched: Arc<Touched>,
    retry_locks: RetryLocks,
    /// `None` after the store was closed.
    queues: Mutex<Option<Queues>>,
    /// Connections for short reads on the caller's thread; SQLite only.
    pub(crate) inline_readers: Mutex<Vec<Session>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Where a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// On the caller's thread, if there is a connection for it.
    ShortRead,
    Read,
    Survey,
    Write,
}

impl Lane {
    fn mode(self) -> Mode {
        match self {
            Self::ShortRead | Self::Read | Self::Survey => Mode::Read,
            Self::Write => Mode::Write,
        }
    }
}

/// A transaction that writes. SQLite has one thread for them, on which conflicts, which are rare,
/// are retried.
enum Write {
    Once(Work),
    Attempts(retries::Attempt),
}

struct Queues {
    write: Sender<Job>,
    read: Sender<Job>,
    survey: Sender<Job>,
    /// Dropped with the queues, which ends every wait before a retry.
    _open: Sender<()>,
}

impl Store {
    /// Opens the file, or prepares connections to the server without opening them.
    pub fn open(options: &Options) -> Result<Self> {
        let target = options.target()?;
        let (open, closing) = flume::bounded(0);
        let builder = Builder {
            address: target.address(),
            closing,
            connections: options.connection_count(),
            surveyors: options.connection_count() / CONNECTIONS_FOR_SURVEY,
            counter: Counter::default(),
            touched: Arc::default(),
        };
        let mut threads = Vec::new();
        let (engine, sessions, inline_readers) = match target {
            Target::Sqlite { path } => {
                let (sessions, inline, checkpoints) = builder.sqlite(&path)?;
                threads.push(checkpoints);
                (Engine::Sqlite, sessions, inline)
            }
            Target::Postgres {
                config,
                root_certificates,
            } => {
                let tls = tls::connector(config.get_ssl_mode(), root_certificates.as_deref())?;
                let sessions = builder.postgres(&config, tls.as_ref());
                (Engine::Postgres, sessions, Vec::new())
            }
        };
        let (read, read_jobs) = flume::bounded(QUEUE_LENGTH);
        let (write, write_jobs) = match engine {
            Engine::Sqlite => flume::bounded(QUEUE_LENGTH),
            Engine::Postgres => (read.clone(), read_jobs.clone()),
        };
        let mut n_surveyors = builder.surveyors;
        let (survey, survey_jobs) = if n_surveyors == 0 {
            (read.clone(), read_jobs.clone())
        } else {
            flume::bounded(QUEUE_LENGTH)
        };
        for (mode, session) in sessions {
            let (jobs, priority) = match mode {
                Mode::Write => (write_jobs.clone(), Priority::Usual),
                Mode::Read if n_surveyors > 0 => {
                    n_surveyors -= 1;
                    (survey_jobs.clone(), Priority::Low)
                }
                Mode::Read => (read_jobs.clone(), Priority::Usual),
            };
            threads.push(spawn(jobs, session, priority)?);
        }
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                options: options.clone(),
                simulation: SimulationState::default(),
                counter: builder.counter,
                touched: builder.touched,
                retry_locks: RetryLocks::default(),
                queues: Mutex::new(Some(Queues {
                    write,
                    read,
                    survey,
                    _open: open,
                })),
                inline_readers: Mutex::new(inline_readers),
                threads: Mutex::new(threads),
            }),
        })
    }

    /// For simulations: every transaction runs on the caller's thread.
    pub(crate) fn without_threads(
        engine: Engine,
        options: &Options,
        simulation: SimulationState,
    ) -> Self {
        let (queue, _) = flume::bounded(0);
        // Its sender is dropped immediately, so waits before a retry end at once.
        let (open, _) = flume::bounded(0);
        Self {
            inner: Arc::new(Inner {
                engine,
                options: options.clone(),
                simulation,
                counter: Counter::default(),
                touched: Arc::default(),
                retry_locks: RetryLocks::default(),
                queues: Mutex::new(Some(Queues {
                    write: queue.clone(),
                    read: queue.clone(),
                    survey: queue,
                    _open: open,
                })),
                inline_readers: Mutex::default(),
                threads: Mutex::default(),
            }),
        }
    }

    pub(crate) fn session_without_threads(&self, connection: Connection) -> Session {
        let (_, closing) = flume::bounded(0);
        let builder = Builder {
            address: self.inner.options.url.clone(),
            closing,
            connections: 1,
            surveyors: 0,
            counter: self.inner.counter.clone(),
            touched: Arc::clone(&self.inner.touched),
        };
        builder.session(0, connection)
    }

    pub fn engine(&self) -> Engine {
        self.inner.engine
    }

    /// Runs a short read on one snapshot. SQLite runs it immediately, on this thread.
    pub fn read<T, E, F>(
        &self,
        name: &'static str,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.submit(Lane::ShortRead, move |session| session.read(name, f))
    }

    /// Runs a long read on one snapshot, never on this thread.
    pub fn scan<T, E, F>(
        &self,
        name: &'static str,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.submit(Lane::Read, move |session| session.read(name, f))
    }

    /// Like `scan`, for a background task that looks at all of something. It runs on few threads of
    /// its own, and takes none from requests and launches.
    pub fn survey<T, E, F>(
        &self,
        name: &'static str,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.submit(Lane::Survey, move |session| session.read(name, f))
    }

    /// Runs the closure and commits if it returns `Ok`. The closure runs again after a conflict
    /// with another transaction.
    ///
    /// Dropping the future cancels the transaction before its next attempt. An attempt that has
    /// begun still finishes.
    pub fn write<T, E, F>(
        &self,
        name: &'static str,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let work = match self.engine() {
            Engine::Sqlite => Write::Once(Work::Alone(Box::new(move |session| {
                Box::new(session.write(name, f))
            }))),
            Engine::Postgres => Write::Attempts(retries::attempts(name, f)),
        };
        open(self.run_write(name, work))
    }

    /// Like `write`, for a transaction of at most a few milliseconds: SQLite commits those that
    /// wait together. Each still takes effect completely or not at all, whatever the others do.
    pub fn write_shared<T, E, F>(
        &self,
        name: &'static str,
        mut f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let work = match self.engine() {
            Engine::Sqlite => Write::Once(Work::Shared(Box::new(move |session| {
                Box::new(session.write(name, &mut f))
            }))),
            Engine::Postgres => Write::Attempts(retries::attempts(name, f)),
        };
        open(self.run_write(name, work))
    }

    /// Like `write`, but the commit also survives a power failure. On SQLite, other commits reach
    /// the disk a moment later, which is faster.
    pub fn write_durably<T, E, F>(
        &self,
        name: &'static str,
        f: F,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let work = match self.engine() {
            Engine::Sqlite => Write::Once(Work::Alone(Box::new(move |session| {
                Box::new(session.write_durably(name, f))
            }))),
            // Each commit is durable.
            Engine::Postgres => Write::Attempts(retries::attempts(name, f)),
        };
        open(self.run_write(name, work))
    }

    /// Applies all missing migrations and returns their names.
    pub async fn migrate(&self, now_ms: i64) -> Result<Vec<String>> {
        self.submit(Lane::Write, move |session| {
            migration::migrate(session, now_ms)
        })
        .await
    }

    /// The names of the migrations that `migrate` would apply.
    pub async fn pending_migrations(&self) -> Result<Vec<String>> {
        self.submit(Lane::Write, migration::pending).await
    }

    /// Returns when the database has answered.
    pub async fn ping(&self) -> Result<()> {
        self.submit(Lane::Read, |session| session.read("ping", |tx| tx.ping()))
            .await
    }

    /// Counts of this handle and its clones since the last call. The first call starts counting.
    pub fn take_counts(&self) -> Counts {
        self.inner.counter.take()
    }

    /// From now on, counts include what the database does. On PostgreSQL, each transaction then
    /// asks for it at its end.
    pub fn count_work(&self) {
        self.inner.counter.start_counting_work();
    }

    /// Refuses new transactions and waits for running ones. Dropping all clones does the same
    /// without waiting.
    pub async fn close(&self) {
        drop(lock(&self.inner.queues).take());
        lock(&self.inner.inline_readers).clear();
        let threads = std::mem::take(&mut *lock(&self.inner.threads));
        let ended = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A thread that panicked has ended as well.
                let _ = thread.join();
            }
        });
        let _ = ended.await;
    }

    /// It differs after every change of the pool, its launch configs or its workers in this
    /// process. Take it before reading the pool.
    pub fn pool_stamp(&self, pool: &str) -> PoolStamp {
        self.inner.touched.stamp(pool)
    }

    pub(crate) fn submit<T, E>(
        &self,
        lane: Lane,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let work = Work::Alone(Box::new(move |session| Box::new(work(session))));
        open(self.run(lane, work))
    }

    async fn run_write(&self, name: &'static str, write: Write) -> Result<Answer> {
        match write {
            Write::Once(work) => self.run(Lane::Write, work).await,
            Write::Attempts(attempt) => {
                let run = |work| self.run(Lane::Write, work);
                retries::run_attempts(&self.inner.retry_locks, name, attempt, run).await
            }
        }
    }

    /// Not generic, so that the way to a session and back is compiled once.
    async fn run(&self, lane: Lane, work: Work) -> Result<Answer> {
        let queue = self.queue(lane)?;
        self.inner.simulation.begin(lane.mode()).await?;
        if lane == Lane::ShortRead {
            let spare = lock(&self.inner.inline_readers).pop();
            if let Some(mut session) = spare {
                let answer = work.run(&mut session);
                lock(&self.inner.inline_readers).push(session);
                return Ok(answer);
            }
        }
        if let Some(mut session) = self.session_in_place() {
            let answer = work.run(&mut session);
            self.inner.simulation.put_back(session);
            return Ok(answer);
        }
        let (job, answered) = Job::new(work);
        queue
            .send_async(job)
            .await
            .map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)
    }

    /// For simulations: the session of the caller's thread.
    fn session_in_place(&self) -> Option<Session> {
        let mut session = self.inner.simulation.take()?;
        session.counter = self.inner.counter.clone();
        session.touched = Arc::clone(&self.inner.touched);
        Some(session)
    }

    fn queue(&self, lane: Lane) -> Result<Sender<Job>> {
        let queues = lock(&self.inner.queues);
        let queues = queues.as_ref().ok_or(StoreError::Closed)?;
        let queue = match lane {
            Lane::ShortRead | Lane::Read => &queues.read,
            Lane::Survey => &queues.survey,
            Lane::Write => &queues.write,
        };
        Ok(queue.clone())
    }
}

/// Takes the result of a transaction out of its box.
async fn open<T, E>(answer: impl Future<Output = Result<Answer>>) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    let result = answer.await?.downcast::<Result<T, E>>();
    *result.expect("an answer has the type of its transaction")
}

struct Builder {
    address: String,
    closing: Receiver<()>,
    connections: usize,
    surveyors: usize,
    counter: Counter,
    touched: Arc<Touched>,
}

impl Builder {
    fn session(&self, number: usize, connection: Connection) -> Session {
        Session {
            connection,
            address: self.address.clone(),
            backoff: self.backoff(number),
            checkpoints: None,
            counter: self.counter.clone(),
            group: None,
            is_full: false,
            touched: Arc::clone(&self.touched),
        }
    }

    fn backoff(&self, number: usize) -> Backoff {
        Backoff {
            closing: self.closing.clone(),
            thread: u32::try_from(number).unwrap_or(0),
        }
    }

    #[expect(
        clippy::type_complexity,
        reason = "the only caller destructures the tuple"
    )]
    fn sqlite(
        &self,
        path: &std::path::Path,
    ) -> Result<(Vec<(Mode, Session)>, Vec<Session>, JoinHandle<()>)> {
        let open = |number: usize, mode: Mode| {
            SqliteSession::open(path, mode, &self.backoff(number))
                .map_err(|failure| self.unavailable(failure))
        };
        let reader = |number: usize| {
            let session = open(number, Mode::Read)?;
            Ok::<_, StoreError>(self.session(number, Connection::Sqlite(session)))
        };
        let writer = open(0, Mode::Write)?;
        let started = Checkpoints::start(open(0, Mode::Read)?);
        let (checkpoints, thread) =
            started.map_err(|error| not_started(self.address.clone(), error))?;
        let mut writer = self.session(0, Connection::Sqlite(writer));
        writer.checkpoints = Some(checkpoints);
        let mut threads = vec![(Mode::Write, writer)];
        let mut inline = Vec::new();
        for number in 1..=self.connections + self.surveyors {
            threads.push((Mode::Read, reader(number)?));
            if number <= self.connections {
                inline.push(reader(number)?);
            }
        }
        Ok((threads, inline, thread))
    }

    fn postgres(
        &self,
        config: &tokio_postgres::Config,
        tls: Option<&tokio_postgres_rustls::MakeRustlsConnect>,
    ) -> Vec<(Mode, Session)> {
        (0..self.connections + self.surveyors)
            .map(|number| {
                let session = PostgresSession::new(config.clone(), tls.cloned());
                let connection = Connection::Postgres(Box::new(session));
                (Mode::Read, self.session(number, connection))
            })
            .collect()
    }

    fn unavailable(&self, failure: Failure) -> StoreError {
        StoreError::Unavailable {
            address: self.address.clone(),
            source: failure.into_source(),
        }
    }
}

fn not_started(address: String, error: std::io::Error) -> StoreError {
    StoreError::Unavailable {
        address,
        source: DriverError::from(error),
    }
}

/// That of a thread, for the operating system.
#[derive(Clone, Copy)]
enum Priority {
    Usual,
    Low,
}

/// Gives other threads of this process about ten times as much of a processor as this one, if they
/// compete for it. Linux has a priority for each thread, and other systems for each process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(problem) = rustix::process::nice(10) {
        tracing::debug!("surveys keep the usual priority: {problem}");
    }
}

fn spawn(jobs: Receiver<Job>, mut session: Session, priority: Priority) -> Result<JoinHandle<()>> {
    let address = session.address.clone();
    std::thread::Builder::new()
        .name("store".into())
        .spawn(move || {
            match priority {
                Priority::Usual => {}
                Priority::Low => lower_priority(),
            }
            let mut next = None;
            while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
                // Panics of closures are caught where they run. This catches panics in the code
                // around them.
                let run = std::panic::AssertUnwindSafe(|| jobs::run(job, &jobs, &mut session));
                next = std::panic::catch_unwind(run).unwrap_or_else(|_| {
                    tracing::error!(
                        "a database thread panicked outside of a transaction; it continues"
                    );
                    session.group = None;
                    session.rollback();
                    None
                });
            }
        })
        .map_err(|error| not_started(address, error))
}
