"""How the fields of a request appear on a command line and as keys of a campaign's file; options, keys and
their JSON schema are generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from inspect import get_annotations
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from simulator.contract import DataSet, Role, fields_of

from ..system.errors import ConfigError
from .values import Amount, Choice, Duration, Flag, Kind, Rate


class Group(StrEnum):
    """The headings of options in `--help` and the reference, in order."""

    TARGET = "Target and workload"
    LOAD = "Load"
    QUERIES = "Queries"
    DATA = "Stored data"
    COMPARISON = "Comparison"
    LIMITS = "Limits"
    DISTURBANCES = "Disturbances"
    PLACE = "Where it runs"
    RESULT = "Result"
    OUTPUT = "While it runs"


@dataclass(frozen=True)
class Option:
    """The option form of a field."""

    group: Group
    kind: Kind
    flags: tuple[str, ...]
    """`-w` and `--workers`, or `--clean/--no-clean`."""
    multiple: bool = False
    metavar: str | None = None
    shown: bool | str = False
    """Whether `--help` shows the default, or how."""
    written: str | None = None
    """The default as a user would write it, if not as Python does."""
    alone: Any = None
    """The option's value if it is given without one, if allowed."""

    @property
    def key(self) -> str:
        """The long name without its dashes."""
        return self.flags[-1].partition("/")[0].removeprefix("--")

    def list_texts(self, value: Any) -> list[str]:
        """A value from a file as texts: one per occurrence of the option, a single one if it can't be
        repeated. ValueError if it isn't made of texts and numbers."""
        parts = value if isinstance(value, list | tuple) else [value]
        if isinstance(value, Mapping):
            parts = [f"{key}={_write_scalar(part)}" for key, part in value.items()]
        texts = list(map(_write_scalar, parts))
        return texts if self.multiple else [",".join(texts)]

    def write(self, value: Any) -> list[str]:
        """A value from a file as command-line arguments."""
        flag, _, off = self.flags[-1].partition("/")
        if isinstance(self.kind, Flag):
            return [flag] if self.read(value) else [off][: len(off)]
        return [f"{flag}={text}" for text in self.list_texts(value)]

    def read(self, value: Any) -> Any:
        """The value of a field. ValueError if it is of the wrong kind."""
        kind = self.kind
        if isinstance(kind, Flag):
            if not isinstance(value, bool):
                raise ValueError(f"write true or false, not {value!r}")
            return value
        if not self.multiple:
            made = value is None or (isinstance(value, kind.made) and not isinstance(value, str))
            # A mapping in a file may have any values.
            return (
                value if made and not (isinstance(value, Mapping) and value) else self._parse(value)
            )
        if isinstance(value, list | tuple) and all(isinstance(part, kind.made) for part in value):
            return tuple(value)
        return tuple(map(kind.parse, self.list_texts(value)))

    def _parse(self, value: Any) -> Any:
        return self.kind.parse(self.list_texts(value)[0])

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add what a file may have here to the field's JSON schema."""
        about = {name: schema[name] for name in ("description", "default") if name in schema}
        schema.clear()
        schema.update(self.kind.schema, **about)
        if self.multiple:
            schema["type"] = ["string", "number", "array", "object"]
        elif isinstance(self.kind, Choice):
            schema["enum"] = self.kind.names


def _write_scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{Decimal(str(value)):f}"
    if isinstance(value, str | int):
        return str(value)
    raise ValueError(f"{value!r} can't be the value of an option: write a text or a number")


def option(group: Group, kind: Kind, default: Any, about: str, *flags: str, **how: Any) -> Any:
    """A field that is an option. `how`: see `Option`."""
    own = Option(group, kind, flags, **how)
    return Field(default, alias=own.key, description=about, json_schema_extra=own)


def of(model: type[BaseModel], name: str, flag: str | None = None, **changes: Any) -> Any:
    """An option that is a field of `Load` or `DataSet`, with its name minus the unit. `flag`: another name;
    `changes`: other differences."""
    field = model.model_fields[name]
    word = (field.alias or name).removesuffix("_per_s").removesuffix("_s")
    flag = flag or "--" + word.replace("_", "-")
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    kind, optional = (kinds[0], True) if len(kinds) == 1 else (field.annotation, False)
    limits = {
        bound: getattr(limit, bound)
        for limit in field.metadata
        for bound in ("ge", "gt", "le")
        if hasattr(limit, bound)
    }
    how: dict[str, Any] = {"shown": not optional}
    own: Kind = Kind()
    if kind is bool:
        own, flag = Flag(), f"{flag}/--no-{name.replace('_', '-')}"
    elif kind is int:
        own = Amount(limits.get("ge"), limits.get("le"))
    elif kind is float and name.endswith("_s") and not name.endswith("_per_s"):
        own = Duration(limits.get("ge", limits.get("gt", 0.0)), "gt" in limits)
        how["shown"] = False
    elif kind is float:
        own = Rate(limits.get("gt"), above=True)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        own = Choice(list(kind), case_sensitive=False)
    own = changes.pop("kind", own)
    default = changes.pop("default", field.default)
    about = changes.pop("about", field.description)
    group = Group.DATA if model is DataSet else Group.LOAD
    if name in fields_of(model, Role.READ) - fields_of(model):
        group = Group.QUERIES
    return option(changes.pop("group", group), own, default, about, flag, **how | changes)


def find_options(kind: type[BaseModel]) -> dict[str, tuple[FieldInfo, Option]]:
    """Field -> its declaration, for a request's fields that are options: first its own, then shared ones."""
    names = dict.fromkeys(name for base in kind.__mro__ for name in get_annotations(base))
    fields = kind.model_fields
    return {
        name: (fields[name], own)
        for name in names
        if name in fields and isinstance(own := fields[name].json_schema_extra, Option)
    }


def find_keys(kind: type[BaseModel]) -> dict[str, Option]:
    """Key of a campaign's file -> option."""
    return {own.key: own for _, own in find_options(kind).values()}


def write_words(kind: type[BaseModel], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options from a file, by key, in command-line form. ConfigError if one is impossible."""
    words: list[str] = []
    keys = find_keys(kind)
    for key, value in options.items():
        try:
            words += keys[key].write(value)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from error
    return tuple(words)


def describe_problem(error: ValidationError) -> tuple[str, str]:
    """The key of a request's first problem, if it concerns one, and the problem in words."""
    problem = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, problem["loc"][:1]))
    return key, problem["msg"].removeprefix("Value error, ")
