"""Who stands beside whom, and which differences are shown."""

from __future__ import annotations

from math import exp
from pathlib import Path

import pytest

from cli.results.matrix import Matrix
from cli.results.model import Result
from cli.results.published import Cell, Field, find_candidates, find_families, make_fields
from cli.results.sources import find_sources
from cli.results.store import NOTES
from cli.show.site import describe_ratio

from ..made import capacity
from .published import SPEEDS, describe_server, keep_campaign, keep_result, make_results


def make(
    folder: Path, results: dict[str, Result], failed: dict[str, str] | None = None
) -> list[Field]:
    """The tables of a campaign."""
    sources = find_sources([keep_campaign(folder / "night", results, failed)])
    return make_fields(find_candidates(sources))


def take(field: Field, heading: str) -> dict[str, Cell | None]:
    """A column: candidate -> its cell."""
    place = [column.heading for column in field.columns].index(heading)
    return {row.candidate.name: row.cells[place] for row in field.rows}


def test_a_difference_that_is_not_shown_is_a_tie(tmp_path: Path) -> None:
    (field,) = make(tmp_path, make_results())
    own = take(field, "Inserts/s")
    ranks = {name: cell.rank for name, cell in own.items() if cell}
    assert ranks == {"alpha": "1 to 2", "gamma": "1 to 2", "beta": "3"}
    assert [name for name, cell in own.items() if cell and cell.leads] == ["alpha", "gamma"]
    beta = own["beta"]
    assert beta is not None
    assert beta.share == pytest.approx(0.5, rel=0.01)
    assert beta.spread is not None and 1 < beta.spread < 1.05


def test_ranks_are_those_of_a_campaigns_ranking(tmp_path: Path) -> None:
    (field,) = make(tmp_path, make_results())
    for place, column in enumerate(field.columns):
        cells = {row.candidate.name: cell for row in field.rows if (cell := row.cells[place])}
        expected = Matrix({name: cell.shown.figures for name, cell in cells.items()}).rank()
        ranks = {name: cell.rank for name, cell in cells.items()}
        assert ranks == {name: str(rank) for name, rank in expected.items()}, column.heading


def test_one_repetition_ranks_nobody(tmp_path: Path) -> None:
    speeds = {name: own[:1] for name, own in SPEEDS.items()}
    (field,) = make(tmp_path, make_results(speeds))
    for row in field.rows:
        for cell in row.cells:
            assert cell is None or (cell.rank == "" and cell.spread is None and cell.leads)


def test_less_is_better_of_times(tmp_path: Path) -> None:
    (field,) = make(tmp_path, make_results())
    own = take(field, "Queries, hot, ms")
    assert own["beta"] is not None and own["alpha"] is not None
    assert own["beta"].rank == "1"
    assert own["beta"].share == 1
    # 20 and 500 ms beside 10 and 100.
    assert own["alpha"].share == pytest.approx((1 / 2 * 1 / 5) ** 0.5, rel=0.01)
    assert own["alpha"].text == "100"


def test_a_query_without_an_answer_counts_as_twice_the_slowest(tmp_path: Path) -> None:
    (field,) = make(tmp_path, make_results())
    gamma = take(field, "Queries, hot, ms")["gamma"]
    assert gamma is not None
    assert gamma.note == "1 of 2 queries"
    assert gamma.share == pytest.approx((1 / 4 * 1 / 10) ** 0.5, rel=0.01)


def test_a_repetition_that_failed_is_told_and_shows_nobody_to_be_better(tmp_path: Path) -> None:
    results = make_results()
    del results["alpha load 3"]
    (field,) = make(tmp_path, results, {"alpha load 3": "the server was gone"})
    own = take(field, "Inserts/s")
    assert own["alpha"] is not None and own["beta"] is not None
    assert own["alpha"].note == "in 2 of 3 repetitions"
    assert own["alpha"].better_than == []
    assert own["beta"].rank == "2 to 3"


def test_what_is_not_valid_has_no_figure_but_a_reason(tmp_path: Path) -> None:
    results = make_results()
    for number in (1, 2, 3):
        (group_run,) = results[f"beta load {number}"].writers
        group_run.group.invalid_reasons.append("7 of 1,000 events are missing")
    (field,) = make(tmp_path, results)
    assert take(field, "Inserts/s")["beta"] is None
    assert field.rows[1].absent == ["7 of 1,000 events are missing", "", ""]


def test_what_a_search_found_at_least_says_so(tmp_path: Path) -> None:
    for name, bound in (("alpha", True), ("beta", False)):
        for number in range(2):
            result = capacity(at=50_000, client_bound=bound, target=name)
            keep_result(tmp_path / f"{name}-{number}", result)
    fields = make_fields(find_candidates(find_sources([tmp_path])))
    column = take(fields[0], "Capacity, events/s")
    assert {name: cell and cell.note for name, cell in column.items()} == {
        "alpha": "at least",
        "beta": "",
    }


