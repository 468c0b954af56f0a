# make run    the main job: agents in a medium-voltage grid for one day
# make test   the tests that take up to a second: about three minutes on two idle cores; make test-all: all that this
#             machine can run; make mutation: whether the tests find faults: all in tests/docs/mutations, and a sample
#             of small ones in the core
# make race   this package beside palaestrAI, about 25 minutes (docs/race.md)
# All make the virtual environment .venv on first use; pip is all that needs a network.
# PYTHON=/path/to/python3.12 chooses the interpreter that .venv is made with.

PYTHON ?= python3
RESULTS := palaestrai-results
BIN := .venv/bin
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# hundreds of processes that tests start would else compile the package, where bytecode is not to be kept
TESTING := PYTHONDONTWRITEBYTECODE= $(THREADS)
# WORKERS=3 saves time if many tests wait for Slurm or a browser
WORKERS ?= 2
PARALLEL = -q -n $(WORKERS) --dist worksteal

.DELETE_ON_ERROR:
.PHONY: run test test-all test-newer test-bare test-peer mutation lint lint-page docs site bench race clean

run: .venv/ready-run
	$(BIN)/palaestrai-mosaik start scenarios/cigre_mv_day.yml --store $(RESULTS)
	$(BIN)/palaestrai-mosaik show latest --store $(RESULTS)
	$(BIN)/palaestrai-mosaik plot latest --store $(RESULTS) \
	    --sensors 'grid.bus-*.vm_pu' 'setpoint.*' --output $(RESULTS)/cigre_mv_day.png

test: .venv/ready-test
	$(TESTING) $(BIN)/python -m pytest $(PARALLEL)

test-all: .venv/ready-test
	$(TESTING) $(BIN)/python -m pytest $(PARALLEL) --slow

# tests that depend on the release of mosaik
WORLDS := simulation/scheduler environment scenario_files interop/mosaik/test_simulators.py runner/test_documents.py runner/test_faults.py

# with mosaik 3.7, which needs Python 3.12 or newer; also workers and learners, which depend on the release of Python
test-newer: .venv-newer/ready
	$(TESTING) .venv-newer/bin/python -m pytest $(PARALLEL) \
	    $(WORLDS:%=tests/%) tests/interop/rl tests/runner/test_workers.py

# with mosaik 3.5, the oldest, and without any extra: the commands as well, and what there is to say of extras
test-bare: .venv-bare/ready
	$(TESTING) .venv-bare/bin/python -m pytest $(PARALLEL) \
	    $(WORLDS:%=tests/%) tests/cli tests/architecture/test_extras.py

# first all faults in tests/docs/mutations, which break rows of tables of the documentation (with palaestrAI beside this package
# where a test needs it); then SAMPLE small faults in the core (simulation, memory, replay, store, statistics), drawn with SEED
SAMPLE ?= 150
SEED ?= 1
mutation: .venv/ready-mutation .venv-peer/ready
	$(THREADS) $(BIN)/python -m tests.support.mutations
	$(THREADS) .venv-peer/bin/python -m tests.support.mutations tests/peer/
	$(THREADS) $(BIN)/python -m tests.support.mutants --sample $(SAMPLE) --seed $(SEED)

# beside palaestrAI, MIDAS and components of mosaik, which need other releases of some packages
test-peer: .venv-peer/ready
	PALAESTRAI_MOSAIK_TEST_PEER_SOURCES=$(CURDIR)/.venv-peer/sources \
	    $(TESTING) .venv-peer/bin/python -m pytest $(PARALLEL) --slow tests/peer tests/interop/mosaik/test_components.py

lint: .venv/ready-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m tests.support.prose
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory lint-page; \
	    else echo "no npm: eslint and tsc have not checked the JavaScript of the page"; fi

# the JavaScript of the page, which needs Node.js for its checks only
lint-page: tests/javascript/node_modules/.package-lock.json
	npm --prefix tests/javascript run --silent lint

tests/javascript/node_modules/.package-lock.json: tests/javascript/package-lock.json
	npm --prefix tests/javascript ci --no-audit --no-fund --silent
	touch $@

