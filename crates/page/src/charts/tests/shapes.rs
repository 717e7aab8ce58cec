//! Paths in steps, and segments that are wide enough to be seen.

use proptest::prelude::*;

use crate::charts::life::widen;
use crate::charts::path::{Step, area, line, ticks, units};

fn steps(values: &[Option<i32>]) -> impl Iterator<Item = Step> {
    let places = values.iter().zip(0..);
    places.map(|(y, place)| Step {
        from: place * 10,
        to: place * 10 + 10,
        y: *y,
    })
}

#[test]
fn a_path_goes_in_steps_and_has_gaps() {
    let values = [Some(5), Some(5), Some(2), None, Some(7)];
    assert_eq!(line(steps(&values)), "M0 5h20v-3h10M40 7h10");
    assert_eq!(area(steps(&values), 9), "M0 9V5h20v-3h10V9zM40 9V7h10V9z");
    assert_eq!(line(steps(&[])), "");
    assert_eq!(line(steps(&[None, None])), "");
}

#[test]
fn ticks_at_one_place_are_drawn_once() {
    assert_eq!(ticks([3, 3, 8].into_iter(), 24, 3), "M3 24v3M8 24v3");
}

#[test]
fn a_share_beyond_its_ends_is_at_its_ends() {
    assert_eq!(
        [-1.0, 0.0, 0.5, 1.0, 9.0, f64::NAN].map(|it| units(it, 10)),
        [0, 0, 5, 10, 10, 0]
    );
}

proptest! {
    #[test]
    fn segments_of_a_life_can_be_seen_and_do_not_overlap(
        lengths in prop::collection::vec(0.0_f64..1.0, 0..300),
    ) {
        let sum: f64 = lengths.iter().sum::<f64>().max(1.0);
        let mut end = 0.0;
        let spans: Vec<(f64, f64)> = lengths
            .iter()
            .map(|length| {
                let from = end;
                end = (end + length / sum).min(1.0);
                (from, end)
            })
            .collect();
        let wide = widen(&spans);
        prop_assert_eq!(wide.len(), spans.len());
        let shortest = 0.006_f64.min(1.0 / spans.len().max(1) as f64) * 0.999;
        let mut end = 0.0;
        for (from, to) in wide {
            prop_assert!(from >= end - 1e-9 && to <= 1.0 + 1e-9);
            prop_assert!(to - from >= shortest, "{} to {}", from, to);
            end = to;
        }
    }
}
