# `make` lists what can be made. Every target sets up what it needs: a virtual environment in .venv, the dependencies
# and the compiled core. Nothing has to be installed by hand but Python 3.11+, gcc and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
SEEDS  ?= 2000
SECONDS ?= 600
QUICK_TESTS := tests/architecture tests/unit tests/wire
# What depends on the version of Python, for the other ones.
QUICK_TESTS_PER_PYTHON := tests/unit tests/wire
# Hundreds of programs are started: each would compile all modules for itself where an image says not to keep them.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster tour test test-processes test-spark wheel pythons java check quick format lint types unit crash sim chaos mixed fuzz differential interop spark spark-kills asan mutants bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Made once, and again when what decides the environment changes.
STAMP := $(VENV)/.ready
SOURCES := pyproject.toml setup.py $(wildcard src/ottla/records/*.pyx src/ottla/records/*.pxi src/ottla/records/*.h src/ottla/net/*.pyx src/ottla/broker/*.pyx)

setup: $(STAMP) ## Make the virtual environment, the dependencies and the compiled core

$(STAMP): $(SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable '.[arrow]' --group test --group lint
	@$(BIN)/python -c "from ottla import compiled; print(compiled.complaint() or '', end='')"
	@touch $@

# The archive of Java's classes is part of the set-up: it is made once and makes Spark start faster from then on.
demo: $(STAMP) java ## Run the main job: events in topics, a pipeline on Spark that is killed, a Delta table and topics, all counted
	@$(BIN)/python -c "from ottla.spark.class_archive import find_or_make; find_or_make()"
	$(BIN)/python examples/demo.py

demo-cluster: $(STAMP) java ## Run the main job on three brokers, one of which is killed in the middle; all counted
	@$(BIN)/python -c "from ottla.spark.class_archive import find_or_make; find_or_make()"
	$(BIN)/python examples/demo_cluster.py

tour: $(STAMP) ## Run a tour of the broker: a million records through a Kafka client, a kill and a recovery
	$(BIN)/python examples/broker_tour.py

# A simulated history depends on the order in which sets are walked, and so does which of them finds a planted bug.
test sim: export PYTHONHASHSEED := 0
# Tests of real processes wait most of the time, those of Spark compute: side by side they fill two cores. Their lines
# appear as they are printed, each behind the name of its run.
test: $(STAMP) java check pythons ## Run every test
	@$(MAKE) --no-print-directory --jobs 2 named-test-processes named-test-spark

named-%: SHELL := bash
named-%: .SHELLFLAGS := -o pipefail -c
named-%:
	@$(MAKE) --no-print-directory $* 2>&1 | sed -u 's/^/$*: /'

test-processes:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long" tests/packaging tests/broker tests/crash tests/sim tests/fuzz tests/chaos tests/cluster tests/interop

# One process: it has one Java machine, and starting that is what takes time.
test-spark:
	$(BIN)/python -m pytest -m "not long and not alone" tests/spark
	$(BIN)/python -m pytest -m "not long and alone" tests/spark

# By way of the source distribution: a build in the checkout would also take what an earlier one left in build/lib.
wheel: $(STAMP) ## Build the source distribution and a wheel for this Python, in dist
	rm -rf dist
	$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	OTTLA_REQUIRE_COMPILED=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist dist/ottla-*.tar.gz
	@ls dist

# Each of them has an environment of its own in build/pythons, kept from one run to the next.
pythons: $(STAMP) ## Build and install a wheel and run the quick tests on every other Python from 3.11 on that is here
	$(BIN)/python tests/every_python.py --workers $(WORKERS) $(QUICK_TESTS_PER_PYTHON)

# The tests that compare with Apache Kafka need Java and Maven, one of the clients is a program of its own, and iproute2
# makes networks that are cut. Where they are missing and may be installed, they are; where they may not, those tests say
# so and are skipped.
java:
	@command -v javac >/dev/null && command -v mvn >/dev/null && command -v kcat >/dev/null && command -v ip >/dev/null || { \
	  if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
	    echo "installing Java 17, Maven, kcat and iproute2"; \
	    { apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jdk-headless maven kcat iproute2; } >/dev/null 2>&1 \
	      || echo "could not install them: the tests that need them will be skipped"; \
	  fi; }

# The checker of types has one thread, and most of the quick tests wait for nothing: together they fill two cores.
check: $(STAMP) lint ## Format, lint, types, layers, unit and wire tests: about a minute
	@$(MAKE) --no-print-directory --jobs 2 types quick

quick: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q $(QUICK_TESTS)

lint: $(STAMP) ## Check format and style
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

format: $(STAMP) ## Rewrite the sources in the house format
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

types: $(STAMP) ## Check the types of src and of most tests
	$(BIN)/mypy

unit: $(STAMP) ## Run the unit tests
	$(BIN)/python -m pytest -q tests/unit

crash: $(STAMP) ## Stop the disk at every step and recover
	$(BIN)/python -m pytest -n $(WORKERS) tests/crash

sim: $(STAMP) ## Run the broker in a simulated world; SEEDS=n for more runs
	OTTLA_SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest -n $(WORKERS) tests/sim

chaos: $(STAMP) ## Kill, fill and mistreat brokers under load; SECONDS=n for how long clusters are mistreated
	OTTLA_CHAOS_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/chaos

mixed: $(STAMP) java ## Run Apache Kafka 3.9 and Ottla in one cluster, and replace all brokers of one kind by the other
	$(BIN)/python -m pytest tests/cluster/test_mixed*.py

fuzz: $(STAMP) ## Feed millions of broken inputs to every decoder
	$(BIN)/python -m pytest -n $(WORKERS) tests/fuzz

# SEED=n plays one history again, STEPS=0,4 a part of it; FIRST=n begins with another one, THEME=offsets keeps to one.
differential: $(STAMP) java ## Play random histories to Apache Kafka and to us and compare; SECONDS=n for how long
	$(BIN)/python -m ottla.testing.differential --seconds $(SECONDS) $(if $(FIRST),--first $(FIRST)) $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(if $(THEME),--theme '$(THEME)')

interop: $(STAMP) ## Compare with Apache Kafka's own tools and files
	$(BIN)/python -m pytest tests/interop

spark: $(STAMP) java test-spark ## Run pipelines on real Spark, local and on a cluster, beside Spark's own connector

spark-kills: $(STAMP) java ## Kill drivers, Python workers and the broker under a pipeline again and again; SECONDS=n for how long
	OTTLA_CHAOS_SECONDS=$(SECONDS) $(BIN)/python -m pytest -m long tests/spark

asan: $(STAMP) ## Run the record tests and the fuzzers on a core built with the address sanitizer
	PYTHON=$(BIN)/python tests/fuzz/asan.sh

mutants: $(STAMP) ## Plant one bug at a time and see which tests notice; MUTANTS="--quick storage" for some
	$(BIN)/python tests/mutants/run.py -j $(WORKERS) $(MUTANTS)

bench: $(STAMP) ## Measure; writes JSON and a page to out/bench
	$(BIN)/python benchmarks/run.py

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist out src/*.egg-info src/ottla/*/*.so src/ottla/records/_native.c src/ottla/net/_shortcut.c src/ottla/broker/_repeat.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
