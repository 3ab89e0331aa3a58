# make demo and make test set everything up on a fresh machine: Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Ray's tests wait more than they compute: two at a time, whatever the number of cores.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
DEMO_OUT ?= runs/demo

.PHONY: help demo test test-slow test-cluster bench reliability tables docs audit lint format clean

help:
	@echo "make demo          PPO against PPO + RISE on a maze: a table and a page"
	@echo "make test          unit tests and one Ray path per algorithm"
	@echo "make test-slow     tests that take minutes"
	@echo "make test-cluster  tests on a cluster of network namespaces (root)"
	@echo "make bench         what the bonus costs, side by side with others (BENCH=--full: all of it)"
	@echo "make reliability   faults, fuzzing, exact resume and half an hour of memory, for the docs"
	@echo "make tables        the tables and figures of the docs again, from committed results"
	@echo "make docs          the documentation as a site, in build/site"
	@echo "make audit         known vulnerabilities of what is installed, by pip-audit"
	@echo "make lint          ruff and mypy"
	@echo "make format        let ruff rewrite the code"
	@echo "make clean         remove the virtual environment and caches"

# torch first and alone: whatever else is asked for must not choose another build of it.
$(VENV)/.package: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 13) else \
	  f"error: {sys.executable} is Python {v.major}.{v.minor}; rllib_rise is tested on 3.11. " \
	  "Install it, or name one: make PYTHON=/path/to/python3.11")'
	@echo "installing into $(VENV) (a few minutes, 2 GB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) -e '.[cpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.package
	@$(PIP) -e '.[cpu,dev,atari,bullet,minigrid,tune]'
	@touch $@

demo: $(VENV)/.package
	$(BIN)/rise compare configs/maze.yaml --methods none,rise --seeds 8 --out $(DEMO_OUT) --resume

test: $(VENV)/.dev
	$(PYTEST) -m "not slow and not cluster"

test-slow: $(VENV)/.dev
	$(PYTEST) -m slow

test-cluster: $(VENV)/.dev
	$(BIN)/python -m pytest -m cluster

# RLeXplore's package pins what ours needs newer: of it the file of one reward is enough.
$(VENV)/.bench: $(VENV)/.dev
	@$(PIP) -e '.[cpu,atari,bullet,bench]'
	@$(PIP) --no-deps rllte-core || echo "RLeXplore cannot be had: rise bench leaves it out"
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/rise bench $(BENCH)

# The tests that say what goes into docs/reliability.md.
RELIABILITY := tests/fuzz tests/rllib/test_exact_resume.py $(addprefix tests/experiments/test_, \
  checkpoints.py injected_faults.py restarts.py)

reliability: $(VENV)/.dev
	RISE_RELIABILITY=results/reliability/tests.json $(PYTEST) $(RELIABILITY)
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python docs/reliability.py

tables: $(VENV)/.dev
	for page in settings performance sweeps comparisons reproduction reliability faults; do \
	  $(BIN)/python docs/$$page.py || exit 1; done

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

audit: $(VENV)/.dev
	@$(PIP) pip-audit
	$(BIN)/pip-audit --local --skip-editable

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
