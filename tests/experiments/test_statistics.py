import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rllib_rise.errors import ConfigError, NonFiniteError, RiseError
from rllib_rise.experiments.statistics import (
    Interval,
    bootstrap_interval,
    censored_median,
    interquartile_mean,
    iqm,
    probability_of_improvement,
)

finite = st.floats(-1e6, 1e6)
task = st.lists(finite, min_size=2, max_size=12)
several_tasks = st.lists(task, min_size=1, max_size=4)


def coverage_bounds(claimed: float, experiments: int) -> tuple[float, float]:
    """Counts that a correct claim leaves with probability 1e-4."""
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], experiments, claimed)
    return low / experiments, high / experiments


def covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


class TestIqm:
    def test_drops_a_quarter_of_the_runs_at_either_end(self):
        assert iqm([[1000.0, 3.0, 1.0, -1000.0, 2.0, 4.0, 5.0, 0.0]]) == (1 + 2 + 3 + 4) / 4

    def test_pools_the_runs_of_all_tasks(self):
        assert iqm([[0.0, 10.0], [1.0, 2.0, 3.0, 50.0]]) == (1 + 2 + 3 + 10) / 4

    def test_is_the_mean_below_four_runs(self):
        assert iqm([[1.0, 2.0, 9.0]]) == 4.0

    @given(several_tasks)
    def test_equals_scipy_trimmed_mean(self, scores):
        expected = stats.trim_mean(np.concatenate(scores), 0.25)
        assert iqm(scores) == pytest.approx(expected, rel=1e-9, abs=1e-6)

    def test_reduces_the_given_axis(self):
        values = np.random.default_rng(0).normal(size=(7, 9))
        by_row = [iqm([row]) for row in values]
        assert interquartile_mean(values) == pytest.approx(by_row)
        assert interquartile_mean(values.T, axis=0) == pytest.approx(by_row)


