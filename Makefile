# The project's commands. `make test PYTHON=python3.13` uses another interpreter, in an
# environment and build folder of its own.

PYTHON ?= python3.11
JOBS ?= 2
suffix := $(if $(filter python3.11,$(PYTHON)),,-$(notdir $(PYTHON)))
VENV := .venv$(suffix)
BUILD := build$(suffix)
PY := $(VENV)/bin/python
CPP = $(shell find src tests/cpp -name '*.h' -o -name '*.cpp' 2>/dev/null)

.PHONY: run test quick bench build setup wheel format lint lint-cpp lint-python coexist sanitize sanitize-python \
    sanitize-threads sanitize-quick guarded test-cpp test-python clean

run: build
	$(PY) examples/run_showcase.py

test: build lint test-cpp test-python

# Before a commit, two minutes on two cores: the tests that the change touches (tools/quick.py).
quick: build lint
	@cd $(BUILD) && ../tools/quick.py cpp | xargs -d '\n' -r -t -P $(JOBS) -I LINE sh -c LINE
	$(PY) -m pytest -q -n $(JOBS) -m "not run_in_serial" $$(tools/quick.py python)

bench: build
	$(PY) benchmarks/run.py

setup:
	@tools/setup $(VENV) $(PYTHON)

build: setup
	@cmake -S . -B $(BUILD) -G Ninja -DPython3_EXECUTABLE=$(abspath $(PY)) >$(BUILD).configure.log \
	    || { cat $(BUILD).configure.log; exit 1; }
	@mkdir -p $(BUILD) && mv $(BUILD).configure.log $(BUILD)/configure.log
	@ln -sfn ../python $(BUILD)/lib
	cmake --build $(BUILD) -j $(JOBS) -- -k 0

wheel: setup
	tools/build_wheels

format: setup
	$(if $(CPP),$(VENV)/bin/clang-format -i $(CPP))
	$(VENV)/bin/ruff check -q --fix .
	$(VENV)/bin/ruff format -q .

lint: lint-cpp lint-python

lint-cpp: build
	$(if $(CPP),$(VENV)/bin/clang-format --dry-run -Werror $(CPP))
	$(PY) tools/check_includes.py
	$(PY) tools/check_recorder.py
	$(PY) tools/check_forget.py
	$(PY) tools/check_entries.py
	tools/check_symbols.sh

lint-python: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test-cpp: build
	$(BUILD)/qd_tests --gtest_brief=1
	if [ -x $(BUILD)/qd_codegen_tests ]; then $(BUILD)/qd_codegen_tests --gtest_brief=1; fi

# Tests that need the machine for themselves go first; pytest answers 5 when there are none.
test-python: build
	$(PY) -m pytest -q -m run_in_serial || [ $$? = 5 ]
	$(PY) -m pytest -n $(JOBS) -m "not run_in_serial"

# In one process with torch, triton and llvmlite; the environment takes several GB.
coexist: build
	tools/setup_coexistence .venv-coexist $(PYTHON)
	.venv-coexist/bin/python tools/check_coexistence.py
	.venv-coexist/bin/python -m pytest -q -m needs_torch || [ $$? = 5 ]

build-sanitize/build.ninja: KINDS = address,undefined
build-sanitize-threads/build.ninja: KINDS = thread
build-sanitize/build.ninja build-sanitize-threads/build.ninja: setup
	cmake -S . -B $(@D) -G Ninja -DQD_SANITIZE=$(KINDS) -DPython3_EXECUTABLE=$(abspath $(PY))

# Without the explored protocols: one thread that jumps between stacks, where a sanitizer sees nothing
# but the jumps. Without pool.fork: the child may find the sanitizer's own allocator locked for ever. What
# a crash of the compiler held is lost, so its tests leak; those crashes are its own to handle.
sanitize: build-sanitize/build.ninja
	cmake --build build-sanitize -j $(JOBS) --target cpp_tests
	UBSAN_OPTIONS=halt_on_error=1 build-sanitize/qd_tests --gtest_brief=1 \
	    --gtest_filter=-tickets.*:explorer.*:queue.*:fork.*:door.*:turn.*:pool.fork
	if [ -x build-sanitize/qd_codegen_tests ]; then \
	    UBSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=0:handle_segv=0 \
	        build-sanitize/qd_codegen_tests --gtest_brief=1; fi

# No part of CI: compiling both objects with a cold ccache takes eight minutes alone.
# `make sanitize-python TESTS=tests/python/test_threads.py` runs a part.
TESTS ?= tests/python
sanitize-python: build-sanitize/build.ninja
	cmake --build build-sanitize -j $(JOBS) --target quadrants_python qd_compiler qd_linalg
	$(PY) tools/sanitized.py pytest -n $(JOBS) -q $(TESTS)

# The same under the thread sanitizer.
sanitize-threads: build-sanitize-threads/build.ninja
	cmake --build build-sanitize-threads -j $(JOBS) --target quadrants_python qd_compiler qd_linalg
	$(PY) tools/sanitized.py --threads pytest -n $(JOBS) -q $(TESTS)

# With memory of fields and ndarrays shut to host code: docs/internals/data.md.
guarded: build
	QD_GUARDED_MEMORY=1 $(PY) -m pytest -q -n $(JOBS) $(TESTS)

# The run time's C++ tests under all three, without LLVM: three minutes with a cold ccache.
build-quick-%/build.ninja: setup
	cmake -S . -B $(@D) -G Ninja -DQD_SANITIZE=$* -DQD_BUILD_EXTENSION=OFF -DQD_BUILD_COMPILER=OFF

sanitize-quick: build-quick-address,undefined/build.ninja build-quick-thread/build.ninja
	cmake --build build-quick-address,undefined -j $(JOBS) --target qd_runtime_tests
	UBSAN_OPTIONS=halt_on_error=1 build-quick-address,undefined/qd_runtime_tests --gtest_brief=1 \
	    --gtest_filter=-pool.fork
	cmake --build build-quick-thread -j $(JOBS) --target qd_runtime_tests
	TSAN_OPTIONS=die_after_fork=0 build-quick-thread/qd_runtime_tests --gtest_brief=1 \
	    --gtest_filter=-pool.fork

clean:
	rm -rf build build-* python/quadrants/_lib/*.so python/quadrants/_lib/core/*.so
