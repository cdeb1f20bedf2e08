"""The rules for doubting figures, a row each: threshold, text, remedy. Pure. `verdicts` and `searches` find
where they apply; this has what both need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from simulator.contract import (
    LEAST_JUDGED_S,
    GroupResult,
    Machine,
    Role,
    RunResult,
    describe_stalls,
    sum_stalls_s,
)

from .caveats import Caveat, Kind, Place, locate_group, locate_writers
from .model import GroupRun, Result
from .statistics import ENOUGH_RUNS, ENOUGH_RUNS_TEXT, UNSTABLE_CV
from .summaries import EventSize, weigh_each


@dataclass(frozen=True)
class Rule:
    """A reason to doubt figures."""

    kind: Kind
    words: str
    """The text, a format string for the values found."""
    remedy: str = ""
    """The remedy, with the punctuation before it; also a format string."""
    threshold: float = 0.0
    """The threshold."""
    source: str = ""
    """The reason for the threshold."""
    brief: str = ""
    """A short form, also a format string, if it would change figures."""

    def say(
        self,
        where: Place | None = None,
        *,
        rate: float | None = None,
        cv: float | None = None,
        extent: float | None = None,
        **values: object,
    ) -> Caveat:
        """The caveat with the values found."""
        text = (self.words + self.remedy).format(cv=cv, threshold=self.threshold, **values)
        brief = self.brief.format(cv=cv, **values)
        return Caveat(
            self.kind, text, where, rate, cv, brief, cv or 0.0 if extent is None else extent
        )


# fmt: off
RULES: Mapping[str, Rule] = {
    "not measured": Rule(Kind.NOT_MEASURED, "by this tool: {source}"),
    "incomplete": Rule(Kind.INCOMPLETE, "not all runs were made: the command was {how}",
        brief="not all runs were made"),
    "skipped fault": Rule(Kind.DISTURBANCE, "'{action}' {fate}{often}: {reason}"),
    "invalid": Rule(Kind.INVALID, "{reason}", brief="invalid runs"),
    "client-bound": Rule(Kind.CLIENT_BOUND,
        "{reason}: {subject} your client's speed{on_what}, not your database's",
        brief="the client was the limit"),
    "saturated": Rule(Kind.SATURATED, "did not keep up with {offered:,.10g} {unit}/s: {reason}{unsent}"),
    "late events": Rule(Kind.NOT_AS_ASKED,
        "run too short for its delays: {asked:.2g}% of the events should have come late, {came:.2g}% did",
        "; make it longer, or the delays shorter", brief="few events came as late as they should"),
    "long windows": Rule(Kind.NOT_AS_ASKED,
        "the stored events span {span}, less than the windows of {queries}", ": store more",
        brief="queries cover more time than is stored"),
    "own statements": Rule(Kind.OWN_STATEMENTS,
        "{queries} sent as the workload's own statements, not as the module's"),
    "ideal client": Rule(Kind.CLIENTS_PART,
        "{part}; with an ideal client the rate could be up to {limit:.2f} times as high",
        threshold=0.15, source="share of a request's time: below it, the rate is at most 1.18 times as high"),
    "throttled": Rule(Kind.CLIENTS_PART,
        "a worker was stopped by its CPU limit in {share:.0%} of the periods, which may have delayed the"
        " slowest requests",
        threshold=0.01, source="share of the periods: as many as the requests above a p99"),
    "stalled": Rule(Kind.CLIENTS_PART, "{stalls}, which {effect}"),
    "others": Rule(Kind.BUSY, "others took {how_much}{often}{programs}",
        ": stop them, or measure on an idle machine",
        threshold=0.1, source="share of a machine's CPU: as much as stable runs may differ",
        brief="other programs used {share:.0%} of the CPU"),
    "steal": Rule(Kind.BUSY, "the hypervisor gave {how_much} to other machines (steal){often}",
        ": measure on dedicated CPUs", threshold=0.1, source="as of others",
        brief="other machines took {share:.0%} of the CPU"),
    "retries": Rule(Kind.RETRIES, "{retries:,} ({kinds})"),
    "short": Rule(Kind.SHORT, "start-up and shutdown dominate a run of {window_s:.1f} s", ": {longer}",
        threshold=10.0, source="seconds: start-up and shutdown take a few tenths of a second",
        brief="windows of {window_s:.1f} s"),
    "apart": Rule(Kind.APART,
        "all workers were active together for only {overlap:.0%} of the time; other executions had less"
        " competition", ": raise --runs", threshold=0.8, source="share of the time below which it applies"),
    "uneven levels": Rule(Kind.APART,
        "all workers inserted together for only {overlap:.0%} of a fill level's time, so its rate is too low",
        threshold=0.8, source="share of the time below which it applies"),
    "unstable runs": Rule(Kind.UNSTABLE, "the runs differ by {cv:.0%} (CV; {threshold:.0%} is high)",
        ": find out why before you use this number", UNSTABLE_CV, "coefficient of variation",
        "runs differ by {cv:.0%}"),
    "unstable queries": Rule(Kind.UNSTABLE, "the {samples} differ by {cv:.0%} (CV; {threshold:.0%} is high)",
        "", UNSTABLE_CV, "coefficient of variation", "{samples} differ by {cv:.0%}"),
    "single levels": Rule(Kind.FEW_RUNS, "each level is a single run, so its spread is unknown"),
    "few runs": Rule(Kind.FEW_RUNS, "with {runs} runs this noisy, {shown} detectable",
        f"; {ENOUGH_RUNS_TEXT} or more runs detect smaller ones",
        ENOUGH_RUNS, "runs below which it applies"),
    "single runs": Rule(Kind.FEW_RUNS, "a single valid run with {workers} says nothing about its spread"),
    "first executions": Rule(Kind.FEW_RUNS,
        "a query ran only once, so its times are those of first executions",
        f"; more --runs show these apart, and {ENOUGH_RUNS_TEXT} or more further ones show small"
        " differences"),
    "few samples": Rule(Kind.FEW_RUNS, "{samples}", f"; {ENOUGH_RUNS_TEXT} or more show smaller differences",
        ENOUGH_RUNS, "executions after the first, or workers, below which it applies"),
    "unknown size": Rule(Kind.NOT_KNOWN, "{subject}: {reason}"),
    "unknown use": Rule(Kind.NOT_KNOWN, "what the database used: {reason}"),
    # About the answers of searches.
    "capacity of the client": Rule(Kind.CLIENT_BOUND,
        "the database isn't the limit at {above:,.10g} events/s: your client is"),
    "unsure capacity": Rule(Kind.UNSURE, "{reason}"),
    "contradicting steps": Rule(Kind.UNSTABLE, "{steps} this ({outcomes}): {change}",
        brief="steps of a search contradict each other"),
    "few requests": Rule(Kind.FEW_RUNS,
        "a step at this rate has {requests:,.0f} requests, too few to judge the slowest",
        ": give a longer --step-duration", 10, "requests above the percentile, below which it applies"),
    "tuning the client": Rule(Kind.CLIENT_BOUND,
        "{bound} of {runs} runs of the best show your client's speed: then its CPUs, not the database, decide"
        " between settings"),
    "failed trials": Rule(Kind.INVALID,
        "{failed:,} of {trials:,} measurements gave no figure and don't count"),
    "few comparisons": Rule(Kind.FEW_RUNS, "the best was measured {times} in the comparison",
        f"; {ENOUGH_RUNS} or more --runs show smaller differences",
        ENOUGH_RUNS, "runs below which it applies"),
    "invalid turn": Rule(Kind.INVALID, "run {run} ({client}): {reason}"),
    "lean path bound": Rule(Kind.CLIENT_BOUND,
        "{bound} of {runs} runs by the lean path show your client's speed: with a faster database, or more"
        " CPU, clients differ more"),
    "few turns": Rule(Kind.FEW_RUNS, f"fewer than {ENOUGH_RUNS} valid runs of a client",
        "; more --runs show smaller differences", ENOUGH_RUNS, "runs below which it applies"),
}
# fmt: on

DURATION_OPTIONS = {"capacity": "--step-duration", "tune": "--run-duration"}
"""Command -> the option that makes its runs longer, if it has its own."""
_ROUNDED_S = 0.05
"""Tolerance: `--duration 10s` gives windows of 9.99 s, which count as 10 s."""


def is_judged(group: GroupResult) -> bool:
    """Whether a group's bottleneck can be named: for readers only if they ran long enough, with a version
    that measured the client's share (and counted rows)."""
    if group.role is Role.WRITE:
        return True
    looked = any(query.rows is not None for query in group.queries)
    return looked and (group.window_s or 0.0) >= LEAST_JUDGED_S