class TestBootstrapInterval:
    def test_estimate_is_the_statistic_of_the_pooled_runs(self):
        scores = [[1.0, 2.0, 3.0], [4.0, 5.0, 9.0, 11.0]]
        assert bootstrap_interval(scores).estimate == iqm(scores)
        assert bootstrap_interval(scores, np.mean).estimate == 5.0
        assert bootstrap_interval(scores, np.median).estimate == 4.0

    @pytest.mark.parametrize("n", [2, 3, 4])
    def test_mean_of_few_seeds_gets_student_s_interval(self, n):
        scores = np.random.default_rng(n).normal(size=n)
        expected = stats.ttest_1samp(scores, 0).confidence_interval(0.95)
        interval = bootstrap_interval([scores], np.mean, resamples=100_000)
        width = expected.high - expected.low
        assert interval.low == pytest.approx(expected.low, abs=0.01 * width)
        assert interval.high == pytest.approx(expected.high, abs=0.01 * width)

    @pytest.mark.parametrize("statistic", [interquartile_mean, np.mean])
    def test_equals_scipy_percentile_bootstrap_at_the_expanded_level(self, statistic):
        n = 12
        scores = np.random.default_rng(3).lognormal(size=n)
        tail = stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.025, n - 1))
        expected = stats.bootstrap(
            (scores,),
            statistic,
            method="percentile",
            confidence_level=1 - 2 * tail,
            n_resamples=40_000,
            vectorized=True,
            rng=np.random.default_rng(4),
        ).confidence_interval
        interval = bootstrap_interval([scores], statistic, resamples=40_000)
        width = expected.high - expected.low
        assert interval.low == pytest.approx(expected.low, abs=0.03 * width)
        assert interval.high == pytest.approx(expected.high, abs=0.03 * width)

    def test_mean_of_many_seeds_approaches_student_s_interval(self):
        scores = np.random.default_rng(5).normal(size=200)
        expected = stats.ttest_1samp(scores, 0).confidence_interval(0.9)
        interval = bootstrap_interval([scores], np.mean, confidence=0.9, resamples=20_000)
        assert interval.low == pytest.approx(expected.low, abs=0.01)
        assert interval.high == pytest.approx(expected.high, abs=0.01)
        assert interval.confidence == 0.9

    @pytest.mark.parametrize("n", [3, 10])
    def test_seeds_are_resampled_within_their_task(self, n):
        # Runs agree within each task: only resampling across tasks could vary the mean.
        interval = bootstrap_interval([np.zeros(n), np.full(n, 100.0)], np.mean)
        assert (interval.low, interval.high) == pytest.approx((50.0, 50.0))

    def test_every_task_keeps_its_number_of_runs(self):
        seen = []

        def spy(values, *, axis):
            seen.append(values)
            return values.mean(axis=axis)

        bootstrap_interval([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2, 2.3, 2.4]], spy, resamples=50)
        assert seen[1].shape == (50, 8)
        assert (np.count_nonzero(seen[1] < 1.5, axis=1) == 3).all()

    def test_the_task_with_the_fewest_seeds_decides_the_widening(self):
        rng = np.random.default_rng(6)
        small, large = rng.normal(size=5), np.zeros(40)
        alone = bootstrap_interval([small], np.mean, resamples=20_000)
        both = bootstrap_interval([small, large], np.mean, resamples=20_000)
        share = small.size / (small.size + large.size)
        assert both.high - both.low == pytest.approx(share * (alone.high - alone.low), rel=0.1)

    @given(several_tasks, st.randoms(use_true_random=False))
    def test_order_of_runs_does_not_matter(self, scores, random):
        shuffled = [random.sample(runs, len(runs)) for runs in scores]
        assert bootstrap_interval(scores, resamples=50) == bootstrap_interval(
            shuffled, resamples=50
        )

    def test_follows_a_change_of_scale_and_origin(self):
        scores = np.random.default_rng(7).normal(size=8)
        plain = bootstrap_interval([scores])
        moved = bootstrap_interval([3 * scores + 2])
        assert (moved.low, moved.high) == pytest.approx((3 * plain.low + 2, 3 * plain.high + 2))

    def test_same_seed_same_interval(self):
        scores = [np.random.default_rng(8).normal(size=10)]
        assert bootstrap_interval(scores, seed=1) == bootstrap_interval(scores, seed=1)
        assert bootstrap_interval(scores, seed=1) != bootstrap_interval(scores, seed=2)

    def test_higher_confidence_is_wider(self):
        scores = [np.random.default_rng(9).normal(size=10)]
        narrow, wide = (bootstrap_interval(scores, confidence=c) for c in (0.8, 0.99))
        assert wide.low < narrow.low < narrow.high < wide.high

    @pytest.mark.parametrize("n", [2, 4, 5, 20])
    def test_constant_scores_have_no_width(self, n):
        interval = bootstrap_interval([np.full(n, 0.1)])
        assert (interval.low, interval.high) == pytest.approx((0.1, 0.1), abs=1e-12)

    def test_a_task_with_a_single_seed_has_no_interval(self):
        interval = bootstrap_interval([[1.0, 2.0, 3.0], [6.0]])
        assert interval.estimate == 2.5
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)

    @pytest.mark.parametrize(
        ("statistic", "n", "claimed"),
        [
            (np.mean, 3, 0.95),
            (np.mean, 5, 0.92),
            (np.mean, 10, 0.95),
            (interquartile_mean, 10, 0.97),
        ],
    )
    def test_covers_the_centre_of_normal_scores_as_documented(self, statistic, n, claimed):
        experiments = 600
        data = np.random.default_rng(n).normal(size=(experiments, n))
        intervals = [bootstrap_interval([x], statistic, resamples=1000) for x in data]
        low, high = coverage_bounds(claimed, experiments)
        assert low <= np.mean([covers(i, 0.0) for i in intervals]) <= high

    def test_covers_the_mean_over_several_tasks_of_unequal_scale(self):
        experiments = 400
        rng = np.random.default_rng(10)
        scales = [1.0, 2.0, 0.5]
        hits = [
            covers(
                bootstrap_interval([s * rng.normal(size=8) for s in scales], np.mean, seed=i), 0.0
            )
            for i in range(experiments)
        ]
        low, high = coverage_bounds(0.96, experiments)
        assert low <= np.mean(hits) <= high

    def test_plain_percentiles_would_fail_the_coverage_test(self):
        experiments, n = 600, 5
        rng = np.random.default_rng(n)
        data = rng.normal(size=(experiments, n))
        hits = []
        for x in data:
            replicates = x[rng.integers(n, size=(1000, n))].mean(axis=1)
            low, high = np.quantile(replicates, [0.025, 0.975])
            hits.append(low <= 0 <= high)
        assert np.mean(hits) < coverage_bounds(0.92, experiments)[0]


