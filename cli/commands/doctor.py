"""`run.py doctor`: is everything there that a run needs?"""

from __future__ import annotations

from pathlib import Path

import click

from ..signals import Interrupts
from .options import config_option, place_options


@click.command()
@click.option(
    "-t", "--target", help="Also connect to this target's database, from where it would run."
)
@config_option()
@click.option(
    "--extra-option",
    "extra_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option for the database module, over the target's own; may be repeated.",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "kubernetes"]),
    help="Where collector and workers would run; default: the target's, or else kubernetes.",
)
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    target: str | None,
    config_file: Path,
    extra_options: tuple[str, ...],
    executor: str | None,
    debug: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Check what a run needs, in order, and say what to do about what is missing.

    Cluster and context, helm, permissions, Pod Security, the image on the nodes; with --target
    also name resolution and the database, by a run of one worker that changes nothing.
    """  # fmt: skip
    from ..diagnosis import diagnose

    interrupts = ctx.obj
    assert isinstance(interrupts, Interrupts)
    ctx.exit(
        diagnose(
            target, config_file, extra_options, executor, namespace, kubeconfig, context, interrupts
        )
    )


for _option in place_options():
    doctor = _option(doctor)
