"""What `capacity` makes of its options, and what it refuses."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cli.errors import CliError
from cli.experiments.capacity import CapacityRequest
from cli.experiments.experiment import AnyExperiment
from cli.main import commands
from cli.signals import Interrupts
from simulator.contract import Arrivals, Load, Role


def call(command: str, arguments: str) -> None:
    commands.main(
        [command, "--target", "embedded", *arguments.split()],
        standalone_mode=False,
        obj=Interrupts(),
    )


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the commands would do."""
    found: list[Any] = []

    def note(experiment: AnyExperiment, _: Interrupts) -> int:
        found.append(experiment.request)
        return 0

    monkeypatch.setattr("cli.experiments.experiment.run_experiment", note)
    return found


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
    kept = full.list_options()
    assert (kept["in_flight"], kept["reader_in_flight"]) == (3, 8)
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
    kept = named.list_options()
    assert (kept["workers"], kept["reader_in_flight"], kept["duration_s"]) == (1, 1, 3.0)
    assert kept["queries"] == {"point": 3.0, "range": 1.0}
    assert "batch" not in kept


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--reader-in-flight 2", "--reader-in-flight is for questions: give --queries, too"),
        ("--queries --client offical", "did you mean official?"),
        ("--queries pint", "there is no query 'pint'; did you mean point?"),
        ("--queries --duration 2s --warm-up 2s", "leaves nothing of --duration 2s"),
        ("--target blackhole --queries", "module blackhole has no official client"),
    ],
)
def test_what_clients_can_not_ask_is_refused(arguments: str, said: str) -> None:
    with pytest.raises((CliError, click.UsageError)) as refused:
        call("clients", arguments)
    error = refused.value
    assert said in (error.message if isinstance(error, CliError) else error.format_message())


def test_without_a_check_mixed_checks_no_answers(caught: list[Any]) -> None:
    call("mixed", "--no-check")
    assert caught[0].readers.check is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--limit p98=100ms", "did you mean p99?"),
        ("--limit p99=1s --limit p99=2s", "p99 is given more than once"),
        ("--limit query:count-events:p99=1s", "say by --readers who asks it"),
        ("--readers 1 --fill 5 --limit query:count-event:p99=1s", "did you mean count-events?"),
        ("--precision 0.1%", "write a share from 1% to 100%, as in 5%"),
        ("--step-duration 5s --warm-up 5s", "leaves nothing of --step-duration 5s"),
        ("--query-rate 5", "give --readers, too"),
        ("--reader-in-flight 2", "give --readers, too"),
        ("--readers 1 --reader-in-flight 0", "0 is not in the range"),
        ("--target blackhole --readers 1", "stores nothing that could be queried"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: str, said: str) -> None:
    with pytest.raises((CliError, click.UsageError)) as refused:
        call("capacity", arguments)
    error = refused.value
    assert said in (error.message if isinstance(error, CliError) else error.format_message())
