"""Commands of a campaign's file run only when they were shown and allowed."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from cli.campaign.campaign import Campaign, allow_commands, open_campaign
from cli.campaign.running import run_campaign, show_plan
from cli.errors import ConfigError
from cli.install.work import Consent
from cli.signals import Interrupts

CONFIG = """
targets:
  hole: {module: blackhole, executor: local, disturbances: ['1s run own-command']}
"""
FILE = """
targets: [hole]
options: {duration: 5s, workers: 1}
steps:
- disturb: {disturb: ['2s run touch MARKER', '3s run touch MARKER']}
- insert: {kubeconfig: KUBECONFIG, executor: kubernetes}
"""
KUBECONFIG = """
users:
- name: me
  user: {exec: {command: steal, args: [all, it]}}
"""
SHOWN = [
    "2s run touch MARKER",
    "3s run touch MARKER",
    "kubeconfig KUBECONFIG, which may run programs",
    "kubeconfig KUBECONFIG runs: steal all it",
]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    kubeconfig, file, config = (tmp_path / name for name in ("kube", "c.yaml", "config.yaml"))
    kubeconfig.write_text(KUBECONFIG)
    config.write_text(CONFIG)
    marker = str(tmp_path / "marker")
    file.write_text(FILE.replace("KUBECONFIG", str(kubeconfig)).replace("MARKER", marker))
    return open_campaign(file, config, tmp_path / "out", Interrupts())


def shown(campaign: Campaign) -> list[str]:
    folder = campaign.file.parent
    return [
        command.replace("KUBECONFIG", str(folder / "kube")).replace(
            "MARKER", str(folder / "marker")
        )
        for command in SHOWN
    ]


def test_without_a_terminal_they_must_be_allowed(campaign: Campaign) -> None:
    with pytest.raises(ConfigError) as refused:
        run_campaign(campaign, Consent(False, None), stop_on_error=False, debug=False)
    first, *listed = refused.value.message.splitlines()
    assert "add --allow-run" in first
    assert [line.strip() for line in listed] == shown(campaign)
    assert not campaign.folder.path.exists()


def test_a_dry_run_lists_them(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(campaign)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("runs on")] == [
        f"runs on this machine: {command}" for command in shown(campaign)
    ]


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(
    answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda _: answer)
    assert allow_commands(Path("c.yaml"), ["2s run \x1b[2Jrm"], allowed=False) is answer
    assert capsys.readouterr().out == "c.yaml runs on this machine:\n  2s run \\x1b[2Jrm\n"


def test_what_is_allowed_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert allow_commands(Path("c.yaml"), ["2s run x"], allowed=True)
    assert "2s run x" in capsys.readouterr().out
    assert allow_commands(Path("c.yaml"), [], allowed=False)
