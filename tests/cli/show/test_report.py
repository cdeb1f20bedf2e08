"""The HTML report: whole, harmless, and with what is stored. What a browser makes of it is tested in
tests/e2e/test_report_page.py."""

from __future__ import annotations

import re
import time
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli.results.model import Result
from cli.results.naming import NamedResult
from cli.show.charts import KINDS
from cli.show.drawing import mark_struck
from cli.show.report import choose_drawn, make_report
from cli.show.stored import describe_result
from cli.show.verdict import MOST_SENTENCES, describe_hardware, judge_results
from simulator.contract import Resources, SkippedFault

from ..made import (
    asked_by_the_clock,
    capacity,
    compare_in_turns,
    disturbed,
    inserts,
    queries,
    steps,
    stored,
)
from ..undrawn import undrawn
from .test_charts import TUNED, grown

RESULTS = (
    inserts({1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]}),
    inserts({1: [50.0, 51.0, 49.0]}, "beta", {"batch": 7}),
    queries({"count": [0.5, 0.75], "newest": [4.0, None]}),
    grown(),
    capacity(),
    TUNED,
    asked_by_the_clock(),
    compare_in_turns(),
)


def draw_report(*results: Result) -> str:
    return make_report([stored(result, f"id-{n}") for n, result in enumerate(results)], "The title")


def report(*results: Result) -> str:
    """Without pictures."""
    with undrawn():
        return draw_report(*results)


@cache
def report_of_all() -> str:
    """A report over every kind of result, made once."""
    return draw_report(*RESULTS)


class Page(HTMLParser):
    """Checks that what is opened is closed, and gathers texts and attributes."""

    EMPTY = ("meta", "link", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return "\n".join(filter(None, self.texts))


def test_the_head_says_what_was_measured_the_answer_and_its_limitations() -> None:
    text = Page(report(RESULTS[0])).text
    begin = text.index("In plain words")
    for part in (
        "Inserts into alpha (PostgreSQL 18.4) by 1 and 4 workers at once",
        "Most with 4 workers: 300 inserts/s (median of 3 valid runs",
        "Limitations:",
        "few runs",
    ):
        place = text.index(part, begin)
        assert place > begin
        begin = place
    assert begin < text.index("Figures")


def test_it_begins_with_the_answer_and_the_machines() -> None:
    text = Page(report(*RESULTS[:3])).text
    begin = 0
    for part in (
        "Each result in words",
        "beta: 1.92 to 2.09× slower than alpha, inserts in inserts",
        "alpha, queries: On average a query took: count 625 ms",
        "Treat with care: runs differed much in alpha, queries.",
        "Insert throughput",
        "Load from: Some CPU, 2 CPUs, 4.0 GB of memory",
        "Database (PostgreSQL 18.4): its hardware is unknown",
        "In plain words",
    ):
        place = text.find(part, begin)
        assert place >= begin, part
        begin = place


def test_the_answer_of_many_is_short() -> None:
    many = [NamedResult(f"name {n}", inserts({1: [2.0**n, 2.0**n]}, f"db{n}")) for n in range(30)]
    verdict = judge_results(many)
    assert len(verdict) == MOST_SENTENCES
    assert verdict[-1].startswith("25 more sentences")
    result = queries({name: [place + 1.0] for place, name in enumerate("abcd")})
    assert judge_results([NamedResult("x", result)]) == [
        "On average queries took 1,000 ms (a) to 4,000 ms (d)."
    ]


def test_machines_are_told_once_with_who_ran_there() -> None:
    other = {"client": {"cpu_model": "Other CPU", "cpus": 8, "cpus_usable": 4}}
    nodes = {"nodes": {name: {"instance_type": "m5", "cpu": "4"} for name in "ab"}}
    near, far = inserts({1: [1.0]}), inserts({1: [1.0]}, environment={**other, "kubernetes": nodes})
    near.runs[0].resources = Resources(cpu_s=1.0, cpus=2.0)
    far.runs[0].resources = Resources(cpu_s=1.0, cpus=6.0, nodes=["a", "b"])
    assert describe_hardware(
        [NamedResult("near", near), NamedResult("again", near), NamedResult("far", far)]
    ) == [
        "Load from: Some CPU, 2 CPUs, 4.0 GB of memory (near, again)",
        "Database (PostgreSQL 18.4): 2 CPUs, on the same machine as the load (near, again)",
        "Load from: Other CPU, 8 CPUs, 4 of them usable (far)",
        "2 more machines and databases: see “Environment”",
    ]


def test_label_and_tags_are_shown() -> None:
    text = Page(report(inserts({1: [5.0]}, label="new index", tags={"disk": "nvme"}))).text
    assert text.count("“new index” (disk=nvme)") == 2


def test_of_many_results_the_fastest_are_drawn() -> None:
    many = [NamedResult(str(n), inserts({1: [n + 1.0]})) for n in range(20)]
    of_queries = [NamedResult(f"q{n}", queries({"count": [0.5]})) for n in range(2)]
    shown, note = choose_drawn([*many, *of_queries])
    assert [named.name for named in shown] == [*map(str, range(8, 20)), "q0", "q1"]
    assert note == "Drawn: of 20 inserts the fastest 12; the tables have all."
    assert choose_drawn(of_queries) == (of_queries, "")


def test_a_sound_result_is_called_so() -> None:
    text = Page(report(inserts({1: [100.0, 101.0, 99.0, 100.5, 99.5, 100.0]}))).text
    assert "No limitations were found." in text


def test_what_was_done_to_the_database_is_told() -> None:
    page = Page(report(disturbed((10.0, 5.0))))
    assert {"class": "outage"} in [attributes for tag, attributes in page.tags if tag == "p"]
    sentence = (
        "After run number-1 at 10.0 s nothing was acknowledged for 4.9 s; the rate recovered after"
    )
    assert page.text.count(sentence) == 2  # beside the answer, and below the figure


def test_what_was_not_done_to_the_database_is_told() -> None:
    result = disturbed((10.0, 5.0))
    late = SkippedFault(due_s=60.0, action="60s kill-server", reason="the run ended first")
    result.runs[0].undone = [late]
    assert "'60s kill-server' was not done: the run ended first" in Page(report(result)).text
    shown = describe_result(stored(result), terminal=False)
    assert "disturbance: 1 worker, run 1: '60s kill-server' was not done: the run ended" in shown


def test_all_kinds_of_results_in_one_report() -> None:
    page = Page(report_of_all())
    figures = [attributes["id"] for tag, attributes in page.tags if tag == "figure"]
    assert figures == ["figure-answer", *(f"figure-{kind}" for kind in KINDS)]
    assert "Compared: inserts" in page.text
    assert "1 worker: beta is 2.00× slower than alpha, inserts (95 % interval" in page.text
    assert "warning: batch differs: batch: 100 / 7" in page.text
    assert "not compared at 4 workers: beta has no valid figure there" in page.text
    # There is one of the other kinds only.
    assert "Compared: queries" not in page.text


def test_a_report_over_two_hundred_results_is_made_in_time() -> None:
    """By CPU, of which it would be 20 s at most on a slow machine, too; and a browser can still show it."""
    many = [inserts({1: [n + 100.0, 101.0], 4: [300.0, 310.0]}, f"db{n}") for n in range(160)]
    many += [queries({"count": [0.5, 0.75]}, f"db{n}") for n in range(40)]
    began = time.process_time()
    html = draw_report(*many)
    assert time.process_time() - began < 20
    assert len(html) < 4_000_000
    assert "Drawn: of 160 inserts the fastest 12 and of 40 queries the first 12;" in html


def test_ids_are_unique() -> None:
    page = Page(report_of_all())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)


