"""The time and memory to validate a claim against a large inventory.

All rules are asked, as the webhook asks them. Caches are warm: selectors such as these were seen
before, while the claims of a row are new, each with names of its own, unless the row says that
they come again. Times are those of this process alone, so that neighbours do not count.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final, NamedTuple

from msgspec import structs

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.search.attempt import AllocatorOptions
from bench.allocator_runs import build_cluster
from bench.inventory_memory import peak_mb, read_objects, write
from bench.report import Result, below
from clusterstate.kinds import Kind
from clusterstate.rule_cache import RuleCache
from kube.api.meta import decode, encode
from kube.api.resource import ResourceClaim
from process.running.garbage import exempt_caches
from rules.context.context import Context
from rules.context.inventory import Inventory
from rules.engine.engine import Target, validate
from rules.feasibility.idle_cluster import IdleCluster
from testing.oracle import ours, workloads
from testing.oracle.draft import Json
from testing.oracle.ours import Objects
from testing.oracle.scenarios import Scenario

NODES: Final = 5_000
VALIDATED: Final = 400
"""Claims per row."""
FRESH: Final = 40
"""Claims of the row in which each is explained anew."""
CHANGES: Final = 200
GOAL_MS: Final = 5.0
GOAL_MB: Final = 500.0
_WARM: Final = 3


class Case(NamedTuple):
    """Claims to validate.

    Attributes:
        goal: Milliseconds at p99; None where we only want to know.
        claim: The claim of a number.
        expected_code: The code that each of them gets, as a check of the measure; empty for none.
        present: The present use of devices, as far as it is known.
    """

    name: str
    claim: Callable[[int], Json]
    expected_code: str = ""
    goal: float | None = GOAL_MS
    validations: int = VALIDATED
    present: Cluster | None = None


def measure() -> Iterator[Result]:
    """Yield the results."""
    for name, description in (
        ("full", "nodes alike"),
        ("different", "each node with other amounts and another half in use"),
    ):
        objects, context = context_of(workloads.WORKLOADS[name][0](NODES))
        cases = _cases(objects, build_cluster(objects))
        exempt_caches()  # As the webhook does, once it is in sync.
        for case in cases:
            took = _times(case, structs.replace(context, current_cluster=case.present))
            title = f"validating {case.name}, {NODES:,} nodes of 8 devices, {description}"
            yield below(f"{title}, p99 in ms", took[-1], case.goal)
            yield below(f"{title}, p50 in ms", took[0], None)
        p50, p99 = _times_under_churn(workloads.WORKLOADS[name][0](NODES))
        title = (
            f"validating a claim after a slice changed, {NODES:,} nodes of 8 devices, {description}"
        )
        yield below(f"{title}, p99 in ms", p99, None)
        yield below(f"{title}, p50 in ms", p50, None)
    with TemporaryDirectory() as folder:
        yield below(
            f"peak memory in MB of validating against {NODES * workloads.DEVICES_PER_NODE:,} devices",
            _memory_mb(Path(folder)),
            GOAL_MB,
        )


def context_of(scenario: Scenario) -> tuple[Objects, Context]:
    """Return a scenario's objects, and the context of rules if these are all there is."""
    objects = ours.objects(scenario)
    idle = IdleCluster(
        slices=objects.slices,
        nodes=objects.nodes,
        classes=objects.classes,
        rules=AllocatorOptions(features=objects.features),
    )
    return objects, Context(
        classes=objects.classes,
        inventory=Inventory(objects.slices),
        idle_cluster=idle,
        has_all_classes=True,
    )


