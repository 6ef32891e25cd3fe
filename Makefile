# Everything starts here: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLUSTER ?= local
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "} {printf "  %-24s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0])'
	@echo "Setting up $(VENV) from requirements-dev.lock"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "The venv module is missing: on Debian, apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q operator/src  # pip does so, but for editable installations
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Make the virtual environment (other targets do it themselves)

.PHONY: demo
demo: setup ## Run the examples on a local control plane with simulated NPU nodes (CLUSTER=current: on your own cluster)
	@python -m kvpp_devcluster demo --cluster $(CLUSTER) examples

.PHONY: test
test: setup ## Run every test but the long ones
	@pytest -m "not long and not e2e"

.PHONY: test-long
test-long: setup ## Run the long property tests, and 10,000 random specs past the engines' own parsers (an hour or more)
	@pytest -m long
	@python -m kvpp_conformance generate --check
	@python tests/conformance/conform.py --versions all --count 10000

.PHONY: e2e
e2e: setup ## Run our own images on real kubelets, end to end (needs root; E2E="--only hosts" and the like)
	@PYTHONPATH=tests/support python -m e2e $(E2E)

.PHONY: check
check: setup ## Lint, types, layers, generated files
	@ruff check . && ruff format --check .
	@mypy
	@lint-imports
	@python -m kvpp_operator.docs --check

.PHONY: generate
generate: setup ## Write crds/, the chart's copy and the generated pages of docs/
	@python -m kvpp_operator.docs

.PHONY: generate-engine-flags
generate-engine-flags: setup ## Read the flag catalogues from the real parsers (VERSIONS="0.30.0rc2"; default: all)
	@python -m kvpp_conformance generate --versions $(or $(VERSIONS),all)

.PHONY: conformance
conformance: setup ## Ask the newest engine's own parser and checks (VERSIONS=all: every release)
	@python -m kvpp_conformance check --start --quiet --versions $(or $(VERSIONS),newest) tests/conformance/known.jsonl
	@python -m kvpp_conformance agree --versions $(or $(VERSIONS),newest)
	@python tests/conformance/conform.py --versions $(or $(VERSIONS),newest)

.PHONY: images
images: setup ## Build the images with buildah (BASE=DIR|debootstrap where no base image can be pulled)
	@python images/build.py

.PHONY: golden
golden: setup ## Rewrite the golden files; read the difference before you commit it
	@GOLDEN=write pytest -q tests/render

.PHONY: bench
bench: setup ## Print speed and memory
	@python tests/bench/bench.py

.PHONY: lock
lock: setup ## Pin the newest dependencies
	@pip install --quiet uv
	@uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate -U -o requirements.lock -q
	@uv pip compile pyproject.toml requirements-dev.in --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate -c requirements.lock -U -o requirements-dev.lock -q
	@uv pip compile images/router/requirements.in --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate -U -o images/router/requirements.lock -q
