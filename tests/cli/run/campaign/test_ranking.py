"""Who is first, and between whom it is undecided."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest

from benchmarks.false_alarms import Series, load_series
from cli.results.answers import Capacity, TunedSetting
from cli.results.caveats import Place
from cli.results.decision import Requirement, Sample, Status, Unit, decide
from cli.results.matrix import CandidateFigures, Matrix, estimate_speed
from cli.results.model import Result
from cli.run.campaign.definition import Order
from cli.run.campaign.plan import Candidate, order_turns
from cli.show.ranking import rank_candidates
from simulator.contract import LatencyMs

from ...made import capacity, inserts, open_loop, queries, tuned
from .test_campaign_charts import draw


def _repeats(*rates: float) -> list[Result]:
    """A result of two runs for each repetition."""
    return [inserts({4: [rate * 0.99, rate * 1.01]}) for rate in rates]


def test_candidates_that_are_alike_share_a_rank() -> None:
    ranking = rank_candidates(
        "insert",
        {
            "slow": _repeats(100, 100.2, 99.8),
            "fast": _repeats(1000, 1002, 998),
            "as-fast": _repeats(1000, 999, 998),
            "as-slow": _repeats(99.9, 100.1, 100),
        },
        3,
    )
    assert ranking.lines[0] == "1. fast: 1,000 (998 to 1,002) inserts/s."
    assert (
        ranking.lines[1]
        == "1. as-fast: 999 (998 to 1,000) inserts/s; no difference from fast shown."
    )
    assert [line[:3] for line in ranking.lines[2:]] == ["3. ", "3. "]
    assert all("× slower than fast (9." in line for line in ranking.lines[2:])


def test_each_repetition_is_one_sample() -> None:
    """Runs within one are alike; that the repetitions differ must show."""
    ranking = rank_candidates("insert", {"a": _repeats(100, 150), "b": _repeats(140, 110)}, 2)
    assert ranking.lines == [
        "b (undecided): 124 (110 to 140) inserts/s.",
        (
            "a (undecided): 122 (100 to 150) inserts/s; undecided against b: 2 repetitions, 1.01 times apart"
            " (0.73 to 1.40)."
        ),
    ]


def test_a_wide_interval_is_undecided_however_far_apart_the_figures_are() -> None:
    """60 times apart, and 3 to 1,200 times by chance: nobody's tie, and nobody's victory."""
    measured = {"fast": _repeats(60_000, 60_100), "slow": _repeats(300, 3_300)}
    first, second = rank_candidates("insert", measured, 2).lines
    assert first == "fast (undecided): 60,050 (60,000 to 60,100) inserts/s."
    assert second == (
        "slow (undecided): 995 (300 to 3,300) inserts/s; undecided against fast: 2 repetitions, 60 times"
        " apart (18.2 to 200)."
    )


def test_one_repetition_ranks_nobody() -> None:
    slow, fast = inserts({4: [100.0, 101.0]}), inserts({4: [200.0, 201.0]})
    *figures, advice = rank_candidates("insert", {"a": [slow], "b": [fast]}, 1).lines
    assert figures == ["a: 100 (100 to 101) inserts/s.", "b: 200 (200 to 201) inserts/s."]
    assert advice.startswith("One repetition can't rank candidates: ") and "repeats: 6" in advice
    unfinished = rank_candidates("insert", {"a": [slow], "b": []}, 6).lines
    assert unfinished == [
        "a: 100 (100 to 101) inserts/s.", "a: from 1 of 6 repetitions so far.",
        "b: no figure: not measured yet.",
    ]  # fmt: skip


def _search(low: float | None, high: float | None, client_bound: bool = False) -> Result:
    """What a search of a precision of 5 % has found."""
    answer = Capacity(
        precision=0.05, events_per_s=low, above_per_s=high, sure=True, client_bound=client_bound
    )
    return capacity().model_copy(update={"capacity": answer})


def test_a_search_that_found_no_rate_counts() -> None:
    """One success of three doesn't rank first."""
    steady = [_search(5000 + n, 5200 + n) for n in range(3)]
    lucky = [_search(9000, 9400), _search(None, 500), _search(None, 700)]
    first, second = rank_candidates("capacity", {"lucky": lucky, "steady": steady}, 3).lines
    assert first == (
        "lucky (undecided): holds 9,000 events/s in 1 of 3 repetitions"
        " (2 found no rate that holds, not even 500 events/s)."
    )
    assert second.startswith(
        "steady (undecided): holds 5,001 (5,000 to 5,002) events/s; undecided against lucky: "
    )
    assert second.endswith("not all repetitions gave a figure.")


