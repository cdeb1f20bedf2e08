"""May a folder with results be published? What speaks against it, and what belongs beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands.results import results
from cli.results import publication
from cli.results.model import Result
from cli.results.publication import check_publication
from simulator.contract import Answers, Machine, Verification
from simulator.errors import DriverMissing

from ..made import ENVIRONMENT, capacity, disturbed, inserts, of_job, queries

Change = Callable[[Result], object]


def make(whole: Result) -> Result:
    """The result as this tool would keep it: with all that is known of the client."""
    client = {**ENVIRONMENT["client"], "system": "Linux 6.1"}
    return whole.model_copy(update={"environment": {**ENVIRONMENT, "client": client}})


def keep(folder: Path, result: Result, name: str = "one") -> Path:
    """Write it into a folder of its own."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "result.json").write_text(result.model_dump_json(indent=1))
    return path


@pytest.fixture
def good() -> Result:
    return make(inserts({1: [100.0, 101.0, 102.0]}))


def find_problems(folder: Path) -> list[str]:
    return check_publication(folder).problems


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(results, ["check", *map(str, words)], catch_exceptions=False)
    return done.exit_code, done.stdout


def test_what_is_in_order_may_be_published(tmp_path: Path, good: Result) -> None:
    keep(tmp_path, good)
    status, out = run(tmp_path)
    assert "1 result, may be published" in out
    assert status == 0 and "problem" not in out
    for line in (
        "on Some CPU, 2 CPUs, 4 GB, client and database together",
        "alpha PostgreSQL 18.4 on x86_64, compiled: fsync on",
        "measured 2025-01-02 by version 0.1.0 (abc) of this tool",
    ):
        assert f"note: {line}\n" in out


def set_environment(part: str, **changes: Any) -> Change:
    def change(result: Result) -> None:
        result.environment = {
            **result.environment, part: {**result.environment[part], **changes},
        }  # fmt: skip

    return change


def set_group(**changes: Any) -> Change:
    def change(result: Result) -> None:
        for name, value in changes.items():
            setattr(result.runs[0].groups[0], name, value)

    return change


def be_busy(result: Result) -> None:
    for run_result in result.runs:
        run_result.machines = [Machine(node="here", cpus=2, others_share=0.4, others={"make": 0.4})]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda result: setattr(result, "source", "the README"), "not measured by this tool"),
        (lambda result: setattr(result, "complete", False), "incomplete"),
        (set_environment("tool", commit="abc-dirty"), "the tool was changed since"),
        (set_environment("tool", version=None), "the version of the tool is unknown"),
        (set_environment("database", version=None), "the database's version is unknown"),
        (set_environment("database", settings={}), "the database's settings are unknown"),
        (set_environment("client", cpus=None), "unknown about the client: cpus"),
        (set_group(invalid_reasons=["7 events are missing"]), "invalid: 7 events are missing"),
        (set_group(verification=None), "the stored events were not counted"),
        (
            set_group(verification=Verification(expected=5, stored=None, ok=True)),
            "the stored events were not counted",
        ),
        (be_busy, "busy: "),
        (lambda result: result.options["module"].update(password="hush"), "option password shows"),
        (
            lambda result: result.options.update(runs=2),
            "fewer than 3 repetitions: alpha insert (2)",
        ),
    ],
)
def test_what_speaks_against_it(tmp_path: Path, good: Result, change: Change, problem: str) -> None:
    good.options = json.loads(json.dumps(good.options))
    change(good)
    keep(tmp_path, good)
    assert any(line.startswith(problem) for line in find_problems(tmp_path)), find_problems(
        tmp_path
    )


def test_answers_must_be_checked(tmp_path: Path) -> None:
    result = make(queries({"count-events": [0.1, 0.2, 0.3]}))
    (reader,) = result.runs[0].groups
    keep(tmp_path, result)
    assert any(problem.startswith("no answer was checked") for problem in find_problems(tmp_path))
    reader.answers = Answers(checked=1, unchecked=1, reasons={"too long": ["newest"]})
    keep(tmp_path / "again", result)
    publication = check_publication(tmp_path / "again")
    assert not any(problem.startswith("no answer") for problem in publication.problems)
    assert "answers not checked in 1 run: too long" in publication.beside


def test_rates_that_a_search_could_not_hold_are_no_reason(tmp_path: Path) -> None:
    for number in range(3):
        keep(tmp_path, make(capacity(1000.0)), str(number))
    assert find_problems(tmp_path) == []


def test_what_a_fault_has_cost_is_said_and_is_no_reason(tmp_path: Path) -> None:
    struck = make(disturbed((10.0, 5.0)))
    for run_result in struck.runs:
        run_result.groups[0].invalid_reasons = ["12 acknowledged events are missing"]
    for number in range(3):
        keep(tmp_path, struck, str(number))
    publication = check_publication(tmp_path)
    assert not any("missing" in problem for problem in publication.problems)
    assert any("12 acknowledged events are missing" in note for note in publication.beside)


