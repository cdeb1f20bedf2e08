"""Recorded data: a file (Parquet, CSV, JSON lines; compressed; several) becomes a `Recording`, columns that
are mapped into memory. Only the conversion, which is done once and kept, needs pyarrow."""

from .opening import open_recording
from .settings import Recorded
from .store import Recording, find_recording, recordings_folder

__all__ = ["Recorded", "Recording", "find_recording", "open_recording", "recordings_folder"]
