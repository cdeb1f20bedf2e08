"""The model of a comparison of clients in result.json."""

from __future__ import annotations

from pydantic import BaseModel

from simulator.contract import Bounded


class ClientTurn(Bounded, BaseModel):
    """A run, and what it inserted by."""

    client: str
    run: int
    """Its number."""


class ClientComparison(Bounded, BaseModel):
    """What official clients cost beside the lean path."""

    ways: dict[str, str]
    """Value of the option `client` -> how it inserts, in words; the lean path first."""
    turns: list[ClientTurn] = []
    """In the order in which they were made."""

    def find_client(self, run: int) -> str | None:
        """What a run inserted by."""
        return next((turn.client for turn in self.turns if turn.run == run), None)
