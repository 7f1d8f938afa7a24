# Two commands matter: `make demo` and `make test`. Each sets up everything it needs inside .venv.
PYTHON ?= python3
VENV := .venv
, := ,
BIN := $(VENV)/bin
USED := $(VENV)/.used
STAMP := $(VENV)/.installed
KERNELS := $(VENV)/.compiled
RIVALS := $(VENV)/.rivals
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "Dovetail needs Python 3.11 to 3.13; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'

# What was imported once stays compiled, even if the shell says otherwise: it saves every process some seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test checks lint style types unit soak cluster bench paper wheel clean

# uv installs in half the time of pip; where it cannot (an index or certificate that only pip knows), pip does.
ADD = index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
	[ -z "$$index" ] || export UV_INDEX_URL="$$index"; \
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) --no-compile $(1)

# Kernels need only NumPy and Numba: they are compiled while the rest is installed.
define install  # extras, and which kernels: all, or --first for those of the default algorithms
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'uv>=0.9,<1' || true
	$(call ADD,$(shell sed -nE "s/^  \"((numba|numpy)[<>=][^\"]*)\".*/'\1'/p" pyproject.toml))
	PYTHONPATH=src $(BIN)/python -m dovetail.spark.warm $(2) & $(call ADD,--editable '.[$(1)]') && wait
endef

$(USED): pyproject.toml  # what users install: the demo needs no test tools
	$(call install,ui$(,)xquery,--first)
	touch $@

$(STAMP): pyproject.toml
	$(call install,test,)
	touch $(USED) $@

$(KERNELS): $(USED) $(wildcard src/dovetail/*/kernels/*.py src/dovetail/joins/*/kernels/*.py src/dovetail/spark/catalyst/*.scala)
	$(BIN)/python -m dovetail.spark.warm
	$(BIN)/python -m dovetail.spark.catalyst >/dev/null
	touch $@

wheel: $(USED)  ## the package in dist/, with the rule for Spark's optimizer compiled
	$(BIN)/python -m dovetail.spark.catalyst ship
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

demo: $(USED)  ## run the main job on generated data
	$(BIN)/dovetail demo

test: $(STAMP)  ## everything a change must pass
	$(MAKE) --jobs=2 --output-sync=target checks
	$(MAKE) unit

checks: lint $(KERNELS)

lint: style types

style: $(STAMP)
	$(BIN)/ruff check src bench tests examples
	$(BIN)/ruff format --check src bench tests examples

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP) $(KERNELS)
	$(BIN)/python -m pytest

soak: $(STAMP) $(KERNELS)  ## what `make test` leaves out: killed processes, clusters, larger inputs
	$(BIN)/python -m pytest --slow

cluster: $(STAMP) $(KERNELS)  ## every family on a Spark cluster of separate hosts, made of namespaces: Linux, as root
	$(BIN)/python -m tests.cluster

bench: $(RIVALS) $(KERNELS)  ## every benchmark and experiment at small scale, and their page
	$(BIN)/python -m bench run --all --scale small --keep docs/experiments/figures
	$(BIN)/python -m bench report

# The sources' own sizes: hours. What was measured with the code as it is stays, so that the command can be repeated.
paper: $(RIVALS) $(KERNELS)  ## experiments on semi-stream, online and interval joins, XQuery and the models at full size, resumed
	$(BIN)/python -m bench run 'semistream-*' 'online-*' 'interval-*' 'xquery-*' 'models-*' --scale full \
		--keep docs/experiments/figures --resume
	$(BIN)/python -m bench report

$(RIVALS): pyproject.toml  # what tests need, too: installed at once, it takes half the time
	$(call install,test$(,)rivals,)
	$(call ADD,--no-deps 'pyarrow>=26$(,)<27')  # polars-bio keeps Arrow at 24 and runs with this, with which types are checked
	touch $(USED) $(STAMP) $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
