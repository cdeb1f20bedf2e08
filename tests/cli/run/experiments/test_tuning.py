"""Tuning: which combinations go on, what they are compared with, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from pathlib import Path

import pytest

from cli.plan.requests import TuneRequest
from cli.results.answers import TunedSetting, Tuning
from cli.run.experiments.tuning import (
    ROUGH_STEPS,
    TuneExperiment,
    apply_settings,
    choose_better_half,
    choose_finalists,
    combine,
    count_stages,
    list_loads,
    plan_final,
    read_over,
    shuffle,
    stretch,
)
from cli.show.notes import list_notes
from cli.show.searches import advise, describe_tuning, tabulate_tuning
from cli.show.words import describe_measurement, describe_validity, write_headline
from cli.system.errors import ConfigError, RunFailed
from simulator.contract import DataSet, Load, Offered, RunResult, RunSettings
from simulator.modules.cassandra.encoding import CassandraOptions
from simulator.modules.postgres.encoding import PostgresOptions

from ....helpers import insert_run
from ...made import OPTIONS, ask_for, tuned
from .running import FakeExecutor, make_runs, open_blackhole

OVER = [
    TunedSetting(name="batch", values=[10, 100, 1000], default=0),
    TunedSetting(name="workers", values=[1, 2, 4], default=1),
    TunedSetting(name="copy_format", option=True, values=["text", "binary"], default="binary"),
]


def test_all_combinations_are_tried() -> None:
    candidates = combine(OVER)
    assert len(candidates) == 18
    assert Counter(own["batch"] for own in candidates) == {10: 6, 100: 6, 1000: 6}
    assert {tuple(own) for own in candidates} == {("batch", "workers", "copy_format")}


@pytest.mark.parametrize(
    ("candidates", "stages"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (18, 4), (512, 8)]
)
def test_halves_are_chosen_until_two_are_left(candidates: int, stages: int) -> None:
    assert count_stages(candidates) == stages


def test_later_runs_are_longer_but_not_for_ever() -> None:
    assert [stretch(stage) for stage in (1, 2, 3, 4, 5, 9)] == [1, 2, 4, 8, 8, 8]


def test_the_order_is_by_chance_and_the_same_for_a_seed() -> None:
    order = shuffle(range(20), 3, 1)
    assert sorted(order) == list(range(20)) != order
    assert shuffle(range(20), 3, 1) == order
    assert shuffle(range(20), 3, 2) != order != shuffle(range(20), 4, 1)


def test_the_better_half_goes_on_and_what_failed_does_not() -> None:
    rates: dict[int, list[float | None]] = {
        0: [100.0],
        1: [None],
        2: [300.0],
        3: [200.0],
        4: [50.0],
    }
    tuning = tuned(OVER[:1], rates).tuning
    assert tuning is not None
    assert choose_better_half(tuning, list(rates)) == [2, 3, 0]
    assert choose_better_half(tuning, [0, 1]) == [0]
    assert choose_better_half(tuning, [1]) == []


def test_the_best_is_compared_with_the_defaults_and_with_each_setting_at_its_own() -> None:
    tuning = Tuning(over=OVER, candidates=combine(OVER))
    places = [
        tuning.candidates.index({"batch": batch, "workers": workers, "copy_format": "text"})
        for batch, workers in ((1000, 4), (100, 4))
    ]
    candidates, finalists = choose_finalists(tuning, places)
    shown = [tuple(candidates[place].values()) for place in finalists]
    assert shown == [
        (1000, 4, "text"), (100, 4, "text"), (0, 1, "binary"), (0, 4, "text"), (1000, 1, "text"),
        (1000, 4, "binary"),
    ]  # fmt: skip
    # The defaults weren't among what was varied.
    assert len(candidates) == len(tuning.candidates) + 2


def test_finalists_take_turns() -> None:
    assert plan_final([4, 7, 9], 3) == [4, 7, 9, 7, 9, 4, 9, 4, 7]


@pytest.mark.parametrize("values", [[4, 3, 2], [1, 2, 1], [1, 1], [9], [2], [1]])
def test_what_is_left_at_most_is_what_the_longest_course_takes(values: list[int]) -> None:
    """No default is among what is varied, so that no finalist stands for two."""
    over = [
        TunedSetting(name=name, values=list(range(count)), default=-1)
        for name, count in zip(("batch", "workers", "in_flight"), values, strict=False)
    ]
    load = Load(duration_s=5.0, warm_up_s=1.0)
    wish = ask_for(TuneRequest, load, DataSet(), runs=3)
    candidates = combine(over)
    rates: dict[int, list[float | None]] = {n: [float(n + 1)] for n in range(len(candidates))}
    tuning = Tuning(over=over, candidates=candidates)
    measured = tuned(over, rates).tuning
    assert measured is not None
    remaining, durations = list(rates), []
    for stage in range(1, count_stages(len(candidates)) + 1):
        durations += [5.0 * stretch(stage)] * len(remaining)
        remaining = choose_better_half(measured, remaining)
    _, finalists = choose_finalists(tuning, remaining)
    durations += [5.0 * stretch(count_stages(len(candidates)) + 1)] * len(plan_final(finalists, 3))
    assert [load.duration_s for load in list_loads(wish, tuning)] == durations


@pytest.mark.parametrize(("max_steps", "rough"), [(16, ROUGH_STEPS), (4, 4)])
def test_of_searches_there_are_a_closed_loop_and_all_steps_left_at_most(
    max_steps: int, rough: int
) -> None:
    over = OVER[1:2]
    tuning = Tuning(over=over, candidates=combine(over))
    wish = TuneRequest(target="x", limits=("p99=9ms",), runs=2, max_steps=max_steps)
    loads = Counter(load.duration_s for load in list_loads(wish, tuning))
    # Three combinations, then two of them and the defaults.
    assert loads == {5.0: 3 * (1 + rough), 10.0: 3 * 2 * (1 + max_steps)}


# --- what is varied -------------------------------------------------------------------------------

GIVEN = {"connection_string": "host=db"}
POSTGRES = PostgresOptions.model_validate(GIVEN)


def test_settings_of_the_load_and_of_the_module() -> None:
    texts = ("batch=100,1k", "in-flight=1,4", "copy_format=text,binary", "primary_key=none,db")
    batch, in_flight, form, key = read_over(texts, Load(batch=10), POSTGRES, GIVEN)
    assert (batch.values, batch.default, batch.option) == ([100, 1000], 10, False)
    assert (in_flight.name, in_flight.values, in_flight.default) == ("in_flight", [1, 4], 1)
    assert (form.values, form.default, form.option) == (["text", "binary"], "binary", True)
    assert (key.values, key.default) == (["none", "db"], "db")
    chosen = {"batch": 100, "in_flight": 4, "copy_format": "text", "primary_key": "none"}
    load, values = apply_settings(chosen, Load(batch=10), GIVEN, PostgresOptions)
    assert (load.batch, load.in_flight, load.primary_key) == (100, 4, "none")
    assert values == GIVEN | {"copy_format": "text"}


def test_requests_in_flight_have_one_name_in_every_module() -> None:
    config = {"contact_points": ["db"], "max_sync_calls": 8}
    options = CassandraOptions.model_validate(config)
    (setting,) = read_over(["in_flight=1,16"], Load(), options, config)
    assert setting.default == 8
    load, values = apply_settings({"in_flight": 16}, Load(), config, CassandraOptions)
    assert CassandraOptions.model_validate(values).in_flight(load) == 16
    with pytest.raises(ConfigError, match="write in_flight"):
        read_over(["max_sync_calls=1,2"], Load(), options, config)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "needs a setting"),
        (["batch"], "as in batch=100,1000"),
        (["batch=1,,2"], "as in batch=100,1000"),
        (["bach=1,2"], "did you mean batch"),
        (["batch=1,x"], "batch=x"),
        (["batch=1,-5"], "batch=-5"),
        (["batch=1,1"], "value 1 twice"),
        (["batch=1,2", "batch=3"], "batch twice"),
        (["primary_key=db,foo"], "primary_key=foo"),
        (["copy_format=text,binry"], "copy_format=binry"),
        # A secret may be in it, and it says where the database is.
        (["connection_string=host=a,host=b"], "no setting 'connection_string'"),
    ],
)
def test_what_can_not_be_varied(texts: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_over(texts, Load(), POSTGRES, GIVEN)


# --- what is said ---------------------------------------------------------------------------------


def test_the_answer() -> None:
    over = [OVER[0].model_copy(update={"default": 10}), OVER[2]]
    slow = [50.0, 51.0, 52.0]
    # text and binary of each batch, in turn: 10, 100, 1000.
    result = tuned(over, {0: [10.0], 1: [50.0], 2: [20.0], 3: [100.0], 4: [195.0], 5: [200.0]},
                   {5: [200.0, 202.0, 204.0], 4: [198.0, 202.0, 207.0], 1: slow, 0: slow})  # fmt: skip
    best, beside, defaults, batch, form = describe_tuning(result)
    assert best == "No best is shown; batch=1000 copy_format=text measured highest: 202 inserts/s."
    assert beside.startswith("Compared with the next, batch=1000 copy_format=binary: ")
    assert "no difference shown (95 % interval 1.0" in beside
    assert defaults.startswith("Compared with the defaults, batch=10 copy_format=binary: 3.7")
    assert defaults.endswith("× faster (95 % interval).")
    assert batch == "batch left at 10: costs 75% of the rate."
    assert form == "copy_format left at binary: no difference shown."
    rows = [list(map(str, row)) for row in tabulate_tuning(result).rows]
    assert [row[:2] for row in rows[:3]] == [["1000", "text"], ["1000", "binary"], ["10", "binary"]]
    assert rows[0][2:4] == ["3", "3"] and rows[0][-1] == "highest"
    assert rows[2][-1] == "3, defaults"
    # What went out early comes after, the better first.
    assert [row[:2] for row in rows[4:]] == [["100", "binary"], ["100", "text"]]
    text = advise(result)
    assert "defaults, so you may keep those" not in text
    assert "insert --target alpha --batch 1000 --extra-option copy_format=text" in text
    assert "copy_format: text" in text.splitlines()[-1]
    assert write_headline(result).startswith("202 inserts/s: batch=1000")
    assert describe_validity(result) == "yes"
    assert "6 combinations of batch (10, 100, 1000), copy_format (text, binary)" in (
        describe_measurement(result)
    )
    assert any(
        note.startswith("few runs: the best was measured 3 times")
        for note in list_notes(result, False)
    )


def test_what_a_default_costs_is_told_of_the_winner_of_the_comparison() -> None:
    """It may be another than the search's, beside which alone each default was measured again."""
    over = [OVER[0].model_copy(update={"default": 10}), OVER[2]]
    # text and binary of each batch, in turn: 10, 100, 1000. The search's winner is 1000 text.
    first = {0: [50.0], 1: [10.0], 2: [80.0], 3: [60.0], 4: [100.0], 5: [20.0]}
    result = tuned(over, first, {4: [200.0] * 3, 2: [400.0] * 3, 1: [10.0] * 3, 0: [50.0] * 3,
                                 5: [20.0] * 3})  # fmt: skip
    *_, batch, form = describe_tuning(result)
    assert batch == "batch left at 10: costs 88% of the rate."
    # 100 binary was in the search alone.
    assert (
        form == "copy_format left at binary: costs 25% of the rate, from single runs of the search."
    )
    failed = tuned(over, first | {3: [None]}, {4: [200.0], 2: [400.0]})
    assert describe_tuning(failed)[-1] == "copy_format left at binary: it gave no figure."
    # A default that was not among what was varied was not even there.
    over = [OVER[0], OVER[2]]
    result = tuned(over, first, {4: [200.0], 2: [400.0]})
    *_, batch, form = describe_tuning(result)
    assert batch == "batch left at 0: not measured, since the search had another winner."


