//! The measurements, each below a root of its own.

use std::time::Duration;

use anyhow::Context as _;
use domain::id::ImageName;
use domain::image::{BuildState, UploadState};
use images::{Asker, ImageNode};
use serde_json::{Value, json};

use super::builders::{BuilderProcess, SHORT_SESSION, World, n_uploaded, names};
use crate::figures::Sample;
use crate::machine::{self, Stopwatch};
use crate::output;
use crate::zookeeper::packets_received;

const CLOUD: &str = "cloud";
/// A build that takes no time of its own.
const TINY: &str = "echo image >\"$FLEETWRIGHT_OUTPUT.raw\"";
/// How long builders are left idle before they are watched.
const SETTLING: Duration = Duration::from_secs(5);
/// Requests that measure the lag among many images.
const LAG_REQUESTS: u32 = 20;

fn asker() -> Asker {
    Asker {
        by: "bench".to_owned(),
        reason: "measurement".to_owned(),
    }
}

/// The times of requests for an image, one after the other.
#[derive(Default)]
struct Latencies {
    start: Vec<Duration>,
    upload: Vec<Duration>,
}

impl Latencies {
    fn percentiles(self) -> Value {
        let percentiles = |latencies: Vec<Duration>| {
            let n = latencies.len();
            let sample = Sample::new(latencies, Duration::ZERO);
            json!({
                "n": n,
                "p50Ms": sample.percentile_ms(50),
                "p99Ms": sample.percentile_ms(99),
                "maxMs": sample.percentile_ms(100),
            })
        };
        json!({
            "requestToBuildStart": percentiles(self.start),
            "readyToUploadStart": percentiles(self.upload),
        })
    }
}

/// Requests a build, and waits until it is uploaded.
async fn request(
    world: &World,
    image: &ImageName,
    log: &std::path::Path,
    latencies: &mut Latencies,
) -> anyhow::Result<()> {
    let newest = |node: &ImageNode| node.builds.keys().next_back().copied();
    let before = world.images.image(image, newest).flatten();
    let asked = machine::now();
    world.images.request_build(image, &asker()).await?;
    let (ready, uploading) = world
        .wait(image, |node| {
            let (number, build) = node.builds.last_key_value()?;
            let record = build.record.as_ref()?;
            if Some(*number) <= before || n_uploaded(build) == 0 {
                return None;
            }
            let uploads = build
                .targets
                .values()
                .flat_map(|target| target.uploads.values());
            let mut started = uploads.filter_map(|upload| upload.record.as_ref()?.started);
            Some((record.finished?, started.next()?))
        })
        .await?;
    let text = std::fs::read_to_string(log).context("cannot read the log of builds")?;
    let started = text.lines().last().context("no build has begun")?;
    let started: i64 = started.trim().parse().context("a time is no number")?;
    let between = |from: i64, to: i64| Duration::from_millis(u64::try_from(to - from).unwrap_or(0));
    latencies.start.push(between(asked.as_millis(), started));
    let upload = between(ready.as_millis(), uploading.as_millis());
    latencies.upload.push(upload);
    Ok(())
}

/// A build that notes when its command started, in milliseconds.
fn noting(log: &std::path::Path) -> String {
    format!("date +%s%3N >>{}; {TINY}", log.display())
}

pub(super) async fn latency(n_requests: u32) -> anyhow::Result<Value> {
    output::note(&format!("{n_requests} requests"));
    let world = World::open().await?;
    let (names, log) = (names(1)?, world.path("starts"));
    world.define(&names, &noting(&log), &[CLOUD]).await?;
    let _builder = world.builder("a", &[CLOUD])?;
    world.wait_uploaded(&names, 1, 1).await?;
    let mut latencies = Latencies::default();
    for _ in 0..n_requests {
        request(&world, &names[0], &log, &mut latencies).await?;
    }
    Ok(latencies.percentiles())
}

/// Seconds from the start of the builders until all images are uploaded.
pub(super) async fn throughput(n_images: u32, n_builders: u32) -> anyhow::Result<f64> {
    let world = World::open().await?;
    let names = names(n_images)?;
    world.define(&names, TINY, &[CLOUD]).await?;
    let watch = Stopwatch::start();
    let _builders = start(&world, n_builders, &[CLOUD])?;
    world.wait_uploaded(&names, 1, 1).await?;
    Ok(watch.elapsed().as_secs_f64())
}

fn start(world: &World, count: u32, providers: &[&str]) -> anyhow::Result<Vec<BuilderProcess>> {
    let builders = (0..count).map(|number| world.builder(&format!("b{number}"), providers));
    builders.collect()
}

pub(super) async fn idle(n_images: u32, seconds: u64) -> anyhow::Result<Value> {
    output::note(&format!(
        "an idle builder with {n_images} images, for {seconds} s"
    ));
    let world = World::open().await?;
    let names = names(n_images)?;
    world.define(&names, TINY, &[CLOUD]).await?;
    let builder = world.builder("a", &[CLOUD])?;
    world.wait_uploaded(&names, 1, 1).await?;
    for name in &names {
        world.images.request_build(name, &asker()).await?;
    }
    world.wait_uploaded(&names, 2, 1).await?;
    let servers = world.servers.clone();
    let _files = world.close();
    machine::pause(SETTLING).await;
    let (packets, processor) = (packets_received(&servers)?, builder.processor_seconds());
    machine::pause(Duration::from_secs(seconds)).await;
    let received = packets_received(&servers)? - packets;
    let used = builder
        .processor_seconds()
        .zip(processor)
        .map(|(after, before)| after - before);
    let seconds = std::num::NonZeroU64::new(seconds).context("an idle builder takes time")?;
    let length = Duration::from_secs(seconds.get()).as_secs_f64();
    Ok(json!({
        "packetsPerMinute": received * 60 / seconds,
        "processorPercent": used.map(|used| used / length * 100.0),
        "residentMib": builder.resident_bytes().map(|bytes| bytes >> 20),
    }))
}

