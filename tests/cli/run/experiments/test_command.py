"""What commands make of their options, and what they refuse."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cli.main import commands
from cli.plan.requests import CapacityRequest
from cli.run.experiments.experiment import AnyExperiment
from cli.system.errors import CliError
from cli.system.processes import Interrupts
from simulator.contract import Arrivals, Load, Role, parse_stages


def call(command: str, arguments: str) -> None:
    commands.main(
        [command, "--target", "embedded", *arguments.split()],
        standalone_mode=False,
        obj=Interrupts(),
    )


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the commands would do."""
    requests: list[Any] = []

    def note(experiment: AnyExperiment, _: Interrupts) -> int:
        requests.append(experiment.request)
        return 0

    monkeypatch.setattr("cli.run.experiments.run_experiment", note)
    return requests


def test_the_options_are_the_request(caught: list[CapacityRequest]) -> None:
    call("capacity", "--limit p99=100ms --limit error_share=1%")
    call(
        "capacity",
        "-w 3 --batch 10 --step-duration 12s --fill 1M --precision 2% --max-steps 9 --arrivals even"
        " --readers 2 --query-rate 4 --queries count-events=3 --no-check --warm-up 1s --seed 5"
        " --in-flight 3 --reader-in-flight 8",
    )
    plain, full = caught
    assert [str(limit) for limit in plain.limits] == ["p99=100ms", "error_share=1%"]
    assert (plain.load.duration_s, plain.load.warm_up_s) == (30.0, 5.0)
    assert (plain.readers, plain.precision, plain.max_steps, plain.data.prefill) == (
        None,
        0.05,
        24,
        0,
    )
    assert full.load == Load(
        workers=3,
        batch=10,
        duration_s=12.0,
        warm_up_s=1.0,
        arrivals=Arrivals.EVEN,
        check=False,
        in_flight=3,
    )
    assert full.readers == Load(
        role=Role.READ, workers=2, rate_per_s=4.0, duration_s=12.0, warm_up_s=1.0, check=False,
        arrivals=Arrivals.EVEN, weights={"count-events": 3.0}, queries=["count-events"], in_flight=8,
    )  # fmt: skip
    options = full.list_options()
    assert (options["in_flight"], options["reader_in_flight"]) == (3, 8)
    assert (full.precision, full.max_steps) == (0.02, 9)
    assert (full.data.prefill, full.data.seed) == (1_000_000, 5)


def test_readers_have_questions_in_flight_of_their_own(caught: list[Any]) -> None:
    call("mixed", "--in-flight 3 --reader-in-flight 8")
    call("mixed", "")
    call("query", "--reader-in-flight 8")
    both, neither, alone = caught
    assert (both.load.in_flight, both.readers.in_flight) == (3, 8)
    assert (neither.load.in_flight, neither.readers.in_flight) == (None, 1)
    assert alone.load.in_flight == 8


def test_clients_ask_all_queries_or_those_that_are_named(caught: list[Any]) -> None:
    call("clients", "--queries --workers 2 --reader-in-flight 8 --client psycopg3")
    call("clients", "--queries point=3,range --prefill 500 --duration 3s --rate 50 --in-flight 4")
    call("clients", "")
    every, named, inserting = caught
    assert every.readers == Load(role=Role.READ, workers=2, in_flight=8, duration_s=10.0)
    assert (every.data.prefill, every.clients) == (20_000, ("psycopg3",))
    assert named.readers.weights == {"point": 3.0, "range": 1.0}
    assert (named.readers.rate_per_s, named.readers.in_flight, named.load.in_flight) == (50.0, 1, 4)
    assert named.data.prefill == 500
    assert inserting.readers is None
    options = named.list_options()
    assert (options["workers"], options["reader_in_flight"], options["duration_s"]) == (1, 1, 3.0)
    assert options["queries"] == {"point": 3.0, "range": 1.0}
    assert "batch" not in options


