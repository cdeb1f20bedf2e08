"""`run.py doctor`: is everything there that a run needs?"""

from __future__ import annotations

from typing import Any

import click

from simulator.contract import DataSet

from ..system.signals import Interrupts
from .options import (
    config_option,
    debug_option,
    extra_option,
    option_of,
    place_options,
    request_of,
    workload_option,
)


@click.command()
@click.option(
    "-t", "--target", help="Also connect to this target's database, from where it would run."
)
@config_option()
@extra_option
@option_of(DataSet, "workload")
@workload_option
@click.option(
    "--executor",
    type=click.Choice(["local", "kubernetes"]),
    help="Where collector and workers would run; default: the target's, or else kubernetes.",
)
@debug_option
@place_options
@click.pass_context
def doctor(ctx: click.Context, /, **given: Any) -> None:
    """Check what a run needs, in order, and say what to do about what is missing.

    Cluster and context, helm, permissions, Pod Security, the image on the nodes; with --target
    also name resolution and the database, by a run of one worker that changes nothing, and whether
    the workload can be stored in it.
    """  # fmt: skip
    from ..run.diagnosis import diagnose

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    ctx.exit(diagnose(request_of(given), interrupts))
