"""What a campaign's file could do to the user is done only when it was shown and allowed."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from cli.run.campaign.campaign import Campaign, ask_permission, list_permissions, open_campaign
from cli.run.campaign.running import prepare, run_campaign, show_plan
from cli.run.install import Consent
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts
from simulator.conditions import find_access
from simulator.modules import load_module, module_names

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
        "runs on this machine: "
        + command.replace("KUBECONFIG", str(folder / "kube")).replace(
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
    assert [line for line in lines if line.startswith("runs on")] == shown(campaign)


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(
    answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda _: answer)
    assert ask_permission(Path("c.yaml"), ["2s run \x1b[2Jrm"], allowed=False) is answer
    assert capsys.readouterr().out == "c.yaml needs your permission:\n  2s run \\x1b[2Jrm\n"


def test_what_is_allowed_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask_permission(Path("c.yaml"), ["2s run x"], allowed=True)
    assert "2s run x" in capsys.readouterr().out
    assert ask_permission(Path("c.yaml"), [], allowed=False)


OWN = """
targets:
  search:
    {module: elasticsearch, executor: local, endpoint: 'https://own:9200', username: me, password: secret1234}
  open: {module: elasticsearch, executor: local, endpoint: 'http://own:9200'}
  cluster: {module: elasticsearch, endpoint: 'https://own:9200', kubernetes: {existingSecret: own}}
  cassandra: {module: cassandra, executor: local, contact_points: own, username: me, password: secret1234}
"""
DIVERTED = {
    "options: {extra-option: {endpoint: 'http://evil:9200'}}": "endpoint=http://evil:9200",
    "options: {extra_option: ['verify_certs=false']}": "verify_certs=false",
    "variants: {v: {extra-option: {client_cert: evil.pem}}}": "client_cert=evil.pem",
    "sizes: {s: {options: {extra-option: {ca_certs: evil.pem}}}}": "ca_certs=evil.pem",
    "sizes: {s: {steps: {insert: {extra-option: {endpoint: 'http://evil'}}}}}": "endpoint=http://evil",
}
"""Part of a file -> what sends secrets elsewhere."""


def permissions(folder: Path, targets: str, part: str) -> list[str]:
    (folder / "config.yaml").write_text(OWN)
    file = folder / "c.yaml"
    file.write_text(f"targets: {targets}\nsteps: [{{insert: {{duration: 5s}}}}]\n{part}\n")
    size = "s" if part.startswith("sizes") else None
    campaign = open_campaign(file, folder / "config.yaml", folder / "o", Interrupts(), size=size)
    return list_permissions(campaign, [made.session for made in prepare(campaign).values()])


@pytest.mark.parametrize(("part", "option"), DIVERTED.items())
def test_whoever_gets_a_secret_must_be_allowed(part: str, option: str, tmp_path: Path) -> None:
    sent = [f"sends secrets of {name} with {option}" for name in ("cluster", "search")]
    assert sorted(permissions(tmp_path, "[search, open, cluster]", part)) == sent


def test_of_a_labelled_target_too(tmp_path: Path) -> None:
    labelled = "{x: {target: cassandra, extra-option: {contact_points: evil, tls: false}}}"
    [line] = permissions(tmp_path, labelled, "options: {extra-option: {max_retries: 1}}")
    assert line == "sends secrets of cassandra with contact_points=evil, tls=false"
    assert permissions(tmp_path, "[cassandra]", "options: {extra-option: {max_retries: 1}}") == []


@pytest.mark.parametrize("name", module_names())
def test_each_module_declares_whom_it_talks_to(name: str) -> None:
    model = load_module(name).options_model
    reaching = {"endpoint", "host", "port", "user", "username", "tls", "ca_certs", "verify_certs"}
    own = {model.ADDRESSES, *reaching} & model.model_fields.keys()
    assert own <= find_access(model)