def test_without_a_check_mixed_checks_no_answers(caught: list[Any]) -> None:
    call("mixed", "--no-check")
    assert caught[0].readers.check is False


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        (
            "clients",
            "--reader-in-flight 2",
            "--reader-in-flight is for queries: give --queries, too",
        ),
        ("clients", "--queries --client offical", "did you mean official?"),
        ("clients", "--queries pint", "there is no query 'pint'; did you mean point?"),
        ("clients", "--queries --duration 2s --warm-up 2s", "leaves nothing of --duration 2s"),
        ("clients", "--target blackhole --queries", "module blackhole has no official client"),
        ("capacity", "--limit p98=100ms", "did you mean p99?"),
        ("capacity", "--limit p99=1s --limit p99=2s", "p99 is given more than once"),
        ("capacity", "--limit query:count-events:p99=1s", "give --readers to run it"),
        ("capacity", "--precision 0.1%", "write a share from 1% to 100%, as in 5%"),
        ("capacity", "--step-duration 5s --warm-up 5s", "leaves nothing of --step-duration 5s"),
        ("capacity", "--query-rate 5", "give --readers, too"),
        ("capacity", "--reader-in-flight 2", "give --readers, too"),
        ("capacity", "--readers 1 --reader-in-flight 0", "0 is not in the range"),
        ("capacity", "--target blackhole --readers 1", "stores nothing to query"),
        (
            "capacity",
            "--readers 1 --fill 5 --limit query:count-event:p99=1s",
            "did you mean count-events?",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(command: str, arguments: str, text: str) -> None:
    with pytest.raises((CliError, click.UsageError)) as refused:
        call(command, arguments)
    error = refused.value
    assert text in (error.message if isinstance(error, CliError) else error.format_message())


# --- rates that change ----------------------------------------------------------------------------


def test_stages_say_how_long_a_run_takes_and_their_mean_is_the_rate(caught: list[Any]) -> None:
    call("insert", "--rate 10s:100,20s:1k --warm-up 5s --batch 10")
    call("mixed", "--rate 1m:600 --query-rate 30s:2,30s:4 --duration 60s")
    call("mixed", "--query-rate 30s:2,60s:5")
    call("query", "--rate 30s:2,30s:0 --arrivals even")
    call("insert", "--rate 500 --num-inserts 7")
    inserted, both, reads, query, constant = caught
    assert inserted.load.stages == parse_stages("10s:100,20s:1000")
    assert (inserted.load.rate_per_s, inserted.load.duration_s) == (700.0, 30.0)
    assert (both.load.rate_per_s, both.readers.rate_per_s) == (600.0, 3.0)
    assert both.readers.stages == parse_stages("30s:2,30s:4")
    assert both.list_options()["query_stages"] == "30s:2,30s:4"
    assert (reads.load.stages, reads.load.duration_s, reads.load.rate_per_s) == ([], 90.0, None)
    assert (reads.readers.duration_s, reads.readers.rate_per_s) == (90.0, 4.0)
    assert (query.load.role, query.load.rate_per_s, query.load.duration_s) == (Role.READ, 1.0, 60.0)
    assert inserted.list_options()["stages"] == "10s:100,20s:1000"
    # What was a result's before there were stages is as it was.
    assert "stages" not in constant.list_options()
    assert constant.load.rate_per_s == 500.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("insert --rate 2m", "not a number: write a number as in 50000"),
        ("insert --rate 2m:", "write stages as in 2m:1000,10m:5000,2m:1000"),
        ("insert --rate 2m:0", "one stage at least needs a rate above 0"),
        ("insert --rate 10s:5,5s:1 --duration 20s",
         "--rate 15 s and --duration 20 s differ; let them add up to the same, or leave --duration out"),
        ("mixed --rate 10s:5 --query-rate 11s:1", "--rate 10 s and --query-rate 11 s differ"),
        ("insert --rate 10s:5 --num-inserts 9", "--num-inserts and the stages of a rate both say when"),
        ("query --rate 10s:5 --runs 9", "--runs and the stages of a rate both say when a run ends"),
        ("insert --rate 10s:5 --warm-up 10s", "--warm-up 10s leaves nothing of --duration 10s"),
        ("capacity --readers 1 --query-rate 10s:5", "is not a number"),
    ],
)  # fmt: skip
def test_stages_that_can_not_be_are_refused(arguments: str, said: str) -> None:
    command, _, rest = arguments.partition(" ")
    with pytest.raises((CliError, click.UsageError)) as refused:
        call(command, rest)
    error = refused.value
    assert said in (error.message if isinstance(error, CliError) else error.format_message())
