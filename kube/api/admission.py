"""Types of admission.k8s.io/v1.

Source: k8s.io/api v0.37.1, admission/v1/types.go.
"""

from collections.abc import Mapping

import msgspec

from kube.api.meta import ApiStruct

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class GroupVersionKind(ApiStruct, frozen=True, kw_only=True):
    """The kind of the object."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(ApiStruct, frozen=True, kw_only=True):
    """The resource that the webhook's rule matched."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(ApiStruct, frozen=True, kw_only=True):
    """The user that made the request."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None


class AdmissionRequest(ApiStruct, frozen=True, kw_only=True):
    """The request to admit. `uid` identifies the review, not the object."""

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
    """One cause of a rejection; kubectl prints `* field: message`."""

    reason: str
    message: str
    field: str


class StatusDetails(ApiStruct, frozen=True, kw_only=True):
    """Details of a rejection; kubectl ignores the message of an Invalid without causes.

    The API server passes `retry_after_seconds` on as the header Retry-After, which clients obey.
    """

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(ApiStruct, frozen=True, kw_only=True):
    """The reason of a rejection."""

    code: int
    reason: str
    message: str
    status: str = "Failure"
    details: StatusDetails | None = None


class AdmissionResponse(ApiStruct, frozen=True, kw_only=True):
    """The response. `patch` is base64; `patch_type` is set if and only if `patch` is."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] | None = None


class AdmissionReview(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The envelope of request and response."""

    api_version: str = API_VERSION
    kind: str = KIND
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None
