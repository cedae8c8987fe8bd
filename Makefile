# README's two commands are `make demo` and `make test`; everything installs what it needs.
SHELL := /bin/bash
PY := .venv/bin/python

.PHONY: help demo test unit vm check lint types layers dependencies format proto docs man wheel deb lock bench soak clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## see numalet put real processes on real cores
	@scripts/demo

test: unit vm ## run every test: unit, properties, recorded machines, VM lane

unit: ## the tests that need no VM
	@scripts/bootstrap --unit
	$(PY) -m pytest -n logical -m "not vm"

vm: ## the tests that need a real kernel, inside test VMs: two kernels, two topologies, both cgroup drivers
	@scripts/bootstrap --vm
	@scripts/vm-lane

check: lint types layers dependencies ## lint, types, import layers, dependencies

lint:
	@scripts/bootstrap
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/codespell
	.venv/bin/shellcheck $$(scripts/shell-files)

types:
	@scripts/bootstrap
	.venv/bin/mypy

layers:
	@scripts/bootstrap
	.venv/bin/lint-imports --no-cache

dependencies:
	@scripts/bootstrap
	.venv/bin/python -m pip check
	.venv/bin/python -m scripts.lock

format: ## format and fix what can be fixed
	@scripts/bootstrap
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

proto: ## generate the Python code of the .proto files, which is checked in
	@scripts/bootstrap
	scripts/gen-proto

docs: ## generate the schema, the reference and the default file of the configuration, which are checked in
	@scripts/bootstrap
	scripts/gen-config-docs

man: ## write the manual pages into build/man
	@scripts/bootstrap
	scripts/gen-man build/man

wheel: ## build the wheel into dist
	@scripts/bootstrap
	$(PY) -m hatchling build -t wheel -d dist

deb: ## build the Debian package into dist
	@scripts/bootstrap
	scripts/build-deb

lock: ## pin the newest run-time dependencies in requirements.lock
	@scripts/bootstrap
	scripts/gen-lock

# What the VM lane installs: the same build twice, so that one is an upgrade of the other.
build/vm-debs/stamp: $(shell git ls-files agent systemd docs scripts/deb) scripts/build-deb scripts/man.py requirements.lock pyproject.toml README.md CHANGELOG.md
	@rm -rf build/vm-debs
	@DPKG_DEB_COMPRESSOR_TYPE=zstd scripts/build-deb --revision 1 --revision 2 build/vm-debs >/dev/null
	@touch $@

bench: ## measure; one table, see docs/performance.md
	@scripts/bootstrap
	$(PY) -m scripts.bench

soak: ## a million random operations with crashes, failures and damage; every invariant after each
	@scripts/bootstrap
	$(PY) -m scripts.soak --processes 2

clean: ## remove what the targets made here (the VM image is kept in the cache)
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
