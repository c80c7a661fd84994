# Two commands from nothing: `make demo` and `make test`. Both make .venv first, where it is not there yet.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python

.PHONY: demo test test-slow fuzz lint bench docs setup kernels clean

setup:
	@./setup

kernels: setup
	@$(PYTHON) -m seriatim.kernels

demo: kernels
	@.venv/bin/seriatim demo

test: kernels
	@$(PYTHON) -m pytest -n 2 -m "not slow"

test-slow: kernels
	@./setup acceptance
	@$(PYTHON) -m pytest -m slow

fuzz: kernels
	@FUZZ_CASES=$${FUZZ_CASES:-100000} $(PYTHON) -m pytest -n 2 --dist worksteal tests/fuzz

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

bench: kernels
	@./setup benchmarks/requirements.txt
	@$(PYTHON) -m benchmarks

docs: setup
	@./setup docs
	@$(PYTHON) docs/make.py
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "open site/index.html; with search: $(PYTHON) -m http.server -d site"

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis site