def _cases(objects: Objects, present: Cluster) -> tuple[Case, ...]:
    (claim_,) = objects.claims

    def prefilter_body(number: int, **fields: Any) -> Json:
        document: Json = _document(claim_)
        (request,) = document["spec"]["devices"]["requests"]
        request["name"] = f"gpus-{number}"
        request["exactly"] |= fields
        return document

    def whole_nodes(number: int) -> Json:
        document = prefilter_body(number, count=workloads.DEVICES_PER_NODE)
        del document["spec"]["devices"]["constraints"]
        return document

    def amounts(number: int, memory: str) -> Json:
        return prefilter_body(number, capacity={"requests": {"memory": memory}})

    return (
        Case("a claim that fits", prefilter_body),
        Case("a claim of an amount that fits", lambda number: amounts(number, f"{number}Mi")),
        Case(
            "a claim of whole nodes as they are used now",
            whole_nodes,
            "",
            GOAL_MS,
            FRESH,
            present,
        ),
        Case(
            "a claim that can never fit, asked before",
            lambda number: prefilter_body(number % 4, count=9),
            "exceedsLargestNode",
        ),
        Case(
            "a claim that can never fit, explained anew",
            lambda number: prefilter_body(number, count=9),
            "exceedsLargestNode",
            None,
            FRESH,
        ),
        Case(
            "an amount that can never fit, explained anew",
            lambda number: amounts(number, f"{200 + number}Gi"),
            "",
            None,
            FRESH,
        ),
    )


def _document(claim: ResourceClaim) -> Json:
    return decode(encode(claim), dict)


def _times(case: Case, context: Context) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    numbers = count()
    took = []
    for _ in range(_WARM + case.validations):
        document = case.claim(next(numbers))
        began = process_time()
        target = Target(view=decode(encode(document), ResourceClaim), raw=document)
        findings = validate(target, context)
        took.append((process_time() - began) * 1000)
        assert not case.expected_code or [finding.code for finding in findings] == [
            case.expected_code
        ], findings
    took = took[_WARM:]
    return median(took), quantiles(took, n=100, method="inclusive")[98]


def _times_under_churn(scenario: Scenario) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds of a claim that is validated after a slice changed.

    Each time a node loses a device, or gets it back: all that was found out is doubtful then.
    """
    objects = ours.objects(scenario)
    (claim,) = objects.claims
    cache = cache_of(
        {
            "classes": tuple(objects.classes.values()),
            "nodes": objects.nodes,
            "slices": objects.slices,
            "allocated": objects.allocated_claims,
        }
    )
    validate(Target(view=claim), cache.context())
    took = []
    for number in range(CHANGES):
        whole = objects.slices[number // 2 * 7 % len(objects.slices)]
        fewer = structs.replace(whole.spec, devices=(whole.spec.devices or ())[:-1])
        new = whole if number % 2 else structs.replace(whole, spec=fewer)
        began = process_time()
        cache.apply({Kind.SLICE: {("", whole.metadata.name): new}})
        validate(Target(view=claim), cache.context())
        took.append((process_time() - began) * 1000)
    return median(took), quantiles(took, n=100, method="inclusive")[98]


def _memory_mb(folder: Path) -> float:
    file = folder / "inventory.lines"
    write(workloads.different(NODES), file)
    process = subprocess.run(
        [sys.executable, "-m", "bench.validation", str(file)], stdout=subprocess.PIPE, check=True
    )
    return float(process.stdout)


def main() -> None:
    """Read the file that is the only argument, validate its claim, print the process' peak in MB.

    All that the webhook keeps of it is kept: as published, as used, and as if nothing were allocated.
    """
    objects = read_objects(Path(sys.argv[1]))
    cache = cache_of(objects)
    for claim in objects["claims"]:
        validate(Target(view=claim, raw={}), cache.context())
    cache.stocks()
    print(peak_mb())


def cache_of(documents_by_kind: Mapping[str, Sequence[Any]]) -> RuleCache:
    """Return the webhook's cache of a cluster, given by kind."""
    cache = RuleCache(Features())
    for kind, name in (
        (Kind.CLASS, "classes"),
        (Kind.NODE, "nodes"),
        (Kind.SLICE, "slices"),
        (Kind.CLAIM, "allocated"),
    ):
        objects = {
            (document.metadata.namespace, document.metadata.name): document
            for document in documents_by_kind[name]
        }
        cache.apply({kind: objects})
    return cache


if __name__ == "__main__":
    main()
