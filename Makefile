# Everything that a person or CI does with this repository. A bare machine needs Python 3.11+ (with venv), make, and for
# the real control plane Go 1.26+; all else is fetched from the package registries and kept in $(MUSTER_CACHE).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export MUSTER_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster
UV_VERSION := 0.13.9
UV := $(or $(shell command -v uv 2>/dev/null),$(MUSTER_CACHE)/tools/uv-$(UV_VERSION)/bin/uv)
PYTHON ?= python3
RUN := $(UV) run --frozen
SBOM ?= dist/muster.cdx.json
MYPY_FOUND := $(MUSTER_CACHE)/mypy
SOAKED := tests/property $(addprefix tests/integration/test_,allocating_under_fire.py books_under_fire.py ledger_closing.py ledger_reports.py ledger_statement.py)
# Without bytecode every process that a test starts would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: deps ## the main job on a real Kubernetes: a gang is held, then admitted and bound; the ledger's statement
	@$(RUN) python -m tests.demo

.PHONY: test
test: deps controlplane ## every test: unit, property, conformance, integration, and end to end on the real control plane
	HYPOTHESIS_PROFILE=thorough $(RUN) pytest -m "e2e or not e2e" -q -n 3 --dist loadfile --durations=40

.PHONY: coverage
coverage: deps ## which lines the tests reach that need no Kubernetes; to trace them takes four times as long
	$(RUN) pytest -q -n auto --maxprocesses 4 --dist loadfile --cov --cov-report=term:skip-covered

.PHONY: soak
soak: deps controlplane ## long random runs, hours: GANGS=200 gangs in each placement on a real control plane; laws by the thousand
	FAULTS=all $(RUN) pytest -m e2e -q -s tests/e2e/test_reliability.py
	GANGS=$(or $(GANGS),200) $(RUN) pytest -m e2e -q -s tests/e2e/test_muster_under_fire.py
	CHURN=$(or $(CHURN),3600) $(RUN) pytest -m e2e -q -s tests/e2e/test_muster_churn.py
	HYPOTHESIS_PROFILE=soak $(RUN) pytest -m e2e -q --timeout 3600 tests/e2e/test_filters_oracle.py
	HYPOTHESIS_PROFILE=soak $(RUN) pytest -q -n auto --maxprocesses 4 --timeout 7200 $(SOAKED)
	$(RUN) pytest -q tests/image

.PHONY: image-check
image-check: env controlplane ## build deploy/Dockerfile and run the image as the chart does, in minutes (as root; `make deps-image`)
	$(RUN) pytest -q --durations=10 tests/image

.PHONY: check
check: env ## fast feedback: format, lint, layers, types and unit tests, beside each other
	@$(MAKE) --no-print-directory --jobs 2 --output-sync --keep-going unit format lint layers types

# The parts of `make check`. All are run, whichever fails; what one prints is shown together, when it has ended.
.PHONY: unit format lint layers types
unit:
	$(RUN) pytest tests/unit tests/architecture -q -n auto --maxprocesses 4
format:
	$(RUN) ruff format --check .
lint:
	$(RUN) ruff check .
layers:
	$(RUN) lint-imports
# A new checkout begins with what mypy found in another one; it holds for files of the same content, wherever they are.
types:
	@[ -e .mypy_cache ] || [ ! -e $(MYPY_FOUND) ] || cp -r $(MYPY_FOUND) .mypy_cache
	$(RUN) mypy
	@new=$$(mktemp -d -p $(MUSTER_CACHE)) && cp -r .mypy_cache $$new/mypy && rm -rf $(MYPY_FOUND) && mv -T $$new/mypy $(MYPY_FOUND) && rmdir $$new

.PHONY: newer
newer: env ## ask a Kubernetes that has no profile yet: which features it decides otherwise (VERSION=v1.38.0-alpha.0)
	$(if $(VERSION),,$(error VERSION is one of k8s.io/kubernetes, such as v1.38.0-alpha.0))
	$(RUN) python -m tests.conformance.newer $(VERSION) --worlds $(or $(WORLDS),2000)

