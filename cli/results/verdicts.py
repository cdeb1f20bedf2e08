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
    """What became of disturbances that weren't done as they were asked for: each once, with the runs of which
    it is true."""
    disturbed = [*result.writers, *result.alone]
    found: dict[tuple[str, str], list[tuple[GroupRun, str]]] = {}
    for one in disturbed:
        for mark in one.run.marks:
            if not mark.ok:
                found.setdefault((mark.action, "failed"), []).append((one, mark.said or ""))
        for skipped in one.run.undone:
            found.setdefault((skipped.action, "was not done"), []).append((one, skipped.reason))
    for (action, what), told in found.items():
        (one, reason), *others = told
        often = f" in {len(told)} of {len(disturbed)} runs" if len(disturbed) > 1 else ""
        place = None if others else locate_run(result, one)
        yield Caveat(Kind.DISTURBANCE, f"'{action}' {what}{often}: {reason}", place)


def is_stable(result: Result) -> bool | None:
    """Whether no spread is above what is usual; None if nothing was measured twice."""
    if result.capacity is not None:
        return result.capacity.sure
    if result.command == "insert":
        known = [entry.stable for entry in result.insert_summary if entry.stable is not None]
        return all(known) if known else None
    spreads = [found.stable for found in spread_queries(result).values()]
    known = [stable for stable in spreads if stable is not None]
    return all(known) if known else None


_NAMED = (
    Kind.INCOMPLETE, Kind.DISTURBANCE, Kind.INVALID, Kind.CLIENT_BOUND, Kind.SATURATED,
    Kind.NOT_AS_ASKED, Kind.BUSY, Kind.SHORT, Kind.UNSTABLE,
)  # fmt: skip


def list_kinds(result: Result) -> list[str]:
    """Why the result is to be doubted, a word each, the gravest first: what would make its figures
    others, not how sure they are, which an interval shows."""
    found = {caveat.kind for caveat in find_caveats(result)}
    return [str(kind) for kind in _NAMED if kind in found]


def summarize_doubts(result: Result) -> list[str]:
    """What makes the result unfit to be compared, a few words each."""
    found = find_caveats(result)
    runs = len(result.writers)
    whole = (Kind.NOT_MEASURED, Kind.INCOMPLETE, Kind.DISTURBANCE)
    texts = [w.text for w in found if w.kind in whole]
    invalid = [w for w in found if w.kind is Kind.INVALID]
    if result.command == "capacity":
        return texts + [w.text for w in found if w.kind in (Kind.UNSURE, Kind.CLIENT_BOUND)]
    if result.command == "query":
        return texts + [w.text for w in found if w.kind in (Kind.INVALID, Kind.CLIENT_BOUND)]
    if result.command in ("tune", "clients"):
        return texts + [caveat.text for caveat in invalid]
    if invalid:
        are = "is" if len(invalid) == 1 else "are"
        texts.append(f"{len(invalid)} of {runs} runs {are} invalid and left out")
    bound = sum(caveat.kind is Kind.CLIENT_BOUND for caveat in found)
    if bound:
        verb = "shows" if bound == 1 else "show"
        texts.append(f"{bound} of {runs} runs {verb} the client's speed, not the database's")
    saturated = sum(caveat.kind is Kind.SATURATED for caveat in found)
    if saturated:
        are = "is" if saturated == 1 else "are"
        texts.append(f"{saturated} of {runs} runs {are} saturated")
    return texts
