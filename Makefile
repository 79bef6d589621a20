# make demo, make studio and make test work on a fresh machine: they create a virtual environment and install the package first.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo studio test test-fast test-slow test-matrix test-hostile test-schema test-browser test-handbook test-portable docs lint clean

$(BIN)/clearformer: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[plots]'
	@touch $@

$(VENV)/.test: pyproject.toml $(BIN)/clearformer
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

demo: $(BIN)/clearformer
	$(BIN)/clearformer demo

# Opens the studio in the browser. Example: make studio STUDIO="--runs runs/"
$(VENV)/.studio: pyproject.toml $(BIN)/clearformer
	$(BIN)/pip install --quiet --editable '.[studio]'
	@touch $@

studio: $(VENV)/.studio
	$(BIN)/clearformer studio $(STUDIO)

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n auto -m 'not slow and not matrix and not schema and not browser and not handbook'

# Trainings, compilers, exporters and a notebook: about as long again.
test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m slow

# Every kind of file × every task × (command line, Python), and hostile files: about five minutes on two cores.
test-matrix: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m matrix tests/matrix

# Damaged files of every kind, in processes with limits: about two minutes on two cores. Example: make test-hostile HOSTILE=100000
HOSTILE ?= 3000

test-hostile: $(VENV)/.test
	$(BIN)/python tests/hostile/campaign.py --cases $(HOSTILE) --seed 1

# Requests to every path of the server, made up by schemathesis from its description. Example: make test-schema CASES=10000
CASES ?= 500

test-schema: $(VENV)/.test
	$(BIN)/python -m pytest -m schema tests/serve/test_schema.py --cases $(CASES)

# Every page of the studio in Chromium (Debian: apt-get install chromium). $$CHROMIUM is the path of another one. Without
# it the tests fail, which pytest alone skips.
$(VENV)/.browser: pyproject.toml $(VENV)/.test
	$(BIN)/pip install --quiet --editable '.[browser]'
	@touch $@

test-browser: $(VENV)/.browser
	env CLEARFORMER_BROWSER=required $(BIN)/python -m pytest -m browser tests/studio

# The handbook, the other pages and a reference of all docstrings as a site in build/site. Needs no network.
$(VENV)/.docs: pyproject.toml $(VENV)/.test
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/build.py

# Every block of the handbook, and the site: some minutes.
test-handbook: $(VENV)/.docs
	$(BIN)/python -m pytest -n auto -m handbook tests/handbook

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m 'not slow and not matrix and not schema and not browser and not handbook and not gpu and not data'

# Run the numeric tests with CPU kernels that this machine would not choose: tolerances must hold on every processor.
# Values of CPU:
#   ATEN_CPU_CAPABILITY=default     torch without vector instructions, the most different from a typical machine
#   ATEN_CPU_CAPABILITY=avx2        torch as on a processor without AVX-512
#   ONEDNN_MAX_CPU_ISA=AVX2         convolutions and packed products as on a processor without AVX-512
#   MKL_CBWR=COMPATIBILITY          matrix products as on the oldest processors, in the same order everywhere
#   OMP_NUM_THREADS=1               one thread, the default of the tests
#   "OMP_NUM_THREADS=2 CLEARFORMER_TEST_THREADS=2"    two threads, which split sums in two
# Example: make test-portable CPU=ONEDNN_MAX_CPU_ISA=AVX2
CPU ?= ATEN_CPU_CAPABILITY=default
NUMERIC = layers models objectives tuning interop lens

test-portable: $(VENV)/.test
	env $(CPU) $(BIN)/python -m pytest -n auto -m 'not slow and not gpu and not data' -k 'not preset' $(addprefix tests/,$(NUMERIC))

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info