@pytest.mark.parametrize(("window_s", "short"), [(8.3, True), (16.7, False)])
def test_runs_of_the_comparison_may_be_short(window_s: float, short: bool) -> None:
    """Those of the search are."""
    rates = {0: [10.0], 1: [50.0]}
    result = tuned(OVER[:1], rates, rates, options=OPTIONS | {"duration_s": 5.0})
    for group_run, taken_s in zip(result.writers, (4.2, 4.2, window_s, window_s), strict=True):
        group_run.group.window_s = taken_s
    notes = [note for note in list_notes(result, False) if note.startswith("short: ")]
    expected = "short: start-up and shutdown dominate a run of 8.3 s: give --run-duration 7s"
    assert notes == ([expected] if short else [])


def test_a_search_that_did_not_come_to_its_end() -> None:
    result = tuned(OVER[:1], {0: [10.0], 1: [None]}, complete=False)
    assert describe_tuning(result) == [
        "No best combination was found: the search didn't reach its comparison."
    ]
    assert advise(result) == "" and not result.valid
    assert write_headline(result) == "no combination found"
    assert "invalid: 1 of 2 measurements" not in "".join(list_notes(result, False))


def test_what_matters_most() -> None:
    tuning = tuned(
        OVER[:2], {n: [float(prod(own))] for n, own in enumerate(
            (batch, {1: 10, 2: 11, 4: 12}[workers]) for batch in (10, 100, 1000) for workers in (1, 2, 4)
        )}
    ).tuning  # fmt: skip
    assert tuning is not None
    weights = tuning.weigh_settings()
    assert list(weights) == ["batch", "workers"]
    assert weights["batch"] == pytest.approx(100.0)
    assert weights["workers"] == pytest.approx(1.2)


