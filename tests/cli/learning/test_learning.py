"""What a recording shows besides the signals of shipped workloads; what is written of it, and hidden."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cli.plan.learning.clock import read_clock
from cli.plan.learning.comparing import compare, sample_block
from cli.plan.learning.describing import Learnt, learn
from cli.plan.learning.samples import Choices, Sample, Series
from cli.plan.learning.writing import write_definition
from cli.show.learning import make_learning_page, tabulate_comparison
from simulator.errors import OptionError
from simulator.workloads.defined import define
from simulator.workloads.definition import Definition, Gaps
from simulator.workloads.schema import ColumnType
from simulator.workloads.yaml_source import parse_definition

from ...helpers import begin_definition

PEOPLE = [b'{"wer":"Meier"}', b'{"wer":8837.5}']
FIRST_MS = 1_700_000_000_000


def record(columns: dict[str, NDArray[Any]], count_devices: int = 20, **more: Any) -> Sample:
    """Values in turn of each device, one every ten seconds."""
    count = len(next(iter(columns.values())))
    numbers = np.arange(count, dtype=np.int64)
    series = tuple(
        Series(name, name, ColumnType.FLOAT64, values.astype(np.float64), ~np.isfinite(values))
        for name, values in columns.items()
    )
    own: dict[str, Any] = {
        "times_ms": (FIRST_MS + numbers // count_devices * 10_000),
        "devices": numbers % count_devices,
    }
    return Sample(
        columns=series, time="at", device="pump", name_lengths=(13, 13),
        recorded_devices=count_devices, recorded_rows=count, **{**own, **more},
    )  # fmt: skip


def make(signal: str, column: str = "type: float64, decimals: 2", late: str = "") -> Definition:
    """A definition of a single column x."""
    head = begin_definition("pumps", "pump", "Pumps", devices=50, interval="10s")
    return parse_definition(f"{head}  - {{name: x, {column}, signal: {signal}}}\n{late}", "test")


def relearn(definition: Definition, rows: int = 200_000) -> Learnt:
    return learn(sample_block(define(definition)(7).block(0, 0, rows)), name="pumps")


def signal_of(learnt: Learnt, name: str = "x") -> Any:
    return next(column.signal for column in learnt.definition.columns if column.name == name)


def test_a_counter_that_begins_anew() -> None:
    found = signal_of(relearn(make("{kind: counter, step: 5, every: 1m, resets: 3h}")))
    assert (found.kind, found.resets) == ("counter", pytest.approx(10_800_000, rel=0.1))
    assert found.step / found.every == pytest.approx(5 / 60_000, rel=0.05)


@pytest.mark.parametrize("falls", [0.0, 2e-6])
def test_what_each_device_nearly_keeps(falls: float) -> None:
    """A battery's voltage: other values than those of two digits don't exist."""
    numbers = np.arange(100_000)
    volts = 3 + 0.3 * np.random.default_rng(1).random(20)
    values = np.round(volts[numbers % 20] - falls * (numbers // 20), 2)
    sample = record({"x": values})
    sample = replace(sample, columns=(replace(sample.columns[0], decimals=2),))
    found = signal_of(learn(sample, name="pumps"))
    assert found.kind == "hold" and found.lasts > 5 * 3_600_000


@pytest.mark.parametrize("period", ["", ", period: 30m"])
def test_values_that_are_spread_unevenly(period: str) -> None:
    values = "{p0: 0, p50: 0, p90: 10, p100: 25}"
    found = signal_of(relearn(make(f"{{kind: percentiles, values: {values}{period}}}")))
    assert found.kind == "percentiles"
    assert found.values["p50"] == pytest.approx(0, abs=1)
    assert found.values["p90"] == pytest.approx(10, rel=0.2)
    if period:
        assert 10 * 60_000 < found.period < 120 * 60_000
    else:
        assert found.period is None


def test_values_that_are_missing_for_a_time() -> None:
    signal = "{kind: normal, mean: 5, deviation: 1}"
    for lasts, expected in (("", None), (", missing_lasts: 5m", pytest.approx(300_000, rel=0.1))):
        found = relearn(make(signal, f"type: float64, missing: 8%{lasts}")).definition.columns[2]
        assert found.missing == pytest.approx(0.08, rel=0.1)
        assert found.missing_lasts == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_random_walk_is_described_by_periods_that_can_be_made(seed: int) -> None:
    """Its noises get ever shorter; a definition's last a second at least, written in three digits."""
    steps = np.random.default_rng(seed).normal(0, 1, (4000, 4)).cumsum(axis=0)
    found = signal_of(learn(record({"x": steps.ravel()}, 4), name="pumps"))
    assert found.kind in ("wander", "percentiles")
    assert found.period / 2 ** (found.octaves - 1) >= 4990


