"""A campaign's file, typed; errors say in which file and line, at which key, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from simulator.errors import OptionError, did_you_mean, one_line
from simulator.workloads.yaml_source import check_tree, find_place, load_yaml

from ..commands.options import Duration
from ..errors import ConfigError
from ..installation import program

EXAMPLE = Path(__file__).with_name("example.yaml")

COMMANDS = ("insert", "query", "mixed", "capacity", "tune")
"""What a step may be: a command that keeps a result."""

TARGET = "target"
"""The key of a labelled target that says which one of the config file it is."""

_NAME = re.compile(r"\w[\w.+=-]{0,23}")


def _fill_empty(value: object) -> object:
    """Nothing below a key means no options."""
    return {} if value is None else value


Options = Annotated[dict[str, Any], BeforeValidator(_fill_empty)]
"""Options of the command line, by their long names without dashes."""


class Order(StrEnum):
    """In which order targets and variants have their turns."""

    INTERLEAVED = "interleaved"
    BLOCKS = "blocks"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Part):
    """One command, which each target and variant has in its turn."""

    insert: Options | None = None
    query: Options | None = None
    mixed: Options | None = None
    capacity: Options | None = None
    tune: Options | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _is_one_command(self) -> Step:
        if len(self.model_fields_set & set(COMMANDS)) != 1:
            raise ValueError(f"a step is one of {', '.join(COMMANDS)}, with its options below it")
        return self

    @property
    def command(self) -> str:
        """Its name."""
        return next(name for name in COMMANDS if name in self.model_fields_set)

    @property
    def options(self) -> dict[str, Any]:
        """Its own."""
        found: dict[str, Any] = getattr(self, self.command)
        return found

    @property
    def name(self) -> str:
        """How results call it."""
        return self.label or self.command


def _read_targets(value: object) -> object:
    """A list of names is short for labels without options."""
    if not isinstance(value, list):
        return value
    names = [str(name) for name in value]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{name} is there twice: use labels to have a target with other options"
            )
    return {name: {} for name in names}


class Definition(_Part):
    """What a campaign is to do."""

    title: str = Field("Campaign", min_length=1)
    targets: Annotated[dict[str, Options], BeforeValidator(_read_targets)] = Field(min_length=1)
    variants: dict[str, Options] = {}
    options: Options = {}
    steps: list[Step] = Field(min_length=1)
    order: Order = Order.INTERLEAVED
    repeats: int = Field(1, ge=1, le=1000)
    seed: int = Field(0, ge=0)
    settle: float = Field(0.0, ge=0)
    """Seconds between two jobs."""

    @field_validator("settle", mode="before")
    @classmethod
    def _read_settle(cls, value: object) -> object:
        try:
            return Duration().convert(value, None, None)
        except click.UsageError as error:
            raise ValueError(error.message) from error

    @field_validator("targets", "variants")
    @classmethod
    def _check_names(cls, named: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in named:
            _check_name(name)
        return named

    @field_validator("steps")
    @classmethod
    def _tell_steps_apart(cls, steps: Sequence[Step]) -> Sequence[Step]:
        names = [step.name for step in steps]
        for name in names:
            _check_name(name)
            if names.count(name) > 1:
                raise ValueError(
                    f"{names.count(name)} steps are called {name}: give each a `label`"
                )
        return steps


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no label: write up to 24 letters, digits, or any of . + = - _, and no spaces"
        )


def load_definition(path: Path) -> Definition:
    """Read a campaign's file; ConfigError with file, line and key if it can't be used."""
    try:
        root, document = load_yaml(path.read_text(encoding="utf-8"))
        check_tree(root, str(path))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}; to begin with one: {program()} campaign --example > {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {path}: {one_line(error)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        said = one_line(getattr(error, "problem", None) or error)
        raise ConfigError(
            f"{path}:{mark.line + 1 if mark else 1}: no valid YAML: {said}"
        ) from error
    except OptionError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}:1: a campaign is keys with values, at least `targets:` and `steps:`"
        )
    try:
        return Definition.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_locate(error, root, path)) from error


def _locate(error: ValidationError, root: yaml.Node, path: Path) -> str:
    """The first of the problems, with file, line and key. A key that there isn't comes before one that
    is missing: it may be that one, misspelt."""
    found = error.errors(include_url=False, include_input=False)
    first = min(found, key=lambda each: each["type"] != "extra_forbidden")
    way = first["loc"]
    line, names = find_place(root, way)
    where = f"{path}:{line}: " + (f"{'.'.join(names)}: " if names else "")
    if first["type"] == "extra_forbidden":
        known = list(Step.model_fields if way[0] == "steps" else Definition.model_fields)
        return f"{where}unknown key{did_you_mean(str(way[-1]), known)} (known: {', '.join(known)})"
    if first["type"] == "missing":
        return f"{where}key `{way[-1]}` is missing"
    message = first["msg"].removeprefix("Value error, ")
    return where + message[:1].lower() + message[1:]
