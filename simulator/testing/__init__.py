"""The contract suite: what every database module must do, run on real servers by pytest.

python -m simulator.testing --module NAME [options of pytest]

`suite/` has the tests; they check a module's CAPABILITIES, never its name. `server` says what they must know
about a database in addition to its module, and where it runs. `docs/how-to/own-database.md` shows an example.
Needs pytest, and is not in the image.
"""

import pytest

# The suite's modules, and their helpers for assertions, show values in failures, wherever they are run from.
pytest.register_assert_rewrite("simulator.testing.suite", "simulator.testing.server")
