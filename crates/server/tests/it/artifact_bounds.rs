//! How many artifacts and folders one activation examines.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use domain::artifact::{Artifact, Content};
use domain::id::TaskId;
use engine::artifacts::ArtifactFolder;
use server::background::driver::BackgroundTask;
use server::background::{ArtifactCleanup, ArtifactLimits, Batches};
use testing::sizes_around;

use crate::activations::{done, in_steps};
use crate::database::on_both;
use crate::runs::TASK;
use crate::samples::DAY_MS;
use crate::world::World;

/// Most limits are smaller here than the task's defaults.
const SMALL: usize = 3;

fn folder(world: &World) -> ArtifactFolder {
    ArtifactFolder::new(world.app.config.artifact_folder().unwrap())
}

/// Writes the rows of `count` artifacts of one run.
async fn rows(world: &World, count: usize, content: Content) {
    let artifact = Artifact {
        task_id: TASK.parse().unwrap(),
        run_id: 0,
        name: "public/a".parse().unwrap(),
        content_type: "text/plain".to_owned(),
        expires: world.now().plus_millis(DAY_MS),
        created: world.now(),
        content,
    };
    world
        .write(move |tx| {
            for number in 0..count {
                let mut artifact = artifact.clone();
                artifact.name = format!("public/{number}").parse().unwrap();
                assert!(store::artifacts::insert(tx, &artifact)?);
            }
            Ok(())
        })
        .await;
}

fn elsewhere() -> Content {
    Content::Reference {
        url: "https://example.com/".to_owned(),
    }
}

/// A file that is old enough to be removed, by the clock of the test.
fn old_file(world: &World, file: &Path) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "x").unwrap();
    let now = Duration::from_millis(world.now().as_millis().unsigned_abs());
    let age = Duration::from_millis(DAY_MS.unsigned_abs() + 1);
    let file = std::fs::File::options().read(true).open(file).unwrap();
    let made = SystemTime::UNIX_EPOCH + now - age;
    file.set_modified(made).unwrap();
}

/// A file of a task that does not exist; the task has this number on the shelf.
fn lost_file(world: &World, shelf: u32, number: usize) {
    let task = format!("{shelf:02x}{number:010x}40008000000000000000");
    let place = folder(world).shard_number(shelf).join(task).join("0/x");
    old_file(world, &place);
}

on_both!(artifacts_are_ended_in_batches, |world| {
    const BATCH: usize = 200;
    for count in sizes_around("server::background::artifact_cleanup::BATCH", BATCH) {
        rows(world, count, elsewhere()).await;
        world.clock.advance_ms(2 * DAY_MS);
        let mut task = ArtifactCleanup::new(Arc::clone(&world.app.engine));
        let (ended, counts) = world.counted(task.activate()).await;
        assert_eq!(ended.unwrap(), done("artifacts expired", count));
        let n_looks = (count / BATCH + 1) as u64;
        assert_eq!(counts.transactions("artifact_expire"), n_looks);
    }
});

on_both!(
    an_activation_deletes_a_bounded_number_of_artifacts,
    |world| {
        const SIZE: usize = 2;
        let limits = ArtifactLimits {
            expired: Batches {
                size: 2,
                most: SMALL,
            },
            ..ArtifactLimits::default()
        };
        for count in sizes_around("server::background::artifact_cleanup::MAX_BATCHES", SMALL) {
            rows(world, SIZE * count, elsewhere()).await;
            world.clock.advance_ms(2 * DAY_MS);
            let mut task = ArtifactCleanup::with_limits(Arc::clone(&world.app.engine), limits);
            in_steps(
                "artifacts expired",
                SIZE * count,
                SIZE * SMALL,
                async || task.activate().await.unwrap(),
            )
            .await;
        }
    }
);

