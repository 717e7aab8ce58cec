//! The cheapest machines that together cover a need, where machines have different sizes.
//!
//! A need of up to [`EXACT_UNITS`] units is covered exactly. Of a larger one, the machines with the
//! cheapest units are taken first, and the rest exactly. As that is what fractions of machines
//! would cost, the result costs at most one machine more than the optimum.

/// Up to this many units the cover is exact.
const EXACT_UNITS: u64 = 64;

/// Machines of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    /// Units of a machine; at least 1.
    pub(super) units: u32,
    /// The cost of a machine; finite and above 0.
    pub(super) cost: f64,
    /// How many machines there are.
    pub(super) limit: u64,
}

/// Machines of a kind that the exact cover takes together, or not at all.
struct Bundle {
    kind: usize,
    machines: u64,
    units: u64,
    cost: f64,
    /// Bit `n` is set if the cheapest cover of `n` units, with the bundles so far, takes this one.
    taken: u128,
}

/// The number of machines of each kind. Less is covered only if there are not enough.
pub(super) fn cover(kinds: &[Kind], need: u64) -> Vec<u64> {
    let mut machines = vec![0; kinds.len()];
    let all = kinds
        .iter()
        .map(|kind| kind.limit.saturating_mul(kind.units.into()));
    let mut rest = need.min(all.fold(0, u64::saturating_add));
    // Of equally cheap machines, small ones are stopped earlier.
    let mut order: Vec<usize> = (0..kinds.len()).filter(|at| kinds[*at].limit > 0).collect();
    order.sort_by_key(|at| kinds[*at].units);
    let unit_cost = |at: &usize| kinds[*at].cost / f64::from(kinds[*at].units);
    while rest > EXACT_UNITS {
        let left = |at: &usize| kinds[*at].limit - machines[*at];
        let open = order.iter().copied().filter(|at| left(at) > 0);
        let Some(best) = open
            .clone()
            .min_by(|a, b| unit_cost(a).total_cmp(&unit_cost(b)))
        else {
            return machines;
        };
        let units = u64::from(kinds[best].units);
        if units >= rest {
            let mut last = open
                .filter(|at| u64::from(kinds[*at].units) >= rest)
                .collect::<Vec<_>>();
            last.sort_by(|a, b| kinds[*a].cost.total_cmp(&kinds[*b].cost));
            machines[last.first().copied().unwrap_or(best)] += 1;
            return machines;
        }
        let taken = left(&best)
            .min(rest / units)
            .min((rest - EXACT_UNITS).div_ceil(units));
        machines[best] += taken;
        rest -= taken * units;
    }
    add_exact(kinds, &order, rest, &mut machines);
    machines
}

/// The kind of the next machine of the cheapest cover: the largest of it.
pub(super) fn next(kinds: &[Kind], need: u64) -> Option<usize> {
    let machines = cover(kinds, need);
    let taken = (0..kinds.len()).filter(|at| machines[*at] > 0);
    taken.max_by_key(|at| kinds[*at].units)
}

/// Adds the cheapest cover of at most [`EXACT_UNITS`] units by the machines that are left.
fn add_exact(kinds: &[Kind], order: &[usize], need: u64, machines: &mut [u64]) {
    let Ok(need) = usize::try_from(need) else {
        return;
    };
    let mut bundles = bundles(kinds, order, need as u64, machines);
    let mut cheapest = vec![f64::INFINITY; need + 1];
    cheapest[0] = 0.0;
    for bundle in &mut bundles {
        for units in (1..=need).rev() {
            let cost = cheapest[without(units, bundle)] + bundle.cost;
            if cost < cheapest[units] {
                cheapest[units] = cost;
                bundle.taken |= 1 << units;
            }
        }
    }
    let mut rest = need;
    for bundle in bundles.iter().rev() {
        if bundle.taken >> rest & 1 == 1 {
            machines[bundle.kind] += bundle.machines;
            rest = without(rest, bundle);
        }
    }
}

/// The machines that are left, in bundles of 1, 2, 4, …: any number of machines is a sum of some.
fn bundles(kinds: &[Kind], order: &[usize], need: u64, machines: &[u64]) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    for &kind in order {
        let Kind { units, cost, limit } = kinds[kind];
        let units = u64::from(units);
        let mut left = (limit - machines[kind]).min(need.div_ceil(units));
        let mut size = 1;
        while left > 0 {
            let machines = size.min(left);
            bundles.push(Bundle {
                kind,
                machines,
                units: machines * units,
                cost: cost * machines as f64,
                taken: 0,
            });
            left -= machines;
            size *= 2;
        }
    }
    bundles
}

