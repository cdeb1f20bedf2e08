"""Candidates × figures: which candidates can be compared, how each figure relates to the best, and which
pairs the repetitions decide. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

from .aspects import ASPECTS, Aspect, Shown, measure
from .caveats import Place
from .conditions import find_durability
from .matrix import CandidateFigures, Matrix, is_faster, share_error
from .model import Result, as_mapping
from .naming import format_options, format_value, name_database
from .sources import Source, Sources
from .statistics import Ratio, t_quantile

_Key = tuple[str, str, str, str]
"""A candidate's name, a digest of its configuration, its database's version and its durability."""

MOST_OPTIONS = 3
"""The most options that distinguish candidates of the same name."""
MOST_FREEDOM = 40
"""The most degrees of freedom with quantiles; beyond that they hardly change."""


@dataclass(frozen=True)
class Candidate:
    """One database in one version and configuration."""

    name: str
    slug: str
    """The name of its page."""
    database: str
    """The database and its version, as it reports them."""
    durability: str
    sources: Sequence[Source]
    failed: Sequence[Source] = ()

    @property
    def client(self) -> str:
        """The client that measured it, and from where."""
        result = self.sources[0].result
        path = (
            "official client" if result.settings.module.get("client") == "official" else "lean path"
        )
        return f"{path}, {'Kubernetes' if result.executor == 'kubernetes' else 'local processes'}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of all its results."""
        tags: dict[str, str] = {}
        for source in self.sources:
            tags |= source.result.tags
        return dict(sorted(tags.items()))

    @property
    def notes(self) -> list[str]:
        """Notes on why its figures are surprising."""
        return list(dict.fromkeys(source.note for source in self.sources if source.note))

    def list_traits(self) -> dict[str, str]:
        """Traits to filter by on the first page."""
        tags = {f"tag.{key}": value for key, value in self.tags.items()}
        return {"durability": self.durability, "client": self.client, **tags}


@dataclass(frozen=True)
class Cell:
    """A candidate's figure in a column."""

    shown: Shown
    better_than: Sequence[int]
    """Rows of the candidates it is shown to beat."""
    alike: Sequence[int]
    """Rows of the candidates shown to be alike."""
    rank: str
    """`1`, `1 to 3`, `undecided`; empty if there are too few repetitions to rank."""
    leads: bool
    """Whether no candidate is shown to be better."""
    share: float
    """The figure relative to the best: 1 is the best."""
    spread: float | None
    """The interval goes from the figure ÷ this to the figure × this; None if there is only one repetition."""
    note: str = ""

    @property
    def text(self) -> str:
        """The figure."""
        return self.shown.aspect.show(self.shown.value)


@dataclass(frozen=True)
class Column:
    """An aspect in a test."""

    key: str
    """Its name in the address of a view."""
    aspect: Aspect
    heading: str
    test: str
    ratios: Mapping[tuple[int, int], Ratio | None]
    """(row, row) -> the ratio of the first to the second; above 1 is better."""


@dataclass(frozen=True)
class Row:
    """A candidate with a cell per column; None where it has no figure."""

    candidate: Candidate
    cells: Sequence[Cell | None]
    absent: Sequence[str]
    """For each column, why there is no figure although it was measured; otherwise empty."""


@dataclass(frozen=True)
class Field:
    """Candidates measured with the same workload on the same hardware; only these are compared."""

    slug: str
    workload: str
    hardware: str
    campaign: str
    """The title of their campaign, if an unrelated table has the same workload and hardware."""
    columns: Sequence[Column]
    rows: Sequence[Row]
    quantiles: Sequence[float]
    """Quantiles of Student's t, from 1 degree of freedom, for comparing two candidates."""

    tests: Mapping[str, str]
    """Key -> a unique name of the test."""

    @property
    def name(self) -> str:
        """The workload's name, and what distinguishes the table from others of that workload."""
        return f"{self.workload}: {self.campaign}" if self.campaign else self.workload

    def list_notes(self) -> list[tuple[str, str]]:
        """(candidate, why its figures are surprising), for the candidates of this table."""
        notes = [
            (row.candidate.name, source.note)
            for row in self.rows
            for source in _select(row.candidate, self.workload, self.hardware)
            if source.note
        ]
        return list(dict.fromkeys(notes))

    def list_tests(self) -> dict[str, dict[str, list[Result]]]:
        """Test -> candidate -> its results."""
        tests: dict[str, dict[str, list[Result]]] = {}
        for row in self.rows:
            for source in _select(row.candidate, self.workload, self.hardware):
                candidates = tests.setdefault(self.tests[source.test_key], {})
                candidates.setdefault(row.candidate.name, []).append(source.result)
        return tests


