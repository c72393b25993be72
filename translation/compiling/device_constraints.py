"""The constraints between the devices of one intent: distinct, in one scope, or one partition."""

from collections.abc import Iterator, Sequence
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.resource import DeviceConstraint
from translation.compiling.conditions import Condition
from translation.compiling.device_selectors import SelectorCompiler
from translation.model.intents import Intent, Scope
from translation.profiles.device_facts import PCIE_ROOT, Facts
from translation.profiles.profile import Profile

PARTITION: Final = "partition"
UNPARTITIONED: Final = "unpartitioned"
"""Names of alternatives."""


class ConstraintCompiler:
    """Compiles the constraints of one intent, and adds findings to a list."""

    def __init__(
        self,
        profile: Profile,
        facts: Facts,
        intent: Intent,
        selectors: SelectorCompiler,
        findings: list[Finding],
        *,
        shared: bool,
    ) -> None:
        """Keep the values that decide the constraints.

        Args:
            shared: Several claims may be allocated a device.
        """
        self._profile = profile
        self._device = profile.devices[intent.kind]
        self._facts = facts
        self._intent = intent
        self._selectors = selectors
        self._findings = findings
        self._shared = shared

    def between(self, names: tuple[str, ...]) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
        """Yield each constraint between the devices of some requests, and its source."""
        yield from self._partition(names)
        if self._intent.count == 1 and not self._intent.every:
            return
        if self._shared and self._device.unique:
            distinct = self._selectors.full_name(self._device.unique)
            yield (
                DeviceConstraint(requests=names, distinct_attribute=distinct),
                self._intent.path("count"),
            )
        yield from self._within(names)
        if self._intent.same_numa:
            numa = self._device.attributes.numa
            if numa:
                yield (
                    DeviceConstraint(
                        requests=names, match_attribute=self._selectors.full_name(numa)
                    ),
                    self._intent.path("numa"),
                )
            else:
                self._warn(
                    Code.NOT_PUBLISHED_BY_DRIVER,
                    "numa",
                    f"{self._profile.driver} publishes no NUMA node; the devices may be on "
                    "different ones",
                )

    def partition_ways(self) -> Sequence[tuple[str, Condition]]:
        """Return name and condition of alternatives for whole GPUs: one partition, or GPUs in none.

        The driver prepares only a partition where it publishes some, and any GPUs elsewhere.
        """
        prefix, sizes, count = (
            self._device.attributes.partition,
            self._facts.partitions,
            self._intent.count,
        )
        if (
            self._intent.partition
            or not self._intent.exclusive
            or self._shared
            or not isinstance(prefix, str)
            or count not in (sizes or ())
        ):
            return ()
        attribute = f"{prefix}{count}"
        return (
            (PARTITION, self._selectors.has(attribute)),
            (UNPARTITIONED, self._selectors.has(attribute, negated=True)),
        )

    def _partition(self, names: tuple[str, ...]) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
        """Yield the constraint that all devices are one partition, if that is required or better.

        Source: kubernetes-sigs/dra-driver-nvidia-gpu, device_state.go, activateFabricPartition: with
        its gate FabricManagerPartitioning the driver prepares no other set of GPUs.
        """
        prefix, sizes, count = (
            self._device.attributes.partition,
            self._facts.partitions,
            self._intent.count,
        )
        needs_partition = self._intent.partition
        if not needs_partition and (not sizes or not self._intent.exclusive or self._shared):
            return
        if not isinstance(prefix, str) or sizes == ():
            self._fail(
                Code.CANNOT_EXPRESS
                if not isinstance(prefix, str)
                else Code.UNSUPPORTED_AS_PUBLISHED,
                "partition",
                f"{self._profile.driver} publishes no partitions of GPUs, which the annotation requires",
                "use gpu.nvidia.com with its gate FabricManagerPartitioning, or remove the annotation",
            )
            return
        if sizes is not None and count not in sizes:
            size_list = ", ".join(map(str, sizes))
            message = (
                f"{self._profile.driver} publishes partitions of {size_list} GPUs, not of {count}"
            )
            if needs_partition:
                self._fail(
                    Code.NO_PARTITION_OF_SIZE,
                    "partition",
                    message,
                    f"request one of {size_list} GPUs",
                )
            else:
                self._warn(
                    Code.NO_PARTITION_OF_SIZE,
                    "count",
                    f"{message}: on nodes with partitions the driver does not prepare the claim",
                )
            return
        if sizes is None:
            self._warn(
                Code.NOT_PUBLISHED_BY_DRIVER,
                "partition",
                f"no inventory shows that {self._profile.driver} publishes partitions of {count} GPUs",
            )
        name = self._selectors.full_name(f"{prefix}{count}")
        where = names if needs_partition else tuple(f"{request}/{PARTITION}" for request in names)
        yield (
            DeviceConstraint(requests=where, match_attribute=name),
            self._intent.path("partition" if needs_partition else "count"),
        )

    def _within(self, names: tuple[str, ...]) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
        path = self._intent.path("scope")
        match self._intent.within:
            case None:
                return
            case Scope.PCIE_ROOT if self._facts.per_root == ():
                self._fail(
                    Code.UNSUPPORTED_AS_PUBLISHED,
                    "scope",
                    f"no device of {self._profile.driver} publishes its PCIe root",
                    "use a driver that publishes it, or remove the scope",
                )
            case Scope.PCIE_ROOT:
                yield DeviceConstraint(requests=names, match_attribute=PCIE_ROOT), path
            case Scope.NUMA_NODE:
                numa = self._device.attributes.numa
                if numa is None:
                    self._fail(
                        Code.CANNOT_EXPRESS,
                        "scope",
                        f"{self._profile.driver} publishes no NUMA node",
                        "use a driver that publishes it, or remove the scope",
                    )
                else:
                    name = self._selectors.full_name(numa)
                    yield DeviceConstraint(requests=names, match_attribute=name), path

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self._findings.append(error(code, self._intent.path(aspect), message, fix))

    def _warn(self, code: Code, aspect: str, message: str) -> None:
        self._findings.append(warning(code, self._intent.path(aspect), message))
