"""A running command as a web page, and as metrics for Prometheus. This file starts and ends the page; code
with something to show finds it here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...system.errors import CliError, ConfigError
from ...system.output import note
from ...system.processes import Interrupted, Interrupts

if TYPE_CHECKING:
    from .server import LiveServer
    from .state import LiveState

live_page: ContextVar[LiveState | None] = ContextVar("live_page", default=None)
"""What this command's page shows; None if it has no page."""


@dataclass(frozen=True)
class LiveOptions:
    """What `--live` and its relatives ask for."""

    open_it: bool = False
    """Whether to show the page in a browser."""
    prometheus_file: Path | None = None
    """Where to write what Prometheus should scrape."""


def choose_live(live: bool, open_it: bool, prometheus_file: Path | None) -> LiveOptions | None:
    """What these options ask for; None if they ask for no page."""
    return LiveOptions(open_it, prometheus_file) if live or open_it or prometheus_file else None


def pages() -> Sequence[LiveState]:
    """This command's page, if it has one."""
    live = live_page.get()
    return () if live is None else (live,)


def publish_end(error: BaseException) -> None:
    """Show on the page why its command will end. Nothing happens without a page, or in a campaign, which goes
    on."""
    for live in pages():
        if not live.has_jobs:
            live.end(describe_end(error))


@contextmanager
def serve_live(
    wish: LiveOptions, command: str, target: str, interrupts: Interrupts
) -> Iterator[None]:
    """Serve a page about what happens inside. ConfigError if that is impossible."""
    # Imported late, since most commands have no page and this takes 0.1 s.
    from .server import LiveServer
    from .state import LiveState

    state = LiveState(command, target, interrupts.shield)
    server = None
    before = live_page.set(state)
    try:
        with interrupts.shield():
            server = LiveServer(state)
            if wish.prometheus_file is not None:
                try:
                    _write_scrape_config(wish.prometheus_file, server)
                except OSError as error:
                    raise ConfigError(
                        f"--prometheus: can't write {wish.prometheus_file}: {error.strerror}"
                    ) from error
            server.start()
            note(f"live: {server.url}")
            if wish.open_it:
                import webbrowser

                if not webbrowser.open(server.url):
                    note("No browser could be started: open the page yourself.")
        yield
    except BaseException as error:
        state.end(describe_end(error))
        raise
    finally:
        live_page.reset(before)
        with interrupts.shield():
            state.end("done")
            if server is not None:
                server.close()
                if server.was_started and wish.prometheus_file is not None:
                    try:
                        _write_scrape_config(wish.prometheus_file, None)
                    except OSError as error:
                        note(f"warning: can't empty {wish.prometheus_file}: {error.strerror}")


def _write_scrape_config(file: Path, server: LiveServer | None) -> None:
    """Write the file for `file_sd_configs`: with this server, or with none. OSError if it can't be written.

    Prometheus reads the file as soon as it changes, so it has to be complete at every instant. An existing
    file is written in place and keeps its permissions: Prometheus' user may need them. A new one is for this
    user alone, since it has the token.
    """
    groups = []
    if server is not None:
        labels = {"__param_token": server.token}
        groups.append({"targets": [server.address], "labels": labels})
    text = (json.dumps(groups) + "\n").encode()
    if file.exists():
        with file.open("r+b") as opened:
            # Spaces cover the longer old text until they are cut off; they do no harm.
            opened.write(text.ljust(file.stat().st_size))
            opened.truncate(len(text))
        return
    part = file.with_name(file.name + ".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(text)
    part.replace(file)


def describe_end(error: BaseException) -> str:
    """Why a command ended, in a few words."""
    if isinstance(error, Interrupted):
        return f"ended by {error}"
    if isinstance(error, CliError):
        return f"failed: {error.message}"
    return f"failed: {type(error).__name__}"
