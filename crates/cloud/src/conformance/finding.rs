//! The questions of a conformance run, their answers, and the surroundings of a run.

use std::time::Duration;

use async_trait::async_trait;
use domain::time::Timestamp;

/// An answer is cut after this many characters.
const MAX_ANSWER_CHARS: usize = 1_000;

/// A question to a provider, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderQuestion {
    SetUp,
    Places,
    Machines,
    Images,
    Config,
    Prices,
    Bids,
    PoolResources,
    Launch,
    SecondLaunch,
    Alive,
    Listed,
    End,
    SecondEnd,
    Gone,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConformanceResult {
    Passed,
    Failed,
    NotApplicable,
}

/// The answer to a question, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConformanceFinding {
    pub question: ProviderQuestion,
    pub result: ConformanceResult,
    pub answer: String,
    /// The next step, if it failed.
    pub advice: Option<&'static str>,
}

impl ProviderQuestion {
    pub fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Places => "places",
            Self::Machines => "machines",
            Self::Images => "images",
            Self::Config => "config",
            Self::Prices => "prices",
            Self::Bids => "bids",
            Self::PoolResources => "pool-resources",
            Self::Launch => "launch",
            Self::SecondLaunch => "second-launch",
            Self::Alive => "alive",
            Self::Listed => "listed",
            Self::End => "end",
            Self::SecondEnd => "second-end",
            Self::Gone => "gone",
            Self::Release => "release",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::SetUp => "Can it be set up with its configuration and its credentials?",
            Self::Places => "Where can it start workers?",
            Self::Machines => "Can it list its own machines?",
            Self::Images => "Can it list its own images?",
            Self::Config => "Does it take the launch configs?",
            Self::Prices => "Can it update its prices?",
            Self::Bids => "Does it bid for each launch config?",
            Self::PoolResources => "Can it make the resources of a pool?",
            Self::Launch => "Does it make the one machine that is ordered?",
            Self::SecondLaunch => "Does a second order with the same token make no second machine?",
            Self::Alive => "Does a look at the machine find it alive?",
            Self::Listed => "Does its list have the machine, with the token?",
            Self::End => "Can it end the machine?",
            Self::SecondEnd => "Does it succeed to end the machine again?",
            Self::Gone => "Has the machine left its list?",
            Self::Release => "Can it remove the resources of the pool?",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::SetUp => "correct its section of the server's configuration, or its credentials",
            Self::Places => "see whether its credentials may list regions and zones",
            Self::Machines => {
                "see whether its credentials may list machines; without the list, machines of \
                 lost answers are not found"
            }
            Self::Images => "see whether its credentials may list images",
            Self::Config => "correct the launch config",
            Self::Prices => "see whether its source of prices can be reached",
            Self::Bids => "without a bid no machine is launched: correct the launch config",
            Self::PoolResources => "see whether its credentials may make these resources",
            Self::Launch => "correct the launch config or the permissions that the error names",
            Self::SecondLaunch => {
                "make the machine's name or the cloud's request id from the token, and return the \
                 machine of the first order"
            }
            Self::Alive => "look into the cloud's console for why it does not run",
            Self::Listed => "mark each machine with the token of its launch, and list these marks",
            Self::End => "see whether its credentials may end machines, and end this one by hand",
            Self::SecondEnd => "let `end` succeed if the machine has ended or is ending",
            Self::Gone => "see in the cloud whether the machine still exists, and end it by hand",
            Self::Release => "remove them by hand",
        }
    }
}

impl ConformanceResult {
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotApplicable => "not-applicable",
        }
    }
}

impl ConformanceFinding {
    pub(super) fn new(question: ProviderQuestion, answer: Result<String, String>) -> Self {
        let short = |text: String| text.chars().take(MAX_ANSWER_CHARS).collect();
        let answer: Result<String, String> = answer.map(short).map_err(short);
        match answer {
            Ok(answer) => Self {
                question,
                result: ConformanceResult::Passed,
                answer,
                advice: None,
            },
            Err(answer) => Self {
                question,
                result: ConformanceResult::Failed,
                answer,
                advice: Some(question.advice()),
            },
        }
    }

    pub(super) fn not_applicable(question: ProviderQuestion, why: &str) -> Self {
        Self {
            question,
            result: ConformanceResult::NotApplicable,
            answer: why.to_owned(),
            advice: None,
        }
    }
}

/// The limit of one call to the provider.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// The surroundings of a run.
#[async_trait]
pub trait ConformanceHost: Sync {
    fn now(&self) -> Timestamp;

    /// Waits a moment before the next look at the cloud. False: the time for looks is over.
    async fn wait(&self) -> bool;

    /// The machine is to end from now on: looks get their full time again.
    fn begin_end(&self) {}

    /// Takes the next answer.
    fn note(&self, finding: ConformanceFinding);
}

/// The answer of one question.
pub(super) fn answer(
    host: &dyn ConformanceHost,
    question: ProviderQuestion,
    answer: Result<String, String>,
) {
    host.note(ConformanceFinding::new(question, answer));
}

pub(super) fn not_applicable(host: &dyn ConformanceHost, question: ProviderQuestion, why: &str) {
    host.note(ConformanceFinding::not_applicable(question, why));
}

/// Waits for a call within the limit.
pub(super) async fn limited<T, E: ToString>(
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CALL_LIMIT.as_secs())),
    }
}
