"""A result in plain words: what was measured, the answer, and its limitations."""

from __future__ import annotations

from simulator.contract import Load, format_stages
from simulator.units import format_count, format_duration, join_words

from ..results.answers import sum_up
from ..results.columns import format_cost
from ..results.model import InsertSummary, QuerySummary, Result
from ..results.naming import name_database
from ..results.statistics import count_events_per_cost
from ..results.summaries import list_valid
from ..results.verdicts import is_stable
from .notes import describe_limits
from .ratios import describe_clients, write_clients_headline
from .searches import (
    describe_capacity,
    describe_search,
    describe_trials,
    describe_tuning,
    write_capacity_headline,
    write_tuning_headline,
)
from .tables import describe_in_flight, format_ms, format_tail


def write_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    figure = _write_figure(result)
    if not result.verdicts:
        return figure
    return f"{figure}, limits {sum_up([verdict.outcome for verdict in result.verdicts])}"


def _write_figure(result: Result) -> str:
    if result.command == "capacity":
        return write_capacity_headline(result.capacity)
    if result.command == "tune":
        return write_tuning_headline(result)
    if result.command == "clients":
        return write_clients_headline(result)
    if result.command == "query":
        times = [entry.avg for entry in result.query_summary]
        if not times:
            return "no query answered"
        queries = format_count(len(times), "query", "queries")
        level = "" if result.fill_level is None else f", level {result.fill_level:,}"
        ends = " to ".join(format_ms(1000 * end) for end in (min(times), max(times)))
        return f"{queries}, {ends} ms{level}"
    if result.by_fill_level and result.insert_summary:
        first, last = result.insert_summary[0], result.insert_summary[-1]
        levels = f"level {first.fill_level:,} to {last.fill_level:,}"
        return f"{first.median:,.0f} to {last.median:,.0f} inserts/s, {levels}"
    if result.best is None:
        return "no valid run"
    if result.command == "mixed":
        all_rates = [group.rate_per_s for group in list_valid(result.readers)]
        rates = [rate for rate in all_rates if rate]
        queries = f"{sum(rates) / len(rates):,.1f}" if rates else "no"
        return f"{result.best.median:,.0f} inserts/s beside {queries} queries/s"
    run = result.choose_slowest(result.best)
    if run and run.offered and run.latency_ms:
        achieved = f"{result.best.median:,.0f}"
        if run.offered.saturated:
            achieved += f" of {run.offered.rate_per_s:,.10g}"
        return (
            f"{achieved} inserts/s with {format_count(result.best.workers, 'worker')},"
            f" response {format_tail(run.latency_ms)}"
        )
    return f"{result.best.median:,.0f} inserts/s with {format_count(result.best.workers, 'worker')}"


def describe_stability(result: Result) -> str:
    """`yes`, `no`, or `-` if there is too little data."""
    stable = is_stable(result)
    return "-" if stable is None else "yes" if stable else "no"


def describe_validity(result: Result) -> str:
    """`yes`, or how many runs aren't valid; and whether anything is missing."""
    writers = result.writers
    bad = sum(not run.group.valid for run in writers)
    text = "yes" if result.valid else f"{bad} of {len(writers)} not"
    if result.command in ("query", "capacity", "tune") and not result.valid:
        text = "no"
    if not result.runs or (result.command == "query" and not result.asked):
        text = "no runs"
    return text if result.complete else f"{text}, incomplete"


