"""A campaign's file -> its jobs, in order; what is left of them; what a changed file is refused with."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.plan.config import load_config
from cli.plan.requests import InsertRequest
from cli.run.campaign.definition import EXAMPLES, Definition, Order
from cli.run.campaign.folder import describe_change
from cli.run.campaign.installing import add_recipe_options, find_sites
from cli.run.campaign.plan import Candidate, Job, list_left, order_turns, plan_turns
from cli.run.campaign.reading import load_definition
from cli.system.errors import ConfigError

HEAD = "targets: [embedded]\nsteps:\n- insert: {}\n"


def _read(text: str, folder: Path) -> Definition:
    file = folder / "c.yaml"
    file.write_text(text)
    return load_definition(file)


def test_the_particular_goes_over_the_general(tmp_path: Path) -> None:
    definition = _read(
        "targets:\n"
        "  plain: {target: embedded}\n"
        "  other: {target: embedded, extra_option: {copy_format: text, x: 1}, batch: 7}\n"
        "variants:\n"
        "  big: {batch: 1000, extra-option: {x: 2}}\n"
        "options: {workers: [1, 4], batch: 1, redraw: true}\n"
        "steps:\n"
        "- insert: {batch: 10, clean: false}\n"
        "- query: {workers: 2, queries: {count-events: 3, raw-range: 1}}\n"
        "  label: asked\n",
        tmp_path,
    )
    jobs = {job.name: job for turn in plan_turns(definition) for job in turn}
    assert set(jobs) == {
        "plain big insert", "plain big asked", "other big insert", "other big asked",
    }  # fmt: skip
    assert set(jobs["other big insert"].arguments) == {
        "--target=embedded", "--workers=1,4", "--batch=1000", "--no-clean",
        "--extra-option=copy_format=text", "--extra-option=x=2",
    }  # fmt: skip
    assert jobs["other big insert"].adds
    job = jobs["plain big asked"]
    assert set(job.arguments) == {
        "--target=embedded", "--workers=2", "--redraw", "--extra-option=x=2",
        "--queries=count-events=3,raw-range=1",
    }  # fmt: skip
    assert (job.command, job.adds) == ("query", False)


def test_interleaved_all_have_a_turn_in_each_repetition() -> None:
    candidates = [Candidate(name) for name in "abcde"]
    order = order_turns(candidates, 4, Order.INTERLEAVED, seed=1)
    rounds = [order[start : start + 5] for start in range(0, 20, 5)]
    for number, turns in enumerate(rounds, 1):
        assert {candidate for candidate, _ in turns} == set(candidates)
        assert {repeat for _, repeat in turns} == {number}
    assert len({tuple(candidate for candidate, _ in turns) for turns in rounds}) > 1
    assert order == order_turns(candidates, 4, Order.INTERLEAVED, seed=1)
    assert order != order_turns(candidates, 4, Order.INTERLEAVED, seed=2)


def test_in_blocks_each_has_all_its_turns_at_once() -> None:
    candidates = [Candidate(name) for name in "abcde"]
    order = order_turns(candidates, 3, Order.BLOCKS, seed=1)
    assert [repeat for _, repeat in order] == [1, 2, 3] * 5
    assert [candidate for candidate, _ in order[::3]] == [candidate for candidate, _ in order[1::3]]
    assert {candidate for candidate, _ in order} == set(candidates)


def _turn(name: str, *steps: str, adds: str = "") -> list[Job]:
    return [
        Job(f"{name} {step}", Candidate(name), step, 1,
            InsertRequest(target=name, clean=step != adds), ())
        for step in steps
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("done", "failed", "left"),
    [
        ([], [], ["a 1", "a 2", "b 1", "b 2"]),
        (["a 1"], [], ["a 2", "b 1", "b 2"]),
        # b's second step goes on with events of the first: they must be as they were.
        (["a 1", "a 2", "b 1"], [], ["b 1", "b 2"]),
        # What failed comes last, and with all its steps: others have been at the data since.
        (["a 1"], ["a 2"], ["b 1", "b 2", "a 1", "a 2"]),
        (["a 1", "b 1", "b 2"], ["a 2"], ["a 1", "a 2"]),
        (["a 1", "a 2", "b 1", "b 2"], [], []),
    ],
)
def test_what_is_left(done: list[str], failed: list[str], left: list[str]) -> None:
    turns = [_turn("a", "1", "2"), _turn("b", "1", "2", adds="2")]
    assert [job.name for turn in list_left(turns, done, failed) for job in turn] == left


@pytest.mark.parametrize(("start", "left"), [("", "e ask"), ("{start: x, stop: y}", "e insert")])
def test_what_was_stored_goes_with_a_server_that_is_stopped(
    start: str, left: str, tmp_path: Path
) -> None:
    text = f"targets: {{e: {start}}}\nsteps:\n- insert: {{}}\n- query: {{}}\n  label: ask\n"
    turns = plan_turns(_read(text, tmp_path))
    assert list_left(turns, ["e insert"], [])[0][0].name == left


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "repeat: 3\n", ["c.yaml:4: repeat: unknown key", "did you mean repeats?"]),
        (HEAD + "  lable: x\n", ["c.yaml:4", "did you mean label?"]),
        ("steps:\n- insert: {}\n", ["key `targets` is missing"]),
        (HEAD + "variants:\n  a: {batch: 1}\n  a: {batch: 2}\n", ["c.yaml:6: variants.a: duplicate key"]),
        (HEAD + "- insert: {}\n", ["2 steps are called insert", "`label`"]),
        (HEAD + "- clean: {}\n", ["c.yaml:4", "unknown key", "insert, query, mixed"]),
        (HEAD + "- label: x\n", ["c.yaml:4", "a step is one of insert, query"]),
        (HEAD + "settle: soon\n", ["c.yaml:4: settle", "30s"]),
        (HEAD + "variants: {a b: {}}\n", ["'a b' isn't a label"]),
        ("targets: [a, a]\nsteps:\n- insert: {}\n", ["a is listed twice"]),
        (HEAD + "order: random\n", ["c.yaml:4: order", "interleaved"]),
        (HEAD + "repeats: 0\n", ["c.yaml:4: repeats", "greater than or equal to 1"]),
        ("targets: [", ["c.yaml:1: not valid YAML"]),
        ("- 1\n", ["c.yaml:1: a campaign needs the key `targets:`, and `steps:`"]),
        (HEAD + "options: {btach: 1}\n", ["options.btach: no option of insert; did you mean batch?"]),
        (HEAD + "- query: {batch: 1}\n", ["c.yaml:4: steps[1].query.batch: no option of query (known: "]),
        (HEAD + "options: {output: x}\n", ["options.output: can't be given here", "to the campaign"]),
        (HEAD + "options: {clean: 2}\n", ["clean: write true or false"]),
        (HEAD + "options: {batch: }\n", ["batch: None can't be the value"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    text: str, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_turns(_read(text, tmp_path))
    for word in words:
        assert word in raised.value.message, raised.value.message


def test_the_example_is_a_campaign() -> None:
    turns = plan_turns(load_definition(EXAMPLES["steps"]))
    assert len(turns) == 6
    assert [job.command for job in turns[0]] == ["insert", "query"]


def test_a_change_is_said_by_its_place() -> None:
    before = {"variants": {"a": {"batch": 1}}, "steps": [{"insert": {}}], "seed": 1}
    now = {"variants": {"a": {"batch": 2}}, "steps": [{"insert": {}}], "repeats": 2}
    assert describe_change(before, now) == [
        "variants.a.batch: 1 is now 2", "seed is gone", "repeats is new",
    ]  # fmt: skip
    assert describe_change(before, before) == []


INSTALLED = """\
install: {variant: local, size: small}
nodes: [1, 3]
targets:
  cassandra: {target: cassandra_async}
  fixed: {nodes: {1: one, 2: two}, install: false}