def test_it_needs_nothing_else() -> None:
    html = report_of_all()
    assert set(re.findall(r"https?://[^\"'\s<]+", html)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for tag, attributes in Page(html).tags:
        assert "src" not in attributes, tag
        link = attributes.get("href") or "data:,"
        assert link == "data:," or link.startswith("#")
    assert "default-src 'none'" in html
    # Within reason: a library of plots in it would be megabytes.
    assert len(html) < 600_000


def test_what_a_file_says_does_no_harm() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    result = inserts(
        {1: [1.0, 2.0]}, evil, {"module": {evil: evil}}, source=evil,
        environment={"database": {"version": evil}},
    )  # fmt: skip
    result.writers[0].group.invalid_reasons = [evil]
    html = make_report([stored(result, evil), stored(inserts({1: [3.0]}), "b")], evil)
    page = Page(html)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "img" not in [tag for tag, _ in page.tags]
    assert "onerror" in page.text


def test_invalid_figures_are_struck_through() -> None:
    result = inserts({1: [123.0]})
    result.writers[0].group.invalid_reasons = ["lost"]
    html = report(inserts({}, runs=result.runs))
    assert "<s>123</s>" in html
    assert "~~" not in html
    assert mark_struck("~~<b>~~ & ~~2~~") == "<s>&lt;b&gt;</s> &amp; <s>2</s>"


@pytest.mark.parametrize("name", ["insert", "steps", "query"])
def test_every_stored_result_has_a_report(name: str) -> None:
    from cli.results.store import open_result

    file = Path(__file__).parents[1] / "stored" / f"{name}.json"
    html = make_report([open_result(str(file), Path())], "x")
    assert Page(html).text.count("In plain words") == 1


def test_figures_of_others_are_marked() -> None:
    """In the head and in the figure that shows them, but in no other."""
    text = Page(report(steps({0: 1.0, 5: 2.0}, source="read off a picture"), RESULTS[2])).text
    assert "Figures for alpha (PostgreSQL 18.4), not measured by this tool: read off a pic" in text
    assert text[text.index("\nFigures\n") :].count("Not measured by this tool: read off a pic") == 3
