//! The course of a canary: its evidence over time, in a limited number of points.

use serde::{Deserialize, Serialize};

use super::evidence::CanaryEvidence;
use crate::time::Timestamp;

/// The points that are kept. Beyond, every second one is forgotten.
const MAX_POINTS: usize = 64;

/// The evidence from the beginning of a canary on, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CanaryCourse(Vec<CoursePoint>);

/// The evidence from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoursePoint {
    pub at: Timestamp,
    /// As in [`CanaryEvidence`].
    pub worse: f64,
    pub as_good: f64,
    /// Starts of the canary that succeeded or failed.
    pub starts: u32,
    pub failed_starts: u32,
}

impl CanaryCourse {
    /// Notes the evidence of this moment, if it is news.
    pub fn note(&mut self, at: Timestamp, evidence: &CanaryEvidence) {
        let canary = &evidence.canary;
        let point = CoursePoint {
            at,
            worse: evidence.worse,
            as_good: evidence.as_good,
            starts: canary.decided(),
            failed_starts: canary.decided().saturating_sub(canary.good),
        };
        let last = self.0.last().map(|last| CoursePoint { at, ..*last });
        if last == Some(point) {
            return;
        }
        if self.0.len() >= MAX_POINTS {
            let mut number = 0;
            self.0.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.0.push(point);
    }

    pub fn points(&self) -> &[CoursePoint] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::image::canary::GroupEvidence;

    fn evidence(starts: u32) -> CanaryEvidence {
        CanaryEvidence {
            canary: GroupEvidence {
                started: starts,
                good: starts.saturating_sub(1),
                ..GroupEvidence::default()
            },
            control: GroupEvidence::default(),
            worse: 0.5,
            as_good: 0.0,
            metrics: Vec::new(),
            more_starts: None,
        }
    }

    #[test]
    fn only_news_become_points() {
        let mut course = CanaryCourse::default();
        for (at, starts) in [(1, 3), (2, 3), (3, 4)] {
            course.note(Timestamp::from_millis(at), &evidence(starts));
        }
        let points: Vec<_> = course
            .points()
            .iter()
            .map(|point| (point.at.as_millis(), point.starts, point.failed_starts))
            .collect();
        assert_eq!(points, [(1, 3, 1), (3, 4, 1)]);
    }

    #[test]
    fn a_long_course_keeps_its_first_and_its_last_points() {
        for size in sizes_around("domain::image::canary::course::MAX_POINTS", 64) {
            let mut course = CanaryCourse::default();
            for number in 0..u32::try_from(size).unwrap() {
                course.note(Timestamp::from_millis(number.into()), &evidence(number));
            }
            let points = course.points();
            let fits = points.len() == size || size > 64 && (33..=64).contains(&points.len());
            assert!(fits, "{} of {size}", points.len());
            let ends = points.first().zip(points.last());
            let wanted = (size > 0).then(|| (0, i64::try_from(size).unwrap() - 1));
            let ends = ends.map(|(first, last)| (first.at.as_millis(), last.at.as_millis()));
            assert_eq!(ends, wanted);
        }
    }
}