def keep_plan(folder: Path, names: Sequence[str]) -> None:
    """The plan of a campaign with these jobs."""
    jobs = [
        dict(zip(("name", "candidate", "step", "repetition"), (name, *name.split()), strict=True))
        | {"command": "insert", "arguments": []}
        for name in names
    ]
    (folder / "plan.json").write_text(json.dumps({"jobs": jobs}))


def test_a_campaign_has_all_its_jobs_often_enough(tmp_path: Path, good: Result) -> None:
    names = [f"alpha fill {number}" for number in (1, 2, 3)]
    keep_plan(tmp_path, [*names, "alpha kill 1"])
    (tmp_path / "failed.json").write_text(json.dumps({"alpha kill 1": "no room"}))
    for name in names[:2]:
        keep(tmp_path / "results", of_job(good, name), name)
    keep(tmp_path / "replaced", good)
    publication = check_publication(tmp_path)
    assert publication.problems == [
        "2 jobs without a result: alpha fill 3, alpha kill 1",
        "alpha kill 1 failed: no room",
        "fewer than 3 repetitions: alpha fill (2)",
    ]
    assert "set aside and repeated: 1 result" in publication.beside


def test_a_failure_that_has_a_note_is_a_result(tmp_path: Path, good: Result) -> None:
    steps = ("fill", "kill", "load")
    keep_plan(tmp_path, [f"alpha {step} {number}" for number in (1, 2, 3) for step in steps])
    failed = {f"alpha kill {number}": "no room" for number in (1, 2)}
    (tmp_path / "failed.json").write_text(json.dumps(failed))
    for name in ("alpha fill 1", "alpha fill 2", "alpha fill 3", "alpha kill 3"):
        keep(tmp_path / "results", of_job(good, name), name)
    assert "alpha kill 1 failed: no room" in find_problems(tmp_path)
    (tmp_path / "notes.yaml").write_text("alpha: Its memory is too small.")
    publication = check_publication(tmp_path)
    # The third turn did not end with a failure: something else keeps its last job from being there.
    assert publication.problems == [
        "1 job without a result: alpha load 3",
        "fewer than 3 repetitions: alpha load (2)",
    ]
    assert publication.beside[-2:] == [
        "alpha kill 1 failed: no room",
        "alpha kill 2 failed: no room",
    ]
    keep(tmp_path / "results", of_job(good, "alpha load 3"), "alpha load 3")
    assert find_problems(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "is_secret"),
    [
        ("verdict.json", '{"password": "hush"}', True),
        ("campaign.log", "host=a password=hush", True),
        ("campaign.log", "psql --password=hush", True),
        ("worker.log", "GET http://me:hush@db:9200/", True),
        ("worker.log", "Authorization: Basic aHVzaA==", True),
        ("worker.log", "-----BEGIN RSA PRIVATE KEY-----", True),
        ("campaign.yaml", "extra-option: {token: abcdef}", True),
        ("verdict.json", '{"password": "***", "token": null}', False),
        ("report.html", "<td>password=***</td><td>token=abc</td>", True),
        ("campaign.log", "(password=***)", False),
        ("verdict.json", '{"url":"http://db:9200","note":"a@b"}', False),
        ("campaign.yaml", "password: ${PASSWORD:-}", False),
        ("worker.log", "GET http://me:***@db:9200/", False),
        ("report.html", "<script>var a={token:e}</script>", False),
        ("report.html", '<script type=\'application/json\'>{"token": "abc"}</script>', True),
    ],
)
def test_secrets_are_found(
    tmp_path: Path, good: Result, name: str, text: str, is_secret: bool
) -> None:
    keep(tmp_path, good)
    (tmp_path / name).write_text(f"first line\n{text}\n")
    problems = find_problems(tmp_path)
    assert bool(problems) is is_secret
    if is_secret:
        (problem,) = problems
        assert problem.startswith(f"{name}:2 may contain a secret: ")
        assert "hush" not in problem and "abc" not in problem


def test_a_module_that_is_not_installed_leaves_secrets_unseen(
    tmp_path: Path, good: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise DriverMissing("driver", name)

    keep(tmp_path, good)
    monkeypatch.setattr(publication, "load_module", refuse)
    (problem,) = find_problems(tmp_path)
    assert "can't search for secrets: the Python package driver is needed" in problem
    assert f"[{good.module}]'" in problem


def test_a_folder_without_results_is_a_mistake(tmp_path: Path) -> None:
    done = CliRunner().invoke(results, ["check", str(tmp_path)])
    assert done.exit_code == 2
    assert "has no result.json" in done.output