on_both!(
    an_activation_searches_a_bounded_number_of_shelves,
    |world| {
        let limits = ArtifactLimits {
            shelves: u32::try_from(SMALL).unwrap(),
            ..ArtifactLimits::default()
        };
        for count in sizes_around("server::background::artifact_cleanup::MAX_SHELVES", SMALL) {
            for shelf in 0..u32::try_from(count).unwrap() {
                lost_file(world, shelf, 0);
            }
            let mut task = ArtifactCleanup::with_limits(Arc::clone(&world.app.engine), limits);
            in_steps("lost files removed", count, SMALL, async || {
                task.activate().await.unwrap()
            })
            .await;
        }
    }
);

on_both!(
    an_activation_searches_a_bounded_number_of_tasks_of_a_shelf,
    |world| {
        let limits = ArtifactLimits {
            tasks: SMALL,
            ..ArtifactLimits::default()
        };
        for count in sizes_around("server::background::artifact_cleanup::MAX_TASKS", SMALL) {
            for number in 0..count {
                lost_file(world, 7, number);
            }
            let mut task = ArtifactCleanup::with_limits(Arc::clone(&world.app.engine), limits);
            in_steps("lost files removed", count, SMALL, async || {
                task.activate().await.unwrap()
            })
            .await;
        }
    }
);

/// Makes a run with `count` files, each with its row, and one more file without a row.
async fn run_with_files(world: &World, count: usize) {
    let content = Content::File {
        declared_bytes: None,
        uploaded: None,
    };
    rows(world, count, content).await;
    let (folder, task) = (folder(world), TASK.parse::<TaskId>().unwrap());
    for number in 0..count {
        let name = format!("public/{number}").parse().unwrap();
        old_file(world, &folder.artifact(&task, 0, &name));
    }
    old_file(world, &folder.run(&task, 0).join("lost"));
}

/// The number of files of the run, including the lost one; then they are deleted with their rows.
async fn end_of_run(world: &World) -> usize {
    let run = folder(world).run(&TASK.parse().unwrap(), 0);
    let n_files = std::fs::read_dir(&run).map_or(0, Iterator::count);
    if n_files > 0 {
        std::fs::remove_dir_all(run).unwrap();
    }
    world.clock.advance_ms(2 * DAY_MS);
    ArtifactCleanup::new(Arc::clone(&world.app.engine))
        .activate()
        .await
        .unwrap();
    n_files
}

/// All shelves in one activation.
fn everywhere() -> ArtifactLimits {
    ArtifactLimits {
        shelves: 256,
        ..ArtifactLimits::default()
    }
}

on_both!(
    a_lost_file_is_found_among_the_artifacts_of_its_run_page_by_page,
    |world| {
        const LIMIT: usize = 5;
        for count in sizes_around("server::background::artifact_cleanup::PAGE", LIMIT) {
            run_with_files(world, count).await;
            let limits = ArtifactLimits {
                page: 5,
                ..everywhere()
            };
            let mut task = ArtifactCleanup::with_limits(Arc::clone(&world.app.engine), limits);
            let (removed, counts) = world.counted(task.activate()).await;
            assert_eq!(removed.unwrap(), done("lost files removed", 1));
            let n_pages = (count / LIMIT + 1) as u64;
            assert_eq!(counts.statements("artifact_list"), n_pages);
            assert_eq!(end_of_run(world).await, count);
        }
    }
);

on_both!(
    a_run_that_fills_too_many_pages_keeps_all_its_files,
    |world| {
        const SIZE: usize = 2;
        for count in sizes_around("server::background::artifact_cleanup::MAX_PAGES", SMALL) {
            run_with_files(world, SIZE * count).await;
            let limits = ArtifactLimits {
                page: 2,
                pages: u32::try_from(SMALL).unwrap(),
                ..everywhere()
            };
            let mut task = ArtifactCleanup::with_limits(Arc::clone(&world.app.engine), limits);
            let is_searched = count < SMALL;
            let removed = usize::from(is_searched);
            assert_eq!(
                task.activate().await.unwrap(),
                done("lost files removed", removed)
            );
            assert_eq!(end_of_run(world).await, SIZE * count + 1 - removed);
        }
    }
);
