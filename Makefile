# The same words here, in CI and in the docs. Each makes .venv and installs what it needs by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNEL_SOURCES := $(wildcard src/zstore/_ext/*.pyx src/zstore/_ext/*.h src/zstore/_ext/include/*.h)
PLUGINS := $(wildcard plugins/zstore-*)

.PHONY: demo test drill build kernels lint types bench bench-pyramids parity-zarr parity-xarray readers clean

$(STAMP): pyproject.toml setup.py $(KERNEL_SOURCES) $(wildcard plugins/*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e ".[all,test,lint]" $(foreach plugin,$(PLUGINS),-e $(plugin))
	touch $@

build: $(STAMP)

# Only the extensions, in place, against what .venv holds already.
kernels:
	$(BIN)/pip install --quiet setuptools cython blosc2 "numpy>=2"
	$(BIN)/python setup.py -q build_ext --inplace -j 2

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -q

# The longer forms of the drills in tests/faults.
drill: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

# Stores of every kind, opened by readers that are no test dependencies too, from an environment of their own;
# ZSTORE_READERS_PYTHON may name a Python whose rasterio has a newer GDAL.
READERS := .readers
readers: $(STAMP)
	test -x $(READERS)/bin/python || $(PYTHON) -m venv $(READERS)
	$(READERS)/bin/pip install --quiet -e ".[all,test,readers]"
	! command -v npm >/dev/null || npm install --silent --prefix $(READERS)/node ol
	ZSTORE_OPENLAYERS=$(READERS)/node/node_modules $(READERS)/bin/python -m pytest -q tests/integrations/test_readers.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

# The peers' own test-suites through zstore's codec pipeline, beside zarr-python's; the newer needs Python 3.12.
parity-zarr:
	$(PYTHON) tools/parity.py zarr 3.1.6 3.4.2

parity-xarray:
	$(PYTHON) tools/parity.py xarray 2026.9.0

# Whole pyramids, store to store, beside their peers: the table of docs/performance.md. Takes minutes.
bench-pyramids: $(STAMP)
	$(BIN)/python -m benchmarks.whole_pyramids

clean:
	rm -rf $(VENV) .readers build demo src/zstore/_ext/*.c src/zstore/_ext/*.so
