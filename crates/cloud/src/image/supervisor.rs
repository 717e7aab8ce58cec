//! The program that runs one build and ends every process of it.
//!
//! It is this program again, as a process of its own between us and the build. It adopts orphans
//! (`PR_SET_CHILD_SUBREAPER`), so a process that forks twice, starts a session or ignores SIGTERM
//! stays below it and is found. It ends the build when its standard input closes, which also
//! happens when we are killed. The command itself is killed when the supervisor is
//! (`PR_SET_PDEATHSIG`), and we look for the other processes by their environment then.
//!
//! Everything here blocks; it runs in no async runtime.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::build_log::LogWriter;
use super::confinement::Rights;
use super::redact::Redactor;

/// The variable that says which part the program plays.
pub(crate) const PART: &str = "FLEETWRIGHT_BUILD_PART";
pub(crate) const SUPERVISE: &str = "supervise";
const ENTER: &str = "enter";
/// Begins each line of ours on standard output.
pub(crate) const REPORT: &str = "fleetwright-build ";
/// Longest order, with its environment and secrets.
const MAX_ORDER_BYTES: u64 = 16 * 1024 * 1024;
/// Time that killed processes have to end. Only a process that waits for hardware takes longer.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Kill again after this time, in case processes start others as fast as they are killed.
const KILL_ROUND: Duration = Duration::from_millis(5);
/// Time until the last output is read after all processes have ended.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);
/// The length of the log is reported at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(50);
const PIPE_BYTES: usize = 64 * 1024;
/// The exit code of a command that cannot be started, as shells have it.
const NOT_STARTED: i32 = 127;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    /// This program, for the second stage.
    pub(crate) program: Vec<String>,
    pub(crate) command: Vec<String>,
    /// The complete environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// The working folder.
    pub(crate) folder: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) max_log_bytes: u64,
    pub(crate) secrets: Vec<String>,
    pub(crate) time_limit_ms: u64,
    pub(crate) grace_ms: u64,
    pub(crate) rights: Rights,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    /// Bytes of output so far.
    Output(u64),
    Ended(Ended),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) stopped: Option<Stopped>,
    /// Why the command could not be started.
    pub(crate) not_started: Option<NotStarted>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) duration_ms: u64,
    pub(crate) peak_memory_kib: u64,
    pub(crate) log_bytes: u64,
    pub(crate) log_left_out: u64,
    pub(crate) log_error: Option<String>,
    /// Processes that could not be killed.
    pub(crate) survivors: Vec<i32>,
}

/// Why the build was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stopped {
    TimeLimit,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "text")]
pub(crate) enum NotStarted {
    Missing(String),
    NotExecutable(String),
    Other(String),
}

/// The order of the second stage, which becomes the command.
#[derive(Serialize, Deserialize)]
struct EnterOrder {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    supervisor: i32,
    rights: Rights,
    /// Where to write why the command could not be started.
    error_file: PathBuf,
}

enum Event {
    /// The command itself has ended.
    Exited(WaitStatus),
    /// No process of the build is left.
    NoneLeft,
    Output,
    OutputClosed,
    Cancel,
}

