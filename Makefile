# `make demo` and `make test` need nothing but Python (>= 3.11), pip and make: each sets up .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup check test test-gpu docs pages screenshots demo bench clean

setup: .venv/dev

demo: .venv/base
	$(BIN)/macow train --preset digits --data digits --run runs/digits
	$(BIN)/macow sample runs/digits --count 64 --temperature 0.8 --out runs/digits/drawn
	@echo "Look at runs/digits/report.html and runs/digits/drawn/grid.png"

test: .venv/dev
	$(BIN)/python -m pytest -n auto

test-gpu: .venv/dev
	$(BIN)/python -m pytest tests/test_gpu.py

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/dev # not --quiet, which would hide dead links from --strict
	$(BIN)/mkdocs build --strict
	@echo "Look at build/site/index.html"

pages: .venv/dev
	$(BIN)/python tests/pages.py
	$(BIN)/python tests/synthesis.py

screenshots: .venv/dev # needs Chromium
	SCREENSHOTS=docs $(BIN)/python -m pytest tests/web/test_page_for_everyone.py -k pictures_of_the_docs

bench: .venv/base
	$(BIN)/macow bench inverse

clean:
	rm -rf .venv build dist

.venv/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $@

.venv/dev: .venv/base
	$(INSTALL) -e '.[dev]'
	touch $@
