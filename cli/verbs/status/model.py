"""The values of a status, as scripts see them."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from cli.reading.installation import TranslatedPods


class State(StrEnum):
    """The state of a part."""

    OK = "ok"
    WAITING = "waiting"
    """Not there yet, or being changed; may become right by itself."""
    FAILED = "failed"
    """Somebody has to do something."""
    OFF = "off"
    """Not installed, and not needed."""
    UNKNOWN = "unknown"
    """It may not be read."""


class StatusCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an installation.

    Attributes:
        fix: The next thing to do; empty where nothing is to be done.
    """

    name: str
    state: State
    message: str
    fix: str = ""


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment or DaemonSet."""

    component: str
    object: str
    ready: int
    desired: int
    versions: tuple[str, ...]


class DriverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A DRA driver with published devices."""

    driver: str
    nodes: int
    devices: int


class VocabularyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The vocabularies with keys that are translated, and the others."""

    on: tuple[str, ...]
    off: tuple[str, ...]


class NamespaceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The namespaces with a label about the translation of their pods.

    Attributes:
        selective: Namespaces whose pods are translated if they have a label of their own.
    """

    opted_in: tuple[str, ...]
    opted_out: tuple[str, ...]
    selective: tuple[str, ...] = ()


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge status -o json`.

    Attributes:
        ready: True if nothing waits and nothing has failed.
        mode: The mode by the settings; empty while nothing is installed.
        client_version: The version of this command.
        feature_gates: Upstream name of a gate to whether it is on; empty where nobody may know.
        next_step: The one thing to do next; empty where all is done.
        unreadable: The resources that the user may not read.
    """

    ready: bool
    namespace: str
    mode: str
    client_version: str
    kubernetes_version: str
    checks: tuple[StatusCheck, ...]
    components: tuple[ComponentStatus, ...]
    drivers: tuple[DriverStatus, ...]
    namespaces: NamespaceStatus
    vocabularies: VocabularyStatus
    translated_pods: TranslatedPods
    owned_drivers: tuple[str, ...]
    feature_gates: Mapping[str, bool]
    next_step: str
    unreadable: tuple[str, ...]
