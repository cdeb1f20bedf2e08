"""`run.py doctor`: is everything there that a run needs?"""

from __future__ import annotations

from typing import Any

import click

from ..plan.requests import Request
from ..system.signals import Interrupts
from .options import debug_option, make_request, options_of, place_options


@click.command()
@options_of(
    Request,
    "target",
    required=False,
    default=None,
    help="Also connect to this target's database, from where it would run.",
)
@options_of(Request, "config_file", "extra_options", "workload", "workload_pairs")
@options_of(
    Request,
    "executor",
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
    ctx.exit(diagnose(make_request(ctx, Request, target=""), interrupts))
