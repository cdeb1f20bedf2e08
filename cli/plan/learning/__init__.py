"""A recording described as a definition, whose events are like the recorded ones. Pure functions on arrays:
`samples.py` holds what was recorded, `clock.py` reads when devices send, `signals.py` finds each column's
signal (`drift.py` those that drift or repeat), `describing.py` puts them together, `nearness.py` compares
recorded with made values, `writing.py` writes the YAML."""
