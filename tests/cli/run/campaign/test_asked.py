"""What a campaign is asked for, with the config file beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run.campaign.campaign import Campaign, open_campaign
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

CONFIG = """
targets:
  with: {module: postgres, connection_string: host=none}
  without: {module: blackhole}
  wrong: {module: nonsense}
"""


def ask(targets: str, folder: Path) -> Campaign:
    config, file = folder / "config.yaml", folder / "campaign.yaml"
    config.write_text(CONFIG)
    file.write_text(f"targets: [{targets}]\nrepeats: 2\nsteps: [insert, clients]\n")
    return open_campaign(file, config, folder / "out", Interrupts())


def test_who_has_no_official_client_is_left_out_of_that_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = ask("with, without", tmp_path)
    assert {(job.candidate.target, job.step) for job in campaign.jobs} == {
        ("with", "insert"), ("with", "clients"), ("without", "insert"),
    }  # fmt: skip
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["left out: without clients: module blackhole has no official client"]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ("without", "none of these databases has an official client"),
        ("with, wrong", "targets.wrong.module: there is no module 'nonsense'"),
        ("with, absent", "absent"),
    ],
)
def test_what_nobody_can_be_asked(targets: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        ask(targets, tmp_path)
    assert words in error.value.message