def test_a_job_that_failed_counts() -> None:
    measured = {"whole": _repeats(100, 101, 99), "other": _repeats(900, 901), "none": []}
    lines = rank_candidates("insert", measured, 3, {"other": 1, "none": 3}).lines
    assert (
        lines[0]
        == "other (undecided): 900 (900 to 901) inserts/s in 2 of 3 repetitions (1 failed)."
    )
    assert lines[1].startswith(
        "whole (undecided): 100 (99 to 101) inserts/s; undecided against other: "
    )
    assert lines[2] == "none: no figure: 3 failed."
    slower = {"whole": _repeats(900, 901, 899), "other": _repeats(100, 101, 99)}
    lines = rank_candidates("insert", slower, 4, {"other": 1}).lines
    assert lines[0] == "1. whole: 900 (899 to 901) inserts/s."
    assert lines[1].startswith(
        "2. other: 100 (99 to 101) inserts/s in 3 of 4 repetitions (1 failed); 9.00×"
    )


def test_at_least_is_a_bound() -> None:
    """Where the client was the limit the database may hold more: it isn't shown to be slower."""
    exact = [_search(9000 + n, 9400 + n) for n in range(3)]
    bounded = [_search(5000 + n, 5200 + n, client_bound=True) for n in range(3)]
    first, second = rank_candidates("capacity", {"a": exact, "b": bounded}, 3).lines
    assert first == "a (undecided): holds 9,001 (9,000 to 9,002) events/s."
    assert second == (
        "b (undecided): holds at least 5,001 (5,000 to 5,002) events/s; undecided against a: 3 repetitions,"
        " 1.80 times apart, a figure is only a lower bound."
    )
    slower = [_search(1000 + n, 1040 + n) for n in range(3)]
    first, second = rank_candidates("capacity", {"c": slower, "b": bounded}, 3).lines
    assert first == "1. b: holds at least 5,001 (5,000 to 5,002) events/s."
    assert second.startswith("2. c: holds 1,001 (1,000 to 1,002) events/s; 5.00× slower than b (4.")


def test_the_figure_says_what_is_a_bound_and_what_found_none() -> None:
    measured = {
        "a": [_search(9000, 9400), _search(None, 500)],
        "b": [_search(5000, 5200, client_bound=True), _search(5010, 5200)],
    }
    figure = draw("capacity", measured)
    assert figure is not None
    names = [row["name"] for row in figure.spec["data"]["values"]]
    assert names == ["a (1 of 2)", "b (at least)"]


def test_searches_tell_nothing_within_their_precision() -> None:
    """That all repetitions end at the same step of the search is no sign that it is exact."""
    measured = {"a": [_search(10_000, 10_500)] * 3, "b": [_search(10_500, 11_000)] * 3}
    names = [line.partition(":")[0] for line in rank_candidates("capacity", measured, 3).lines]
    assert names == ["b (undecided)", "a (undecided)"]


