"""config.yaml -> typed settings, with errors that name file, line, key and remedy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import yaml

from simulator.documents import DocumentError, merge_values, read_yaml
from simulator.errors import OptionError, did_you_mean, unknown_option
from simulator.workloads import workload_names
from simulator.workloads.recording.store import Tell, tell_nobody

from ..system.errors import ConfigError, Problems
from ..system.installation import CONFIG_FILE, program, shipped
from .disturbances import Disturbance, read_disturbance
from .target import (
    PRICES,
    STARTABLE_SERVERS,
    TARGET_KEYS,
    ExecutorName,
    Price,
    Target,
    VariableError,
    list_values,
    replace_variables,
)

_T = TypeVar("_T")

_TOP_KEYS = ("targets", "namespace", "kubernetes", "workloads")
CHART_VALUES = "deployment/values.yaml"

# Keys must be texts, or `<<`, which merges another mapping.
_TEXT_KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


class Config:
    """A config file. Targets are checked on use, so that one with an unset variable or a module of another
    version doesn't affect the others."""

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
        self._lines = lines
        self.namespace = self.read_text(document.get("namespace"), "namespace") or "default"
        """The Kubernetes namespace of runs."""
        self.about_absence = ""
        """If there is no file: the remedy, and the built-in targets."""

    @property
    def target_names(self) -> list[str]:
        """Names of the targets, in the file's order."""
        return list(self._targets)

    @property
    def workload_names(self) -> list[str]:
        """Names of the workloads defined in the file, in its order."""
        return list(self._workloads)

    def workload_definition(self, name: str, tell: Tell = tell_nobody) -> dict[str, Any]:
        """The definition of one of them, as in JSON; ConfigError if it is wrong."""
        from simulator.modules import find_own_problem
        from simulator.workloads.definition import read_name
        from simulator.workloads.yaml_source import check_document, read_document

        keys = ("workloads", name)
        value = self.replace_variables(self._workloads[name], keys)
        try:
            read_name(name)
            if name in workload_names():
                raise ValueError(f"{name} is a workload of this tool: choose another name")
            if isinstance(value, str):
                file = self.path.parent / Path(value).expanduser()
                definition = read_document(file, find_problem=find_own_problem, tell=tell)
                return {**definition, "name": name}
            if isinstance(value, dict) and value.setdefault("name", name) != name:
                raise ValueError("the key above is its name: remove `name`")
        except (OptionError, ValueError) as error:
            raise ConfigError(f"{self.where(*keys)}: {error}") from error
        node: yaml.Node = self._root
        for key in keys:
            node = next(below for above, below in node.value if above.value == key)
        try:
            return check_document(
                node, value, str(self.path), keys, find_own_problem, self.path.parent, tell
            )
        except OptionError as error:
            raise ConfigError(*error.problems) from error

    def where(self, *keys: str) -> str:
        """`file:line: targets.x.key`, for the start of an error message."""
        line = next(
            (self._lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self._lines), 1
        )
        return f"{self.path}:{line}: {'.'.join(keys)}"

    def read_text(self, value: object, *keys: str) -> str | None:
        """The text at these keys, if any; ConfigError for `no`, 0123 and the like."""
        if value is None or isinstance(value, str):
            return value
        raise ConfigError(f"{self.where(*keys)}: YAML doesn't read this as text: put it in quotes")

    def digest(self, name: str) -> str:
        """A text that changes whenever the file's target changes, with variables as written. Campaign folders
        store it, so every version of this tool must produce the same one."""
        parts = [self.section(name), self._kubernetes]
        text = json.dumps(parts, sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()

    def place_of(self, name: str) -> tuple[str, ExecutorName]:
        """Module and executor of a target, without checking its options."""
        raw = self.section(name)
        module = self.replace_variables(raw.get("module"), ("targets", name, "module"))
        if not isinstance(module, str):
            misspelt = [str(key) for key in raw if did_you_mean(str(key), ["module"])]
            hint = (
                f"; is {misspelt[0]!r} a misspelling?" if "module" not in raw and misspelt else ""
            )
            raise ConfigError(f"{self.where('targets', name)}: key `module` is missing{hint}")
        if "executor" not in raw:
            is_here = _is_on_this_machine(self, name, module)
            return module, ExecutorName.LOCAL if is_here else ExecutorName.KUBERNETES
        keys = ("targets", name, "executor")
        return module, _read_executor_name(
            self, keys, self.replace_variables(raw["executor"], keys)
        )

    def unknown_keys(
        self, name: str, options: Callable[[Mapping[str, Any]], Iterable[str]]
    ) -> list[str]:
        """An error for each key of a target that is neither the tool's, nor one of its module's `options`
        (which may depend on their values), nor a chart value."""
        section = self.section(name)
        allowed = [*options(section), *TARGET_KEYS]
        problems = [
            f"{self.where('targets', name, key)}: {unknown_option(key, allowed)}"
            for key in map(str, section)
            if key not in allowed
        ]
        return problems + self.unknown_chart_keys(section, ("targets", name))

    def unknown_shared_keys(self) -> list[str]:
        """An error for each key below the file's `kubernetes` that isn't a chart value."""
        return self.unknown_chart_keys({"kubernetes": self._kubernetes}, ())

    def unknown_chart_keys(self, section: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
        keys = (*keys, "kubernetes")
        values = section.get("kubernetes") or {}
        if not isinstance(values, dict):
            return [f"{self.where(*keys)}: needs keys below it, as in {CHART_VALUES}"]
        allowed = chart_keys()
        return [
            f"{self.where(*keys, key)}: unknown key{did_you_mean(key, allowed)}"
            f" (known: {', '.join(allowed)})"
            for key in map(str, values)
            if key not in allowed
        ]

    def section(self, name: str) -> dict[str, Any]:
        if name not in self._targets:
            if self.about_absence:
                raise ConfigError(self.about_absence)
            hint = did_you_mean(name, self.target_names)
            names = ", ".join(self.target_names)
            raise ConfigError(f"{self.path} has no target {name!r}{hint} (it has: {names})")
        raw = self._targets[name]
        if not isinstance(raw, dict):
            where = self.where("targets", name)
            raise ConfigError(f"{where}: needs keys below it, at least `module:`")
        return raw

    def target(self, name: str) -> Target:
        """The target of that name, with variables replaced; ConfigError if it is wrong."""
        return _read_target(self, name)

    def chart_values(self) -> Mapping[str, Any]:
        """The chart's values for all targets."""
        return self.merge_chart_values("", {})

    def merge_chart_values(self, target: str, own: Any) -> Mapping[str, Any]:
        """The chart's values for a target; ConfigError for a key that the chart doesn't have."""
        problems = self.unknown_shared_keys()
        problems += self.unknown_chart_keys({"kubernetes": own}, ("targets", target))
        if problems:
            raise ConfigError(*problems)
        shared = self.replace_variables(self._kubernetes, ("kubernetes",))
        return merge_values(shared, own)

    def replace_variables(self, value: Any, keys: tuple[str, ...]) -> Any:
        """`value` with ${VARIABLES} replaced, also in lists and mappings."""
        if isinstance(value, dict):
            return {k: self.replace_variables(v, (*keys, str(k))) for k, v in value.items()}
        if isinstance(value, list):
            return [self.replace_variables(item, keys) for item in value]
        if not isinstance(value, str):
            return value

        try:
            return replace_variables(value)
        except VariableError as error:
            raise ConfigError(f"{self.where(*keys)}: {error}") from error


def chart_keys() -> list[str]:
    """The chart values that a config file may set: all but `run`."""
    _, values = read_yaml(shipped("deployment") / "values.yaml")
    return [key for key in values if key != "run"]


def load_config(path: Path) -> Config:
    """Read a config file; ConfigError with file, line and key if it is wrong. Without one, and if none is
    named: the example's targets that need no server, on this machine."""
    about_absence = ""
    try:
        try:
            root, document = read_yaml(path)
        except FileNotFoundError:
            about_absence = (
                f"there is no config file {path}: run from the folder that has it, name it with -c, or make"
                f" one: {program()} targets --example > config.yaml"
            )
            if path != Path(CONFIG_FILE):
                raise ConfigError(about_absence) from None
            path = shipped(CONFIG_FILE)
            root, document = read_yaml(path)
            document["targets"] = {
                name: target
                for name, target in document["targets"].items()
                if target.get("executor") == ExecutorName.LOCAL
            }
            about_absence += f"\nWithout one, the targets are {', '.join(document['targets'])}"
    except DocumentError as error:
        raise ConfigError(
            error.at(f"config file {path}" if error.line is None else path)
        ) from error
    if document is None:
        raise ConfigError(f"{path} is empty: it needs `targets:` with at least one target")
    if not isinstance(document, dict):
        raise ConfigError(f"{path}:1: must be a mapping with the key `targets`")
    lines: dict[tuple[str, ...], int] = {}
    if problems := list(_note_lines(path, root, (), lines)):
        raise ConfigError(*problems)
    for key in document:
        if key not in _TOP_KEYS:
            line = lines[(str(key),)]
            hint, allowed = did_you_mean(str(key), _TOP_KEYS), ", ".join(_TOP_KEYS)
            problems.append(f"{path}:{line}: unknown key {key!r}{hint} (known: {allowed})")
    targets = document.get("targets")
    if (not isinstance(targets, dict) or not targets) and not problems:
        line = lines.get(("targets",), 1)
        problems.append(f"{path}:{line}: `targets` needs at least one target below it")
    workloads = document.get("workloads") or {}
    if not isinstance(workloads, dict):
        line = lines.get(("workloads",), 1)
        problems.append(
            f"{path}:{line}: `workloads` needs names below it, each with its definition"
        )
    if problems:
        raise ConfigError(*problems)
    assert isinstance(root, yaml.MappingNode)
    config = Config(path, document, lines, root)
    config.about_absence = about_absence
    return config


def _note_lines(
    path: Path, node: yaml.Node | None, keys: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> Iterator[str]:
    """Record the position of each key; a problem for each that isn't a text."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        place = (*keys, str(key_node.value))
        line = key_node.start_mark.line + 1
        if key_node.tag not in _TEXT_KEYS:
            yield (
                f"{path}:{line}: YAML doesn't read the key {key_node.value} as text: put it in quotes"
            )
        lines[place] = line
        yield from _note_lines(path, value_node, place, lines)


# --- a target ---------------------------------------------------------------------------------------


def _read_target(config: Config, name: str) -> Target:
    """The target of that name, with variables replaced; ConfigError if it is wrong."""
    problems = Problems()
    values = {
        key: problems.collect(config.replace_variables, value, ("targets", name, str(key)))
        for key, value in config.section(name).items()
    }
    place = problems.collect(config.place_of, name)
    values.pop("module", None)
    values.pop("executor", None)

    def read(read_key: Callable[[Config, str, object], _T], key: str) -> _T | None:
        return problems.collect(read_key, config, name, values.pop(key, None))

    def read_text(key: str) -> str | None:
        return problems.collect(config.read_text, values.pop(key, None), "targets", name, key)

    hour = read(_read_cost, "cost_per_hour")
    price = problems.collect(_read_price, config, name, hour, values.pop("price", None))
    pids, disturbances = read(_read_pids, "database_pids"), read(_read_disturbances, "disturbances")
    kubernetes = problems.collect(
        config.merge_chart_values, name, values.pop("kubernetes", None) or {}
    )
    server, data_dir, recipe = (
        read(_read_server, "start_server"),
        read_text("data_dir"),
        read_text("recipe"),
    )
    problems.refuse()
    assert place and price and kubernetes is not None
    module, executor = place
    return Target(
        name,
        module,
        executor,
        start_server=server,
        data_dir=data_dir,
        cost_per_hour=hour,
        price=price,
        database_pids=pids or (),
        disturbances=disturbances or (),
        recipe=recipe,
        kubernetes=kubernetes,
        options=values,
        written={
            key: raw
            for key, raw in config.section(name).items()
            if key in values and isinstance(raw, str) and list_values(raw)
        },
    )


_HERE = re.compile(r"localhost|\b127\.|::1|host=/")
"""Matches addresses on this machine: a quick check, since loading modules takes time."""


def _is_on_this_machine(config: Config, name: str, module: str) -> bool:
    """Whether all servers of a target are on loopback, which pods can't reach, or started by this tool."""
    from simulator.modules import load_module

    section = config.section(name)
    if section.get("start_server") is not None:
        return True
    try:
        values = {
            key: config.replace_variables(value, ("targets", name, str(key)))
            for key, value in section.items()
            if key != "kubernetes"
        }
        if not _HERE.search(str(values)):
            return False
        servers = load_module(module).options_model.list_addresses(values)
    except (ConfigError, OptionError):
        return False  # reported when the target is used
    return bool(servers) and all(map(re.compile(r"(localhost|/.*)(:\d+)?").fullmatch, servers))


def _read_executor_name(config: Config, keys: tuple[str, ...], value: object) -> ExecutorName:
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
        # ${VARIABLES} result in texts.
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
