# make demo      train a small model on real data, look at what it learned; then kill a run and resume it
# make test      run the whole test suite, and a part of it again on a pretended accelerator
# make quick     the tests of every package that train little or nothing (about a minute)
# make contract  compare with transformers itself, not with what was recorded of it, and show every number
# make test-device  tests of devices, and the contract and golden tests, on two pretended accelerators (half an hour)
# make test-gpu  the same on the accelerator of this machine: docs/hardware.md
# make record    run what is compared with transformers, and write what it does into tests/recorded for make test
# make faults    kill runs two hundred times, cut the power, damage checkpoints, and compare what resumes (ten minutes)
# make long      the tests that take minutes: searches that are killed, Ray, every layout of a divided model, all samples
# make multihost  train on two hosts (network namespaces), cut the link, kill a worker and a host (needs root; ten minutes)
# make compat    thirteen client libraries, unmodified, on our Trainer (three environments of their own)
# make docs      write the generated pages, and build the site into build/site; make docs-serve shows it while you write
# make package   build the wheel and the source distribution, install each into a new environment and train there
# make check     ruff, pyright, tests: what has to pass before a commit
# make format    let ruff rewrite what it can
# make lint | types   one of the checks alone
# make lock      resolve constraints.txt anew, in an environment of its own
# make clean     remove the environment and everything generated
#
# All of them work in .venv, which is made on first use and made again when pyproject.toml or constraints.txt change.
# Useful: make test PYTEST_FLAGS="-x -k sampler", make demo PYTHON=/path/to/python3.11

# The pins in constraints.txt were resolved with Python 3.11: prefer it, accept what is there.
PYTHON ?= $(shell for p in python3.11 python3 python; do $$p -c '' 2>/dev/null && echo $$p && break; done)
PYTEST_FLAGS ?=

VENV := .venv
PY := $(VENV)/bin/python
# --no-compile: Python compiles a module when it is first imported; all that is installed would take two minutes.
# It has to keep what it compiles, though: tests start many processes, and each would compile all it imports anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install -q --no-compile -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-device test-gpu quick contract record faults long multihost compat docs docs-serve package check lint types format lock clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# One thread: so small a model only loses by threads that wait for one another, most of all on a busy machine.
demo: $(VENV)/.demo
	@OMP_NUM_THREADS=1 $(PY) examples/digits.py
	@OMP_NUM_THREADS=1 $(PY) examples/kill_and_resume.py

