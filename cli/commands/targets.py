"""`run.py targets`: which targets there are, and what each supports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from simulator.contract import PrimaryKey
    from simulator.modules.base import Support


@click.command()
@click.option(
    "-c",
    "--config",
    "config_file",
    default="config.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Config file with the targets.",
)
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def targets(config_file: Path, debug: bool) -> None:
    """List the targets of the config file, and what can be done with each.

    full: works; unsupported: the database has no such thing; missing: this tool can't do it yet.
    """  # fmt: skip
    from tabulate import tabulate

    from simulator.errors import OptionError
    from simulator.modules import load_module

    from ..config import load_config
    from ..output import say

    config = load_config(config_file)
    rows = []
    for name in config.target_names:
        module_name, executor = config.place_of(name)
        row = [name, module_name, executor]
        try:
            can = load_module(module_name).CAPABILITIES
        except OptionError:
            rows.append([*row, *["missing"] * 6])
            continue
        rows.append(
            [
                *row,
                cell(can.insert_modes),
                cell(can.primary_keys),
                str(can.multiple_tables),
                cell(can.queries) if can.queries else "unsupported",
                str(can.indices),
                cell(can.workloads),
            ]
        )
    headers = [
        "Target", "Module", "Executor", "Insert modes", "Primary keys", "Multiple tables",
        "Queries", "Indices", "Workloads",
    ]  # fmt: skip
    say(tabulate(rows, headers, tablefmt="plain", disable_numparse=True))


def cell(supported: Mapping[PrimaryKey, Support] | Mapping[str, Support]) -> str:
    """`full`, or which are what: `full: copy, single; missing: transaction`."""
    kinds = list(dict.fromkeys(supported.values()))
    if len(kinds) == 1:
        return str(kinds[0])
    return "; ".join(
        f"{kind}: {', '.join(name for name, support in supported.items() if support is kind)}"
        for kind in kinds
    )
