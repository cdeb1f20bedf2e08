"""config.yaml -> typed settings, with errors that name file, line, key and remedy."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from simulator.documents import DocumentError, merge_values, read_yaml
from simulator.errors import OptionError, did_you_mean, unknown_option
from simulator.workloads import workload_names

from .errors import ConfigError
from .faults.injector import Disturbance, read_disturbance
from .installation import program, shipped


class ExecutorName(StrEnum):
    """Where collector and workers run."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


_TOP_KEYS = ("targets", "namespace", "kubernetes", "workloads", "executors")
_EXECUTOR_KEYS = ("executor", "context", "namespace", "kubernetes")
TARGET_KEYS = (
    "module", "executor", "executors", "collector_address", "start_server", "data_dir", "cost_per_hour",
    "price", "recipe", "kubernetes", "database_pids", "disturbances",
)  # fmt: skip
"""Keys of a target that are this tool's own; all others are options of its module."""
PRICES = ("cpu_hour", "gb_month")
"""The keys of a price."""
CHART_VALUES = "deployment/values.yaml"
STARTABLE_SERVERS = ("postgresql",)

# Keys must be texts, or `<<`, which merges another mapping in.
_TEXT_KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")

# ${NAME} or ${NAME:-default}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


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
        """With what the other one knows and this one doesn't."""
        return Price(
            *(
                theirs if own is None else own
                for own, theirs in zip(astuple(self), astuple(other), strict=True)
            )
        )


@dataclass(frozen=True)
class NamedExecutor:
    """One of `executors` in the file: a cluster, or this machine. None for what the command line says."""

    name: str
    kind: ExecutorName
    context: str | None = None
    """Of the kubeconfig."""
    namespace: str | None = None
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """Values of the chart: those of the target with the executor's own over them."""


@dataclass(frozen=True)
class Target:
    """One target: which module, where it runs, and the module's options (not yet validated)."""

    name: str
    module: str
    """The database's module."""
    executor: ExecutorName
    """Where collector and workers run: `kubernetes`, unless it says `local`."""
    options: dict[str, Any]
    executors: tuple[NamedExecutor, ...] = ()
    """In place of `executor`: names of several below `executors` in the file, which share the workers out.
    The first one has the collector."""
    collector_address: str | None = None
    """Where the others' workers reach that collector, as in http://bench.example.com:5000."""
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


