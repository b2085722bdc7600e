# Two commands for a fresh machine: `make demo` clusters built-in data, `make test` runs the tests.
# Each makes the environment that it needs in .venv, with Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test stand-in coverage oldest others lint docs clean

demo: $(VENV)/installed
	$(BIN)/specialk-gpu demo

test: $(VENV)/installed-tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -W error -m "not (pages or cluster)"

stand-in: $(VENV)/installed-stand-in
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -W error --stand-in -m gpu -q

coverage: $(VENV)/installed-stand-in
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not pages" \
		--cov=specialk_gpu --cov-report=
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -W error --stand-in -m gpu \
		--cov=specialk_gpu --cov-append --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=95

oldest:
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install -q -e '.[test]' -c tests/oldest.txt
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n 2 --dist worksteal -q -m "not pages"

others:
	test -x .venv-others/bin/python || $(PYTHON) -m venv .venv-others
	.venv-others/bin/python -m pip install -q -e '.[test,bench]'
	OMP_NUM_THREADS=1 .venv-others/bin/python -m pytest -q tests/test_suites_of_others.py \
		tests/test_compare.py tests/test_rivals.py tests/test_bench.py

lint: $(VENV)/installed-lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

docs: $(VENV)/installed-docs $(VENV)/installed-tests
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -W error -m pages -q

clean:
	rm -rf $(VENV) .venv-oldest .venv-others docs/_build dist

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/installed-tests: $(VENV)/installed
	$(BIN)/python -m pip install -q -e '.[test]'
	touch $@

$(VENV)/installed-stand-in: $(VENV)/installed-tests
	$(BIN)/python -m pip install -q -e '.[nvrtc]'
	touch $@

$(VENV)/installed-lint: $(VENV)/installed
	$(BIN)/python -m pip install -q -e '.[lint]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install -q -e '.[docs]'
	touch $@
