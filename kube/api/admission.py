"""admission.k8s.io/v1: what the API server asks and what it must be told.

Source: k8s.io/api v0.37.1, admission/v1/types.go.
"""

from collections.abc import Mapping

import msgspec

from kube.api.meta import ApiStruct

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class GroupVersionKind(ApiStruct, frozen=True, kw_only=True):
    """What the object is."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(ApiStruct, frozen=True, kw_only=True):
    """What the rule matched."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(ApiStruct, frozen=True, kw_only=True):
    """Who asks the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None


class AdmissionRequest(ApiStruct, frozen=True, kw_only=True):
    """One question. `uid` is new for every call; it is not the object's."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()
    dry_run: bool | None = None


class StatusCause(ApiStruct, frozen=True, kw_only=True):
    """One fault; kubectl prints `* field: message`."""

    reason: str
    message: str
    field: str


class StatusDetails(ApiStruct, frozen=True, kw_only=True):
    """Without causes kubectl throws the message of an Invalid away."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()


class Status(ApiStruct, frozen=True, kw_only=True):
    """Why not."""

    code: int
    reason: str
    message: str
    status: str = "Failure"
    details: StatusDetails | None = None


class AdmissionResponse(ApiStruct, frozen=True, kw_only=True):
    """One answer. `patch` is base64 and comes with `patch_type`, or neither does."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] | None = None


class AdmissionReview(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The envelope of both directions."""

    api_version: str = API_VERSION
    kind: str = KIND
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None
