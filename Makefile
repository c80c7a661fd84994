# Two commands from nothing: `make demo` and `make test`. Both make .venv first, where it is not there yet.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python

.PHONY: demo test test-slow fuzz sanitize lint bench docs setup kernels clean

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

# The tests of the C++ code with a sanitizer: `make sanitize` for memory and undefined behavior, `make sanitize
# SANITIZER=thread` for the thread pool of generation (without OpenMP, whose barriers the sanitizer does not see).
SANITIZER := address
sanitize-address := -fsanitize=address,undefined,float-cast-overflow,float-divide-by-zero
sanitize-thread := -fsanitize=thread -fno-openmp
runtime-address := asan ubsan
runtime-thread := tsan
tests-address := tests/kernels tests/nn --ignore tests/kernels/test_kernels.py
tests-thread := tests/kernels/test_thread_pool.py tests/nn/test_native.py

sanitize: setup
	@SERIATIM_KERNELS_FLAGS="-O1 -g -fno-omit-frame-pointer $(sanitize-$(SANITIZER))" \
	LD_PRELOAD="$(foreach name,$(runtime-$(SANITIZER)),$(shell $(CXX) -print-file-name=lib$(name).so))" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1 OMP_NUM_THREADS=2 \
	$(PYTHON) -m pytest -m "not slow" $(tests-$(SANITIZER))

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