.PHONY: fmt
fmt: env ## format, and mend what ruff can mend
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

.PHONY: bench
bench: env ## measure, side by side in one run; JSON in bench-results/ and tables
	$(RUN) python -m tests.bench

.PHONY: mutants
mutants: env ## plant faults in what decides, one at a time, and list those that no test notices (SAMPLE=1000 SEED=… PACKAGES=…)
	$(RUN) --group mutants python -m tests.mutants --sample $(or $(SAMPLE),1000) $(if $(SEED),--seed $(SEED)) \
		$(if $(PACKAGES),--packages $(PACKAGES)) $(if $(TESTS),--tests $(TESTS))

.PHONY: crds
crds: env ## write config/crds and config/schemas again from their definition in Python
	MUSTER_REGENERATE=1 $(RUN) pytest -q tests/architecture/test_crds.py tests/architecture/test_json_schemas.py

.PHONY: reference
reference: env ## write docs/reference again, from the schemas and the commands
	MUSTER_REGENERATE=1 $(RUN) pytest -q tests/architecture/test_reference.py

.PHONY: docs
docs: env ## the documentation as a site in dist/site; fails where a link leads nowhere
	$(RUN) python -m tests.docs
	$(RUN) zensical build --strict

.PHONY: settings
settings: env ## write config/default.toml and docs/settings.md again from their definition in Python
	MUSTER_REGENERATE=1 $(RUN) pytest -q tests/architecture/test_settings_pages.py

.PHONY: manifests
manifests: env ## write what is rendered from deploy/chart again: deploy/manifests, the chart's README and schema (needs Go)
	MUSTER_REGENERATE=1 $(RUN) pytest -q tests/architecture/test_chart.py tests/integration/chart

.PHONY: krew
krew: env ## what krew installs, in dist/krew, for this platform: an archive and its manifest (URI=where the archive will be)
	$(if $(URI),,$(error URI is the address of the folder that will have the archive, such as https://example.com/downloads))
	$(RUN) python -m tests.krew $(URI)

.PHONY: sbom
sbom: | $(UV) ## write the list of what an image holds, as CycloneDX, from uv.lock
	@mkdir -p $(dir $(SBOM))
	@$(UV) export --frozen --quiet --no-dev --extra uvloop --extra otel --extra dashboard --format cyclonedx1.5 --preview-features sbom-export --output-file $(SBOM)

.PHONY: controlplane
controlplane: env ## build the real control plane and helm, once per version
	@$(RUN) python -m tests.controlplane build

.PHONY: deps
deps: env ## PostgreSQL, a browser, Prometheus and amtool, for tests (by apt-get as root, else it says what to install)
	@$(RUN) python -m tests.postgres install
	@$(RUN) python -m tests.browser install
	@$(RUN) python -m tests.promtool install

.PHONY: deps-image
deps-image: env ## Podman, runc and mmdebstrap, for `make image-check` (as root by apt-get)
	@$(RUN) python -m tests.image install

.PHONY: env
env: .venv/.synced ## uv and the locked virtual environment

.PHONY: hooks
hooks: env ## check every commit as `make check` does
	$(RUN) pre-commit install

.venv/.synced: pyproject.toml uv.lock | $(UV)
	@$(UV) sync --frozen --quiet
	@touch $@

$(MUSTER_CACHE)/tools/uv-$(UV_VERSION)/bin/uv:
	@echo "fetching uv $(UV_VERSION)"
	@$(PYTHON) -m venv $(MUSTER_CACHE)/tools/uv-$(UV_VERSION)
	@$(MUSTER_CACHE)/tools/uv-$(UV_VERSION)/bin/pip install --quiet uv==$(UV_VERSION)

.PHONY: clean
clean: ## remove what was made here (not the cache)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov dist bench-results mutant-results .coverage*
