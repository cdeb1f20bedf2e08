"""YAML as people write it: each value gets what was meant, or one line with the remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, ValidationError

from simulator.conditions import Written
from simulator.documents import parse_yaml
from simulator.modules.options import Options, parse_options
from simulator.units import parse_duration_s, read_duration_s
from simulator.workloads.yaml_source import parse_document

from ..helpers import begin_definition


class Mode(StrEnum):
    OFF = "off"
    FAST = "fast"


class Part(Written):
    low: float = 0


class Model(Written):
    count: int | None = None
    share: float | None = None
    name: str | None = None
    mode: Mode | None = None
    check: bool | None = None
    kind: Literal["a", "b"] | None = None
    numbers: tuple[int, ...] = ()
    names: list[str] | None = None
    either: int | str | None = None
    anything: Any = None
    part: Part | None = None
    own: Annotated[int, BeforeValidator(lambda value: 5 if value is True else value)] = 0


QUOTES = "in YAML this is a number: put it in quotes"
SWITCH = "in YAML this is true or false: put it in quotes"
NUMBER = "true is not a number: write one"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count: 1e3", 1000), ("count: 1_000", 1000), ("count: '1,000'", 1000), ("count: 0x10", 16),
        ("count: 08", 8), ("share: 1e-3", 0.001), ("share: 1.5e3", 1500.0), ("share: .5", 0.5),
        ("count: ~", None), ("check: on", True), ("check: off", False), ("check: no", False),
        ("check: 'yes'", True),
        ("name: 12:30:00", "12:30:00"), ("name: 1:30", "1:30"), ("name: 2024-01-01", "2024-01-01"),
        ("name: 1e3", "1e3"), ("name: '12345678'", "12345678"),
        ("name: 08", "08"), ("name: null", None),
        ("mode: 'off'", Mode.OFF), ("either: 5", 5), ("either: 1e3", "1e3"), ("anything: on", True),
        ("numbers: [1e3, 2]", (1000, 2)), ("own: true", 5),
        ("count: true", NUMBER), ("share: on", NUMBER), ("numbers: [1, true]", NUMBER),
        ("either: no", "false is not a number: write one"),
        ("part: {low: true}", NUMBER), ("name: 12345678", QUOTES), ("name: 1.0", QUOTES),
        ("name: off", SWITCH),
        ("mode: off", SWITCH), ("kind: yes", SWITCH), ("names: [a, no]", SWITCH),
        ("names: [a, 5]", QUOTES),
        ("count: 1M", "unable to parse string"), ("count: 1:30", "unable to parse string"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_meant_or_refused(text: str, value: object) -> None:
    _, document = parse_yaml(text)
    (name,) = document
    try:
        read = getattr(Model.model_validate(document), name)
    except ValidationError as error:
        (problem,) = error.errors()
        assert problem["loc"][0] == name
        assert isinstance(value, str)
        assert value in problem["msg"]
    else:
        assert (read, type(read)) == (value, type(value))


class Login(Options):
    password: str = ""


@pytest.mark.parametrize("value", [12345678, True, 1.5])
def test_no_message_shows_a_password(value: object) -> None:
    with pytest.raises(
        Exception, match=r"^here: option password: in YAML this is .*: put it in quotes$"
    ) as refused:
        parse_options(Login, {"password": value}, lambda _: "here")
    assert str(value) not in str(refused.value)


@pytest.mark.parametrize("value", ["inf", "nan", "1e400"])
def test_options_are_finite(value: str) -> None:
    with pytest.raises(Exception, match="option database_timeout_s"):
        parse_options(Options, {"database_timeout_s": value}, lambda _: "here")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"interval": "1M"}, "interval: write a duration with its unit"),
        ({"interval": "5"}, "interval: write a duration with its unit"),
        ({"interval": "1:30"}, "interval: write a duration with its unit"),
        ({"devices": "true"}, "devices: true is not a number: write one"),
        ({"devices": "010"}, "010 is octal to some: write 10, or put it in quotes"),
    ],
)
def test_a_definition_takes_nothing_else_for_a_number(
    changes: dict[str, Any], problem: str
) -> None:
    text = begin_definition("plants", "plant", "Plants", **changes)
    with pytest.raises(Exception, match=problem):
        parse_document(text, "plants.yaml")


def test_a_month_is_one_only_where_a_number_means_months() -> None:
    assert parse_duration_s("1M", "M") == 31 * 86_400
    assert parse_duration_s("1M", "s") is None
    with pytest.raises(ValueError, match="write a time as in 30s"):
        read_duration_s("1M")


@pytest.mark.parametrize("text", ["\ufeffa: 1\n", "a: 1\r\nb: 2\r\n", "x: &x {a: 1}\n<<: *x\n"])
def test_what_editors_write(text: str) -> None:
    assert parse_yaml(text)[1]["a"] == 1
