"""What a report begins with: the answer in words, and on which machines it was found."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.units import format_count

from ..results.caveats import Kind
from ..results.comparison import compare
from ..results.model import Result, as_mapping
from ..results.verdicts import list_kinds
from . import words
from .chart import NamedResult
from .limits import describe_limits
from .ratios import lead_comparison
from .tables import format_ms

MOST_SENTENCES = 5
MOST_MACHINES = 4
"""So many are seen without scrolling; more are counted."""
_LONGEST = 500
"""Characters of all sentences together, but for the first."""
_MOST_CHARACTERS = 60
"""Of names that are listed."""


def judge_results(results: Sequence[NamedResult]) -> list[str]:
    """The answer for each kind of result: of one what was found, of several how they compare."""
    sentences = []
    hidden = 0
    for kind in dict.fromkeys(one.result.kind for one in results):
        own = [one for one in results if one.result.kind == kind]
        names = [one.name for one in own]
        if len(own) == 1:
            prefix = "" if len(results) == 1 else f"{names[0]}: "
            sentences.append(prefix + _answer_shortly(own[0].result))
            continue
        # To compare hundreds takes seconds, and no more of them are told here.
        told = own[: MOST_SENTENCES + 1]
        hidden += len(own) - len(told)
        led = lead_comparison(names[: len(told)], compare([one.result for one in told]))
        sentences += led or [f"{kind}: these have no figure in common that could be compared."]
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


def list_doubts(results: Sequence[NamedResult], what: str = "results") -> str:
    """Which results to doubt, and why in a word each; empty if none. `what` names what they are: several may
    have one name."""
    doubts: dict[str, dict[str, None]] = {}
    for one in results:
        for kind in list_kinds(one.result):
            doubts.setdefault(kind, {})[one.name] = None
    total = len({one.name for one in results})
    if not doubts:
        return ""
    if total == 1:
        return f"Treat with care: {', '.join(doubts)}."
    told = [
        f"{_DOUBTS[Kind(kind)]} {_name_some(list(names), total, what)}"
        for kind, names in doubts.items()
    ]
    return f"Treat with care: {'; '.join(told)}."


_DOUBTS = {
    Kind.INCOMPLETE: "not all runs were made in",
    Kind.DISTURBANCE: "a disturbance failed or was not done in",
    Kind.INVALID: "runs were invalid in",
    Kind.CLIENT_BOUND: "the client was the limit in",
    Kind.SATURATED: "the offered rate was not kept up with in",
    Kind.NOT_AS_ASKED: "what was measured is not all that was asked for in",
    Kind.BUSY: "other programs were busy during",
    Kind.SHORT: "runs were short in",
    Kind.UNSTABLE: "runs differed much in",
}


def describe_hardware(results: Sequence[NamedResult], what: str = "results") -> list[str]:
    """A line for each kind of machine, with the results that were measured there. `what`: see
    `list_doubts`."""
    found: dict[str, dict[str, None]] = {}
    for one in results:
        for line in _list_machines(one.result):
            found.setdefault(line, {})[one.name] = None
    total = len({one.name for one in results})
    alone = all(len(names) == total for names in found.values())
    lines = [
        line if alone else f"{line} ({_name_some(list(names), total, what)})"
        for line, names in found.items()
    ]
    if len(lines) > MOST_MACHINES:
        more = len(lines) - MOST_MACHINES + 1
        lines[MOST_MACHINES - 1 :] = [f"{more:,} more machines and databases: see “Environment”"]
    return lines


def _answer_shortly(result: Result) -> str:
    """In a sentence or two: of many queries the fastest and the slowest."""
    if result.command == "query" and len(result.query_summary) > _MOST_QUERIES:
        times = sorted(result.query_summary, key=lambda entry: entry.avg)
        ends = [f"{format_ms(1000 * one.avg)} ms ({one.query})" for one in (times[0], times[-1])]
        limits = describe_limits(result)
        return f"On average queries took {' to '.join(ends)}.{f' {limits}' if limits else ''}"
    return words.give_answer(result)


_MOST_QUERIES = 3


def _list_machines(result: Result) -> list[str]:
    """What is known of the client's machine, of a cluster's nodes, and of what the database could use."""
    client = result.describe("client")
    usable, cpus = client.get("cpus_usable"), client.get("cpus")
    parts = [client.get("cpu_model"), f"{cpus} CPUs" if cpus else None]
    if usable and usable != cpus:
        parts.append(f"{usable} of them usable")
    if client.get("memory_mb"):
        parts.append(f"{client['memory_mb'] / 1000:,.1f} GB of memory")
    parts.append(client.get("system"))
    text = ", ".join(str(part) for part in parts if part)
    lines = [f"Load from: {text}" if text else "Load from: a machine of which nothing is known"]
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
    told = [f"{kinds.count(kind)} × ({kind})" for kind in dict.fromkeys(filter(None, kinds))]
    if told:
        lines.append(f"Nodes of the cluster: {', '.join(told)}")
    server = words.name_database(result) or result.target
    used = [run.resources for run in result.runs]
    could = next((one for one in used if one is not None and one.cpus), None)
    if could is None:
        lines.append(f"Database ({server}): what it ran on is not known here")
    else:
        where = "on the same machine as the load"
        if could.nodes:
            where = f"on {format_count(len(could.nodes), 'node')} of the cluster"
        lines.append(f"Database ({server}): {could.cpus:g} CPUs, {where}")
    return lines


def _name_some(names: Sequence[str], of: int, what: str) -> str:
    if len(names) == of:
        return f"all {of:,} {what}"
    text = ", ".join(names)
    return text if len(text) <= _MOST_CHARACTERS else f"{len(names):,} of {of:,}"