def describe_measurement(result: Result) -> str:
    """What was done, to what, from where."""
    settings = result.settings
    server = name_database(result)
    where = f"{result.target} ({server})" if server else result.target
    day = result.started_at[:10]
    if result.source:
        return f"Figures for {where}, not measured by this tool: {result.source}."
    at = {"local": "from processes on one machine", "kubernetes": "from pods on Kubernetes"}
    place = at.get(result.executor, f"by executor {result.executor}")
    if result.command == "query" or (result.clients and result.clients.asks):
        return f"Queries to {where}{_describe_asking(result)}, {place} on {day}."
    if result.command in ("capacity", "tune"):
        is_capacity = result.command == "capacity"
        subject, describe = (
            ("Capacity", describe_search) if is_capacity else ("Settings", describe_trials)
        )
        return f"{subject} of {where}: {describe(result)}, {place} on {day}."
    counts = list(dict.fromkeys(run.group.workers for run in result.writers))
    spelled = join_words([f"{count:,}" for count in counts]) or "0"
    parts = [f"Inserts into {where} by {spelled} worker{'s' if counts != [1] else ''} at once"]
    load = settings.load
    fields_set = load.model_fields_set
    parts += _describe_load(load)
    if "events" in fields_set:
        parts.append(f"{load.events:,} events each")
    mode = f" ({settings.insert_mode})" if settings.insert_mode else ""
    if "batch" in fields_set and load.batch:
        parts.append(f"{load.batch:,} in a request{mode}")
    elif "batch" in fields_set:
        parts.append(f"one in a request{mode}")
    if "primary_key" in fields_set:
        parts.append(f"primary key: {load.primary_key}")
    if settings.readers_beside:
        rate_per_s = settings.query_rate_per_s
        rate = "" if rate_per_s is None else f" ({rate_per_s:,.10g} queries/s offered)"
        in_flight = describe_in_flight(settings.reader_in_flight)
        parts.append(
            f"beside {_count(settings.readers_beside, 'reader', 'readers')}{rate}{in_flight}"
        )
    if settings.data.prefill:
        parts.append(f"with {settings.data.prefill:,} events inserted before")
    span_s, every_s = settings.data.prefill_span_s, settings.data.prefill_every_s
    if span_s is not None and span_s > (every_s or 0):
        every = (
            "" if every_s is None else f", one event per device every {format_duration(every_s)}"
        )
        parts.append(f"on a history of {format_duration(span_s)}{every}")
    if result.by_fill_level:
        parts.append(f"{_count(settings.steps, 'step', 'steps')} on growing data")
    elif settings.runs is not None:
        unit = "client" if result.command == "clients" else "worker count"
        parts.append(f"{_count(settings.runs, 'run', 'runs')} of each {unit}")
    return f"{', '.join(parts)}, {place} on {day}."


def _describe_asking(result: Result) -> str:
    """Which queries ran, by how many readers, and how often."""
    settings = result.settings
    workers = settings.readers
    level = settings.data.prefill if result.clients else result.fill_level
    length = f"each query {_count(settings.runs, 'time', 'times')}"
    if settings.load.duration_s is not None:
        length = f"for {settings.load.duration_s:g} s"
    if result.clients:
        length += f", {_count(settings.runs, 'run', 'runs')} of each client"
    return (
        f"{'' if level is None else f' with {level:,} events in it'} by {format_count(workers, 'worker')}"
        f"{' at once' if workers != 1 else ''}{describe_in_flight(settings.reader_in_flight)}, {length}"
    )


def _describe_load(load: Load) -> list[str]:
    """How requests were offered, and for how long, if the command set that."""
    parts = []
    if load.rate_per_s is not None:
        rate = format_stages(load.stages) or f"{load.rate_per_s:,.10g}"
        parts.append(f"{rate} events/s offered ({load.arrivals} arrivals)")
    if load.duration_s is not None:
        parts.append(f"for {load.duration_s:g} s")
    if load.warm_up_s:
        first = f"the first {load.warm_up_s:g} s (warm-up)"
        is_part = load.duration_s is not None
        parts.append(f"of which {first} don't count" if is_part else f"not counting {first}")
    if load.in_flight is not None:
        parts.append(f"{_count(load.in_flight, 'request', 'requests')} in flight each")
    return parts


def give_answer(result: Result) -> str:
    """The figure that was asked for, and the outcome of the limits."""
    return " ".join(filter(None, [_write_sentence(result), describe_limits(result)]))