pub(super) async fn takeover(n_kills: u32) -> anyhow::Result<Value> {
    output::note(&format!("{n_kills} kills"));
    let mut world = World::open().await?;
    world.session = SHORT_SESSION;
    let (names, log) = (names(n_kills)?, world.path("starts"));
    let script = format!("date +%s%3N >>{}; exec sleep 1000", log.display());
    let mut builders = start(&world, 2, &[])?;
    let mut latencies = Vec::new();
    // Each kill has an image of its own: several deaths in a row delay the next build of an image.
    for (number, name) in names.iter().enumerate() {
        world
            .define(std::slice::from_ref(name), &script, &[])
            .await?;
        let (build, builder) = building(&world, name, None).await?;
        until_started(&log, 2 * number).await;
        let position = builders.iter().position(|it| it.name == builder);
        let mut holder = builders.remove(position.context("another builder has the lock")?);
        let killed = machine::now();
        holder.process.kill()?;
        building(&world, name, Some(build)).await?;
        until_started(&log, 2 * number + 1).await;
        let text = std::fs::read_to_string(&log)?;
        let started: i64 = text.lines().last().unwrap_or_default().trim().parse()?;
        let took = u64::try_from(started - killed.as_millis()).unwrap_or(0);
        latencies.push(Duration::from_millis(took));
        builders.push(world.builder(&format!("c{number}"), &[])?);
    }
    let sample = Sample::new(latencies, Duration::ZERO);
    Ok(json!({
        "sessionSeconds": SHORT_SESSION.as_secs(),
        "n": n_kills,
        "medianMs": sample.percentile_ms(50),
        "maxMs": sample.percentile_ms(100),
    }))
}

/// Waits until more commands than this have started.
async fn until_started(log: &std::path::Path, n_before: usize) {
    while n_lines(log) <= n_before {
        machine::pause(Duration::from_millis(1)).await;
    }
}

fn n_lines(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Waits for a build after this one. Returns its number and its builder.
async fn building(
    world: &World,
    image: &ImageName,
    after: Option<domain::image::BuildNumber>,
) -> anyhow::Result<(domain::image::BuildNumber, String)> {
    world
        .wait(image, |node| {
            let builds = node.builds.iter().rev();
            let running =
                builds.filter_map(|(number, build)| Some((number, build.record.as_ref()?)));
            let mut running = running.filter(|(_, record)| record.state == BuildState::Building);
            let (number, record) = running.next()?;
            (Some(*number) > after).then(|| (*number, record.builder.clone()))
        })
        .await
}

pub(super) async fn large(n_images: u32, n_builders: u32) -> anyhow::Result<Value> {
    let providers = ["one", "two", "three"];
    let world = World::open().await?;
    let (names, log) = (names(n_images)?, world.path("starts"));
    output::note(&format!("{n_images} definitions"));
    let watch = Stopwatch::start();
    world.define(&names, &noting(&log), &providers).await?;
    let defined = watch.elapsed().as_secs_f64();
    output::note(&format!("{n_images} images, {n_builders} builders"));
    let packets = packets_received(&world.servers)?;
    let watch = Stopwatch::start();
    let builders = start(&world, n_builders, &providers)?;
    let started = watch.elapsed().as_secs_f64();
    world.wait_uploaded(&names, 1, providers.len()).await?;
    let seconds = watch.elapsed().as_secs_f64();
    let received = packets_received(&world.servers)? - packets;
    let resident = builders.iter().filter_map(BuilderProcess::resident_bytes);
    let processor = builders
        .iter()
        .filter_map(BuilderProcess::processor_seconds);
    let processor: f64 = processor.sum();
    let largest = resident.max();
    output::note("the lag among them");
    let mut latencies = Latencies::default();
    for name in names.iter().take(LAG_REQUESTS as usize) {
        request(&world, name, &log, &mut latencies).await?;
    }
    let failed = n_failed(&world, &names);
    Ok(json!({
        "images": n_images,
        "builders": n_builders,
        "definitionSeconds": defined,
        "startSeconds": started,
        "seconds": seconds,
        "packets": received,
        "processorSeconds": processor,
        "largestBuilderMib": largest.map(|bytes| bytes >> 20),
        "failedUploads": failed,
        "lag": latencies.percentiles(),
    }))
}

fn n_failed(world: &World, names: &[ImageName]) -> usize {
    let failed = |node: &ImageNode| {
        let targets = node
            .builds
            .values()
            .flat_map(|build| build.targets.values());
        let uploads = targets.flat_map(|target| target.uploads.values());
        let records = uploads.filter_map(|upload| upload.record.as_ref());
        let failed = records.filter(|record| matches!(record.state, UploadState::Failed { .. }));
        failed.count()
    };
    names
        .iter()
        .filter_map(|name| world.images.image(name, failed))
        .sum()
}
