# make demo and make test do everything on a fresh machine: a virtual environment, the install, then the work.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-fast lint clean

$(BIN)/clearformer: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[plots]'
	@touch $@

$(VENV)/.test: pyproject.toml $(BIN)/clearformer
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

demo: $(BIN)/clearformer
	$(BIN)/clearformer demo

test: $(VENV)/.test lint
	$(BIN)/pytest

test-fast: $(VENV)/.test
	$(BIN)/pytest -m 'not slow and not gpu and not data'

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info