def test_other_hardware_is_another_table(tmp_path: Path) -> None:
    large = describe_server()
    large["client"]["cpus"] = 64
    fields = make(tmp_path, make_results(environments={"beta": large}))
    rows = {field.hardware: [row.candidate.name for row in field.rows] for field in fields}
    assert rows == {
        "Some CPU, 2 CPUs, 4 GB": ["alpha", "gamma"],
        "Some CPU, 64 CPUs, 4 GB": ["beta"],
    }
    assert [field.slug for field in fields] == ["temperature", "temperature-2"]


def test_notes_stand_below_the_figures_that_they_are_about(tmp_path: Path) -> None:
    large = describe_server()
    large["client"]["cpus"] = 64
    for name, environments in (("small", {}), ("large", dict.fromkeys(SPEEDS, large))):
        folder = keep_campaign(tmp_path / name, make_results(environments=environments))
        (folder / NOTES).write_text(f"alpha: It is {name}.\n")
    fields = make_fields(find_candidates(find_sources([tmp_path])))
    assert {field.hardware: field.list_notes() for field in fields} == {
        "Some CPU, 2 CPUs, 4 GB": [("alpha", "It is small.")],
        "Some CPU, 64 CPUs, 4 GB": [("alpha", "It is large.")],
    }


def test_targets_named_by_a_version_are_a_family(tmp_path: Path) -> None:
    """Another durability is another candidate."""
    names = {"pg16": "16.2", "pg9.6": "9.6", "pg17": "17.1", "pg18": "18.4"}
    speeds = dict(zip(names, (*SPEEDS.values(), SPEEDS["beta"]), strict=True))
    environments = {
        name: describe_server(f"PostgreSQL {version}", fsync="off" if name == "pg17" else "on")
        for name, version in names.items()
    }
    (field,) = make(tmp_path, make_results(speeds, environments=environments))
    (family,) = find_families(field)
    assert [field.rows[place].candidate.name for place in family] == ["pg9.6", "pg16", "pg18"]
    ratio = field.columns[0].ratios[family[1], family[0]]
    assert describe_ratio(ratio).startswith("2.00× better, ")


def test_one_target_at_two_versions_is_two_candidates(tmp_path: Path) -> None:
    speeds = {"alpha": SPEEDS["alpha"]}
    for version in ("16.2", "18.4"):
        environments = {"alpha": describe_server(f"PostgreSQL {version}")}
        keep_campaign(tmp_path / version, make_results(speeds, environments=environments))
    candidates = find_candidates(find_sources([tmp_path]))
    assert [candidate.name for candidate in candidates] == [
        "alpha PostgreSQL 16.2",
        "alpha PostgreSQL 18.4",
    ]
    (field,) = make_fields(candidates)
    assert find_families(field) == [[0, 1]]


def test_tests_of_one_name_are_told_apart_by_their_campaigns(tmp_path: Path) -> None:
    for number, title in enumerate(("A night", "A day", "A day", "")):
        keep_campaign(tmp_path / f"c{number}", make_results(), title=title, options={"x": number})
    (field,) = make_fields(find_candidates(find_sources([tmp_path])))
    names = ["A night", "A day", "A day (2)", "c3"]
    headings = {column.heading for column in field.columns if column.aspect.key == "inserts"}
    assert headings == {f"Inserts/s: load, {name}" for name in names}


def test_shares_are_of_the_best(tmp_path: Path) -> None:
    (field,) = make(tmp_path, make_results())
    for place in range(len(field.columns)):
        cells = [cell for row in field.rows if (cell := row.cells[place])]
        assert max(cell.share for cell in cells) == 1
        if len(cells[0].shown.logs) == 1:
            logs = [next(iter(cell.shown.logs.values())) for cell in cells]
            assert [exp(log - max(logs)) for log in logs] == [cell.share for cell in cells]


def test_campaigns_that_share_nothing_have_tables_of_their_own(tmp_path: Path) -> None:
    """Of one workload on one machine: neither has a figure that the other's could stand beside."""
    fleet = {"alpha": SPEEDS["alpha"], "beta": SPEEDS["beta"]}
    keep_campaign(tmp_path / "fleet", make_results(fleet), title="A fleet")
    versions = {"pg17": SPEEDS["alpha"], "pg18": SPEEDS["beta"]}
    environments = {name: describe_server(f"PostgreSQL {name[2:]}") for name in versions}
    results = make_results(versions, times={}, environments=environments)
    keep_campaign(tmp_path / "versions", results, title="Versions", options={"x": 1})
    fields = make_fields(find_candidates(find_sources([tmp_path])))
    assert {field.name: [row.candidate.name for row in field.rows] for field in fields} == {
        "temperature: A fleet": ["alpha", "beta"],
        "temperature: Versions": ["pg17", "pg18"],
    }
    assert all(cell for field in fields for row in field.rows for cell in row.cells)
    assert [find_families(field) for field in fields] == [[], [[0, 1]]]
