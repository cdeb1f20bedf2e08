"""Who is first, and who can't be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.campaign.ranking import rank_candidates
from cli.campaign.ranking_figure import draw_ranking
from cli.results.model import Result
from cli.results.tuning import TunedSetting
from simulator.contract import LatencyMs

from ..made import inserts, open_loop, queries, tuned


def _repeats(*rates: float) -> list[Result]:
    """A result of two runs for each repetition."""
    return [inserts({4: [rate * 0.99, rate * 1.01]}) for rate in rates]


def test_ties_are_called_ties_and_share_a_rank() -> None:
    ranking = rank_candidates(
        "insert",
        {
            "slow": _repeats(100, 101, 99),
            "fast": _repeats(1000, 1010, 990),
            "as-fast": _repeats(985, 1000, 1008),
            "as-slow": _repeats(98, 101, 99),
        },
        3,
    )
    assert ranking.lines[0] == "1. fast: 1,000 inserts per second."
    assert ranking.lines[1] == "1. as-fast: 1 tie with fast in inserts."
    assert ranking.lines[2].startswith("3. slow: ")
    assert "slower than fast in inserts" in ranking.lines[2]
    assert ranking.lines[3].startswith("3. as-slow: ")
    assert ranking.lines[3].endswith(" A tie with slow.")


def test_each_repetition_is_one_sample() -> None:
    """Runs within one are alike; that the repetitions differ must show."""
    ranking = rank_candidates("insert", {"a": _repeats(100, 150), "b": _repeats(140, 110)}, 2)
    assert "1 tie with" in ranking.lines[1]


def test_single_runs_decide_nothing() -> None:
    one, two = inserts({4: [100.0]}), inserts({4: [200.0]})
    ranking = rank_candidates("insert", {"a": [one], "b": [two]}, 1)
    *ranks, advice = ranking.lines
    assert ranks == [
        "1. b: 200 inserts per second.", "2. a: 2.00× slower than b in inserts, from single runs.",
    ]  # fmt: skip
    assert advice.startswith("One repetition: ") and "repeats: 6" in advice


def _offer(
    rate: float, response_ms: float, done: float = 1.0, workers: Sequence[int] = (2,), **offered: Any
) -> Result:  # fmt: skip
    """At a rate, of which a part was done; with each worker count after the first it responds later."""
    rates = {count: [rate * done, rate * done * 1.001] for count in workers}
    result = open_loop(rates, rate_per_s=rate, **offered)
    for number, run in enumerate(result.insert_runs):
        ms = response_ms + number / 100
        run.latency_ms = LatencyMs(p50=ms, p90=ms, p99=2 * ms, p99_9=2 * ms, max=2 * ms)
    return result


def test_where_a_rate_was_given_only_response_times_rank() -> None:
    """Who was asked for more is not faster for it."""
    measured = {"much": [_offer(9000.0, 8.0)], "little": [_offer(1000.0, 2.0)]}
    told, first, second, *_ = rank_candidates("insert", measured, 1).lines
    assert "only times rank them" in told
    assert first == "1. little: 2 workers, response p50 2 ms, 2 workers, response p99 4.01 ms."
    assert second.startswith("2. much: ") and "slower than little in response times" in second
    assert "inserts" not in second
    assert draw_ranking("insert", measured) is None
    closed = rank_candidates("insert", {"a": [_offer(900.0, 1.0)], "b": [inserts({2: [5.0]})]}, 1)
    assert "b: nothing to rank." in closed.lines


def test_who_kept_up_with_the_same_rate_is_ranked_by_response_times_alone() -> None:
    """What is done more or less of it by chance, every time, is no speed."""
    measured = {"late": [_offer(900.0, 4.0, 1.003)] * 2, "soon": [_offer(900.0, 1.0)] * 2}
    told, first, second = rank_candidates("insert", measured, 2).lines
    assert told.startswith("All that were measured kept up with the same rate: ")
    assert first == "1. soon: 2 workers, response p50 1 ms, 2 workers, response p99 2.01 ms."
    assert second.startswith("2. late: ") and second.endswith(" soon in response times.")
    assert "inserts" not in second
    assert draw_ranking("insert", measured) is None


def test_who_did_not_keep_up_is_slower_in_inserts() -> None:
    slow = _offer(900.0, 4.0, 0.5, saturated=True)
    measured = {"slow": [slow] * 2, "able": [_offer(900.0, 1.0)] * 2}
    first, second = rank_candidates("insert", measured, 2).lines
    assert first == "1. able: 900 inserts per second."
    assert second.startswith("2. slow: 2.00× slower than able in inserts, ")


def test_at_a_given_rate_the_best_number_of_workers_responds_fastest() -> None:
    several = _offer(900.0, 3.0, workers=(4, 8))
    measured = {"one": [_offer(900.0, 1.0, workers=(1,))] * 2, "several": [several] * 2}
    _, first, second, best = rank_candidates("insert", measured, 2).lines
    assert first.startswith("1. one: ")
    assert second.startswith("2. several: ") and "slower than one in response times" in second
    assert best == "Inserts of each at its best number of workers: one 1, several 4."


def test_queries_stand_with_their_times() -> None:
    measured = {
        name: [queries({query: [took, took] for query in "wxyz"})]
        for name, took in (("a", 0.5), ("b", 2.0))
    }
    lines = rank_candidates("query", measured, 1).lines
    assert lines[0] == "1. a: w 0.5 s, x 0.5 s, y 0.5 s and 1 more."


def test_who_has_no_figure_is_named() -> None:
    ranking = rank_candidates("insert", {"a": _repeats(100, 101), "b": [], "c": _repeats(50)}, 2)
    assert ranking.lines[0] == "1. a: 100 inserts per second."
    assert "b: nothing to rank." in ranking.lines
    assert "c: from 1 of 2 repetitions only." in ranking.lines


def test_queries_about_different_numbers_of_events_are_named() -> None:
    few, many = queries({"count-events": [0.1, 0.1]}), queries({"count-events": [0.3, 0.3]})
    few.fill_level, many.fill_level = 1000, 1040
    assert len(rank_candidates("query", {"a": [few], "b": [many]}, 1).lines) == 3
    many.fill_level = 3000
    ranking = rank_candidates("query", {"a": [few], "b": [many]}, 1)
    assert "between 1,000 and 3,000 events" in ranking.lines[-1]


def test_variants_of_the_number_of_workers_compare_by_their_best() -> None:
    one = [inserts({1: [rate, rate * 1.01]}) for rate in (100, 101)]
    several = [inserts({2: [rate, rate * 1.01], 4: [rate / 2, rate / 2]}) for rate in (300, 303)]
    ranking = rank_candidates("insert", {"one": one, "several": several}, 2)
    assert ranking.lines[0] == "1. several: 303 inserts per second."
    assert ranking.lines[1].startswith("2. one: ")
    assert "slower than several in inserts" in ranking.lines[1]
    assert ranking.lines[2] == "Inserts of each at its best number of workers: one 1, several 2."


def test_tunings_are_ranked_by_what_their_best_settings_reach() -> None:
    over = [TunedSetting(name="batch", values=[10, 1000], default=10)]

    def make(best: int, rate: float) -> Result:
        first = {0: [rate], 1: [rate]}
        return tuned(
            over, first, {best: [rate, rate * 1.01, rate * 0.99], 1 - best: [1.0, 1.0, 1.0]}
        )

    ranking = rank_candidates("tune", {"a": [make(0, 100.0)], "b": [make(1, 400.0)]}, 1)
    assert ranking.lines[0] == "1. b: 400 inserts per second."
    assert ranking.lines[1].startswith("2. a: 3.9")
    assert ranking.lines[1].endswith("slower than b in what its best settings reach.")
    assert ranking.lines[2:4] == ["a is best with batch=10.", "b is best with batch=1000."]


def test_the_figure_has_a_bar_for_each_candidate_with_its_repetitions() -> None:
    figure = draw_ranking("insert", {"a": _repeats(100, 110, 90), "b": _repeats(400, 410), "c": []})
    assert figure is not None
    rows = figure.spec["data"]["values"]
    assert [(row["name"], round(row["value"])) for row in rows] == [("b", 405), ("a", 100)]
    (dots,) = [one["data"]["values"] for one in figure.spec["layer"] if "data" in one]
    assert [(dot["name"], round(dot["sample"])) for dot in dots] == [
        ("b", 400), ("b", 410), ("a", 100), ("a", 110), ("a", 90),
    ]  # fmt: skip
    assert "each dot is a repetition" in figure.note
    asked = {
        name: [queries({"x": [t, t], "y": [2 * t, 2 * t]})] for name, t in (("a", 1.0), ("b", 3.0))
    }
    figure = draw_ranking("query", asked)
    assert figure is not None
    rows = figure.spec["data"]["values"]
    assert [row["name"] for row in rows] == ["x, a", "x, b", "y, a", "y, b"]
    assert draw_ranking("insert", {"a": _repeats(100), "b": []}) is None
