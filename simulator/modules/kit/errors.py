"""Errors that every database has, in the same words for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import Retryable, SimulatorError, one_line
from ..base import Job

CONNECTION_LOST = "connection_lost"
"""The kind under which lost connections are counted in a result."""


def connection_lost(detail: object) -> Retryable:
    """A connection was lost; whether the request was stored has to be found out."""
    return Retryable(CONNECTION_LOST, one_line(detail))


class MissingTable(SimulatorError):
    """There is no such table."""


def missing_table(problem: str, job: Job) -> MissingTable:
    """A table that isn't there, and the command that makes and fills it.

    `problem`: what the database says, or what was asked for.
    """
    return MissingTable(f"{problem}; run insert first ({insert_command(job)})")


def lost_table(problem: str) -> Retryable:
    """A node doesn't know a table that this run has made."""
    return Retryable(
        "missing_table",
        f"{problem}; this run created it: a node that has just started may not know it yet, or the"
        " table was dropped",
    )


def nothing_to_query(table: str, job: Job) -> MissingTable:
    """The table that the queries are about isn't there."""
    return MissingTable(
        f"there is no table {table} to query: run insert first, with --tables single"
        f" ({insert_command(job)})"
    )


def made_otherwise(table: str, reason: str, remedy: str) -> SimulatorError:
    """A table that was there before doesn't go with the run's events; `remedy`: what to do, before
    `of the run that made it`."""
    return SimulatorError(
        f"table {table} was made for other columns: {reason}; {remedy} of the run that made it"
        " (for example tags=row or table)"
    )


def somebody_elses(names: Sequence[str], elsewhere: str) -> SimulatorError:
    """A run needs names of tables that somebody else has made; `elsewhere`: where it could make its own."""
    return SimulatorError(
        f"the run needs the names {', '.join(names)}, but this tool did not make what has them, so nothing"
        f" was dropped or written: use {elsewhere}, or another name for the workload's table; if"
        " nobody needs them, rename or drop them yourself"
    )


INSERT_REMEDY = "run without --no-clean, or with the options"
"""The remedy of `made_otherwise` for a run that inserts."""
QUERY_REMEDY = "use the options"
"""The same for a run that asks."""


def insert_command(job: Job) -> str:
    """The command that fills the tables of the job's workload."""
    return f"{job.program} insert --target {job.target} --workload {job.workload}"


def stored_by_earlier_run(text: str) -> SimulatorError:
    """The database has an event already, and no request of this run can have stored it."""
    return SimulatorError(
        f"{text}; an earlier run has stored the event: run without --no-clean, or with another --seed"
    )


def unreachable(system: str, failure: Retryable) -> SimulatorError:
    """No node of the endpoint could be reached. `failure` names the last one and says why."""
    return SimulatorError(
        f"can't connect to {system} at {failure};"
        " check that the server runs and that endpoint names it"
    )