@pytest.mark.parametrize("series", load_series(), ids=lambda series: series.name)
@pytest.mark.parametrize("repetitions", [2, 3, 6])
def test_a_target_under_two_names_is_not_ranked(series: Series, repetitions: int) -> None:
    """Stored figures of one target, dealt to two names as a campaign interleaves them: 50 times from another
    place, none of which may rank them, or call one met and the other missed. And 60 times slower is never
    called alike."""
    rates = series.inserts_per_s
    for seed in range(50):
        chance = random.Random(f"{series.name} {seed}")
        start = chance.randrange(len(rates) - 2 * repetitions)
        own = iter(rates[start:])
        dealt: dict[str, list[float]] = {"a": [], "b": []}
        for candidate, _ in order_turns(
            [Candidate("a"), Candidate("b")], repetitions, Order.INTERLEAVED, seed
        ):
            dealt[candidate.target].append(next(own))
        ranks = Matrix({name: _measure(values) for name, values in dealt.items()}).rank()
        assert {str(rank) for rank in ranks.values()} <= {"1", "undecided"}, (seed, dealt)
        # Nor does a requirement between them tell them apart, where it is hardest.
        row = Requirement(
            key="r", heading="rate", unit=Unit.EVENTS_PER_S, bound=median(rates), at_least=True
        )
        verdicts = {
            decide(
                row,
                [
                    Sample(repetition=number, keeps=rate >= row.bound, value=rate)
                    for number, rate in enumerate(own, 1)
                ],
            ).status
            for own in dealt.values()
        }
        assert not {Status.MET, Status.MISSED} <= verdicts, (seed, dealt)
        slow = [rate / 60 for rate in dealt["b"]]
        ratio = estimate_speed(_measure(slow), _measure(dealt["a"]), 0.01)
        assert ratio is not None and not ratio.alike


def _measure(rates: Sequence[float]) -> CandidateFigures:
    return CandidateFigures([{Place(workers=1): [rate]} for rate in rates])


def _offer(
    rate: float, response_ms: float, done: float = 1.0, workers: Sequence[int] = (2,), **offered: Any
) -> Result:  # fmt: skip
    """At a rate, of which a part was done; with each worker count after the first it responds later."""
    rates = {count: [rate * done, rate * done * 1.001] for count in workers}
    result = open_loop(rates, rate_per_s=rate, **offered)
    for number, group_run in enumerate(result.writers):
        ms = response_ms + number / 100
        group_run.group.latency_ms = LatencyMs(p50=ms, p90=ms, p99=2 * ms, p99_9=2 * ms, max=2 * ms)
    return result


def test_where_a_rate_was_given_only_response_times_rank() -> None:
    """A candidate that was asked for more is not faster for it."""
    measured = {"much": [_offer(9000.0, 8.0)] * 2, "little": [_offer(1000.0, 2.0)] * 2}
    reason, first, second, *_ = rank_candidates("insert", measured, 2).lines
    assert "only times rank them" in reason
    assert first == "1. little: 2 workers, response p50 2 ms, 2 workers, response p99 4.01 ms."
    assert second.startswith("2. much: ") and "slower than little over 2 figures" in second
    assert "inserts" not in second
    assert draw("rates", measured) is None
    closed = rank_candidates("insert", {"a": [_offer(900.0, 1.0)], "b": [inserts({2: [5.0]})]}, 1)
    assert "b: no figure: 1 failed." in closed.lines


def test_who_kept_up_with_the_same_rate_is_ranked_by_response_times_alone() -> None:
    """What is done more or less of it by chance, every time, is no speed."""
    measured = {"late": [_offer(900.0, 4.0, 1.003)] * 2, "soon": [_offer(900.0, 1.0)] * 2}
    reason, first, second = rank_candidates("insert", measured, 2).lines
    assert reason.startswith("All that were measured kept up with the same rate: ")
    assert first == "1. soon: 2 workers, response p50 1 ms, 2 workers, response p99 2.01 ms."
    assert second.startswith("2. late: ") and "3.99× slower than soon over 2 figures (" in second
    assert "inserts" not in second
    assert draw("rates", measured) is None


def test_who_did_not_keep_up_is_slower_in_inserts() -> None:
    slow = _offer(900.0, 4.0, 0.5, saturated=True)
    measured = {"slow": [slow] * 2, "able": [_offer(900.0, 1.0)] * 2}
    first, second = rank_candidates("insert", measured, 2).lines
    assert first == "1. able: 900 inserts/s."
    assert (
        second.startswith("2. slow: 450 inserts/s; ")
        and "slower than able over 3 figures" in second
    )


def test_at_a_given_rate_the_best_number_of_workers_responds_fastest() -> None:
    several = _offer(900.0, 3.0, workers=(4, 8))
    measured = {"one": [_offer(900.0, 1.0, workers=(1,))] * 2, "several": [several] * 2}
    _, first, second, best = rank_candidates("insert", measured, 2).lines
    assert first.startswith("1. one: ")
    assert second.startswith("2. several: ") and "slower than one over 2 figures" in second
    assert best == "Inserts at the best worker count of each: one 1, several 4."


