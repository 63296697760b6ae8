# Segue from a bare Debian 12: `make demo` for a picture, `make test` for the tests.
#
# The preset `cuda` is used where nvcc is found, `cpu` elsewhere; both build into build/.
# PRESET=cpu forces one.

NVCC := $(firstword $(wildcard $(shell command -v nvcc 2>/dev/null) /usr/local/cuda/bin/nvcc))
PRESET ?= $(if $(NVCC),cuda,cpu)
JOBS ?= $(shell nproc)

.PHONY: all demo test build deps lint asan tsan fuzz bundle clean

all: build

# Debian packages the build and the tests need; installs only what is missing.
deps:
	@tools/install_deps

build: deps
	@PATH="$(dir $(NVCC)):$$PATH" cmake --preset $(PRESET)
	@cmake --build build --parallel $(JOBS)

# The binary alone (no tests), then a picture from a prompt.
demo: deps
	@PATH="$(dir $(NVCC)):$$PATH" cmake --preset $(PRESET)
	@cmake --build build --parallel $(JOBS) --target segue
	@tools/demo

test: build
	@ctest --test-dir build --output-on-failure --parallel $(JOBS)

lint:
	@tools/install_deps lint
	@tools/lint

# The whole suite under AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan/.
asan: deps
	@cmake --preset asan
	@cmake --build build-asan --parallel $(JOBS)
	@ctest --test-dir build-asan --output-on-failure --parallel $(JOBS)

# What several ranks do at once, under ThreadSanitizer, in build-tsan/.
tsan: deps
	@cmake --preset tsan
	@cmake --build build-tsan --parallel $(JOBS) --target test_comm
	@ctest --test-dir build-tsan --output-on-failure --tests-regex '^comm\.'

# FUZZ_SECONDS are divided among the targets.
FUZZ_SECONDS ?= 60
fuzz:
	@tools/install_deps fuzz
	@tools/fuzz $(FUZZ_SECONDS)

# What another machine needs to run the binary and the GPU tests, under build/bundle.
bundle: build
	@tools/install_deps bundle
	@tools/bundle

clean:
	rm -rf build build-asan build-tsan build-fuzz
