# Two commands: `make demo` shows what nospoon does, `make test` passes the tests.
# Both set everything up themselves and are safe to repeat.
BIN := .venv/bin
# These wait for real guests and are not yet steady on two loaded cores: `make test-long` runs them.
# What fails beside other guests is tried once more alone, before it counts as failed.
LONG := tests/e2e/test_boot_order.py tests/e2e/test_consoles.py tests/e2e/test_bad_days.py
NOT_YET_STEADY := $(addprefix --ignore=,$(LONG))

.PHONY: demo test test-long check format dist bench docs clean

demo:            ## Bring up real virtual servers, use them as a stranger would, take them down
	scripts/setup run
	scripts/demo

test:            ## Everything: checks, then all tests (real libvirt, QEMU, ipmitool, sushy)
	scripts/setup test
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(NOT_YET_STEADY) $(PYTEST_ARGS) \
	  || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(NOT_YET_STEADY) $(PYTEST_ARGS)

test-long:       ## Boot order, consoles and bad days on real machines, one after the other
	scripts/setup test
	$(BIN)/python -m pytest $(LONG)

check:           ## Format, lint, strict types, import contracts, generated documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make-docs --check

format:          ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs:            ## Make the reference from the code
	$(BIN)/python scripts/make-docs

dist:            ## Build the wheel and the source distribution
	$(BIN)/python -m build --no-isolation

bench:           ## Benchmarks; each prints ratios to a reference measured in the same run
	scripts/setup test
	for each in benchmarks/*.py; do $(BIN)/python $$each || exit 1; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
