# The same words here, in CI and in the docs. Each makes .venv and installs what it needs by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNEL_SOURCES := $(wildcard src/zstore/_ext/*.pyx src/zstore/_ext/*.h src/zstore/_ext/include/*.h)
PLUGINS := $(wildcard plugins/zstore-*)

.PHONY: demo test drill build kernels lint types bench clean

$(STAMP): pyproject.toml setup.py $(KERNEL_SOURCES) $(wildcard plugins/*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e ".[all,test,lint]" $(foreach plugin,$(PLUGINS),-e $(plugin))
	touch $@

build: $(STAMP)

# Only the extensions, in place, against what .venv holds already.
kernels:
	$(BIN)/pip install --quiet setuptools cython blosc2
	$(BIN)/python setup.py -q build_ext --inplace -j 2

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -q

# The longer forms of the drills in tests/faults.
drill: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

clean:
	rm -rf $(VENV) build demo src/zstore/_ext/*.c src/zstore/_ext/*.so
