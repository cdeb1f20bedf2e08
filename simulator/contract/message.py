"""What all messages have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""How many, or which number: what databases and numpy can count to."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""How long something took. Times since the common start may be a little before it."""
Instant = Annotated[float, Field(ge=-1e9, le=1e9)]
"""Seconds since the common start."""


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple"):
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)


class Bounded:
    """Base of models whose validation ends at the first wrong entry of a list: in a stranger's file each
    of a million may be wrong, and a gigabyte of problems would be kept, of which one is shown."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema


class Message(Bounded, BaseModel):
    """Base of all messages: unknown fields and numbers that aren't finite are refused, and no error shows
    a value."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
