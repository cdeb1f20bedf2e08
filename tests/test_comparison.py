"""The published comparison: its campaigns can be planned, its results published, its table is theirs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from html import unescape
from itertools import combinations, product
from pathlib import Path

import psutil
import pytest

from cli.commands.results import write_command
from cli.results.kept import SUFFIX, is_kept
from cli.results.model import Result
from cli.results.publication import check_publication
from cli.results.published import find_candidates, make_fields
from cli.results.sources import find_sources
from cli.run.campaign.campaign import Campaign, list_permissions, open_campaign
from cli.run.campaign.running import prepare
from cli.show.site import make_site
from cli.system.processes import Interrupts
from comparison import growth
from comparison.picture import PICTURE, make_picture, place_names
from comparison.server import list_alive
from comparison.table import (
    BEGIN,
    BLOCKS,
    COLUMNS,
    END,
    FLEET,
    FRONT,
    LOST,
    PAGE,
    RESULTS,
    STORED,
    complete_page,
    list_published,
    make_block,
    make_cases,
    make_findings,
    make_reference_table,
    make_table,
)

from .cli.made import inserts, queries
from .cli.publishing.published import keep_campaign
from .cli.run.campaign.stored_campaign import make_campaign
from .cli.test_pictures import list_labels

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "comparison"
PUBLISHED = sorted((FOLDER / "results").iterdir())
TEMPERATURE = RESULTS / f"temperature{SUFFIX}"
MOST_BYTES, MOST_FILES = 8_000_000, 60


@pytest.fixture(autouse=True)
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def read_campaign(name: str, size: str | None, tmp_path: Path) -> Campaign:
    file, config = FOLDER / f"{name}.yaml", FOLDER / "config.yaml"
    return open_campaign(file, config, tmp_path / "out", Interrupts(), size=size)


@pytest.mark.parametrize(
    ("name", "size"),
    [*product(("fleet", "temperature", "versions"), (None, "quick")), ("history", None)],
)
def test_every_job_is_one_that_the_tool_takes(name: str, size: str | None, tmp_path: Path) -> None:
    campaign = read_campaign(name, size, tmp_path)
    prepared = prepare(campaign)
    assert campaign.definition.repeats == (1 if name == "history" else 6)
    # Only one server at a time.
    for label, target in campaign.definition.targets.items():
        assert (target.start or "").startswith("comparison/server.py start "), label
        assert target.stop == "comparison/server.py stop"
    for command in list_permissions(
        campaign, (experiment.session for experiment in prepared.values())
    ):
        assert re.search(r"comparison/server\.py (start [\w-]+|stop|kill)", command)


def test_the_fleet_is_measured_as_it_is_required(tmp_path: Path) -> None:
    campaign = read_campaign("fleet", None, tmp_path)
    question = campaign.question
    assert question is not None
    (load,) = [step for step in campaign.definition.steps if step.name == "load"]
    options = load.options
    assert options["rate"] == question.rate_per_s
    assert options["query-rate"] == pytest.approx(question.needed.query_rate_per_s)
    assert options["queries"] == {
        name: query.rate for name, query in question.needed.queries.items()
    }
    (kill,) = [step for step in campaign.definition.steps if step.name == "kill"]
    (fault,) = question.needed.faults
    assert all(disturbance.endswith(f"s {fault}") for disturbance in kill.options["disturb"])


def test_no_file_names_a_place_on_a_machine() -> None:
    for file in (*FOLDER.glob("*.yaml"), *FOLDER.glob("*.py"), *FOLDER.glob("*.md")):
        assert not re.search(r"(?<![\w.$/])/(?:home|root|work|tmp|Users)\b", file.read_text()), file


def test_what_is_published_may_be() -> None:
    assert all(map(is_kept, PUBLISHED))
    problems = {file.name: check_publication(file).problems for file in PUBLISHED}
    assert not any(problems.values()), problems


def test_what_is_published_is_small_enough() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES
    assert len(files) <= MOST_FILES


def test_the_page_has_the_tables_of_what_is_published() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == len(BLOCKS)
    assert complete_page(page, map(make_block, BLOCKS)) == page


def test_the_front_page_the_site_and_the_tables_say_the_same() -> None:
    assert sorted(PUBLISHED) == sorted(list_published())
    front, findings = FRONT.read_text(), make_findings(list_published())
    assert complete_page(front, [findings]) == front
    assert "(img/comparison.svg)" in front.split(BEGIN)[0].split("## The comparison\n")[1]
    # The site has them from the same files.
    site = unescape(make_site(find_sources(PUBLISHED), "All", write_command)["index.html"].decode())
    assert findings.count("\n* **") == 3
    for claim, evidence in find_sources(PUBLISHED).findings.items():
        assert f"<strong>{claim}</strong>: {evidence}" in site
    # Each figure is one of the tables.
    tables = " ".join(map(make_block, BLOCKS))
    figures = re.findall(r"\d(?:[\d,.]*\d)?", findings)
    assert len(figures) >= 10
    for figure in figures:
        assert re.search(rf"(?<![\d,.]){re.escape(figure)}(?![\d,])", tables), figure


# Claim's beginning -> the pairs that must be decided: aspect, better, worse.
DECIDED = {
    "QuestDB and IoTDB owe": [
        ("inserts", "questdb", "questdb-disk"), ("inserts", "iotdb-table", "iotdb-table-disk")
    ],
    "An index": [
        ("hot", "postgresql-indexed", "postgresql"), ("inserts", "postgresql", "postgresql-indexed"),
        ("disk", "postgresql", "postgresql-indexed"),
    ],
    "VictoriaMetrics": [("disk", "victoriametrics", "questdb"), ("disk", "questdb", "postgresql")],
}  # fmt: skip


def test_the_findings_hold_by_the_rule_of_ranking() -> None:
    sources = find_sources(PUBLISHED)
    claims = list(sources.findings)
    fields = make_fields(find_candidates(sources))
    (reference,) = [field for field in fields if field.workload == "temperature"]
    rows = {row.candidate.name: number for number, row in enumerate(reference.rows)}
    for beginning, pairs in DECIDED.items():
        assert [claim for claim in claims if claim.startswith(beginning)], beginning
        for aspect, better, worse in pairs:
            cells = [
                reference.rows[rows[better]].cells[number]
                for number, column in enumerate(reference.columns)
                if column.aspect.key == aspect and column.test != STORED
            ]
            assert cells, aspect
            assert all(cell and rows[worse] in cell.better_than for cell in cells), (aspect, better)


@pytest.mark.parametrize("file", [FLEET, TEMPERATURE], ids=lambda file: file.name)
def test_six_turns_decide_what_is_far_apart(file: Path) -> None:
    (field,) = make_fields(find_candidates(find_sources([file])))
    apart = decided = 0
    for number in range(len(field.columns)):
        cells = [row.cells[number] for row in field.rows]
        for one, other in combinations(range(len(cells)), 2):
            a, b = cells[one], cells[other]
            if a and b and max(a.share / b.share, b.share / a.share) >= 1.5:
                apart += 1
                decided += other in a.better_than or one in b.better_than
    assert decided >= apart / 2 > 0


def test_the_picture_has_each_candidate_of_the_fleet() -> None:
    names = re.findall(r"^\| ([\w-]+) \| [*\d]", make_block("fleet"), re.MULTILINE)
    drawn = PICTURE.read_text()
    assert len(names) >= 10
    assert all(f">{name}<" in drawn for name in names)
    assert list_labels(make_picture(FLEET)) == list_labels(drawn)


def test_names_in_the_picture_leave_each_other_room() -> None:
    corners = [
        {"name": "low", "inserts": 1e3, "ms": 1.0},
        {"name": "high", "inserts": 1e6, "ms": 99.0},
    ]
    near = [{"name": f"near-{place}", "inserts": 3e4 + place, "ms": 9.0} for place in range(4)]
    right_above = (False, False)
    assert place_names(corners) == [right_above] * 2
    spots = place_names([*corners, *near])
    assert spots[:2] == [right_above] * 2
    assert len(set(spots[2:])) == 4
    # Nothing is left of the edge.
    at_edge = [{"name": f"edge-{place}", "inserts": 1e3 + place, "ms": 9.0} for place in range(2)]
    assert [left for left, _ in place_names([*corners, *at_edge])] == [False] * 4


def test_the_page_on_scale_is_that_of_its_results() -> None:
    page = growth.PAGE.read_text()
    assert complete_page(page, [growth.make_table(growth.FILE)]) == page
    drawn = growth.PICTURE.read_text()
    assert list_labels(growth.make_picture(growth.FILE)) == list_labels(drawn)
    points = growth.list_points(growth.FILE)
    assert {point.events for point in points} == {1_000_000, 10_000_000, 100_000_000}
    assert len({point.candidate for point in points}) == 4
    assert all(f">{point.figure}<" in drawn for point in points)


def test_a_case_names_the_two_that_fit_it() -> None:
    table = make_cases(FLEET)
    _, _, *rows = table.splitlines()
    assert len(rows) == 2
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    for about, anyone, kept in cells:
        assert about.startswith("**")
        # Two databases, and not two settings of one.
        for choice in (anyone, kept):
            names = re.findall(r"([\w-]+) \(", choice)
            assert len({name.partition("-")[0] for name in names}) == len(names) == 2
    # Who holds fewer than 10,000 events/s isn't named for 100,000 devices, nor who loses events for the disk.
    assert "cratedb" not in rows[0] and "cassandra (" not in cells[0][2]
    assert cells[1][1].startswith("questdb (") and "iotdb" not in cells[1][2]


def test_the_table_is_that_of_the_results(tmp_path: Path) -> None:
    file = """
