"""Where a command begins: `python run.py`, `python -m cli`, and the installed `iotbench`."""

import sys


def main() -> None:
    """Run the command line and exit. A signal ends it silently while Python still reads the code, too."""
    try:  # until the handlers are there, a Ctrl-C is an exception
        from .signals import end_at_signals

        end_at_signals()
    except KeyboardInterrupt:
        sys.exit(130)
    from .main import main as run

    run()


if __name__ == "__main__":
    main()
