# Nothing but python3 (3.11 or newer, with venv) and make is needed; everything else is installed into .venv.
PYTHON ?= python3
RUN = .venv/bin/python
PORT ?= 8000
# `UV=path/to/uv` installs with uv, which needs a tenth of the processor time; pip is on every machine.
UV ?=
install_into = $(if $(UV),$(UV) pip install --python $(1),$(1) -m pip install --no-compile --disable-pip-version-check) --quiet
INSTALL = $(call install_into,$(RUN)) --constraint constraints.txt --editable

# Django 6.0 needs Python 3.12. Each of these versions is tested that is on the path or among those of pyenv.
NEWER_PYTHONS ?= 3.12 3.13 3.14
newer_python = $(firstword $(foreach python,python$(1) $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python3),$(shell \
	$(python) -c "import sys; print(sys.executable)" 2>/dev/null)))
NEWER_VENVS = $(foreach version,$(NEWER_PYTHONS),$(if $(call newer_python,$(version)),.venv-newer/$(version)))
# What goes past Django's cursors or leans on Django's inner parts; `TESTS=` takes all.
TESTS ?= tests/checkpoints/db tests/checkpoints/ledger tests/orchestrator/execution/test_commit.py tests/approvals/test_signing.py

.PHONY: demo test install-newer-django test-newer-django sweep-short sweep soak memory bench bench-short drill docs pictures lint check wheel release clean

# `make demo PORT=8123` where another port is wanted.
demo: .venv/.runtime
	$(RUN) manage.py up --demo --port $(PORT)

test: .venv/.test
	$(RUN) -m tests

# The same on Django 6.0, with each newer Python that is here.
install-newer-django: $(NEWER_VENVS:=/.test)

test-newer-django: install-newer-django
	@[ -n "$(NEWER_VENVS)" ] || echo "No Python 3.12 or newer here, and Django 6.0 needs one: it is not tested."
	@for venv in $(NEWER_VENVS); do echo "== $$venv =="; $$venv/bin/python -m tests $(TESTS) || exit 1; done

# Crashes, lost answers, races and random graphs in short, half a minute of killed processes, and whole installations.
sweep-short: .venv/.test
	$(RUN) -m tests --sweep-short

# Every moment of every scenario, 200 trials of every race, random graphs from a fresh seed; on both databases.
sweep: .venv/.test
	COUNTERSIGN_SWEEP_STEP=1 COUNTERSIGN_RACE_TRIALS=200 COUNTERSIGN_EXAMPLES=300 COUNTERSIGN_PLANS=2000 COUNTERSIGN_DEPLOYMENTS=1000 COUNTERSIGN_BUNDLE_BITS=10000 COUNTERSIGN_BUNDLE_MEGABYTES=1024 COUNTERSIGN_BUNDLE_SHAPES=1 COUNTERSIGN_SEED=random PYTEST_TIMEOUT=14400 \
	$(RUN) -m tests tests/crash tests/races tests/properties tests/checkpoints/bundle tests/checkpoints/erasure tests/engine/test_random_graphs.py
	COUNTERSIGN_STEPS=100 COUNTERSIGN_LOOKS=all PYTEST_TIMEOUT=3600 $(RUN) -m pytest -q tests/browser/test_stepping.py tests/browser/test_access.py tests/browser/test_values.py

# Kills, freezes and restarts everything over 10,000 supersteps, on each database. SOAK="--minutes=5" shortens it.
soak: .venv/.test
	$(RUN) -m tests.soak --database=postgresql $(SOAK)
	$(RUN) -m tests.soak --database=sqlite $(SOAK)

# Whether web process and worker grow, after 10,000 runs. MEMORY="--runs=1000 --database=sqlite" changes it.
memory: .venv/.test
	$(RUN) -m tests.soak.memory $(MEMORY)

# In an environment of its own: it installs two other engines to compare with. docs/performance.md says how to read it.
bench: .venv-bench/.installed
	.venv-bench/bin/python -m bench

bench-short: .venv-bench/.installed
	.venv-bench/bin/python -m bench --short

# An installation on each database is copied while it works, lost, and put back.
drill: .venv/.test
	$(RUN) -m pytest -q tests/deploy/test_drill.py

# The pages of docs as a site in build/site, with the reference made from docstrings.
docs: .venv/.lint
	$(RUN) -m mkdocs build --strict

# The pictures in docs/pictures, from the demo in a browser.
pictures: .venv/.test
	$(RUN) -m tests.browser.pictures

lint: .venv/.lint
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	.venv/bin/djhtml --tabwidth 2 --check templates
	.venv/bin/oxfmt --check static/css static/js
	$(RUN) -m mypy
	.venv/bin/lint-imports --no-cache

check:
	.ci/run

wheel: .venv/.test
	$(RUN) -m hatchling build --target wheel

# Wheel, source archive, CycloneDX list and sums, from a tag alone: `make release TAG=v0.1.0`. docs/releasing.md
release: .venv/.test
	$(RUN) deploy/release.py $(TAG) --to dist/$(TAG)

clean:
	rm -rf .venv .venv-bench .venv-newer build dist var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.runtime: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) .
	touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) '.[test,e2e]'
	touch $@

# Types are checked of the tests too, what lies in deploy by the programs that it is for, and bridges by what they lead to.
.venv/.lint: .venv/.test
	$(INSTALL) '.[lint,deploy,docs,bridges]'
	touch $@

.venv-newer/%/.test: pyproject.toml
	$(call newer_python,$*) -m venv .venv-newer/$*
	$(call install_into,.venv-newer/$*/bin/python) "django>=6.0,<6.1" --editable '.[test]'
	touch $@

.venv-bench/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@
