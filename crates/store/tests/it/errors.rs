//! Reported errors: lists, statistics and deletion.

use domain::id::ErrorId;
use domain::time::{DAY_MS, HOUR_MS};
use store::error_stats;
use store::worker_errors::{self, ErrorFilter};
use testing::sizes_around;

use crate::samples::{at, error, object, pool_id};
use crate::world::{on_both, read, write};

on_both!(
    errors_are_listed_from_newest_to_oldest_in_pages,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (number, reported) in [(0, 30), (1, 10), (2, 20), (3, 20)] {
                worker_errors::insert(tx, &error("a/b", number, reported))?;
            }
            worker_errors::insert(tx, &error("a/c", 4, 40))
        })
        .await;
        let filter = ErrorFilter::default;
        let page = read(&store, move |tx| {
            worker_errors::list(tx, &pool_id("a/b"), &filter(), None, 2)
        })
        .await;
        assert_eq!(page, [error("a/b", 0, 30), error("a/b", 3, 20)]);
        let last: ErrorId = page[1].error_id.clone();
        let page = read(&store, move |tx| {
            worker_errors::list(tx, &pool_id("a/b"), &filter(), Some((at(20), &last)), 5)
        })
        .await;
        assert_eq!(page, [error("a/b", 2, 20), error("a/b", 1, 10)]);
    }
);

on_both!(errors_are_found_by_id_and_by_launch_config, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        let mut with = error("a/b", 1, 10);
        with.launch_config_id = Some("lc-1".parse().unwrap());
        assert!(worker_errors::insert(tx, &with)?);
        assert!(!worker_errors::insert(tx, &with)?);
        worker_errors::insert(tx, &error("a/b", 2, 10))
    })
    .await;
    let by_config = ErrorFilter {
        launch_config_id: Some("lc-1".parse().unwrap()),
        error_id: None,
    };
    let found = read(&store, move |tx| {
        worker_errors::list(tx, &pool_id("a/b"), &by_config, None, 5)
    })
    .await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].error_id, error("a/b", 1, 0).error_id);
    let by_id = ErrorFilter {
        launch_config_id: None,
        error_id: Some(error("a/b", 2, 0).error_id),
    };
    let found = read(&store, move |tx| {
        worker_errors::list(tx, &pool_id("a/b"), &by_id, None, 5)
    })
    .await;
    assert_eq!(found, [error("a/b", 2, 10)]);
});

on_both!(
    statistics_are_grouped_by_time_title_code_pool_and_launch_config,
    |database| {
        let store = database.migrated().await;
        let now = "2026-09-21T14:13:20.000Z"
            .parse::<domain::time::Timestamp>()
            .unwrap();
        write(&store, move |tx| {
            let start = now.as_millis();
            let mut first = error("a/b", 0, start);
            first.launch_config_id = Some("lc-1".parse().unwrap());
            worker_errors::insert(tx, &first)?;
            worker_errors::insert(tx, &error("a/b", 1, start - HOUR_MS))?;
            let mut old = error("a/b", 2, start - 8 * DAY_MS);
            old.extra = object(serde_json::json!({}));
            old.title = "Old".to_owned();
            worker_errors::insert(tx, &old)?;
            worker_errors::insert(tx, &error("a/c", 3, start - DAY_MS))
        })
        .await;
        let one = read(&store, move |tx| {
            error_stats::count(tx, Some(&pool_id("a/b")), now)
        })
        .await;
        assert_eq!((one.total(), one.daily["2026-09-21T00:00:00.000Z"]), (2, 2));
        assert_eq!(one.hourly["2026-09-21T13:00:00.000Z"], 1);
        assert_eq!(
            (one.title["Old"], one.code["other"], one.code["Throttled"]),
            (1, 1, 2)
        );
        assert_eq!(
            (one.launch_config["lc-1"], one.launch_config["unknown"]),
            (1, 2)
        );
        assert_eq!(one.worker_pool.len(), 1);
        let all = read(&store, move |tx| error_stats::count(tx, None, now)).await;
        assert_eq!(
            (all.total(), all.worker_pool["a/b"], all.worker_pool["a/c"]),
            (3, 3, 1)
        );
        assert!(all.launch_config.is_empty());
    }
);

on_both!(the_most_frequent_titles_are_counted_first, |database| {
    let store = database.migrated().await;
    let limit = error_stats::MAX_GROUPS as usize;
    let insert = |numbers: std::ops::Range<usize>, title: fn(usize) -> String| {
        write(&store, move |tx| {
            for number in numbers.clone() {
                let mut error = error("a/b", 0, 0);
                error.error_id = format!("{number:08}QACAAAAAAAAAAA").parse().unwrap();
                error.title = title(number);
                worker_errors::insert(tx, &error)?;
            }
            Ok(())
        })
    };
    insert(90_000_000..90_000_002, |_| "~ often".to_owned()).await;
    let mut n_before = 0;
    for count in sizes_around("store::history::error_stats::MAX_GROUPS", limit) {
        insert(n_before..count, |number| format!("title {number:05}")).await;
        n_before = count;
        let stats = read(&store, |tx| error_stats::count(tx, None, at(0))).await;
        assert_eq!(stats.title.len(), (count + 1).min(limit));
        assert_eq!(stats.title["~ often"], 2);
    }
});

on_both!(old_errors_are_deleted_oldest_first_in_batches, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for number in 0..4 {
            worker_errors::insert(tx, &error("a/b", number, number.into()))?;
        }
        Ok(())
    })
    .await;
    assert_eq!(
        write(&store, |tx| worker_errors::delete_older_than(tx, at(3), 2)).await,
        2
    );
    let filter = ErrorFilter::default();
    let left = read(&store, move |tx| {
        worker_errors::list(tx, &pool_id("a/b"), &filter, None, 9)
    })
    .await;
    assert_eq!(left, [error("a/b", 3, 3), error("a/b", 2, 2)]);
    assert_eq!(
        write(&store, |tx| worker_errors::delete_older_than(tx, at(3), 2)).await,
        1
    );
});

on_both!(
    the_newest_recent_error_of_each_launch_config_is_found,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (pool, number, reported, config) in [
                ("a/b", 1, 20, Some("lc-1")),
                ("a/b", 2, 30, Some("lc-1")),
                ("a/b", 3, 25, Some("lc-2")),
                ("a/b", 4, 40, None),
                ("a/b", 5, 9, Some("lc-3")),
                ("a/c", 6, 10, Some("lc-1")),
            ] {
                let mut report = error(pool, number, reported);
                report.launch_config_id = config.map(|id| id.parse().unwrap());
                worker_errors::insert(tx, &report)?;
            }
            Ok(())
        })
        .await;
        let newest = |first: &'static str, last: &'static str| {
            let read = read(&store, move |tx| {
                worker_errors::newest_between(tx, &pool_id(first), &pool_id(last), at(10))
            });
            async move {
                let found = read.await.into_iter();
                found
                    .map(|report| (report.pool_id.to_string(), report.reported.as_millis()))
                    .collect::<Vec<_>>()
            }
        };
        let both = [("a/b".to_owned(), 30), ("a/b".to_owned(), 25)];
        assert_eq!(newest("a/b", "a/b").await, both);
        let all = [&both[..], &[("a/c".to_owned(), 10)]].concat();
        assert_eq!(newest("a/a", "a/z").await, all);
    }
);
