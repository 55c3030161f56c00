# Needs Python 3.11 or newer, pip and make; everything else goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := gateway models export bench tests

# The two ONNX Runtime builds exclude each other: the machine decides.
DEVICE ?= $(shell { [ -e /dev/nvidia0 ] || nvidia-smi -L >/dev/null 2>&1; } && echo gpu || echo cpu)
# An environment is made anew only where what defines it changed.
KEY := $(DEVICE)-$(shell cksum < pyproject.toml | tr ' ' '-')
USER_STAMP := $(VENV)/installed-$(KEY)
DEV_STAMP := $(VENV)/installed-dev-$(KEY)

# Files of tests stay whole: their engines and packages are made once. Largest first is by name, near
# enough: `bench`, `clients`, `distribution`.
PARALLEL ?= --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: setup run test lint clean demo browser systemd

setup: $(USER_STAMP) demo

# ARGS goes to the gateway: make run ARGS="--port 9000"
run: setup
	@exec $(BIN)/outpace serve $(ARGS)

test: lint demo browser systemd
	@$(BIN)/python -m pytest $(PARALLEL)

lint: $(DEV_STAMP)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy

# The export compares what it would build with what the cache holds, and builds only a difference.
demo: $(USER_STAMP)
	@$(BIN)/python -m export --demo

# The page's tests drive Chromium, which is no Python package.
browser:
	@.ci/browser

# Tests of the service run systemd's tools, and promtool.
systemd:
	@.ci/systemd

$(USER_STAMP): | $(VENV)/device-$(DEVICE)
	@echo "==> Installing Outpace with [$(DEVICE),export] into $(VENV) (first time: minutes)"
	@$(BIN)/python -m pip install --disable-pip-version-check -e ".[$(DEVICE),export]"
	@rm -f $(VENV)/installed-* && touch $@

$(DEV_STAMP): $(USER_STAMP)
	@echo "==> Installing the tools for tests and checks"
	@$(BIN)/python -m pip install --disable-pip-version-check -e ".[$(DEVICE),export,dev]"
	@touch $@

# A new environment also where the machine gained or lost its GPU.
$(VENV)/device-$(DEVICE):
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Outpace needs Python 3.11 or newer; $(PYTHON) is {v.major}.{v.minor}. Try: make PYTHON=python3.11")'
	@echo "==> Making $(VENV) ($(DEVICE))"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