class Config:
    """A config file. Targets are checked when asked for, so that one with an unset variable or a
    module of another version doesn't keep the others from being used."""

    def __init__(
        self,
        path: Path,
        document: Mapping[str, Any],
        lines: Mapping[Any, int],
        root: yaml.MappingNode,
    ) -> None:
        self.path = path
        self._root = root
        self._workloads: Mapping[str, Any] = document.get("workloads") or {}
        self._targets: Mapping[str, Any] = document["targets"]
        self._kubernetes: Any = document.get("kubernetes") or {}
        self._executors: Any = document.get("executors") or {}
        self.namespace = str(document.get("namespace") or "default")
        """The Kubernetes namespace in which runs are made."""
        self._lines = lines

    @property
    def target_names(self) -> list[str]:
        """In the file's order."""
        return list(self._targets)

    @property
    def workload_names(self) -> list[str]:
        """Names of the workloads that the file defines, in its order."""
        return list(self._workloads)

    def workload_definition(self, name: str) -> dict[str, Any]:
        """One of them, as it is in JSON; ConfigError if anything is wrong with it."""
        from simulator.modules import find_statement_problem
        from simulator.workloads.definition import read_name
        from simulator.workloads.yaml_source import check_document, read_document

        keys = ("workloads", name)
        value = self._replace_variables(self._workloads[name], keys)
        try:
            read_name(name)
            if name in workload_names():
                raise ValueError(f"{name} is a workload of this tool: take another name")
            if isinstance(value, str):
                file = self.path.parent / Path(value).expanduser()
                found = read_document(file, find_problem=find_statement_problem)
                return {**found, "name": name}
            if isinstance(value, dict) and value.setdefault("name", name) != name:
                raise ValueError("the key above is its name: remove `name`")
        except (OptionError, ValueError) as error:
            raise ConfigError(f"{self.where(*keys)}: {error}") from error
        node: yaml.Node = self._root
        for key in keys:
            node = next(below for above, below in node.value if above.value == key)
        try:
            return check_document(node, value, str(self.path), keys, find_statement_problem)
        except OptionError as error:
            raise ConfigError(str(error)) from error

    def where(self, *keys: str) -> str:
        """`file:line: targets.x.key`, for the start of an error message."""
        line = next(
            (self._lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self._lines), 1
        )
        return f"{self.path}:{line}: {'.'.join(keys)}"

    def digest(self, name: str) -> str:
        """Another text whenever the file says something else of a target, variables as they stand there."""
        said = json.dumps(
            [self._section(name), self._kubernetes, self._executors], sort_keys=True, default=str
        )
        return sha256(said.encode()).hexdigest()

    def place_of(self, name: str) -> tuple[str, ExecutorName]:
        """Module and executor of a target, without looking at its options."""
        raw = self._section(name)
        module = self._replace_variables(raw.get("module"), ("targets", name, "module"))
        if not isinstance(module, str):
            misspelt = [str(key) for key in raw if did_you_mean(str(key), ["module"])]
            hint = (
                f"; is {misspelt[0]!r} meant to be it?" if "module" not in raw and misspelt else ""
            )
            raise ConfigError(f"{self.where('targets', name)}: key `module` is missing{hint}")
        if "executors" in raw:
            return module, self._read_executors(name, raw)[0].kind
        executor = raw.get("executor", ExecutorName.KUBERNETES)
        keys = ("targets", name, "executor")
        return module, self._read_executor(keys, self._replace_variables(executor, keys))

    def unknown_keys(
        self, name: str, options: Callable[[Mapping[str, Any]], Iterable[str]]
    ) -> list[str]:
        """An error for each key of a target that is neither this tool's, nor one of its module's
        `options`, which may depend on their values, nor a value of the chart."""
        section = self._section(name)
        known = [*options(section), *TARGET_KEYS]
        found = [
            f"{self.where('targets', name, key)}: {unknown_option(key, known)}"
            for key in map(str, section)
            if key not in known
        ]
        return found + self._unknown_chart_keys(section, ("targets", name))

    def unknown_shared_keys(self) -> list[str]:
        """An error for each key below the file's `kubernetes` that is no value of the chart."""
        return self._unknown_chart_keys({"kubernetes": self._kubernetes}, ())

    def _unknown_chart_keys(self, section: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
        keys = (*keys, "kubernetes")
        values = section.get("kubernetes") or {}
        if not isinstance(values, dict):
            return [f"{self.where(*keys)}: needs keys below it, as in {CHART_VALUES}"]
        known = chart_keys()
        return [
            f"{self.where(*keys, key)}: unknown key{did_you_mean(key, known)}"
            f" (known: {', '.join(known)})"
            for key in map(str, values)
            if key not in known
        ]

    def _section(self, name: str) -> dict[str, Any]:
        if name not in self._targets:
            hint = did_you_mean(name, self.target_names)
            known = ", ".join(self.target_names)
            raise ConfigError(f"{self.path} has no target {name!r}{hint} (it has: {known})")
        raw = self._targets[name]
        if not isinstance(raw, dict):
            where = self.where("targets", name)
            raise ConfigError(f"{where}: needs keys below it, at least `module:`")
        return raw

    def target(self, name: str) -> Target:
        """The target of that name, variables replaced; ConfigError if anything is wrong with it."""
        values = {
            key: self._replace_variables(value, ("targets", name, str(key)))
            for key, value in self._section(name).items()
        }
        module, executor = self.place_of(name)
        values.pop("module")
        values.pop("executor", None)
        executors: Sequence[NamedExecutor] = ()
        if values.pop("executors", None) is not None:
            executors = self._read_executors(name, self._section(name))
        own = values.pop("kubernetes", None) or {}
        return Target(
            name,
            module,
            executor,
            executors=tuple(executors),
            collector_address=self._read_address(
                name, executors, values.pop("collector_address", None)
            ),
            start_server=self._read_server(name, values.pop("start_server", None)),
            data_dir=values.pop("data_dir", None),
            cost_per_hour=(hour := self._read_cost(name, values.pop("cost_per_hour", None))),
            price=self._read_price(name, hour, values.pop("price", None)),
            database_pids=self._read_pids(name, values.pop("database_pids", None)),
            disturbances=self._read_disturbances(name, values.pop("disturbances", None)),
            recipe=values.pop("recipe", None),
            kubernetes=executors[0].kubernetes
            if executors
            else self._merge_chart_values(name, own),
            options=values,
            written={
                key: raw
                for key, raw in self._section(name).items()
                if key in values and isinstance(raw, str) and list_values(raw)
            },
        )

    def _read_executor(self, keys: tuple[str, ...], value: object) -> ExecutorName:
        try:
            return ExecutorName(str(value))
        except ValueError:
            known = " or ".join(ExecutorName)
            raise ConfigError(
                f"{self.where(*keys)}: {value!r} is no executor: use {known}"
            ) from None

    def _read_executors(self, target: str, section: Mapping[str, Any]) -> list[NamedExecutor]:
        """Those that a target names."""
        where = self.where("targets", target, "executors")
        names = self._replace_variables(section["executors"], ("targets", target, "executors"))
        known = ", ".join(self._executors) if isinstance(self._executors, dict) else ""
        if not isinstance(names, list) or len(names) < 2 or len(set(map(str, names))) < len(names):
            raise ConfigError(
                f"{where}: write two names or more of `executors`, as in [east, west]"
            )
        if "executor" in section:
            raise ConfigError(f"{where}: leave `executor` out: each of `executors` has its own")
        for name in map(str, names):
            if name not in known.split(", "):
                raise ConfigError(
                    f"{where}: {name!r} isn't below `executors` in the file (there: {known or 'nothing'})"
                )
        found = [self._read_named_executor(str(name), target, section) for name in names]
        places = [
            (one.context, one.namespace) for one in found if one.kind is ExecutorName.KUBERNETES
        ]
        if len(set(places)) < len(places):
            raise ConfigError(f"{where}: two of them have the same context and namespace")
        return found

    def _read_named_executor(
        self, name: str, target: str, section: Mapping[str, Any]
    ) -> NamedExecutor:
        keys = ("executors", name)
        values = self._replace_variables(self._executors[name] or {}, keys)
        if not isinstance(values, dict):
            raise ConfigError(f"{self.where(*keys)}: needs keys below it, as in {{context: east}}")
        for key in map(str, values):
            if key not in _EXECUTOR_KEYS:
                raise ConfigError(
                    f"{self.where(*keys, key)}: {unknown_option(key, _EXECUTOR_KEYS)}"
                )
        for problem in self._unknown_chart_keys(values, keys):
            raise ConfigError(problem)
        shared = self._merge_chart_values(target, section.get("kubernetes") or {})
        kind = values.get("executor", ExecutorName.KUBERNETES)
        texts = {key: str(values[key]) for key in ("context", "namespace") if key in values}
        return NamedExecutor(
            name,
            self._read_executor((*keys, "executor"), kind),
            kubernetes=merge_values(shared, values.get("kubernetes") or {}),
            **texts,
        )

    def _read_address(
        self, target: str, executors: Sequence[NamedExecutor], value: object
    ) -> str | None:
        if not executors and value is None:
            return None
        where = self.where("targets", target, "collector_address" if value else "executors")
        if not executors:
            raise ConfigError(f"{where}: this is for a target with `executors`")
        parts = urlsplit(str(value or ""))
        with suppress(ValueError):  # of a port that is none
            if (
                parts.scheme == "http"
                and parts.hostname
                and parts.port
                and not parts.path.strip("/")
            ):
                return f"http://{parts.netloc}"
        raise ConfigError(
            f"{where}: where do the workers of {', '.join(one.name for one in executors[1:])} reach the"
            f" collector in {executors[0].name}? Write collector_address: http://HOST:PORT"
        )

    def _read_server(self, target: str, value: object) -> str | None:
        if value is None or value in STARTABLE_SERVERS:
            return None if value is None else str(value)
        where = self.where("targets", target, "start_server")
        known = ", ".join(STARTABLE_SERVERS)
        raise ConfigError(f"{where}: {value!r} can't be started by this tool (it can: {known})")

    def _read_price(self, target: str, hour: float | None, value: object) -> Price:
        where = self.where("targets", target, "price")
        parts = {} if value is None else value
        if not isinstance(parts, dict) or set(parts) - set(PRICES):
            raise ConfigError(
                f"{where}: write what it costs, as in {{cpu_hour: 0.05, gb_month: 0.1}}"
            )
        own = {key: self._read_cost(target, one, "price", str(key)) for key, one in parts.items()}
        return Price(hour, **own)

    def _read_cost(self, target: str, value: object, *keys: str) -> float | None:
        if value is None:
            return None
        with suppress(ValueError):
            # A text is what a ${VARIABLE} leaves.
            cost = float(value) if isinstance(value, int | float | str) else 0.0
            if 0 < cost < math.inf and not isinstance(value, bool):
                return cost
        where = self.where("targets", target, *(keys or ("cost_per_hour",)))
        raise ConfigError(f"{where}: {value!r} is no cost: write a number above 0, as in 1.25")

    def _read_pids(self, target: str, value: object) -> tuple[int, ...]:
        found = [] if value is None else value if isinstance(value, list) else [value]
        if all(str(pid).isdecimal() and int(str(pid)) > 0 for pid in found):
            return tuple(int(str(pid)) for pid in found)
        where = self.where("targets", target, "database_pids")
        raise ConfigError(f"{where}: {value!r}: write the processes' numbers, as in [4711, 4712]")

    def _read_disturbances(self, target: str, value: object) -> tuple[Disturbance, ...]:
        found = [] if value is None else value
        where = self.where("targets", target, "disturbances")
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            written = self._section(target).get("disturbances") or []
            try:
                return tuple(
                    read_disturbance(raw, text, tuple(list_values(raw).values()))
                    for raw, text in zip(written, found, strict=True)
                )
            except ConfigError as error:
                raise ConfigError(f"{where}: {error.message}") from error
        raise ConfigError(f"{where}: write a list of texts, as in ['30s restart-server']")

    def chart_values(self) -> Mapping[str, Any]:
        """The chart's values for all targets."""
        return self._merge_chart_values("", {})

    def _merge_chart_values(self, target: str, own: Any) -> Mapping[str, Any]:
        """The chart's values for a target; ConfigError for a key that the chart doesn't have."""
        wrong = self.unknown_shared_keys()
        wrong += self._unknown_chart_keys({"kubernetes": own}, ("targets", target))
        for problem in wrong:
            raise ConfigError(problem)
        shared = self._replace_variables(self._kubernetes, ("kubernetes",))
        return merge_values(shared, own)

    def _replace_variables(self, value: Any, keys: tuple[str, ...]) -> Any:
        """`value` with ${VARIABLES} replaced, in lists and mappings too."""
        if isinstance(value, dict):
            return {k: self._replace_variables(v, (*keys, str(k))) for k, v in value.items()}
        if isinstance(value, list):
            return [self._replace_variables(item, keys) for item in value]
        if not isinstance(value, str):
            return value

        def lookup(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = os.environ.get(name) if default is None else os.environ.get(name) or default
            if found is None:
                raise ConfigError(
                    f"{self.where(*keys)}: environment variable {name} is not set; set it, or"
                    f" write ${{{name}:-default}}"
                )
            return found

        return _VARIABLE.sub(lookup, value)


def list_values(text: str) -> dict[str, str]:
    """Variable -> value, of those that the environment puts into a text."""
    names = [match[1] for match in _VARIABLE.finditer(text)]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def hide_values(shown: str, written: str) -> str:
    """What is shown of an option, with the names of variables instead of their values."""
    if (whole := _VARIABLE.fullmatch(written)) is not None:
        return f"${{{whole[1]}}}"
    values = list_values(written)
    for name in sorted(values, key=lambda one: len(values[one]), reverse=True):
        if len(values[name]) >= _SHORTEST_VALUE:
            shown = shown.replace(values[name], f"${{{name}}}")
    return shown


_SHORTEST_VALUE = 3
"""A shorter one is no secret, and a part of many words."""


def chart_keys() -> list[str]:
    """The keys of the chart's values that a config file may set: all but `run`."""
    _, values = read_yaml(shipped("deployment") / "values.yaml")
    return [key for key in values if key != "run"]


def load_config(path: Path) -> Config:
    """Read a config file; ConfigError with file, line and key if it can't be used."""
    try:
        root, document = read_yaml(path)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no config file {path}: run from the folder that has it, name it with -c, or make"
            f" one: {program()} targets --example > config.yaml"
        ) from None
    except DocumentError as error:
        raise ConfigError(
            error.at(f"config file {path}" if error.line is None else path)
        ) from error
    if document is None:
        raise ConfigError(f"{path} is empty: it needs `targets:` with at least one target")
    if not isinstance(document, dict):
        raise ConfigError(f"{path}:1: must be a mapping with the key `targets`")
    lines: dict[tuple[str, ...], int] = {}
    _note_lines(path, root, (), lines)
    for key in document:
        if key not in _TOP_KEYS:
            line = lines[(str(key),)]
            hint, known = did_you_mean(str(key), _TOP_KEYS), ", ".join(_TOP_KEYS)
            raise ConfigError(f"{path}:{line}: unknown key {key!r}{hint} (known: {known})")
    targets = document.get("targets")
    if not isinstance(targets, dict) or not targets:
        line = lines.get(("targets",), 1)
        raise ConfigError(f"{path}:{line}: `targets` needs at least one target below it")
    workloads = document.get("workloads") or {}
    if not isinstance(workloads, dict):
        line = lines.get(("workloads",), 1)
        raise ConfigError(
            f"{path}:{line}: `workloads` needs names below it, each with its definition"
        )
    assert isinstance(root, yaml.MappingNode)
    return Config(path, document, lines, root)


def _note_lines(
    path: Path, node: yaml.Node | None, keys: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> None:
    """Remember where each key stands; ConfigError for a key that stands twice."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        place = (*keys, str(key_node.value))
        line = key_node.start_mark.line + 1
        if key_node.tag not in _TEXT_KEYS:
            raise ConfigError(
                f"{path}:{line}: YAML takes the key {key_node.value} for something else than a text:"
                " write it in quotes"
            )
        if place in lines:
            raise ConfigError(f"{path}:{line}: {'.'.join(place)} stands here a second time")
        lines[place] = line
        _note_lines(path, value_node, place, lines)