/// Plays the part that the environment names. Returns `None` if it names none: this process is not
/// part of a build.
pub fn run_build_part() -> Option<ExitCode> {
    let part = std::env::var(PART).ok()?;
    let done = match part.as_str() {
        SUPERVISE => supervise(),
        ENTER => enter(),
        other => Err(io::Error::other(format!("{PART} is {other:?}"))),
    };
    if let Err(error) = done {
        let mut stderr = io::stderr();
        // Without standard error, this cannot be reported.
        let _ = writeln!(stderr, "the supervisor of a build has failed: {error}");
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

fn supervise() -> io::Result<()> {
    // The build must not read the memory of this process, which has its secrets and its order.
    prctl::set_dumpable(false)?;
    prctl::set_child_subreaper(true)?;
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    (&mut input).take(MAX_ORDER_BYTES).read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    let (events, happened) = mpsc::channel();
    let cancel = events.clone();
    std::thread::spawn(move || {
        // Anything on standard input, and its end, cancels the build.
        let _ = input.read(&mut [0]);
        let _ = cancel.send(Event::Cancel);
    });
    let ended = Supervisor::start(order, &events)?.run(&happened);
    report(&Report::Ended(ended));
    Ok(())
}

/// Becomes the command. Returns only if that fails.
fn enter() -> io::Result<()> {
    let mut text = String::new();
    io::stdin()
        .take(MAX_ORDER_BYTES)
        .read_to_string(&mut text)?;
    let order: EnterOrder = serde_json::from_str(&text)?;
    // The command may run as a user who cannot make it.
    let mut error_file = fs::File::create(&order.error_file)?;
    order.rights.take_on()?;
    // A change of the user undoes this.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Builders go without huge pages; commands may need them.
    prctl::set_thp_disable(false)?;
    if nix::unistd::getppid().as_raw() != order.supervisor {
        // The supervisor ended before this process could be bound to it.
        return Err(io::Error::other("the supervisor has ended"));
    }
    let (program, arguments) = order
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&order.environment)
        .stdin(Stdio::null())
        .stdout(output)
        .exec();
    let not_started = explain(program, &order.environment, &error);
    error_file.write_all(serde_json::to_string(&not_started)?.as_bytes())?;
    std::process::exit(NOT_STARTED)
}

fn explain(program: &str, environment: &BTreeMap<String, String>, error: &io::Error) -> NotStarted {
    let path = environment.get("PATH").map_or("", String::as_str);
    let is_path = program.contains('/');
    let exists = is_path && Path::new(program).exists();
    // A folder of PATH that may not be searched refuses the permission for every program.
    let is_found = || {
        is_path
            || path
                .split(':')
                .any(|it| Path::new(it).join(program).exists())
    };
    if error.kind() == io::ErrorKind::PermissionDenied && is_found() {
        return NotStarted::NotExecutable(format!("{program} is not executable: {error}"));
    }
    let is_missing = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    if !is_missing.contains(&error.kind()) {
        return NotStarted::Other(format!("{program} cannot be started: {error}"));
    }
    if exists {
        return NotStarted::NotExecutable(format!(
            "{program} cannot be run: the interpreter that its first line names, or its loader, does not exist"
        ));
    }
    NotStarted::Missing(if is_path {
        format!("the program {program} does not exist")
    } else {
        format!("the program {program} is in no folder of the builder's PATH")
    })
}

struct Supervisor {
    order: Order,
    group: Pid,
    error_file: PathBuf,
    begun: Instant,
    log: Arc<std::sync::Mutex<LogWriter>>,
    /// Whether output was announced and not yet taken note of.
    is_announced: Arc<AtomicBool>,
    /// When the length of the log was last reported, and whether it has grown since.
    reported: Instant,
    has_grown: bool,
}

impl Supervisor {
    fn start(order: Order, events: &Sender<Event>) -> io::Result<Self> {
        let error_file = order.log.with_extension("error");
        let log = LogWriter::create(&order.log, order.max_log_bytes)?;
        let log = Arc::new(std::sync::Mutex::new(log));
        let (reader, writer) = io::pipe()?;
        let (program, arguments) = order
            .program
            .split_first()
            .ok_or_else(|| io::Error::other("the program of the second stage is missing"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .env(PART, ENTER)
            .current_dir(&order.folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(OwnedFd::from(writer))
            .spawn()?;
        let begun = Instant::now();
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        let enter = EnterOrder {
            command: order.command.clone(),
            environment: order.environment.clone(),
            supervisor: nix::unistd::getpid().as_raw(),
            rights: order.rights.clone(),
            error_file: error_file.clone(),
        };
        if let Some(mut input) = child.stdin.take() {
            // If this fails, the child has ended, and its end is reported.
            let _ = input.write_all(serde_json::to_string(&enter)?.as_bytes());
        }
        let is_announced = Arc::new(AtomicBool::new(false));
        let redactor = Redactor::new(order.secrets.iter().map(String::as_str));
        {
            let (log, events) = (Arc::clone(&log), events.clone());
            let is_announced = Arc::clone(&is_announced);
            std::thread::spawn(move || copy(reader, redactor, &log, &events, &is_announced));
        }
        let events = events.clone();
        std::thread::spawn(move || wait_for_all(id, &events));
        Ok(Self {
            group: Pid::from_raw(id),
            order,
            error_file,
            begun,
            log,
            is_announced,
            reported: begun,
            has_grown: false,
        })
    }

    fn run(mut self, happened: &Receiver<Event>) -> Ended {
        let limit = self.begun + Duration::from_millis(self.order.time_limit_ms);
        let (mut status, mut is_over, mut is_closed) = (None, false, false);
        let mut stopped = None;
        while status.is_none() && stopped.is_none() {
            match self.next(happened, limit) {
                None => stopped = Some(Stopped::TimeLimit),
                Some(Event::Cancel) => stopped = Some(Stopped::Cancelled),
                Some(Event::Exited(how)) => status = Some(how),
                Some(Event::NoneLeft) => is_over = true,
                Some(Event::OutputClosed) => is_closed = true,
                Some(Event::Output) => {}
            }
        }
        if stopped.is_some() {
            // It may have ended by itself.
            let _ = killpg(self.group, Signal::SIGTERM);
        }
        let grace = match stopped {
            Some(_) => Duration::from_millis(self.order.grace_ms),
            None => Duration::ZERO,
        };
        let grace_ends = Instant::now() + grace;
        let kill_ends = grace_ends + KILL_LIMIT;
        while !is_over {
            let now = Instant::now();
            if now >= kill_ends {
                break;
            }
            if now >= grace_ends {
                self.kill_all();
            }
            let until = if now < grace_ends {
                grace_ends
            } else {
                now + KILL_ROUND
            };
            match self.next(happened, until) {
                Some(Event::Exited(how)) => status = Some(how),
                Some(Event::NoneLeft) => is_over = true,
                Some(Event::OutputClosed) => is_closed = true,
                Some(Event::Output | Event::Cancel) | None => {}
            }
        }
        let output_ends = Instant::now() + OUTPUT_LIMIT;
        while !is_closed {
            match self.next(happened, output_ends) {
                Some(Event::OutputClosed) | None => is_closed = true,
                Some(Event::Output | Event::Cancel | Event::NoneLeft | Event::Exited(_)) => {}
            }
        }
        self.result(status, stopped)
    }

    /// The next event; `None`: this moment has come first. Reports the length of the log meanwhile.
    fn next(&mut self, happened: &Receiver<Event>, until: Instant) -> Option<Event> {
        loop {
            let now = Instant::now();
            let due = self.reported + REPORT_EVERY;
            if self.has_grown && now >= due {
                self.has_grown = false;
                self.reported = now;
                report(&Report::Output(self.log().total()));
            }
            let wake = if self.has_grown {
                due.min(until)
            } else {
                until
            };
            match happened.recv_timeout(wake.saturating_duration_since(now)) {
                Ok(Event::Output) => {
                    self.is_announced.store(false, Ordering::Release);
                    self.has_grown = true;
                }
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, LogWriter> {
        self.log
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn kill_all(&self) {
        let own = nix::unistd::getpid().as_raw();
        for id in processes::descendants(own).unwrap_or_default() {
            // A process that cannot be killed is reported as a survivor.
            let _ = processes::kill(id);
        }
    }

    fn result(&self, status: Option<WaitStatus>, stopped: Option<Stopped>) -> Ended {
        let own = nix::unistd::getpid().as_raw();
        let (exit_code, signal) = match status {
            Some(WaitStatus::Exited(_, code)) => (Some(code), None),
            Some(WaitStatus::Signaled(_, signal, _)) => (None, Some(signal as i32)),
            _ => (None, None),
        };
        let error = fs::read_to_string(&self.error_file).ok();
        let _ = fs::remove_file(&self.error_file);
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        let peak = usage.and_then(|usage| u64::try_from(usage.max_rss()).ok());
        let elapsed = self.begun.elapsed();
        let mut log = self.log();
        log.write(last_line(exit_code, signal, stopped, elapsed).as_bytes());
        Ended {
            stopped,
            not_started: error
                .filter(|_| exit_code == Some(NOT_STARTED))
                .and_then(|error| serde_json::from_str(&error).ok()),
            exit_code,
            signal,
            duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            peak_memory_kib: peak.unwrap_or(0),
            log_bytes: log.total(),
            log_left_out: log.left_out(),
            log_error: log.error().map(str::to_owned),
            survivors: processes::descendants(own).unwrap_or_default(),
        }
    }
}

fn last_line(
    exit_code: Option<i32>,
    signal: Option<i32>,
    stopped: Option<Stopped>,
    elapsed: Duration,
) -> String {
    let end = match (exit_code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "the command did not end".to_owned(),
    };
    let why = match stopped {
        Some(Stopped::TimeLimit) => ", at the time limit",
        Some(Stopped::Cancelled) => ", cancelled",
        None => "",
    };
    format!(
        "[fleetwright] {end} after {:.1} s{why}\n",
        elapsed.as_secs_f64()
    )
}

/// Copies the output to the log until no process can write any more.
fn copy(
    mut from: io::PipeReader,
    mut redactor: Redactor,
    log: &std::sync::Mutex<LogWriter>,
    events: &Sender<Event>,
    is_announced: &AtomicBool,
) {
    let lock = || {
        log.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let mut piece = vec![0; PIPE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => {
                let ready = redactor.push(&piece[..length]);
                lock().write(&ready);
                if !is_announced.swap(true, Ordering::AcqRel) {
                    let _ = events.send(Event::Output);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lock().write(&redactor.finish());
    let _ = events.send(Event::OutputClosed);
}

/// Waits for every process below this one, orphans too.
fn wait_for_all(command: i32, events: &Sender<Event>) {
    loop {
        match waitpid(None, None) {
            Ok(status) => {
                if status.pid().is_some_and(|id| id.as_raw() == command) {
                    let _ = events.send(Event::Exited(status));
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => {
                let _ = events.send(Event::NoneLeft);
                return;
            }
        }
    }
}

fn report(report: &Report) {
    let text = serde_json::to_string(report).unwrap_or_default();
    // If no one reads it, standard input is closed too, and that ends the build.
    let _ = writeln!(io::stdout().lock(), "{REPORT}{text}");
}
