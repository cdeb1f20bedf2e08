# The commands of the README. They need Python 3.11 or later and make; everything else goes to .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-images e2e lint image bench example pictures clean

# An insert sweep and the five queries, against a PostgreSQL that comes with the Python packages.
demo: $(VENV)/tool
	$(BIN)/python run.py insert --target embedded --workers 1,2,4 --runs 3 --batch 1000 --num-inserts 200000
	$(BIN)/python run.py query --target embedded --runs 5

# All tests that need nothing but Python. Database servers come from variables such as POSTGRES_DSN.
test: $(VENV)/development
	$(BIN)/python -m pytest -n 4 -m "not cluster"

# The contract suite on the official images of tests/compose.yaml, for which Docker is needed: all
# systems one after another, or SYSTEMS="timescaledb cockroachdb".
test-images: $(VENV)/development
	$(BIN)/python -m tests.on_images $(SYSTEMS)

# Tests on the Kubernetes cluster of the current context, in namespaces of their own.
e2e: $(VENV)/development
	$(BIN)/python -m pytest -n 2 tests/chart tests/kubernetes

# The image of collector and workers, by whatever can build one here.
image:
	@version=$$(sed -n 's/__version__ = "\(.*\)"/\1/p' simulator/__init__.py); \
	for tool in docker podman buildah; do \
	  if $$tool info >/dev/null 2>&1; then \
	    exec $$tool build --build-arg VERSION=$$version -t iot-database-benchmark:$$version simulator; \
	  fi; \
	done; echo "none of docker, podman and buildah is there and works" >&2; exit 1

lint: $(VENV)/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What the tool itself costs, each as a ratio measured in one run.
bench: $(VENV)/development
	for name in client_cost arango_cost crate_cost adx_cost copy_limit overhead many_workers memory; do \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name || failed=1; done; exit $${failed:-0}

# The measured example of the README: ten minutes or so on a machine that does nothing else.
EXAMPLE := img/results/example
example: $(VENV)/tool
	$(BIN)/python run.py insert --target embedded --workers 1,2,4 --runs 6 --batch 1000 --num-inserts 2000000 \
	  --json $(EXAMPLE)-insert.json
	$(BIN)/python run.py query --target embedded --runs 6 --json $(EXAMPLE)-query.json
	$(BIN)/python run.py insert --target embedded --workers 2 --runs 1 --batch 1000 --num-inserts 1000000 \
	  --steps 10 --json $(EXAMPLE)-steps.json
	$(MAKE) pictures

# Every picture of the README and old-results.md, from results that are kept in the repository.
PLOT := $(BIN)/python run.py plot
pictures: $(VENV)/tool
	$(PLOT) --output img/fill_level_performance.png img/results/reference-fill-level-postgresql.json \
	  img/results/reference-fill-level-arangodb.json img/results/reference-fill-level-cockroachdb.json \
	  img/results/reference-fill-level-yugabytedb.json
	$(PLOT) --output img/example_workers.svg $(EXAMPLE)-insert.json
	$(PLOT) --output img/example_time.svg --kind time $(EXAMPLE)-insert.json
	$(PLOT) --output img/example_queries.svg $(EXAMPLE)-query.json
	$(PLOT) --output img/example_fill_level.svg $(EXAMPLE)-steps.json

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; name it: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/tool: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/development: requirements-dev.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/tool
