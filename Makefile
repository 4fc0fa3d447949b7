# Two commands: `make demo` shows what nospoon does, `make test` passes the tests.
# Both set everything up themselves and are safe to repeat.
BIN := .venv/bin
# Compiled modules are kept: otherwise every start of a daemon, of Ironic or of Nova compiles them.
export PYTHONDONTWRITEBYTECODE :=

CHECKS := types docs imports words any lint format

.PHONY: demo test test-ironic test-ironic-full test-control-plane test-kinds test-cgroup2 test-openstack-full test-labs-full check $(CHECKS:%=check-%) format dist bench docs advisories clean

demo:            ## Bring up real virtual servers, use them as their clients do
	scripts/setup run
	scripts/demo

test:            ## Everything: checks, then all tests (real libvirt, QEMU, ipmitool, sushy)
	scripts/setup test
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -n 4 --dist loadscope $(PYTEST_ARGS)

test-ironic:     ## Real agents in real machines, deployed by a real Ironic; a part of `make test`
	scripts/setup test
	$(BIN)/python -m pytest tests/ironic $(PYTEST_ARGS)

test-ironic-full: export NOSPOON_FULL_CYCLES = 1
test-ironic-full: test-ironic  ## The same, with cleaning and inspection of every machine

test-control-plane: export NOSPOON_CONTROL_PLANE = 1
test-control-plane: ## The example of a control plane, in one container and in five; not a part of `make test`
	scripts/setup test
	$(BIN)/python -m pytest tests/e2e/test_control_plane.py $(PYTEST_ARGS)

test-kinds: export NOSPOON_KINDS = 1
test-kinds:      ## Bare metal, a VM and containers on one VLAN, also with a VM of Debian, which `make test` has not
	scripts/setup test
	$(BIN)/python -m pytest tests/e2e/test_four_kinds.py $(PYTEST_ARGS)

test-cgroup2: export NOSPOON_CGROUP2 = 1
test-cgroup2:    ## Containers in a VM with control groups of version 2 and AppArmor; not a part of `make test`
	scripts/setup test
	$(BIN)/python -m pytest tests/e2e/test_control_groups.py $(PYTEST_ARGS)

test-openstack-full: export NOSPOON_OPENSTACK_FULL = 1
test-openstack-full: ## A cloud, with Cinder, a relay of a cloud image, deployments by an Ironic and Debian's installer; not a part of `make test`
	scripts/setup test
	$(BIN)/python -m pytest tests/cloud $(PYTEST_ARGS)

test-labs-full: export NOSPOON_LABS_FULL ?= 10000
test-labs-full:  ## As many requests in an hour of a lab's clock, through a daemon; not a part of `make test`
	scripts/setup test
	$(BIN)/python -m pytest -s tests/control/test_an_hour_of_requests.py $(PYTEST_ARGS)

check:           ## Format, lint, strict types, import contracts, generated documents, words, Any
	$(MAKE) --no-print-directory -j 2 --output-sync --keep-going $(CHECKS:%=check-%)

check-types:; $(BIN)/mypy
check-docs:; $(BIN)/python scripts/make-docs --check
check-imports:; $(BIN)/lint-imports
check-words:; $(BIN)/python scripts/check-words
check-any:; $(BIN)/python scripts/check-any
check-lint:; $(BIN)/ruff check .
check-format:; $(BIN)/ruff format --check .

format:          ## Format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs:            ## Make the reference from the code
	$(BIN)/python scripts/make-docs

dist:            ## Build the wheel and the source distribution
	$(BIN)/python -m build --no-isolation

bench:           ## Benchmarks; each prints ratios to a reference measured in the same run
	scripts/setup test
	for each in benchmarks/*.py; do $(BIN)/python $$each || exit 1; done

advisories:      ## Ask PyPI's and OSV's databases about every locked version
	python3 -m venv build/pip-audit
	build/pip-audit/bin/pip install -q pip-audit
	for each in requirements/*.txt src/nospoon/dev/*.txt src/nospoon/dev/cloud/*.txt; do \
	  build/pip-audit/bin/pip-audit --require-hashes --disable-pip -r $$each || exit 1; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
