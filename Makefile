# One word per chore; `make` alone lists them.

PYTHON ?= python3
IMAGE ?= examples/receipt.png
Q ?= What does it say?
SOAK_MINUTES ?= 2
FUZZ_MINUTES ?= 2
# Processes that run tests at once.
TEST_JOBS ?= 2
# To the shell as they are, whatever quotes they hold.
export IMAGE Q

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# For an environment that another tool made, or whose making was interrupted.
HAS_PIP := $(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip >/dev/null
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
NATIVE := hatch_build.py $(wildcard src/qwink/native/*.[ch] src/qwink/native/*/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help ask test test-deploy test-ray check fix sanitize docs docs-site clean soak fuzz wheels
.DELETE_ON_ERROR:

help: ## list these words
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 14

ask: $(RUNTIME) ## answer a question about a picture: make ask IMAGE=photo.jpg Q='What is this?'
	@$(BIN)/qwink ask "$$IMAGE" --question "$$Q"

test: check ## run all checks and tests
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile

check: $(DEV) ## check style and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/clang-format --dry-run --Werror $(filter src/%,$(NATIVE))
	@$(BIN)/mypy

fix: $(DEV) ## repair and format what can be
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(BIN)/clang-format -i $(filter src/%,$(NATIVE))

test-deploy: $(DEV) ## run the steps of the image without Docker, and all tests of deploy/
	@QWINK_TEST_DEPLOY=1 $(BIN)/python -m pytest tests/deploy

test-ray: $(DEV) ## test replicas and batches on Ray: killed, replaced, under load
	@QWINK_TEST_RAY=1 $(BIN)/python -m pytest tests/cluster tests/batches

sanitize: $(DEV) ## test the kernels with checks of their memory and arithmetic
	@$(BIN)/python -m tests.native.sanitize

soak: $(DEV) ## load a server with good and bad requests, and kill it: make soak SOAK_MINUTES=60
	@rm -rf .soak
	@$(BIN)/python -m tests.checkpoints .soak/tiny
	@$(BIN)/python -m qwink.lab.soak nano .soak/tiny --minutes $(SOAK_MINUTES) --out .soak/soak.json

fuzz: $(DEV) ## sanitize with random shapes and values: FUZZ_MINUTES for each instruction set
	@$(BIN)/python -m tests.native.sanitize --fuzz $(FUZZ_MINUTES)

docs: $(DEV) ## write the generated pages of docs/ anew
	@$(BIN)/python scripts/make_cli_docs.py
	@$(BIN)/python scripts/make_api_docs.py
	@$(BIN)/python -m scripts.make_performance
	@$(BIN)/python -m scripts.make_tables

docs-site: $(DEV) ## build the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

wheels: $(DEV) ## build and test what a release uploads, in dist/
	@rm -rf dist
	@$(BIN)/python -m scripts.make_wheels --out dist
	@QWINK_TEST_WHEELS=dist $(BIN)/python -m pytest tests/release

clean: ## remove what these chores made, .venv included
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis site .soak
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An editable install: it is done again only when the project's metadata or its C code changes.
$(RUNTIME): pyproject.toml $(NATIVE) | $(BIN)/python
	@$(HAS_PIP)
	@echo "installing qwink into $(VENV) ..."
	@$(PIP) install --editable '.[serve]'
	@touch $@

$(DEV): pyproject.toml $(NATIVE) | $(BIN)/python
	@$(HAS_PIP)
	@echo "installing qwink and its development tools into $(VENV) ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(RUNTIME)

$(BIN)/python:
	@command -v '$(PYTHON)' >/dev/null || \
		{ echo "$(PYTHON) is not here; name another, as in: make test PYTHON=python3.12" >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "qwink needs Python 3.11 or newer, this is $$('$(PYTHON)' --version);" \
			"name another, as in: make test PYTHON=python3.12" >&2; exit 1; }
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) lacks venv or ensurepip; on Debian and Ubuntu:" \
			"sudo apt install python3-venv" >&2; exit 1; }
	@'$(PYTHON)' -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
