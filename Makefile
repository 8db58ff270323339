# The same words here, in CI and in the docs. Each makes .venv and installs what it needs by itself; another Python
# takes an environment of its own: `make test PYTHON=python3.13 VENV=.venv-3.13`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BUILT := $(VENV)/.built
EXT := src/zstore/_ext
KERNEL_SOURCES := $(wildcard $(EXT)/*.h $(foreach suffix,pyx pxd h cc,$(EXT)/*/*.$(suffix)))
PLUGINS := $(wildcard plugins/zstore-*)

.PHONY: demo test core drill clouds fuzz fuzz-sanitized sanitize sanitized threads mix build lock notes kernels headers lint format types bench bench-pyramids parity-zarr parity-xarray parity-xarray-engine parity-zarr2 readers writers docs shots plugins extras wheels wheels-check portable clean

$(STAMP): pyproject.toml $(wildcard plugins/*/pyproject.toml plugins/*/setup.py plugins/*/*.js)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "setuptools>=77" "cython>=3.1" "blosc2>=3.3" "numpy>=2"
	$(MAKE) kernels
	ZSTORE_KERNELS=none $(BIN)/pip install --quiet $(if $(LOCKED),-c dev.lock) -e ".[all,test,lint]" $(foreach plugin,$(PLUGINS),-e $(plugin))
	touch $@

# The kernels, in place and on all cores; only those of which a source changed are compiled. `make kernels ONLY=codecs`
# leaves the other rooms alone.
ONLY :=
kernels:
	ZSTORE_KERNELS=$(ONLY) $(BIN)/python setup.py -q build_ext --inplace -j $$(nproc)

$(BUILT): $(STAMP) setup.py $(KERNEL_SOURCES)
	$(MAKE) kernels
	touch $@

build: $(BUILT)

# What `make build` installs, by version: `make lock` writes them anew, `make build LOCKED=1` installs just these.
# Without it the newest are installed, as users get them.
LOCKED ?=
lock: $(BUILT)
	ZSTORE_KERNELS=none $(BIN)/pip install --quiet -e ".[dev]"
	printf -- '-e %s\n' '.[all,test,lint]' $(addprefix ./,$(PLUGINS)) | ZSTORE_KERNELS=none $(BIN)/uv pip compile --quiet \
		--universal --upgrade --no-emit-index-url --no-annotate --no-header - | grep -v '^-e' > dev.lock.new
	mv dev.lock.new dev.lock

# The notes of the next release from the files in changes/: printed, or with VERSION written into CHANGELOG.md.
VERSION ?=
notes: $(BUILT)
	ZSTORE_KERNELS=none $(BIN)/pip install --quiet -e ".[dev]"
	$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

# Our own headers, without the code that Cython makes: the compiler has nothing to say about any of them. Those of
# reduce/ and resample/ are templates, but for the one of the warp kernel.
WARNINGS := -fsyntax-only -Wall -Wextra -Wshadow -Werror -Wno-unused-function -D_GNU_SOURCE -I$(EXT) -I$(EXT)/include
TEMPLATES := $(filter-out %/warp.h,$(wildcard $(EXT)/reduce/*.h $(EXT)/resample/*.h))
# No function takes more of a stack than a path and a little: musl's threads have 128 KiB, some have 64.
FRAMES := -O2 -fkeep-static-functions -fkeep-inline-functions -Wframe-larger-than=6144
headers:
	for room in codecs engine requests; do printf '#include "%s"\n' $$PWD/$(EXT)/$$room/*.h | \
		$(CC) -x c $(filter-out -fsyntax-only,$(WARNINGS)) $(FRAMES) -c -o /dev/null - || exit 1; done
	$(CC) -x c $(WARNINGS) $(filter-out $(TEMPLATES),$(filter %.h,$(KERNEL_SOURCES)))
	$(CXX) -x c++ -std=gnu++17 $(WARNINGS) $(TEMPLATES) $(filter %.cc,$(KERNEL_SOURCES))

demo: $(BUILT)
	$(BIN)/python examples/demo.py

# File by file on all cores, eight at most; `make test JOBS=0` runs everything in one process. One more than there are
# cores, because a good part of the time is waited for servers and for other processes.
# A process that dies fails its test and the others go on without it: one in its place would wait for ever.
JOBS ?= $(shell expr $$(nproc) + 1)
WORKERS = --maxprocesses 8 --max-worker-restart 0 -n $(JOBS)
# Bytecode is kept, whatever the surroundings say: many tests start a Python, which else compiles zstore anew each time.
test core drill: export PYTHONDONTWRITEBYTECODE =
# Those of the packages that bring much of their own run in `make plugins`, with what they bring.
test: $(BUILT)
	$(BIN)/python -m pytest -q --known-skips --dist loadfile $(WORKERS) \
		$(addprefix --ignore plugins/zstore-,icechunk serve tune virtual)

# The core alone, in a copy without the other wings: it opens, reads and writes, and its tests pass. Zarr-python must not
# come upon a pipeline that is not there.
CORE := build/core
CORE_TESTS := $(addprefix tests/,aio codecs engine indexing kernels model nodes properties storage) \
	$(patsubst %,tests/faults/test_%.py,calls concurrency damage damage_table files forks hostile processes promises)
core: $(BUILT)
	rm -rf $(CORE)
	mkdir -p $(CORE)
	cp -r src tests tools examples docs setup.py pyproject.toml conftest.py README.md $(CORE)
	sed -i '/^\[/,$$d' $(CORE)/src/zstore.egg-info/entry_points.txt
	cd $(CORE)/src/zstore && rm -r jobs views training geo guests cli zarr __main__.py \
		$(addprefix testing/,$(addsuffix .py,commands conventions jobs resamplers)) \
		$(addprefix plugin/,$(addsuffix .py,commands conventions jobs pictures pyramids rasters resamplers))
	cd $(CORE) && PYTHONPATH=src:tools $(abspath $(BIN))/python -m pytest -q -p no:cacheprovider --dist loadfile \
		$(WORKERS) $(CORE_TESTS)

# The longer forms of the drills, for hours; `make drill PART=tests/faults/test_calls.py` runs those of one file or folder
# (docs/reliability.md says what each takes). They are quicker where the disk is memory: `make drill TMPDIR=/dev/shm`.
# Without PART, the kernels run under all three sanitizers too.
PART ?=
drill: $(BUILT)
	$(BIN)/python -m pytest -q -m slow --dist load $(WORKERS) $(or $(PART),tests)
	$(if $(PART),,$(MAKE) sanitize threads)

# Every parser and decoder, fed with damaged input for FUZZ_SECONDS; with `make fuzz GUIDED=1` the parsers of documents,
# each for its share, guided by what they reach (extra `fuzz`). FUZZ_TARGET names one.
FUZZ_SECONDS ?= 600
FUZZ_TARGET ?=
GUIDED ?=
FUZZ = tests/fuzz/run.py $(if $(GUIDED),--atheris) $(FUZZ_SECONDS) $(if $(FUZZ_TARGET),"$(FUZZ_TARGET)")
fuzz: $(BUILT)
	test -z "$(GUIDED)" || $(BIN)/pip install --quiet -e ".[fuzz]"
	$(BIN)/python $(FUZZ)

# The kernels with bounds checks and a sanitizer, in a copy: AddressSanitizer and UndefinedBehaviorSanitizer, or
# ThreadSanitizer for what the engine's threads do (`make threads`).
SANITIZED := build/sanitize
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANITIZED_PYTHON = cd $(SANITIZED) && \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=src \
	$(abspath $(BIN))/python
define instrument
	rm -rf $(1)
	mkdir -p $(1)
	cp -r src tests examples setup.py pyproject.toml README.md $(1)
	find $(1)/src -name '*.so' -delete -o -path '*/_ext/*/*.c' -delete -o -path '*/_ext/*/*.cpp' -delete
	cd $(1) && CFLAGS="$(2)" CXXFLAGS="$(2)" LDFLAGS="$(2)" ZSTORE_DEBUG_KERNELS=1 \
		$(abspath $(BIN))/python setup.py -q build_ext --inplace
endef
sanitized: $(BUILT)
	$(call instrument,$(SANITIZED),$(SANITIZE))

# The tests of the kernels and of damage. Two tests left out watch the memory of the process, of which the sanitizer
# keeps what was freed; one gives a process less than the sanitizer itself takes; others fork while other threads
# allocate, and the sanitizer's allocator leaves its locks taken in the child.
sanitize: sanitized
	$(SANITIZED_PYTHON) -m pytest -q -p no:cacheprovider tests/kernels tests/resampling tests/codecs tests/faults \
		$(addprefix tests/engine/test_,cache.py many.py puts.py recoding.py remote.py) \
		-k "not leave_nothing_behind and not claims_take_no_memory and not forks_in_the_midst and not forked_child_goes_on and not may_have_little_more_memory"

# Addresses are not laid out at random (setarch -R), which ThreadSanitizer of gcc 12 cannot do with.
THREADED := build/threads
threads: $(BUILT)
	$(call instrument,$(THREADED),-fsanitize=thread -fno-omit-frame-pointer)
	cd $(THREADED) && LD_PRELOAD="$$(gcc -print-file-name=libtsan.so)" PYTHONPATH=src \
		TSAN_OPTIONS=ignore_noninstrumented_modules=1:report_signal_unsafe=0 setarch -R \
		$(abspath $(BIN))/python -m pytest -q -p no:cacheprovider tests/kernels/test_copy.py tests/kernels/test_fold.py tests/kernels/test_curl.py \
		$(addprefix tests/engine/test_,cache.py many.py pool.py puts.py recoding.py) \
		-k "not leave_nothing_behind and not forks_in_the_midst and not forked_child_goes_on"

# Threads that do everything at once, each call compared with what it must give, and what it takes: on a CPython without
# a lock, too, by its own environment (`make mix BIN=PATH/bin`, with kernels built for it; docs/design/0031-free-threads.md).
THREADS ?= 64
CALLS ?= 1000000
mix:
	PYTHONPATH=src $(BIN)/python -m tests.faults.mix $(THREADS) $(CALLS)

# The engine as other systems have it, without what Linux alone has, in a copy. The tests left out say how it is with that.
PORTABLE := build/portable
portable: $(BUILT)
	rm -rf $(PORTABLE)
	mkdir -p $(PORTABLE)
	cp -r src tests tools examples docs setup.py pyproject.toml conftest.py README.md $(PORTABLE)
	cd $(PORTABLE) && ZSTORE_PORTABLE_KERNELS=1 ZSTORE_KERNELS=engine $(abspath $(BIN))/python setup.py -q build_ext --inplace --force
	cd $(PORTABLE) && PYTHONPATH=src:tools $(abspath $(BIN))/python -m pytest -q -p no:cacheprovider \
		$(addprefix tests/storage/test_,local.py contract.py system.py) $(addprefix tests/engine/test_,puts.py pool.py resize.py) \
		-k "not need_no_temporaries and not writer_of_new_chunks_leaves and not other_errors_are_not_missing"

fuzz-sanitized: sanitized
	$(SANITIZED_PYTHON) $(FUZZ)

# Stores of every kind, opened by readers that are no test dependencies too, and drawn in a browser where there is one
# and npm to make its pages. The environments are their own: one of PYTHON, and one of the newest Python here (3.12 at
# least), for which some readers have their newest versions (and rasterio a newer GDAL) only. ZSTORE_READERS_PYTHON
# names that Python; else tools/pythons finds it. `make readers MARK=slow` and `make writers MARK=slow` run the long forms.
MARK ?=
MARKED = $(if $(MARK),-m $(MARK))
READERS := .readers
NEW_READERS := .readers-new
READER_TESTS := $(addprefix tests/integrations/test_readers,.py _geo.py _judged.py _mended.py _mutations.py _programs.py)
READERS_NEED := pyproject.toml setup.py $(KERNEL_SOURCES)
readers: $(READERS)/.installed $(NEW_READERS)/.installed
	mkdir -p $(READERS)/node
	cp tests/integrations/readers/browser/package.json $(READERS)/node
	! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix $(READERS)/node
	ZSTORE_OPENLAYERS=$(READERS)/node/node_modules $(READERS)/bin/python -m pytest -q $(MARKED) $(READER_TESTS) \
		tests/integrations/test_readers_browser.py
	@if [ -x $(NEW_READERS)/bin/python ]; then \
		set -ex; \
		$(NEW_READERS)/bin/python -c 'import rasterio; print("GDAL", rasterio.__gdal_version__)'; \
		ZSTORE_OPENLAYERS=$(READERS)/node/node_modules $(NEW_READERS)/bin/python -m pytest -q $(MARKED) $(READER_TESTS); \
	else \
		echo "no Python 3.12 or newer here: skipped eopf-geozarr >= 0.12, ndpyramid and rasterio >= 1.5 (GDAL >= 3.12);" \
			"ZSTORE_READERS_PYTHON may name one"; \
	fi

$(READERS)/.installed: $(READERS_NEED)
	test -x $(READERS)/bin/python || $(PYTHON) -m venv $(READERS)
	$(READERS)/bin/pip install --quiet --upgrade pip
	$(READERS)/bin/pip install --quiet -e ".[readers]"
	touch $@

# Made where there is a Python for it, and looked for again where there was none.
$(NEW_READERS)/.installed: $(READERS_NEED)
	@new=$${ZSTORE_READERS_PYTHON:-$$(tools/pythons | tail -n 1 | cut -d " " -f 2)}; \
	if [ -n "$$new" ] && "$$new" -c "import sys; sys.exit(sys.version_info < (3, 12))"; then \
		set -ex; \
		test -x $(NEW_READERS)/bin/python || "$$new" -m venv $(NEW_READERS); \
		$(NEW_READERS)/bin/pip install --quiet --upgrade pip; \
		$(NEW_READERS)/bin/pip install --quiet -e ".[readers]"; \
		touch $@; \
	fi

# Stores that other tools write, read as they mean them; writes the tables of docs/conventions.md from what it finds. The
# environment is one of the newest Python here, as above, or of PYTHON, for which there are fewer writers.
WRITERS := .writers
writers: $(WRITERS)/.installed
	ZSTORE_TABLES=$(if $(MARK),,docs/conventions.md) $(WRITERS)/bin/python -m pytest -q $(MARKED) tests/foreign \
		tests/integrations/test_shaped.py

$(WRITERS)/.installed: $(READERS_NEED)
	test -x $(WRITERS)/bin/python || \
		"$${ZSTORE_READERS_PYTHON:-$$( (echo 0 $(PYTHON); tools/pythons) | tail -n 1 | cut -d " " -f 2)}" -m venv $(WRITERS)
	$(WRITERS)/bin/pip install --quiet --upgrade pip
	$(WRITERS)/bin/pip install --quiet -e ".[writers]"
	touch $@

# Buckets as Azure has them: Azurite, from npm.
CLOUDS := .clouds
clouds: $(BUILT)
	npm install --silent --no-audit --no-fund --prefix $(CLOUDS) azurite
	ZSTORE_AZURITE=$(CLOUDS)/node_modules/.bin/azurite-blob $(BIN)/python -m pytest -q tests/storage/test_azurite.py

lint: $(STAMP) headers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(filter %.h %.cc,$(KERNEL_SOURCES))

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.h %.cc,$(KERNEL_SOURCES))

# Those of the package, of a user's script, and of the kernels beside their stubs.
types: $(BUILT)
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m types tests/test_public_api.py

# The site, in site/; a link that leads nowhere stops it. No kernels are needed, so it has an environment of its own.
DOCS := .docs
docs:
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet "mkdocs-material>=9.5" "mkdocstrings[python]>=1" ruff
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# Every plugin as its users get it: built from its own folder into an environment that never saw the source tree. Then
# one of each kind as a stranger makes it, by the words of docs/plugins.md, in an environment with nothing but zstore.
PLUGIN_VENV := .plugins
plugins:
	rm -rf $(PLUGIN_VENV)
	$(PYTHON) -m venv $(PLUGIN_VENV)
	$(PLUGIN_VENV)/bin/pip wheel --quiet --no-deps --wheel-dir $(PLUGIN_VENV)/wheel .
	$(PLUGIN_VENV)/bin/pip install --quiet "$$(echo $(PLUGIN_VENV)/wheel/zstore-*.whl)[cli,test]" $(addprefix ./,$(PLUGINS:%/zstore-arrow=%/zstore-arrow[test])) \
		kerchunk virtualizarr fastparquet tifffile hdf5plugin rio-tiler owslib scipy healpix exactextract
	$(PLUGIN_VENV)/bin/zstore plugins
	$(PLUGIN_VENV)/bin/python -m pytest -q plugins --ignore plugins/zstore-virtual/tests/test_oracle.py
	$(PLUGIN_VENV)/bin/python -m pytest -q plugins/zstore-virtual/tests/test_oracle.py  # where HDF5 has its filters alone
	ZSTORE_WHEEL=$$(echo $(PLUGIN_VENV)/wheel/zstore-*.whl) \
		$(PLUGIN_VENV)/bin/python -m pytest -q -m install tests/cli/test_plugins_new.py

# Each extra alone, in an environment that has nothing else: what it is for works there.
extras: $(BUILT)
	$(BIN)/python -m pytest -q -m install --durations=5 tests/test_extras.py

# The site's main pages and the notebook view as Chromium draws them, light and dark: to be looked at. And the first views
# of the gallery, for which the extra 'meshes' of zstore-serve is installed.
shots: $(BUILT) docs
	$(BIN)/python tools/shots.py site shots
	$(BIN)/python tools/first_views.py docs/views

# What a release holds, in dist/: the source, and a wheel for each machine and each Python of this one, linked against the
# oldest C library of its tag; `make wheels WHEELS="--target manylinux_2_28_x86_64 --python 3.12"` builds one. Then each
# that can run here is installed into an environment of its own, and all are looked into.
WHEELS :=
wheels:
	rm -rf dist
	$(PYTHON) tools/wheels.py $(WHEELS)
	$(MAKE) wheels-check

wheels-check: $(STAMP)
	ZSTORE_WHEELS=dist $(BIN)/python -m pytest -q -m install --durations=5 tests/test_wheels.py

bench: $(BUILT)
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

# The peers' own test-suites through zstore's codec pipeline, beside zarr-python's; the newer needs Python 3.12.
parity-zarr:
	$(PYTHON) tools/parity.py zarr 3.1.6 3.4.2

parity-xarray:
	$(PYTHON) tools/parity.py xarray 2026.9.0

# xarray's tests of its Zarr backend, reading through the engine "zstore".
parity-xarray-engine: $(BUILT)
	PYTHONPATH=tools $(BIN)/python -m pytest -q -c /dev/null -p no:cacheprovider -p xarray_engine \
		--pyargs xarray.tests.test_backends -k "TestZarrDirectoryStore or TestZarrDictStore"

# Beside zarr-python 2, in an environment of its own.
ZARR2 := build/zarr2
parity-zarr2: $(BUILT)
	test -x $(ZARR2)/bin/python || $(PYTHON) -m venv $(ZARR2)
	$(ZARR2)/bin/pip install --quiet "zarr<3" "numcodecs<0.16" msgpack
	ZSTORE_ZARR2_PYTHON=$(ZARR2)/bin/python $(BIN)/python -m pytest -q tests/parity/test_zarr2.py

# Whole pyramids, store to store, beside their peers: the table of docs/performance.md. Takes minutes.
bench-pyramids: $(BUILT)
	$(BIN)/python -m benchmarks.whole_pyramids

clean:
	rm -rf $(VENV) .venv-* shots .clouds .readers .readers-new .writers .docs .plugins site build dist demo $(EXT)/*/*.c $(EXT)/*/*.cpp $(EXT)/*/*.so
