"""Candidates × figures: who can stand beside whom, how good each figure is beside the best, and which pairs
the repetitions decide. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

from ..campaign.ranking import share_error
from ..campaign.samples import CandidateFigures, estimate_speed
from ..render.words import name_database
from ..results.caveats import Place
from ..results.conditions import find_durability
from ..results.model import Result, as_mapping
from ..results.naming import format_options, format_value
from ..results.statistics import Ratio
from ..results.student import t_quantile
from .aspects import ASPECTS, Aspect, Shown, find_interval, measure
from .sources import Source, Sources

_Key = tuple[str, str, str, str]
"""A candidate's name, a digest of its configuration, its database's version and its durability."""

MOST_OPTIONS = 3
"""By which candidates of one name are told apart."""
MOST_FREEDOM = 40
"""Degrees of freedom for which quantiles are given; of more they hardly change."""


@dataclass(frozen=True)
class Candidate:
    """Who is compared: one database, version and configuration."""

    name: str
    slug: str
    """Of its page."""
    database: str
    """With its version, as it tells it."""
    durability: str
    sources: Sequence[Source]
    failed: Sequence[Source] = ()

    @property
    def client(self) -> str:
        """By what it was measured, and from where."""
        result = self.sources[0].result
        path = (
            "official client" if result.settings.module.get("client") == "official" else "lean path"
        )
        return f"{path}, {'Kubernetes' if result.executor == 'kubernetes' else 'local processes'}"

    @property
    def tags(self) -> dict[str, str]:
        """Those of all of its results."""
        found: dict[str, str] = {}
        for one in self.sources:
            found |= one.result.tags
        return dict(sorted(found.items()))

    @property
    def notes(self) -> list[str]:
        """Why its figures surprise."""
        return list(dict.fromkeys(one.note for one in self.sources if one.note))

    def list_traits(self) -> dict[str, str]:
        """By which the first page can leave others out."""
        tags = {f"tag.{key}": value for key, value in self.tags.items()}
        return {"durability": self.durability, "client": self.client, **tags}


@dataclass(frozen=True)
class Cell:
    """A candidate's figure in a column."""

    shown: Shown
    better_than: Sequence[int]
    """Rows of those that it is shown to be better than."""
    alike: Sequence[int]
    """Rows of those that no difference worth naming is left from."""
    rank: str
    """`1`, `1 to 3`; empty if the repetitions can rank nobody."""
    leads: bool
    """Whether nobody is shown to be better."""
    share: float
    """Of the best: 1 is the best."""
    spread: float | None
    """The interval is from the figure ÷ this to the figure × this; None of one repetition."""
    note: str = ""

    @property
    def text(self) -> str:
        """The figure."""
        return self.shown.aspect.show(self.shown.value)


@dataclass(frozen=True)
class Column:
    """An aspect in a test."""

    key: str
    """In the address of a view."""
    aspect: Aspect
    heading: str
    test: str
    ratios: Mapping[tuple[int, int], Ratio | None]
    """(row, row) -> how many times as good the first is."""


@dataclass(frozen=True)
class Row:
    """A candidate, with a cell for each column; None where it has no figure."""

    candidate: Candidate
    cells: Sequence[Cell | None]
    absent: Sequence[str]
    """Why there is no figure in each column, if there is none although it was measured; else empty."""


@dataclass(frozen=True)
class Field:
    """Candidates that were measured with the same workload on the same hardware: only these are compared."""

    slug: str
    workload: str
    hardware: str
    campaign: str
    """The title of theirs, if others were measured there with that workload that share nothing with them."""
    columns: Sequence[Column]
    rows: Sequence[Row]
    quantiles: Sequence[float]
    """Of Student's t, from 1 degree of freedom on, for the comparison of two of them."""

    tests: Mapping[str, str]
    """Key -> a name that no other has."""

    @property
    def name(self) -> str:
        """The workload's, and what tells it from others of that."""
        return f"{self.workload}: {self.campaign}" if self.campaign else self.workload

    def list_notes(self) -> list[tuple[str, str]]:
        """(candidate, why its figures surprise), of what is compared here."""
        found = [
            (row.candidate.name, one.note)
            for row in self.rows
            for one in _select(row.candidate, self.workload, self.hardware)
            if one.note
        ]
        return list(dict.fromkeys(found))

    def list_tests(self) -> dict[str, dict[str, list[Result]]]:
        """Test -> candidate -> its results."""
        found: dict[str, dict[str, list[Result]]] = {}
        for row in self.rows:
            for one in _select(row.candidate, self.workload, self.hardware):
                own = found.setdefault(self.tests[one.test_key], {})
                own.setdefault(row.candidate.name, []).append(one.result)
        return found