def limit_of_clients_part(group: GroupResult) -> float | None:
    """The maximum speed-up with a client that costs nothing; None if the client's share is small, unknown, or
    all there is. With one request in flight in a closed loop, or behind the schedule of an open one, a
    request's time is the sum of the client's and the database's: without the client's share s of it, the rate
    could be 1 ÷ (1 − s) times as high. The same holds for the time from an answer to the next query.
    """
    parts = _find_clients_parts(group)
    share = max(parts.values(), default=0.0)
    return 1 / (1 - share) if share < 1 and parts else None


def _find_clients_parts(group: GroupResult) -> dict[str, float]:
    """Part in words -> its share of the time: the client's CPU and readers' pauses, if large enough to matter
    and in the critical path."""
    client = group.client
    if client is None or client.bound or not group.valid or not is_judged(group):
        return {}
    if group.offered and not group.offered.saturated:
        return {}
    parts = {}
    if (pause := client.describe_pause()) and client.pause_share is not None:
        parts[pause] = client.pause_share
    if client.in_flight == 1:
        share = client.cpu_share
        parts[f"{share:.0%} of each request's time is the client's own CPU"] = share
    least = RULES["ideal client"].threshold
    return {text: share for text, share in parts.items() if share >= least}


def find_clients_part(result: Result, runs: Sequence[GroupRun]) -> Iterator[Caveat]:
    """The client's share for each worker count, from the run in which it was largest."""
    most: dict[Place, tuple[float, str]] = {}
    throttled: dict[Place, float] = {}
    stalled: dict[Place, tuple[float, str, str]] = {}
    for group_run in runs:
        group, client = group_run.group, group_run.group.client
        is_reader = group.role is Role.READ
        run_place = locate_group(group_run) if is_reader else locate_writers(result, group_run)
        place = run_place.of_all_runs
        if (limit := limit_of_clients_part(group)) is not None:
            part = ", and ".join(_find_clients_parts(group))
            most[place] = max(most.get(place, (0.0, "")), (limit, part))
        if group.valid and client and not client.bound:
            throttled[place] = max(throttled.get(place, 0.0), client.throttled_share or 0.0)
            if stalls := group.stalls:
                delayed = [stall for stall in stalls if stall.worker is not None]
                effect = (
                    "may have delayed the slowest requests" if delayed else "delayed no request"
                )
                text = describe_stalls(delayed or stalls, group.window_s or 0.0)
                longest = stalled.get(place, (0.0, "", ""))
                stalled[place] = max(longest, (sum_stalls_s(stalls), text, effect))
    for place, (limit, part) in most.items():
        yield RULES["ideal client"].say(place, part=part, limit=limit)
    for place, share in throttled.items():
        if share >= RULES["throttled"].threshold:
            yield RULES["throttled"].say(place, share=share)
    for place, (_, text, effect) in stalled.items():
        yield RULES["stalled"].say(place, stalls=text, effect=effect)


