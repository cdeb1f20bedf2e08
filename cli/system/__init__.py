"""The machine and the terminal: streams, signals, processes, installation, errors."""
