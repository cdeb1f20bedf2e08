"""What a campaign's file runs on this machine: listed, and begun only when the user allows it. Who runs a
stranger's campaign may not have read it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from simulator.documents import DocumentError, read_yaml

from ..errors import ConfigError
from ..experiments.session import Session
from ..faults.injector import Action
from ..output import say


def list_commands(sessions: Iterable[Session]) -> list[str]:
    """A line for each command that a campaign's file has run here, and for each of its kubeconfigs, with
    the programs that it starts. Those of the config file are the user's own."""
    found: dict[str, None] = {}
    for session in sessions:
        if session.request.disturb:
            for one in session.disturbances:
                if one.action is Action.RUN:
                    found[str(one)] = None
        if session.request.kubeconfig:
            found.update(dict.fromkeys(_describe_kubeconfig(session.request.kubeconfig)))
    return list(found)


def _describe_kubeconfig(path: str) -> Iterator[str]:
    yield f"kubeconfig {path}, which may run programs"
    try:
        _, document = read_yaml(Path(path).expanduser())
    except (FileNotFoundError, DocumentError):
        return  # who uses it will say so
    users = document.get("users") if isinstance(document, dict) else None
    for entry in users if isinstance(users, list) else ():
        user = entry.get("user") if isinstance(entry, dict) else None
        program = user.get("exec") if isinstance(user, dict) else None
        if isinstance(program, dict):
            words = [program.get("command"), *(program.get("args") or ())]
            yield f"kubeconfig {path} runs: {' '.join(map(str, words))}"


def allow_commands(file: Path, commands: list[str], allowed: bool) -> bool:
    """Show the commands, and whether they may be run: `allowed` beforehand, or asked for on a terminal.
    ConfigError if nobody is there to ask."""
    if not commands:
        return True
    listed = "".join(f"\n  {one}" for one in commands)
    if not allowed and not sys.stdin.isatty():
        raise ConfigError(
            f"{file} runs commands on this machine: read them, and add --allow-run to allow them:{listed}"
        )
    say(f"{file} runs on this machine:{listed}")
    return allowed or click.confirm("Run them?")
