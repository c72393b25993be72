# Everything that people and CI run. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
UNIT := -q
# One pytest run at the end, so that its closing line is the last that CI reads; four
# processes for the quarters of the stories, which wait more than they compute, and then for all other tests.
EVERYTHING := --numprocesses 4 -m "not long"

# Tests start hundreds of processes, and bytecode lets them start in a third of the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set-up --------------------------------------------------------------------------------------

# uv itself is installed by pip, by hash, then rebuilds the environment exactly as locked.
.venv/ready: requirements/dev.txt requirements/uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	@echo "setup: .venv as locked in requirements/dev.txt" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: .venv/ready ## make .venv with everything that is locked in requirements/

.PHONY: lock
lock: setup ## compile requirements/ anew from pyproject.toml
	tools/lock.sh

# --- look ----------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## the main job, offline, in seconds
	@$(BIN)/drawbridge demo

.PHONY: corpus
corpus: setup ## every manifest below DIR=folder through the command line, as a table
	@test -n "$(DIR)" || { echo "make corpus: say which folder: make corpus DIR=folder" >&2; exit 2; }
	@$(BIN)/python -m tools.corpus "$(DIR)"

.PHONY: up
up: setup ## start a local cluster with Drawbridge in it; EXAMPLES=waiting for the nodes of examples/waiting, NODE=real for a node whose containers run, BRIDGE=1 with the scheduler bridge, GROUPS=1 with pod groups
	@$(BIN)/python -m e2e.local up $(if $(EXAMPLES),--examples "$(EXAMPLES)") $(if $(NODE),--node "$(NODE)") $(if $(BRIDGE),--bridge) $(if $(GROUPS),--groups)

.PHONY: down
down: setup ## stop exactly what `make up` started
	@$(BIN)/python -m e2e.local down

.PHONY: image
image: ## build the image with docker, podman or buildah; IMAGE=name, BASE=image of Python, RELEASE=1 demands its digest, PLATFORMS=linux/amd64,linux/arm64 builds for both
	@RELEASE="$(RELEASE)" PLATFORMS="$(PLATFORMS)" tools/image.sh "$(or $(IMAGE),drawbridge-dra:0.1.0)" $(if $(BASE),"$(BASE)")

.PHONY: install.yaml
install.yaml: setup ## the manifest of a first installation in one file, in build/; IMAGE=name
	@$(BIN)/python -m tools.install_manifest $(if $(IMAGE),--image "$(IMAGE)")

.PHONY: docs
docs: setup ## the documentation as a site, in build/site; a broken link is an error
	@$(BIN)/python -m tools.docs_site

.PHONY: changelog
changelog: setup ## join changes/ to CHANGELOG.md: VERSION=0.2.0 DATE=2026-12-01
	@$(BIN)/python -m tools.changelog "$(VERSION)" --date "$(DATE)"

.PHONY: release
release: setup ## the files of a release in build/release, see docs/release.md; ARGS="--version ... --image ..."
	@$(BIN)/python -m tools.release $(ARGS)

.PHONY: sbom
sbom: setup ## what the image's packages are, as CycloneDX, in build/sbom.cdx.json
	@$(BIN)/python -m tools.sbom

# --- check ---------------------------------------------------------------------------------------

.PHONY: check
check: setup ## format, lint, types, import contracts, staleness of generated files
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate --check

.PHONY: fix
fix: setup ## format, repair what ruff can repair, write generated files anew
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/python -m tools.generate

.PHONY: walk
walk: setup ## the files and functions that a pod, a claim, a check and an assessment pass; WALK=pod lists the files of one
	@$(BIN)/python -m tools.walk $(if $(WALK),--files "$(WALK)")

.PHONY: unit
unit: setup ## tests without cluster and without Go: about 7 minutes of one core
	$(PYTEST) $(UNIT)