fn without(units: usize, bundle: &Bundle) -> usize {
    units.saturating_sub(usize::try_from(bundle.units).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testing::sizes_around;

    use super::*;

    fn kind(units: u32, cost: f64, limit: u64) -> Kind {
        Kind { units, cost, limit }
    }

    fn cost_of(kinds: &[Kind], machines: &[u64]) -> f64 {
        let costs = kinds.iter().zip(machines);
        costs.map(|(kind, count)| kind.cost * *count as f64).sum()
    }

    fn units_of(kinds: &[Kind], machines: &[u64]) -> u64 {
        let units = kinds.iter().zip(machines);
        units
            .map(|(kind, count)| u64::from(kind.units) * count)
            .sum()
    }

    /// The cost of the cheapest cover, by trying each machine one by one.
    fn optimum(kinds: &[Kind], need: u64) -> f64 {
        let need = usize::try_from(need).unwrap();
        let mut cheapest = vec![f64::INFINITY; need + 1];
        cheapest[0] = 0.0;
        for kind in kinds {
            for _ in 0..kind.limit.min(need as u64) {
                for units in (1..=need).rev() {
                    let from = units.saturating_sub(kind.units as usize);
                    cheapest[units] = cheapest[units].min(cheapest[from] + kind.cost);
                }
            }
        }
        cheapest[need]
    }

    #[test]
    fn five_small_machines_or_one_large_are_taken_by_their_price() {
        let with_large = |price| [kind(1, 2.0, 5), kind(5, price, 1), kind(1, 2.5, 1)];
        assert_eq!(cover(&with_large(20.0), 5), [5, 0, 0]);
        assert_eq!(cover(&with_large(9.5), 5), [0, 1, 0]);
        // For one unit, the large machine is larger than needed.
        assert_eq!(cover(&with_large(9.5), 1), [1, 0, 0]);
        assert_eq!(cover(&with_large(9.5), 6), [1, 1, 0]);
        // Of equally dear machines, the small ones.
        assert_eq!(cover(&with_large(10.0), 5), [5, 0, 0]);
        assert_eq!(next(&with_large(9.5), 6), Some(1));
        assert_eq!(next(&with_large(9.5), 0), None);
    }

    #[test]
    fn everything_is_taken_if_it_is_not_enough() {
        let kinds = [kind(1, 2.0, 5), kind(5, 20.0, 1)];
        for need in [10, 11, 64, 65, 1_000_000] {
            assert_eq!(cover(&kinds, need), [5, 1]);
        }
        assert_eq!(cover(&[], 5), Vec::<u64>::new());
    }

    #[test]
    fn a_need_up_to_the_bound_is_covered_exactly_and_a_larger_one_nearly() {
        let kinds = [kind(3, 2.9, 400), kind(7, 7.1, 400), kind(16, 15.5, 2)];
        let most = usize::try_from(EXACT_UNITS).unwrap();
        for need in sizes_around("domain::plan::cover::EXACT_UNITS", most) {
            let machines = cover(&kinds, need as u64);
            assert!(units_of(&kinds, &machines) >= need as u64);
            let (cost, optimum) = (cost_of(&kinds, &machines), optimum(&kinds, need as u64));
            let loss = if need <= most { 1e-9 } else { 15.5 };
            assert!(cost <= optimum + loss, "{need}: {cost}, {optimum}");
        }
    }

    fn any_kinds() -> impl Strategy<Value = Vec<Kind>> {
        let any = (1..100_u32, 0.01..100.0_f64, 0..40_u64);
        proptest::collection::vec(
            any.prop_map(|(units, cost, limit)| kind(units, cost, limit)),
            0..8,
        )
    }

    proptest! {
        /// The bound that the caption states.
        #[test]
        fn a_cover_costs_at_most_one_machine_more_than_the_cheapest(
            kinds in any_kinds(), need in 0..400_u64,
        ) {
            let machines = cover(&kinds, need);
            let all: u64 = kinds.iter().map(|kind| kind.limit * u64::from(kind.units)).sum();
            prop_assert!(kinds.iter().zip(&machines).all(|(kind, count)| *count <= kind.limit));
            prop_assert!(units_of(&kinds, &machines) >= need.min(all));
            let optimum = optimum(&kinds, need.min(all));
            let dearest = kinds.iter().map(|kind| kind.cost).fold(0.0, f64::max);
            let loss = if need <= EXACT_UNITS { 0.0 } else { dearest };
            let cost = cost_of(&kinds, &machines);
            prop_assert!(cost <= optimum + loss + 1e-6, "{} and {}", cost, optimum);
        }

        /// So a plan may decide about one machine after the other.
        #[test]
        fn the_cover_of_the_rest_completes_the_cheapest_cover(
            kinds in any_kinds(), need in 0..=EXACT_UNITS,
        ) {
            let whole = cost_of(&kinds, &cover(&kinds, need));
            let (mut left, mut rest, mut cost) = (kinds.clone(), need, 0.0);
            while let Some(at) = next(&left, rest) {
                left[at].limit -= 1;
                cost += left[at].cost;
                rest = rest.saturating_sub(left[at].units.into());
            }
            prop_assert!((cost - whole).abs() < 1e-6, "{} and {}", cost, whole);
        }
    }
}
