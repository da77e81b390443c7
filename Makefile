# make demo   the main job on the shipped tasks, ours beside both baselines; ends with a table
# make test   all tests (pytest)
# make native the C library and the workspaces' init, in native/build/
# make lint   ruff and mypy --strict
# make clean  removes everything that the above made
#
# Each makes .venv first where it is missing (scripts/prepare says what the machine lacks).

MAKEFLAGS += --no-print-directory
PYTHON_FILES = bunshin_gym envs tests setup.py $(wildcard .ci/*.py)

.PHONY: demo test native lint clean prepare
.DEFAULT_GOAL := test

prepare:
	@scripts/prepare

native:
	@scripts/prepare toolchain
	@$(MAKE) -C native

demo: prepare native
	@.venv/bin/bunshin demo

# PYTEST_ARGS="tests/unit -k tree" narrows it.
test: prepare native
	@.venv/bin/python -m pytest $(PYTEST_ARGS)

lint: prepare
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/ruff format --check $(PYTHON_FILES)
	.venv/bin/mypy --strict

clean:
	@if [ -f native/Makefile ]; then $(MAKE) -C native clean; fi
	rm -rf .venv build dist *.egg-info native/build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