targets: [postgresql, questdb]
steps:
- steps: {steps: 10, workers: 1, runs: 1}
  label: fill
- query: {}
  label: questions
- capacity: {limit: p99=100ms}
repeats: 2
"""
    folder = make_campaign(tmp_path, file.replace("label: fill", "label: growth"))
    # The results of another campaign's steps, by the names that the comparison's have.
    jobs = [
        {
            "name": job.name.replace("growth", "fill"), **job.id._asdict(),
            "step": job.step.replace("growth", "fill"),
            "command": job.command, "arguments": job.arguments,
        }
        for job in folder.jobs
    ]  # fmt: skip
    (folder.folder.path / "plan.json").write_text(json.dumps({"jobs": jobs}))
    (folder.folder.path / "notes.yaml").write_text("questdb: It never waits for the disk.\n")
    for stored in folder.folder.results.glob("*/result.json"):
        text = re.sub(r'"workload":"\w+"', '"workload":"machines"', stored.read_text())
        stored.write_text(text.replace('"growth"', '"fill"'))
    table = make_table(folder.folder.path)
    heading, _, *rows = (line for line in table.splitlines() if line.startswith("|"))
    assert heading == f"| candidate | {' | '.join([*COLUMNS, LOST])} |"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["postgresql", "questdb"]
    for row in cells:
        assert all(re.match(r"[*\d,.]+", cell) for cell in row[1:4])
        assert row[6:] == ["-", "-"]  # nobody was killed
    # QuestDB is more than twice as fast, which the intervals of its searches show.
    assert [row[3].startswith("**") for row in cells] == [False, True]
    assert "* questdb: It never waits for the disk." in table
    assert "2 repetitions" in table


def test_the_references_table_has_each_number_of_workers_and_each_query(tmp_path: Path) -> None:
    results: dict[str, Result] = {}
    for number, factor in enumerate((1, 3), 1):
        # What only stores the events that are asked about isn't shown.
        label = f"alpha load {number}"
        results[label] = inserts({1: [9_000.0]}, "alpha", label=label)
        label = f"alpha inserts {number}"
        results[label] = inserts(
            {4: [4_000.0 * factor], 1: [1_000.0 * factor]}, "alpha", label=label
        )
        times_s = {"newest": [0.001 * factor, 0.003 * factor], "count": [0.5, 0.5]}
        label = f"alpha questions {number}"
        results[label] = queries(times_s, "alpha", label=label)
    label = "beta inserts 1"
    results[label] = inserts({1: [7_000.0]}, "beta", label=label)
    label = "beta questions 1"
    results[label] = queries({"newest": [0.004, 0.006], "count": [0.6, 0.6]}, "beta", label=label)
    folder = keep_campaign(tmp_path / "night", results)
    (folder / "notes.yaml").write_text("beta: It has one worker.\n")
    assert make_reference_table(folder).splitlines() == [
        (
            "| candidate | inserts/s by 1 worker | inserts/s by 4 workers | `count`, ms | `newest`, ms"
            " | bytes/event |"
        ),
        "| --- | --- | --- | --- | --- | --- |",
        (
            "| alpha | 1,732 (1,000 to 3,000) | 6,928 (4,000 to 12,000) | 500 (500 to 500)"
            " | 3.46 (2 to 6) | - |"
        ),
        "| beta | 7,000 (7,000 to 7,000) | - | 600 (600 to 600) | 5 (5 to 5) | - |",
        "",
        "* beta: It has one worker.",
        "",
        (
            "Geometric means and ranges of 2 repetitions. Bold: the best, where the repetitions decide it;"
            " where nothing is bold, they don't."
        ),
    ]


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = f"# Title\n\n{BEGIN}\n{END}\n\nMore.\n"
    with_table = complete_page(page, ["| a |"])
    assert with_table == f"# Title\n\n{BEGIN}\n| a |\n{END}\n\nMore.\n"
    assert complete_page(with_table, ["| b |"]) == with_table.replace("| a |", "| b |")


def test_a_process_is_alive_until_it_has_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        try:
            assert list_alive([sleeping.pid]) == [sleeping.pid]
        finally:
            sleeping.kill()
        os.waitid(os.P_PID, sleeping.pid, os.WEXITED | os.WNOWAIT)
        assert list_alive([sleeping.pid]) == []  # a zombie
    assert list_alive([sleeping.pid]) == []


SCRIPT = """#!{python}
import json, os, subprocess, sys
words, place = sys.argv[1:], os.path.dirname(__file__)
with open(f"{{place}}/log", "a") as log:
    print(*words, os.environ.get("SYNC", "-"), file=log)