.PHONY: test
test: check ## check, unit, properties, oracle sample, e2e, all but what is marked long; about half an hour on two cores, 7 minutes more the first time
	$(PYTEST) $(UNIT) $(EVERYTHING)

.PHONY: long
long: setup ## the tests marked long, which make test leaves out: sizes, loads, further rows of a table; before a release
	$(PYTEST) $(UNIT) --numprocesses 3 -m long

.PHONY: e2e
e2e: setup ## the stories e2e/test_x*.py on a real control plane; STORY=x, all without; K8S=1.35 translate, webhook and validate on an older one
	@stories=$$(ls $(patsubst %,e2e/test_%*.py,$(or $(STORY),$(if $(K8S),translate webhook validate,""))) 2>/dev/null) || { echo "make e2e: no e2e/test_$(STORY)*.py" >&2; exit 2; }; \
	$(if $(K8S),DRAWBRIDGE_E2E_KUBERNETES="$(K8S)") $(PYTEST) $(UNIT) -m e2e $$stories

.PHONY: oracle
oracle: setup ## compare with the real Go packages, at length
	HYPOTHESIS_PROFILE=oracle $(PYTEST) $(UNIT) -m oracle tests/oracle tests/kube

.PHONY: oracle-record
oracle-record: setup ## ask the real Go packages again and write testing/oracle/data
	$(BIN)/python -m testing.oracle.record

.PHONY: alerts
alerts: ## fire each alert once with promtool of Prometheus, and keep it silent once; PROMTOOL=path
	@if command -v "$(or $(PROMTOOL),promtool)" > /dev/null; then \
	  "$(or $(PROMTOOL),promtool)" test rules tests/alerts/rules.yaml; \
	else \
	  echo "make alerts: skipped, there is no promtool; it comes with Prometheus (PROMTOOL=path)" >&2; \
	fi

.PHONY: mutants
mutants: setup ## small faults in allocator/MODULE.py that no test notices; MODULE=features/consumable_capacity
	@test -f "allocator/$(MODULE).py" || { echo "make mutants: say which file: make mutants MODULE=features/consumable_capacity" >&2; exit 2; }
	@rm -rf mutants && mkdir mutants
	@$(BIN)/mutmut run "allocator.$(subst /,.,$(MODULE)).*" > mutants/run.log 2>&1 || { tr '\r' '\n' < mutants/run.log | tail -n 40 >&2; exit 1; }
	@$(BIN)/mutmut results | grep -F "allocator.$(subst /,.,$(MODULE))." | grep -vE ": (not checked|killed)$$" || true

.PHONY: fuzz
fuzz: setup ## what costs most, hostile reviews through the real endpoint, hostile files through the commands; SEED=n for one run again, REVIEWS=n for less
	$(BIN)/python -m testing.fuzz.costs $(if $(SEED),--seed "$(SEED)")
	$(BIN)/python -m testing.fuzz.commands $(if $(SEED),--seed "$(SEED)")
	$(BIN)/python -m testing.fuzz $(if $(SEED),--seed "$(SEED)") $(if $(REVIEWS),--reviews "$(REVIEWS)")

.PHONY: soak
soak: setup ## load with faults for MINUTES=n, an hour without: of the webhook, or of the bridge with BRIDGE=1 [NODES=n]
	$(BIN)/python -m $(if $(BRIDGE),bench.bridge.churn $(if $(NODES),--nodes "$(NODES)"),e2e.soak) $(if $(MINUTES),--minutes "$(MINUTES)")

