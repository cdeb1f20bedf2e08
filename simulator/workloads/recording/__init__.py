"""Recorded data: a file (Parquet, CSV, JSON lines; compressed; several) becomes a `Recording`, with columns
mapped into memory. Only the conversion needs pyarrow; it is done once, and the result is kept."""

from .opening import open_recording
from .settings import Recorded
from .store import Recording, find_recording, recordings_folder

__all__ = ["Recorded", "Recording", "find_recording", "open_recording", "recordings_folder"]
