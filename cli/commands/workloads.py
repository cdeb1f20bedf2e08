"""`run.py workloads`: what can be inserted, and what an event of it is."""

from __future__ import annotations

import click

from .options import debug_option


@click.command()
@click.argument("workload", required=False)
@click.option("--seed", default=0, type=click.IntRange(0, 2**64 - 1), help="Of the events shown.")
@debug_option
def workloads(workload: str | None, seed: int, debug: bool) -> None:
    """List the workloads.

    With a WORKLOAD, show its columns with a few events, its types in each database, the bytes of an event
    in each one's requests, and its queries.
    """  # fmt: skip
    from simulator.errors import OptionError
    from simulator.workloads import load_workload

    from ..errors import ConfigError
    from ..output import say
    from ..show.workloads import describe_workload, list_workloads

    try:
        say(
            list_workloads()
            if workload is None
            else describe_workload(load_workload(workload), seed)
        )
    except OptionError as error:
        raise ConfigError(str(error)) from error
