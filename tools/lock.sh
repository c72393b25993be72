#!/usr/bin/env bash
# Compile the locked requirements, with hashes and without a registry's address.
set -euo pipefail
cd "$(dirname "$0")/.."
compile=(.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate)
"${compile[@]}" pyproject.toml -o requirements/base.txt
"${compile[@]}" --group build -o requirements/build.txt
"${compile[@]}" --group dev pyproject.toml -o requirements/dev.txt
"${compile[@]}" --group go -o requirements/go.txt
grep -A200 '^uv==' requirements/dev.txt | awk 'NR>1 && !/^ /{exit} {print}' > requirements/uv.txt
