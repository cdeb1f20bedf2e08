"""`run.py workloads`: what can be inserted, and what an event of it is."""

from __future__ import annotations

from pathlib import Path

import click

from .options import (
    Duration,
    config_option,
    debug_option,
    on_command_line,
    output_option,
    workload_option,
)


@click.command()
@click.argument("workload", required=False)
@config_option("Config file with further workloads.")
@workload_option
@click.option("--seed", default=0, type=click.IntRange(0, 2**64 - 1), help="Of the events shown.")
@click.option("--plot", is_flag=True, help="Draw the values of some devices over time instead.")
@click.option(
    "--span",
    "span_s",
    default="1h",
    show_default=True,
    type=Duration(above=True),
    help="With --plot: how long a time is drawn.",
)
@output_option(None, "With --plot: file to write, .svg or .png. Default: NAME.svg here.")
@debug_option
@click.pass_context
def workloads(
    ctx: click.Context,
    workload: str | None,
    config_file: Path,
    workload_pairs: tuple[str, ...],
    seed: int,
    plot: bool,
    span_s: float,
    output: Path | None,
    debug: bool,
) -> None:
    """List the workloads: those of this tool, and those below `workloads` in the config file.

    With a WORKLOAD (a name, or a file with a definition), show its columns with a few events, its types in
    each database, the bytes of an event in each one's requests, and its queries.
    """  # fmt: skip
    from ..errors import ConfigError
    from ..output import note, say
    from ..render.workloads import describe_workload, list_workloads
    from ..workloads import find_config, make_workload

    config = find_config(config_file)
    about_plot = on_command_line(ctx) & {"span_s", "output"}
    if about_plot and not plot:
        raise ConfigError("--span and --output go with --plot")
    if workload is None:
        if plot or workload_pairs:
            raise ConfigError("--plot and --workload-option need a WORKLOAD")
        say(list_workloads(config))
        return
    made = make_workload(workload, config, workload_pairs, seed)
    if not plot:
        say(describe_workload(made))
        return
    from ..render.plotting import write_workload_plot

    note(f"Written: {write_workload_plot(made, round(span_s * 1000), output)}")
