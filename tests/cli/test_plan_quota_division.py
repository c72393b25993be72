"""`drawbridge plan`: a random comparison of the lines that a plan adds with all others that it could."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.claim_counts import ClaimShortage
from migration.assessment.device_lines import LinesQuestion, find_device_lines
from migration.assessment.outcomes import mapped_classes
from process.profiles.profile_files import load_profiles
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, WHOLE, early_namespace, hami_node, plugin_node, workload
from translation.cluster.snapshot import TranslationOptions

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
LABEL: Final = "drawbridge.internal/translate"
Objects = list[dict[str, Any]]


def random_cluster(seed: int) -> tuple[Objects, int]:
    """Return a cluster with one line of a key in its quota, and the amount of the line."""
    pick = random.Random(seed)
    amount = pick.randint(0, 5)
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"), hami_node("hami-1")]
    hard = {KEY: str(amount)}
    for line in (SHARES, NVIDIA):
        if pick.random() < 0.1:
            hard[line] = str(pick.randint(0, 3))
    if pick.random() < 0.3:
        own = early_namespace(hard, pick.choice((WHOLE, SHARE)))
        label = {LABEL: pick.choice(("true", "selected"))}
        objects += [
            entry if entry["kind"] != "Namespace" else namespace("team", label) for entry in own
        ]
    else:
        objects += [namespace("team"), resource_quota(hard, name="gpus")]
    for number in range(pick.randint(1, 4)):
        objects += random_workload(pick, f"w{number}")
    return objects, amount


def random_workload(pick: random.Random, name: str) -> Objects:
    limits = pick.choice((WHOLE, SHARE, SHARE, {GPU: "2"}))
    place = "hami" if limits == SHARE else "gpu"
    kind = pick.choice(("Deployment", "StatefulSet", "CronJob"))
    labels = {LABEL: "true"} if pick.random() < 0.2 else {}
    if kind == "CronJob":
        container = {"name": "c", "image": "a", "resources": {"limits": dict(limits)}}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        job = {"template": template, "parallelism": pick.randint(1, 2)}
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}
        return [api_object("CronJob", name, "team", spec=spec) | {"apiVersion": "batch/v1"}]
    nodes = [f"{place}-{pick.randint(0, 1)}" for _ in range(pick.randint(0, 2))]
    owner, *pods = workload(name, limits, nodes, kind=kind)
    owner["spec"]["replicas"] = max(len(nodes) + pick.choice((0, 0, 0, 1, -1)), 0)
    owner["spec"]["template"]["metadata"]["labels"] = {"app": name, **labels}
    return [owner, *pods]


def sources(objects: Objects) -> tuple[SourceObject, ...]:
    return tuple(SourceObject(document=entry, source="a test", line=0) for entry in objects)


def holding(shortages: Sequence[ClaimShortage]) -> list[ClaimShortage]:
    return [entry for entry in shortages if entry.stops_pods and entry.is_added]


def divisions(lines: Sequence[str], amount: int) -> Iterator[Mapping[str, str]]:
    for parts in itertools.product(range(amount + 1), repeat=len(lines)):
        if sum(parts) <= amount:
            yield dict(zip(lines, map(str, parts), strict=True))


def shortages_with(
    cluster: AssessedCluster, objects: Objects, added: Mapping[str, str]
) -> list[ClaimShortage]:
    """Return the added lines that would hold a namespace, if the plan added these."""
    planned = [
        entry
        if entry["kind"] != "ResourceQuota"
        else {**entry, "spec": {"hard": {**entry["spec"]["hard"], **added}}}
        for entry in objects
    ]
    question = LinesQuestion(
        objects=sources(objects),
        planned=sources(planned),
        namespace="default",
        mappings=mapped_classes(cluster.workloads),
    )
    lines = find_device_lines(cluster, question)
    return holding((*lines.shortages, *lines.early))


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, 100, 25)])
def test_a_plan_holds_no_namespace_for_its_own_line_where_another_amount_is_enough(
    seeds: range, *, is_native: bool
) -> None:
    for seed in seeds:
        objects, amount = random_cluster(seed)
        cluster = assess_cluster(
            sources(objects),
            load_profiles(),
            TranslationOptions(),
            namespace="default",
            version="",
            gates={"DRAExtendedResource": is_native},
        )
        held = holding((*cluster.claim_shortages, *cluster.early_shortages))
        if not held:
            continue
        hard = next(entry for entry in objects if entry["kind"] == "ResourceQuota")["spec"]["hard"]
        mapped = set(mapped_classes(cluster.workloads).values())
        lines = [
            line
            for line in (SHARES, NVIDIA)
            if line not in hard and line.split(".deviceclass", 1)[0] not in mapped
        ]

        enough = [
            added
            for added in divisions(lines, amount)
            if not shortages_with(cluster, objects, added)
        ]

        assert not enough, (seed, [entry.text for entry in held], enough)
