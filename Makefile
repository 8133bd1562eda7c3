# Front door to the CMake build.  `make help` lists the targets.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
COMMAND = $(BUILD)/sparsebit

.PHONY: all tests demo check test bench fuzz format install wheel docs help clean deps own

## all      build the command at build/sparsebit and the library (the default)
all: own $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target sparsebit_command sparsebit_shared manual

# A build folder that was copied along with the tree still builds, and installs
# from, the tree that it was made for.
own:
	@made_for=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' \
	    $(BUILD)/CMakeCache.txt 2>/dev/null); \
	if [ -n "$$made_for" ] && ! [ "$$made_for" -ef . ]; then \
	    echo "$(BUILD) was made for $$made_for: run \`make clean\`, or choose" \
	        "another folder with BUILD=" >&2; \
	    exit 1; \
	fi

# Who only builds, or runs the demo, need not have cmocka.
$(BUILD)/build.ninja: CMakeLists.txt | own
	@BUILD=$(BUILD) tools/deps build
	@cmake -G Ninja -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release \
	    -DSB_TESTS=$$(pkg-config --exists cmocka && echo ON || echo OFF) \
	    -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_FLAGS)

tests: own $(BUILD)/build.ninja
	@cmake -S . -B $(BUILD) -DSB_TESTS=ON >$(BUILD)/configure.log || \
	    { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS)

## demo     quantize a network to int8 and compare both on a real test set
demo:
	@BUILD=$(BUILD) tools/deps demo
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) examples/demo

## test     the fast tests (less than a minute)
test: deps tests
	@tools/verdicts --build $(BUILD) --exclude 'slow|ort'

## check    everything that CI runs; ends with `N passed, N failed, N skipped`
check: deps
	@JOBS=$(JOBS) tools/check

## bench    compare speed with ONNX Runtime: make bench MODELS="a.onnx b.onnx"
bench: all
	@tools/venv
	@tools/py bench/vs_onnxruntime $(COMMAND) $(MODELS)

## fuzz     look for crashing files with libFuzzer (clang): make fuzz SECONDS=60
SECONDS ?= 60
fuzz: deps
	@tools/fuzz $(SECONDS)

## format   lay out all C files by .clang-format
format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

## install  into PREFIX (default /usr/local); DESTDIR works
install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

## wheel    a Python wheel in build/dist that runs on other systems of the same age
wheel:
	@BUILD=$(BUILD) tools/deps wheel
	@tools/wheel

## docs     write docs/commands.md, docs/operators.md and the tables of docs/config.md
docs: tests
	@$(COMMAND) help --manual markdown > docs/commands.md
	@BUILD=$(BUILD) tools/gen-operators-doc > docs/operators.md
	@BUILD=$(BUILD) tools/gen-config-doc > $(BUILD)/config.md
	@cp $(BUILD)/config.md docs/config.md

## clean    remove the build folder
clean:
	@rm -rf $(BUILD)

## help     this list
help:
	@sed -n 's/^## /  /p' Makefile

deps:
	@BUILD=$(BUILD) tools/deps check
