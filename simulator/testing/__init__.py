"""The contract suite: what every database module must do, run on real servers by pytest.

    python -m simulator.testing --module NAME [options of pytest]
`suite/` has the tests; they ask a module's CAPABILITIES and never its name. `server` says what they must
know of a database apart from its module, and where it runs. `docs/how-to/own-database.md` shows it on an
example. Needs pytest, and is not in the image.
"""

import pytest

# The suite's modules, and what they assert by, tell values when they fail, wherever they are run from.
pytest.register_assert_rewrite("simulator.testing.suite", "simulator.testing.server")