# the site, with its pictures drawn again; make site: with the pictures as they are
docs: .venv/ready-docs
	$(THREADS) $(BIN)/python -m tests.support.pictures
	$(THREADS) $(BIN)/python -m tests.support.screenshots
	$(MAKE) site

site: .venv/ready-docs
	rm -rf docs/_build
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	$(THREADS) $(BIN)/python -m tests.support.site_theatre docs/_build/html/duel.html
	$(BIN)/python -m tests.support.site_search docs/_build/html
	@echo "the site is docs/_build/html/index.html"

bench: .venv/ready-run
	$(THREADS) $(BIN)/python tests/benchmarks/engine.py
	$(THREADS) $(BIN)/python tests/benchmarks/scheduler.py
	$(THREADS) $(BIN)/python tests/benchmarks/grid_solver.py
	$(THREADS) $(BIN)/python tests/benchmarks/flagship.py
	$(THREADS) $(BIN)/python tests/benchmarks/memory.py
	$(THREADS) $(BIN)/python tests/benchmarks/workers.py
	$(THREADS) $(BIN)/python tests/benchmarks/generate.py
	$(THREADS) $(BIN)/python tests/benchmarks/interpreter.py
	$(THREADS) $(BIN)/python tests/benchmarks/execution.py
	$(THREADS) $(BIN)/python tests/benchmarks/batches.py --more batch_grid
	$(THREADS) $(BIN)/python tests/benchmarks/session_pool.py
	$(THREADS) $(BIN)/python tests/benchmarks/store_rows.py
	$(THREADS) $(BIN)/python tests/benchmarks/theatre.py
	$(THREADS) $(BIN)/python tests/benchmarks/store_writers.py
	$(THREADS) $(BIN)/python tests/benchmarks/web_cost.py
	$(THREADS) $(BIN)/python tests/benchmarks/web_page.py

race: .venv/ready-run
	$(THREADS) $(BIN)/python tests/benchmarks/race/__main__.py

clean:
	rm -rf .venv .venv-newer .venv-bare .venv-peer docs/_build build dist .pytest_cache .mypy_cache .ruff_cache \
	    tests/javascript/node_modules

# One environment; each stamp says that its extras are installed as pyproject.toml has them.
.venv/ready-run: EXTRAS := grid
.venv/ready-test: EXTRAS := grid,test
.venv/ready-lint: EXTRAS := grid,dev
.venv/ready-docs: EXTRAS := grid,docs,discovery
.venv/ready-mutation: EXTRAS := grid,test,mutation
.venv/ready-%: pyproject.toml | .venv/bin/pip
	@echo "Installing the package with '$(EXTRAS)' into .venv; the first time takes a minute or two."
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	        "Try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	    echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# NEWER_PYTHON=/path/to/python3.12 chooses its interpreter
.venv-newer/ready: pyproject.toml
	test -x .venv-newer/bin/pip || { \
	    python=$${NEWER_PYTHON:-$$(tests/services/python.sh 3.13 3.12)} && "$$python" -m venv .venv-newer; }
	.venv-newer/bin/pip install --disable-pip-version-check --quiet --editable '.[grid,test]' 'mosaik==3.7.*' \
	    gymnasium pettingzoo
	touch $@

.venv-bare/ready: pyproject.toml
	test -x .venv-bare/bin/pip || $(PYTHON) -m venv .venv-bare
	.venv-bare/bin/pip install --disable-pip-version-check --quiet --editable . 'mosaik==3.5.*' \
	    pytest pytest-xdist pytest-timeout hypothesis
	touch $@

.venv-peer/ready: pyproject.toml tests/peer/requirements.txt
	test -x .venv-peer/bin/pip || $(PYTHON) -m venv .venv-peer
	.venv-peer/bin/pip install --disable-pip-version-check --quiet -r tests/peer/requirements.txt --editable '.[test]'
	# palaestrAI's own example documents are in its sources only
	rm -rf .venv-peer/sources && mkdir .venv-peer/sources
	cd .venv-peer/sources && ../bin/pip download --disable-pip-version-check --quiet --no-deps --no-binary :all: \
	    $$(grep -E '^palaestrai(-environments)?==' ../../tests/peer/requirements.txt) \
	    && for file in *.tar.gz; do tar xzf "$$file"; done
	touch $@
