# Everything a newcomer needs is `make run` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install run test lint format interop perf bench-log fuzz docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv with the package and its `pybroker` command

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; Python 3.11 or newer is needed (PYTHON=... names another)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old; Python 3.11 or newer is needed (PYTHON=... names another)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@

run: install  ## start a broker on localhost:9092
	@$(BIN)/pybroker start

test: install  ## the unit tests
	$(PYTEST) -m "not interop and not perf and not fuzz and not sim and not cluster and not slow" tests/unit

lint: install  ## ruff, mypy --strict, and the import directions of the design
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

interop: install  ## compare with Apache Kafka's own classes and with stock clients (needs Java and Maven)
	$(PYTEST) -m interop tests/interop

perf: install  ## print the measurements
	$(PYTEST) -m perf -s tests/perf

bench-log: install  ## what the log store costs, at full size
	LOG_MIB=$(or $(LOG_MIB),1024) CLEANER_MIB=$(or $(CLEANER_MIB),1024) $(PYTEST) -m perf -s --timeout 1800 tests/perf/test_log*.py tests/perf/test_producer_state.py tests/perf/test_cleaner.py

fuzz: install  ## a million mutated frames (FRAMES=n for another number)
	FRAMES=$(or $(FRAMES),1000000) $(PYTEST) -m fuzz -s --timeout 3600 tests/fuzz

docs: install  ## write docs/configuration.md anew
	$(BIN)/pybroker config --describe --all --format markdown > docs/configuration.md

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