def _write_sentence(result: Result) -> str:
    if result.command == "capacity":
        return " ".join(describe_capacity(result))
    if result.command == "tune":
        return " ".join(describe_tuning(result))
    if result.command == "clients":
        return " ".join(describe_clients(result))
    if result.command == "query":
        times = sorted(result.query_summary, key=lambda entry: entry.avg)
        if not times:
            return "No query was answered: there is no figure."
        parts = [f"{entry.query} {_format_time(entry)}" for entry in times]
        return f"On average a query took: {', '.join(parts)}."
    if not result.insert_summary:
        return "No run is valid: there is no figure to use."
    assert result.best is not None
    if result.by_fill_level:
        first, last = result.insert_summary[0], result.insert_summary[-1]
        change = last.avg / first.avg - 1
        shown = f"{change:+.0%}" if abs(change) >= 0.005 else "less than 1% apart"
        return (
            f"{first.avg:,.0f} inserts/s at level {first.fill_level:,}, {last.avg:,.0f} at level"
            f" {last.fill_level:,}: {shown}."
        )
    best = result.best
    if result.command == "mixed":
        took = [f"{entry.query} {_format_time(entry)}" for entry in result.query_summary]
        queries = f" On average a query took: {', '.join(took)}." if took else ""
        return f"{_describe_rate(best)}{_describe_cost(result, best)} beside the readers.{queries}"
    if any(run.group.offered for run in result.writers):
        return _describe_offers(result)
    rate = _describe_rate(best) + _describe_cost(result, best)
    return f"Most with {format_count(best.workers, 'worker')}: {rate}."


def _describe_offers(result: Result) -> str:
    """An open loop's answer: how much of the offered load was achieved, and how long a request took."""
    parts = []
    for entry in result.insert_summary:
        run = result.choose_slowest(entry)
        if run is None or run.latency_ms is None or run.offered is None:
            continue
        offers = [group.offered for group in result.list_counted(entry)]
        saturated = any(offer.saturated for offer in offers if offer)
        kept_up = "kept up with" if not saturated else "did not keep up with"
        stages = format_stages(result.settings.load.stages)
        rate = stages or f"{run.offered.rate_per_s:,.10g}"
        parts.append(
            f"{format_count(entry.workers, 'worker')} {kept_up} {rate} events/s"
            f"{' (saturated)' if saturated else ''}: {entry.avg:,.0f} inserts/s, response time p50"
            f" {format_ms(run.latency_ms.p50)} ms, {format_tail(run.latency_ms)}"
        )
    text = "; ".join(parts)
    return (
        f"{text[0].upper()}{text[1:]}." if parts else "No run is valid: there is no figure to use."
    )


def _format_time(entry: QuerySummary) -> str:
    text = f"{format_ms(1000 * entry.avg)} ms"
    if entry.cold is None or entry.cold == entry.avg:
        return text
    return f"{text} (the first time {format_ms(1000 * entry.cold)} ms)"


def _describe_rate(entry: InsertSummary) -> str:
    text = f"{entry.median:,.0f} inserts/s"
    if entry.runs == 1:
        return f"{text} in a single run"
    text += f" (median of {entry.runs} valid runs"
    if entry.ci95:
        low, high = entry.ci95
        text += f"; mean {entry.avg:,.0f}, 95 % interval {low:,.0f} to {high:,.0f}"
    return text + ")"


def _describe_cost(result: Result, entry: InsertSummary) -> str:
    if not result.cost_per_hour:
        return ""
    cost = format_cost(count_events_per_cost(entry.avg, result.cost_per_hour))
    return f"; at {result.cost_per_hour:g} an hour, {cost} per million events"


def _count(number: int | None, singular: str, plural: str) -> str:
    if number is None:
        return f"an unknown number of {plural}"
    return format_count(number, singular, plural)