def test_what_a_default_costs_is_never_all_or_less_than_nothing() -> None:
    over = [TunedSetting(name="batch", values=[1, 1000], default=1)]
    for rate, text in ((1.0, "costs more than 99% of the rate"), (1000.0, "costs nothing")):
        result = tuned(over, {0: [rate], 1: [1000.0]}, {1: [1000.0], 0: [rate]})
        *_, cost = describe_tuning(result)
        assert cost == f"batch left at 1: {text}, from single runs."


def test_a_combination_that_fails_keeps_its_logs_and_no_other_from_being_tried(
    tmp_path: Path,
) -> None:
    """Each has a folder of its own for its logs, whatever became of those before."""
    database = _Failing()
    tuning, runs = _tune(tmp_path, database, "no combination gave a figure")
    assert [trial.reasons for trial in tuning.trials] == [["the database is gone"]] * 2
    assert [trial.runs for trial in tuning.trials] == [[1], [2]]
    assert [run.invalid_reasons for run in runs] == [["the database is gone"]] * 2
    assert database.logs == ["trial-001", "trial-002"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [([], ["the database is gone"]), (["p99=9ms"], ["the database is gone"])],
)
def test_a_trial_that_fails_keeps_no_other_from_being_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: list[str], said: list[str]
) -> None:
    """The other combination is measured, and compared with the defaults."""
    database = _Failing(batch=10)
    tuning, runs = _tune(tmp_path, database, None, limits)
    failed = [trial for trial in tuning.trials if trial.reasons]
    assert [trial.reasons for trial in failed] == [said]
    assert tuning.candidates[failed[0].candidate] == {"batch": 10}
    assert [number for trial in tuning.trials for number in trial.runs] == [run.run for run in runs]
    assert [run.run for run in runs] == list(range(1, len(runs) + 1))
    errors = capsys.readouterr().err
    assert ": failed: the database is gone" in errors
    if limits:
        assert "batch=10: failed: the database is gone\n" in errors
        assert "trial-1-step-01" in database.logs


