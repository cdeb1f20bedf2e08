"""The steps derived from requirements: the load with its queries, the capacity within the same limits, the
disk, each fault. And the checks of requirements against the workload and the modules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from simulator.contract import (
    SHORTEST_S,
    Retention,
    Role,
    RunLimit,
    find_step_ms,
)
from simulator.documents import Way
from simulator.errors import OptionError, did_you_mean
from simulator.modules.options import PREFILL_BATCH
from simulator.units import format_duration, read_duration_s

from ...plan.config import Config
from ...plan.workloads import begin, choose_workload, read_options
from ...results.loads import Question
from ...results.requirements import Requirements, find_pause_s
from ...system.errors import ConfigError
from ..experiments.search import plan_requests
from ..experiments.session import find_module
from .deciding import WARM_UP
from .definition import Definition, Options, Step, normalize
from .filling import LENGTHS, Filling
from .plan import name_targets, read_pairs
from .reading import locate_key

WORKERS = 4
"""The default workers of a step."""
SHORTEST_WINDOW_S = 50.0
"""The shortest measurement of the load."""
READERS, MOST_PLACES = 2, 256
"""Each reader is a process with as many queries in flight as the limits may need, up to this many."""
STEP_S, LONGEST_STEP_S = 30.0, 600.0
"""The shortest and longest default step of the search."""
PRECISION, MOST_STEPS = "10%", 12
"""The precision and the maximum steps of the search: headroom isn't worth more time."""
MORE_PLACES = 1.5
"""Readers may have this many times their average queries in flight."""
BEFORE_S, AFTER_S = 15, 15
"""Seconds of a run before a fault, and after the longest allowed outage."""
DISK_S = 5
"""How long events are added before the history is compacted."""
RETENTION_WINDOW_S = 25.0
"""How long the cost of deletions is measured, on each of the two fill levels."""
MORE_KEPT = 9
"""The larger level stores this many times the events that the run adds: it runs at a tenth of the clock's
speed, and deletes ten times as many at once, four times."""
_LENGTHS = ("duration", "warm-up")
"""Options to omit if a number of events ends a run."""
_NONE = "0s"


def make_question(definition: Definition, config: Config, file: Path) -> Question | None:
    """What the verdict must answer; None without requirements. ConfigError, with the line, if the workload
    lacks what they refer to."""
    needed = definition.requirements
    if needed is None:
        return None
    workload, problems = _read_workload(definition, config), list[str]()
    described = {query.name: query for query in workload.schema.descriptions}
    queries = described.keys() | set(workload.schema.queries)
    for name in needed.queries:
        if name not in queries:
            where = locate_key(file, "requirements", "queries", name)
            problems.append(
                f"{where}workload {workload.name} has no query {name!r}"
                f"{did_you_mean(name, queries)} (it has: {', '.join(sorted(queries))})"
            )
        query = described.get(name)
        if not definition.steps and needed.history is None and query and query.is_drawn:
            problems.append(
                f"{locate_key(file, 'requirements', 'queries', name)}it draws devices or times of stored"
                " events, and none are stored before: add `history` to requirements, as in"
                " history: {events: 1M}"
            )
    if problems:
        raise ConfigError(*problems)
    _check_history(definition, workload, file)
    windows_s = {
        name: described[name].window.span / 1000
        for name in needed.queries
        if name in described and described[name].window is not None
    }
    if needed.events_per_s is not None:
        return Question(needed, needed.events_per_s, windows_s)
    assert needed.devices is not None
    if "devices" not in workload.options_model.model_fields:
        raise ConfigError(
            f"{locate_key(file, 'requirements', 'devices')}devices of workload {workload.name} have no"
            " fixed interval: give events_per_s, or a workload with `devices`, as in options:"
            " {workload: machines}"
        )
    try:
        options = read_options(workload, {}, [f"devices={needed.devices}"])
        interval_s = workload(0, **options.model_dump()).device_interval_ms / 1000
    except (ConfigError, OptionError) as error:
        raise ConfigError(f"{locate_key(file, 'requirements', 'devices')}{error}") from error
    # Of a recording, the interval is a mean of many digits.
    return Question(needed, float(f"{needed.devices / interval_s:.6g}"), windows_s)


