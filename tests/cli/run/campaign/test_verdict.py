"""The verdict of a campaign: from the results in its folder to what is printed and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.results import results
from cli.results.decision import Status
from cli.results.store import open_verdict
from cli.run.campaign.campaign import Campaign, open_campaign
from cli.run.campaign.reporting import judge_campaign, write_report
from cli.run.campaign.running import report_only
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts
from simulator.contract import LatencyMs

from ...made import of_job, open_loop

CONFIG = """
targets:
  one: {module: postgres, executor: local, connection_string: host=one, cost_per_hour: 2}
  two: {module: postgres, executor: local, connection_string: host=two}
"""
FILE = """
title: Two of them
targets: [one, two]
requirements:
  events_per_s: 1000
  insert: {p99: 250ms}
  cost_per_month: 2000
steps: [{insert: {rate: 1000, duration: 20s, workers: 2}}]
repeats: 2
"""


class Night:
    """A campaign, and results as its jobs would give them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "config.yaml").write_text(CONFIG)
        (place / "night.yaml").write_text(FILE)
        self.open().folder.results.mkdir(parents=True)
        self._keep_plan()

    def open(self) -> Campaign:
        place = self.place
        return open_campaign(
            place / "night.yaml", place / "config.yaml", place / "out", Interrupts()
        )

    def _keep_plan(self) -> None:
        campaign = self.open()
        campaign.folder.keep_plan(
            campaign.file, campaign.definition, campaign.digest_targets(), campaign.turns
        )

    def finish(self, job: str, p99: float) -> None:
        result = open_loop({2: [1000.0]}, rate_per_s=1000.0)
        result.runs[0].groups[0].latency_ms = LatencyMs(p50=1, p90=2, p99=p99, max=999)
        path = self.place / "out" / "results" / job.replace(" ", "-")
        path.mkdir()
        labelled = of_job(result, job).model_copy(update={"target": job.split(maxsplit=1)[0]})
        (path / "result.json").write_text(labelled.model_dump_json(by_alias=True))


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_the_verdict_is_printed_kept_and_shown(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        night.finish(f"one insert {number}", 100 + number)
        night.finish(f"two insert {number}", 400 + number)
    write_report(night.open())
    output = capsys.readouterr().out
    assert "one: all met; narrowest: cost per month (1.4×); 1,460 a month (2 an hour)." in output
    assert "two: missed (1 met, 1 missed, 1 undecided); narrowest: inserts p99 (0.62×)." in output
    assert "missed inserts p99" not in output
    worth = (
        "Durability: an event is acknowledged in 1 place, on disk or not (it didn't tell"
        " synchronous_commit); lean client."
    )
    assert output.count(f"\n{worth}\n") == output.count("\nTrust: good.\n") == 1
    assert "\nundecided: two: cost per month: no price is known" in output
    write_report(replace(night.open(), verbose=True))
    output = capsys.readouterr().out
    assert output.count(f"  {worth}") == output.count("  Trust: good.") == 2
    assert "All: Trust: good." in output
    assert "  undecided cost per month: no price is known" in output
    verdict = open_verdict(night.place / "out")
    assert verdict is not None
    cell = verdict.candidates[1].find("insert.p99")
    assert [evidence.result for evidence in cell.evidence] == ["two-insert-1", "two-insert-2"]
    shown = CliRunner().invoke(results, ["show", str(night.place / "out")]).output
    assert "Verdict: Two of them\n" in shown
    assert "two-insert-2 run 1" in shown
    assert shown == CliRunner().invoke(results, ["show", str(_find_file(night))]).output


def _find_file(night: Night) -> Path:
    return night.place / "out" / "verdict.json"


def test_what_there_is_after_an_interruption(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.finish("one insert 1", 100)
    write_report(night.open())
    output = capsys.readouterr().out
    assert "So far: 3 jobs are still to run." in output
    assert "undecided: one: load and inserts p99: one repetition doesn't show" in output
    assert "undecided: two: load, inserts p99 and cost per month: not measured yet." in output


def test_requirements_that_were_changed_later_are_said(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    file = night.place / "night.yaml"
    # Before there are results, nothing can have been seen.
    file.write_text(FILE.replace("p99: 250ms", "p99: 300ms"))
    night.open().folder.keep_requirements(night.open().definition, 0)
    for number in (1, 2):
        night.finish(f"one insert {number}", 400)
    report_only(night.open())
    assert "Requirements changed" not in capsys.readouterr().out
    for changed in ("p99: 500ms", "p99: 500ms", "p99: 450ms, p50: 1s"):
        file.write_text(FILE.replace("p99: 250ms", changed).replace("month: 2000", "month: 1500"))
        report_only(night.open())
    output = " ".join(capsys.readouterr().out.split())
    said = "after 2 results: insert p99 300 ms → 500 ms, cost_per_month 2,000 → 1,500."
    assert said in output
    assert "after 2 results: insert p99 500 ms → 450 ms, insert p50 1,000 ms is new." in output
    verdict = open_verdict(night.place / "out")
    assert verdict is not None
    assert [change.results for change in verdict.requirement_changes] == [2, 2]
    assert "300 ms → 500 ms" in (night.place / "out" / "report.html").read_text()


def test_a_failed_job_counts(night: Night) -> None:
    for number in (1, 2):
        night.finish(f"one insert {number}", 100)
    campaign = night.open()
    (night.place / "out" / "results" / "one-insert-2" / "result.json").unlink()
    campaign.folder.keep_failed({"one insert 2": "it was away"})
    verdict = judge_campaign(campaign, campaign.folder.find_done(campaign.jobs))
    assert verdict is not None
    cell = verdict.candidates[0].find("insert.p99")
    assert cell.status is Status.UNDECIDED
    assert "one insert 2 failed: it was away" in (cell.reason or "")
    assert verdict.jobs_left == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"met"', '"perhaps"'),
        lambda _: "[]",
    ],
)
def test_a_damaged_verdict_is_said(night: Night, damage: Callable[[str], str]) -> None:
    for number in (1, 2):
        night.finish(f"one insert {number}", 100)
    write_report(night.open())
    file = _find_file(night)
    file.write_text(damage(file.read_text()))
    with pytest.raises(ConfigError, match=r"verdict\.json is damaged") as refused:
        open_verdict(night.place / "out")
    assert len(str(refused.value).splitlines()) == 1


def test_nothing_is_required_no_verdict(night: Night) -> None:
    text = FILE[: FILE.index("requirements:")] + FILE[FILE.index("steps:") :]
    (night.place / "night.yaml").write_text(text)
    assert judge_campaign(night.open(), {}) is None


def test_a_report_of_nothing_is_refused(night: Night) -> None:
    with pytest.raises(ConfigError, match="has no result of this campaign yet"):
        report_only(night.open())
