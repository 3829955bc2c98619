# `make` lists what can be done. Each target makes the environment first, if need be.
#
#   make env PYTHON=python3.12     from this Python (3.11 to 3.13)
#   make env TORCH_INDEX=https://download.pytorch.org/whl/cpu     PyTorch's small CPU build
#   make env VENV=/path/to/environment     somewhere else than .venv
#   make test ARGS="-k vocab"      arguments for pytest
#
# pip's own variables (PIP_INDEX_URL, PIP_CERT, HTTPS_PROXY) pass through.

# An active conda environment is filled, except `base`; otherwise there is .venv.
VENV ?= $(if $(filter-out base,$(CONDA_DEFAULT_ENV)),$(CONDA_PREFIX),.venv)
BIN := $(abspath $(VENV))/bin
ARGS ?=
PYTHON ?=
TORCH_INDEX ?=
FIRST_PYTHON := $(shell command -v python3 || command -v python || echo $(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help env packages start tour test notebooks solved figures slides check clean

help: ## this list
	@echo "All Hands: make ..."
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-11s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

env: ## the environment: makes .venv, or fills the active conda environment
	@$(if $(FIRST_PYTHON),,echo "Python was not found: install Python 3.11." && exit 1)
	@$(FIRST_PYTHON) handson/setup_env.py "$(VENV)" --python "$(PYTHON)" --torch-index "$(TORCH_INDEX)"

packages: ## installs the Debian packages that tests, slides and the box need (sudo make packages)
	@$(FIRST_PYTHON) handson/packages.py $(ARGS)

start: env ## checks the machine and opens JupyterLab on the first notebook
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} "$(BIN)/allhands" doctor
	@"$(BIN)/python" -m allhands.kit.start $(ARGS)

tour: env ## runs every solved notebook on this machine, grades it, writes an HTML report
	@"$(BIN)/python" -m allhands.kit.tour $(ARGS)

# Two workers; what shares a set-up stays on one of them (tests/conftest.py).
test: env ## runs the tests
	@"$(BIN)/python" -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(ARGS)

notebooks: env ## builds the participants' notebooks, and the tables of labs and exercises
	@"$(BIN)/python" -m allhands.kit.build $(ARGS)
	@"$(BIN)/python" -m allhands.kit.table
	@"$(BIN)/python" -m allhands.kit.mentors

solved: env ## writes the solved notebooks to build/solved
	@"$(BIN)/python" -m allhands.kit.build --solved build/solved $(ARGS)

figures: env ## draws every figure of the slides, the README and the notebooks
	@"$(BIN)/python" slides/figures.py $(ARGS)

slides: env ## builds every deck as HTML, PDF and PPTX in build/slides, and the timetable
	@"$(BIN)/python" -m allhands.kit.timetable
	@"$(BIN)/python" -m allhands.kit.slides $(ARGS)

check: env ## looks at the style of the code
	@"$(BIN)/ruff" check
	@"$(BIN)/ruff" format --check

clean: ## removes what was built, but not the environment
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find handson tests slides notebooks -name __pycache__ -type d -prune -exec rm -rf {} +
