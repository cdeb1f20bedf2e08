"""Which conditions of a measurement a setting changes, declared where the setting is defined.

An option declares it in its annotation, `batch: Annotated[int, Condition.BATCH]`; a module declares it in
`Module.CONDITIONS` for what its server tells. `compare` warns where such conditions differ. `ACCESS` beside
it marks an option that decides who gets the target's secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel


class Condition(StrEnum):
    """What a setting changes."""

    DATA = "data"
    """What is stored while it is measured."""
    DURABILITY = "durability"
    """What an acknowledgement is worth."""
    REPLICATION = "replication"
    """How many copies are made, and over how many nodes and shards events are spread."""
    LOAD = "load"
    """How requests are offered: each after the answer to the one before, or at a rate."""
    BATCH = "batch"
    """What a request looks like."""
    SCHEMA = "schema"
    """Keys, indexes, and how tables are laid out."""
    CLIENT = "client"
    """How the load generator works, and where."""
    HARDWARE = "hardware"
    WORKLOAD = "workload"
    """Which events and queries, and how many."""
    DATABASE = "database"
    """How the database works otherwise."""
    NONE = "none"
    """No figure: where the database is, who asks, how long to wait before giving up."""


@dataclass(frozen=True)
class Access:
    """The kind of `ACCESS`."""


ACCESS = Access()
"""Marks an option that says where to connect, as whom, or how far to trust the server. A campaign's file may
be a stranger's, so it sets such an option of a target that has a secret only with permission."""


def find_access(model: type[BaseModel]) -> set[str]:
    """The fields that are marked with `ACCESS`."""
    return {name for name, field in model.model_fields.items() if ACCESS in field.metadata}


def find_conditions(model: type[BaseModel]) -> dict[str, Condition]:
    """Field (by its alias, if it has one) -> what its annotation declares. A field that is never
    shown changes no figure."""
    conditions = {}
    for own_name, field in model.model_fields.items():
        name = field.alias or own_name
        declared = [condition for condition in field.metadata if isinstance(condition, Condition)]
        if declared:
            conditions[name] = declared[0]
        elif not field.repr:
            conditions[name] = Condition.NONE
    return conditions
