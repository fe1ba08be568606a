# make train: install into .venv and learn Pong; ARGS goes behind it (make train ARGS=--resume).
# make check: install, then lint, types and unit tests; make test: every test.
# make chaos SEED=7 MINUTES=5: that plan of faults, for so long; make soak MINUTES=5.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Newer than what it was installed from, or installed again.
STAMP  := $(VENV)/.installed

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=50

.DEFAULT_GOAL := help
.PHONY: help train check test unit system nightly chaos soak lint docs docs-site onnxruntime-web screenshots clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile

train: $(STAMP)  ## learn Pong; files land in runs/
	$(BIN)/aclearn train configs/pong.yaml $(ARGS)

check: lint unit  ## lint, types and unit tests: before each commit

test: unit system  ## every test

unit: $(STAMP)  ## unit tests, on every core
	$(PYTEST) -n logical --maxprocesses=8 --dist=worksteal --ignore=tests/system --ignore=tests/compose --ignore=tests/chaos/test_chaos.py

system: $(STAMP)  ## tests that start whole runs, two at a time; tests/compose needs a Docker engine
	$(PYTEST) -n 2 --dist=loadgroup tests/compose tests/system tests/chaos/test_chaos.py

nightly: $(STAMP)  ## the tests that take long and protect what changes seldom
	$(PYTEST) -m nightly

chaos: SEED ?= $(shell date +%s)
chaos: MINUTES ?= 30
chaos: $(STAMP)  ## faults of every kind for thirty minutes, by a new plan
	ACLEARN_CHAOS_SEED=$(SEED) ACLEARN_CHAOS_MINUTES=$(MINUTES) $(BIN)/python -m pytest -s tests/chaos/test_chaos.py

soak: $(STAMP)  ## ten minutes of too many actors, and an hour with restarts: all must stay flat
	$(BIN)/python -m tests.chaos.soak overload $(if $(MINUTES),--minutes $(MINUTES))
	$(BIN)/python -m tests.chaos.soak restarts $(if $(MINUTES),--minutes $(MINUTES))

lint: $(STAMP)  ## ruff, mypy, the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## write docs/configuration.md, docs/links.md, docs/reference/ the table of results and the picture of processes again
	$(BIN)/python -m tools.key_pages
	$(BIN)/python -m tools.reference_pages
	$(BIN)/python -m tools.learning_table
	$(BIN)/python -m tools.wiring_picture

screenshots: $(STAMP)  ## train short runs and take the pictures of the dashboard in docs/pictures/; needs chromium
	$(BIN)/python -m tools.screenshots

docs-site: docs  ## build the site of docs/ in build/site; a broken link is an error
	$(BIN)/zensical build --strict

# What the page of `aclearn publish` plays with. 14 MB; no wheel has it.
ONNXRUNTIME_WEB := onnxruntime-web@1.30.0
WEB_FOLDER := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/aclearn/onnxruntime-web

onnxruntime-web:  ## fetch from npm what the page of aclearn publish plays with
	mkdir -p $(WEB_FOLDER)
	cd $(WEB_FOLDER) && tar -xzf "$$(npm pack --silent $(ONNXRUNTIME_WEB))" --strip-components=2 \
	  package/dist/ort.wasm.min.js package/dist/ort-wasm-simd-threaded.mjs package/dist/ort-wasm-simd-threaded.wasm
	rm $(WEB_FOLDER)/*.tgz

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aclearn needs Python 3.11 or newer as $(PYTHON), but found: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
