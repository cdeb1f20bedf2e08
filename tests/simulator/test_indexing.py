"""When a run's indexes are made: a run on a fake database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from simulator.contract import Load, Phase, Report, Role, make_groups
from simulator.errors import OptionError, SimulatorError
from simulator.modules import load_module, module_names
from simulator.modules.base import Support
from simulator.modules.kit.module import CreateIndices, IndexedModule, IndexOptions
from simulator.modules.options import parse_options
from simulator.workloads.temperature import Temperature

from .collecting import FakeDatabase, Run, play, until


class IndexedDatabase(FakeDatabase, IndexedModule[Any]):
    """It may have one index."""

    def __init__(self, when: CreateIndices) -> None:
        super().__init__()
        self.options = IndexOptions(create_indices=when)
        self.there: set[str] = set()

    @property
    def index_names(self) -> Collection[str]:
        return ["by_device"]

    def create_indexes(self, names: Collection[str]) -> None:
        self._called("create")
        self.there |= set(names)

    def drop_indexes(self, names: Collection[str]) -> None:
        self._called("drop")
        self.there -= set(names)

    def list_indexes(self) -> Mapping[str, str]:
        return {name: f"events {name}" for name in self.there}


def use(monkeypatch: pytest.MonkeyPatch, when: str, there: Collection[str] = ()) -> IndexedDatabase:
    database = IndexedDatabase(CreateIndices(when))
    database.there = set(there)
    monkeypatch.setattr("simulator.collector.run.build", lambda _: (Temperature(), database))
    return database


async def insert(run: Run, prefilled: int = 0) -> Report:
    """Two workers insert a hundred events each."""
    await run.start(prefilled)
    for worker in range(2):
        await run.result(worker)
    return Report.model_validate_json((await run.report()).content)


def order(database: IndexedDatabase) -> list[str]:
    return [call for call in database.calls if call in ("prepare", "create", "drop", "count")]


@pytest.mark.parametrize(
    ("when", "calls", "indexes"),
    [
        ("no", ["prepare", "count"], []),
        ("before", ["prepare", "create", "count"], ["events by_device"]),
        ("after", ["prepare", "count", "create"], []),
    ],
)
def test_inserts_are_measured_with_what_the_result_says(
    monkeypatch: pytest.MonkeyPatch, when: str, calls: list[str], indexes: list[str]
) -> None:
    database = use(monkeypatch, when)

    async def story(run: Run) -> None:
        report = await insert(run)
        assert report.run.writers is not None and report.run.writers.valid
        assert report.environment["database"]["schema"]["indexes"] == indexes
        assert (report.run.index_build_s is not None) == (when == "after")
        assert (Phase.INDEX in report.run.phases_s) == (when == "after")

    play(story)
    assert order(database) == calls


def test_a_database_at_work_has_its_indexes_once_it_is_prefilled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in `mixed` and `capacity`."""
    database = use(monkeypatch, "after")
    database.counts = [300]

    async def story(run: Run) -> None:
        await until(lambda: "prepare" in database.calls)
        assert not database.there
        report = await insert(run, prefilled=50)
        assert report.run.writers is not None and report.run.writers.valid, (
            report.run.invalid_reasons
        )
        assert report.run.index_build_s is not None
        assert report.environment["database"]["schema"]["indexes"] == ["events by_device"]

    play(story, loads_by_prefill=True, prefill=100)
    assert order(database) == ["prepare", "create", "count"]


def test_what_was_measured_is_kept_if_the_indexes_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = use(monkeypatch, "after")
    database.fails["create"] = SimulatorError("the disk is full")

    async def story(run: Run) -> None:
        report = await insert(run)
        assert report.run.writers is not None and report.run.writers.rate_per_s
        assert not report.run.writers.valid
        assert report.run.writers.invalid_reasons == report.run.invalid_reasons
        assert report.run.invalid_reasons == ["building the indexes failed: the disk is full"]

    play(story)


def test_growing_data_is_loaded_without_them_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    database = use(monkeypatch, "after", there=["by_device"])
    database.counts = [0, 200]

    async def story(run: Run) -> None:
        report = await insert(run)
        assert report.run.writers is not None and report.run.index_build_s is not None

    play(story, clean=False)
    assert order(database) == ["prepare", "drop", "count", "count", "create"]


@pytest.mark.parametrize(
    ("when", "there", "words"),
    [
        ("no", ["by_device"], "run without --no-clean, or with create_indices=before"),
        ("before", [], None),
        ("before", ["by_device"], None),
    ],
)
def test_tables_that_stay(
    monkeypatch: pytest.MonkeyPatch, when: str, there: list[str], words: str | None
) -> None:
    database = use(monkeypatch, when, there)
    database.counts = [0, 200]

    async def story(run: Run) -> None:
        if words is None:
            await insert(run)
            return
        await until(lambda: run.collector.failure is not None)
        assert words in str(run.collector.failure)

    play(story, clean=False)


@pytest.mark.parametrize(
    ("when", "there", "fails", "builds"),
    [
        ("no", [], False, False),
        ("no", ["by_device"], False, False),
        ("before", ["by_device"], False, False),
        ("before", [], True, False),
        ("after", [], False, True),
        ("after", ["by_device"], False, False),
    ],
)
def test_queries_find_no_index_that_nobody_has_paid_for(
    monkeypatch: pytest.MonkeyPatch, when: str, there: list[str], fails: bool, builds: bool
) -> None:
    database = use(monkeypatch, when, there)

    async def story(run: Run) -> None:
        if fails:
            await until(lambda: run.collector.failure is not None)
            assert "insert again with create_indices=before" in str(run.collector.failure)
            return
        await run.start()

    play(story, groups=make_groups(Load(role=Role.READ, workers=2, check=False)))
    assert ("create" in database.calls) == builds


@pytest.mark.parametrize(
    ("value", "when"),
    [
        (True, "before"), (False, "no"), ("true", "before"), ("No", "no"), ("after", "after"),
        ("BEFORE", "before"), (1, "before"),
    ],
)  # fmt: skip
def test_the_option_knows_its_old_words(value: object, when: str) -> None:
    assert IndexOptions.model_validate({"create_indices": value}).create_indices == when


def test_another_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(OptionError, match=r"create_indices: .*'no', 'before' or 'after'"):
        parse_options(IndexOptions, {"create_indices": "later"}, lambda _: "--extra-option")


@pytest.mark.parametrize("name", module_names())
def test_who_has_the_option_does_what_it_says(name: str) -> None:
    kind = load_module(name)
    has_option = "create_indices" in kind.options_model.model_fields
    assert has_option == issubclass(kind, IndexedModule)
    assert has_option == (kind.CAPABILITIES.indices is Support.FULL)
