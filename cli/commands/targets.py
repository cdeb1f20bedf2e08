"""`run.py targets`: the targets, what each supports, and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import config_option, debug_option

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from simulator.contract import PrimaryKey
    from simulator.modules.base import AnyModule, Support

    from ..plan.config import Config


@click.command()
@click.argument("target", required=False)
@config_option
@click.option("--example", is_flag=True, help="Print an example config file.")
@debug_option
def targets(target: str | None, config_file: Path, example: bool, debug: bool) -> None:
    """List the targets of the config file, and what each supports. full: works; unsupported: the database
    can't do it; missing: this tool can't do it yet. The first word applies to everything not named after it.

    With a TARGET, list its options, which are keys in the config file or values of --extra-option.
    """  # fmt: skip
    from ..plan.config import load_config
    from ..system.errors import ConfigError
    from ..system.installation import CONFIG_FILE, read_example, shipped
    from ..system.output import note, print_text

    if example:
        print_text(read_example(shipped(CONFIG_FILE)))
        return
    config = load_config(config_file)
    print_text(_overview(config) if target is None else _options(config, target))
    if config.about_absence and target is None:
        note(config.about_absence.partition("\n")[0])
    wrong = _wrong_keys(config, config.target_names if target is None else [target])
    if wrong:
        raise ConfigError("\n".join(wrong))


def _wrong_keys(config: Config, names: Sequence[str]) -> list[str]:
    """An error for each key that a run with one of these targets would reject."""
    from functools import partial

    from ..plan.planning import option_names
    from ..system.errors import ConfigError

    problems = config.unknown_shared_keys()
    for name in names:
        try:
            module, _ = config.place_of(name)
        except ConfigError as error:
            problems.append(error.message)
            continue
        loaded = _load(module)
        if not isinstance(loaded, str):  # otherwise the table says why
            problems += config.unknown_keys(name, partial(option_names, loaded))
    return problems


def _load(module: str) -> type[AnyModule] | str:
    """The module's class, or a word on why it isn't available."""
    from simulator.errors import OptionError, PluginError

    from ..system.installation import load_if_installed
    from ..system.output import warn_once

    try:
        return load_if_installed(module) or "not installed"
    except PluginError as error:
        warn_once(str(error))
        return "broken"
    except OptionError:
        return "missing"


def _overview(config: Config) -> str:
    """A line for each target, split into tables that fit the terminal."""
    from simulator.workloads import load_workload, workload_names

    from ..show.tables import Table
    from ..system.errors import ConfigError
    from ..system.installation import load_each
    from ..system.output import terminal_width

    kinds = load_each(workload_names(), load_workload)
    schemas = {name: kind.schema for name, kind in kinds.items()}
    rows = []
    for name in config.target_names:
        try:
            module_name, executor = config.place_of(name)
        except ConfigError:
            continue  # the error below the table says why
        row = [name, module_name, executor]
        module = _load(module_name)
        if isinstance(module, str):
            rows.append([*row, *[module] * 7])
            continue
        can = module.CAPABILITIES
        rows.append(
            [
                *row,
                cell(can.insert_modes),
                cell(can.in_flight) if can.in_flight else "missing",
                cell(can.primary_keys),
                str(can.multiple_tables),
                cell(can.queries) if can.queries else "unsupported",
                str(can.indices),
                cell({name: can.workload(schema) for name, schema in schemas.items()}),
            ]
        )
    headers = [
        "Target", "Module", "Executor", "Insert modes", "In flight", "Primary keys",
        "Multiple tables", "Queries", "Indices", "Workloads",
    ]  # fmt: skip
    return Table(headers, rows, left=headers, empty="no targets").text(width=terminal_width())


_WIDEST_DEFAULT = 24


def _options(config: Config, target: str) -> str:
    """A line for each option of a target's module: name, default, meaning; its own before the common ones."""
    from tabulate import tabulate

    from simulator.errors import OptionError
    from simulator.modules import load_module
    from simulator.modules.options import Options
    from simulator.workloads import load_options_model, workload_names

    from ..plan.planning import QUERIES
    from ..system.errors import ConfigError
    from ..system.installation import load_each
    from ..system.output import terminal_width

    module_name, _ = config.place_of(target)
    try:
        module = load_module(module_name)
    except OptionError as error:
        raise ConfigError(f"{config.where('targets', target, 'module')}: {error}") from error
    shared = list(Options.model_fields)
    fields = module.options_model.model_fields
    rows = [
        [name, show_default(fields[name]), fields[name].description]
        for name in sorted(fields, key=lambda name: (name in shared, list(fields).index(name)))
    ]
    rows.append(
        [QUERIES, "", "only these queries, separated by commas (default: all of the workload)"]
    )
    for model in load_each(workload_names(), load_options_model).values():
        for name, field in model.model_fields.items():
            if name not in [row[0] for row in rows]:
                rows.append([name, show_default(field), field.description])
    # Wide enough for the longest names and defaults, with a third column that fits the terminal.
    used = (
        max(len(row[0]) for row in rows)
        + 2
        + min(_WIDEST_DEFAULT, max(len(row[1]) for row in rows))
        + 2
    )
    table = tabulate(
        rows,
        ["Option", "Default", "Meaning"],
        tablefmt="plain",
        disable_numparse=True,
        maxcolwidths=[None, _WIDEST_DEFAULT, max(30, min(70, (terminal_width() or 200) - used))],
    )
    ageing = module.CAPABILITIES.ageing
    deleted = f"older events are deleted by {ageing.way}" if ageing.way else f"not: {ageing.reason}"
    return (
        f"Options of target {target} (module {module_name}):\n\n{table}\n\n--retention: {deleted}"
    )


def show_default(field: FieldInfo) -> str:
    """The option's default, as a user would write it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def cell(supported: Mapping[PrimaryKey, Support] | Mapping[str, Support]) -> str:
    """The most common support, then the exceptions: `full`, or `full; missing: transaction`."""
    kinds = list(supported.values())
    most = max(sorted(set(kinds)), key=kinds.count)
    exceptions = [
        f"{kind}: {', '.join(name for name, support in supported.items() if support is kind)}"
        for kind in sorted(set(kinds) - {most})
    ]
    return "; ".join([str(most), *exceptions])
