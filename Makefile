# Two commands for a newcomer: `make demo` and `make test`. Each does all its own set-up.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Where a machine forbids compiled modules, every process would compile them all again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check soak bench format lock clean

demo: $(STAMP)  ## two real clusters, mirrored live, compared record by record
	$(BIN)/heliograph demo

test: check $(STAMP)  ## everything CI runs
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations=25 tests --ignore=tests/unit --ignore=tests/property --ignore=tests/house

check: $(STAMP)  ## the fast half: format, lint, types, layers, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -n 2 tests/unit tests/property tests/house

soak: SEED := $(if $(SEED),$(SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
soak: ROUNDS ?= 10
soak: $(STAMP)  ## a hunt by new examples and new moments of a kill: make soak [ROUNDS=50] [SEED=4711]
	@echo "SEED=$(SEED) ROUNDS=$(ROUNDS)"
	$(BIN)/pytest -q -n 2 --hypothesis-profile random --hypothesis-seed $(SEED) tests/property
	HELIOGRAPH_CRASH_SEED=$(SEED) HELIOGRAPH_CRASH_ROUNDS=$(ROUNDS) $(BIN)/pytest -q tests/crash/test_kills.py
	@echo "passed with SEED=$(SEED) ROUNDS=$(ROUNDS)"

bench: $(STAMP)  ## against MirrorMaker 2, in one run
	$(BIN)/heliograph bench

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "heliograph needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0])'
	@test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

lock:  ## pin what pyproject.toml asks for, with hashes and without naming a package host
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --extra dev -o requirements.lock pyproject.toml

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
