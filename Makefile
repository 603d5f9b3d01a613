# Everything makes its own environment in .venv when it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 3000

.DEFAULT_GOAL := help
.PHONY: help install demo run test lint sim campaign bench bench-check clean

help: ## what a contributor can do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(STAMP) ## make .venv with the package and its tools

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP) ## jobs, kills in the middle, and every job recorded once (30 s)
	@$(BIN)/python examples/demo.py

run: $(STAMP) ## a supervisor with configs/demo.toml, until Ctrl-C
	@$(BIN)/conveyor-supervisor --config configs/demo.toml

test: lint ## lint, types and all tests but the long campaigns
	$(BIN)/python -m pytest -m "not slow"

lint: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sim: $(STAMP) ## the simulation alone, with more seeds: make sim SEEDS=10000
	SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest -q tests/sim

campaign: $(STAMP) ## the tests that are too long for `make test`: kills at random, busy for long
	$(BIN)/python -m pytest -m slow

bench: $(STAMP) ## all benchmarks, JSON to stdout (about 4 minutes, nothing else may run meanwhile)
	@$(BIN)/python -m bench

bench-check: $(STAMP) ## a short form of them against bench/baseline.json, in ratios
	@$(BIN)/python -m bench --check

clean: ## remove everything that was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-data demo-data.log
