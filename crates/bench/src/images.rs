//! Benchmarks of builders on a ZooKeeper.
//!
//! Builders are processes of the measured program. Builds are shell commands, and uploads go to the
//! simulated provider, so that the time is that of the builders. The parts repeat the measurements
//! of Nodepool in docs/performance.md.

mod builders;
mod parts;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Only these parts, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Number of requests for a build, one after the other
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// Number of images, except in the large part
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    images: u32,
    /// Number of builders that are killed
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
    /// Seconds for which an idle builder is watched
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    idle_seconds: u64,
    /// Number of images of the large part, each with three uploads
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    large_images: u32,
    /// Number of builders of the large part
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    large_builders: u32,
}

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From a request to the start of the command, and from a ready build to the upload
    Latency,
    /// All images from nothing to uploaded, with 1 and with 4 builders
    Throughput,
    /// Load and memory of an idle builder with two builds of each image
    Idle,
    /// From the kill of a builder in mid-build to the build of another
    Takeover,
    /// Many images, each with three uploads, and many builders; only if it is named
    Large,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let selected = |part| match arguments.only.as_slice() {
        [] => part != Part::Large,
        only => only.contains(&part),
    };
    let mut figures = Figures::default();
    if selected(Part::Latency) {
        let measured = parts::latency(arguments.requests).await?;
        figures.add("latency", measured);
    }
    if selected(Part::Throughput) {
        for n_builders in [1, 4] {
            output::note(&format!(
                "{} images, {n_builders} builders",
                arguments.images
            ));
            let seconds = parts::throughput(arguments.images, n_builders).await?;
            figures.add(&format!("secondsWith{n_builders}Builders"), seconds.into());
        }
    }
    if selected(Part::Idle) {
        let measured = parts::idle(arguments.images, arguments.idle_seconds).await?;
        figures.add("idle", measured);
    }
    if selected(Part::Takeover) {
        let measured = parts::takeover(arguments.kills).await?;
        figures.add("takeover", measured);
    }
    if selected(Part::Large) {
        let (n_images, n_builders) = (arguments.large_images, arguments.large_builders);
        let measured = parts::large(n_images, n_builders).await?;
        figures.add("large", measured);
    }
    output::figures(&Value::Object(figures.0), as_json, output::lines);
    Ok(())
}

/// The figures by their parts.
#[derive(Default)]
struct Figures(Map<String, Value>);

impl Figures {
    /// Adds the figures of a part, and notes them: a later part may fail.
    fn add(&mut self, part: &str, figures: Value) {
        output::note(&format!("{part}: {figures}"));
        self.0.insert(part.to_owned(), figures);
    }
}