# --- who is compared ------------------------------------------------------------------------------


def find_candidates(sources: Sources) -> list[Candidate]:
    """All candidates by name; equal names are distinguished by version, options or durability."""
    groups: dict[_Key, list[Source]] = {}
    for source in sources.done:
        module = source.result.module
        version = name_database(source.result) or f"{module}, version not known"
        if not re.search("[a-zA-Z]", version):
            version = f"{module} {version}"
        key = (source.candidate, source.identity, version, describe_durability(source.result))
        groups.setdefault(key, []).append(source)
    ordered = sorted(groups.items(), key=lambda pair: _sort_naturally(" ".join(pair[0])))
    names = [_name(key, groups) for key, _ in ordered]
    return [
        Candidate(
            name, slug, key[2], key[3], group,
            [source for source in sources.failed if (source.candidate, source.identity) == key[:2]],
        )
        for (key, group), name, slug in zip(ordered, names, name_slugs(names), strict=True)
    ]  # fmt: skip


def _name(key: _Key, groups: Mapping[_Key, Sequence[Source]]) -> str:
    namesakes = [other for other in groups if other[0] == key[0]]
    parts = [key[0]]
    if len({other[2] for other in namesakes}) > 1:
        parts.append(key[2])
    rest = [other for other in namesakes if other[2] == key[2]]
    if len(rest) > 1:
        mine = groups[key][0].own
        options = [groups[other][0].own for other in rest]
        different = [name for name in mine if len({repr(own.get(name)) for own in options}) > 1]
        if 0 < len(different) <= MOST_OPTIONS:
            parts.append(format_options({name: mine[name] for name in different}))
        elif len({other[3] for other in rest}) == len(rest):
            parts.append(f"({key[3]})")
        else:
            parts.append(f"({1 + rest.index(key)})")
    return " ".join(parts)


def name_slugs(names: Iterable[str]) -> list[str]:
    """A distinct file name for each of the names, in the same order."""
    slugs: list[str] = []
    for name in names:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "one"
        number = 1
        while (slug := base if number == 1 else f"{base}-{number}") in slugs:
            number += 1
        slugs.append(slug)
    return slugs


def _sort_naturally(text: str) -> list[tuple[int, str]]:
    """A sort key by which 9 comes before 10."""
    parts = re.findall(r"\d+|\D+", text.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def describe_durability(result: Result) -> str:
    """The settings that decide durability."""
    settings = find_durability(result)
    return (
        ", ".join(f"{name}={format_value(value)}" for name, value in settings.items())
        or "not known"
    )


def describe_hardware(result: Result) -> str:
    """The hardware of client and database, as far as it must be equal."""
    client = result.describe("client")
    parts = [str(client["cpu_model"])] if client.get("cpu_model") else []
    if client.get("cpus"):
        parts.append(f"{client['cpus']} CPUs")
    if client.get("memory_mb"):
        parts.append(f"{client['memory_mb'] / 1000:.0f} GB")
    nodes = [
        as_mapping(node) for node in as_mapping(result.describe("kubernetes").get("nodes")).values()
    ]
    kinds = [str(node.get("instance_type") or node.get("cpu") or "node") for node in nodes]
    parts += [f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds))]
    return ", ".join(parts) or "hardware not known"


# --- what they are compared by --------------------------------------------------------------------