variants: {a: {batch: 1}, b: {batch: 2}}
repeats: 2
steps:
- insert: {}
"""


def test_a_series_over_nodes_has_a_candidate_for_each_number(tmp_path: Path) -> None:
    definition = _read(INSTALLED, tmp_path)
    turns = plan_turns(definition)
    names = [turn[0].name for turn in turns]
    assert len(names) == 2 * 2 * 2 + 2 * 2 * 2
    assert {"cassandra 1 node a insert 1", "fixed 2 nodes b insert 2"} <= set(names)
    targets = {str(turn[0].candidate)[:12]: turn[0].arguments[0] for turn in turns}
    assert targets["fixed 1 node"] == "--target=one"
    assert targets["fixed 2 node"] == "--target=two"
    # Each is installed once: all its turns are together, its variants within interleaved.
    installed = [turn[0].candidate for turn in turns if turn[0].install]
    sites = [(candidate.target, candidate.nodes) for candidate in installed]
    assert sites == sorted(sites, key=sites.index)
    blocks = [installed[start : start + 4] for start in (0, 4)]
    for block in blocks:
        assert (
            {candidate.variant for candidate in block[:2]}
            == {candidate.variant for candidate in block[2:]}
            == {"a", "b"}
        )


@pytest.mark.parametrize(
    ("own", "there"),
    [
        ("{image: mine:1}", ("local", "small", "mine:1")),
        ("{size: default}", ("local", "default", None)),
        ("true", ("local", "small", None)),
    ],
)
def test_what_a_target_says_of_its_installation_goes_over_what_the_campaign_says(
    tmp_path: Path, own: str, there: tuple[str, str, str | None]
) -> None:
    text = INSTALLED.replace("{target: cassandra_async}", f"{{install: {own}}}")
    installation = _read(text, tmp_path).find_installation("cassandra")
    assert installation is not None
    assert (installation.variant, installation.size, installation.image) == there


def test_what_is_installed_follows_from_the_recipe(tmp_path: Path) -> None:
    config = load_config(Path("config.yaml"))
    definition = _read(
        INSTALLED.replace("fixed: {nodes: {1: one, 2: two}, install: false}", ""), tmp_path
    )
    turns = plan_turns(definition)
    sites = find_sites(turns, definition, config)
    assert {str(site) for site in sites.values()} == {
        "cassandra with 1 node", "cassandra with 3 nodes",
    }  # fmt: skip
    completed = {job.name: job for turn in add_recipe_options(turns, sites, config) for job in turn}
    alone, three = (completed[f"cassandra {count} a insert 1"] for count in ("1 node", "3 nodes"))
    assert "--extra-option=replication_factor=1" in alone.arguments
    assert not any("replication_factor" in argument for argument in three.arguments)
    impossible = _read(INSTALLED.replace("[1, 3]", "7"), tmp_path)
    turns = plan_turns(impossible)
    with pytest.raises(ConfigError, match="--nodes 7"):
        find_sites(turns, impossible, config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: 3\n" + HEAD, "add `install: true`"),
        (HEAD.replace("[embedded]", "{a: {nodes: [1, 3]}}"), "name a target for each number"),
        ("install: true\n" + HEAD.replace("[embedded]", "{a: {nodes: {1: b}}}"), "such targets"),
        ("install: {siez: small}\n" + HEAD, "did you mean size"),
        ("install: true\nnodes: [1, 1]\n" + HEAD, "twice"),
        (HEAD.replace("insert: {}", "disturb: {}"), "an insert that has the option `disturb`"),
        (HEAD.replace("insert: {}", "tune: {over: batch=1,2}"), "put quotes"),
    ],
)
def test_what_does_not_go_together(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        _read(text, tmp_path)
    assert words in error.value.message


@pytest.mark.parametrize("step", ["insert: {}", "insert:", "insert"])
def test_a_step_without_options(step: str, tmp_path: Path) -> None:
    [[job]] = plan_turns(_read(HEAD.replace("insert: {}", step), tmp_path))
    assert (job.name, job.arguments) == ("embedded insert", ("--target=embedded",))


def test_steps_and_disturb_are_inserts(tmp_path: Path) -> None:
    definition = _read(
        HEAD.replace(
            "insert: {}",
            "steps: {steps: 3, workers: 1, runs: 1}\n- disturb: {disturb: [1s run true]}",
        ),
        tmp_path,
    )
    jobs = [job for turn in plan_turns(definition) for job in turn]
    assert [(job.name, job.command) for job in jobs] == [
        ("embedded steps", "insert"), ("embedded disturb", "insert"),
    ]  # fmt: skip
