"""Learns a definition that generates events like a recording's. Pure functions on arrays: `samples.py` holds
the recorded data, `clock.py` finds when devices send, `signals.py` finds each column's signal (`drift.py`:
drifting and periodic ones), `describing.py` puts them together, `nearness.py` compares recorded with
generated values, `writing.py` writes the YAML."""
