"""Where a command begins: `python run.py`, `python -m cli`, and the installed `iotbench`."""

import os
import sys


def main() -> None:
    """Run the command line and exit. A signal ends it silently while Python still reads the code, too."""
    try:  # until the handlers are there, a Ctrl-C is an exception
        # Where files are said to have names in ASCII only, begin anew with names in UTF-8, as
        # Python does by itself in the locale C, unless PYTHONUTF8 is 0:
        # https://peps.python.org/pep-0540/. What is printed stays ASCII.
        if sys.getfilesystemencoding() == "ascii":
            encoding = getattr(sys.stdout, "encoding", "ascii")
            os.environ |= {"PYTHONUTF8": "1", "PYTHONIOENCODING": encoding}
            os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
        from .system.processes import end_at_signals

        end_at_signals()
    except KeyboardInterrupt:
        sys.exit(130)
    from .main import main as run

    run()


if __name__ == "__main__":
    main()
