"""Standard output that may be closed: `run.py insert … | head` is no error."""

from __future__ import annotations

import os
import sys


def say(text: str = "") -> None:
    """Print to standard output; once nobody reads it any more, nothing."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
