# Every task of the project. `make help` lists them. Environments are made on first use and kept while they fit.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
RUN := $(PY) tools/run_tests.py

.DEFAULT_GOAL := help
.PHONY: help venv venv-oldest venv-newest workers-env spark-env azurite-env sdk-env cdc-env debezium-env kafka-env streamer-env flink-env fast-env demo demo-spark demo-stream demo-cdc demo-ingest test test-all test-fast test-oldest test-newest test-spark test-spark-releases test-real-tables durations loads-env demo-load page-env demo-ui \
        lint format types architecture docs site docs-write extras bench bench-spark bench-parts bench-streams sizes clean bench-choices choices-check choices-results

help: ## list the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1|\2/' | awk -F'|' '{printf "%-27s %s\n", $$1, $$2}'

# ------------------------------------------------------------------ environments: made once, re-made when out of date

venv: ## make .venv: lakefmt, its tests and tools
	@$(PYTHON) tools/venv.py $(VENV) --group dev

venv-oldest: ## make .venv-oldest: the oldest declared dependencies
	@$(PYTHON) tools/venv.py .venv-oldest --group test --constraints constraints/oldest.txt

venv-newest: ## make .venv-newest: the newest Python of this machine, pandas, Polars and DuckDB of today
	@$(PYTHON) tools/venv.py .venv-newest --group test --constraints constraints/newest.txt --newest-python

workers-env: ## make .venv-workers: Ray and Dagster, which only `make test-all` asks
	@$(PYTHON) tools/venv.py .venv-workers --group workers

spark-env: venv ## make .venv-spark and find Java and the Hudi bundles
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) tools/spark_env.py

azurite-env: ## make .cache/azurite: Azure Blob Storage's API for the tests, with npm
	@npm install --silent --no-fund --no-audit --prefix .cache/azurite azurite

sdk-env: venv ## make .cache/sdk: the real-time SDK's released client, which tests write with
	@$(PY) tools/sdk_env.py

cdc-env: venv ## install MariaDB for the tests of change data capture, where root can
	@$(PY) tools/cdc_env.py

debezium-env: venv ## make .cache/debezium: Debezium's engine, which judges its messages, with Maven
	@$(PY) tools/debezium_env.py

page-env: venv ## install Chromium for the tests of the page, where root can, and make .cache/axe with npm
	@$(PY) tools/page_env.py

loads-env: venv ## make .cache/starrocks and .cache/doris: clients of others, which judge loads over HTTP, with Maven and pip
	@$(PY) tools/loads_env.py

kafka-env: venv ## make .cache/kafka: a broker for the tests of ingestion, with Maven
	@$(PY) tools/kafka_env.py

streamer-env: venv ## make .cache/streamer: Hudi's own ingest tool, which judges ours, with Maven and pip (three minutes)
	@$(PY) tools/kafka_env.py --streamer

flink-env: venv ## make .cache/hudi_flink: Hudi on Flink, a second writer for the tests, with Maven
	@$(PY) tools/kafka_env.py --flink

fast-env: sdk-env cdc-env kafka-env page-env ## what the tests without a JVM need beside .venv

# ------------------------------------------------------------------ what one does

demo: venv ## set up, then the main job on real input: 336,776 flights
	@$(PY) -m examples.quickstart

demo-spark: venv ## set up, then the same flights through PySpark without a JAR, read by four readers
	@$(PY) -m examples.spark

demo-cdc: cdc-env ## set up, then a shop in a private MariaDB, followed into three tables by a process that is killed in the middle
	@$(PY) -m examples.shop

demo-ingest: kafka-env ## set up, then a year of flights from a private Kafka and weather from files into two tables, by a process that is killed in the middle
	@$(PY) -m examples.ingest

demo-load: venv ## set up, then three clients load over HTTP; their server is killed between prepare and commit
	@$(PY) -m examples.loads

demo-ui: venv ## a year of flights as commits in the browser, a writer beside it; ends by itself with CI=true
	@$(PY) -m examples.page $(ARGS)

demo-stream: venv ## set up, then a year of flights as events through a stream; its writer is killed in the middle
	@$(PY) -m examples.stream $(ARGS)

test: venv ## set up, then all tests: no JVM first, oldest dependencies, then Spark as judge
	@$(RUN) fast oldest spark; status=$$?; $(PY) tools/durations.py; exit $$status

test-all: venv ## all there is: every ending of every sweep, all combinations, 75 times the examples, all of the oldest and newest dependencies, other releases of PySpark, every extra resolved by pip
	@$(PYTHON) tools/extras.py
	@LAKEFMT_HYPOTHESIS=thorough $(RUN) fast oldest newest spark releases

