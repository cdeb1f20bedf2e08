"""A recording with everything that real ones have is stored exactly, or refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ...contract import StoredPart
from ...errors import OptionError
from ...modules.base import Encoding, connect
from ...oracle.answers import answer, compare_answers
from ...workloads import load_workload
from ...workloads.base import Workload
from ...workloads.drawing import Stored, bind
from ...workloads.queries import Query
from ..server import ServerUnderTest, batch_of, new_job
from .test_inserts import insert_alone, stored_as_generated
from .test_queries import fill, prepare_queries

DEVICES = ("Ωmega 7", 'say "x"', "it's", "a,b=c", "pump-1", "Ä", "温度")
COLUMNS = ("moment", "device", "site", "exact", "tiny", "whole", "small", "flag", "note", "odd")
NOTES = (
    "", "plain", "line\nbreak", "tab\there", 'quote "q"', "it's", "back\\slash", "\\N", "温度 🌡", "e\u0301",
    "null", "NaN", "a" * 2000, "comma,semi;pipe|", "  spaces  ", "{\"json\": 1}", "%s $1 :x ?",
)  # fmt: skip
EXACT = (0.1, 1 / 3, -273.15, 1e-300, 1.7976931348623157e308, 123456789.123456789, -0.0, None)
TINY = (0.5, 1.25, None, -3.75)
WHOLE = (2**53 + 1, -(2**53) - 1, 0, None, 7)
ODD = (1.0, float("nan"), float("inf"), float("-inf"), 2.5)
BEGIN_MS, ROWS, COUNT = 1_709_164_800_000, 90, 110
"""A leap day; more events than rows, so that the recording starts over."""


def _pick(values: tuple[Any, ...], row: int) -> Any:
    return values[row % len(values)]


def write_nasty(file: Path, devices: tuple[str, ...] = DEVICES) -> None:
    """Texts in many scripts, missing and empty values, disorder, gaps, all digits, the ends of number
    ranges."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = range(ROWS)
    moments = [
        BEGIN_MS + 1000 * row + (3_600_000 if row > 50 else 0) - (60_000 if row % 11 == 5 else 0)
        for row in rows
    ]
    table = pa.table(
        {
            "moment": pa.array(moments, pa.timestamp("ms", "UTC")),
            "device": [_pick(devices, row) for row in rows],
            "site": [f"site {row % len(devices) % 3}" for row in rows],
            "exact": pa.array([_pick(EXACT, row) for row in rows], pa.float64()),
            "tiny": pa.array([_pick(TINY, row) for row in rows], pa.float32()),
            "whole": pa.array([_pick(WHOLE, row) for row in rows], pa.int64()),
            "small": pa.array(rows, pa.int32()),
            "flag": [row % 3 == 0 for row in rows],
            "note": [_pick(NOTES, row) for row in rows],
            "odd": pa.array([_pick(ODD, row) for row in rows], pa.float64()),
        }
    )
    parquet.write_table(table, file)


def make_workload(file: Path, server: ServerUnderTest) -> Workload:
    """The recording, without the columns that the module refuses."""
    from ...workloads.recording.definition import RecordedDefinition

    skipped: dict[str, Any] = {}
    while True:
        recorded = {"file": str(file), "device": "device", "columns": skipped}
        document: dict[str, Any] = {"name": "nasty", "table": "nasty", "recorded": recorded}
        recorded["store"] = RecordedDefinition.read(document).open().name
        workload = load_workload("nasty", document)(seed=0)
        can = server.module_type.CAPABILITIES
        try:
            can.require_workload(workload.schema, "nasty", server.module_type.name)
        except OptionError as error:
            found = [name for name in COLUMNS if f" {name}," in str(error)]
            if not found or skipped.keys() & found:
                raise
            skipped |= {name: {"skip": True} for name in found if name != "device"}
            if "device" in found:
                write_nasty(file, ("pump-1", "pump-2"))
        else:
            return workload


def make_nasty(server: ServerUnderTest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """The workload, converted into a folder of its own."""
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(folder / "cache"))
    file = folder / "nasty.parquet"
    write_nasty(file)
    return make_workload(file, server)


def test_a_recording_is_stored_exactly(
    server: ServerUnderTest, encoding: Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nasty = make_nasty(server, tmp_path, monkeypatch)
    job = new_job(nasty.schema, batch=batch_of(encoding, 16))
    stored_as_generated(server, job, nasty, encoding, count=COUNT)


def test_an_official_client_stores_a_recording_exactly(
    server: ServerUnderTest,
    official: tuple[str, Encoding],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, encoding = official
    nasty = make_nasty(server, tmp_path, monkeypatch)
    job = new_job(nasty.schema, batch=batch_of(encoding, 16))
    insert_alone(server, job, nasty, COUNT, encoding, {"client": client})


def test_answers_about_a_recording_are_right(
    server: ServerUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nasty = make_nasty(server, tmp_path, monkeypatch)
    can, schema = server.module_type.CAPABILITIES, nasty.schema
    fill(server, nasty, ((0, 0, COUNT),))
    stored = Stored(nasty, [StoredPart(0, 0, COUNT)])
    everything = Query(name="all", events=tuple(column.name for column in schema.columns))
    with prepare_queries(server, nasty, {}) as module, connect(module.asker()):
        for query in (everything, *schema.descriptions):
            if query.is_drawn or not schema.shapes_of(query) <= frozenset(can.shapes):
                continue
            bound = bind(query, schema.epoch_ms)
            right = answer(bound, stored, can.exactness)
            assert compare_answers(right, module.fetch(module.compile(bound))) is None, query.name
