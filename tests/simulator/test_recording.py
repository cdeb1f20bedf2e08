"""Files of recorded data become columns, or are refused with a line for each thing that is wrong."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from simulator.errors import OptionError
from simulator.workloads.recording import Recorded, Recording, open_recording
from simulator.workloads.recording.store import new_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))


def _read(file: Path, **settings: Any) -> Recording:
    return open_recording(Recorded.model_validate({"file": str(file), **settings}))


def _write(folder: Path, text: str, name: str = "pumps.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def _texts(recording: Recording, name: str) -> list[bytes]:
    taken: list[bytes] = recording.texts(name).take(recording.values(name)).tolist()
    return taken


PUMPS = """Time;Pump;Site;Flow [l/s];state
2024-01-01 00:00:00;p1;Köln;1,25;"a;b"
2024-01-01 00:00:10;p2;Ulm;;""
2024-01-01 00:00:05;p1;Köln;3,5;"two
lines"
"""


def test_a_csv_file_tells_its_delimiter_decimal_mark_time_device_and_tags(tmp_path: Path) -> None:
    found = _read(_write(tmp_path, PUMPS), zone="Europe/Berlin")
    assert (found.header.time, found.header.device) == ("ts", "pump")
    assert found.times_ms.tolist() == [1704063600000, 1704063610000, 1704063605000]
    assert found.devices[found.device_numbers].tolist() == [b"p1", b"p2", b"p1"]
    columns = {column.name: column for column in found.columns}
    assert [name for name, column in columns.items() if column.tag] == ["site"]
    site = found.texts("site").take(found.values("site"))
    assert site[found.device_numbers].tolist() == ["Köln".encode(), b"Ulm", "Köln".encode()]
    flow, missing = found.values("flow_l_s"), found.missing("flow_l_s")
    assert missing is not None
    assert flow[~missing].tolist() == [1.25, 3.5]
    assert missing.tolist() == [False, True, False]
    assert columns["flow_l_s"].decimals == 2
    assert _texts(found, "state") == [b"a;b", b"", b"two\nlines"]
    assert found.due_ms.tolist() == [1704063600000, 1704063610000, 1704063610000]
    assert (found.header.late, found.header.latest_ms, found.header.disorder) == (1, 5000, 1)


def test_the_same_rows_come_from_every_format(tmp_path: Path) -> None:
    times = pa.array([0, 1000, 1000], pa.timestamp("ms", "UTC"))
    table = pa.table({"t": times, "device": ["a", "b", "b"], "v": [1, None, 3]})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    lines = ['{"t": "1970-01-01T00:00:00Z", "device": "a", "v": 1}\n']
    lines += [
        f'{{"t": "1970-01-01T01:00:01+01:00", "device": "b", "v": {v}}}\n' for v in ("null", 3)
    ]
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    csv = (
        "t,device,v\n1970-01-01T00:00:00Z,a,1\n1970-01-01T00:00:01Z,b,\n1970-01-01T00:00:01Z,b,3\n"
    )
    for file in (
        tmp_path / "x.parquet", tmp_path / "x.jsonl.gz", _write(tmp_path, csv, "x.csv"),
    ):  # fmt: skip
        found = _read(file)
        assert found.times_ms.tolist() == [0, 1000, 1000], file
        assert found.devices[found.device_numbers].tolist() == [b"a", b"b", b"b"]
        missing = found.missing("v")
        assert missing is not None
        assert (found.values("v")[~missing].tolist(), missing.tolist()) == (
            [1, 3],
            [False, True, False],
        )
        assert found.header.duplicates == 1


@pytest.mark.parametrize(
    ("numbers", "unit", "expected"),
    [
        ([1_704_067_200, 1_704_067_201], None, [1_704_067_200_000, 1_704_067_201_000]),
        ([1_704_067_200_123], None, [1_704_067_200_123]),
        ([1_704_067_200_123_000], None, [1_704_067_200_123]),
        ([1_704_067_200_123_000_000], None, [1_704_067_200_123]),
        ([1_704_067_200.25], None, [1_704_067_200_250]),
        ([5, 6], "s", [5000, 6000]),
    ],
)
def test_numbers_since_1970_have_the_unit_that_their_size_says(
    tmp_path: Path, numbers: list[float], unit: str | None, expected: list[int]
) -> None:
    file = _write(tmp_path, "ts,v\n" + "".join(f"{number},1\n" for number in numbers))
    assert _read(file, unit=unit).times_ms.tolist() == expected


@pytest.mark.parametrize(
    ("text", "settings", "problems"),
    [
        ("ts,v\n20240131,1\n", {}, ["column ts: 20240131 isn't a time since 1970"]),
        ("a,v\n1,1\n", {}, ["no column is the time"]),
        ("ts,a,b\n2024-01-01,x,y\n", {}, [r"which column names the device\? .* a, b"]),
        (
            "ts,v\n2024-01-01T00:00:00.0005,1\n,2\n", {},
            ["column ts: 1 row without a time:", "column ts: 1 time with fractions of a millisecond"],
        ),
        ("ts,v\n2024-01-01,1\n2024-01-02,x\n", {"columns": {"w": {"skip": True}}}, ["no column 'w'"]),
        ("ts,v\n2024-01-01,1\n2024-01-02,2\n2024-01-03,x\n", {"device": "none"}, ["v: .* 'x'.*missing: "]),
        ("ts,V,v\n2024-01-01,1,2\n", {}, ["columns V and v would both be called v: .*rename"]),
        ("ts,v\n2024-01-01,1\n", {"span": "2023-01-01/2023-02-01"}, ["no events"]),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_with_the_remedy(
    tmp_path: Path, text: str, settings: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(OptionError) as refused:
        _read(_write(tmp_path, text), **settings)
    assert len(refused.value.problems) == len(problems)
    for problem, expected in zip(refused.value.problems, problems, strict=True):
        assert "\n" not in problem
        assert re.search(expected, problem), problem


def test_a_text_among_numbers_is_refused_until_the_settings_say_what_it_means(
    tmp_path: Path,
) -> None:
    lines = "".join(f"{1_704_067_200 + number},{number}\n" for number in range(600_000))
    file = _write(tmp_path, f"ts,v\n{lines}1704467200,n/a\n1704467201,0.5\n")
    with pytest.raises(
        OptionError, match=r"column v: 'n/a'.* is no number like the values before it"
    ):
        _read(file)
    found = _read(file, columns={"v": {"missing": "n/a"}})
    missing = found.missing("v")
    assert missing is not None
    assert np.flatnonzero(missing).tolist() == [600_000]
    assert found.values("v")[[1, 600_001]].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("times", "settings"),
    [
        (["2024-02-01T10:00:00Z", "2024-02-01T11:00:01+01:00"], {}),
        (["2024-02-01 10:00:00 UTC", "2024-02-01 10:00:01 UTC"], {}),
        (["2024-02-01 11:00:00 +0100", "2024-02-01 10:00:01 GMT"], {}),
        (["2024-02-01 11:00:00", "2024-02-01 11:00:01"], {"zone": "Europe/Berlin"}),
        (["02/01/2024 10:00:00 AM", "02/01/2024 10:00:01 AM"], {"time_format": "%m/%d/%Y %I:%M:%S %p"}),
    ],
)  # fmt: skip
def test_a_column_of_times_is_found_however_they_are_written(
    tmp_path: Path, times: list[str], settings: dict[str, Any]
) -> None:
    file = _write(tmp_path, "\n".join(["DateTime,v", *(f"{time},1" for time in times)]))
    assert _read(file, **settings).times_ms.tolist() == [1_706_781_600_000, 1_706_781_601_000]


def test_devices_are_called_as_in_the_file(tmp_path: Path) -> None:
    file = _write(tmp_path, "ts,device_id,v\n2024-02-01,007,1\n2024-02-02,7,2\n")
    assert sorted(_read(file).devices.tolist()) == [b"007", b"7"]
    table = pa.table({"ts": [1_706_781_600, 1_706_781_601], "device_id": [7.0, 8.0], "v": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "floats.parquet")
    assert sorted(_read(tmp_path / "floats.parquet").devices.tolist()) == [b"7", b"8"]


def test_times_are_cut_to_the_millisecond_where_that_is_asked_for(tmp_path: Path) -> None:
    """Of events of one device and time, only some are made so by the cut."""
    times = ["00.0010", "00.0012", "00.0019", "00.0030", "00.0030", "00.0041", "00.005"]
    lines = [f"2024-01-01T00:00:{time},{place // 6},1" for place, time in enumerate(times)]
    file = _write(tmp_path, "\n".join(["ts,device,v", *lines]))
    with pytest.raises(OptionError) as refused:
        _read(file)
    assert str(refused.value) == (
        "column ts: 3 times with fractions of a millisecond, which are not kept; without them 2 events would"
        " repeat a device and time: recorded.columns: {ts: {as: timestamp_ms}} cuts them"
    )
    cut = {"ts": {"as": "timestamp_ms"}}
    header = _read(file, columns=cut).header
    assert (header.cut, header.coinciding, header.duplicates) == (3, 2, 3)
    assert len(_read(file, columns=cut, duplicates="drop")) == 4
    assert not list(tmp_path.rglob("below"))


def test_settings_choose_rows_and_their_order(tmp_path: Path) -> None:
    file = _write(tmp_path, "ts,device,v\n" + "".join(
        f"{1_704_067_200 + second},{device},{value}\n"
        for second, device, value in ((5, "a", 1), (1, "b", 2), (5, "a", 3), (9, "c", 4))
    ))  # fmt: skip
    found = _read(file, order="time", duplicates="drop", span="8s")
    assert found.values("v").tolist() == [2, 1]
    assert sorted(found.devices.tolist()) == [b"a", b"b"]
    assert found.devices[found.device_numbers].tolist() == [b"b", b"a"]


def test_a_converted_recording_is_used_again_until_the_file_changes(tmp_path: Path) -> None:
    file = _write(tmp_path, "ts,v\n1704067200,1\n")
    first = _read(file)
    assert _read(file).folder == first.folder
    file.write_text("ts,v\n1704067200,22\n")
    assert _read(file).values("v").tolist() == [22]


def test_a_conversion_tells_how_far_it_is(tmp_path: Path) -> None:
    """By the bytes of compressed files that were read, ahead of what is converted, and by rows of Parquet."""
    rows = "".join(f"{1704067200 + number},{number}\n" for number in range(1000))
    texts, table = tmp_path / "texts.csv.gz", tmp_path / "table.parquet"
    texts.write_bytes(gzip.compress(f"ts,v\n{rows}".encode(), 1))
    numbers = pa.array(range(150_000), pa.int64())
    pa.parquet.write_table(pa.table({"ts": numbers.cast(pa.timestamp("s")), "v": numbers}), table)
    for file in (texts, table):
        told: list[str] = []
        open_recording(Recorded(file=str(file)), tell=told.append)
        found = [re.search(r": (\d+)%, ([\d,]+) rows$", text) for text in told]
        shares = [int(one[1]) for one in found if one]
        assert shares == ([44, 87, 100] if file is table else [100])
        assert told[-1].endswith("rows, their order")


def test_a_conversion_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    file = _write(tmp_path, "ts,v\n1704067200,1\n")

    def interrupt(text: str) -> None:
        if "%" in text:
            assert list((tmp_path / "cache").iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_recording(Recorded(file=str(file)), tell=interrupt)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """But not what another process still writes, or has begun just now."""
    cache = tmp_path / "cache"
    for name in ("new-left", "new-begun"):
        (cache / name).mkdir(parents=True)
        (cache / name / "time").write_bytes(b"1")
    os.utime(cache / "new-left", (0, 0))
    with new_folder(cache) as other:
        os.utime(other, (0, 0))
        recording = _read(_write(tmp_path, "ts,v\n1704067200,1\n"))
        assert {path.name for path in cache.iterdir() if path.is_dir()} == {
            "new-begun",
            other.name,
            recording.name,
        }
