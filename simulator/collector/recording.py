"""A run's recording at the collector: received in parts from the command line, or fetched; passed on to
workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import BinaryIO

from ..contract import Delivery
from ..errors import SimulatorError
from ..workloads.recording import recordings_folder
from ..workloads.recording.delivery import name_packed, obtain
from .barrier import Refused


class ArrivingRecording:
    """The recording that the collector and its workers need before they can make an event."""

    def __init__(self, delivery: Delivery, run_id: str) -> None:
        self._delivery = delivery
        folder = recordings_folder()  # which other collectors may share
        folder.mkdir(parents=True, exist_ok=True)
        self._packed = folder / name_packed(delivery.name)
        self._part = folder / f".{run_id}.part"
        self._arrived = asyncio.Event()
        if self._packed.exists():
            self._arrived.set()

    def take(self, offset: int, data: bytes) -> int:
        """Store the bytes from `offset` on. Returns how many are here, which tells the sender where to
        continue.

        Bytes that are here already, because their answer was lost, are skipped. Refused if none are expected.
        """
        if self._delivery.source is not None:
            raise Refused(409, "this run's recording comes from elsewhere")
        if self._arrived.is_set():
            return self._delivery.packed_bytes
        with self._part.open("ab") as part:
            if offset == part.tell():
                part.write(data)
            count = part.tell()
        if count >= self._delivery.packed_bytes:
            self._part.replace(self._packed)
            self._arrived.set()
        return count

    async def settle(self) -> None:
        """Wait for the recording, and unpack it. SimulatorError if that fails."""
        if self._delivery.source is None:
            await self._arrived.wait()
        try:
            await asyncio.to_thread(obtain, self._delivery, self._open)
        except SimulatorError:
            self._packed.unlink(missing_ok=True)  # the next run gets it anew
            raise

    def _open(self) -> BinaryIO:
        return self._packed.open("rb")

    async def find_packed(self, patience_s: float) -> Path | None:
        """The packed file, for a worker; None if it isn't here by then."""
        try:
            await asyncio.wait_for(self._arrived.wait(), patience_s)
        except TimeoutError:
            return None
        return self._packed
