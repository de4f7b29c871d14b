# Two commands for a newcomer: `make demo` and `make test`. Each does all its own set-up.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Where a machine forbids compiled modules, every process would compile them all again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check static unit soak fuzz versions bench format lock clean

demo: $(STAMP)  ## two real clusters, mirrored live, compared record by record
	$(BIN)/heliograph demo

test: check $(STAMP)  ## everything CI runs
	$(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder --durations=25 tests --ignore=tests/unit --ignore=tests/property --ignore=tests/sim --ignore=tests/house --ignore=tests/soak

check: $(STAMP)  ## the fast half: format, lint, types, layers, unit tests
	@$(MAKE) --no-print-directory -j 2 static unit

# Side by side: mypy has one thread, and the tests leave cores idle while they end.
# What mypy knows is kept where Kafka is: of a fresh clone it then reads only what has changed.
static: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@known="$${HELIOGRAPH_CACHE:-$$HOME/.cache/heliograph}/mypy"; mkdir -p "$$known" 2>/dev/null && [ -w "$$known" ] || known=.mypy_cache; \
	echo mypy; $(BIN)/mypy --cache-dir "$$known"
	$(BIN)/lint-imports --no-cache

unit: $(STAMP)
	$(BIN)/pytest -q -n 2 tests/unit tests/property tests/sim tests/house

soak: SEED := $(if $(SEED),$(SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
soak: ROUNDS ?= 10
soak: LARGER := $(shell grep -l in_soak tests/cluster/test_*.py tests/spark/test_*.py tests/unit/api/test_*.py)
# With OPS it is the campaign of tests/campaign alone, as bench/results/soak has it; ADD=1 keeps the next piece there.
ifdef OPS
soak: $(STAMP)  ## random operations on two clusters of three brokers: make soak OPS=200 [SEED=4711] [ADD=1] [BROKERS=1] [SPARK=1]
	$(BIN)/python -m tests.campaign --seed $(SEED) --ops $(OPS) --brokers $(or $(BROKERS),3) $(if $(SPARK),--spark) $(if $(ADD),--add bench/results/soak/seed-$(SEED).json)
else
soak: $(STAMP)  ## a hunt by new examples and new moments of a kill: make soak [ROUNDS=50] [SEED=4711]
	@echo "SEED=$(SEED) ROUNDS=$(ROUNDS)"
	$(BIN)/pytest -q -n 2 --hypothesis-profile random --hypothesis-seed $(SEED) tests/property
	HELIOGRAPH_CRASH_SEED=$(SEED) HELIOGRAPH_CRASH_ROUNDS=$(ROUNDS) $(BIN)/pytest -q tests/crash/test_kills.py tests/soak
	HELIOGRAPH_SOAK=1 HELIOGRAPH_SIM_SEED=$(SEED) $(BIN)/pytest -q tests/sim
	HELIOGRAPH_SOAK=1 $(BIN)/pytest -q --hypothesis-profile random --hypothesis-seed $(SEED) $(LARGER)
	$(BIN)/python -m tests.campaign --seed $(SEED) --ops 100
	@echo "passed with SEED=$(SEED) ROUNDS=$(ROUNDS)"
endif

fuzz: MINUTES ?= 60
fuzz: $(STAMP)  ## the REST API of a real driver meets anything: make fuzz [MINUTES=60] [SEED=4711] [ADD=1]
	$(BIN)/python -m bench.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ADD),--add)

versions: $(STAMP)  ## every release of Kafka and PySpark; writes docs/reference/versions.md: make versions [ONLY="--release 3.6"]
	$(BIN)/python -m bench.versions $(ONLY)

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