test-fast: venv ## only the tests that need no JVM
	@$(RUN) fast

test-oldest: venv ## only the tests on the oldest declared dependencies
	@$(RUN) oldest

test-newest: venv ## only the tests on the newest Python and dependencies
	@$(RUN) newest

test-spark: venv ## only the tests with Apache Hudi on Spark as judge
	@$(RUN) spark

test-spark-releases: venv ## only the sessions of PySpark, with each release of constraints/pyspark.txt
	@$(RUN) releases

test-real-tables: venv ## the tests of tables by Hudi, with all those of the folder LAKEFMT_REAL_TABLES
	@LAKEFMT_REAL_TABLES=$(LAKEFMT_REAL_TABLES) $(PY) -m pytest -n auto --dist loadgroup -m "not judge_spark" tests/check/test_check.py \
	  tests/check/test_index_check.py tests/compat/test_fixtures.py tests/compat/test_fixtures_written_on.py \
	  tests/formats/hfile/test_hfile_real.py tests/metadata/test_index_readers.py tests/metadata/test_listing.py tests/read/test_skipping.py

durations: venv ## name the test files that take twice as long as tests/durations.json says; ARGS=--write records a quiet run
	@$(PY) tools/durations.py $(ARGS)

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

docs: venv ## run every block, doctest and command that the documentation shows, and build the site
	@$(PY) -m pytest tests/documentation

site: venv ## build the documentation site into build/site; a broken link is an error
	@$(PY) tools/site.py

docs-write: venv ## write the generated parts of the documentation anew
	@$(PY) tools/write_docs.py

extras: ## resolve every extra, and all of them together, with plain pip in new environments
	@$(PYTHON) tools/extras.py $(ARGS)

bench: venv ## measure lakefmt beside deltalake, DuckLake, pypaimon, PyIceberg and plain pyarrow
	@$(PY) -m benchmarks.run $(ARGS)

bench-spark: venv ## measure lakefmt and Apache Hudi beside each other in one warm session of Spark
	@$(PY) -m benchmarks.spark.run $(ARGS)

bench-streams: cdc-env ## measure streams: rows per second, delays, a follower of MariaDB, a simulated day, 10,000 appends, buckets, partitions, builders beside pypaimon
	@set -e; for part in bench_rows bench_delays bench_cdc bench_day bench_appends bench_buckets bench_partitions bench_builders; do \
	  printf '\n=== %s\n' "$$part"; $(PY) -m benchmarks.streams.$$part; \
	done

bench-parts: venv ## measure single parts: every script benchmarks/**/bench_*.py
	@set -e; for script in $$(find benchmarks -name 'bench_*.py' | sort); do \
	  printf '\n=== %s\n' "$$script"; $(PY) "$$script"; \
	done

bench-choices: venv ## measure the profiles that advice rests on, and fit its costs (ten minutes)
	@$(PY) -m benchmarks.choices.try_choices --set training --minutes 120 $(ARGS)
	@$(PY) -m benchmarks.choices.fit_costs benchmarks/results/choices-training-*.jsonl

choices-check: venv ## try all choices for ten profiles, compare the advice, write docs/dev/choices.md (twenty minutes)
	@$(PY) -m benchmarks.choices.try_choices --set check --rounds 3 --minutes 120 $(ARGS)
	@$(PY) -m benchmarks.choices.check_advice benchmarks/results/choices-check-*.jsonl --write

choices-results: venv ## measure the suite at a million rows and write its tables into docs/dev/choices.md (an hour)
	@set -e; for suite in index compaction clustering; do \
	  $(VENV)/bin/lakefmt bench $$suite --rows $(or $(ROWS),1000000) --minutes 60 \
	    --resume benchmarks/results/choices-$$suite-$(or $(ROWS),1000000).jsonl $(ARGS); \
	done
	@$(PY) -m benchmarks.choices.write_results benchmarks/results/choices-index-*.jsonl \
	  benchmarks/results/choices-compaction-*.jsonl benchmarks/results/choices-clustering-*.jsonl

sizes: venv ## figures on the length of functions and modules, and on the structure
	@$(PY) tests/architecture/architecture_rules.py
	@$(PY) tests/architecture/structure_measures.py

clean: ## remove environments, caches and what the demo left
	rm -rf .venv .venv-oldest .venv-newest .venv-workers .venv-spark .venv-pyspark* .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo_output
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