# --- who is compared ------------------------------------------------------------------------------


def find_candidates(sources: Sources) -> list[Candidate]:
    """All of them, by name; those of one name are told apart by version, options or durability."""
    groups: dict[_Key, list[Source]] = {}
    for source in sources.done:
        version, durability = _name_version(source.result), describe_durability(source.result)
        key = (source.candidate, source.identity, version, durability)
        groups.setdefault(key, []).append(source)
    ordered = sorted(groups.items(), key=lambda item: _sort_naturally(" ".join(item[0])))
    names = [_name(key, own, groups) for key, own in ordered]
    slugs = name_slugs(names)
    found = []
    for (parts, own), name, slug in zip(ordered, names, slugs, strict=True):
        failed = [one for one in sources.failed if (one.candidate, one.identity) == parts[:2]]
        found.append(Candidate(name, slug, parts[2], parts[3], own, failed))
    return found


def _name(key: _Key, own: Sequence[Source], groups: Mapping[_Key, Sequence[Source]]) -> str:
    others = {one: sources for one, sources in groups.items() if one[0] == key[0]}
    if len(others) == 1:
        return key[0]
    parts = [key[0]]
    if len({one[2] for one in others}) > 1:
        parts.append(key[2])
    rest = [one for one in others if one[2] == key[2]]
    if len(rest) > 1:
        options = [others[one][0].own for one in rest]
        mine = own[0].own
        different = [name for name in mine if len({repr(one.get(name)) for one in options}) > 1]
        if 0 < len(different) <= MOST_OPTIONS:
            parts.append(format_options({name: mine[name] for name in different}))
        elif len({one[3] for one in rest}) == len(rest):
            parts.append(f"({key[3]})")
        else:
            parts.append(f"({1 + rest.index(key)})")
    return " ".join(parts)


def name_slugs(names: Iterable[str]) -> list[str]:
    """Names of files, each once, in this order."""
    found: list[str] = []
    for name in names:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "one"
        number = 1
        while (slug := base if number == 1 else f"{base}-{number}") in found:
            number += 1
        found.append(slug)
    return found


def _sort_naturally(text: str) -> list[tuple[int, str]]:
    """So that 9 comes before 10."""
    parts = re.findall(r"\d+|\D+", text.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _name_version(result: Result) -> str:
    version = name_database(result)
    if version is None:
        return f"{result.module}, version not known"
    return version if re.search("[a-zA-Z]", version) else f"{result.module} {version}"


def describe_durability(result: Result) -> str:
    """The settings that decide what an acknowledgement is worth."""
    found = find_durability(result)
    return ", ".join(f"{name}={format_value(one)}" for name, one in found.items()) or "not known"


def describe_hardware(result: Result) -> str:
    """What client and database ran on, as far as it must be the same."""
    client = result.describe("client")
    parts = [str(client["cpu_model"])] if client.get("cpu_model") else []
    if client.get("cpus"):
        parts.append(f"{client['cpus']} CPUs")
    if client.get("memory_mb"):
        parts.append(f"{client['memory_mb'] / 1000:.0f} GB")
    nodes = [
        as_mapping(one) for one in as_mapping(result.describe("kubernetes").get("nodes")).values()
    ]
    kinds = [str(one.get("instance_type") or one.get("cpu") or "node") for one in nodes]
    parts += [f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds))]
    return ", ".join(parts) or "hardware not known"


# --- what they are compared by --------------------------------------------------------------------


def make_fields(candidates: Sequence[Candidate]) -> list[Field]:
    """The tables of the first page, that with most candidates first."""
    found: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        for place in dict.fromkeys(_place(source.result) for source in one.sources):
            found.setdefault(place, []).append(one)
    fields = []
    for place, own in found.items():
        parts = _part(*place, own)
        for part in parts:
            field = _make_field(*place, part)
            if field.columns:
                campaigns = {source.campaign for one in part for source in _select(one, *place)}
                title = " and ".join(sorted(filter(None, campaigns))) if len(parts) > 1 else ""
                fields.append(replace(field, campaign=title))
    fields.sort(key=lambda one: (-len(one.rows), -len(one.columns), one.workload))
    slugs = name_slugs(one.workload for one in fields)
    return [replace(one, slug=slug) for one, slug in zip(fields, slugs, strict=True)]