class TestProbabilityOfImprovement:
    def test_counts_ties_as_half(self):
        # Pairs: 1 ties with 1, beats none of the rest; 3 beats 1 and 2, loses to 4.
        estimate = probability_of_improvement([[1.0, 3.0]], [[1.0, 2.0, 4.0]]).estimate
        assert estimate == pytest.approx((0.5 + 2) / 6)

    @given(task, task)
    def test_equals_scipy_mann_whitney(self, x, y):
        expected = stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
        assert probability_of_improvement([x], [y]).estimate == pytest.approx(expected)

    def test_tasks_weigh_the_same_whatever_their_seeds(self):
        x = [[1.0] * 9, [0.0, 0.0]]
        y = [[0.0] * 4, [1.0, 1.0]]
        assert probability_of_improvement(x, y).estimate == 0.5

    def test_runs_are_compared_within_their_task(self):
        easy, hard = 100.0, 0.0
        x = [[easy + 1, easy + 2], [hard + 1, hard + 2]]
        y = [[easy - 1, easy - 2], [hard - 1, hard - 2]]
        assert probability_of_improvement(x, y).estimate == 1.0

    @given(st.lists(st.tuples(task, task), min_size=1, max_size=4))
    def test_swapping_the_methods_mirrors_the_interval(self, tasks):
        x, y = zip(*tasks, strict=True)
        forward = probability_of_improvement(x, y)
        backward = probability_of_improvement(y, x)
        assert forward.estimate == pytest.approx(1 - backward.estimate)
        assert forward.low == pytest.approx(1 - backward.high, abs=1e-9)
        assert forward.high == pytest.approx(1 - backward.low, abs=1e-9)

    @given(st.lists(st.tuples(task, task), min_size=1, max_size=4))
    def test_interval_contains_the_estimate_and_stays_within_probabilities(self, tasks):
        interval = probability_of_improvement(*zip(*tasks, strict=True))
        assert -1e-12 <= interval.low <= interval.estimate + 1e-12
        assert interval.estimate - 1e-12 <= interval.high <= 1 + 1e-12

    def test_depends_on_ranks_only(self):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(2, 7))
        assert probability_of_improvement([x], [y]) == probability_of_improvement(
            [np.exp(x)], [np.exp(y)]
        )

    @given(st.integers(2, 15), st.integers(2, 15), st.randoms(use_true_random=False))
    def test_limits_solve_the_score_equation(self, m, n, random):
        x = [random.gauss(1, 1) for _ in range(m)]
        y = [random.gauss(0, 1) for _ in range(n)]
        interval = probability_of_improvement([x], [y])
        t = stats.t.ppf(0.975, m + n - 2)
        for limit in {interval.low, interval.high} - {interval.estimate}:
            factor = (1 - limit) / (2 - limit) + limit / (1 + limit)
            variance = limit * (1 - limit) * (1 + ((m + n) / 2 - 1) * factor) / (m * n)
            assert (interval.estimate - limit) ** 2 == pytest.approx(t**2 * variance, abs=1e-8)

    @pytest.mark.parametrize("n", [3, 5, 10])
    def test_complete_separation_agrees_with_the_exact_test(self, n):
        x, y = np.arange(n) + 100.0, np.arange(n) * 1.0
        interval = probability_of_improvement([x], [y])
        significant = stats.mannwhitneyu(x, y, method="exact").pvalue < 0.05
        assert interval.high == 1.0
        assert (interval.low > 0.5) == significant
        assert interval.low < 1 - 0.5 / n

    def test_equal_tasks_narrow_the_interval_by_the_root_of_their_number(self):
        x, y = [1.0, 3.0, 4.0, 6.0], [0.0, 2.0, 5.0, 7.0]
        one = probability_of_improvement([x], [y])
        four = probability_of_improvement([x] * 4, [y] * 4)
        assert four.estimate - four.low == pytest.approx((one.estimate - one.low) / 2)
        assert four.high - four.estimate == pytest.approx((one.high - one.estimate) / 2)

    def test_a_single_seed_has_no_interval(self):
        interval = probability_of_improvement([[1.0]], [[0.0, 2.0]])
        assert interval.estimate == 0.5
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)

    @pytest.mark.parametrize(
        ("truth", "n", "tasks", "claimed"),
        [(0.5, 10, 1, 0.96), (0.9, 5, 1, 0.97), (0.97, 10, 1, 0.97), (0.7, 5, 3, 0.96)],
    )
    def test_covers_as_documented(self, truth, n, tasks, claimed):
        experiments = 1000
        rng = np.random.default_rng(n)
        shift = math.sqrt(2) * stats.norm.ppf(truth)
        data = rng.normal(size=(experiments, 2, tasks, n))
        hits = [covers(probability_of_improvement(x + shift, y), truth) for x, y in data]
        low, high = coverage_bounds(claimed, experiments)
        assert low - 0.005 <= np.mean(hits) <= high + 0.005

    def test_refuses_different_numbers_of_tasks(self):
        with pytest.raises(RiseError, match="2 tasks against 1"):
            probability_of_improvement([[1.0], [2.0]], [[1.0]])