def _check_history(definition: Definition, kind: Any, file: Path) -> None:
    """ConfigError, with the line, if a history would have events more often than devices send them."""
    assert definition.requirements is not None
    history = definition.requirements.history
    if history is None or history.every is None:
        return
    options = begin(kind, read_options(kind, {}, _list_workload_pairs(definition)))
    workload = kind(0, **options.model_dump())
    interval_s = workload.device_interval_ms / 1000
    if workload.own_rate_per_s is not None:
        raise ConfigError(
            f"{locate_key(file, 'requirements', 'history', 'every')}every gives events one interval, and a"
            " recording has its own: leave it out"
        )
    if history.every < interval_s:
        raise ConfigError(
            f"{locate_key(file, 'requirements', 'history', 'every')}"
            f"{format_duration(history.every)} is shorter than the"
            f" {format_duration(interval_s)} between two events of a device of workload {kind.name}:"
            " give a longer time, or leave `every` out"
        )


def _read_workload(definition: Definition, config: Config) -> Any:
    """The one workload of all jobs. ConfigError if there are several."""
    general = [
        normalize(definition.options),
        *(normalize(step.options) for step in definition.steps),
    ]
    others = [
        *(target.options for target in definition.targets.values()),
        *definition.variants.values(),
    ]
    named = [options["workload"] for options in general if "workload" in options]
    if any("workload" in normalize(options) for options in others) or len(set(map(str, named))) > 1:
        raise ConfigError(
            f"{definition.locate(('requirements',))}requirements are about one workload: name it below"
            " `options`, and nowhere else"
        )
    try:
        return choose_workload(str(named[0]) if named else "temperature", config).kind
    except ConfigError as error:
        where = definition.locate(("options", "workload"))
        raise ConfigError(*(where + text for text in error.problems)) from error


def add_steps(definition: Definition, question: Question | None, config: Config) -> Definition:
    """The definition with the steps derived from its requirements, if it lists none. ConfigError if an option
    contradicts them."""
    if question is None or definition.steps:
        return definition
    _check_options(definition, question.needed)
    _check_disturbances(definition, config)
    steps = _change(_Follow(definition, question, config).list_steps(), definition)
    return definition.model_copy(update={"steps": steps})


def _change(steps: Iterable[Step], definition: Definition) -> list[Step]:
    """The steps with the chosen size's options. ConfigError if it names another step."""
    made = {step.name: step for step in steps}
    for name, options in definition.of_size.items():
        if name not in made:
            raise ConfigError(
                f"{definition.locate(('sizes',))}there is no step {name!r}{did_you_mean(name, made)}"
                f" (there are: {', '.join(made)})"
            )
        own = normalize(options)
        made[name] = made[name].change(own | _fit_warm_up(made[name].options, own))
    return list(made.values())


def _fit_warm_up(made: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, str]:
    """The warm-up of a step for which the file sets a duration but no warm-up."""
    if "warm-up" in said or "duration" not in said or made.get("warm-up", _NONE) == _NONE:
        return {}
    with suppress(ValueError):  # an invalid duration is refused as an option
        return {"warm-up": f"{read_duration_s(said['duration']) / WARM_UP:.3g}s"}
    return {}


def _check_options(definition: Definition, needed: Requirements) -> None:
    fixed = {
        "rate": "devices or events_per_s", "query-rate": "queries", "queries": "queries",
        "limit": "insert and queries", "disturb": "faults",
    }  # fmt: skip
    if needed.insert.batch is not None:
        fixed["batch"] = "insert.batch"
    if needed.history is not None:
        fixed |= dict.fromkeys(("prefill", "fill", "prefill-span", "prefill-every"), "history")
    places: dict[Way, Options] = {("options",): definition.options}
    places |= {("targets", name): target.options for name, target in definition.targets.items()}
    places |= {("variants", name): options for name, options in definition.variants.items()}
    places |= {("sizes", name): options for name, options in definition.of_size.items()}
    problems = [
        f"{definition.locate((*way, written))}{key} follows from requirements ({fixed[key]}): leave it out,"
        " or write `steps`"
        for way, options in places.items()
        for written, key in zip(options, normalize(options), strict=True)
        if key in fixed
    ]
    if needed.devices is not None and "devices" in _list_workload_options(definition.options):
        where = definition.locate(("options", "workload-option"))
        problems.append(f"{where}devices follows from requirements.devices: leave it out")
    if problems:
        raise ConfigError(*problems)