def _part(workload: str, hardware: str, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Those that share a test or a campaign, directly or by others, belong into one table."""
    parts: list[tuple[set[tuple[str, str]], list[int]]] = []
    for number, one in enumerate(candidates):
        links, members = set[tuple[str, str]](), [number]
        for source in _select(one, workload, hardware):
            links |= {("test", source.test_key), ("campaign", source.campaign)}
        for part in [part for part in parts if part[0] & links]:
            parts.remove(part)
            links, members = links | part[0], [*part[1], *members]
        parts.append((links, members))
    return [[candidates[number] for number in sorted(members)] for _, members in parts]


def _place(result: Result) -> tuple[str, str]:
    """Workload and hardware: by which table it belongs to."""
    return result.settings.data.workload, describe_hardware(result)


def _select(candidate: Candidate, workload: str, hardware: str) -> list[Source]:
    return [one for one in candidate.sources if _place(one.result) == (workload, hardware)]


def _make_field(workload: str, hardware: str, candidates: Sequence[Candidate]) -> Field:
    own = [_select(one, workload, hardware) for one in candidates]
    tests = _name_tests(one for sources in own for one in sources)
    columns: list[Column] = []
    cells: list[list[Cell | None]] = [[] for _ in candidates]
    absent: list[list[str]] = [[] for _ in candidates]
    for aspect in ASPECTS:
        measured = {
            key: [
                _measure(aspect, candidate, sources, key)
                for candidate, sources in zip(candidates, own, strict=True)
            ]
            for key in tests
        }
        for key in _choose_tests(aspect, measured):
            ratios = _compare(measured[key])
            heading = aspect.heading
            if aspect.several and sum(any(one) for one in measured.values()) > 1:
                heading = f"{heading}: {tests[key]}"
            number = sum(one.aspect is aspect for one in columns)
            name = aspect.key if not number else f"{aspect.key}-{number + 1}"
            columns.append(Column(name, aspect, heading, tests[key], ratios))
            for place, cell in enumerate(_make_cells(measured[key], ratios)):
                cells[place].append(cell)
                absent[place].append("" if cell else _explain(own[place], key))
    rows = [Row(*parts) for parts in zip(candidates, cells, absent, strict=True)]
    kept = [row for row in rows if any(row.cells)]
    if len(kept) < len(rows):
        # Rows are numbered.
        return _make_field(workload, hardware, [row.candidate for row in kept])
    error = share_error(len(rows))
    quantiles = [round(t_quantile(1 - error / 2, n), 4) for n in range(1, MOST_FREEDOM + 1)]
    return Field("", workload, hardware, "", columns, rows, quantiles, tests)


def _name_tests(sources: Iterable[Source]) -> dict[str, str]:
    """Key -> a name that no other has: of several that are called alike, with the campaign's title."""
    firsts: dict[str, Source] = {}
    for one in sources:
        firsts.setdefault(one.test_key, one)
    counts = Counter(one.test for one in firsts.values())
    found: dict[str, str] = {}
    for key, one in firsts.items():
        base = f"{one.test}, {one.campaign}" if one.campaign and counts[one.test] > 1 else one.test
        number = 1
        while (name := base if number == 1 else f"{base} ({number})") in found.values():
            number += 1
        found[key] = name
    return found


def _explain(sources: Sequence[Source], key: str) -> str:
    """What speaks against the results of a test: the first reason."""
    runs = [run for one in sources if one.test_key == key for run in one.result.all_runs]
    reasons = (reason for run in runs for group in run.groups for reason in group.invalid_reasons)
    return next(reasons, "")


def _measure(
    aspect: Aspect, candidate: Candidate, sources: Sequence[Source], key: str
) -> Shown | None:
    results = [one.result for one in sources if one.test_key == key]
    failed = sum(one.test_key == key for one in candidate.failed)
    return measure(aspect, results, failed) if results else None


def _choose_tests(aspect: Aspect, measured: Mapping[str, Sequence[Shown | None]]) -> list[str]:
    """Those that have a column: where candidates can be compared, if there is such a test."""
    counts = {key: sum(one is not None for one in own) for key, own in measured.items()}
    most = max(counts.values(), default=0)
    if not most:
        return []
    if not aspect.several:
        return [max(counts, key=lambda key: counts[key])]
    chosen = [key for key, count in counts.items() if count > 1]
    for key in sorted(counts, key=lambda key: -counts[key]):
        # Of the others those that are all that there is of somebody.
        known = {row for one in chosen for row, own in enumerate(measured[one]) if own}
        if any(own and row not in known for row, own in enumerate(measured[key])):
            chosen.append(key)
    return [key for key in counts if key in chosen]


def _compare(shown: Sequence[Shown | None]) -> dict[tuple[int, int], Ratio | None]:
    """Each pair of rows that have a figure."""
    error = share_error(sum(one is not None for one in shown))
    return {
        (first, second): estimate_speed(own.figures, other.figures, error)
        for first, own in enumerate(shown)
        for second, other in enumerate(shown)
        if first != second and own is not None and other is not None
    }


def is_better(ratio: Ratio | None) -> bool:
    """Whether the first of a pair is shown to be better."""
    return ratio is not None and ratio.interval is not None and ratio.interval[0] > 1


def _make_cells(
    shown: Sequence[Shown | None], ratios: Mapping[tuple[int, int], Ratio | None]
) -> list[Cell | None]:
    places = dict.fromkeys(place for one in shown if one for place in one.logs)
    known = [one.logs for one in shown if one is not None]
    best = {place: max(own[place] for own in known if place in own) for place in places}
    # As in ClickBench: what a candidate has no answer to counts as twice the slowest one.
    missing = {place: min(own[place] for own in known if place in own) - log(2) for place in places}
    alone = max((one.figures.repetitions for one in shown if one), default=0) < 2
    cells: list[Cell | None] = []
    for row, own in enumerate(shown):
        if own is None:
            cells.append(None)
            continue
        others = [other for other, each in enumerate(shown) if each is not None and other != row]
        better = [other for other in others if is_better(ratios[row, other])]
        worse = sum(is_better(ratios[other, row]) for other in others)
        alike = [
            other for other in others if (ratio := ratios[row, other]) is not None and ratio.alike
        ]
        undecided = len(others) - len(better) - worse - len(alike)
        rank = f"{1 + worse}" if not undecided else f"{1 + worse} to {1 + worse + undecided}"
        shares = [own.logs.get(place, missing[place]) - best[place] for place in places]
        interval = find_interval(own, lambda freedom: t_quantile(0.975, freedom))
        spread = None if interval is None else (interval[1] / interval[0]) ** 0.5
        note = own.detail
        if len(own.logs) < len(places):
            note = ", ".join(filter(None, [f"{len(own.logs)} of {len(places)} questions", note]))
        cells.append(
            Cell(
                own, better, alike, "" if alone or len(others) == 0 else rank, worse == 0,
                exp(fmean(shares)), spread, note,
            )
        )  # fmt: skip
    return cells


def restrict(shown: Shown, query: str) -> Shown | None:
    """What is shown of one question."""
    place = Place(group=query)
    samples = [{place: one[place]} for one in shown.figures.samples if place in one]
    if not samples:
        return None
    failed = shown.figures.repetitions - len(samples)
    return replace(shown, figures=CandidateFigures(samples, failed=failed))


def judge_alone(shown: Sequence[Shown | None]) -> list[Cell | None]:
    """The cells of a column by itself."""
    return _make_cells(shown, _compare(shown))


# --- one candidate over its versions --------------------------------------------------------------


def find_families(field: Field) -> list[list[int]]:
    """Rows of one database at several versions, the oldest first: of one target, or of targets whose names
    differ in nothing but a number (`pg16`, `pg17`)."""
    families: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(field.rows):
        one = row.candidate
        target, *rest = one.sources[0].candidate.split(" ")
        target = re.sub(r"[^a-z]*v?\d[\d.]*$", "", target.lower())
        key = (
            target,
            *rest,
            one.sources[0].result.module,
            one.durability,
            repr(one.sources[0].own),
        )
        families.setdefault(key, []).append(number)

    def name_version(number: int) -> str:
        return field.rows[number].candidate.database

    return [
        sorted(own, key=lambda number: _sort_naturally(name_version(number)))
        for own in families.values()
        if len(own) > 1 and len(set(map(name_version, own))) == len(own)
    ]
