# make demo and make test do everything on a fresh machine: a virtual environment, the install, then the work.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-fast test-portable lint clean

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
	$(BIN)/python -m pytest -n auto

test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m 'not slow and not gpu and not data'

# The numeric tests by other kernels than this machine would choose: bounds must hold on every processor. CPU may be
#   ATEN_CPU_CAPABILITY=default     torch without vector instructions, the farthest from any machine's own
#   ATEN_CPU_CAPABILITY=avx2        torch where there is no AVX-512
#   ONEDNN_MAX_CPU_ISA=AVX2         convolutions and packed products where there is no AVX-512
#   MKL_CBWR=COMPATIBILITY          matrix products as on the oldest processors, in one order everywhere
#   OMP_NUM_THREADS=1               one thread, as the tests have it anyway
#   "OMP_NUM_THREADS=2 CLEARFORMER_TEST_THREADS=2"    two, which cut sums in two
# as in: make test-portable CPU=ONEDNN_MAX_CPU_ISA=AVX2
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
