"""How pods get a run's recording: sent to the collector in parts, or from the source in the chart's
values."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from simulator.contract import (
    MIB,
    OFFSET_HEADER,
    RUN_HEADER,
    TOKEN_HEADER,
    Delivery,
    RunSettings,
)
from simulator.errors import one_line

from ....results.address import Address
from ....system.errors import ConfigError
from ....system.output import follow_work, note
from ...cluster import merge_chart_values, read_refusal
from ...kubeclient import UNREACHABLE, Item, KubeClient, Timeout, is_running
from .. import POLL_S, Event, Failed

MOST_PACKED_BYTES = 256 * MIB
"""The most that goes through the collector, from which each pod gets it."""

PART_BYTES = 1_000_000
"""Proxies on the way accept this size by default."""

_PATIENCE_S = 60.0
_TIMEOUT_S: Timeout = (5.0, 30.0)
_REFUSALS = (401, 403, 409, 413, 422)
"""Refusals that a repeated request would get again."""
_OTHERWISE = "set kubernetes: recordings: source (see docs/how-to/own-data.md)"


def find_delivery(
    settings: RunSettings, values: Mapping[str, Any]
) -> tuple[Delivery, Path] | tuple[None, None]:
    """How the pods of a run get its recording, and the packed file; None if its workload isn't a recording.
    ConfigError if they can't get it."""
    recorded = (settings.data.definition or {}).get("recorded")
    if recorded is None:
        return None, None
    # zstd is only installed with all extras.
    from simulator.workloads.recording.delivery import pack

    with follow_work() as tell:
        delivery, packed = pack(recorded["store"], tell)
    source: str = merge_chart_values(values)["recordings"]["source"]
    if source:
        if source.startswith(("/", "http://", "https://")):
            place = f"{source.rstrip('/')}/{packed.name}"
            note(f"pods read the recording from {place}: if it isn't there, copy {packed} to it")
        else:
            place = Address(source).lend(packed)
        return delivery.model_copy(update={"source": place}), packed
    if delivery.packed_bytes > MOST_PACKED_BYTES:
        raise ConfigError(
            f"the recording is {format_mib(delivery.packed_bytes)} packed, and the collector takes"
            f" {format_mib(MOST_PACKED_BYTES)}: copy {packed} to where pods reach it, and {_OTHERWISE}"
        )
    return delivery, packed


def format_mib(count: int) -> str:
    """`256 MiB`."""
    return f"{count / MIB:,.1f} MiB" if count < 10 * MIB else f"{count / MIB:,.0f} MiB"


def find_room(delivery: Delivery) -> str:
    """The disk space that a pod needs for the recording, packed and unpacked, and for the list of a worker's
    rows, as a quantity."""
    # Four bytes a row, and each row has at least twelve.
    return f"{(delivery.size_bytes * 4 // 3 + delivery.packed_bytes) // MIB + 64}Mi"


class RecordingSender:
    """Sends the recording to the collector of a release."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        release: str,
        settings: RunSettings,
        packed: Path,
        events: SimpleQueue[Event],
        find_pod: Callable[[], Item | None],
    ) -> None:
        """`settings`: of its first run; `find_pod`: returns the collector's pod, once it is known."""
        self._client = client.make_another()
        self._namespace, self._service = namespace, f"{release}:http"
        self._headers = {TOKEN_HEADER: settings.token, RUN_HEADER: settings.run_id}
        self._packed = packed
        self._events = events
        self._find_pod = find_pod
        self._stopped = threading.Event()

    def send(self) -> None:
        """Send whatever the collector doesn't have yet. Runs in a thread."""
        while (pod := self._find_pod()) is None or not is_running(pod):
            if self._stopped.wait(POLL_S):
                return
        size = self._packed.stat().st_size
        note(f"sending the recording to the collector ({format_mib(size)})")
        done, heard_at = 0, time.monotonic()
        with self._packed.open("rb") as file:
            while done < size and not self._stopped.is_set():
                file.seek(done)
                status, text = self._send_part(done, file.read(PART_BYTES))
                if status == 200 and text.isdecimal():
                    done, heard_at = int(text), time.monotonic()
                elif status == 410:
                    return  # the run has failed, and the collector's log says why
                elif status in _REFUSALS or time.monotonic() > heard_at + _PATIENCE_S:
                    problem = f"the recording can't be sent to the collector: {status or ''} {text}"
                    self._events.put(Failed(f"{problem}\n{_OTHERWISE}"))
                    return
                else:
                    self._stopped.wait(POLL_S)

    def _send_part(self, offset: int, part: bytes) -> tuple[int, str]:
        """Status and text of the answer, or 0 and the reason why there is none."""
        headers = {**self._headers, OFFSET_HEADER: str(offset)}
        try:
            status, body = self._client.ask_service(
                self._namespace, self._service, "recording", headers, _TIMEOUT_S, part
            )
        except UNREACHABLE as error:
            return 0, one_line(getattr(error, "reason", None) or error, 200)
        return status, one_line(read_refusal(body.decode(errors="replace")), 200)

    def stop(self) -> None:
        """End the work of the thread."""
        self._stopped.set()
        self._client.break_off()
