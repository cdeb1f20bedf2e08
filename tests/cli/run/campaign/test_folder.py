"""What a campaign's folder goes on with: candidates and repetitions may be added, candidates left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.run.campaign.campaign import open_campaign
from cli.run.campaign.definition import Definition
from cli.run.campaign.folder import CampaignFolder
from cli.run.campaign.plan import Job, Turn, plan_turns
from cli.run.campaign.reading import load_definition
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

from ...made import inserts, of_job

ROOT = Path(__file__).parents[4]
BASE = """
targets: {one: {target: embedded, batch: 10}, two: {target: embedded}}
repeats: 1
steps: [{insert: {runs: 1}}]
"""


class Written:
    """A campaign's file and folder, as often as it is changed."""

    def __init__(self, place: Path) -> None:
        self.file = place / "night.yaml"
        self.folder = CampaignFolder(place / "night")
        self.folder.results.mkdir(parents=True)

    def read(self, text: str) -> Definition:
        self.file.write_text(text)
        return load_definition(self.file)

    def go_on(self, text: str, digest: str = "1") -> list[Job]:
        """Check the plan and keep it; its jobs."""
        definition = self.read(text)
        turns = plan_turns(definition)
        self.folder.check_plan(self.file, definition, {"embedded": digest})
        self.folder.keep_plan(self.file, definition, {"embedded": digest}, turns)
        return [job for turn in turns for job in turn]

    def finish(self, label: str) -> None:
        path = self.folder.results / label.replace(" ", "-")
        path.mkdir()
        result = of_job(inserts({1: [100.0]}, complete=True), label)
        (path / "result.json").write_text(result.model_dump_json(by_alias=True))


def list_names(jobs: Sequence[Job]) -> set[str]:
    return {job.name for job in jobs}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_candidates_and_repetitions_are_added_and_left_out(written: Written) -> None:
    assert list_names(written.go_on(BASE)) == {"one insert", "two insert"}
    for name in ("one insert", "two insert"):
        written.finish(name)
    more = BASE.replace("two:", "three: {target: embedded}, two:").replace(
        "repeats: 1", "repeats: 2"
    )
    jobs = written.go_on(more)
    assert len(jobs) == 6
    # What was measured stays, as the first repetition.
    assert written.folder.find_done(jobs).keys() == {"one insert 1", "two insert 1"}
    assert written.folder.find_others(jobs) == []
    fewer = more.replace("one: {target: embedded, batch: 10}, ", "")
    jobs = written.go_on(fewer)
    assert written.folder.find_done(jobs).keys() == {"two insert 1"}
    # The results of the one that is left out aren't set aside.
    assert written.folder.find_others(jobs) == ["one-insert"]
    assert set(written.folder.list_candidates()) == {"one", "two", "three"}
    assert written.folder.find_done(written.go_on(more)).keys() == {"one insert 1", "two insert 1"}
    with_variants = more.replace("repeats: 2", "repeats: 2\nvariants: {small: {batch: 5}}")
    assert written.folder.find_done(written.go_on(with_variants)) == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("runs: 1", "runs: 2", "steps[1].insert.runs: 1 is now 2"),
        ("runs: 1}}", "runs: 1}}, query", "steps: there are 2 now, not 1"),
        ("batch: 10", "batch: 20", "targets.one.batch: 10 is now 20"),
        ("repeats: 3", "repeats: 2", "repeats: 3 is now 2"),
        ("repeats: 3", "repeats: 3\nsettle: 5s", "settle is new"),
    ],
)
def test_other_changes_are_refused(written: Written, old: str, new: str, said: str) -> None:
    text = BASE.replace("repeats: 1", "repeats: 3")
    written.go_on(text)
    with pytest.raises(ConfigError) as refused:
        written.go_on(text.replace(old, new))
    assert said in str(refused.value)
    assert "You may add targets, variants and repeats" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["report.html", "verdict.json", "campaign.yaml", "campaign.log", "times.json"]
)
def test_files_of_somebody_else_are_not_replaced(written: Written, name: str) -> None:
    (written.folder.path / name).write_text("keep me")
    (written.folder.path / "notes.txt").write_text("in nobody's way")
    with pytest.raises(ConfigError, match=f"its {name} would be replaced: name another folder"):
        written.go_on(BASE)
    assert (written.folder.path / name).read_text() == "keep me"
    assert sorted(path.name for path in written.folder.path.iterdir()) == sorted(
        [name, "notes.txt", "results"]
    )


def test_a_campaign_may_lie_in_its_own_folder(written: Written) -> None:
    written.file = written.folder.path / "campaign.yaml"
    assert written.go_on(BASE) and written.go_on(BASE.replace("repeats: 1", "repeats: 2"))


