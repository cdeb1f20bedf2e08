"""A campaign's report: by candidate, with repetitions pooled, in one colour each. What a browser makes of it
is tested in tests/e2e/test_campaign_report.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.results.model import Result
from cli.run.campaign import reporting
from cli.run.campaign.campaign import Campaign
from cli.run.campaign.reporting import make_page, rank, tabulate_step, write_report
from cli.show.campaign import CampaignPage, make_campaign_report
from cli.show.campaign_charts import draw_campaign
from cli.show.templates import Chart
from cli.show.vega import SERIES, SHAPES, find_body

from ...made import disturbed, inserts, queries, steps
from ...show.test_report import Page
from ...undrawn import undrawn
from .stored_campaign import CANDIDATES, FILE, STEPS, make_campaign, make_result


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return make_campaign(tmp_path_factory.mktemp("campaign"))


@pytest.fixture(scope="module")
def page(campaign: Campaign) -> CampaignPage:
    """What is on its report, made once."""
    return describe(campaign)


@pytest.fixture(scope="module")
def html(campaign: Campaign) -> str:
    """As the command writes it."""
    assert len(write_report(campaign)) == 24
    return campaign.folder.report.read_text()


def describe(campaign: Campaign) -> CampaignPage:
    done = campaign.folder.find_done(campaign.jobs)
    return make_page(campaign, done, rank(campaign, done), [], None)


class Folded(Page):
    """Also notes which tables aren't folded."""

    def __init__(self, html: str) -> None:
        self.unfolded = 0
        super().__init__(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unfolded += tag == "table" and "details" not in self.open
        super().handle_starttag(tag, attrs)


def test_only_what_was_measured_in_each_step_is_an_open_table(html: str) -> None:
    page = Folded(html)
    assert page.unfolded == 1
    assert "Treat with care" in page.text


def test_repetitions_are_no_series(page: CampaignPage, html: str) -> None:
    """They are neither compared with each other nor drawn beside each other."""
    assert not re.search(rf"(than|from|against) \w+ ({'|'.join(STEPS)}) \d", html)
    assert "Compared:" not in html
    for chart in [*page.figures, *page.single_runs]:
        assert set(list_series(chart)) <= set(CANDIDATES), chart.title
    assert list(page.summary) == list(CANDIDATES)


def list_encodings(chart: Chart) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in chart.spec.get("vconcat", [chart.spec]):
        for layer in find_body(panel)["layer"]:
            for channel, encoding in layer["encoding"].items():
                if encoding.get("field") == "series" and "scale" in encoding:
                    yield channel, encoding["scale"]


def list_series(chart: Chart) -> list[str]:
    return [name for _, scale in list_encodings(chart) for name in scale["domain"]]


def test_each_candidate_has_one_colour_and_shape_throughout(html: str) -> None:
    """In a figure that hasn't all of them, too, and beside its name."""
    steps = {
        step: {
            name: [make_result(name, step, n) for n in (1, 2)]
            for name in CANDIDATES
            if not (step == "questions" and name == "postgresql")
        }
        for step in STEPS
    }
    first, more = draw_campaign({"none": dict.fromkeys(CANDIDATES, ()), **steps}, None)
    assert len(first) >= 6
    chosen = {"stroke": SERIES, "fill": SERIES, "color": SERIES, "shape": SHAPES}
    lacking = 0
    for chart in [*first, *more]:
        encodings = list(list_encodings(chart))
        assert encodings, chart.title
        for channel, scale in encodings:
            expected = {name: chosen[channel][place] for place, name in enumerate(CANDIDATES)}
            own = dict(zip(scale["domain"], scale["range"], strict=True))
            assert own == {name: expected[name] for name in own}, chart.title
            lacking += len(own) < len(CANDIDATES)
    assert lacking
    swatches = re.findall(r'class="swatch".*?stroke="(#\w+)".*?</svg> (\w+)', html)
    assert {name: colour for colour, name in swatches} == dict(
        zip(CANDIDATES, SERIES, strict=False)
    )


def test_a_campaign_has_the_figures_of_a_decision(page: CampaignPage) -> None:
    assert [chart.title for chart in page.figures] == [
        "growth: rate and time over fill level",
        "questions: query times",
        "load: inserts per second",
        "Capacity within p99=100ms",
        "capacity: response time over rate",
        "capacity: disk over fill level",
    ]
    assert [chart.title for chart in page.single_runs] == [
        "load: throughput over time", "load: latency of a request",
    ]  # fmt: skip


def test_the_summary_has_a_figure_and_a_rank_of_each_step(page: CampaignPage) -> None:
    assert page.steps == list(STEPS)
    cells = {name: own[3] for name, own in page.summary.items()}
    assert re.fullmatch(r"holds [\d,]+ \([\d,]+ to [\d,]+\) events/s", cells["questdb"][1])
    assert {rank for rank, _ in cells.values()} <= {
        "1.",
        "2.",
        "3.",
        "undecided",
        "1 to 3.",
        "2 to 3.",
    }
    rates = [float(cells[name][1].split()[1].replace(",", "")) for name in CANDIDATES]
    assert rates[1] > rates[0] > rates[2]


def test_a_candidate_has_its_schema_settings_and_client(page: CampaignPage) -> None:
    (first, *_) = page.candidates
    assert first.about == "PostgreSQL 18.4, 8 results"
    conditions = {
        title: {str(name): value for name, value in table.rows}
        for title, table in first.conditions.items()
    }
    assert conditions["Schema"]["indexes"] == "events_pkey"
    assert conditions["Schema"]["tags (as found)"] == "row"
    assert conditions["Durability and replication"]["fsync"] == "on"
    assert conditions["Client and load"]["client"] == "lean"
    # Where steps differ, each value has its steps.
    assert conditions["Client and load"]["batch"] == "1000 (growth, load); 100 (capacity)"
    assert "Machines" in conditions


def test_tables_of_runs_have_all_repetitions(page: CampaignPage) -> None:
    (first, *_) = page.candidates
    growth = next(step for step in first.steps if step["name"] == "growth")
    assert growth["count"] == "2 repetitions"
    assert [job["name"] for job in growth["jobs"]] == ["growth 1", "growth 2"]
    runs = growth["tables"]["Runs"]
    assert runs.headers[0] == "Repetition"
    assert [row[0] for row in runs.rows] == ["1"] * 10 + ["2"] * 10


def test_doubts_of_a_kind_are_said_once(page: CampaignPage) -> None:
    for candidate in page.candidates:
        kinds = [kind for kind, *_ in candidate.doubts]
        assert len(set(kinds)) == len(kinds)
        assert kinds


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, left_out=["influxdb capacity 1", "influxdb capacity 2"])
    campaign.folder.keep_failed({"influxdb capacity 1": "it <b>was</b> away"})
    with undrawn():
        write_report(campaign)
    html = campaign.folder.report.read_text()
    assert "Not measured: influxdb capacity 1: it &lt;b&gt;was&lt;/b&gt; away" in html
    assert "no figure: 1 failed" in html
    assert "3 candidates" in html and "22 stored results" in html


