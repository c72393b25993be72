"""The facts about Helm releases that a person confirmed, and proposals from a snapshot. Pure.

A tenant may write a DaemonSet or a Deployment that looks like a release of the DRA driver or like the
GPU Operator. So an object decides neither where a `helm upgrade` goes nor which labels nodes get.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from findings.text import join_names
from kube.errors import ConfigError
from kube.manifests.source import SourceObject
from migration.cluster.evidence import text_map
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.driver_release import (
    propose_driver_releases,
    propose_drivers_by_hand,
)
from migration.plan.drivers.vendors import UNKNOWN_VERSION, propose_gpu_operators
from migration.plan.model.driver_charts import DriverRelease
from migration.plan.model.plan import (
    Held,
    Proposal,
    is_name,
    is_namespace,
)

NONE: Final = "none"
"""The value of a flag that says that there is no such release."""
REPOSITORY: Final = "repository:"
"""The prefix of a release whose values a person changes in a repository, as for Argo CD."""
DRIVER_FLAG: Final = "--driver-release"
OPERATOR_FLAG: Final = "--gpu-operator"
_DRIVER: Final = f"Driver//{NVIDIA}"
_OPERATOR: Final = "Operator//gpu-operator"
_WHAT: Final = {
    _DRIVER: "a Helm release of NVIDIA's DRA driver",
    _OPERATOR: "NVIDIA's GPU Operator",
}
_SHOWN: Final = 3


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a person.

    Attributes:
        driver_release: `namespace/name`, with `repository:` before it or without, or `none`; empty where nothing was said.
        gpu_operator: A version or `none`; empty where nothing was said.
    """

    driver_release: str = ""
    gpu_operator: str = ""


class Releases(msgspec.Struct, frozen=True, kw_only=True):
    """The releases that a plan reckons with.

    Attributes:
        gpu_operator: Version; empty without one. With a proposal it is only assumed.
        driver: The confirmed release; None for a new one.
        proposals: The proposals that are not confirmed.
    """

    gpu_operator: str
    driver: DriverRelease | None
    proposals: tuple[Proposal, ...]

    def held_steps(self) -> Iterator[Held]:
        """Yield the held preparations, with the commands that show the facts to confirm."""
        for subject, what in _WHAT.items():
            proposals = [entry for entry in self.proposals if entry.subject == subject]
            if proposals:
                yield _held_step(subject, what, proposals)


def read_releases(objects: Sequence[SourceObject], confirmation: Confirmation) -> Releases:
    """Return the releases of a cluster.

    Raises:
        ConfigError: The confirmed release is not in the snapshot.
    """
    drivers = {**propose_driver_releases(objects), **propose_drivers_by_hand(objects)}
    operators = propose_gpu_operators(objects)
    proposals: list[Proposal] = []
    driver = None
    operator = confirmation.gpu_operator
    if confirmation.driver_release not in {"", NONE}:
        driver = _confirmed(drivers, confirmation.driver_release)
    elif not confirmation.driver_release:
        proposals += (_driver_proposal(source, drivers[source]) for source in drivers)
    if operator == NONE:
        operator = ""
    elif not operator and operators:
        proposals += _operator_proposals(objects, operators)
        versions = set(operators.values())
        operator = versions.pop() if len(versions) == 1 else UNKNOWN_VERSION
    return Releases(gpu_operator=operator, driver=driver, proposals=tuple(proposals))


def _confirmed(drivers: Mapping[str, DriverRelease], value: str) -> DriverRelease:
    for release in drivers.values():
        in_repository = value.startswith(REPOSITORY)
        is_known = bool(release.version) or in_repository
        if is_known and f"{release.namespace}/{release.name}" == value.removeprefix(REPOSITORY):
            return replace(release, in_repository=in_repository)
    releases = sorted({_value(release) for release in drivers.values()})
    others = f"it shows {', '.join(releases[:_SHOWN])}" if releases else "it shows none"
    raise ConfigError(
        f"{DRIVER_FLAG} {value}: no DaemonSet of the cluster has the labels of this release; {others}; "
        f"{DRIVER_FLAG} {NONE} installs a new one"
    )


def _value(release: DriverRelease) -> str:
    """Return the value of the flag for a release; a person alone changes one without a version."""
    name = f"{release.namespace}/{release.name}"
    return name if release.version else f"{REPOSITORY}{name}"


def _driver_proposal(source: str, release: DriverRelease) -> Proposal:
    return Proposal(
        subject=_DRIVER,
        source=source,
        flag=DRIVER_FLAG,
        value=_value(release),
        namespace=release.namespace,
        release=release.name if release.version else "",
    )


def _operator_proposals(
    objects: Iterable[SourceObject], operators: Mapping[str, str]
) -> Iterator[Proposal]:
    for source in objects:
        reference = f"{source.kind}/{source.namespace or 'default'}/{source.name}"
        namespace = source.namespace or "default"
        if reference not in operators:
            continue
        notes = text_map(source.document, "metadata", "annotations")
        release = notes.get("meta.helm.sh/release-name", "gpu-operator")
        version = operators[reference]
        yield Proposal(
            subject=_OPERATOR,
            source=reference,
            flag=OPERATOR_FLAG,
            value="VERSION" if version == UNKNOWN_VERSION else version,
            # A name that no object can have is in no command.
            namespace=namespace if is_namespace(namespace) else "",
            release=release if is_name(release) else "",
        )


def _held_step(subject: str, what: str, proposals: Sequence[Proposal]) -> Held:
    sources = join_names([entry.source for entry in proposals], _SHOWN)
    values = list(dict.fromkeys(entry.value for entry in proposals))[:_SHOWN]
    flags = ", ".join(f"{proposals[0].flag} {value}" for value in values)
    helm_values = [value for value in values if not value.startswith(REPOSITORY)]
    if subject == _DRIVER and not helm_values:
        flags += " (then you change its values yourself, since no label names its Helm release)"
    elif subject == _DRIVER:
        flags += (
            f" ({REPOSITORY}{helm_values[0]} where its values are in a repository, as for Argo CD)"
        )
    commands = ", ".join(dict.fromkeys(filter(None, map(show_values, proposals[:_SHOWN]))))
    look = f"look at {commands or 'helm list --all-namespaces'}; "
    return Held(
        object=subject,
        reason=f"{sources} looks like {what}, and anybody who may write there can write that: "
        "nothing is run until a person confirms it",
        fix=f"{look}then plan again with {flags}, or with {proposals[0].flag} {NONE} if it is not real",
    )


def show_values(proposal: Proposal) -> str:
    """Return the command that shows the values of a proposed release; empty without a valid name."""
    if not (proposal.release and proposal.namespace):
        return ""
    return f"helm get values {proposal.release} --namespace={proposal.namespace}"
