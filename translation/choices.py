"""The operator's choices where a claim cannot give both what the legacy system reserves and limits.

They are part of the translation record, since claims derive from it alone.
"""

from enum import StrEnum

import msgspec


class Exclusivity(StrEnum):
    """The requests for which a share becomes a whole device, so that nobody else can use it."""

    ALWAYS = "always"
    """As `policies`, and all cores with a part of the memory, for which HAMi needs an unused GPU."""
    POLICIES = "policies"
    """HAMi's policy `mutex` and Koordinator's exclusivePolicy `DeviceLevel`."""
    NEVER = "never"
    """None: a share is a share."""


class InitContainers(StrEnum):
    """The devices of an init container that needs more than every app container."""

    LARGEST = "largest"
    """Those of an app container, whose amounts become the larger of both: the pod reserves as much
    as in the legacy system, and the app container may use more."""
    SEPARATE = "separate"
    """Its own, for the lifetime of the pod: the pod reserves the sum of both."""


class Choices(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """The choices that a translation depends on. Defaults are those of records without any."""

    exclusivity: Exclusivity = Exclusivity.POLICIES
    init_containers: InitContainers = InitContainers.SEPARATE
