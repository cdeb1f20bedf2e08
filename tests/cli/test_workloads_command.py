"""`workloads`: a list, and one in full."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.main import commands
from cli.show.workloads import EVENTS, count_bytes
from simulator.workloads import load_workload, workload_names
from simulator.workloads.schema import ColumnType


def show(*arguments: str) -> str:
    return CliRunner().invoke(commands, ["workloads", *arguments], catch_exceptions=False).stdout


def test_all_are_listed() -> None:
    lines = show().splitlines()
    assert [line.split()[0] for line in lines[1:]] == workload_names()
    assert lines[3].split()[:3] == ["machines", "12", "6"]


def test_one_is_shown_with_columns_types_bytes_and_events() -> None:
    columns, queries = show("machines", "--seed", "4").split("\n\n")
    types, octets = show("machines", "--seed", "4", "--types").split("\n\n")
    rows = {line.split()[0]: line.split()[1:] for line in columns.splitlines()[2:]}
    kind = load_workload("machines")
    assert list(rows) == [column.name for column in kind.schema.columns]
    assert rows["hall"][:2] == ["text", "tag"]
    powers = kind(4).block(0, 0, EVENTS).columns["power"].tolist()
    assert rows["power"] == ["float32", *(f"{value:.2f}" for value in powers)]
    postgres = next(line for line in types.splitlines() if line.startswith("postgres"))
    assert "double precision" in postgres and "jsonb" not in postgres
    # Two bytes for the number of columns, four for each one's length, and nothing for missing values.
    copy = next(line for line in octets.splitlines() if line.startswith("postgres  "))
    assert copy.split()[1:3] == ["copy", "binary"] and 110 < int(copy.split()[3]) < 125
    # An id of eight bytes instead of three texts, each with its length.
    assert int(copy.split()[4]) < int(copy.split()[3]) - 20
    assert "with tags=table, machine, hall and model are stored once" in octets
    described = {line.split(maxsplit=1)[0]: line for line in queries.splitlines()[2:]}
    assert list(described) == list(kind.schema.queries)
    assert described["last-values"].endswith("the newest event of each device")
    apart = show("machines", "--seed", "4", "--workload-option", "tags=table").split("\n\n")
    hall = next(line for line in apart[0].splitlines() if line.startswith("hall"))
    assert "tag, in machines_tags" in hall
    tagged = show("machines", "--seed", "4", "--types", "--workload-option", "tags=table")
    assert tagged.split("\n\n")[1] == octets


def test_a_missing_value_is_a_dash() -> None:
    kind = load_workload("machines")
    seed = next(seed for seed in range(200) if kind(seed).block(0, 0, 3).missing["pressure"][1])
    line = next(
        line for line in show("machines", "--seed", str(seed)).splitlines() if "pressure" in line
    )
    assert line.split()[-1] == "-"


def test_many_columns_are_cut() -> None:
    assert "and 172 columns more" in show("wide")


def test_one_that_is_not_there_is_an_error() -> None:
    failed = CliRunner().invoke(commands, ["workloads", "machine"])
    assert failed.exit_code != 0


@pytest.mark.parametrize("name", workload_names())
def test_every_module_names_its_types(name: str) -> None:
    types = show(name, "--types").split("\n\n")[0]
    assert "missing" not in types and "  yes" not in types
    used = {column.type for column in load_workload(name).schema.columns}
    assert types.splitlines()[1].split()[1:] == [kind for kind in ColumnType if kind in used]


def test_all_parts_of_a_request_count() -> None:
    """IoTDB's are views of memory, which were taken for as many numbers."""
    assert count_bytes((b"ab", [bytearray(3), memoryview(b"abcd")], "no text")) == 9