class TestCensoredMedian:
    def test_censored_runs_rank_last(self):
        assert censored_median([30, None, 10, 20, None], budget=100).estimate == 30

    def test_is_the_time_by_which_half_of_the_runs_arrived(self):
        assert censored_median([10, 20, None, None], budget=100).estimate == 20

    def test_is_beyond_the_budget_if_fewer_than_half_arrived(self):
        assert censored_median([10, 20, None, None, None], budget=100).estimate == math.inf

    def test_values_above_the_budget_count_as_censored(self):
        values = [10, 150, 20, 101, 300]
        expected = censored_median([10, None, 20, None, None], budget=100)
        assert math.isinf(expected.estimate)
        assert censored_median(values, budget=100).estimate == expected.estimate
        assert censored_median(values, budget=101).estimate == 101

    @given(st.lists(st.floats(0, 1e6), min_size=1, max_size=15).filter(lambda v: len(v) % 2))
    def test_equals_numpy_without_censoring(self, values):
        assert censored_median(values, budget=1e6).estimate == np.median(values)

    def test_interval_is_a_pair_of_order_statistics(self):
        # n = 10: 1 - 2 P(Bin(10, 1/2) <= 1) = 1 - 22 / 1024 = 0.979, one rank further in 0.891.
        times = [10, 20, 30, 40, 50, 60, 70, 80, None, None]
        assert censored_median(times, budget=100) == Interval(50, 20, math.inf, 0.95)
        assert censored_median(times, budget=100, confidence=0.89) == Interval(50, 30, 80, 0.89)

    def test_five_runs_have_no_interval_at_95_percent(self):
        assert math.isnan(censored_median([1, 2, 3, 4, 5], budget=9).low)
        assert censored_median([1, 2, 3, 4, 5], budget=9, confidence=0.9).low == 1
        assert censored_median([1, 2, 3, 4, 5, 6], budget=9).high == 6

    @pytest.mark.parametrize(("n", "budget"), [(6, 100.0), (10, 1.0), (10, 0.5), (25, 0.8)])
    def test_coverage_is_the_binomial_one_with_or_without_censoring(self, n, budget):
        experiments = 2000
        data = np.random.default_rng(n).exponential(size=(experiments, n))
        median = math.log(2)
        truth = median if median <= budget else math.inf
        hits = [covers(censored_median(list(x), budget=budget), truth) for x in data]
        k = next(k for k in range(n, 0, -1) if 2 * stats.binom.cdf(k - 1, n, 0.5) <= 0.05)
        low, high = coverage_bounds(1 - 2 * stats.binom.cdf(k - 1, n, 0.5), experiments)
        assert np.mean(hits) >= low
        if median <= budget:
            assert np.mean(hits) <= high

    def test_refuses_nothing_and_non_finite_values(self):
        with pytest.raises(RiseError, match="at least one run"):
            censored_median([], budget=1)
        with pytest.raises(NonFiniteError, match="1 of 2"):
            censored_median([math.inf, 1.0, None], budget=1)
        with pytest.raises(NonFiniteError, match="budget=inf"):
            censored_median([1.0], budget=math.inf)

    def test_all_censored(self):
        assert censored_median([None] * 8, budget=5) == Interval(math.inf, *[math.inf] * 2, 0.95)


@pytest.mark.parametrize(
    "function",
    [
        iqm,
        bootstrap_interval,
        lambda scores: probability_of_improvement(scores, [[1.0, 2.0]]),
        lambda scores: probability_of_improvement([[1.0, 2.0]], scores),
    ],
    ids=["iqm", "bootstrap_interval", "improvement_x", "improvement_y"],
)
class TestRefusedScores:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_non_finite_scores_are_counted(self, function, bad):
        with pytest.raises(NonFiniteError, match="2 of 4 scores"):
            function([[1.0, bad, bad, 2.0]])

    def test_no_task(self, function):
        with pytest.raises(RiseError, match="No scores"):
            function([])

    def test_task_without_runs(self, function):
        with pytest.raises(RiseError, match="Task 1 has no runs"):
            function([[1.0], []])

    def test_flat_scores(self, function):
        with pytest.raises(RiseError, match=r"\[scores\] for a single task"):
            function([1.0, 2.0, 3.0])


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_confidence_is_a_probability(confidence):
    scores = [[1.0, 2.0]]
    with pytest.raises(ConfigError, match="confidence="):
        bootstrap_interval(scores, confidence=confidence)
    with pytest.raises(ConfigError, match="confidence="):
        probability_of_improvement(scores, scores, confidence=confidence)
    with pytest.raises(ConfigError, match="confidence="):
        censored_median([1.0], budget=1, confidence=confidence)


def test_resamples_must_allow_a_spread():
    with pytest.raises(ConfigError, match="resamples=1"):
        bootstrap_interval([[1.0, 2.0]], resamples=1)
