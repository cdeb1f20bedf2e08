"""The caveats of a result: where all rules come together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .caveats import Caveat, Kind
from .model import GroupRun, Result
from .rules import (
    find_in_inserts,
    find_in_queries,
    find_in_reads,
    find_in_whole,
    find_not_as_asked,
    find_own_statements,
    find_unknown_use,
    locate_run,
    spread_queries,
)
from .searches import find_in_capacity, find_in_clients, find_in_tuning


def find_caveats(result: Result) -> list[Caveat]:
    """All caveats of the result, the gravest first."""
    rules = [find_in_inserts, find_in_reads]
    if result.command == "query":
        rules = [find_in_queries]
    if result.command == "capacity":
        rules = [find_in_capacity]
    if result.command == "tune":
        rules = [find_in_tuning]
    if result.command == "clients":
        rules = [find_in_clients]
    rules += [find_not_as_asked, find_own_statements, find_unknown_use]
    return [
        caveat for rule in (find_in_whole, find_skipped_faults, *rules) for caveat in rule(result)
    ]


def find_skipped_faults(result: Result) -> Iterator[Caveat]:
    """What became of disturbances that weren't done as they were asked for, each once, with the runs of
    which it is true."""
    disturbed = [*result.writers, *result.alone]
    faults: dict[tuple[str, str], list[tuple[GroupRun, str]]] = {}
    for group_run in disturbed:
        for mark in group_run.run.marks:
            if not mark.ok:
                faults.setdefault((mark.action, "failed"), []).append((group_run, mark.said or ""))
        for skipped in group_run.run.undone:
            faults.setdefault((skipped.action, "was not done"), []).append(
                (group_run, skipped.reason)
            )
    for (action, fate), cases in faults.items():
        (group_run, reason), *others = cases
        often = f" in {len(cases)} of {len(disturbed)} runs" if len(disturbed) > 1 else ""
        place = None if others else locate_run(result, group_run)
        yield Caveat(Kind.DISTURBANCE, f"'{action}' {fate}{often}: {reason}", place)


def is_stable(result: Result) -> bool | None:
    """Whether no spread is above what is usual; None if nothing was measured twice."""
    if result.capacity is not None:
        return result.capacity.sure
    if result.command == "insert":
        flags = [entry.stable for entry in result.insert_summary if entry.stable is not None]
        return all(flags) if flags else None
    spreads = [spread.stable for spread in spread_queries(result).values()]
    flags = [stable for stable in spreads if stable is not None]
    return all(flags) if flags else None


_NAMED = (
    Kind.INCOMPLETE, Kind.DISTURBANCE, Kind.INVALID, Kind.CLIENT_BOUND, Kind.SATURATED,
    Kind.NOT_AS_ASKED, Kind.BUSY, Kind.SHORT, Kind.UNSTABLE,
)  # fmt: skip


def list_kinds(result: Result) -> list[str]:
    """Why the result is to be doubted, a word each, the gravest first: what would change its
    figures, not how sure they are, which an interval shows."""
    kinds = {caveat.kind for caveat in find_caveats(result)}
    return [str(kind) for kind in _NAMED if kind in kinds]


def summarize_doubts(result: Result) -> list[str]:
    """What makes the result unfit to be compared, a few words each."""
    caveats = find_caveats(result)
    runs = len(result.writers)
    whole = (Kind.NOT_MEASURED, Kind.INCOMPLETE, Kind.DISTURBANCE)
    texts = [caveat.text for caveat in caveats if caveat.kind in whole]
    invalid = [caveat for caveat in caveats if caveat.kind is Kind.INVALID]
    if result.command == "capacity":
        return texts + [
            caveat.text for caveat in caveats if caveat.kind in (Kind.UNSURE, Kind.CLIENT_BOUND)
        ]
    if result.command == "query":
        return texts + [
            caveat.text for caveat in caveats if caveat.kind in (Kind.INVALID, Kind.CLIENT_BOUND)
        ]
    if result.command in ("tune", "clients"):
        return texts + [caveat.text for caveat in invalid]
    if invalid:
        are = "is" if len(invalid) == 1 else "are"
        texts.append(f"{len(invalid)} of {runs} runs {are} invalid and left out")
    bound = sum(caveat.kind is Kind.CLIENT_BOUND for caveat in caveats)
    if bound:
        verb = "shows" if bound == 1 else "show"
        texts.append(f"{bound} of {runs} runs {verb} the client's speed, not the database's")
    saturated = sum(caveat.kind is Kind.SATURATED for caveat in caveats)
    if saturated:
        are = "is" if saturated == 1 else "are"
        texts.append(f"{saturated} of {runs} runs {are} saturated")
    return texts
