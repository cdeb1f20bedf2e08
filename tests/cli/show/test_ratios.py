"""How much faster one result is than another, in words."""

from __future__ import annotations

from math import inf

import pytest

from cli.results.comparison import compare
from cli.show.comparison import tabulate_ratios
from cli.show.ratios import describe_ratios, format_speed, format_speed_interval, lead_comparison

from ..made import inserts, open_loop, queries


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.00× faster"), (1.944, "1.94× faster"), (12.34, "12.3× faster"), (1234.5, "1,234× faster"),
        (0.5, "2.00× slower"), (0.01052, "95× slower"),
    ],
)  # fmt: skip
def test_speeds(value: float, text: str) -> None:
    assert format_speed(value) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((1.8, 2.1), "1.80 to 2.10× faster"),
        ((0.01, 0.0125), "80 to 100× slower"),
        ((0.8, 1.1), "1.25× slower to 1.10× faster"),
        ((1.8, inf), "1.80× faster or more"),
        ((0.5, inf), "2.00× slower or less"),
        ((0.0, 0.5), "2.00× slower or more"),
        ((0.0, 1.2), "1.20× faster or less"),
        ((0.0, inf), "not known"),
    ],
)
def test_intervals(ends: tuple[float, float], text: str) -> None:
    assert format_speed_interval(*ends) == text


def test_each_comparison_in_words() -> None:
    results = [inserts({4: [100.0, 101.0]}), inserts({4: [150.0, 151.0]}), inserts({4: [1.0]})]
    same = inserts({4: [100.5, 101.5]})
    first, second, third = describe_ratios("abcd", compare([*results, same]))
    assert first.startswith("4 workers: b is 1.50× faster than a (95 % interval 1.4")
    assert second == "4 workers: c is 100× slower than a, from single runs."
    assert third.startswith("4 workers: no difference shown between d and a (95 % interval 1.0")
    assert "slower to 1.0" in third


def test_the_answer_comes_in_a_sentence() -> None:
    base = inserts({1: [100.0, 101.0], 4: [300.0, 303.0], 8: [300.0, 303.0]})
    fast = inserts({1: [150.0, 151.0], 4: [600.0, 606.0], 8: [301.0, 304.0]})
    slow, single = inserts({1: [1.0, 1.01]}), inserts({1: [50.0]})
    comparisons = compare([base, fast, slow, single])
    assert lead_comparison(["a", "b", "c", "d"], comparisons) == [
        (
            "b: 1.50 to 2.00 times as fast as a in inserts (1 worker, 4 workers),"
            " no difference from a shown in inserts (8 workers)."
        ),
        "c: 97 to 103× slower than a in inserts.",
        "d: 2.01× slower than a in inserts, from single runs.",
    ]


def test_what_is_undecided_in_queries_is_counted() -> None:
    times = {"q1": [1.0, 1.1, 1.0], "q2": [1.0, 1.1, 1.0], "q3": [1.0, 1.1, 1.0], "q4": [2.0, 2.0, 2.1],
             "q5": [1.0, 1.1, 1.0]}  # fmt: skip
    other = {name: [1.0, 1.1, 1.0] for name in times}
    (sentence,) = lead_comparison("ab", compare([queries(times), queries(other, "beta")]))
    assert sentence.startswith("b: undecided against a in queries (4 queries), 1.")
    assert sentence.endswith(" times as fast as a in queries (q4).")


def test_several_without_a_difference_are_one_sentence() -> None:
    results = [inserts({4: [100.0, 101.0]}) for _ in range(4)]
    slow = inserts({4: [10.0, 10.1]})
    comparisons = compare([*results, slow])
    assert (
        lead_comparison("abcde", comparisons)[0]
        == "b, c and d: no difference from a shown in inserts each."
    )
    assert lead_comparison("abcde", comparisons)[1].startswith("e: ")
    *sentences, ties = describe_ratios("abcde", comparisons)
    assert len(sentences) == 1 and sentences[0].startswith("4 workers: e is 10.0× slower")
    assert ties == "No difference shown from a: b (4 workers); c (4 workers); d (4 workers)."


def test_a_rate_that_was_asked_for_and_kept_up_with_is_no_speed() -> None:
    """A database that was asked for less isn't slower; one that didn't keep up with that may be."""
    fast, paced = inserts({4: [9000.0, 9010.0]}), open_loop({4: [1000.0, 1001.0]})
    names = ["fast", "asked"]
    comparisons = compare([fast, paced])
    assert [comparison.verdict for comparison in comparisons] == ["rate was given"]
    assert lead_comparison(names, comparisons) == [
        "asked: not compared with fast in inserts, since they kept up with a given --rate."
    ]
    assert describe_ratios(names, comparisons) == []
    (lead,) = lead_comparison(
        names, compare([fast, open_loop({4: [1000.0, 1001.0]}, saturated=True)])
    )
    assert "slower than fast in inserts" in lead
    of_rates = compare([paced, open_loop({4: [2000.0, 2001.0]}, rate_per_s=2000.0)])
    assert {comparison.verdict for comparison in of_rates if not comparison.place.has_times} == {
        "rate was given"
    }
    alike = compare([paced, open_loop({4: [1000.5, 1001.0]})])
    assert [comparison.verdict for comparison in alike if not comparison.place.has_times] == [
        "rate was given"
    ]


def test_runs_that_vary_beyond_all_measure_are_not_compared() -> None:
    """An interval from far slower to far faster says nothing, so no factor is shown."""
    results = [inserts({4: [10.0, 90_000.0]}), inserts({4: [20.0, 400_000.0]})]
    comparisons = compare(results)
    assert [comparison.verdict for comparison in comparisons] == ["can't be compared"]
    assert lead_comparison("ab", comparisons) == [
        "b: can't be compared with a in inserts, since runs vary too much."
    ]
    assert describe_ratios("ab", comparisons) == [
        "4 workers: b and a can't be compared: 2 runs vary too much."
    ]
    assert tabulate_ratios("ab", comparisons).rows[1][4:] == ["-", "-", "can't be compared", "-"]
