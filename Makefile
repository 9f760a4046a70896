# Every target sets up what it needs in .venv, layer by layer; the second run is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
SPARK := $(VENV)/.spark
DEV := $(VENV)/.dev
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
SECONDS ?= 0
# What `make soak` does at length, and `make test` a few times.
KILLS ?= 30
SEEDS ?= 500
# Many tests wait for processes that they start: four files at a time keep two processors busy.
JOBS ?= 4
# File by file; those that share Spark are as one, which is the longest and first (tests/conftest.py). The others come
# in the order of their folders, the many quick ones last: they fill what the long ones leave at the end.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(if $(filter true,$(CI)),--durations=40 --durations-min=5)

# What starts whole installations, and finds its spaces at home at another node than the first.
WITH_NODES := tests/tenancy tests/interop/kubectl $(addprefix tests/scenario/test_,messaging_users.py messages_api.py \
	connectors.py webhooks.py howto_queues.py howto_users.py cli_sessions.py quota.py)

.PHONY: help setup demo test lint check fast format reference advisories console screenshots bench bench-tools soak fuzz fuzz-api test-tools clean
help:
	@echo "make setup              the core alone, in .venv; what else a target needs comes with its first run"
	@echo "make demo [SECONDS=60] [NODES=2]  start the platform, devices and Spark, and watch"
	@echo "make test [JOBS=4]      the whole test suite; what asks for a tool that is missing skips"
	@echo "make lint               format, lint, types, layers"
	@echo "make check              format, lint, types, layers, fast tests"
	@echo "make advisories         the published holes that our dependencies are held against, from OSV; needs a network"
	@echo "make reference          write anew what is made from declarations: CRDs, tables of the reference"
	@echo "make console            the console's pages, from console/ into the package; needs Node.js 20"
	@echo "make screenshots        the pictures of the console in docs/howto; needs Chromium"
	@echo "make bench              benchmarks, with peers where they are installed"
	@echo "make bench-tools        Kafka and Spark's source of it, for the comparison with streams, from Maven Central"
	@echo "make soak [SECONDS=60]  at length what goes by chance, with KILLS=30 and SEEDS=500; then the simulation, for as long as wanted"
	@echo "make fuzz [SECONDS=60]  random input for the protocol engine, guided by coverage"
	@echo "make fuzz-api [EXAMPLES=100]  requests made up from the APIs' own descriptions"
	@echo "make test-tools         what only the tests need: apt (as root), npm, Maven, go, cargo"
	@echo "make clean              remove everything that was made here"

# Three layers, each with a stamp. A first message needs the core alone; the others come with the first `make demo` and
# the first `make test` or `make check`.
$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "EnMasse needs Python 3.11 or newer; $(PYTHON) is older. Name one with PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || { echo "Making an environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing EnMasse, without Spark and test tools, into $(VENV) (160 MB) ..."
	@./with-progress $(VENV)/core.log $(INSTALL) -e .
	@touch $@

$(SPARK): pyproject.toml | $(CORE)
	@echo "Installing Spark and what the demo shows (1.1 GB; minutes the first time) ..."
	@./with-progress $(VENV)/spark.log $(INSTALL) -e '.[demo]'
	@if java -version > /dev/null 2>&1; then \
		echo "Keeping Spark's classes in one file, so that it starts in half the time (half a minute, once) ..."; \
		./with-progress $(VENV)/classes.log $(BIN)/python -m enmasse.pipeline prepare && touch $@ || \
			echo "Spark works without it."; \
	else \
		echo "No Java found: everything but Spark works. For Spark: apt-get install openjdk-17-jre-headless"; \
	fi

