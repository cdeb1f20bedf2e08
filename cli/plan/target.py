"""A target of the config file: what it holds, how it is read, and variables in it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..system.errors import ConfigError
from .disturbances import Disturbance, read_disturbance

if TYPE_CHECKING:
    from .config import Config


class ExecutorName(StrEnum):
    """Where collector and workers run."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


TARGET_KEYS = (
    "module", "executor", "start_server", "data_dir", "cost_per_hour",
    "price", "recipe", "kubernetes", "database_pids", "disturbances",
)  # fmt: skip
"""Keys of a target that are this tool's own; all others are options of its module."""
PRICES = ("cpu_hour", "gb_month")
"""The keys of a price."""
STARTABLE_SERVERS = ("postgresql",)


@dataclass(frozen=True)
class Price:
    """What a database costs, in a currency of the user's choice. None for what isn't known."""

    hour: float | None = None
    """All of its machines together."""
    cpu_hour: float | None = None
    """A CPU that it may use, where there is no price of the whole."""
    gb_month: float | None = None
    """10^9 bytes that are stored."""

    def over(self, other: Price) -> Price:
        """This price, with what the other one knows and this one doesn't."""
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
    """Where collector and workers run: `kubernetes`, unless it says `local`."""
    options: dict[str, Any]
    start_server: str | None = None
    """A server that the tool starts itself, on this machine, for the time of a command: `postgresql`."""
    data_dir: str | None = None
    """Where that server keeps its data."""
    cost_per_hour: float | None = None
    """What the database costs, in a currency of the user's choice."""
    price: Price = field(default_factory=Price)
    """The same by what its parts cost: `{cpu_hour: …, gb_month: …}`, a month of 10^9 bytes; for verdicts."""
    database_pids: tuple[int, ...] = ()
    """The database's processes on this machine, if they can't be told by the port or socket that they listen
    at. Of the local executor."""
    disturbances: tuple[Disturbance, ...] = ()
    """What is done to the database in each run that inserts, as `--disturb` has it."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Options with values of the environment -> as they stand in the file."""
    recipe: str | None = None
    """The folder in dbinstall/ that installs this database."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """Values of the chart: those for all targets with the target's own over them."""


def read_target(config: Config, name: str) -> Target:
    """The target of that name, variables replaced; ConfigError if anything is wrong with it."""
    values = {
        key: config.replace_variables(value, ("targets", name, str(key)))
        for key, value in config.section(name).items()
    }
    module, executor = config.place_of(name)
    values.pop("module")
    values.pop("executor", None)
    own = values.pop("kubernetes", None) or {}
    return Target(
        name,
        module,
        executor,
        start_server=_read_server(config, name, values.pop("start_server", None)),
        data_dir=config.read_text(values.pop("data_dir", None), "targets", name, "data_dir"),
        cost_per_hour=(hour := _read_cost(config, name, values.pop("cost_per_hour", None))),
        price=_read_price(config, name, hour, values.pop("price", None)),
        database_pids=_read_pids(config, name, values.pop("database_pids", None)),
        disturbances=_read_disturbances(config, name, values.pop("disturbances", None)),
        recipe=config.read_text(values.pop("recipe", None), "targets", name, "recipe"),
        kubernetes=config.merge_chart_values(name, own),
        options=values,
        written={
            key: raw
            for key, raw in config.section(name).items()
            if key in values and isinstance(raw, str) and list_values(raw)
        },
    )


def read_executor_name(config: Config, keys: tuple[str, ...], value: object) -> ExecutorName:
    try:
        return ExecutorName(str(value))
    except ValueError:
        names = " or ".join(ExecutorName)
        raise ConfigError(
            f"{config.where(*keys)}: {value!r} isn't an executor: use {names}"
        ) from None


def _read_server(config: Config, target: str, value: object) -> str | None:
    if value is None or value in STARTABLE_SERVERS:
        return None if value is None else str(value)
    where = config.where("targets", target, "start_server")
    servers = ", ".join(STARTABLE_SERVERS)
    raise ConfigError(f"{where}: {value!r} can't be started by this tool (it can: {servers})")


def _read_price(config: Config, target: str, hour: float | None, value: object) -> Price:
    where = config.where("targets", target, "price")
    parts = {} if value is None else value
    if not isinstance(parts, dict) or set(parts) - set(PRICES):
        raise ConfigError(f"{where}: write what it costs, as in {{cpu_hour: 0.05, gb_month: 0.1}}")
    own = {key: _read_cost(config, target, cost, "price", str(key)) for key, cost in parts.items()}
    return Price(hour, **own)


def _read_cost(config: Config, target: str, value: object, *keys: str) -> float | None:
    if value is None:
        return None
    with suppress(ValueError):
        # A text is what a ${VARIABLE} leaves.
        cost = float(value) if isinstance(value, int | float | str) else 0.0
        if 0 < cost < math.inf and not isinstance(value, bool):
            return cost
    where = config.where("targets", target, *(keys or ("cost_per_hour",)))
    raise ConfigError(f"{where}: {value!r} isn't a cost: write a number above 0, as in 1.25")


def _read_pids(config: Config, target: str, value: object) -> tuple[int, ...]:
    pids = [] if value is None else value if isinstance(value, list) else [value]
    if all(str(pid).isdecimal() and int(str(pid)) > 0 for pid in pids):
        return tuple(int(str(pid)) for pid in pids)
    where = config.where("targets", target, "database_pids")
    raise ConfigError(f"{where}: {value!r}: write the processes' numbers, as in [4711, 4712]")


def _read_disturbances(config: Config, target: str, value: object) -> tuple[Disturbance, ...]:
    texts = [] if value is None else value
    where = config.where("targets", target, "disturbances")
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        written = config.section(target).get("disturbances") or []
        try:
            return tuple(
                read_disturbance(raw, text, tuple(list_values(raw).values()))
                for raw, text in zip(written, texts, strict=True)
            )
        except ConfigError as error:
            raise ConfigError(f"{where}: {error.message}") from error
    raise ConfigError(f"{where}: write a list of texts, as in ['30s restart-server']")


# --- ${VARIABLES} in a config file: what is put in, and what a user is shown instead ----------------

VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^}]*))?\}|(?=[A-Za-z_{]))")
"""`$$`, `${NAME}` with what a shell makes of its absence, or what a shell would read otherwise."""


class VariableError(ValueError):
    """A variable isn't set, or is written in a way that isn't read."""


def replace_variables(text: str) -> str:
    """The text with variables of the environment as a shell puts them in: `${X}`, `${X:-default}`,
    `${X-default}`, `${X:?message}`, `${X?message}`, `${X:+text}`, `${X+text}`; `$$` is a dollar sign.
    VariableError for one that isn't set, and for `$X`, which may be part of a password."""
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
    """Variable -> value, of those that the environment puts into a text."""
    names = [match[1] for match in VARIABLE.finditer(text) if match[1]]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def hide_values(shown: str, written: str) -> str:
    """What is shown of an option, with the names of variables instead of their values."""
    if (whole := VARIABLE.fullmatch(written)) is not None and whole[1]:
        return f"${{{whole[1]}}}"
    values = list_values(written)
    for name in sorted(values, key=lambda variable: len(values[variable]), reverse=True):
        if len(values[name]) >= _SHORTEST_VALUE:
            shown = shown.replace(values[name], f"${{{name}}}")
    return shown


_SHORTEST_VALUE = 3
"""A shorter one is no secret, and a part of many words."""
