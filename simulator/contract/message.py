"""What all messages have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Base of all messages: unknown fields are refused, and no error shows a value."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