if words[0] == "start":
    # A server with a child of its own, as PostgreSQL has.
    command = ["/bin/sh", "-c", "sleep 600 & wait"]
    server = subprocess.Popen(command, start_new_session=True)
    print("starting…", flush=True)
    print(json.dumps({{"name": words[1], "pids": [server.pid]}}))
"""


def test_a_server_is_started_killed_and_stopped_by_the_users_script(tmp_path: Path) -> None:
    script = tmp_path / "servers"
    script.write_text(SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "SERVERS": str(script), "TMPDIR": str(tmp_path)}

    def run(*words: str, **more: str) -> tuple[int, str]:
        command = [sys.executable, str(FOLDER / "server.py"), *words]
        # Not through pipes, which the server keeps.
        with (tmp_path / "said").open("w") as output:
            done = subprocess.run(
                command, env=environment | more, stdout=output, stderr=output, check=False
            )
        return done.returncode, (tmp_path / "said").read_text()

    def find_pid() -> psutil.Process:
        (state,) = tmp_path.glob("comparison-server-*.json")
        return psutil.Process(json.loads(state.read_text())["pids"][0])

    status, output = run("start", "questdb", SERVERS="")
    assert status == 1 and "SERVERS must name the script" in output
    assert run("start", "questdb", "SYNC=yes")[0] == 0
    server = find_pid()
    family = [server, *server.children()]
    assert len(family) == 2
    assert run("kill")[0] == 0
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    restarted = find_pid()
    assert restarted.pid != server.pid
    assert run("stop")[0] == 0
    assert (tmp_path / "log").read_text().splitlines() == [
        "start questdb yes", "start questdb yes", "stop questdb -",
    ]  # fmt: skip
    assert run("stop")[0] == 0  # nothing runs
    os.killpg(restarted.pid, signal.SIGKILL)
