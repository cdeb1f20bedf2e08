"""Definitions in YAML: what is wrong is named with file, line, key and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import OptionError
from simulator.workloads.defined import DefinedOptions, define
from simulator.workloads.definition import Definition
from simulator.workloads.schema import FIRST_TIMESTAMP_MS, ColumnType
from simulator.workloads.yaml_source import parse_definition, parse_document, read_document

from ..helpers import begin_definition

GOOD = (
    begin_definition("boilers", "boiler", "Boilers of a house", devices=10, interval="1.5s")
    + """\
  - name: heat
    type: float32
    decimals: 1
    missing: 2.5%
    signal: {kind: wander, low: 20, high: 80, period: 1h}
"""
)


def read(text: str) -> Definition:
    return parse_definition(text, "boilers.yaml")


def test_a_definition_is_read() -> None:
    definition = read(GOOD)
    assert (definition.interval, definition.jitter, definition.devices.in_all) == (1500, 0, 10)
    assert definition.epoch == FIRST_TIMESTAMP_MS
    heat = definition.columns[2]
    assert (heat.type, heat.missing, heat.decimals) == (ColumnType.FLOAT32, 0.025, 1)
    for epoch in ("2024-01-01", "2024-01-01T01:00:00+01:00", "'2024-01-01T00:00:00Z'"):
        assert read(f"{GOOD}epoch: {epoch}\n").epoch == FIRST_TIMESTAMP_MS


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("type: float32", "type: float16", r"boilers.yaml:12: columns\[heat\].type: .*'float64'"),
        ("kind: wander", "kind: wonder", r":15: columns\[heat\].signal: `kind` must be one of unif"),
        ("period: 1h", "perid: 1h", r":15: .*signal.perid: unknown key; did you mean period\? \(kn"),
        ("decimals: 1", "decimal: 1", r":13: columns\[heat\].decimal: unknown key; did you mean dec"),
        ("interval: 1.5s", "intervall: 1s", r":7: intervall: unknown key; did you mean interval\?"),
        ("about: Boilers of a house\n", "", r":1: key `about` is missing"),
        (", high: 80", "", r":15: columns\[heat\].signal: key `high` is missing"),
        ("low: 20", "low: 90", r":15: .*low \(90\) must be below high \(80\)"),
        ("low: 20", "low: .nan", r":15: .*no finite number"),
        ("devices: 10", "devices: 0", r":6: devices: .*greater than or equal to 1"),
        ("devices: 10", "devices: {}", r":6: devices: set either in_all or per_worker"),
        ("interval: 1.5s", "interval: 10", r":7: interval: write a duration with its unit: 450ms"),
        ("interval: 1.5s", "interval: -1s", r":7: interval: .*greater than or equal to 1"),
        ("interval: 1.5s", "interval: 1s\njitter: 1s", r":8: jitter: jitter \(1000 ms\) must be below the"),
        ("interval: 1.5s", "interval: 1s\nlate: {share: 2%, most: -5s}", r":8: late.most: .*greater"),
        ("interval: 1.5s", "interval: 1s\nlate: {share: 120%, most: 5s}", r":8: late.share: .*less"),
        ("interval: 1.5s", "interval: 1s\ngaps: {every: 5s, lasts: 4.5s}", r":8: gaps.lasts: leaves no"),
        ("interval: 1.5s", "interval: 1s\ngaps: {every: 5s, lasts: 0.4ms}", r":8: gaps.lasts: .*greater"),
        ("interval: 1.5s", "interval: 1s\nepoch: soon", r":8: epoch: write a time as 2024-01-01T00"),
        ("table: boilers", "table: Boilers", r":3: table: 'Boilers' is not a valid name in all databases"),
        ("name: heat", "name: Wärme", r":11: columns\[Wärme\].name: 'Wärme' is not a valid name in all"),
        ("name: heat", "name: id", r":11: .*'id' is reserved by a database"),
        ("name: heat", "name: at", r":11: columns\[at\]: there are two columns 'at'"),
        ("device: boiler", "device: pump", r":5: device: device names a column 'pump' that is not defined"),
        ("time: at", "time: heat", r":12: columns\[heat\].type: column 'heat' must be of type timestamp_ms"),
        ("decimals: 1", "tag: true", r":11: .*a tag is never missing"),
        ("period: 1h", "period: 3s", r":15: .*the minimum is a second"),
        ("type: float32", "type: bool", r":11: .*decimals apply to float32 and float64, not to bool"),
        ("    decimals: 1\n    missing", "    tag: no\n    type: int32\n    missing", "duplicate key"),
        ("high: 80", "high: 1e39", r"don't fit into type float32"),
        ("name: boilers", "name: [", r"boilers.yaml:\d+: not valid YAML: "),
        ("missing: 2.5%", "missing_lasts: 5m", r":11: .*missing_lasts needs missing"),
        ("columns:", "columns: &a\n  - *a", r"contains itself"),
        ("signal: {kind: wander, low: 20, high: 80, period: 1h}", "repeat: 2", "needs a signal: one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    with pytest.raises(OptionError, match=problem) as refused:
        read(GOOD.replace(old, new, 1))
    assert str(refused.value).startswith("boilers.yaml:")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("type: text, signal: {kind: choice, values: [on, off]}", "True is not a value of type text: put"),
        ("type: text, signal: {kind: uniform, low: 1, high: 2}", "signal uniform makes numbers"),
        ("type: bool, signal: {kind: constant, value: 1}", "1 is not a value of type bool"),
        ("type: int32, signal: {kind: choice, values: [1, 2.5]}", "2.5 is not a value of type int32"),
        ("type: int32, signal: {kind: constant, value: 3000000000}", "not a value of type int32"),
        ("type: float64, signal: {kind: constant, value: .nan}", ".nan is no finite number"),
        ("type: json, signal: {kind: constant, value: {a: !!set {b}}}", "tag:yaml.org,2002:set"),
        ('type: json, signal: {kind: constant, value: {a: [{"b\\0": 1}]}}', "not a value of type json"),
        ("type: text, signal: {kind: choice, values: [a, b], weights: [1]}", "same number of weights"),
        ("type: text, signal: {kind: choice, values: [a], weights: [0]}", "not all of them 0"),
        ("type: text, tag: true, signal: {kind: hold, lasts: 1h, values: [a]}", "follows or constant"),
        ("type: int32, signal: {kind: uniform, low: 0.5, high: 0.9}", "no whole number from 0.5 to 0.9"),
        ("type: float32, decimals: 2, signal: {kind: uniform, low: 0.001, high: 0.009}", "no number with"),
        ("type: float64, signal: {kind: cycle, low: 0, high: 1.0e-9, noise: 1}", "hides a sine.*uniform"),
        ("type: float64, repeat: 1998, signal: {kind: constant, value: 1}", "2001 columns are too many"),
        ("type: float64, decimals: 99, signal: {kind: constant, value: 1}", "less than or equal to 15"),
    ],
)  # fmt: skip
def test_columns_that_make_no_sense(column: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read(f"{GOOD}  - {{name: other, {column}}}\n")


QUERIES = """\
queries:
  - name: hottest
    window: {span: 1h}
    compute:
      - {function: max, column: heat}
    per: [boiler, {every: 10m}]
  - {name: warm, events: [heat, at], where: {column: heat, above: 50}, devices: 2}
