"""Scenarios of a legacy scheduler, run through our translation and our simulation.

A scenario is nodes with cards, and pods in order with what the legacy scheduler grants each: a memory
in MiB and a percentage of cores for every card that the pod holds, or a refusal. Ours must grant the
same amounts, or a finding of the pod or of one before it must say what differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from allocator.model.feature_gates import Features
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from answers.model.cluster_state import ClusterState, build_state
from answers.model.objects import NamespacedObject
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from testing.builders import (
    DRANET,
    HAMI,
    NAMESPACE,
    NVIDIA,
    admit,
    amount,
    container,
    device,
    driver_slice,
    hami_gpu,
    in_partitions,
    mig_device,
    nvidia_gpu,
    pod,
    profiles,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

ASCEND: Final = "ascend.project-hami.io"
HYGON: Final = "dra.hygon.com"
HYGON_CORES: Final = "120"
"""The compute units of a card."""
FOLDER: Final = Path(__file__).parent.parent / "tests" / "legacy"
REFUSED: Final = "refused"
NUMA: Final = "resource.kubernetes.io/numaNode"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
MEBIBYTE: Final = 2**20
_OPTIONS: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})

Amounts = tuple[int, int]
"""Memory in MiB and percent of cores of one card."""


class LegacyCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A card, or a MIG device, or a NIC, of a node."""

    memory: int = 0
    model: str = "NVIDIA A100"
    numa: int | None = None
    root: str | None = None
    mig: str | None = None
    nic: bool = False
    partitions: Mapping[int, int] = {}


class LegacyPod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pod, and its outcome by the legacy scheduler.

    Attributes:
        limits: The limits of a single container; else `containers`.
        legacy: The grant for each GPU, or "refused"; empty if a record has it.
        nics: The number of NICs that are granted.
        findings: The codes of the findings that say how ours differs; empty where it does not.
        better: The reason that the legacy scheduler does not find what it could grant; empty elsewhere.
        scheduler: The pod's schedulerName; empty for the default.
    """

    limits: Mapping[str, Any] = {}
    containers: Mapping[str, Mapping[str, Any]] = {}
    init: Mapping[str, Mapping[str, Any]] = {}
    sidecars: Mapping[str, Mapping[str, Any]] = {}
    annotations: Mapping[str, str] = {}
    privileged: bool = False
    legacy: str | list[tuple[int, int]] = ""
    nics: int = 0
    findings: tuple[str, ...] = ()
    better: str = ""
    scheduler: str = ""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods in order on the cards of nodes.

    Attributes:
        source: File and function that decide it; empty where they are executed.
        driver: The driver that publishes the GPUs; None for the file's.
    """

    name: str
    source: str = msgspec.field(name="from", default="")
    driver: str | None = None
    nodes: Mapping[str, list[int | LegacyCard]]
    pods: tuple[LegacyPod, ...]


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The project of a scheduler."""

    repository: str
    commit: str


class ScenarioFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scenarios of one legacy scheduler."""

    source: Source
    driver: str
    scenarios: tuple[Scenario, ...]


class Grant(NamedTuple):
    """The devices of a pod: amounts of each GPU, in ascending order, and a number of NICs."""

    gpus: tuple[Amounts, ...]
    nics: int = 0


class Result(NamedTuple):
    """Ours for one pod; None for a refusal, also if it fits no node."""

    grant: Grant | None
    codes: frozenset[str]


def read_scenarios(name: str) -> ScenarioFile:
    """Read the scenarios of one legacy scheduler."""
    return msgspec.convert(
        yaml.load((FOLDER / name).read_text(), Loader=yaml.CSafeLoader), ScenarioFile
    )


def legacy_grant(asked_pod: LegacyPod) -> Grant | None:
    """Return the grant of the legacy scheduler."""
    if isinstance(asked_pod.legacy, str):
        assert asked_pod.legacy == REFUSED
        return None
    return Grant(tuple(sorted(asked_pod.legacy)), asked_pod.nics)


def run_scenario(scenario: Scenario, driver: str) -> Iterator[Result]:
    """Yield ours for each pod, in order; the devices of one are in use for the next."""
    slices = list(_slices(scenario, scenario.driver or driver))
    snapshot = translation_snapshot(
        *slices,
        classes=frozenset(
            name for profile in profiles().values() for name in profile.class_names()
        ),
        publishes=frozenset(slice_.spec.driver for slice_ in slices),
    )
    state = build_state(
        [NamespacedObject(namespace="", value=value) for value in (*slices, *_classes())]
    )
    cluster = state.cluster(Features())
    for index, asked_pod in enumerate(scenario.pods):
        yield _run(asked_pod, f"pod-{index}", snapshot, state, cluster)