# By file: what a file's tests share is made once; in the order of tests/conftest.py, which begins with the longest.
# One more than there are cores, as many tests wait for processes; more than four would spend their time importing.
WORKERS = $(shell $(PY) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')
PARALLEL = -n $(WORKERS) --dist loadfile

PART_ON_DEVICE := tests/device tests/golden/test_golden.py tests/contract/test_promises.py

test: $(VENV)/.dev
	$(PY) -m pytest $(PARALLEL) --no-loadscope-reorder $(PYTEST_FLAGS)
	$(if $(PYTEST_FLAGS),,$(PY) -m pytest -q $(PARALLEL) --device=cuda --cases=2 $(PART_ON_DEVICE))

# A process has one device, and has it for good: each kind is a session of its own.
ON_DEVICES := tests/device tests/contract tests/golden

test-device: $(VENV)/.dev
	$(PY) -m pytest $(PARALLEL) --device=cuda $(ON_DEVICES) $(PYTEST_FLAGS)
	$(PY) -m pytest $(PARALLEL) --device=privateuse1 $(ON_DEVICES) $(PYTEST_FLAGS)

test-gpu: $(VENV)/.dev
	$(PY) -m pytest --device=real $(ON_DEVICES) $(PYTEST_FLAGS)

quick: $(VENV)/.dev
	$(PY) -m pytest -q $(PARALLEL) tests/architecture tests/golden/test_golden.py tests/unit \
	  --ignore tests/unit/checkpoint/test_checkpoint_kill.py $(PYTEST_FLAGS)

# Files of tests that have something to compare with transformers: by run_one or recall, or by the fixture api.
COMPARISONS = $(shell grep -rlE 'support\.(parity|references) import|def test.*[(, ]api[:,)]' tests --include='test_*.py')

contract: $(VENV)/.dev
	$(PY) -m pytest $(PARALLEL) --references=live tests/contract $(COMPARISONS) $(PYTEST_FLAGS)

record: $(VENV)/.dev
	$(PY) -m pytest $(PARALLEL) --references=record $(COMPARISONS) $(PYTEST_FLAGS)

faults: $(VENV)/.dev
	OSTINATO_KILLS=200 OSTINATO_POWER_CUTS=40 $(PY) -m pytest tests/faults $(PYTEST_FLAGS)

long: $(VENV)/.dev
	OSTINATO_LONG_TESTS=1 $(PY) -m pytest --timeout 3600 $(shell grep -rlE 'long_tests import|real_data import|rows_worker' tests/distributed tests/integration tests/tasks --include='test_*.py') \
	  $(PYTEST_FLAGS)

# Not a part of the tests: it needs root, and says so. MULTIHOST_FLAGS="link worker" chooses scenarios.
multihost: $(VENV)/.dev
	$(PY) -m tests.multihost $(MULTIHOST_FLAGS)

# Each environment runs the tests of the libraries it has, and skips the others.
compat: .venv-compat/.ready .venv-compat-older/.ready .venv-compat-axolotl/.ready
	@for kind in compat compat-older compat-axolotl; do \
	  OMP_NUM_THREADS=1 OSTINATO_LONG_TESTS=1 .venv-$$kind/bin/python -m pytest tests/compat --timeout 3600 $(PYTEST_FLAGS) || exit 1; done

# The test suite builds the site too (tests/docs), and fails on a warning.
docs: $(VENV)/.dev
	$(PY) -m tools.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve --watch src --watch examples

# With PACKAGE_FLAGS=--with-dependencies pip installs torch and the rest there too, as it does for users.
package: $(VENV)/.dev
	$(PY) tools/package/smoke_test.py $(PACKAGE_FLAGS)

check: lint types test

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev
	$(PY) -m pyright --pythonpath $(PY)

format: $(VENV)/.dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Two levels share one environment, so the demo does not wait for transformers.
# torch goes first and alone: the choice of its build (CPU or CUDA) is then not up to the rest.
# The build back ends are installed, not isolated: their versions are pinned too.
# (setuptools-scm tells seqeval's build its version: without it pip takes the package for 0.0.0 and refuses it.)
$(VENV)/.demo: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed; 3.11 is what constraints.txt was made with." >&2; exit 1; }
	@echo "Setting up $(VENV): torch, numpy, safetensors, rich, scikit-learn (once, a minute or two)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch==2.13.0
	@$(PIP) hatchling editables setuptools setuptools-scm
	@$(PIP) --no-build-isolation -e ".[demo]"
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Adding what the tests need: transformers, datasets, pytest, ruff, pyright (once)"
	@$(PIP) --no-build-isolation -e ".[dev,hf]"
	@touch $@

# Client libraries bring much along that nothing else here needs. Some have pins of their own for transformers, torch
# or one another, which they work without: those are installed without their dependencies (--no-deps).
BASE_OF_CLIENTS := --no-build-isolation -e ".[demo,hf]" accelerate peft pytest pytest-timeout
define make_environment_of_clients
	@echo "Setting up $(@D): torch, transformers and client libraries (once, some minutes)"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -q -c $(1) torch==2.13.0
	@$(@D)/bin/python -m pip install -q -c $(1) hatchling editables setuptools setuptools-scm
	@$(@D)/bin/python -m pip install -q -c $(1) $(BASE_OF_CLIENTS) $(2)
	@$(@D)/bin/python -m pip install -q -c $(1) --no-deps $(3)
	@touch $@
endef

.venv-compat/.ready: pyproject.toml constraints.txt compat-constraints.txt
	$(call make_environment_of_clients,compat-constraints.txt,trl sentence-transformers setfit FlagEmbedding \
	  chronos-forecasting einops Deprecated sentencepiece "ray[train]",gliner granite-tsfm)

.venv-compat-older/.ready: pyproject.toml constraints.txt compat-older-constraints.txt
	$(call make_environment_of_clients,compat-older-constraints.txt,einops ujson av modelscope omegaconf fire \
	  sentencepiece tiktoken matplotlib sse-starlette fastapi uvicorn addict aiohttp dacite json-repair attrdict \
	  binpacking cpm-kernels rouge nltk oss2 openai simplejson sortedcontainers transformers-stream-generator \
	  zstandard,trl sentence-transformers pylate llamafactory ms-swift)

.venv-compat-axolotl/.ready: pyproject.toml constraints.txt compat-axolotl-constraints.txt
	$(call make_environment_of_clients,compat-axolotl-constraints.txt,pillow wandb addict fire colorama art \
	  python-dotenv posthog schedulefree einops numba fastcore evaluate,trl axolotl axolotl-contribs-lgpl \
	  axolotl-contribs-mit bitsandbytes triton)

# Everything any extra can ask for, so that whatever is installed with -c constraints.txt is pinned.
# Local build tags (+cpu) are left out: another machine may have another build of the same version.
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q torch==2.13.0
	.venv-lock/bin/python -m pip install -q hatchling editables setuptools setuptools-scm
	.venv-lock/bin/python -m pip install -q --no-build-isolation -e ".[all,dev,docs]" transformers==5.22.2 accelerate==1.15.0
	{ sed -n '/^#/!q; p' constraints.txt; \
	  .venv-lock/bin/python -m pip freeze --all --exclude pip --exclude-editable \
	  | sed 's/+[a-z0-9.]*$$//' | LC_ALL=C sort -f; } > .constraints.new
	mv .constraints.new constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-lock .venv-compat .venv-compat-older .venv-compat-axolotl runs build dist .pytest_cache .ruff_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