$(DEV): pyproject.toml | $(SPARK)
	@echo "Installing what checks and tests are made with (900 MB) ..."
	@./with-progress $(VENV)/dev.log $(INSTALL) -e '.[dev]'
	@echo "Building python-qpid-proton, a foreign client of tests ..."
	@# Without the cache: what was built before TLS and SASL were here would lack them.
	@./with-progress $(VENV)/proton.log $(INSTALL) --no-cache-dir -e '.[proton]' 2> /dev/null || \
		echo "python-qpid-proton was not built (see $(VENV)/proton.log): it needs a C compiler; all else works without it."
	@echo "Installing atheris, for fuzzing ..."
	@./with-progress $(VENV)/atheris.log $(INSTALL) -e '.[fuzz]' 2> /dev/null || \
		echo "atheris was not installed (see $(VENV)/atheris.log): all but fuzzing works without it."
	@touch $@

setup: $(CORE)

demo: $(SPARK)
	@$(BIN)/enmasse demo --seconds $(SECONDS)$(if $(NODES), --nodes $(NODES))

# Root brings the tools first where nobody is there to be asked; Proton is built after that, and so has SASL and TLS.
test:
	@if [ "$$(id -u)" -eq 0 ] && { [ "$$CI" = true ] || [ ! -t 0 ]; }; then \
		./tests/install-tools || [ "$$CI" != true ]; \
	fi
	@$(MAKE) --no-print-directory $(DEV)
	@$(PYTEST)

lint: $(DEV)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Both at once: the linters are done long before the tests are.
check:
	@$(MAKE) --no-print-directory -j 2 lint fast

# These hardly wait: a worker for each processor, as each reads all tests first.
fast: $(DEV)
	@$(PYTEST) -n $(shell getconf _NPROCESSORS_ONLN) -m "not slow and not spark"

format: $(DEV)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

reference: $(DEV)
	@$(BIN)/enmasse kube crds --to deploy/crds
	@$(BIN)/python -m tests.unit.model.fields_page
	@$(BIN)/python -m tests.unit.model.pipelines_page
	@$(BIN)/python -m tests.unit.model.settings_table
	@$(BIN)/python -m enmasse.api.metrics.catalogue docs/reference/metrics.md
	@$(BIN)/python -m enmasse.api.metrics.dashboards deploy/grafana
	@$(BIN)/python -m tests.limits.limit_page

# What is installed is what it asks about.
advisories: $(DEV)
	@$(BIN)/python -m tests.distribution.advisories

console:
	@cd console && npm ci --no-audit --no-fund && npm run build

screenshots: $(DEV)
	@$(BIN)/python -m tests.console.pictures

bench: $(DEV)
	@$(BIN)/python -m benchmarks

bench-tools:
	@./benchmarks/install-kafka

soak: $(DEV)
	@ENMASSE_TEST_KILLS=$(KILLS) ENMASSE_TEST_SEEDS=$(SEEDS) $(PYTEST) -m "chance or hypothesis" --hypothesis-profile=soak --timeout=3600
	@# Clients that reach their nodes through others. The tests left out ask the home for ports that its front has.
	@ENMASSE_TEST_FRONT=1 $(PYTEST) -m "not chance" -k "not other_machines_come_in and not through_front" --timeout=1200 tests/interop tests/outcomes tests/tenancy
	@ENMASSE_TEST_NODES=4 $(PYTEST) -m "not chance" --timeout=1200 $(WITH_NODES)
	@ENMASSE_TEST_WHEELS=all $(PYTEST) tests/distribution
	@$(BIN)/python -m tests.simulation --seconds $(SECONDS)

fuzz: $(DEV)
	@$(BIN)/python -c 'import atheris' 2> /dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fuzz]'
	@$(BIN)/python -m fuzz $(if $(filter-out 0,$(SECONDS)),--seconds $(SECONDS))

fuzz-api: $(DEV)
	@ENMASSE_API_EXAMPLES=$(or $(EXAMPLES),100) $(BIN)/python -m pytest --timeout=3600 tests/contract/test_*_against_its_openapi.py

test-tools:
	@./tests/install-tools

clean:
	rm -rf $(VENV) .enmasse build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/tools benchmarks/load/bin
	find src tests benchmarks fuzz -name __pycache__ -type d -prune -exec rm -rf {} +