def test_columns_without_any_value_are_kept() -> None:
    values = {"x": np.full(2000, np.nan), "y": np.arange(2000.0) % 7}
    learnt = learn(record(values), name="pumps")
    assert learnt.definition.columns[2].missing == 1
    assert define(learnt.definition)().block(0, 0, 100).missing["x"].all()


def test_texts_that_go_with_others() -> None:
    generator = np.random.default_rng(1)
    code = generator.integers(0, 4, 4000)
    series = [
        Series("x", "x", ColumnType.INT64, code.astype(np.float64), np.zeros(4000, np.bool_)),
        Series("y", "y", ColumnType.TEXT, (code // 2).astype(np.float64), np.zeros(4000, np.bool_),
               Choices([b"good", b"bad"])),
        Series("z", "z", ColumnType.BOOL, generator.integers(0, 2, 4000).astype(np.float64),
               np.zeros(4000, np.bool_), Choices()),
    ]  # fmt: skip
    sample = record({"x": code})
    sample = replace(sample, columns=tuple(series))
    learnt = learn(sample, name="pumps")
    assert signal_of(learnt, "y").model_dump() == {
        "kind": "follows", "column": "x", "values": ("good", "good", "bad", "bad")
    }  # fmt: skip
    assert signal_of(learnt, "z").kind == "choice"


# --- the clock --------------------------------------------------------------------------------------


def test_devices_that_send_when_something_happens() -> None:
    generator = np.random.default_rng(1)
    times = np.cumsum(generator.exponential(60_000, 5000)).astype(np.int64) + FIRST_MS
    sample = record({"x": np.arange(5000.0) % 9}, 1, times_ms=times)
    clock = read_clock(sample)
    assert clock.interval_ms == pytest.approx(60_000, rel=0.1)
    assert 0 < clock.jitter_ms < clock.interval_ms


def test_gaps_of_all_devices_are_made() -> None:
    own = make("{kind: normal, mean: 0, deviation: 1}")
    definition = own.model_copy(update={"gaps": Gaps(every="1h", lasts="10m")})
    learnt = relearn(definition)
    assert learnt.definition.gaps == definition.gaps
    assert "gaps: {every: 1h, lasts: 10m}" in write_definition(learnt)
    assert not [line for line in learnt.head if "Not made" in line]
    both = compare(learnt)
    assert both.made.gap_share == pytest.approx(both.recorded.gap_share, rel=0.05)


def test_gaps_of_single_devices_and_duplicates_are_told() -> None:
    ticks, devices = np.divmod(np.arange(4000, dtype=np.int64), 20)
    kept = (ticks + 10 * devices) % 100 < 80
    times, values = FIRST_MS + ticks * 10_000, np.random.default_rng(1).normal(0, 1, 4000)
    sample = record(
        {"x": np.append(values[kept], values[:8])},
        times_ms=np.append(times[kept], times[:8]),
        devices=np.append(devices[kept], devices[:8]),
    )
    learnt = learn(sample, name="pumps")
    assert (learnt.clock.interval_ms, learnt.clock.duplicates) == (10_000, 8)
    assert learnt.definition.gaps is None
    head = "\n".join(learnt.head)
    assert re.search(r"Gaps are 1[0-9.]+% of the time. Not made: 3\d of single devices", head)
    assert "8 events that repeat a device and time" in head


def test_a_file_with_one_device_behind_the_other_has_no_late_events() -> None:
    times = FIRST_MS + np.tile(np.arange(500, dtype=np.int64) * 1000, 8)
    sample = record(
        {"x": np.arange(4000.0) % 11}, times_ms=times, devices=np.repeat(np.arange(8), 500)
    )
    clock = read_clock(sample)
    assert (clock.by_device, clock.late, clock.interval_ms) == (True, None, 1000)
    swapped = times.copy()
    swapped[100], swapped[110] = swapped[110], swapped[100]
    late = read_clock(replace(sample, times_ms=swapped)).late
    assert late
    assert late.share * 4000 == pytest.approx(10, abs=3)


# --- what is written --------------------------------------------------------------------------------


def test_a_definition_is_read_again_and_each_line_says_what_from() -> None:
    learnt = relearn(make("{kind: wander, low: 0, high: 9, period: 1h}", late="jitter: 300ms\n"))
    text = write_definition(learnt)
    assert parse_definition(text, "learnt.yaml") == learnt.definition
    assert "interval: 10s" in text
    for key in ("devices", "interval", "jitter", "epoch", "type", "decimals", "signal"):
        line = next(line for line in text.splitlines() if re.match(rf"\s*{key}: ", line))
        assert "  # " in line or line.strip() == "type: timestamp_ms", line


def test_a_definition_that_is_too_large_lists_fewer_values() -> None:
    texts = [f"message {number:090d}".encode() for number in range(1000)]
    columns = tuple(
        Series(f"x{place}", f"x{place}", ColumnType.TEXT,
               np.random.default_rng(place).integers(0, 1000, 3000).astype(np.float64),
               np.zeros(3000, np.bool_), Choices(texts))
        for place in range(30)
    )  # fmt: skip
    sample = record({"x": np.arange(3000.0)})
    learnt = learn(replace(sample, columns=columns), name="pumps")
    assert len(signal_of(learnt, "x3").values) == 20


def test_few_events_are_refused() -> None:
    with pytest.raises(OptionError, match="5 events are too few to learn from: 20 at least"):
        learn(record({"x": np.arange(5.0)}, 1), name="pumps")


def test_an_anonymous_definition_has_no_names_texts_or_extremes() -> None:
    generator = np.random.default_rng(1)
    count, texts = 6000, [b"Halle Nord", b"Schmelzofen 7", b"Lager", b"Lager X"]
    numbers = {
        "even": generator.uniform(17.25, 93.75, count).round(2),
        "drift": 300.5 + np.cumsum(generator.normal(0, 1, count)).round(2),
        "few": generator.choice([1117.0, 1223.0, 1339.0], count),
        "gleich": np.full(count, 4711.0),
        "skewed": np.exp(generator.normal(3, 1, count)).round(3),
        "rising": 50_123.0 + np.arange(count) // 20 * 7,
        "dry": np.where(np.arange(count) % 3, 61.5, generator.uniform(61.5, 88.25, count)).round(2),
        "parts": generator.integers(2003, 2012, count).astype(np.float64),
        "steady": (100 + 10 * np.sin(np.arange(count) // 20 / 9)).round(1),
    }
    lost = generator.random(count) < 0.1
    sample = record({name: np.where(lost, np.nan, values) for name, values in numbers.items()})
    # Where a value is missing, the recording has some other.
    parts = tuple(replace(part, values=np.nan_to_num(part.values)) for part in sample.columns)
    numbers = {name: values[~lost] for name, values in numbers.items()}
    sample = replace(sample, columns=parts)
    sites = generator.integers(0, 4, 20)
    own = Series("werk", "Werk", ColumnType.TEXT, sites.astype(np.float64), np.zeros(20, np.bool_),
                 Choices(texts), tag=True)  # fmt: skip
    words = Series("wort", "Wort", ColumnType.TEXT, generator.integers(0, 4, count).astype(np.float64),
                   np.zeros(count, np.bool_), Choices(texts))  # fmt: skip
    notes = Series("notiz", "Notiz", ColumnType.JSON, generator.integers(0, 2, count).astype(np.float64),
                   np.zeros(count, np.bool_), Choices(PEOPLE, documents=True))  # fmt: skip
    whole = replace(sample, columns=(*sample.columns, own, words, notes))
    learnt = learn(whole, name="werk_sued", anonymous=True)
    text = write_definition(learnt)
    assert parse_definition(text, "anonymous.yaml") == learnt.definition
    for hidden in (
        *numbers, "werk", "wort", "notiz", "pump", *(text.decode() for text in texts), "Meier", "wer",
        "8837", "2023-11",
    ):  # fmt: skip
        assert not re.search(rf"(?<!\w){re.escape(hidden)}(?!\w)", text, re.IGNORECASE), hidden
    found = {float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", text)}
    for values in numbers.values():
        assert not found & {float(values.min()), float(values.max())}
    assert not found & {1117.0, 1223.0, 1339.0, 4711.0}
    assert define(learnt.definition)().block(0, 0, 500).columns


# --- what is shown ----------------------------------------------------------------------------------


def test_recorded_and_made_events_stand_beside_each_other() -> None:
    late = "late: {share: 5%, most: 2m}\n"
    learnt = relearn(make("{kind: wander, low: 0, high: 9, period: 1h}", late=late))
    comparison = compare(learnt)
    [pair] = comparison.pairs
    assert pair.made.percentiles == pytest.approx(pair.recorded.percentiles, abs=0.9)
    assert pair.made.zstd_bytes == pytest.approx(pair.recorded.zstd_bytes, rel=0.15)
    assert comparison.made.late and comparison.recorded.late
    assert comparison.made.late.share == pytest.approx(comparison.recorded.late.share, rel=0.2)
    columns, times = tabulate_comparison(comparison)
    assert [row[:3] for row in columns.rows] == [["x", "recorded", ""], ["x", "made", "wander"]]
    assert times.rows[0][1] == "10s"
    page = make_learning_page(learnt, comparison)
    assert page.count("<figure") == 1 and "Recorded against made" in page


def test_the_command_writes_definition_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from cli.main import commands

    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))
    rows = [f"2024-01-01T00:{n // 60:02d}:{n % 60:02d}Z,p{n % 2},{n % 10}" for n in range(600)]
    (tmp_path / "Pumps.csv").write_text("\n".join(["when,pump,flow", *rows]))
    output, page = tmp_path / "fleet.yaml", tmp_path / "fleet.html"
    words = ["workloads", "learn", str(tmp_path / "Pumps.csv")]
    done = CliRunner().invoke(commands, [*words, "--output", str(output), "--plot", str(page)])
    assert done.exit_code == 0, done.output
    definition = parse_definition(output.read_text(), "fleet.yaml")
    assert (definition.name, definition.interval, definition.devices.in_all) == ("pumps", 2000, 2)
    assert "<svg" in page.read_text()
    shown = CliRunner().invoke(commands, words)
    assert shown.stdout == output.read_text()
    assert "zstd" in shown.stderr
    failed = CliRunner().invoke(commands, [*words, "--output", "fleet.txt"])
    assert "name a file that ends in .yaml" in failed.output
    failed = CliRunner().invoke(commands, ["workloads", "learn", "machines"])
    assert failed.exit_code == 2 and "machines isn't a recording" in failed.output
