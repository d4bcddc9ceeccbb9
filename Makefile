# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
CONSTRAINTS ?= constraints/cpu.txt
VENV := .venv
BIN := $(VENV)/bin
# One stamp a set of versions, so that another CONSTRAINTS installs again: PLAIN for the package as
# users install it, STAMP for that and what tests and checks need. Both are in the same VENV.
PLAIN := $(VENV)/.plain-$(notdir $(CONSTRAINTS))
STAMP := $(VENV)/.installed-$(notdir $(CONSTRAINTS))
# Where Linux gets torch without CUDA, which would be gigabytes. Empty: from the default index.
TORCH_INDEX ?= $(if $(filter Linux,$(shell uname -s)),https://download.pytorch.org/whl/cpu)
BENCHES := bench/memory.py bench/compile_time.py bench/step.py

# The matrices of demo and tests are small; on a busy machine BLAS threads that wait for each other
# cost a hundred times what they win. Benches set their own.
demo test slow coverage: export OPENBLAS_NUM_THREADS ?= 1

# Hundreds of tests start processes; each would compile every module anew, which takes a second.
demo test slow coverage imports bench chaos: export PYTHONDONTWRITEBYTECODE :=

# Two targets that install into one environment take turns.
.NOTPARALLEL:

.PHONY: help setup demo test slow check coverage imports docs dist bench chaos gpu clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## the environment of tests in .venv; nothing to do when it is up to date

define make_venv
@echo "[1/3] making $(VENV) with $$($(PYTHON) --version)"
@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; choose one: make PYTHON=python3.12")'
@$(PYTHON) -m venv $(VENV)
endef

define install
$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c $(CONSTRAINTS) $(1) \
    | awk '/^ *(Collecting|Downloading|Installing)/ {print "      " substr($$0, 1, 100); fflush()}'
endef

$(PLAIN): pyproject.toml $(CONSTRAINTS)
	$(make_venv)
	@echo "[2/3] installing the package and what it needs: 80 MB to download, once"
	@$(call install,-e '.[native]')
	@rm -f $(VENV)/.plain-* $(VENV)/.installed-*
	@touch $@
	@echo "[3/3] ready"

# An index that cannot be reached would be tried for minutes, so it is asked first.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	$(make_venv)
	@echo "[2/3] installing the packages of $(CONSTRAINTS); once, a few minutes"
	@index='$(TORCH_INDEX)'; \
	reach='import sys, urllib.request as web; web.urlopen(sys.argv[1] + "/torch/", timeout=10)'; \
	if [ -n "$$index" ] && ! $(BIN)/python -c "$$reach" "$$index" 2>/dev/null; then \
	    echo "      $$index cannot be reached: torch comes from the default index"; index=; \
	fi; \
	$(call install,torch $${index:+--extra-index-url $$index})
	@$(call install,-e '.[dev]')
	@rm -f $(VENV)/.plain-* $(VENV)/.installed-*
	@touch $(PLAIN) $@
	@echo "[3/3] ready"

demo: $(PLAIN) ## learn handwritten digits through every stage of the compiler
	@$(BIN)/fluid demo

test: setup ## every test that needs no GPU but the slow ones, one process a core
	@$(BIN)/python -m pytest -q --durations=10 -n auto --maxprocesses 8 --dist worksteal -m "not slow"

slow: setup ## the tests that take long: jobs of many processes, pages in a browser
	@$(BIN)/python -m pytest -q --durations=10 -m slow

check: setup ## ruff and pyright
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

coverage: setup ## the tests of make test, and the lines that none of them runs, in out/coverage
	@$(call install,pytest-cov)
	@$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not slow" \
	    --cov=compiler --cov=runtime --cov=fluid --cov=fleet --cov-report=html:out/coverage --cov-report=term:skip-covered

# Processor time of the second process, which need not compile: other processes count for nothing.
imports: $(PLAIN) ## processor time of `import fluid`, and its slowest modules; an error above 0.6 s
	@$(BIN)/python -X importtime -c 'import fluid' 2>&1 | sort -t'|' -k2 -n | tail -12
	@$(BIN)/python -c 'import time, fluid; seconds = time.process_time(); \
	    print(f"import fluid: {seconds:.2f} s"); exit(seconds > 0.6)'

docs: $(PLAIN) ## the site of docs/, in out/site: sphinx, warnings are errors
	@$(call install,-e '.[docs]')
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs out/site
	@echo "out/site/index.html"

# An environment of its own has nothing but the wheel and what it requires.
dist: $(PLAIN) ## wheel and sdist in dist/, installed into an empty environment and run
	@rm -rf dist build
	@$(BIN)/python -m pip -q --disable-pip-version-check install build
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(PYTHON) -m venv --clear build/installed
	@build/installed/bin/python -m pip -q --disable-pip-version-check install -c $(CONSTRAINTS) dist/*.whl
	@cd build && installed/bin/fluid --version && installed/bin/python -m fluid doctor
	@ls -l dist

bench: setup ## arena bytes, milliseconds a pass, milliseconds a step
	@for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python $$bench; done

chaos: setup ## jobs with parameter servers whose processes are killed and stopped
	@$(BIN)/python -m tools.verify.chaos --faults 50

# A Python that already has torch with a GPU is used as it is; otherwise .venv-gpu is made.
gpu: ## tests, compute-sanitizer and kernel times on a machine with a GPU, in under nine minutes
	@needs='import hypothesis, networkx, pytest, torch, triton; torch.cuda.is_available() or exit(1)'; \
	python=$$(command -v $(PYTHON)); \
	if ! $$python -c "$$needs" 2>/dev/null; then \
	    $(MAKE) --no-print-directory setup VENV=.venv-gpu CONSTRAINTS=constraints/gpu.txt TORCH_INDEX=; \
	    python=.venv-gpu/bin/python; \
	fi; \
	$$python bench/gpu.py

clean: ## remove environments, caches and what the demo wrote
	rm -rf $(VENV) .venv-gpu out build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
