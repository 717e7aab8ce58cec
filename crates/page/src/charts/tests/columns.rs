//! Values in columns: none is lost, and none is invented.

use proptest::prelude::*;
use testing::sizes_around;

use super::{MINUTE_MS, MORNING_MS, minutes, range};
use crate::charts::series::Columns;
use crate::charts::{Gather, Series, TimeRange};

fn known(values: Vec<Option<f64>>) -> Vec<f64> {
    values.into_iter().flatten().collect()
}

#[test]
fn each_step_has_its_column_where_there_is_room() {
    let series = Series {
        values: vec![Some(1.0), None, Some(3.0)],
        ..minutes([])
    };
    let range = TimeRange::new(MORNING_MS, MORNING_MS + 4 * MINUTE_MS);
    let columns = Columns::of(range, &series, 10);
    assert_eq!(columns.n, 4);
    let values = columns.gather(&series, Gather::Peak);
    assert_eq!(values, [Some(1.0), None, Some(3.0), None]);
}

#[test]
fn columns_stay_where_they_are_as_time_goes_on() {
    let series = minutes((0..1_440).map(f64::from));
    let starts = |now_ms: i64| {
        let range = TimeRange::new(now_ms - 1_000 * MINUTE_MS, now_ms);
        let columns = Columns::of(range, &series, 100);
        let starts: Vec<i64> = columns.spans().map(|(from_ms, _)| from_ms).collect();
        starts
    };
    let (now, later) = (starts(MORNING_MS), starts(MORNING_MS + 7 * MINUTE_MS));
    assert!(later.iter().filter(|start| now.contains(start)).count() >= now.len() - 1);
}

#[test]
fn states_of_one_column_are_of_one_moment() {
    // The sum of the peaks is 18, which never was.
    let (one, other) = (minutes([9.0, 0.0]), minutes([0.0, 8.0]));
    let range = TimeRange::new(MORNING_MS, MORNING_MS + 4 * MINUTE_MS);
    let columns = Columns::of(range, &one, 3);
    let values = columns.gather_together(&[&one, &other]);
    assert_eq!((values[0][0], values[1][0]), (Some(9.0), Some(0.0)));
}

#[test]
fn no_chart_has_more_columns_than_its_limit() {
    let sizes = [
        (48, sizes_around("page::charts::spark::COLUMNS", 48)),
        (480, sizes_around("page::charts::lines::COLUMNS", 480)),
        (480, sizes_around("page::charts::capacity::COLUMNS", 480)),
        (96, sizes_around("page::charts::bars::MAX_BARS", 96)),
    ];
    for (most, sizes) in sizes {
        for size in sizes {
            let n_minutes = i64::try_from(size).unwrap();
            let range = TimeRange::new(MORNING_MS, MORNING_MS + n_minutes * MINUTE_MS);
            let series = minutes((0..size).map(|_| 1.0));
            let columns = Columns::of(range, &series, most);
            assert!(columns.n <= most, "{columns:?}");
            let sum: f64 = known(columns.gather(&series, Gather::Sum)).iter().sum();
            assert_eq!(sum, n_minutes as f64, "{size} of {most}");
        }
    }
}

#[test]
fn a_step_of_nothing_or_of_ages_is_no_endless_work() {
    for step_ms in [i64::MIN, 0, 1, i64::MAX] {
        for from_ms in [i64::MIN, 0, MORNING_MS, i64::MAX] {
            let series = Series {
                from_ms,
                step_ms,
                values: vec![Some(1.0); 3],
            };
            for range in [range(), TimeRange::new(0, i64::MAX), TimeRange::new(5, 5)] {
                let columns = Columns::of(range, &series, 48);
                assert!((1..=48).contains(&columns.n), "{columns:?}");
                assert_eq!(columns.gather(&series, Gather::Sum).len(), columns.n);
                assert_eq!(columns.gather_together(&[&series])[0].len(), columns.n);
            }
        }
    }
}

proptest! {
    #[test]
    fn sums_and_peaks_survive_gathering(
        values in prop::collection::vec(prop::option::of(0_u32..1_000), 1..400),
        most in 2_usize..100,
    ) {
        let values: Vec<Option<f64>> = values.into_iter().map(|it| it.map(f64::from)).collect();
        let n_minutes = i64::try_from(values.len()).unwrap();
        let series = Series { from_ms: MORNING_MS, step_ms: MINUTE_MS, values };
        let range = TimeRange::new(MORNING_MS, MORNING_MS + n_minutes * MINUTE_MS);
        let columns = Columns::of(range, &series, most);
        let before = known(series.values.clone());
        let sums = known(columns.gather(&series, Gather::Sum));
        prop_assert_eq!(sums.iter().sum::<f64>(), before.iter().sum::<f64>());
        let peaks = known(columns.gather(&series, Gather::Peak));
        let highest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        prop_assert_eq!(highest(&peaks), highest(&before));
    }
}
