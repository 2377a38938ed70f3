# Everything a newcomer needs is `make run` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.spark-installed
# AGAIN=1: only what failed the last time.
PYTEST := $(BIN)/python -m pytest $(if $(AGAIN),--last-failed --last-failed-no-failures none)

.DEFAULT_GOAL := help
.PHONY: help install run test node-test cluster-test exactly-once sim sim-test lint format interop perf bench bench-failover bench-groups bench-cluster bench-pair bench-log bench-transactions fuzz spark-jars test-spark bench-spark docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

node-test: install  ## `pybroker start` as a process of its own: starts, refusals, signals, kill -9
	$(PYTEST) -m cluster tests/node

cluster-test: install  ## clusters of real processes: leaders, brokers and controllers that are killed, stopped and wiped
	$(PYTEST) -m cluster -s tests/cluster

exactly-once: install  ## consume-transform-produce and list-append under faults for S=600 seconds each (SEED=n: another game), with their summaries
	EXACTLY_ONCE_S=$(or $(S),600) EXACTLY_ONCE_SEED=$(or $(SEED),1) LIST_APPEND_S=$(or $(S),600) LIST_APPEND_SEED=$(or $(SEED),1) \
	  $(PYTEST) -m verdict -s tests/cluster/test_exactly_once.py tests/cluster/test_list_append.py

sim: install  ## whole clusters in virtual time, with all faults (SEEDS=n for another number than 1000)
	$(BIN)/python -m pybroker.testing.sim --level raft --seeds $(or $(SEEDS),1000) --swarm
	$(BIN)/python -m pybroker.testing.sim --level cluster --seeds $(or $(SEEDS),1000) --swarm
	$(BIN)/python -m pybroker.testing.sim --level data --seeds $(or $(SEEDS),1000) --swarm
	$(BIN)/python -m pybroker.testing.sim --level groups --seeds $(or $(SEEDS),1000) --swarm
	$(BIN)/python -m pybroker.testing.sim --level transactions --seeds $(or $(SEEDS),1000) --swarm

sim-test: install  ## the simulator itself: planted bugs are found, a seed is a run
	$(PYTEST) -m sim tests/sim

lint: install  ## ruff, mypy --strict, and the import directions of the design
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

interop: install  ## compare with Apache Kafka's own classes and with stock clients (Java and Maven, Go, Node.js, kcat: what is not here is skipped)
	@tests/interop/machine_needs
	$(PYTEST) -m interop tests/interop

perf: install  ## print the quick measurements
	$(PYTEST) -m perf -s tests/perf

bench: install  ## compare with Apache Kafka (QUICK=1, RUNS=n, WORKLOADS=a,b and SERVERS=a,b shorten it; needs Java and Maven)
	PYTHONPATH=tests $(BIN)/python -m perf.bench $(if $(QUICK),--quick) $(if $(RUNS),--runs $(RUNS)) $(if $(REPEATS),--repeats $(REPEATS)) \
	  $(if $(WORKLOADS),--workloads '$(WORKLOADS)') $(if $(SERVERS),--servers '$(SERVERS)') \
	  $(if $(RESULTS),--results '$(RESULTS)') $(if $(FROM),--from-json $(FROM))

bench-cluster: install  ## three replicating nodes, compared with three of Apache Kafka (options as for bench)
	PYTHONPATH=tests $(BIN)/python -m perf.bench.cluster_bench $(if $(QUICK),--quick) $(if $(RUNS),--runs $(RUNS)) \
	  $(if $(WORKLOADS),--workloads '$(WORKLOADS)') $(if $(SERVERS),--servers '$(SERVERS)')

bench-pair: install  ## what a change does to a cluster: OTHER=checkout beside this one (ROUNDS=n, WORKLOAD=name)
	@test -n "$(OTHER)" || { echo "make: OTHER=... names another checkout of pybroker"; exit 1; }
	PYTHONPATH=tests $(BIN)/python -m perf.bench.cluster_pair '$(OTHER)' $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WORKLOAD),--workload '$(WORKLOAD)')

bench-failover: install  ## how long a producer waits when a node dies, beside Apache Kafka (KILLS=n, KINDS=a,b, SERVERS=a,b, MORE=1 adds to the last run; 20 kills take half an hour)
	PYTHONPATH=tests $(BIN)/python -m perf.failover $(if $(KILLS),--kills $(KILLS)) $(if $(KINDS),--kinds '$(KINDS)') \
	  $(if $(SERVERS),--servers '$(SERVERS)') $(if $(MORE),--more)

bench-groups: install  ## groups beside Apache Kafka's: heartbeats, commits, rebalances, loads (QUICK=1, WORKLOADS=a,b, KEEP=1)
	PYTHONPATH=tests $(BIN)/python -m perf.bench_groups $(if $(QUICK),--quick) $(if $(KEEP),--keep) $(if $(WORKLOADS),--workloads '$(WORKLOADS)')

bench-log: install  ## what the log store costs, at full size
	LOG_MIB=$(or $(LOG_MIB),1024) CLEANER_MIB=$(or $(CLEANER_MIB),1024) $(PYTEST) -m perf -s --timeout 1800 tests/perf/test_log*.py tests/perf/test_producer_state.py tests/perf/test_cleaner.py

bench-transactions: install  ## what transactions cost, beside Apache Kafka (QUICK=1, SERVERS=a,b and CLIENTS=a,b shorten it; needs Java and Maven)
	PYTHONPATH=tests $(BIN)/python -m perf.bench.transactions $(if $(QUICK),--quick) \
	  $(if $(SERVERS),--servers '$(SERVERS)') $(if $(CLIENTS),--clients '$(CLIENTS)')

fuzz: install  ## a million mutated frames, to the decoders and over sockets (FRAMES=n for another number)
	FRAMES=$(or $(FRAMES),1000000) $(PYTEST) -m fuzz -s --timeout 3600 tests/fuzz

spark-jars: $(SPARK_STAMP)  ## what the jobs of spark_jobs/ need: pyspark, and Spark's Kafka connector (Java 17)
	$(BIN)/python -m spark_jobs.jars

$(SPARK_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[spark]'
	@touch $@

test-spark:  ## every job of spark_jobs/ against a broker and a PostgreSQL of their own (BROKER=apache: Apache Kafka's; BOOTSTRAP=host:port: one that runs)
	@tests/spark/machine_needs
	@$(MAKE) --no-print-directory spark-jars
	$(PYTEST) -m spark $(if $(BROKER),--broker $(BROKER)) $(if $(BOOTSTRAP),--bootstrap-servers $(BOOTSTRAP)) tests/spark

bench-spark: spark-jars  ## rows/s of the jobs ingest and archive beside Apache Kafka (ROWS=n, RUNS=n; needs Java and Maven)
	PYTHONPATH=tests $(BIN)/python -m perf.spark_bench $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS))

docs: install  ## write docs/configuration.md anew
	$(BIN)/pybroker config --describe --all --format markdown > docs/configuration.md

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
