"""Models of what people write in files and on the command line: a value that isn't of its field's type is
read as it was meant, or refused with a remedy. Also, which conditions of a measurement a setting changes.

An option declares its condition in its annotation, `batch: Annotated[int, Condition.BATCH]`; a module
declares those of its server's settings in `Module.CONDITIONS`. `compare` warns where such conditions differ.
`ACCESS` next to it marks an option that decides who gets the target's secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from .documents import refuse
from .units import parse_amount


class Condition(StrEnum):
    """What a setting changes."""

    DATA = "data"
    """What is stored during the measurement."""
    DURABILITY = "durability"
    """What an acknowledgement is worth."""
    REPLICATION = "replication"
    """How many copies are made, and over how many nodes and shards events are spread."""
    LOAD = "load"
    """How requests are offered: each after the previous answer, or at a rate."""
    BATCH = "batch"
    """What a request looks like."""
    SCHEMA = "schema"
    """Keys, indexes, and the layout of tables."""
    CLIENT = "client"
    """How and where the load generator works."""
    HARDWARE = "hardware"
    WORKLOAD = "workload"
    """Which events and queries, and how many."""
    DATABASE = "database"
    """How the database works in other respects."""
    NONE = "none"
    """No figure: where the database is, as whom to connect, how long to wait before giving up."""


@dataclass(frozen=True)
class Access:
    """The type of `ACCESS`."""


ACCESS = Access()
"""Marks an option that says where to connect, as whom, or how far to trust the server. A campaign's file may
come from a stranger, so it may set such an option of a target with a secret only with permission."""


def find_access(model: type[BaseModel]) -> set[str]:
    """The fields marked with `ACCESS`."""
    return {name for name, field in model.model_fields.items() if ACCESS in field.metadata}


def find_conditions(model: type[BaseModel]) -> dict[str, Condition]:
    """Field, or its alias -> the condition that it changes. Fields that are never shown are left out."""
    conditions = {}
    for own_name, field in model.model_fields.items():
        name = field.alias or own_name
        declared = [condition for condition in field.metadata if isinstance(condition, Condition)]
        if declared:
            conditions[name] = declared[0]
        elif not field.repr:
            conditions[name] = Condition.NONE
    return conditions


_IN_QUOTES = "in YAML this is {}: put it in quotes"
_PLAIN = re.compile(r".*\d\s*")
"""An amount without a unit, which could also be a time."""


class Written(BaseModel):
    """Base of models for what people have written."""

    @model_validator(mode="wrap")
    @classmethod
    def _read_values(cls, values: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(values, Mapping):
            return handler(values)
        read, problems = dict(values), dict[str, str]()
        for name in values.keys() & _list_plain_fields(cls):
            try:
                value, kinds = values[name], _list_kinds(cls, name)
                if isinstance(value, list | tuple):
                    read[name] = [_read_as_meant(part, kinds) for part in value]
                else:
                    read[name] = _read_as_meant(value, kinds)
            except ValueError as error:
                problems[name] = str(error)
        if not problems:
            return handler(read)
        own, found = {(name,) for name in problems}, list[ErrorDetails]()
        try:
            handler(read)
        except ValidationError as error:
            found = [each for each in error.errors() if each["loc"][:1] not in own]
        refuse([((name,), text) for name, text in problems.items()], found)
        raise AssertionError  # there are problems


def _read_as_meant(value: object, kinds: frozenset[type]) -> object:
    """A value for a field of these types. ValueError if YAML has turned it into something else than was
    meant."""
    if object in kinds:
        return value
    number = bool({int, float} & kinds)
    text = str in kinds
    if isinstance(value, bool):
        if bool not in kinds and number:
            raise ValueError(f"{str(value).lower()} is not a number: write one")
        if bool not in kinds and text:
            raise ValueError(_IN_QUOTES.format("true or false"))
    elif isinstance(value, int | float):
        if text and not number:
            raise ValueError(_IN_QUOTES.format("a number"))
    elif isinstance(value, str) and number and not text and _PLAIN.fullmatch(value):
        amount = parse_amount(value)
        if amount is not None:
            return int(amount) if amount == int(amount) else float(amount)
    return value


@cache
def _list_plain_fields(model: type[BaseModel]) -> frozenset[str]:
    """The fields without a validator of their own."""
    validators = model.__pydantic_decorators__.field_validators.values()
    own = {name for each in validators if each.info.mode == "before" for name in each.info.fields}
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if name not in own and not any(isinstance(each, BeforeValidator) for each in field.metadata)
    )


@cache
def _list_kinds(model: type[BaseModel], name: str) -> frozenset[type]:
    return frozenset(_find_kinds(model.model_fields[name].annotation))


def _find_kinds(annotation: Any) -> set[type]:
    """The types of plain values in a type: `bool`, `int`, `float`, `str`; `object`: any."""
    if annotation is Any or annotation is object:
        return {object}
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        reads_itself = any(isinstance(part, BeforeValidator) for part in parts[1:])
        return {object} if reads_itself else _find_kinds(parts[0])
    if origin is Literal:
        return {type(part) for part in parts}
    if isinstance(annotation, type):
        plain = (bool, int, float, str) if issubclass(annotation, Enum) else ()
        if annotation in (bool, int, float, str):
            return {annotation}
        return {kind for kind in plain if issubclass(annotation, kind)}
    return set().union(*map(_find_kinds, parts))
