# Every task of the project. `make help` lists them. Environments are made on first use and kept while they fit.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
RUN := $(PY) tools/run_tests.py

.DEFAULT_GOAL := help
.PHONY: help venv venv-oldest venv-newest spark-env demo demo-spark test test-all test-fast test-oldest test-newest test-spark \
        lint format types architecture docs docs-write extras bench bench-spark bench-parts sizes clean

help: ## list the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/' | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

# ------------------------------------------------------------------ environments: made once, re-made when out of date

venv: ## make .venv: lakefmt, its tests and tools
	@$(PYTHON) tools/venv.py $(VENV) --extras dev

venv-oldest: ## make .venv-oldest: the oldest declared dependencies
	@$(PYTHON) tools/venv.py .venv-oldest --extras test --constraints constraints/oldest.txt

venv-newest: ## make .venv-newest: the newest Python of this machine, pandas, Polars and DuckDB of today
	@$(PYTHON) tools/venv.py .venv-newest --extras test --constraints constraints/newest.txt --newest-python

spark-env: venv ## make .venv-spark and find Java and the Hudi bundles
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) tools/spark_env.py

# ------------------------------------------------------------------ what one does

demo: venv ## set up, then the main job on real input: 336,776 flights
	@$(PY) -m examples.quickstart

demo-spark: venv ## set up, then the same flights through PySpark without a JAR, read by four readers
	@$(PY) -m examples.spark

test: venv ## set up, then all tests: no JVM first, oldest dependencies, then Spark as judge
	@$(RUN) fast oldest spark

test-all: venv ## the same with ten times as many examples, on the newest dependencies too, and every extra resolved by pip
	@$(PYTHON) tools/extras.py
	@LAKEFMT_HYPOTHESIS=thorough $(RUN) fast oldest newest spark

test-fast: venv ## only the tests that need no JVM
	@$(RUN) fast

test-oldest: venv ## only the tests on the oldest declared dependencies
	@$(RUN) oldest

test-newest: venv ## only the tests on the newest Python and dependencies
	@$(RUN) newest

test-spark: venv ## only the tests with Apache Hudi on Spark as judge
	@$(RUN) spark

lint: venv ## ruff: rules and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: venv ## let ruff mend what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

types: venv ## mypy --strict on everything, pyright on the public face
	@$(PY) -m mypy
	@$(PY) -m pyright

architecture: venv ## floors, purity, row loops, sizes, public names
	@$(PY) -m pytest tests/architecture --durations=0

docs: venv ## run every block, doctest and command that the documentation shows
	@$(PY) -m pytest tests/documentation

docs-write: venv ## write the generated parts of the documentation anew
	@$(PY) tools/write_docs.py

extras: ## resolve every extra, and all of them together, with plain pip in new environments
	@$(PYTHON) tools/extras.py $(ARGS)

bench: venv ## measure lakefmt beside deltalake, DuckLake, pypaimon, PyIceberg and plain pyarrow
	@$(PY) -m benchmarks.run $(ARGS)

bench-spark: venv ## measure lakefmt and Apache Hudi beside each other in one warm session of Spark
	@$(PY) -m benchmarks.spark.run $(ARGS)

bench-parts: venv ## measure single parts: every script benchmarks/**/bench_*.py
	@set -e; for script in $$(find benchmarks -name 'bench_*.py' | sort); do \
	  printf '\n=== %s\n' "$$script"; $(PY) "$$script"; \
	done

sizes: venv ## figures on the length of functions and modules, and on the structure
	@$(PY) tests/architecture/architecture_rules.py
	@$(PY) tests/architecture/structure_measures.py

clean: ## remove environments, caches and what the demo left
	rm -rf .venv .venv-oldest .venv-newest .venv-spark .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo_output
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
