"""Which versions of a database a module supports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import SimulatorError

if TYPE_CHECKING:
    from .base import AnyModule

_NUMBER = re.compile(r"(?:[A-Za-z]+ )*v?(\d+(?:\.\d+)*)")
"""`18.4` of `PostgreSQL 18.4 (Debian)`, `23.1.11` of `CockroachDB CCL v23.1.11`, `2.0.1` of `2.0.1-beta`."""


def check_versions(module: AnyModule) -> None:
    """SimulatorError if the server is older than `Module.OLDEST` says. One whose version has an unknown form
    is not refused. Called after `open`."""
    for product, version in module.read_versions().items():
        oldest, number = module.OLDEST[product], find_number(version)
        if number and _is_older(number, oldest):
            raise SimulatorError(
                f"the server has {product} {number}, and module {module.name} needs {oldest} or later:"
                f" {module.UPGRADE}"
            )


def find_number(version: str) -> str | None:
    """The number in a version as a server tells it; None: there is none where it is looked for."""
    match = _NUMBER.match(version)
    return match and match[1]


def _is_older(number: str, than: str) -> bool:
    """Whether a number is lower than another, as far as both go."""
    found, other = ([int(part) for part in text.split(".")] for text in (number, than))
    return found[: len(other)] < other[: len(found)]
