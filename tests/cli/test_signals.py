"""Ctrl-C and its relatives: the first ends the work, further ones hurry, none skips the clean-up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from cli.system.processes import Interrupted, Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """As a shell would leave them to us, and afterwards as they were."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_ends_the_work(number: signal.Signals) -> None:
    with Interrupts() as interrupts, pytest.raises(Interrupted) as end:
        signal.raise_signal(number)
    assert str(end.value) == number.name
    assert end.value.exit_code == 128 + number
    assert not interrupts.hurry.is_set()


def test_it_passes_by_whoever_catches_exceptions() -> None:
    def careless() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except Exception:  # noqa: BLE001 - that is what it is about
            pytest.fail("caught on the way")

    with Interrupts(), pytest.raises(Interrupted):
        careless()


@pytest.mark.parametrize("second", SIGNALS)
def test_further_signals_hurry_and_do_not_raise(second: signal.Signals) -> None:
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        for _ in range(2):
            signal.raise_signal(second)
        assert interrupts.hurry.is_set()


class Lost:
    """Its finalizer is where the first signal is handled."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_got_lost_is_raised_again_after_a_further_one() -> None:
    """Python ignores what is raised in a finalizer: the work would go on for ever."""
    with Interrupts() as interrupts:
        Lost()
        interrupts.insist()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as raised:
            interrupts.insist()
        assert raised.value.number == signal.SIGINT
        with interrupts.shield():
            interrupts.insist()


def test_a_shield_defers_the_signal_to_its_end() -> None:
    done = []
    with Interrupts() as interrupts:

        def work() -> None:
            with interrupts.shield():
                signal.raise_signal(signal.SIGTERM)
                done.append("all of it")

        with pytest.raises(Interrupted) as end:
            work()
        assert done == ["all of it"]
        assert end.value.number == signal.SIGTERM
        assert not interrupts.hurry.is_set()


def test_the_outermost_shield_counts() -> None:
    done = []
    with Interrupts() as interrupts:

        def work() -> None:
            with interrupts.shield():
                with interrupts.shield():
                    signal.raise_signal(signal.SIGINT)
                done.append("behind the inner one")

        with pytest.raises(Interrupted):
            work()
    assert done == ["behind the inner one"]


def test_a_second_signal_within_a_shield_hurries() -> None:
    with Interrupts() as interrupts:

        def work() -> None:
            with interrupts.shield():
                signal.raise_signal(signal.SIGINT)
                assert not interrupts.hurry.is_set()
                signal.raise_signal(signal.SIGTERM)
                assert interrupts.hurry.is_set()

        with pytest.raises(Interrupted) as end:
            work()
        assert end.value.number == signal.SIGINT


def test_a_shield_after_the_signal_lets_the_clean_up_finish() -> None:
    """The signal that ended the work is not raised again by the shields of the clean-up."""
    done = []
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        with interrupts.shield():
            signal.raise_signal(signal.SIGINT)
            done.append("cleaned up")
        assert done == ["cleaned up"]
        assert interrupts.hurry.is_set()


def test_a_shield_without_a_signal_changes_nothing() -> None:
    with Interrupts() as interrupts:
        with interrupts.shield():
            pass
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_the_handlers_are_as_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """nohup means it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        assert not interrupts.hurry.is_set()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_hurry_can_be_polled_from_another_thread() -> None:
    with Interrupts() as interrupts:
        seen = threading.Event()

        def poll() -> None:
            while not interrupts.hurry.is_set():
                pass
            seen.set()

        thread = threading.Thread(target=poll)
        thread.start()
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert seen.wait(60)
        thread.join()
