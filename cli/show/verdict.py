"""The beginning of a report: the answer in words, and the machines it was found on."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.units import format_count

from ..results.caveats import Kind
from ..results.comparison import compare
from ..results.model import Result, as_mapping
from ..results.naming import NamedResult, name_database
from ..results.verdicts import list_kinds
from . import words
from .notes import describe_limits
from .ratios import lead_comparison
from .tables import format_ms

MOST_SENTENCES = 5
MOST_MACHINES = 4
"""As many as are visible without scrolling; the rest are counted."""
_LONGEST = 500
"""Characters of all sentences together, without the first."""
_MOST_CHARACTERS = 60
"""Characters of listed names."""


def judge_results(results: Sequence[NamedResult]) -> list[str]:
    """The answer for each kind of result: what a single one found, or how several compare."""
    sentences = []
    hidden = 0
    for kind in dict.fromkeys(named.result.kind for named in results):
        of_kind = [named for named in results if named.result.kind == kind]
        names = [named.name for named in of_kind]
        if len(of_kind) == 1:
            prefix = "" if len(results) == 1 else f"{names[0]}: "
            sentences.append(prefix + _answer_shortly(of_kind[0].result))
            continue
        # Comparing hundreds takes seconds, and no more than these have a sentence here.
        compared = of_kind[: MOST_SENTENCES + 1]
        hidden += len(of_kind) - len(compared)
        led = lead_comparison(names[: len(compared)], compare([named.result for named in compared]))
        sentences += led or [f"{kind}: these have no figure in common to compare."]
    total = len(sentences) + hidden
    shown = sentences[:MOST_SENTENCES]
    if total > len(shown):
        shown = shown[: MOST_SENTENCES - 1]
    while len(shown) > 1 and sum(map(len, shown)) > _LONGEST:
        shown.pop()
    more = total - len(shown)
    if not more:
        return shown
    return [*shown, f"{format_count(more, 'more sentence is', 'more sentences are')} below."]


def list_doubts(results: Sequence[NamedResult], noun: str = "results") -> str:
    """Which results to doubt, with a short reason each; empty if none. `noun`: what to call them, since
    several may share a name."""
    doubts: dict[str, dict[str, None]] = {}
    for named in results:
        for kind in list_kinds(named.result):
            doubts.setdefault(kind, {})[named.name] = None
    total = len({named.name for named in results})
    if not doubts:
        return ""
    if total == 1:
        return f"Treat with care: {', '.join(doubts)}."
    parts = [
        f"{_DOUBTS[Kind(kind)]} {_name_some(list(names), total, noun)}"
        for kind, names in doubts.items()
    ]
    return f"Treat with care: {'; '.join(parts)}."


_DOUBTS = {
    Kind.INCOMPLETE: "not all runs were made in",
    Kind.DISTURBANCE: "a disturbance failed or was not done in",
    Kind.INVALID: "runs were invalid in",
    Kind.CLIENT_BOUND: "the client was the limit in",
    Kind.SATURATED: "runs were saturated in",
    Kind.NOT_AS_ASKED: "not everything asked for was measured in",
    Kind.BUSY: "other programs were busy during",
    Kind.SHORT: "runs were short in",
    Kind.UNSTABLE: "runs differed much in",
}


def describe_hardware(results: Sequence[NamedResult], noun: str = "results") -> list[str]:
    """A line for each kind of machine, with the results measured there. `noun`: see `list_doubts`."""
    machines: dict[str, dict[str, None]] = {}
    for named in results:
        for line in _list_machines(named.result):
            machines.setdefault(line, {})[named.name] = None
    total = len({named.name for named in results})
    alone = all(len(names) == total for names in machines.values())
    lines = [
        line if alone else f"{line} ({_name_some(list(names), total, noun)})"
        for line, names in machines.items()
    ]
    if len(lines) > MOST_MACHINES:
        more = len(lines) - MOST_MACHINES + 1
        lines[MOST_MACHINES - 1 :] = [f"{more:,} more machines and databases: see “Environment”"]
    return lines


def _answer_shortly(result: Result) -> str:
    """The answer in a sentence or two; of many queries, only the fastest and the slowest."""
    if result.command == "query" and len(result.query_summary) > _MOST_QUERIES:
        times = sorted(result.query_summary, key=lambda entry: entry.avg)
        ends = [
            f"{format_ms(1000 * entry.avg)} ms ({entry.query})" for entry in (times[0], times[-1])
        ]
        limits = describe_limits(result)
        return f"On average queries took {' to '.join(ends)}.{f' {limits}' if limits else ''}"
    return words.give_answer(result)


_MOST_QUERIES = 3


def _list_machines(result: Result) -> list[str]:
    """The client's machine, the cluster's nodes, and the resources of the database, as far as known."""
    client = result.describe("client")
    usable, cpus = client.get("cpus_usable"), client.get("cpus")
    parts = [client.get("cpu_model"), f"{cpus} CPUs" if cpus else None]
    if usable and usable != cpus:
        parts.append(f"{usable} of them usable")
    if client.get("memory_mb"):
        parts.append(f"{client['memory_mb'] / 1000:,.1f} GB of memory")
    parts.append(client.get("system"))
    text = ", ".join(str(part) for part in parts if part)
    lines = [f"Load from: {text}" if text else "Load from: an unknown machine"]
    kubernetes = result.describe("kubernetes")
    nodes = list(as_mapping(kubernetes.get("nodes")).values())
    kinds = [
        ", ".join(
            f"{name.replace('_', ' ')} {node[name]}"
            for name in ("instance_type", "cpu", "memory")
            if node.get(name)
        )
        for node in map(as_mapping, nodes)
    ]
    counts = [f"{kinds.count(kind)} × ({kind})" for kind in dict.fromkeys(filter(None, kinds))]
    if counts:
        lines.append(f"Nodes of the cluster: {', '.join(counts)}")
    server = name_database(result) or result.target
    used = [run.resources for run in result.runs]
    database = next(
        (resources for resources in used if resources is not None and resources.cpus), None
    )
    if database is None:
        lines.append(f"Database ({server}): its hardware is unknown")
    else:
        where = "on the same machine as the load"
        if database.nodes:
            where = f"on {format_count(len(database.nodes), 'node')} of the cluster"
        lines.append(f"Database ({server}): {database.cpus:g} CPUs, {where}")
    return lines


def _name_some(names: Sequence[str], of: int, noun: str) -> str:
    if len(names) == of:
        return f"all {of:,} {noun}"
    text = ", ".join(names)
    return text if len(text) <= _MOST_CHARACTERS else f"{len(names):,} of {of:,}"
