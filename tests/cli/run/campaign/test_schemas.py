"""A turn is refused before its first job if its steps would measure different schemas, or if its options
don't have events on disk before they are acknowledged, where that is required."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run.campaign.campaign import open_campaign
from cli.run.campaign.running import prepare
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

CONFIG = """
targets:
  plain: {module: postgres, connection_string: host=none}
  indexed: {module: postgres, connection_string: host=none, create_indices: true}
  chunked: {module: timescaledb, connection_string: host=none}
  merged: {module: clickhouse, endpoint: 'http://none'}
  series: {module: victoriametrics, endpoint: 'http://none'}
"""


def check(text: str, folder: Path) -> None:
    config, file = folder / "config.yaml", folder / "campaign.yaml"
    config.write_text(CONFIG)
    file.write_text(text)
    prepare(open_campaign(file, config, folder / "out", Interrupts()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "targets: [plain]\nsteps: [insert, query: {extra-option: {create_indices: before}}]",
            (
                "campaign.yaml:2: steps: plain: the steps would measure different schemas: create_indices is"
                " no in insert and before in query: give it to all steps"
            ),
        ),
        (
            "targets: [indexed]\nsteps: [insert: {extra-option: {create_indices: after}}, query]",
            "create_indices is after in insert and before in query",
        ),
        (
            "targets: [plain]\nsteps: [insert: {extra-option: {tags: table}}, query]",
            "tags is table in insert and row in query",
        ),
        (
            "targets: [plain]\nsteps: [insert, capacity: {primary-key: none, limit: ['p99=1s']}]",
            "primary_key is db in insert and none in capacity",
        ),
        (
            "targets: [chunked]\nsteps: [insert, query: {extra-option: {columnstore: true}}]",
            "columnstore is False in insert and True in query",
        ),
    ],
)
def test_steps_that_differ_are_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        check(text, tmp_path)
    assert words in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        # The same by the target and by the step.
        "targets: [indexed]\nsteps: [insert: {extra-option: {create_indices: before}}, query]",
        "targets: [plain]\noptions: {extra-option: {create_indices: after}}\nsteps: [insert, query]",
        # To compare both is what variants are for.
        (
            "targets: [plain]\nsteps: [insert, query]\nvariants:\n"
            "  with: {extra-option: {create_indices: before}}\n  without: {}"
        ),
        # Whoever asks has no keys to make.
        "targets: [plain]\nsteps: [insert: {primary-key: none}, query]",
        # Tables of their own.
        (
            "targets: [plain]\nsteps:\n- insert: {extra-option: {tags: table}}\n"
            "- {insert: {workload: cpu}, label: cpu}"
        ),
    ],
)
def test_steps_that_agree_are_not(text: str, tmp_path: Path) -> None:
    check(text, tmp_path)


NEEDED = "requirements: {events_per_s: 9, durability: {acknowledged: on-disk}}"


def test_options_that_dont_have_events_on_disk_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        check(f"targets: [plain, merged]\n{NEEDED}", tmp_path)
    assert error.value.message.endswith(
        "campaign.yaml:1: target merged: an acknowledged event isn't on disk, since fsync_after_insert is"
        " false: set fsync_after_insert: true for the target, or give its options extra_option:"
        " fsync_after_insert=true"
    )


@pytest.mark.parametrize(
    "targets",
    [
        "merged: {extra_option: fsync_after_insert=true}",
        # What its server does is told by the verdict.
        "plain: {}",
        # There is nothing to set: it is missed.
        "series: {}",
    ],
)
def test_others_are_measured(targets: str, tmp_path: Path) -> None:
    check(f"targets: {{{targets}}}\n{NEEDED}", tmp_path)
