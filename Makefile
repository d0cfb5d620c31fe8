# Everything a person types here. `make help` reads the `##` comments below, so they are the documentation.
#
# Needs make and Python 3.11 or newer, nothing else: every target sets up .venv first, which is quick the second time.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_FLAGS ?=
OUT ?= demo
THREADS ?= 1
export OMP_NUM_THREADS ?= $(THREADS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

DEMO_GRID := model=mini method=ar,sjd,scd,scd_gs window=16,32,64 prompts=scenes prompts.limit=16 seed=0

.PHONY: help setup demo test test-slow lint format types check bench bench-pass verified wheel tables-mini clean distclean

help: ## show this list
	@echo "specbench: speculative decoding of autoregressive image models, benchmarked on equal terms"; echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
		while IFS=$$'\t' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done
	@echo; echo "  make table-NAME redoes one published table (\`specbench table\` lists them); MODEL=mini lets mini stand in"
	@echo; echo "  PYTHON=python3.12 picks the interpreter; PIP_FLAGS='--index-url URL' the source of packages (a CPU build of"
	@echo "  torch, say); OUT=folder where results go; THREADS=2 how many cores one process may use"

setup: $(STAMP) ## create .venv with the versions that were tested together

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "specbench needs Python 3.11 or newer with venv and pip; found none (set PYTHON=/path/to/python3)" >&2; exit 1; fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing into $(VENV) (minutes the first time)"
	@$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup ## benchmark SJD and SCD against plain decoding on mini, then prove them exact
	@time { $(BIN)/specbench sweep $(DEMO_GRID) --out $(OUT) --plots && $(BIN)/specbench verify --exact; }
	@echo; echo "pictures, table and records: $(OUT)/"

test: setup ## run the default tests (slow ones left out)
	@$(BIN)/python -m pytest -q

test-slow: setup ## run the slow tests: the papers' trend, kills and resumes, the wheel
	@$(BIN)/python -m pytest -q -m slow

lint: setup ## check style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: setup ## rewrite files to the house style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

types: setup ## check types, strictly where it matters
	@$(BIN)/mypy

check: setup ## compare pass counts and token hashes with results/baselines (exit 4 on a change)
	@$(BIN)/specbench check

bench: setup ## time one pass without the network, beside guidance, filter and softmax alone
	@$(BIN)/python scripts/bench_step.py

bench-pass: setup ## time a whole pass of a mid-size model beside its linear layers alone (W = 1 to 64)
	@$(BIN)/python scripts/bench_pass.py

verified: setup ## run the real families' tests and put what they showed on record (wants SPECBENCH_GOLDEN)
	@$(BIN)/python scripts/verified.py

wheel: setup ## build the wheel and the source archive into dist/
	@$(BIN)/python -m build --outdir dist .

# One target per file of conf/table: `make table-scd-image MODEL=mini LIMIT=16`.
TABLES := $(sort $(patsubst conf/table/%.yaml,%,$(wildcard conf/table/*.yaml)))
MODEL ?=
LIMIT ?=
TABLE_WORDS = $(if $(MODEL),model=$(MODEL)) $(if $(LIMIT),prompts.limit=$(LIMIT))

.PHONY: $(TABLES:%=table-%)
$(TABLES:%=table-%): table-%: setup
	@$(BIN)/specbench table $* $(TABLE_WORDS) --out $(OUT)

tables-mini: setup ## redo every published table on mini into OUT (about an hour on two cores)
	@time $(BIN)/specbench table all model=mini $(if $(LIMIT),prompts.limit=$(LIMIT)) --out $(OUT)

clean: ## remove build products and caches (never results)
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache; find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## also remove .venv
	@rm -rf $(VENV)