def _check_disturbances(definition: Definition, config: Config) -> None:
    """ConfigError if the config file has disturbances, which would strike in every step."""
    for label in definition.targets:
        for name in name_targets(definition, label):
            if config.target(name).disturbances:
                where = config.where("targets", name, "disturbances")
                raise ConfigError(
                    f"{where}: they would strike in every step: remove them, and list them below"
                    " requirements.faults"
                )


def _list_workload_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The workload's options, written as keys or as texts."""
    return read_pairs(normalize(options).get("workload-option"))


def _list_workload_pairs(definition: Definition) -> list[str]:
    return [f"{key}={value}" for key, value in _list_workload_options(definition.options).items()]


@dataclass(frozen=True)
class _Follow:
    """Makes steps from requirements."""

    definition: Definition
    question: Question
    config: Config

    def list_steps(self) -> Iterator[Step]:
        """The steps in the order of a turn. The first stores the history, and the others continue with it;
        only the retention has its own tables."""
        needed, filling = self.question.needed, self._filling
        kind = "mixed" if needed.queries else "insert"
        load = self._ask(self._offer(self._find_window(), "duration"))
        for level in filling.list_levels():
            if level.fill is not None:
                fill = {"workers": WORKERS, **level.fill}
                yield self._make("insert", f"fill{level.suffix}", fill, kept=LENGTHS)
            yield self._make(kind, f"load{level.suffix}", {**load, **level.options, "runs": 1})
        yield self._make("capacity", "capacity", self._search() | filling.options("fill"))
        names: list[str] = []
        for fault, outage_s in needed.faults.items():
            name = re.sub(r"[^\w.+=-]+", "-", fault)[:20].strip("-")
            names.append(name)
            label = name if names.count(name) == 1 else f"{name}-{names.count(name)}"
            # The fault determines the length of the run.
            struck = self._strike(fault, outage_s) | filling.options()
            yield self._make("insert", label, struck, kept=_LENGTHS)
        if needed.retention is None:
            return
        # The size after compaction: bytes per event follow from the fill levels.
        size = {"workers": WORKERS, "batch": PREFILL_BATCH, "duration": f"{DISK_S}s", "runs": 1}
        disk = {**size, "warm-up": _NONE, **filling.options(), "compact": True}
        yield self._make("insert", "disk", disk, kept=LENGTHS)
        unable = [label for label in self.definition.targets if not self._can_delete(label)]
        if len(unable) < len(self.definition.targets):
            # The runs fill the database themselves, with their own clock.
            offer = self._offer(RETENTION_WINDOW_S, "duration")
            offer |= {"retention": f"{_write_decimal(needed.retention)}s", "runs": 1}
            events = round(self.question.rate_per_s * (read_duration_s(offer["duration"]) or 0.0))
            for label, before in (("retention-small", 0), ("retention", MORE_KEPT * events)):
                own = offer | ({"prefill": before} if before else {})
                yield self._make("insert", label, own, kept=_LENGTHS).leave_out(unable)

    @property
    def _filling(self) -> Filling:
        """How the history is stored."""
        kind = _read_workload(self.definition, self.config)
        options = read_options(kind, {}, _list_workload_pairs(self.definition))
        workload = kind(0, **begin(kind, options).model_dump())
        interval_s, recorded = (
            workload.device_interval_ms / 1000,
            workload.own_rate_per_s is not None,
        )
        return Filling(self.question, interval_s, recorded, kind.begins_now(options))

    def _make(
        self, command: str, label: str, options: Mapping[str, Any], kept: Collection[str] = ()
    ) -> Step:
        """A step. The file's options for all steps override these, except `kept` and the workload's."""
        said = {key: value for key, value in self._said.items() if key not in kept}
        own = {key: value for key, value in options.items() if key not in said}
        own |= _fit_warm_up(own, said)
        if self.question.needed.devices is not None:
            devices = {"devices": self.question.needed.devices}
            own["workload-option"] = _list_workload_options(self.definition.options) | devices
        step = Step.model_validate({command: own, "label": label})
        # The verdict covers the other steps; and the speed of loading a history isn't compared.
        return step if command == "capacity" else step.leave_unranked()

    @property
    def _said(self) -> dict[str, Any]:
        """The file's options for all steps."""
        return normalize(self.definition.options)

    @property
    def _batch(self) -> int:
        """Events per request."""
        needed = self.question.needed.insert.batch
        batch = self._said.get("batch", 0)
        return max(1, needed or (batch if isinstance(batch, int) else 1))

    @property
    def _base(self) -> dict[str, Any]:
        needed = self.question.needed.insert.batch
        batch = {} if needed is None else {"batch": needed}
        return {"workers": WORKERS, **batch}

    def _offer(self, window_s: float, length: str) -> dict[str, Any]:
        """The options for the required inserts, for this long without the warm-up."""
        duration_s = ceil(window_s * WARM_UP / (WARM_UP - 1))
        return {
            **self._base, "rate": self.question.rate_per_s,
            length: f"{duration_s}s", "warm-up": f"{duration_s // WARM_UP}s",
        }  # fmt: skip

    def _ask(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """These options plus the required queries."""
        queries = self.question.needed.queries
        if not queries:
            return dict(options)
        # Enough for queries that take as long as allowed.
        places = min(MOST_PLACES, self.question.count_places(self._batch)[Role.READ][0])
        count = self._said.get("readers", READERS)
        readers = count if isinstance(count, int) and count > 0 else READERS
        return {
            **options,
            "readers": readers,
            "reader-in-flight": max(1, ceil(MORE_PLACES * places / readers)),
            "query-rate": self.question.needed.query_rate_per_s,
            "queries": {name: _write_decimal(limits.rate) for name, limits in queries.items()},
        }

    def _find_window(self) -> float:
        """A window long enough for every percentile."""
        return max(SHORTEST_WINDOW_S, *self._find_times(self.question.needed.list_limits()))

    def _find_times(self, limits: Sequence[RunLimit]) -> list[float]:
        """For each of these limits, how long the required rates take to provide enough requests."""
        rates = self.question.find_request_rates(self._batch)
        return [
            plan_requests(limit.measure.least_requests) / rates[limit.query]
            for limit in limits
            if limit.measure.is_time
        ] or [0.0]

    def _search(self) -> dict[str, Any]:
        needed = self.question.needed
        of_queries = [limit for limit in needed.list_limits() if limit.query]
        # Half the required rate may be the capacity, while queries keep theirs.
        window_s = max(
            2 * max(self._find_times(needed.insert.list_limits())), *self._find_times(of_queries)
        )
        step_s = ceil(min(LONGEST_STEP_S, max(STEP_S, window_s * WARM_UP / (WARM_UP - 1))))
        return {
            **self._ask(self._base),
            "limit": [str(limit) for limit in needed.list_limits()],
            "step-duration": f"{step_s}s", "precision": PRECISION, "max-steps": MOST_STEPS,
        }  # fmt: skip

    def _can_delete(self, label: str) -> bool:
        """Whether a target's module deletes what is older than the retention."""
        retention_s = self.question.needed.retention or 0.0
        if retention_s < SHORTEST_S:
            return False
        retention = Retention(
            period_ms=round(retention_s * 1000), step_ms=find_step_ms(round(retention_s * 1000))
        )
        for name in name_targets(self.definition, label):
            module = find_module(self.config, self.config.target(name))
            try:
                module.CAPABILITIES.ageing.require(retention, module.name)
            except OptionError:
                return False
        return True

    def _strike(self, fault: str, outage_s: float) -> dict[str, Any]:
        """The options for the required inserts during a fault, with retries until long after the expected end
        of the outage."""
        return {
            **self._base, "rate": self.question.rate_per_s,
            "duration": f"{ceil(BEFORE_S + find_pause_s(fault) + outage_s + AFTER_S)}s", "warm-up": _NONE,
            "patience": f"{ceil(2 * outage_s + AFTER_S)}s",
            "disturb": [f"{BEFORE_S}s {fault}"], "runs": 1,
        }  # fmt: skip


def _write_decimal(value: float) -> str:
    """The number in the syntax of weights: without an exponent."""
    return f"{value:.9f}".rstrip("0").rstrip(".")
