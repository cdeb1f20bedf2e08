"""`run.py campaign`: several commands in one go, which may be left alone over night."""

from __future__ import annotations

from pathlib import Path

import click

from .options import FolderType, config_option, debug_option, live_options


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_option
@click.option(
    "--output",
    type=FolderType(
        "a campaign resumes from its folder: name one here, and copy it", file_okay=False
    ),
    help="Folder of this campaign, with all results; default: campaigns/ and the file's name"
    " (with --size: and the size's).",
)
@click.option(
    "--dry-run", is_flag=True, help="Check everything, print the plan and its time, start nothing."
)
@click.option(
    "--stop-on-error", is_flag=True, help="End at the first job that fails instead of going on."
)
@click.option(
    "--yes", is_flag=True, help="With install: don't ask to confirm the Kubernetes context."
)
@click.option(
    "--confirm-context",
    metavar="NAME",
    help="Don't ask if the context has this name; do nothing if it has another.",
)
@click.option(
    "--allow-run",
    is_flag=True,
    help="Allow what FILE runs here, and its options that decide who gets secrets, without asking.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="CANDIDATE",
    help="Leave out a target, or one of its variants: it isn't measured, nor in the report; what it has"
    " measured is kept. May be repeated.",
)
@click.option("--size", help="A size that FILE defines below `sizes`, as in quick.")
@click.option(
    "--report-only",
    is_flag=True,
    help="Run nothing: make the report, with ranking and verdict, from the results so far.",
)
@click.option(
    "--example",
    is_flag=False,
    flag_value="steps",
    type=click.Choice(["steps", "requirements"]),
    help="Print an example file: one with steps of its own, or with requirements that end in a verdict.",
)
@live_options
@debug_option
@click.pass_context
def campaign(
    ctx: click.Context,
    /,
    file: Path | None,
    config_file: Path,
    output: Path | None,
    dry_run: bool,
    stop_on_error: bool,
    yes: bool,
    confirm_context: str | None,
    allow_run: bool,
    without: tuple[str, ...],
    size: str | None,
    report_only: bool,
    example: str | None,
    live: bool,
    open_live: bool,
    prometheus_file: Path | None,
    debug: bool,
) -> None:
    """Run the campaign in FILE: targets, variants of options, steps or requirements; then one report with a
    ranking, and the verdict on the requirements.

    If it is killed, the same command resumes after the last completed run. A job that fails is
    noted, and the others go on.
    """  # fmt: skip
    from ..run.campaign.campaign import open_campaign
    from ..run.campaign.definition import EXAMPLES
    from ..run.campaign.running import report_only as make_report
    from ..run.campaign.running import run_campaign, show_plan
    from ..run.install.work import Consent
    from ..run.live import choose_live
    from ..system.installation import read_example
    from ..system.output import print_text

    if example:
        print_text(read_example(EXAMPLES[example]))
        return
    if file is None:
        raise click.UsageError("name a FILE; to make one: campaign --example > campaign.yaml")
    opened = open_campaign(file, config_file, output, ctx.obj, without, size)
    if dry_run:
        show_plan(opened)
        return
    if report_only:
        ctx.exit(make_report(opened))
    consent = Consent(yes, confirm_context)
    page = choose_live(live, open_live, prometheus_file)
    ctx.exit(run_campaign(opened, consent, stop_on_error, debug, page, allow_run))