def _tune(
    place: Path, database: FakeExecutor, error: str | None, limits: Sequence[str] = ()
) -> tuple[Tuning, list[RunResult]]:
    wish = TuneRequest(
        target="x", duration_s=30, warm_up_s=0, over=("batch=10,100",), runs=1, limits=tuple(limits)
    )
    experiment = TuneExperiment(wish, open_blackhole(place))
    with nullcontext() if error is None else pytest.raises(RunFailed, match=error):
        make_runs(experiment, database)
    return experiment.tuning, experiment.runs


class _Failing(FakeExecutor):
    """Fails with requests of so many events, or always."""

    def __init__(self, batch: int | None = None) -> None:
        super().__init__()
        self._batch = batch

    def measure(self, settings: RunSettings) -> RunResult:
        load = settings.groups[0].load
        if self._batch in (None, load.batch):
            raise RunFailed("the database is gone")
        rate = load.rate_per_s
        offered = rate and Offered(
            rate_per_s=rate, due=99_999, achieved=99_999, backlog_max=1, backlog_growth=0, saturated=False
        )  # fmt: skip
        return insert_run(rate_per_s=rate or 10_000.0, offered=offered or None)


def test_the_best_is_called_so_where_it_is_shown() -> None:
    over = [OVER[0].model_copy(update={"default": 10})]
    first: dict[int, list[float | None]] = {0: [10.0], 1: [50.0], 2: [100.0]}
    clear = tuned(over, first, {2: [200.0, 202.0, 204.0], 1: [50.0, 51.0, 52.0]})
    assert describe_tuning(clear)[0] == "Best: batch=1000: 202 inserts/s."
    alike = tuned(over, first, {2: [202.0, 203.0, 204.0], 0: [198.0, 202.0, 207.0]})
    assert describe_tuning(alike)[0].startswith("No best is shown; batch=1000 measured highest: ")
    assert "isn't shown to be faster than the defaults, so you may keep those" in advise(alike)
    wide = tuned(over, first, {2: [100.0, 202.0, 404.0], 1: [50.0, 210.0, 390.0]})
    assert "undecided (95 % interval " in describe_tuning(wide)[1]


def test_the_command_line_has_what_was_given_beside_the_settings() -> None:
    over = [OVER[0].model_copy(update={"default": 10})]
    options = {"workers": [2], "workload": "machines", "primary_key": "none", "batch": 10,
               "prefill": 500, "module": {"tags": "table"}}  # fmt: skip
    result = tuned(over, {0: [10.0], 1: [50.0]}, {1: [50.0], 0: [10.0]}, options=options)
    assert (
        "insert --target alpha --workers 2 --workload machines --primary-key none --prefill 500"
        " --workload-option tags=table --batch 100"
    ) in advise(result)