def find_busy(result: Result) -> Iterator[Caveat]:
    """What other programs took of the machines, the worst for each cause. Readers next to writers ran on the
    same machines at the same time."""
    machines: dict[Place | None, list[Sequence[Machine]]] = {}
    if result.command == "query":
        machines[None] = [run.machines for run in result.runs]
    for group_run in (*result.writers, *result.alone):
        alone = group_run.alone
        place = locate_group(group_run) if alone else locate_writers(result, group_run)
        machines.setdefault(place.of_all_runs, []).append(group_run.run.machines)
    for where, runs in machines.items():
        for cause, share in _TAKEN.items():
            busiest = [max(taken, key=share) for taken in runs if taken]
            busy = [machine for machine in busiest if share(machine) >= RULES[cause].threshold]
            if not busy:
                continue
            most = max(busy, key=share)
            named = ", ".join(f"{name} {part:.0%}" for name, part in most.others.items())
            up_to = "up to " if len(busy) > 1 else ""
            yield RULES[cause].say(
                where,
                extent=share(most),
                share=share(most),
                how_much=f"{up_to}{share(most):.0%} of the CPU of {most.node}",
                often=f" in {len(busy)} of {len(runs)} runs" if len(runs) > 1 else "",
                programs=f" ({named})" if named else "",
            )


