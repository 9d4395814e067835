# `make demo` and `make test` need only Python (>= 3.11) and make; everything else goes into .venv.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
VENV := .venv
BIN := $(VENV)/bin
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n 3 --dist worksteal

.PHONY: demo test test-all lint types docs unit long hooks dist bench bench-gpu clean reports $(REPORTS:%=report-%)

demo: $(VENV)/.installed
	@echo "digits: 1,797 images of handwritten digits, each joined to its 10 nearest ones. It is no"
	@echo "graph by itself, but it needs no download."
	$(BIN)/gistgnn train --dataset digits --sub-gcns 4 --out runs/demo --overwrite
	@echo
	@echo "Next: a class for every node, and a graph of your own (docs/how-to/data.md):"
	@echo "  $(BIN)/gistgnn predict runs/demo --output classes.csv"
	@echo "  $(BIN)/gistgnn train --dataset my_graph.npz"

test: lint types docs unit

test-all: test long

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

unit: $(VENV)/.installed-dev
	$(PYTEST) -m "not long"

# Kill loops, the attack, the examples, reports in a browser, real graphs (see tests/conftest.py).
long: $(VENV)/.installed-dev
	$(PYTEST) -m long

hooks: $(VENV)/.installed-dev
	$(BIN)/pre-commit install

# A source archive and a wheel, which are then installed in an environment of their own and tried there.
dist: | $(BIN)/python
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) build
	$(BIN)/python -m build --outdir dist .
	PYTHON=$(PYTHON) CONSTRAINTS=$(CONSTRAINTS) .ci/try_wheel dist/*.whl

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.steps

# Nothing is installed: it uses .venv if it is there, otherwise the Python that is active, with its torch.
bench-gpu:
	PYTHONPATH=src:. $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu

# Makes docs/paper/reports anew, in two hours; `make report-NAME` makes one. Finished runs in build/reports are kept.
REPORTS := table1 depth-width local-iterations reddit amazon2m ultrawide ladies local-sgd ensemble theory
reports: $(REPORTS:%=report-%)
$(REPORTS:%=report-%): report-%: $(VENV)/.installed
	$(BIN)/gistgnn reproduce $* --data-root ../shared/data --out build/reports/$*
	cp build/reports/$*/report.html docs/paper/reports/$*.html

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) dist runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
