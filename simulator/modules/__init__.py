"""How each database is written and queried. One package per database; `base` is the contract.

Another package adds a module through an entry point of the group `iot_database_benchmark.modules`: its name
is the value of `module:` in config.yaml, its object is the module's class.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from ..contract import Role, RunSettings
from ..errors import (
    DriverMissing,
    OptionError,
    SimulatorError,
    did_you_mean,
    hide,
    load_plugin,
    plugin_names,
)
from ..workloads import load_workload
from ..workloads.base import Workload
from ..workloads.numbering import add_history, make_retention
from .base import AnyModule, Job, Module
from .options import Options, parse_options
from .own_statements import refuse_schema, refuse_statements

if TYPE_CHECKING:
    from .base import AnyModule


ENTRY_POINTS = "iot_database_benchmark.modules"


@cache
def _own_names() -> frozenset[str]:
    """Names of the folders next to this file, without `kit`, which modules are built from."""
    return frozenset(
        module.name for module in iter_modules(__path__) if module.ispkg and module.name != "kit"
    )


def module_names() -> list[str]:
    """All modules, including those of other packages."""
    return sorted({*_own_names(), *plugin_names(ENTRY_POINTS)})


def load_module(name: str) -> type[AnyModule]:
    """The class of a module; OptionError if no module has that name, or another package's can't be loaded;
    DriverMissing if it lacks a package.

    A class has its folder's name: `azure_data_explorer` has `AzureDataExplorer`. It is imported only on use.
    Its late imports, which are most of the drivers, take 1 s of CPU for all modules together.
    """
    try:
        return _import_module(name)
    except ModuleNotFoundError as error:
        if name in _own_names():
            raise DriverMissing(error.name, name) from error
        raise


def _import_module(name: str) -> type[AnyModule]:
    module_type: type[AnyModule] | None
    if name in _own_names():
        module_type = getattr(import_module(f".{name}", __name__), name.title().replace("_", ""))
    else:
        module_type = load_plugin(ENTRY_POINTS, name, Module)
    if module_type is None:
        names = module_names()
        raise OptionError(
            f"there is no module {name!r} in this version (it has: {', '.join(names)})"
            f"{did_you_mean(name, names)}"
        )
    for package in module_type.IMPORTED_LATE:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return module_type


def _list_dialects() -> dict[str, str]:
    """Kind of server for which workloads may have their own statements -> its module."""
    dialects: dict[str, str] = {}
    for name in _own_names():
        with suppress(ModuleNotFoundError):
            dialects |= dict.fromkeys(load_module(name).CAPABILITIES.dialects, name)
    return {str(dialect): name for dialect, name in sorted(dialects.items())}


def find_own_problem(name: str, of_schema: bool = False) -> str | None:
    """Why a workload can't have its own statements for a module, for queries or for its schema. None if it
    can, as far as that is known for a module that may not be installed."""
    names = module_names()
    if name not in names:
        dialects = _list_dialects()
        known = [*names, *dialects]
        if name not in dialects:
            return f"there is no module {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})"
        name = dialects[name]
    try:
        can = load_module(name).CAPABILITIES
    except ModuleNotFoundError:
        return None
    if of_schema:
        return None if can.own_schema.language else refuse_schema(name, can.own_schema)
    return None if can.statements else refuse_statements(name)


def load_whole_module(name: str) -> type[AnyModule]:
    """As `load_module`, with the module's late imports: for processes that will need them, before anything
    waits for them or is forked from this process."""
    module_type = load_module(name)
    for package in module_type.IMPORTED_LATE:
        import_module(package)
    return module_type


_log = logging.getLogger(__name__)


def build(settings: RunSettings) -> tuple[Workload, AnyModule]:
    """The workload and the module named in the settings."""
    module_type = load_whole_module(settings.module)
    ignored = list_ignored_keys(settings, module_type.options_model)
    own = {key: text for key, text in settings.secret.items() if key not in ignored}
    warning = ""
    if ignored:
        warning = f"ignored keys of the Secret that are not options: {', '.join(ignored)}"
        _log.warning(warning)
    try:
        options = parse_options(
            module_type.options_model,
            {**settings.options, **own},
            lambda _: f"target {settings.target}",
        )
    except OptionError as error:
        raise OptionError(f"{error}; {warning}" if warning else str(error)) from error
    public = json.dumps([settings.module, settings.target, options.public()], default=str)
    hide([*options.secrets(), settings.token], public)
    workload_type = load_workload(settings.data.workload, settings.data.definition)
    workload_options = parse_options(
        workload_type.options_model, settings.data.workload_options, lambda _: "workload"
    )
    workload = workload_type(settings.data.seed, **workload_options.model_dump())
    if settings.data.has_history:
        workload = add_history(workload, settings.data)
    writing = settings.groups_of(Role.WRITE, Role.FILL)
    retention = None
    if writing and settings.data.retention_s is not None:
        retention = make_retention(workload, settings.data, writing[0].load)
    return workload, module_type(options, Job.of(settings, workload.schema, retention))


def list_ignored_keys(settings: RunSettings, model: type[Options]) -> list[str]:
    """Keys of the mounted Secret that aren't options of the module."""
    names = model.option_names({**settings.options, **settings.secret})
    return sorted(settings.secret.keys() - set(names))


_NUMBER = re.compile(r"(?:[A-Za-z]+ )*v?(\d+(?:\.\d+)*)")
"""`18.4` of `PostgreSQL 18.4 (Debian)`, `23.1.11` of `CockroachDB CCL v23.1.11`, `2.0.1` of `2.0.1-beta`."""


def check_versions(module: AnyModule) -> None:
    """SimulatorError if the server is older than `Module.OLDEST`. A version in an unknown form is accepted.
    Called after `open`."""
    for product, version in module.read_versions().items():
        oldest, number = module.OLDEST[product], find_number(version)
        if number is None:
            continue
        found, other = ([int(part) for part in text.split(".")] for text in (number, oldest))
        # Compared over the numbers that both have.
        if found[: len(other)] < other[: len(found)]:
            raise SimulatorError(
                f"the server has {product} {number}, and module {module.name} needs {oldest} or later:"
                f" {module.UPGRADE}"
            )


def find_number(version: str) -> str | None:
    """The number in a version as the server reports it; None if there is none at that place."""
    match = _NUMBER.match(version)
    return match and match[1]