_TAKEN: Mapping[str, Callable[[Machine], float]] = {
    "others": lambda machine: machine.others_share or 0.0,
    "steal": lambda machine: machine.steal_share or 0.0,
}
"""Rule -> the share of a machine's CPU that it checks."""


def is_busy(run: RunResult) -> bool:
    """Whether other programs took enough of a machine in a run to be reported."""
    return any(
        share(machine) >= RULES[cause].threshold
        for machine in run.machines
        for cause, share in _TAKEN.items()
    )


def describe_busiest(runs: Sequence[RunResult]) -> str | None:
    """The load of other programs on the machines of these runs, in a few words; None if negligible."""
    taken = (
        (share(machine), cause)
        for run in runs
        for machine in run.machines
        for cause, share in _TAKEN.items()
    )
    busy = [(share, cause) for share, cause in taken if share >= RULES[cause].threshold]
    if not busy:
        return None
    share, cause = max(busy)
    return RULES[cause].brief.format(share=share)


def find_short(result: Result) -> Iterator[Caveat]:
    """Runs so short that start-up and shutdown matter."""
    # A search begins with a short closed loop, which only finds where to look.
    is_search = result.command == "capacity"
    runs = [
        group_run.group for group_run in result.writers if group_run.group.offered or not is_search
    ]
    load, least_s = result.settings.load, RULES["short"].threshold
    longer_s = load.warm_up_s + least_s
    if is_search and load.duration_s:
        # Unless given, the warm-up grows with the step.
        share = 1 - load.warm_up_s / load.duration_s
        longer_s = ceil(round(least_s / share, 6)) if share > 0 else longer_s
    longer = f"raise --num-inserts, for {least_s:.0f} s or longer"
    if load.duration_s is not None:
        option = DURATION_OPTIONS.get(result.command, "--duration")
        longer = f"give {option} {longer_s:g}s or longer"
    if window_s := find_short_window(runs):
        yield RULES["short"].say(extent=-window_s, window_s=window_s, longer=longer)


def find_short_window(groups: Sequence[GroupResult]) -> float | None:
    """The shortest window of the valid groups, if too short."""
    windows = [group.window_s for group in groups if group.valid and group.window_s is not None]
    shortest = min(windows, default=inf)
    return shortest if shortest < RULES["short"].threshold - _ROUNDED_S else None


def find_unknown_sizes(
    writers: Sequence[GroupRun], weigh: Callable[[Sequence[GroupRun]], EventSize] = weigh_each
) -> Iterator[Caveat]:
    """Why sizes are unknown, each reason once: it is the same in all runs. `weigh`: computes bytes per
    event."""
    sizes = [(group_run.group.storage, "what is on disk") for group_run in writers]
    sizes += [
        (group_run.group.storage_compacted, "what is on disk after compaction")
        for group_run in writers
    ]
    reasons = {(subject, size.reason) for size, subject in sizes if size and size.reason}
    if reason := weigh(writers).reason:
        reasons.add(("bytes per event", reason))
    for subject, text in sorted(reasons, key=": ".join):
        yield RULES["unknown size"].say(subject=subject, reason=text)