.PHONY: chaos
chaos: setup ## schedules of the allocation protocol, faults that are planted into it, stories of the bridge at full size; SEEDS=n, FIRST=seed for one run again
	@{ echo "testing.sidecar.chaos --seeds $(or $(SEEDS),100000) --first $(or $(FIRST),0)"; \
	  echo "testing.sidecar.group_chaos --seeds $(or $(SEEDS),5000) --first $(or $(FIRST),0)"; \
	  $(if $(SEEDS)$(FIRST),,echo "testing.sidecar.chaos --quota --seeds 20000"; \
	  echo "testing.gate_schedules --seeds 20000"; \
	  echo "testing.handover_schedules --seeds 20000";) \
	  printf "testing.gate_schedules --seeds 2000 --fault %s\n" \
	    removal-without-holder promised-is-forgotten no-settling same-identity; \
	  printf "testing.handover_schedules --seeds 5000 --fault %s\n" \
	    gates-let-go fence-is-ignored promised-is-not-counted no-pause; \
	  printf "testing.sidecar.chaos --seeds 1000 --fault %s\n" \
	    no-fence unfenced-consumers no-wait settled-by-reading same-identity no-drain \
	    unsettled-release stale-list promised-is-forgotten; \
	  echo "testing.sidecar.chaos --seeds 12000 --fault no-wait-before"; \
	  printf "testing.sidecar.group_chaos --seeds 500 --fault %s\n" \
	    no-commit no-take-back no-look-back hasty-take-back no-parking what-if-holds first-takes-all \
	    old-minimum deleted-counts lost-node hasty-give-up; \
	} | xargs --max-lines=1 --max-procs="$$(nproc)" --verbose $(BIN)/python -m
	$(if $(SEEDS)$(FIRST),,DRAWBRIDGE_E2E_FULL="$(or $(FULL),100 3)" \
	  DRAWBRIDGE_E2E_NODES="$(or $(NODES),1000)" DRAWBRIDGE_E2E_WAITING="$(or $(WAITING),500)" \
	  DRAWBRIDGE_E2E_PLACEMENT="$(or $(PLACEMENT),200 2000)" DRAWBRIDGE_E2E_QUOTA_ROUNDS=500 \
	  DRAWBRIDGE_E2E_GROUP_KILLS=20 DRAWBRIDGE_E2E_GROUP_ROUNDS="$(or $(GROUP_ROUNDS),200)" \
	  DRAWBRIDGE_E2E_GROUP_JOBS=8 DRAWBRIDGE_E2E_GANGS=24 \
	  $(PYTEST) $(UNIT) --numprocesses 3 --dist loadfile -m e2e \
	  $(patsubst %,e2e/test_bridge_%.py,until_full many_nodes waiting) \
	  e2e/test_placement_of_pods.py e2e/test_quota_bridge.py e2e/test_quota_bridge_killed.py e2e/test_quota_gates.py \
	  e2e/test_group_bridge.py e2e/test_group_commit_bridge.py e2e/test_group_starvation.py e2e/test_group_adopted.py \
	  e2e/test_group_gangs.py e2e/test_group_jobs.py e2e/test_group_attacks.py)

.PHONY: rehearsal
rehearsal: setup ## a cluster of 41 nodes moves to DRA by the runbooks of a plan, checked by a program without our code; half an hour at most
	DRAWBRIDGE_E2E_REHEARSAL=1 timeout 30m $(PYTEST) $(UNIT) -s -m e2e e2e/test_adopt_migration.py
	$(PYTEST) $(UNIT) -m long e2e/test_adopt_rehearse.py tests/cli/test_plan_large.py

.PHONY: attack
attack: setup ## what attackers cost honest pods and the bridge, beside the same floods without our webhooks; ARGS="--only editor --runs 1 --honest 20 --devices 256", OUT=file for JSON lines
	$(BIN)/python -m bench.attack $(if $(OUT),--out "$(OUT)") $(ARGS)

.PHONY: bench
bench: setup ## measure side by side with the anchors; OUT=file for JSON lines; SUITE=bridge for schedulers, ARGS="--nodes 100 --pods 200"; BASE=commit: there and here alternately, fails beyond 10 %
	$(BIN)/python -m $(if $(BASE),bench.compare "$(BASE)",bench) $(if $(SUITE),--only "$(SUITE)") $(if $(OUT),$(if $(BASE),,--out "$(OUT)")) $(ARGS)