def test_queries_stand_with_their_times() -> None:
    measured = {
        name: [queries({query: [took, took] for query in "wxyz"})]
        for name, took in (("a", 0.5), ("b", 2.0))
    }
    lines = rank_candidates("query", measured, 1).lines
    assert lines[0] == "a: w 500 ms, x 500 ms, y 500 ms and 1 more."


def test_who_has_no_figure_is_named() -> None:
    ranking = rank_candidates("insert", {"a": _repeats(100, 101), "b": [], "c": _repeats(50)}, 2)
    assert ranking.lines[0] == "a (undecided): 100 (100 to 101) inserts/s."
    assert "b: no figure: not measured yet." in ranking.lines
    assert "c: from 1 of 2 repetitions so far." in ranking.lines


def test_queries_about_different_numbers_of_events_are_named() -> None:
    few, many = queries({"count-events": [0.1, 0.1]}), queries({"count-events": [0.3, 0.3]})
    few.runs[0].fill_level, many.runs[0].fill_level = 1000, 1040
    assert len(rank_candidates("query", {"a": [few], "b": [many]}, 1).lines) == 3
    many.runs[0].fill_level = 3000
    ranking = rank_candidates("query", {"a": [few], "b": [many]}, 1)
    assert "between 1,000 and 3,000 events" in ranking.lines[-1]


def test_variants_of_the_number_of_workers_compare_by_their_best() -> None:
    single = [inserts({1: [rate, rate * 1.01]}) for rate in (100, 101)]
    several = [inserts({2: [rate, rate * 1.01], 4: [rate / 2, rate / 2]}) for rate in (300, 303)]
    ranking = rank_candidates("insert", {"one": single, "several": several}, 2)
    assert ranking.lines[0] == "1. several: 303 (302 to 305) inserts/s."
    assert ranking.lines[1].startswith("2. one: ")
    assert "slower than several" in ranking.lines[1]
    assert ranking.lines[2] == "Inserts at the best worker count of each: one 1, several 2."


def test_tunings_are_ranked_by_what_their_best_settings_reach() -> None:
    over = [TunedSetting(name="batch", values=[10, 1000], default=10)]

    def make(best: int, rate: float) -> Result:
        first = {0: [rate], 1: [rate]}
        return tuned(
            over, first, {best: [rate, rate * 1.01, rate * 0.99], 1 - best: [1.0, 1.0, 1.0]}
        )

    measured = {"a": [make(0, 100.0)] * 2, "b": [make(1, 400.0)] * 2}
    ranking = rank_candidates("tune", measured, 2)
    assert ranking.lines[0] == "1. b: 400 inserts/s."
    assert ranking.lines[1].startswith("2. a: 100 inserts/s; 4.00× slower than b (")
    assert ranking.lines[2:4] == ["a is best with batch=10.", "b is best with batch=1000."]


def test_the_figure_has_a_bar_for_each_candidate_with_its_repetitions() -> None:
    figure = draw("rates", {"a": _repeats(100, 110, 90), "b": _repeats(400, 410), "c": []})
    assert figure is not None
    rows = figure.spec["data"]["values"]
    assert [(row["name"], round(row["value"])) for row in rows] == [("a", 100), ("b", 405)]
    (dots,) = [layer["data"]["values"] for layer in figure.spec["layer"] if "data" in layer]
    assert [(dot["name"], round(dot["sample"])) for dot in dots] == [
        ("a", 100), ("a", 110), ("a", 90), ("b", 400), ("b", 410),
    ]  # fmt: skip
    assert "each dot is a repetition" in figure.note
    measured = {
        name: [queries({"x": [t, t], "y": [2 * t, 2 * t]})] for name, t in (("a", 1.0), ("b", 3.0))
    }
    figure = draw("queries", measured)
    assert figure is not None
    means = {(row["at"], row["series"]): row["value"] for row in figure.spec["data"]["values"]}
    assert means == {("x", "a"): 1000, ("y", "a"): 2000, ("x", "b"): 3000, ("y", "b"): 6000}
    assert draw("rates", {"a": _repeats(100), "b": []}) is None