def _run(
    asked_pod: LegacyPod,
    name: str,
    snapshot: TranslationSnapshot,
    state: ClusterState,
    cluster: Any,
) -> Result:
    document = pod_document(asked_pod, name)
    translated_document, answer = admit(document, snapshot, _OPTIONS)
    codes = frozenset(str(finding.code) for finding in answer.findings)
    if not answer.allowed:
        return Result(None, codes)
    templates = {
        (NAMESPACE, claim.template): convert(
            {
                "metadata": {"name": claim.template, "namespace": NAMESPACE},
                "spec": msgspec.to_builtins(claim.spec, enc_hook=str),
            },
            ResourceClaimTemplate,
        )
        for claim in answer.claims
    }
    question = SimulationInput(
        pods=(convert(translated_document, Pod),), templates=templates, classes=state.classes
    )
    simulated_result = simulate_in_order(cluster, question, SimulationOptions())
    if not simulated_result.all_placed:
        return Result(None, codes)
    gpus: list[Amounts] = []
    nics = 0
    for claim in simulated_result.claims:
        assert claim.allocation is not None
        for result in claim.allocation.devices.results or ():
            if result.driver == DRANET:
                nics += 1
            else:
                gpus.append(_amounts(result, state.slices))
    return Result(Grant(tuple(sorted(gpus)), nics), codes)


def _amounts(result: Any, slices: Sequence[ResourceSlice]) -> Amounts:
    consumed = result.consumed_capacity or {}
    (capacity,) = (
        published_device.capacity
        for slice_ in slices
        if (slice_.spec.driver, slice_.spec.pool.name) == (result.driver, result.pool)
        for published_device in slice_.spec.devices or ()
        if published_device.name == result.device and published_device.capacity
    )
    memory, cores = consumed.get("memory", capacity["memory"].value), consumed.get("cores")
    percent = 100 if cores is None else int(cores) * 100 // int(capacity["cores"].value)
    return int(memory) // MEBIBYTE, percent


def pod_document(asked_pod: LegacyPod, name: str) -> Document:
    """Return the pod of a scenario."""

    def legacy_container(key: str, limits: Mapping[str, Any]) -> Document:
        fields = {"securityContext": {"privileged": True}} if asked_pod.privileged else {}
        return container(key, limits, **fields)

    document = pod(
        *(
            legacy_container(key, limits)
            for key, limits in (asked_pod.containers or {"main": asked_pod.limits}).items()
        ),
        init=(
            *(legacy_container(key, limits) for key, limits in asked_pod.init.items()),
            *(
                legacy_container(key, limits) | {"restartPolicy": "Always"}
                for key, limits in asked_pod.sidecars.items()
            ),
        ),
        annotations=asked_pod.annotations,
    )
    if asked_pod.scheduler:
        document["spec"]["schedulerName"] = asked_pod.scheduler
    document["metadata"] |= {"name": name, "namespace": NAMESPACE}
    return document


# --- the cluster ----------------------------------------------------------------------------------


def _classes() -> Iterator[DeviceClass]:
    for profile in profiles().values():
        for kind in profile.devices.values():
            tests = [f"device.driver == '{profile.driver}'"]
            tests += [
                f"device.attributes['{profile.driver}'].{name} == '{value}'"
                for name, value in kind.where.items()
            ]
            yield convert(
                {
                    "metadata": {"name": kind.class_name},
                    "spec": {"selectors": [{"cel": {"expression": " && ".join(tests)}}]},
                },
                DeviceClass,
            )


def _slices(scenario: Scenario, driver: str) -> Iterator[ResourceSlice]:
    for node, listed in scenario.nodes.items():
        cards = [LegacyCard(memory=card) if isinstance(card, int) else card for card in listed]
        gpus = [
            _gpu(card, f"GPU-{node}-{n}", driver) for n, card in enumerate(cards) if not card.nic
        ]
        nics = [_nic(card) for card in cards if card.nic]
        if gpus:
            yield driver_slice(driver, *gpus, pool=node)
        if nics:
            yield driver_slice(DRANET, *nics, pool=node)


def _gpu(card: LegacyCard, uuid: str, driver: str) -> Document:
    memory = f"{card.memory}Mi"
    if card.mig is not None:
        document = mig_device(memory, card.mig)
        document["attributes"]["parentUUID"] = {"string": uuid}
        return document
    document = _vendor_device(memory, card.model, driver)
    document["attributes"]["uuid"] = {"string": uuid}
    document["attributes"]["productName"] = {"string": card.model}
    if driver == NVIDIA:
        if card.numa is not None:
            document["attributes"][NUMA] = {"int": card.numa}
        document = in_partitions(document, *card.partitions)
        for size, partition in card.partitions.items():
            document["attributes"][f"partition{size}"] = {"int": partition}
    return _at_root(document, card)


def _vendor_device(memory: str, model: str, driver: str) -> Document:
    if driver == HAMI:
        return hami_gpu(memory, model)
    if driver == NVIDIA:
        return nvidia_gpu(memory)
    kind, cores = {ASCEND: ("HAMivNPUCore", "100"), HYGON: ("hcu", HYGON_CORES)}[driver]
    return device(
        shared=True,
        attributes={"type": kind, "productName": model},
        capacity={
            "memory": amount(memory, memory, min="1Mi", step="1Mi"),
            "cores": amount(cores, cores, min="0", max=cores, step="1"),
        },
    )


def _nic(card: LegacyCard) -> Document:
    document = device()
    document["attributes"]["dra.net/rdma"] = {"bool": True}
    return _at_root(document, card)


def _at_root(document: Document, card: LegacyCard) -> Document:
    if card.root is not None:
        document["attributes"][ROOT] = {"string": card.root}
    return document