def test_a_candidate_that_comes_back_is_the_same(written: Written) -> None:
    """Its results are of its options at that time."""
    written.go_on(BASE)
    without = BASE.replace("one: {target: embedded, batch: 10}, ", "")
    written.go_on(without)
    with pytest.raises(ConfigError, match=r"targets\.one\.batch: 10 is now 20"):
        written.go_on(BASE.replace("batch: 10", "batch: 20"))
    with pytest.raises(ConfigError, match="target embedded in the config file"):
        written.go_on(BASE, digest="2")


def test_a_candidate_that_was_left_out_from_the_beginning_may_change(written: Written) -> None:
    definition = written.read(BASE)
    turns: list[Turn] = [
        [job for job in turn if job.candidate.target == "two"] for turn in plan_turns(definition)
    ]
    written.folder.keep_plan(written.file, definition, {"embedded": "1"}, turns)
    names = list_names(written.go_on(BASE.replace("batch: 10", "batch: 20")))
    assert names == {"one insert", "two insert"}
    with pytest.raises(ConfigError, match=r"targets\.one\.batch: 20 is now 30"):
        written.go_on(BASE.replace("batch: 10", "batch: 30"))


def test_a_failure_of_a_candidate_that_is_left_out_is_none(written: Written) -> None:
    jobs = written.go_on(BASE)
    written.folder.keep_failed({"one insert": "it was away"})
    assert written.folder.find_failed(jobs) == {"one insert": "it was away"}
    assert written.folder.find_failed([job for job in jobs if job.name == "two insert"]) == {}
    more = written.go_on(BASE.replace("repeats: 1", "repeats: 2"))
    assert written.folder.find_failed(more) == {"one insert 1": "it was away"}


def test_how_long_the_first_repetition_took_is_known_when_more_are_added(written: Written) -> None:
    written.go_on(BASE)
    written.folder.keep_time("one insert", 4.0)
    jobs = written.go_on(BASE.replace("repeats: 1", "repeats: 2"))
    written.folder.keep_time("one insert 2", 5.0)
    assert written.folder.find_times(jobs) == {"one insert 1": 4.0, "one insert 2": 5.0}


NEEDS = """
targets: {one: {target: embedded}}
options: {workload: machines}
requirements:
  events_per_s: 100
  insert: {p99: 250ms}
  retention: 10d
  disk: 1TB
price: {gb_month: 0.1}
"""
CONFIG = "targets: {embedded: {module: postgres, executor: local, connection_string: host=x}}\n"


def _go_on(folder: Path, text: str) -> None:
    file, config = folder / "needs.yaml", folder / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    campaign = open_campaign(file, config, folder / "out", Interrupts())
    campaign.folder.results.mkdir(parents=True, exist_ok=True)
    campaign.folder.check_plan(file, campaign.definition, campaign.digest_targets())
    campaign.folder.keep_plan(file, campaign.definition, campaign.digest_targets(), campaign.turns)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("disk: 1TB", "disk: 2TB"),
        ("  disk: 1TB", "  disk: 1TB\n  cost_per_month: 5"),
        ("0.1", "0.2"),
        ("price:", "repeats: 5\nprice:"),
        ("{one: {target: embedded}}", "{one: {target: embedded}, two: {target: embedded}}"),
    ],
)
def test_requirements_that_change_no_step_may_change(tmp_path: Path, old: str, new: str) -> None:
    assert old in NEEDS
    _go_on(tmp_path, NEEDS)
    _go_on(tmp_path, NEEDS.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("250ms", "300ms", "requirements.insert.p99: 250.0 is now 300.0"),
        ("events_per_s: 100", "events_per_s: 200", "requirements.events_per_s: 100.0 is now 200.0"),
        ("  retention: 10d\n  disk: 1TB\n", "", "requirements.retention is gone"),
    ],
)
def test_requirements_that_change_steps_may_not(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    _go_on(tmp_path, NEEDS)
    with pytest.raises(ConfigError) as refused:
        _go_on(tmp_path, NEEDS.replace(old, new))
    assert said in refused.value.message
    assert "steps" not in refused.value.message.splitlines()[0]


def test_another_workload_of_the_same_name_is_refused(tmp_path: Path) -> None:
    own = (ROOT / "simulator" / "workloads" / "machines.yaml").read_text()
    workload = tmp_path / "plants.yaml"
    workload.write_text(own.replace("name: machines", "name: plants"))
    text = NEEDS.replace("workload: machines", f"workload: {workload}")
    _go_on(tmp_path, text)
    _go_on(tmp_path, text)
    workload.write_text(workload.read_text().replace("interval: 10s", "interval: 20s"))
    with pytest.raises(ConfigError) as refused:
        _go_on(tmp_path, text)
    assert f"workload {workload} is defined differently" in refused.value.message
