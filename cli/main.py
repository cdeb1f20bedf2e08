"""The command line: `run.py COMMAND`; without a command, `insert`."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

import click

from simulator import __version__
from simulator.errors import SimulatorError, did_you_mean

from .system.errors import EXIT_FAILED, EXIT_USAGE, CliError
from .system.installation import CONFIG_FILE, missing_package, program
from .system.output import NO_ROOM, explain, note, prepare_streams
from .system.processes import Interrupted, Interrupts

COMMANDS = {
    "insert": "Insert events and print the rate for each worker count.",
    "query": "Run the queries and print how long each takes.",
    "mixed": "Insert and query at the same time; show what each costs the other.",
    "capacity": "Find the highest rate that holds within limits.",
    "tune": "Find the best settings for a database.",
    "clients": "Measure what the vendor's client costs compared with the lean path.",
    "campaign": "Run targets, variants and steps from a file; report on all.",
    "results": "List results, show one, or export all runs.",
    "compare": "Compare results with the first one.",
    "plot": "Draw a figure of one result, or of several together.",
    "report": "Write one HTML file with what was measured and found.",
    "publish": "Write a static site that compares candidates.",
    "targets": "List the targets of the config file and their options.",
    "workloads": "List the workloads, or show one's columns and a few events.",
    "schema": "Print the JSON schema of a kind of file, for editors.",
    "ceiling": "Print how fast this machine could generate and encode events.",
    "doctor": "Check what a run needs, with a remedy for what is missing.",
    "clean": "Show the runs in the cluster's namespace, and remove them.",
    "db": "Install databases on Kubernetes, and remove them.",
}
"""Command -> its line in `--help`, short enough for 80 columns."""
FILES = {
    **dict.fromkeys(
        ("insert", "query", "mixed", "capacity", "tune", "clients", "campaign"), "measure"
    ),
    **dict.fromkeys(("compare", "plot", "report"), "results"),
    "publish": "results",
    "ceiling": "workloads",
    **dict.fromkeys(("doctor", "clean", "db"), "cluster"),
}
"""Command -> its file in `cli/commands/`, if the name differs."""
DEFAULT_COMMAND = "insert"


class Commands(click.Group):
    """Files in `cli/commands/`, imported when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        file = FILES.get(cmd_name, cmd_name)
        command = getattr(import_module(f".commands.{file}", __package__), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own_options = {"--help", "--version"}
        if args and args[0].startswith("-") and args[0] not in own_options:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS)
            names = ", ".join(COMMANDS)
            raise click.UsageError(f"there is no command {args[0]!r}{hint} (there are: {names})")
        return super().resolve_command(ctx, args)


@click.command(cls=Commands, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="iot-database-benchmark")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Measure how fast databases ingest and query device events.

    \b
    Without a command, insert:  iotbench --target embedded
    Help on a command:          iotbench query --help
    Exit status: 0 done, 1 a run failed or is invalid, 2 wrong usage or configuration,
    3 a limit was missed or not decided, 130 ended by Ctrl-C (143 by SIGTERM).
    """


def main() -> None:
    """Run the command line and exit."""
    prepare_streams()
    sys.exit(_status(sys.argv[1:]))


def _status(arguments: list[str]) -> int:
    try:
        with Interrupts() as interrupts:
            try:
                status = commands.main(
                    arguments,
                    prog_name=program(),
                    standalone_mode=False,
                    obj=interrupts,
                )
            finally:
                interrupts.ignore()
            return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        note(error.format_message())
        if error.ctx and error.ctx.command is commands:
            note(f"\n{_targets_of(Path(CONFIG_FILE))}")
        return error.exit_code
    except Interrupted as end:
        note(f"ended by {end}: {end.left}")
        return end.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - no user is shown a bare traceback
        if "--debug" in arguments:
            note(traceback.format_exc())
        text, status = _explain_end(error)
        note(f"error: {text}")
        return status


def _explain_end(error: Exception) -> tuple[str, int]:
    """The message and exit status of a command that ended with an error."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else program()
        parameter = error.param if isinstance(error, click.MissingParameter) else None
        if parameter and error.ctx and parameter.name == "target":
            file = Path(error.ctx.params.get("config_file") or CONFIG_FILE)
            how = "--target NAME" if isinstance(parameter, click.Option) else "its name"
            line = f"which target? Give {how}; {_targets_of(file)}"
        elif isinstance(error, click.NoSuchOption) and error.option_name in _ELSEWHERE:
            line = f"no such option here: {error.option_name}; {_ELSEWHERE[error.option_name]}"
        else:
            line = error.format_message().rstrip(".")
            line = line[:1].lower() + line[1:]
        return f"{line}\nSee: {command} --help", error.exit_code
    if isinstance(error, CliError):
        return error.message, error.exit_code
    if isinstance(error, SimulatorError):
        return str(error), EXIT_USAGE
    if isinstance(error, ModuleNotFoundError) and (text := missing_package(error)):
        return text, EXIT_USAGE
    if isinstance(error, UnicodeEncodeError):
        return explain(error), EXIT_USAGE
    if isinstance(error, OSError) and error.errno in NO_ROOM:  # click's own printing
        return f"can't write: {explain(error)}", EXIT_FAILED
    text = (
        f"unexpected {type(error).__name__}: {error}\nThis is a defect; add --debug to see where."
    )
    return text, EXIT_FAILED


_ELSEWHERE = {"--limit": "`insert`, `query`, `mixed` and `capacity` keep to limits"}
"""Options of other commands, with their purpose."""


def _targets_of(file: Path) -> str:
    """The targets of the config file, or why they are unknown."""
    from .plan.config import load_config

    try:
        config = load_config(file)
        return config.about_absence or f"{file} has the targets {', '.join(config.target_names)}"
    except CliError as error:
        return error.message