def test_one_candidate_is_ranked_by_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = make_campaign(tmp_path, FILE.replace("[postgresql, questdb, influxdb]", "[questdb]"))
    with undrawn():
        write_report(campaign)
    assert "Ranking" not in capsys.readouterr().out
    (cells,) = describe(campaign).summary.values()
    assert [rank for rank, _ in cells] == [""] * 4
    assert all(figure for _, figure in cells)
    assert Page(campaign.folder.report.read_text()).text


def test_a_disturbance_is_among_the_first_figures() -> None:
    steps = {"outage": {name: [disturbed((10.0, gap_s))] for name, gap_s in (("a", 2), ("b", 9))}}
    first, more = draw_campaign(steps, None)
    titles = [chart.title for chart in first]
    assert "outage: throughput over time" in titles
    assert "outage: throughput over time" not in [chart.title for chart in more]


def test_many_candidates_are_all_drawn() -> None:
    many: dict[str, list[Result]] = {f"c{n}": [inserts({1: [n + 1.0]})] for n in range(15)}
    ((chart, *_), _) = draw_campaign({"insert": many}, None)
    # All in bars.
    assert set(list_series(chart)) == set(many)
    lines: dict[str, list[Result]] = {f"c{n}": [steps({0: 2.0, 9: n + 1.0})] for n in range(15)}
    ((chart, *_), _) = draw_campaign({"growth": lines}, None)
    assert set(list_series(chart)) == set(lines)


def test_the_table_of_a_step_has_the_range_of_its_repetitions() -> None:
    results: dict[str, Sequence[Result]] = {
        "a": [queries({"x": [1.0]}), queries({"x": [4.0]})],
        "b": [queries({"x": [2.0]})],
    }
    table = tabulate_step(results)
    assert [list(row) for row in table.rows] == [
        ["x", "a", "2,000", "1,000", "4,000", "ms", 2], ["x", "b", "2,000", "2,000", "2,000", "ms", 1],
    ]  # fmt: skip


def test_what_a_file_says_does_no_harm(page: CampaignPage) -> None:
    from dataclasses import replace

    evil = "</script><script>alert(1)</script>"
    harmless = make_campaign_report(
        replace(
            page, title=evil, figures=[], single_runs=[], differences=[evil], failed={evil: evil},
            rankings={evil: [evil]}, doubts=evil, hardware=[evil],
            candidates=[
                replace(candidate, about=evil, interventions=[evil]) for candidate in page.candidates
            ],
        )
    )  # fmt: skip
    assert [tag for tag, _ in Page(harmless).tags].count("script") == 1


def test_a_report_of_many_results_leaves_out_the_tables_of_runs(
    campaign: Campaign, page: CampaignPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "MOST_TABULATED", 23)
    less = describe(campaign)
    assert "results show ID --results" in less.left_out and "24 results" in less.left_out
    with undrawn():
        short, whole = make_campaign_report(less), make_campaign_report(page)
    assert len(short) < 0.3 * len(whole)
    assert "results show ID" in short and "results show ID" not in whole
    assert Folded(short).unfolded == 1


def test_the_page_is_small(html: str) -> None:
    """A report of 24 jobs."""
    assert len(html) < 2_000_000