"""


CITIES = """\
  - {name: city, type: text, tag: true, signal: {kind: choice, values: [Bern, Genf, Rom]}}
  - {name: land, type: text, tag: true, signal: {kind: follows, column: city, values: [CH, CH, IT]}}
"""


def test_a_column_follows_another() -> None:
    kind = define(read(GOOD + CITIES.replace("tag: true, ", "")))
    for make in (kind, define(read(GOOD + CITIES))):
        columns = make(7).block(0, 0, 500).columns
        pairs = set(zip(columns["city"].tolist(), columns["land"].tolist(), strict=True))
        assert pairs == {(b"Bern", b"CH"), (b"Genf", b"CH"), (b"Rom", b"IT")}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("column: city", "column: cty", r":17: .*no column 'cty'; did you mean city\?"),
        ("column: city", "column: heat", r":17: .*heat must be a single column whose signal is choice"),
        ("land, type: text, tag: true", "land, type: text", "land and city must both be tags, or neither"),
        ("[CH, CH, IT]", "[CH, IT]", r"2 values can't go with the 3 of city"),
        ("[CH, CH, IT]", "[CH, CH, 3]", r"3 is not a value of type text"),
        ("{kind: choice, values: [Bern, Genf, Rom]}",
         "{kind: percentiles, values: {p0: 1, p50: 3}}", "with p0 and p100"),
        ("{kind: choice, values: [Bern, Genf, Rom]}",
         "{kind: percentiles, values: {p0: 1, p50: 3, p100: 2}}", "must rise from p0 to p100"),
    ],
)  # fmt: skip
def test_what_can_not_follow_is_named(old: str, new: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read(GOOD + CITIES.replace(old, new))


def test_queries_are_read() -> None:
    hottest, warm = read(GOOD + QUERIES).queries
    assert hottest.window is not None and hottest.window.span == 3_600_000
    assert (warm.devices, warm.events) == (2, ("heat", "at"))
    kind = define(read(GOOD + QUERIES))
    # The workload's own come first; one with the name of a common one takes its place.
    assert kind.schema.queries[:3] == ("hottest", "warm", "point")
    schema = define(read(GOOD + QUERIES.replace("warm", "point"))).schema
    assert (
        schema.queries.count("point") == 1 and schema.description("point") == schema.descriptions[1]
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("max, column: heat", "max, column: het", r":20: .*compute\[0\].column: max: .* 'het'; did"),
        ("max, column: heat", "sum, column: het", r".*mean heat\? \(known: at, boiler, heat\)"),
        ("[heat, at]", "[heat, hat]", r":22: queries\[warm\].events\[1\]: there is no column 'hat'"),
        ("max, column: heat", "avg, column: at", r":20: .*avg: at is of type timestamp_ms"),
        ("function: max", "function: best", r":20: .*function: input should be 'count'"),
        ("column: heat, above", "column: boiler, above", r":22: .*where.column: boiler is of type te"),
        ("[boiler,", "[heat,", r":21: .*per\[0\]: heat is neither the device \(boiler\), nor a"),
        ("above: 50", "is: hot", r":22: .*where.column: heat is of type float32, not a text: use above"),
        ("above: 50", "is: no", r":22: .*where.is: false is not a text: put it in quotes"),
        ("above: 50", "is_nt: no", r":22: .*where.is_nt: unknown key; did you mean is_not\?"),
        ("every: 10m", "evry: 10m", r":21: .*per\[1\].evry: unknown key; did you mean every\?"),
        ("span: 1h", "span: 3600", r":18: .*window.span: write a duration with its unit"),
        ("span: 1h", "spam: 1h", r":18: .*window.spam: unknown key; did you mean span\?"),
        ("every: 10m", "every: 0s", r":21: .*every: .*greater than or equal to 1"),
        ("above: 50", "above: .nan", r":22: .*no finite number"),
        ("above: 50", "under: 50", r":22: .*where.under: unknown key"),
        ("devices: 2", "devices: 0", r":22: .*devices: .*greater than or equal to 1"),
        ("devices: 2", "devices: few", r":22: .*devices: write all, the number to draw"),
        ("devices: 2", "limit: 2", r":22: queries\[warm\]: a limit needs an order"),
        ("name: warm", "name: hottest", r":22: queries\[hottest\]: there are two queries 'hottest'"),
        ("name: warm", "name: So warm", r":22: .*name: 'So warm' is not a valid query name"),
        ("name: warm, ", "", r":22: queries\[1\]: key `name` is missing"),
    ],
)  # fmt: skip
def test_queries_that_make_no_sense(old: str, new: str, problem: str) -> None:
    assert old in QUERIES
    with pytest.raises(OptionError, match=f"boilers.yaml{problem}"):
        read(GOOD + QUERIES.replace(old, new, 1))


def test_one_of_many_columns_is_not_found_among_the_first() -> None:
    column = "{name: x, type: float64, repeat: 300, signal: {kind: uniform, low: 0, high: 1}}"
    query = "queries: [{name: one, events: [x_3000]}]"
    with pytest.raises(OptionError, match=r"did you mean x_000\? \(known: at, .* and 283 more\)"):
        read(f"{GOOD}  - {column}\n{query}\n")


@pytest.mark.parametrize("epoch", ["now", "2026-01-31T12:00:00.5+01:00", "1970-01-01"])
def test_epochs(epoch: str) -> None:
    definition = read(f"{GOOD}epoch: {epoch}\n")
    options = DefinedOptions(epoch=epoch)
    if epoch == "now":
        assert definition.epoch == options.epoch == "now"
        return
    chosen = define(read(GOOD))(epoch=options.epoch)
    assert define(definition)().schema.epoch_ms == chosen.schema.epoch_ms
    assert DefinedOptions(epoch=options.epoch) == options and options.epoch.endswith("Z")


@pytest.mark.parametrize("epoch", ["1969-12-31", "2100-01-02", "yesterday", "12", "2024-13-01"])
def test_epochs_that_are_none(epoch: str) -> None:
    with pytest.raises(OptionError, match=r":16: epoch: "):
        read(f"{GOOD}epoch: {epoch}\n")


def test_a_definition_is_the_same_after_its_way_as_json() -> None:
    column = "{name: order, type: json, signal: {kind: constant, value: {größe: [1, 2.5, null]}}}"
    text = f"{GOOD}  - {column}\n{QUERIES}epoch: 2024-02-03\n"
    document = parse_document(text, "boilers.yaml")
    assert Definition.read(json.loads(json.dumps(document))) == read(text)


def test_what_cannot_be_sent_is_refused() -> None:
    about = "x" * 100_000
    with pytest.raises(OptionError, match="is too large, 100,000 are the most: use `repeat`"):
        read(GOOD.replace("Boilers of a house", about))
    half = '{name: half, type: text, signal: {kind: constant, value: "\\ud800"}}'
    with pytest.raises(OptionError, match="invalid Unicode"):
        read(f"{GOOD}  - {half}\n")


@pytest.mark.parametrize("text", ["", "a: &a\n  <<: *a\n", "[" * 5000, "devices: &d {in_all: *d}"])
def test_what_is_no_tree_of_keys_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^x.yaml:\d+: "):
        parse_definition(text, "x.yaml")


def test_a_reserved_word_is_a_name_like_others() -> None:
    column = "{name: order, type: json, signal: {kind: constant, value: {größe: 1}}}"
    assert [each.name for each in read(f"{GOOD}  - {column}\n").columns][-1] == "order"


def test_repeated_columns_are_numbered() -> None:
    column = "{name: x, type: float64, repeat: 3, signal: {kind: constant, value: 1}}"
    names = [name for name, _ in read(f"{GOOD}  - {column}\n").each_column()]
    assert names == ["at", "boiler", "heat", "x_000", "x_001", "x_002"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none.yaml can't be read: No such file or directory$"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "one.yaml").write_text("[1, 2]")
    with pytest.raises(OptionError, match=r"one.yaml:1: a definition must be keys with values"):
        read_document(tmp_path / "one.yaml")
