"""Steps that follow from requirements, and what the file may not say beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run.campaign.campaign import Campaign, open_campaign
from cli.run.campaign.definition import EXAMPLES
from cli.run.campaign.plan import Job
from cli.run.campaign.running import prepare
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

from ....helpers import begin_definition, configure_definition

CONFIG = (
    """
targets:
  one: {module: postgres, executor: local, connection_string: host=127.0.0.1 dbname=x}
  two: {module: questdb, executor: local, endpoint: http://127.0.0.1:1}
  three: {module: victoriametrics, executor: local, endpoint: http://127.0.0.1:1}
  struck: {module: blackhole, executor: local, disturbances: [30s run true]}
workloads:
"""
    + configure_definition(
        begin_definition("boilers", "boiler", "Boilers", devices=10, interval="5s")
    )
    + """\
      - {name: heat, type: float32, signal: {kind: normal, mean: 1, deviation: 0.1}}
"""
)
FILE = """
targets: [one]
options: {workload: boilers}
requirements:
  devices: 8000
  insert: {p99: 250ms, batch: 50}
  queries:
    last-values: {p99: 1s, rate: 2}
    range: {p99: 2s, rate: 0.5}
  history: {span: 10m}
  retention: 90d
  faults: {run ./a.sh: 60s, run ./b.sh: 5s}
"""


def _open(folder: Path, text: str = FILE, size: str | None = None) -> Campaign:
    file, config = folder / "needs.yaml", folder / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    return open_campaign(file, config, folder / "out", Interrupts(), size)


def _find(campaign: Campaign, step: str) -> dict[str, list[str]]:
    """The options of a step in the first turn."""
    return _read_options(next(job for job in campaign.turns[0] if job.step == step))


def _read_options(job: Job) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for text in job.arguments:
        name, _, value = text.partition("=")
        options.setdefault(name.removeprefix("--"), []).append(value)
    return options


def test_steps_follow_in_order(tmp_path: Path) -> None:
    campaign = _open(tmp_path)
    turn = campaign.turns[0]
    commands = ["mixed", "mixed", "capacity", *5 * ["insert"]]
    steps = [
        "load-small",
        "load",
        "capacity",
        "run-.-a.sh",
        "run-.-b.sh",
        "disk",
        "retention-small",
        "retention",
    ]
    assert [job.command for job in turn] == commands
    assert [job.step for job in turn] == steps
    # One repetition decides nothing.
    assert len(campaign.turns) == 3
    assert campaign.question is not None
    assert campaign.question.rate_per_s == 1600  # an event of each in 5 s


def test_candidates_are_ranked_by_the_capacity_alone(tmp_path: Path) -> None:
    steps = _open(tmp_path).definition.steps
    assert [step.name for step in steps if step.is_ranked] == ["capacity"]


def test_the_load_has_its_questions_and_enough_of_them(tmp_path: Path) -> None:
    load = _find(_open(tmp_path), "load")
    assert load["rate"] == ["1600.0"]
    assert load["batch"] == ["50"]
    assert load["queries"] == ["last-values=2,range=0.5"]
    assert load["query-rate"] == ["2.5"]
    # 2 × 1 s + 0.5 × 2 s are under way if each takes as long as it may, and half as many again.
    assert (load["readers"], load["reader-in-flight"]) == (["2"], ["3"])
    assert load["workload-option"] == ["devices=8000"]
    # p99 needs 100 executions: 130 on average at 0.5 a second, beside a sixth of warm-up.
    assert load["duration"] == ["312s"]
    assert load["warm-up"] == ["52s"]


def test_the_search_keeps_to_the_same_limits(tmp_path: Path) -> None:
    search = _find(_open(tmp_path), "capacity")
    assert search["limit"] == ["p99=250ms", "query:last-values:p99=1s", "query:range:p99=2s"]
    assert "no-clean" in search
    assert search["queries"] == ["last-values=2,range=0.5"]
    # 130 executions of range at 0.5 a second, beside a sixth of warm-up.
    assert search["step-duration"] == ["312s"]
    often = _open(tmp_path, FILE.replace("rate: 0.5}", "rate: 20}"))
    assert _find(often, "capacity")["step-duration"] == ["78s"]


def test_the_history_is_loaded_once_up_to_two_levels(tmp_path: Path) -> None:
    turn = _open(tmp_path).turns[0]
    small, large, *others, _, retention = map(_read_options, turn)
    # Ten minutes are 960,000 events.
    assert (small["prefill"], large["prefill"]) == (["96000"], ["864000"])
    assert "no-clean" not in small
    assert all("no-clean" in options for options in (large, *others))
    # By an event of each device, later steps find out what earlier ones have stored.
    for options in (small, large, *others):
        assert (options["prefill-span"], options["prefill-every"]) == (["5s"], ["5s"])
    assert not any("prefill" in options for options in others)
    assert not retention.keys() & {"prefill-span", "no-clean"}
    assert small["duration"] == large["duration"]


def test_a_share_is_of_what_the_retention_keeps(tmp_path: Path) -> None:
    campaign = _open(tmp_path, FILE.replace("{span: 10m}", "{share: 3%}"))
    small, large = (int(_find(campaign, step)["prefill"][0]) for step in ("load-small", "load"))
    assert (small, small + large) == (37_324_800, 373_248_000)  # of 1,600/s for 90 d


@pytest.mark.parametrize(("history", "times"), [("{time: 20m}", (120, 1080)), (None, (60, 540))])
def test_a_history_by_the_clock_is_as_large_as_can_be_loaded(
    tmp_path: Path, history: str | None, times: tuple[int, int]
) -> None:
    old, new = ("{span: 10m}", history) if history else ("  history: {span: 10m}\n", "")
    own = "boilers, duration: 5s, warm-up: 1s}"  # of what is measured
    campaign = _open(tmp_path, FILE.replace(old, new).replace("boilers}", own))
    steps = ["fill-small", "load-small", "fill", "load", "capacity"]
    assert [job.step for job in campaign.turns[0]][:5] == steps
    fills = [_find(campaign, step) for step in ("fill-small", "fill")]
    assert tuple(fill["duration"] for fill in fills) == tuple([f"{time}s"] for time in times)
    assert [("no-clean" in fill, fill["batch"], "rate" in fill) for fill in fills] == [
        (False, ["1000"], False),
        (True, ["1000"], False),
    ]
    assert all("no-clean" in _find(campaign, step) for step in ("load-small", "load"))


def test_the_smaller_level_has_what_a_query_looks_at(tmp_path: Path) -> None:
    """`range` has a window of an hour."""
    campaign = _open(tmp_path, FILE.replace("{span: 10m}", "{span: 4h}"))
    assert campaign.question is not None
    assert campaign.question.windows_s["range"] == 3600
    assert _find(campaign, "load-small")["prefill"] == [str(3600 * 1600)]
    # It can't in ten minutes.
    assert _find(_open(tmp_path), "load-small")["prefill"] == ["96000"]


def test_the_disk_is_compacted_on_the_history(tmp_path: Path) -> None:
    disk = _find(_open(tmp_path), "disk")
    assert disk.keys() >= {"compact", "no-clean"}
    assert (disk["duration"], "rate" in disk) == (["5s"], False)
    timed = _open(tmp_path, FILE.replace("boilers}", "boilers, duration: 9s}"))
    assert _find(timed, "disk")["duration"] == ["5s"]
    assert _find(timed, "load")["duration"] == ["9s"]


def test_a_fault_comes_early_enough(tmp_path: Path) -> None:
    struck = _find(_open(tmp_path), "run-.-a.sh")
    assert struck["disturb"] == ["15s run ./a.sh"]
    assert struck["duration"] == ["90s"]
    assert struck["patience"] == ["135s"]
    assert struck["rate"] == ["1600.0"]


def test_a_fleet_that_is_cut_off_is_back_early_enough(tmp_path: Path) -> None:
    text = FILE.replace("run ./a.sh: 60s", "pause-fleet 10m: 2m")
    struck = _find(_open(tmp_path, text), "pause-fleet-10m")
    assert struck["disturb"] == ["15s pause-fleet 10m"]
    # 15 s before it, 10 min of it, 2 min in which to catch up, and 15 s more.
    assert struck["duration"] == ["750s"]


def test_what_is_too_old_goes_at_the_required_rate(tmp_path: Path) -> None:
    small, deleted = map(_read_options, _open(tmp_path).turns[0][-2:])
    assert (deleted["retention"], deleted["rate"]) == (["7776000s"], ["1600.0"])
    assert deleted["duration"] == small["duration"] == ["30s"]
    # With nine times what the run adds, ten times as much is kept.
    assert ("prefill" in small, deleted["prefill"]) == (False, [str(9 * 30 * 1600)])


def test_who_can_not_delete_by_age_has_no_step_for_it(tmp_path: Path) -> None:
    both = _open(tmp_path, FILE.replace("[one]", "[one, three]").replace("  faults", "  # faults"))
    turns = [(turn[0].candidate.target, [job.step for job in turn]) for turn in both.turns]
    steps = dict(turns)
    assert steps["one"] == [
        "load-small",
        "load",
        "capacity",
        "disk",
        "retention-small",
        "retention",
    ]
    assert steps["three"] == ["load-small", "load", "capacity", "disk"]
    alone = _open(tmp_path, FILE.replace("[one]", "[three]"))
    assert "retention" not in [job.step for job in alone.turns[0]]


def test_a_size_reaches_steps_that_follow(tmp_path: Path) -> None:
    sizes = "{quick: {repeats: 2, steps: {load: {duration: 60s}, disk: {duration: 3s}}}}"
    sized = FILE.replace("[one]", f"[one, two]\nsizes: {sizes}")
    assert _find(_open(tmp_path, sized), "load")["duration"] == ["312s"]
    turns = _open(tmp_path, sized, size="quick").turns
    assert len(turns) == 4
    for turn in turns:
        by_step = {job.step: _read_options(job) for job in turn}
        load, disk = by_step["load"], by_step["disk"]
        # With another duration, the warm-up is a sixth of that.
        assert (load["duration"], load["warm-up"]) == (["60s"], ["10s"])
        assert disk["duration"] == ["3s"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("{laod: {duration: 9s}}", "sizes: there is no step 'laod'; did you mean load?"),
        ("{load: {rate: 9}}", "sizes: rate follows from requirements"),
    ],
)
def test_a_size_with_other_steps_is_refused(tmp_path: Path, sizes: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _open(tmp_path, FILE + f"sizes: {{quick: {{steps: {sizes}}}}}\n", size="quick")
    assert said in refused.value.message


def test_own_steps_stay(tmp_path: Path) -> None:
    campaign = _open(tmp_path, FILE + "steps: [{insert: {runs: 1}}]\nrepeats: 1\n")
    assert [job.command for turn in campaign.turns for job in turn] == ["insert"]
    assert campaign.question is not None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("boilers}", "boilers, rate: 5}", "options.rate: rate follows from requirements (devices or"),
        ("boilers}", "boilers, batch: 5}", "batch follows from requirements (insert.batch)"),
        ("boilers}", "boilers, prefill: 5}", "prefill follows from requirements (history)"),
        ("[one]", "{one: {limit: [p99=1s]}}", "targets.one.limit: limit follows from requirements"),
        ("boilers}", "boilers, workload-option: {devices: 5}}", "devices follows from requirements"),
        ("boilers}", "boilers, workload_option: [devices=5]}", "devices follows from requirements"),
        ("boilers}", "temperature}", "needs.yaml:5: requirements.devices: devices of workload"),
        ("boilers}", "nowhere}", "there is no workload 'nowhere'"),
        ("last-values", "last-vals", "needs.yaml:8: requirements.queries.last-vals: workload boilers"),
        ("last-values", "last-vals", "did you mean last-values?"),
        ("[one]", "{one: {workload: machines}}", "requirements are about one workload"),
        ("[one]", "[struck]", "targets.struck.disturbances: they would strike in every step"),
        ("devices: 8000", "devices: 999999999", "needs.yaml:5: requirements.devices: "),
        ("{span: 10m}", "{span: 30d, every: 1s}",
         "needs.yaml:10: requirements.history.every: 1s is shorter than the 5s"),
        ("{span: 10m}", "{span: 5m, every: 10m}",
         "needs.yaml:10: requirements.history: a span of 5m has no event"),
        ("{span: 10m}", "{events: 5, every: 10m}",
         "needs.yaml:10: requirements.history: `every` goes with a span"),
        ("  history: {span: 10m}\n  retention: 90d\n", "",
         "needs.yaml:9: requirements.queries.range: it draws devices or times of stored events, and none"),
    ],
)  # fmt: skip
def test_what_doesnt_go_together_is_refused(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError) as refused:
        _open(tmp_path, FILE.replace(old, new))
    assert text in refused.value.message
    assert len(refused.value.message.splitlines()) == 1


def test_a_rate_needs_no_devices(tmp_path: Path) -> None:
    text = FILE.replace("devices: 8000", "events_per_s: 700").replace("boilers}", "temperature}")
    load = _read_options(_open(tmp_path, text).turns[0][0])
    assert load["rate"] == ["700.0"]
    assert "workload-option" not in load


def test_the_example_is_short_and_right(tmp_path: Path) -> None:
    example = EXAMPLES["requirements"].read_text()
    assert len(example.splitlines()) <= 40
    text = example.replace("[embedded]", "[one]").replace("kill-server", "run ./kill.sh")
    campaign = _open(tmp_path, text)
    steps = [
        "load-small",
        "load",
        "capacity",
        "run-.-kill.sh",
        "disk",
        "retention-small",
        "retention",
    ]
    assert [job.step for job in campaign.turns[0]] == steps


TWO = FILE.replace("[one]", "[one, two]") + "variants: {small: {}, large: {in-flight: 4}}\n"


def test_a_target_has_the_variants_that_it_names(tmp_path: Path) -> None:
    text = TWO.replace("[one, two]", "{one: {}, two: {variants: [small]}}")
    names = [str(candidate) for candidate in _open(tmp_path, text).list_candidates()]
    assert names == ["one small", "one large", "two small"]
    without = text.replace("[small]", "[]")
    assert "two" in [str(candidate) for candidate in _open(tmp_path, without).list_candidates()]
    with pytest.raises(ConfigError, match=r"there is no variant 'smal'; did you mean small\?"):
        _open(tmp_path, text.replace("[small]", "[smal]"))


def test_how_to_leave_a_variant_out_is_said(tmp_path: Path) -> None:
    text = TWO.replace("small: {}", "indexed: {extra-option: {create_indices: before}}")
    with pytest.raises(ConfigError) as refused:
        prepare(_open(tmp_path, text))
    said = "needs.yaml:13: variants.indexed.extra-option: unknown option 'create_indices'"
    assert said in refused.value.message
    way_out = "To leave variant indexed out for this target: targets: {two: {variants: [large]}}"
    assert refused.value.message.splitlines()[-1] == way_out
    prepare(_open(tmp_path, text.replace("[one, two]", "{one: {}, two: {variants: [large]}}")))


COARSE = FILE.replace("{span: 10m}", "{span: 30d, every: 10m}")


def test_a_coarse_history_is_loaded_by_the_loads_and_kept_by_the_others(tmp_path: Path) -> None:
    turn = _open(tmp_path, COARSE).turns[0]
    sharing = ["load-small", "load", "capacity", "run-.-a.sh", "run-.-b.sh", "disk"]
    assert [job.step for job in turn] == [*sharing, "retention-small", "retention"]
    options = [_read_options(job) for job in turn]
    spans = [arguments["prefill-span"] for arguments in options[:-2]]
    assert spans == [["3d"], *5 * [["30d"]]]
    assert all(arguments["prefill-every"] == ["10m"] for arguments in options[:-2])
    assert not any(arguments.keys() & {"prefill", "fill"} for arguments in options[:-2])
    kept = ["no-clean" in arguments for arguments in options]
    # A longer one has other events at the same times.
    assert kept == [False, False, True, True, True, True, False, False]
    assert "prefill-span" not in options[-1]


def test_a_workload_that_begins_now_begins_anew_in_each_step(tmp_path: Path) -> None:
    now = "boilers, workload-option: {epoch: now}}"
    campaign = _open(tmp_path, FILE.replace("boilers}", now))
    assert not any("no-clean" in _read_options(job) for job in campaign.turns[0])
    fills = [_find(campaign, step)["prefill"] for step in ("load-small", "load", "disk")]
    assert fills == [["96000"], ["960000"], ["960000"]]
    with pytest.raises(ConfigError, match="give a number of events, as in history"):
        _open(tmp_path, FILE.replace("boilers}", now).replace("{span: 10m}", "{time: 20m}"))


def test_without_a_retention_there_is_one_level(tmp_path: Path) -> None:
    campaign = _open(tmp_path, FILE.replace("  retention: 90d\n", ""))
    steps = [job.step for job in campaign.turns[0]]
    assert steps == ["load", "capacity", "run-.-a.sh", "run-.-b.sh"]
    assert _find(campaign, "load")["prefill"] == ["960000"]


def test_a_history_of_a_recording_has_the_intervals_that_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))
    file, rows = tmp_path / "pumps.csv", range(20)
    rising = "".join(f"2026-03-01T00:00:{row // 2:02}Z,pump-{row % 2},{row}\n" for row in rows)
    file.write_text(f"time,pump,flow\n{rising}")
    text = FILE.replace("workload: boilers", f"workload: {file}")
    turn = _open(tmp_path, text).turns[0]
    small, large, *others, _, _ = map(_read_options, turn)
    assert (small["prefill"], large["prefill"]) == (["480000"], ["4320000"])
    for options in (small, large, *others):
        assert options["prefill-span"] == ["1s"]
        assert "prefill-every" not in options
    with pytest.raises(ConfigError, match="recording has its own: leave it out"):
        _open(tmp_path, text.replace("{span: 10m}", "{span: 30d, every: 10m}"))


def test_the_time_of_a_turn_has_the_history_once(tmp_path: Path) -> None:
    def count(text: str) -> list[int]:
        campaign = _open(tmp_path, text.replace("[one]", "[one]\nrepeats: 2"))
        prepared = prepare(campaign)
        return [sum(prepared[job.name].prefills) for job in campaign.turns[0]]

    assert count(COARSE) == [8000 * 432, 8000 * 4320, *5 * [0], 432_000]
    # With an event of each device, by which the rest is found again.
    assert count(FILE) == [8000 + 96_000, 864_000, *5 * [0], 432_000]


def test_options_of_a_history_follow_from_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prefill-every follows from requirements \(history\)"):
        _open(tmp_path, FILE.replace("boilers}", "boilers, prefill-every: 5m}"))