def make_fields(candidates: Sequence[Candidate]) -> list[Field]:
    """The tables of the first page, largest first."""
    places: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        for place in dict.fromkeys(_place(source.result) for source in candidate.sources):
            places.setdefault(place, []).append(candidate)
    fields = []
    for place, members in places.items():
        parts = _part(*place, members)
        for part in parts:
            sources = [source for candidate in part for source in _select(candidate, *place)]
            campaigns = {source.campaign for source in sources if len(parts) > 1}
            field = _make_field(*place, part)
            fields.append(replace(field, campaign=" and ".join(sorted(filter(None, campaigns)))))
    fields = [field for field in fields if field.columns]
    fields.sort(key=lambda field: (-len(field.rows), -len(field.columns), field.workload))
    slugs = name_slugs(field.workload for field in fields)
    return [replace(field, slug=slug) for field, slug in zip(fields, slugs, strict=True)]


def _part(workload: str, hardware: str, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Groups of candidates that share a test or a campaign, directly or through others: each group is a
    table."""
    parts: list[tuple[set[tuple[str, str]], list[int]]] = []
    for number, candidate in enumerate(candidates):
        links, members = set[tuple[str, str]](), [number]
        for source in _select(candidate, workload, hardware):
            links |= {("test", source.test_key), ("campaign", source.campaign)}
        for part in [part for part in parts if part[0] & links]:
            parts.remove(part)
            links, members = links | part[0], [*part[1], *members]
        parts.append((links, members))
    return [[candidates[number] for number in sorted(members)] for _, members in parts]


def _place(result: Result) -> tuple[str, str]:
    """Workload and hardware, which decide the table that a result belongs to."""
    return result.settings.data.workload, describe_hardware(result)


def _select(candidate: Candidate, workload: str, hardware: str) -> list[Source]:
    return [source for source in candidate.sources if _place(source.result) == (workload, hardware)]


def _make_field(workload: str, hardware: str, candidates: Sequence[Candidate]) -> Field:
    selected = [_select(candidate, workload, hardware) for candidate in candidates]
    tests = _name_tests(source for sources in selected for source in sources)
    columns: list[Column] = []
    cells: list[list[Cell | None]] = [[] for _ in candidates]
    absent: list[list[str]] = [[] for _ in candidates]
    for aspect in ASPECTS:
        measured: dict[str, list[Shown | None]] = {key: [] for key in tests}
        for key, column in measured.items():
            for candidate, sources in zip(candidates, selected, strict=True):
                results = [source.result for source in sources if source.test_key == key]
                failed = sum(source.test_key == key for source in candidate.failed)
                column.append(measure(aspect, results, failed) if results else None)
        for key in _choose_tests(aspect, measured):
            heading = aspect.heading
            if aspect.several and sum(any(shown) for shown in measured.values()) > 1:
                heading = f"{heading}: {tests[key]}"
            number = sum(column.aspect is aspect for column in columns)
            name = aspect.key if not number else f"{aspect.key}-{number + 1}"
            matrix = _make_matrix(measured[key])
            columns.append(Column(name, aspect, heading, tests[key], matrix.pairs))
            for place, cell in enumerate(_make_cells(measured[key], matrix)):
                cells[place].append(cell)
                absent[place].append("" if cell else _explain(selected[place], key))
    rows = [Row(*parts) for parts in zip(candidates, cells, absent, strict=True)]
    filled = [row for row in rows if any(row.cells)]
    if len(filled) < len(rows):
        # Cells refer to rows by number.
        return _make_field(workload, hardware, [row.candidate for row in filled])
    error = share_error(len(rows))
    quantiles = [round(t_quantile(1 - error / 2, n), 4) for n in range(1, MOST_FREEDOM + 1)]
    return Field("", workload, hardware, "", columns, rows, quantiles, tests)


def _name_tests(sources: Iterable[Source]) -> dict[str, str]:
    """Key -> a unique name of the test, with the campaign's title if several share a name."""
    firsts: dict[str, Source] = {}
    for source in sources:
        firsts.setdefault(source.test_key, source)
    counts = Counter(source.test for source in firsts.values())
    names: dict[str, str] = {}
    for key, source in firsts.items():
        base = (
            f"{source.test}, {source.campaign}"
            if source.campaign and counts[source.test] > 1
            else source.test
        )
        number = 1
        while (name := base if number == 1 else f"{base} ({number})") in names.values():
            number += 1
        names[key] = name
    return names


def _explain(sources: Sequence[Source], key: str) -> str:
    """The first reason against the results of a test."""
    runs = [run for source in sources if source.test_key == key for run in source.result.all_runs]
    reasons = (reason for run in runs for group in run.groups for reason in group.invalid_reasons)
    return next(reasons, "")


def _choose_tests(aspect: Aspect, measured: Mapping[str, Sequence[Shown | None]]) -> list[str]:
    """The tests with a column: those that compare candidates, if any."""
    counts = {key: sum(shown is not None for shown in column) for key, column in measured.items()}
    most = max(counts.values(), default=0)
    if not most:
        return []
    if not aspect.several:
        return [max(counts, key=lambda key: counts[key])]
    chosen = [key for key, count in counts.items() if count > 1]
    for key in sorted(counts, key=lambda key: -counts[key]):
        # Of the other tests, those that hold a candidate's only figures.
        covered = {row for test in chosen for row, shown in enumerate(measured[test]) if shown}
        if any(shown and row not in covered for row, shown in enumerate(measured[key])):
            chosen.append(key)
    return [key for key in counts if key in chosen]


def _make_matrix(column: Sequence[Shown | None]) -> Matrix[int]:
    return Matrix({row: shown.figures for row, shown in enumerate(column) if shown is not None})


def _make_cells(column: Sequence[Shown | None], matrix: Matrix[int]) -> list[Cell | None]:
    all_logs = {row: shown.logs for row, shown in enumerate(column) if shown is not None}
    speeds: dict[str, list[float]] = {}
    for logs in all_logs.values():
        for place, value in logs.items():
            speeds.setdefault(place, []).append(value)
    cells: list[Cell | None] = [None for _ in column]
    for row, shown in enumerate(column):
        if shown is None:
            continue
        logs, rank = all_logs[row], matrix.find_rank(row)
        ratios = {other: matrix.pairs[row, other] for other in matrix.rows if other != row}
        # As in ClickBench: a query without an answer counts as twice the slowest answer.
        shares = [
            logs.get(place, min(every) - log(2)) - max(every) for place, every in speeds.items()
        ]
        interval = shown.figures.find_interval()
        answered = f"{len(logs)} of {len(speeds)} queries" if len(logs) < len(speeds) else ""
        cells[row] = Cell(
            shown,
            [other for other, ratio in ratios.items() if is_faster(ratio)],
            [other for other, ratio in ratios.items() if ratio is not None and ratio.alike],
            "" if matrix.is_single or not ratios else str(rank),
            rank.best == 1,
            exp(fmean(shares)),
            None if interval is None else (interval[1] / interval[0]) ** 0.5,
            ", ".join(filter(None, [answered, shown.detail])),
        )
    return cells


def judge_query(field: Field, column: int, query: str) -> list[Cell | None]:
    """The cells of one query alone."""
    place = Place(group=query)
    every: list[Shown | None] = []
    for row in field.rows:
        cell = row.cells[column]
        figures = cell.shown.figures if cell else CandidateFigures([])
        samples = [{place: samples[place]} for samples in figures.samples if place in samples]
        failed = figures.repetitions - len(samples)
        alone = CandidateFigures(samples, failed=failed)
        every.append(replace(cell.shown, figures=alone) if cell and samples else None)
    return _make_cells(every, _make_matrix(every))


# --- one candidate over its versions --------------------------------------------------------------


def find_families(field: Field) -> list[list[int]]:
    """Rows of one database in several versions, oldest first: of one target, or of targets whose names differ
    only in a number (`pg16`, `pg17`)."""
    families: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(field.rows):
        candidate = row.candidate
        target, *rest = candidate.sources[0].candidate.split(" ")
        target = re.sub(r"[^a-z]*v?\d[\d.]*$", "", target.lower())
        key = (
            target,
            *rest,
            candidate.sources[0].result.module,
            candidate.durability,
            repr(candidate.sources[0].own),
        )
        families.setdefault(key, []).append(number)

    def name_version(number: int) -> str:
        return field.rows[number].candidate.database

    return [
        sorted(family, key=lambda number: _sort_naturally(name_version(number)))
        for family in families.values()
        if len(family) > 1 and len(set(map(name_version, family))) == len(family)
    ]
