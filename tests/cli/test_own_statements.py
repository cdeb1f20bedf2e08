"""Statements of a workload's own, and what results keep of those that were sent: shown where figures are."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import commands
from cli.results.caveats import Kind
from cli.results.model import MOST_STATEMENT_CHARACTERS, Result, SentStatements
from cli.results.verdicts import find_caveats, is_stable
from cli.show.campaign import DoneJob, make_section, pool_statements
from cli.show.comparison import list_remarks
from cli.show.ranking import rank_candidates
from cli.show.report import make_report
from cli.show.stored import describe_result

from ..helpers import begin_definition, configure_definition
from .made import queries, stored

SCHEMA = SentStatements(title="Schema", lines=["CREATE TABLE events ()"])
OWN = SentStatements(
    title="Query q, the workload's own statement: <all>",
    lines=["SELECT a", "  FROM <b>"],
    query="q",
    own=True,
)
THEIRS = SentStatements(title="Query r", lines=["SELECT r"], query="r")

CONFIG = (
    """
targets:
  postgres: {module: postgres, connection_string: "host=nowhere.invalid", executor: local}
workloads:
"""
    + configure_definition(
        begin_definition("pumps", "pump", "Pumps of a town", devices=3, interval="10s")
    )
    + """\
      - {name: flow, type: float64, signal: {kind: wander, low: 0, high: 9, period: 1h}}
    queries:
      - name: mean
        about: the mean flow
        devices: 1
        compute: [{function: avg, column: flow}]
        statement:
          MODULE
"""
)


def make_result(*sent: SentStatements) -> Result:
    return queries({"q": [0.5, 0.75], "r": [4.0, 4.1]}, statements=list(sent))


def show(tmp_path: Path, line: str, *arguments: str) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.replace("MODULE", line))
    words = ["workloads", "pumps", "-c", str(file), *arguments]
    result = CliRunner().invoke(commands, words)
    return result.output + str(result.exception or "")


def test_an_own_statement_is_shown_as_it_is_sent(tmp_path: Path) -> None:
    line = "postgres: SELECT avg(flow)::real FROM :table WHERE pump = :device"
    shown = show(tmp_path, line, "--target", "postgres", "--show-queries")
    assert (
        "Query mean, the workload's own statement: the mean flow\n  SELECT avg(flow)::real" in shown
    )
    assert """FROM "pumps" WHERE pump = 'w00000d00000""" in shown


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("postgress: SELECT 1", "no module 'postgress'; did you mean postgres?"),
        ("influxdb: SELECT 1", "module influxdb takes no statements from a workload"),
        ("postgres: SELECT :start", "there is no parameter :start"),
        ("postgres:", "the statement is empty"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_key(
    tmp_path: Path, line: str, problem: str
) -> None:
    shown = show(tmp_path, line)
    key = f"workloads.pumps.queries[mean].statement.{line.partition(':')[0]}"
    assert f"config.yaml:22: {key}: " in shown
    assert problem in shown


def test_a_result_says_who_wrote_the_statement() -> None:
    result = make_result(SCHEMA, OWN, THEIRS)
    (caveat,) = [caveat for caveat in find_caveats(result) if caveat.kind is Kind.OWN_STATEMENTS]
    assert caveat.text.startswith("q sent as the workload's own")
    assert is_stable(result) == is_stable(make_result())
    assert not make_result(SCHEMA, THEIRS).own_statements
    assert Result.model_validate_json(result.model_dump_json()).own_statements == ["q"]


def test_comparisons_and_rankings_say_who_asked_by_it() -> None:
    own, other = make_result(SCHEMA, OWN), make_result(SCHEMA)
    remark = "own statements: mine: q sent as the workload's own"
    assert remark in list_remarks(["mine", "theirs"], [own, other])
    ranking = rank_candidates("query", {"mine": [own, own], "theirs": [other, other]}, 2)
    assert "mine: q sent as the workload's own statement." in ranking.lines
    assert not [line for line in ranking.lines if "theirs: q asked" in line]


def test_results_show_has_them_as_they_were_sent() -> None:
    shown = describe_result(stored(make_result(SCHEMA, OWN)), terminal=True)
    assert (
        "Schema\n  CREATE TABLE events ()\n\nQuery q, the workload's own statement: <all>\n"
        in shown
    )
    assert "\n  SELECT a\n    FROM <b>\n" in shown


def test_reports_have_them_folded() -> None:
    page = make_report([stored(make_result(SCHEMA, OWN))], "Title")
    folded = page[
        page.index("<summary>Statements of schema and queries, some of them the workload's own") :
    ]
    assert "<pre>SELECT a\n  FROM &lt;b&gt;</pre>" in folded
    assert "Statements of schema and queries" not in make_report([stored(make_result())], "Title")


def test_a_candidate_has_each_once() -> None:
    redrawn = OWN.model_copy(update={"lines": ["SELECT other"]})
    jobs = [
        DoneJob("query", repetition, stored(make_result(*sent)))
        for repetition, sent in enumerate([(SCHEMA, THEIRS), (SCHEMA, OWN), (SCHEMA, redrawn)], 1)
    ]
    assert make_section(0, "mine", jobs).statements == [SCHEMA, THEIRS, OWN]
    indexed = SentStatements(title="Schema", lines=["CREATE TABLE other ()"])
    assert pool_statements([[THEIRS, SCHEMA], [indexed]]) == [SCHEMA, indexed, THEIRS]


def test_a_result_keeps_no_long_ones_whole() -> None:
    long = SentStatements(
        title="Schema", lines=["x" * MOST_STATEMENT_CHARACTERS, "y" * 100]
    ).shorten()
    text = "\n".join(long.lines)
    assert len(text) < MOST_STATEMENT_CHARACTERS + 100
    assert "101 characters more: `workloads --show-queries`" in text
    assert OWN.shorten() == OWN
