# `make demo` and `make test` need only Python (>= 3.11) and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types docs unit hooks bench bench-gpu clean

demo: $(VENV)/.installed
	$(BIN)/gistgnn train --out runs/demo --overwrite

test: lint types docs unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

unit: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n 3 --dist worksteal

hooks: $(VENV)/.installed-dev
	$(BIN)/pre-commit install

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.batches

# Nothing is installed: it uses .venv if it is there, otherwise the Python that is active, with its torch.
bench-gpu:
	PYTHONPATH=src:. $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
