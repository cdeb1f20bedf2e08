"""What can't be decided is refused before it runs, with the shortest change that would do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.run.campaign.campaign import Campaign, open_campaign
from cli.run.campaign.deciding import describe_reach
from cli.run.campaign.running import describe_times, estimate_campaign, prepare
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

CONFIG = """
targets:
  one: {module: postgres, executor: local, connection_string: host=127.0.0.1 dbname=x}
"""
FOLLOWING = """
targets: [one]
requirements:
  events_per_s: 1000
  insert: {p99: 250ms, batch: 50}
  queries: {range: {rate: 2, p99: 1s}}
  history: {events: 100k}
"""
OWN = (
    FOLLOWING
    + """
repeats: 2
steps:
- mixed: {rate: 1000, batch: 50, query-rate: 2, queries: {range: 2}, prefill: 100k, duration: 90s}
"""
)


def _open(folder: Path, text: str) -> Campaign:
    file, config = folder / "needs.yaml", folder / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    return open_campaign(file, config, folder / "out", Interrupts())


@pytest.mark.parametrize(
    "text",
    [
        FOLLOWING,
        FOLLOWING + "options: {duration: 78s}\n",
        FOLLOWING + "options: {duration: 70s, warm-up: 5s}\n",
        FOLLOWING + "options: {duration: 78s, step-duration: 78s}\n",
        FOLLOWING.replace("p99: 1s", "p90: 1s") + "options: {duration: 15s}\n",
        OWN,
        OWN.replace("90s}", "66s}"),
    ],
)  # fmt: skip
def test_what_can_be_decided_is_accepted(tmp_path: Path, text: str) -> None:
    prepare(_open(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FOLLOWING + "options: {duration: 18s, warm-up: 3s}",
         ("6: requirements.queries.range.p99: p99 needs 100 executions in each run of step load, and 2/s for"
          " 15s are 30: give duration 78s, or require p90")),
        (FOLLOWING + "options: {duration: 60s, warm-up: 5s}",
         "2/s for 55s are 110 on average, by chance fewer: give duration 70s, or require p90"),
        (FOLLOWING + "options: {step-duration: 30s}",
         ("p99 needs 100 executions in each step of the search of step capacity, and 2/s for 25s are 50: give"
          " step-duration 78s, or require p90")),
        (FOLLOWING.replace("rate: 2,", "rate: 0.01,") + "options: {duration: 1m}",
         "and 0.01/s for 50s are 0.5: give duration 260m, or ask 2.7 times a"),
        (FOLLOWING.replace("rate: 2,", "rate: 0.1,"),
         "0.1/s for 500s are 50: give step-duration 26m, or require p90"),
        (FOLLOWING.replace("batch: 50", "batch: 5000"),
         "requirements.insert.p99: p99 needs 100 requests in each"),
        (FOLLOWING + "repeats: 1", "needs.yaml:8: repeats: one repetition decides no requirement: give"),
        (OWN.replace("90s}", "60s, warm-up: 10s}"), "2/s for 50s are 100 on average"),
        (OWN.replace("rate: 1000", "rate: 500"),
         ("no step of one offers the required load, so nothing can be decided: 1,000 events/s in"
          " batches of 50 with range 2 times a second beside them; add such a step, or leave `steps` out")),
        (OWN.replace("batch: 50, query", "batch: 5, query"), "no step of one offers the required load"),
        (OWN.replace("queries: {range: 2}", "queries: {last-values: 2}"), "no step of one offers"),
    ],
)  # fmt: skip
def test_what_cant_be_decided_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(_open(tmp_path, text))
    assert said in refused.value.message
    assert len(refused.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("retention", "history", "said"),
    [
        ("", "100k", None),
        ("  retention: 30m\n", "100k", None),
        ("  retention: 90d\n", "260M", None),
        ("  retention: 90d\n", "100k", "on 100k of 7.78G events, and figures are extrapolated 30 × at most"),
    ],
)  # fmt: skip
def test_a_history_that_is_too_short_to_show_what_keeps_its_limits_is_said(
    tmp_path: Path, retention: str, history: str, said: str | None
) -> None:
    text = FOLLOWING.replace("100k", history) + retention
    question = _open(tmp_path, text).question
    assert question is not None
    reach = describe_reach(question)
    assert said in reach if said and reach else said == reach
    campaign = _open(tmp_path, text)
    prepared = prepare(campaign)
    estimates = estimate_campaign(campaign.jobs, prepared, campaign)
    lines = list(describe_times(campaign.jobs, estimates, campaign))
    assert any("stays undecided" in line for line in lines) is bool(said)


def test_a_history_by_the_clock_may_be_enough(tmp_path: Path) -> None:
    text = FOLLOWING.replace("{events: 100k}", "{time: 5m}") + "  retention: 90d\n"
    question = _open(tmp_path, text).question
    assert question is not None
    reach = "7.78G events are stored at full retention, which needs a history of at least 260M"
    assert describe_reach(question) == reach


def test_the_remedy_is_enough(tmp_path: Path) -> None:
    """Whatever is advised is accepted when it is done."""
    text = FOLLOWING + "options: {duration: 20s, step-duration: 20s}\n"
    for _ in range(9):
        try:
            prepare(_open(tmp_path, text))
            break
        except ConfigError as error:
            advice = re.search(r"give ([\w-]+) (\w+)", error.message)
            assert advice is not None
            key, value = advice.groups()
            text = re.sub(rf"(?<![\w-]){key}: \w+", f"{key}: {value}", text)
    else:
        pytest.fail("the advice never helps")
