"""A target of the config file, and variables in a config file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Any

from .disturbances import Disturbance


class ExecutorName(StrEnum):
    """Where collector and workers run."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


TARGET_KEYS = (
    "module", "executor", "start_server", "data_dir", "cost_per_hour",
    "price", "recipe", "kubernetes", "database_pids", "disturbances",
)  # fmt: skip
"""Keys of a target that belong to this tool; all others are options of its module."""
PRICES = ("cpu_hour", "gb_month")
"""The keys of a price."""
STARTABLE_SERVERS = ("postgresql",)


@dataclass(frozen=True)
class Price:
    """The price of a database, in any currency; None for unknown parts."""

    hour: float | None = None
    """All of its machines together."""
    cpu_hour: float | None = None
    """Per CPU available to it, if there is no overall price."""
    gb_month: float | None = None
    """Per 10^9 bytes stored, a month."""

    def over(self, other: Price) -> Price:
        """This price, with missing parts from the other one."""
        return Price(
            *(
                theirs if own is None else own
                for own, theirs in zip(astuple(self), astuple(other), strict=True)
            )
        )


@dataclass(frozen=True)
class Target:
    """One target: which module, where it runs, and the module's options (not yet validated)."""

    name: str
    module: str
    """The database's module."""
    executor: ExecutorName
    """Where collector and workers run: `kubernetes` or `local`; default: `local` for servers on loopback."""
    options: dict[str, Any]
    start_server: str | None = None
    """A server that the tool starts on this machine for the duration of a command: `postgresql`."""
    data_dir: str | None = None
    """The data folder of that server."""
    cost_per_hour: float | None = None
    """The hourly cost of the database, in any currency."""
    price: Price = field(default_factory=Price)
    """The cost of its parts: `{cpu_hour: …, gb_month: …}` (10^9 bytes for a month); for verdicts."""
    database_pids: tuple[int, ...] = ()
    """The database's processes on this machine, if they can't be found by the port or socket they listen on.
    For the local executor."""
    disturbances: tuple[Disturbance, ...] = ()
    """Disturbances of each run that inserts, as for `--disturb`."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Options with values from the environment -> as written in the file."""
    recipe: str | None = None
    """The folder in dbinstall/ that installs this database."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """Chart values: those for all targets, overridden by the target's."""


# --- ${VARIABLES} in a config file: their values, and what users see instead ----------------

VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^}]*))?\}|(?=[A-Za-z_{]))")
"""`$$`, `${NAME}` with a shell's rules for unset ones, or anything a shell would read differently."""


class VariableError(ValueError):
    """A variable isn't set, or its syntax isn't supported."""


def replace_variables(text: str) -> str:
    """The text with environment variables replaced as by a shell: `${X}`, `${X:-default}`,
    `${X-default}`, `${X:?message}`, `${X?message}`, `${X:+text}`, `${X+text}`; `$$` is a dollar sign.
    VariableError for an unset one, and for `$X`, which may be part of a password."""
    return VARIABLE.sub(_find_value, text)


def _find_value(match: re.Match[str]) -> str:
    name, operator, word = match.groups()
    if name is None:
        if match[0] == "$$":
            return "$"
        begin = re.match(r"\$\w*", match.string[match.start() :])
        assert begin is not None
        hint = (
            f"${{{begin[0][1:]}}} for a variable" if len(begin[0]) > 1 else "${NAME} for a variable"
        )
        raise VariableError(f"{begin[0]} has two readings: write {hint}, or $$ for a dollar sign")
    value = os.environ.get(name)
    if operator and operator[0] == ":":
        value = value or None
    if operator and operator[-1] == "+":
        return "" if value is None else replace_variables(word)
    if value is None and operator and operator[-1] == "-":
        return replace_variables(word)
    if value is None:
        if operator and word:
            raise VariableError(f"environment variable {name}: {word}")
        raise VariableError(
            f"environment variable {name} is not set; set it, or write ${{{name}:-default}}"
        )
    return value


def list_values(text: str) -> dict[str, str]:
    """Variable -> value, for the variables in a text."""
    names = [match[1] for match in VARIABLE.finditer(text) if match[1]]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def hide_values(shown: str, written: str) -> str:
    """An option as shown to users, with the names of variables instead of their values."""
    if (whole := VARIABLE.fullmatch(written)) is not None and whole[1]:
        return f"${{{whole[1]}}}"
    values = list_values(written)
    for name in sorted(values, key=lambda variable: len(values[variable]), reverse=True):
        if len(values[name]) >= _SHORTEST_VALUE:
            shown = shown.replace(values[name], f"${{{name}}}")
    return shown


_SHORTEST_VALUE = 3
"""A shorter value isn't a secret, and is part of many words."""
