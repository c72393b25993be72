"""Objects and their findings: one table for the rules and for a real API server.

Each object has one fault, or two where the row says so. A line is `severity code path`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from findings.finding import Finding, Severity
from kube.api.core import Pod
from kube.api.meta import ObjectHead, convert
from kube.names import STRATEGY_ANNOTATION
from rules.context.context import Context
from rules.engine.engine import VIEWS, Target, validate
from testing.documents import (
    EXAMPLE,
    NVIDIA,
    NVIDIA_CONFIG,
    Document,
    api_object,
    attributes,
    cel,
    claim,
    config,
    device,
    device_class,
    device_config,
    device_quota,
    exactly,
    first,
    gpu_config,
    limit,
    nodes_of,
    opaque,
    owned,
    ownership,
    policy,
    resource_slice,
    sub,
    template,
)

OWN_DRIVER: Final = "gpu.drawbridge.internal"
NAMESPACE: Final = "team-a"


class Case(NamedTuple):
    """Attributes: expected_lines: Sorted as `validate` sorts; empty for an object that is right."""

    name: str
    document: Document
    expected_lines: tuple[str, ...] = ()


# --- builders -------------------------------------------------------------------------------------


def _mode(mode: str, *, domain: str = EXAMPLE) -> str:
    """An expression that is true of the devices of a mode."""
    return f'device.attributes["{domain}"].?mode.orValue("") == "{mode}"'


def pod(
    *claims: Document, uses: tuple[Mapping[str, str], ...] = (), limits: Any = None
) -> Document:
    resources = {"claims": list(uses), **({"limits": limits} if limits else {})}
    return api_object(
        "Pod",
        "validated",
        spec={
            "containers": [
                {"name": "main", "image": "registry.internal/app:1", "resources": resources}
            ],
            "resourceClaims": list(claims),
        },
    )


def annotated_document(document: Document, strategy: str) -> Document:
    annotations = {STRATEGY_ANNOTATION: strategy}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


# --- what is said ---------------------------------------------------------------------------------


def findings_of(document: Mapping[str, Any], context: Context | None = None) -> tuple[Finding, ...]:
    """Return the findings of a document as it stands."""
    kind = (document["apiVersion"], document["kind"])
    view_type = Pod if kind[1] == "Pod" else VIEWS.get(kind, ObjectHead)
    is_namespaced = kind[1] in {"Pod", "ResourceClaim", "ResourceClaimTemplate"}
    target = Target(
        view=convert(document, view_type),
        raw=document,
        metadata=convert(document, ObjectHead).metadata,
        namespace=NAMESPACE if is_namespaced else "",
    )
    return validate(target, context or Context())


def finding_lines(document: Mapping[str, Any], context: Context | None = None) -> tuple[str, ...]:
    """Return `severity code path` of each finding that is more than worth knowing."""
    return tuple(
        f"{f.severity} {f.code} {f.path}"
        for f in findings_of(document, context)
        if f.severity is not Severity.INFO
    )


# --- the table ------------------------------------------------------------------------------------

_REQUESTS: Final = "spec.devices.requests"
_EXACT: Final = f"{_REQUESTS}[0].exactly"
_DRIVER: Final = 'device.driver == "gpu.nvidia.com"'
_MIG: Final = 'device.attributes["gpu.nvidia.com"].profile == "1g.5gb"'
_TAINT: Final = {"key": "gpu.example.com/busy", "operator": "Exists"}
_FULL: Final = {"key": "k", "operator": "Equal", "value": "v"}

_ALIGNED: Final[Document] = {"matchAttribute": "resource.kubernetes.io/pcieRoot"}

CLAIMS: Final = (
    Case("a device", claim(exactly())),
    Case("several devices", claim(exactly(count=8))),
    Case("as many as a claim holds", claim(exactly(count=32))),
    Case("all devices of a node", claim(exactly(allocationMode="All"))),
    Case("a selector", claim(exactly(selectors=[cel(f"{_DRIVER} && {_MIG}")]))),
    Case("alternatives", claim(first(sub("large", count=4), sub("small")))),
    Case("tolerations", claim(exactly(tolerations=[_TAINT, _FULL]))),
    Case("sixteen tolerations", claim(exactly(tolerations=[_TAINT] * 16))),
    Case("an amount", claim(exactly(capacity={"requests": {"memory": "10Gi"}}))),
    Case("an amount of nothing", claim(exactly(capacity={"requests": {"cores": "0"}}))),
    Case("a name with a domain", claim(exactly(capacity={"requests": {"a.example.com/b": "1"}}))),
    Case(
        "aligned devices",
        claim(
            exactly(),
            exactly("nic"),
            constraints=[_ALIGNED],
        ),
    ),
    Case("no request", claim()),
    Case(
        "a request without a way to ask",
        claim({"name": "gpu"}),
        (f"error invalidRequest {_REQUESTS}[0]",),
    ),
    Case(
        "a request with both ways to ask",
        claim({**exactly(), **first(sub("small"))}),
        (f"error invalidRequest {_REQUESTS}[0]",),
    ),
    Case(
        "a request without a class",
        claim({"name": "gpu", "exactly": {"count": 1}}),
        (f"error invalidRequest {_EXACT}.deviceClassName",),
    ),
    Case(
        "fields of v1beta1",
        claim({"name": "gpu", "deviceClassName": NVIDIA, "count": 2}),
        (
            f"error removedField {_REQUESTS}[0].deviceClassName",
            f"error removedField {_REQUESTS}[0].count",
            f"error invalidRequest {_REQUESTS}[0]",
        ),
    ),
    Case(
        "an expression that is not below cel",
        claim(exactly(selectors=[{"expression": _DRIVER}])),
        (
            f"error removedField {_EXACT}.selectors[0].expression",
            f"error invalidSelector {_EXACT}.selectors[0]",
        ),
    ),
    Case(
        "a misspelt field",
        claim(exactly(selector=[cel(_DRIVER)])),
        (f"warning unknownField {_EXACT}.selector",),
    ),
    Case(
        "amounts that are not below requests",
        claim(exactly(capacity={"memory": "10Gi"})),
        (f"warning unknownField {_EXACT}.capacity.memory",),
    ),
    Case(
        "a name that stands twice",
        claim(exactly(), exactly()),
        (f"error duplicateName {_REQUESTS}[1].name",),
    ),
    Case(
        "an alternative that stands twice",
        claim(first(sub("small"), sub("small"))),
        (f"error duplicateName {_REQUESTS}[0].firstAvailable[1].name",),
    ),
    Case("a count of zero, which becomes one", claim(exactly(count=0))),
    Case("a count below zero", claim(exactly(count=-1)), (f"error invalidCount {_EXACT}.count",)),
    Case(
        "a count beside All",
        claim(exactly(count=2, allocationMode="All")),
        (f"error invalidCount {_EXACT}.count",),
    ),
    Case(
        "a mode that does not exist",
        claim(exactly(allocationMode="Some")),
        (f"error invalidCount {_EXACT}.allocationMode",),
    ),
    Case(
        "more devices than a claim holds",
        claim(exactly(count=33)),
        (f"error tooManyDevices {_REQUESTS}",),
    ),
    Case(
        "more devices in all than a claim holds",
        claim(exactly(count=20), exactly("more", count=13)),
        (f"error tooManyDevices {_REQUESTS}",),
    ),
    Case("too many only in one alternative", claim(first(sub("many", count=40), sub("few")))),
    Case(
        "too many in every alternative",
        claim(first(sub("many", count=40), sub("more", count=41))),
        (f"error tooManyDevices {_REQUESTS}",),
    ),
    Case(
        "nine alternatives",
        claim(first(*(sub(f"a{i}") for i in range(9)))),
        (f"error tooManyRequests {_REQUESTS}[0].firstAvailable",),
    ),
    Case(
        "a configuration for an unknown request",
        claim(exactly(), config=[config(gpu_config(strategy="MPS"), "gup")]),
        ("error unknownRequest spec.devices.config[0].requests[0]",),
    ),
    Case(
        "a constraint on an unknown request",
        claim(exactly(), constraints=[{"requests": ["nic"], "matchAttribute": "a.b/c"}]),
        ("error unknownRequest spec.devices.constraints[0].requests[0]",),
    ),
    Case(
        "a constraint on one device and a misspelt request",
        claim(exactly(), exactly("nic"), constraints=[{"requests": ["gpu", "nics"], **_ALIGNED}]),
        ("error unknownRequest spec.devices.constraints[0].requests[1]",),
    ),
    Case(
        "a constraint on an alternative",
        claim(
            first(sub("small")),
            constraints=[{"requests": ["gpu/small"], "matchAttribute": "a.b/c"}],
        ),
    ),
    Case(
        "a constraint without an attribute",
        claim(exactly(count=2), constraints=[{"requests": ["gpu"]}]),
        ("error invalidConstraint spec.devices.constraints[0]",),
    ),
    Case(
        "a constraint without a domain",
        claim(exactly(count=2), constraints=[{"matchAttribute": "uuid"}]),
        ("error invalidConstraint spec.devices.constraints[0].matchAttribute",),
    ),
    Case(
        "a constraint of two attributes",
        claim(
            exactly(count=2),
            constraints=[{"matchAttribute": "a.b/c", "distinctAttribute": "a.b/d"}],
        ),
        ("error conflictingConstraintAttributes spec.devices.constraints[0]",),
    ),
    Case(
        "a constraint on one device",
        claim(exactly(), exactly("nic"), constraints=[{"requests": ["gpu"], **_ALIGNED}]),
        ("warning singleDeviceConstraint spec.devices.constraints[0]",),
    ),
    Case(
        "a constraint on all of one device",
        claim(exactly(), constraints=[_ALIGNED]),
        ("warning singleDeviceConstraint spec.devices.constraints[0]",),
    ),
    Case(
        "a constraint on two devices of one request",
        claim(exactly(count=2), constraints=[_ALIGNED]),
    ),
    Case(
        "a constraint on all there are",
        claim(exactly(allocationMode="All"), constraints=[_ALIGNED]),
    ),
    Case(
        "seventeen tolerations",
        claim(exactly(tolerations=[_TAINT] * 17)),
        (f"error tooManyTolerations {_EXACT}.tolerations",),
    ),
    Case(
        "seventeen tolerations of an alternative",
        claim(first(sub("small", tolerations=[_TAINT] * 17))),
        (f"error tooManyTolerations {_REQUESTS}[0].firstAvailable[0].tolerations",),
    ),
    Case(
        "a toleration of any key with one value",
        claim(exactly(tolerations=[{"operator": "Equal", "value": "v"}])),
        (f"warning keylessToleration {_EXACT}.tolerations[0].key",),
    ),
    Case("a toleration of everything", claim(exactly(tolerations=[{"operator": "Exists"}]))),
    Case(
        "a toleration of what keeps nobody away",
        claim(exactly(tolerations=[{**_TAINT, "effect": "None"}])),
        (f"warning noopToleration {_EXACT}.tolerations[0].effect",),
    ),
    Case(
        "a toleration with a value beside Exists",
        claim(exactly(tolerations=[{**_TAINT, "value": "v"}])),
        (f"error invalidToleration {_EXACT}.tolerations[0].value",),
    ),
    Case(
        "an operator that does not exist",
        claim(exactly(tolerations=[{"key": "k", "operator": "In"}])),
        (f"error invalidToleration {_EXACT}.tolerations[0].operator",),
    ),
    Case(
        "an amount below zero",
        claim(exactly(capacity={"requests": {"memory": "-1Gi"}})),
        (f"error negativeCapacity {_EXACT}.capacity.requests[memory]",),
    ),
    Case(
        "a capacity of several slashes",
        claim(exactly(capacity={"requests": {"a.b/c/d": "1"}})),
        (f"error malformedQualifiedName {_EXACT}.capacity.requests[a.b/c/d]",),
    ),
    Case(
        "an attribute of several slashes",
        claim(exactly(count=2), constraints=[{"matchAttribute": "a.b/c/d"}]),
        ("error malformedQualifiedName spec.devices.constraints[0].matchAttribute",),
    ),
    Case(
        "a request in upper case",
        claim(exactly("GPU_0")),
        (f"error invalidName {_REQUESTS}[0].name",),
    ),
    Case(
        "an alternative with dots",
        claim(first(sub("1g.5gb"))),
        (f"error invalidName {_REQUESTS}[0].firstAvailable[0].name",),
    ),
    Case(
        "a class with a space",
        claim(exactly(deviceClassName="My Class")),
        (f"error invalidName {_EXACT}.deviceClassName",),
    ),
    Case(
        "an attribute with a hyphen",
        claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/numa-node"}]),
        ("error invalidName spec.devices.constraints[0].matchAttribute",),
    ),
    Case(
        "an attribute without a text before its slash",
        claim(exactly(count=2), constraints=[{"distinctAttribute": "/numa"}]),
        ("error invalidName spec.devices.constraints[0].distinctAttribute",),
    ),
    Case(
        "a driver with an underscore",
        claim(exactly(), config=[config({"a": 1}, driver="a_b")]),
        ("error invalidName spec.devices.config[0].opaque.driver",),
    ),
    Case(
        "a toleration of a key with a space",
        claim(exactly(tolerations=[{"key": "a b", "operator": "Exists"}])),
        (f"error invalidName {_EXACT}.tolerations[0].key",),
    ),
    Case(
        "a toleration of a value with a space",
        claim(exactly(tolerations=[{"key": "a", "value": "b c"}])),
        (f"error invalidToleration {_EXACT}.tolerations[0].value",),
    ),
    Case(
        "names of every length that is allowed",
        claim(
            exactly("r" * 63, deviceClassName="c" * 253, tolerations=[{**_FULL, "value": ""}]),
            first(sub("0"), name="0"),
            constraints=[{"matchAttribute": f"{'d' * 63}/{'i' * 32}"}],
            config=[config({"a": 1}, driver="Driver.example.com")],
        ),
    ),
    Case(
        "names of one character too many",
        claim(
            exactly("r" * 64, deviceClassName="c" * 254),
            exactly("nic"),
            constraints=[{"matchAttribute": f"a.b/{'i' * 33}"}],
            config=[config({"a": 1}, driver="d" * 64)],
        ),
        (
            f"error invalidName {_REQUESTS}[0].name",
            f"error invalidName {_EXACT}.deviceClassName",
            "error invalidName spec.devices.constraints[0].matchAttribute",
            "error invalidName spec.devices.config[0].opaque.driver",
        ),
    ),
    Case(
        "a request twice in a constraint",
        claim(exactly(count=2), constraints=[{"requests": ["gpu", "gpu"], **_ALIGNED}]),
        ("error duplicateName spec.devices.constraints[0].requests[1]",),
    ),
    Case(
        "a request twice in a configuration",
        claim(exactly(), config=[config({"a": 1}, "gpu", "gpu", driver="a.b")]),
        ("error duplicateName spec.devices.config[0].requests[1]",),
    ),
    Case(
        "as many constraints, configurations and selectors as a claim has",
        claim(
            exactly(count=2, selectors=[cel(_DRIVER)] * 32),
            constraints=[_ALIGNED] * 32,
            config=[config({"a": 1}, driver="a.b")] * 32,
        ),
    ),
    Case(
        "more constraints than a claim has",
        claim(exactly(count=2), constraints=[_ALIGNED] * 33),
        ("error invalidList spec.devices.constraints",),
    ),
    Case(
        "more configurations than a claim has",
        claim(exactly(), config=[config({"a": 1}, driver="a.b")] * 33),
        ("error invalidList spec.devices.config",),
    ),
    Case(
        "more selectors than a request has",
        claim(exactly(selectors=[cel(_DRIVER)] * 33)),
        (f"error invalidList {_EXACT}.selectors",),
    ),
    Case(
        "more selectors than an alternative has",
        claim(first(sub("small", selectors=[cel(_DRIVER)] * 33))),
        (f"error invalidList {_REQUESTS}[0].firstAvailable[0].selectors",),
    ),
    Case(
        "more alternatives in a constraint than there may be requests",
        claim(
            *(first(*(sub(f"a{i}") for i in range(8)), name=f"r{j}") for j in range(5)),
            constraints=[
                {"requests": [f"r{i // 8}/a{i % 8}" for i in range(33)], **_ALIGNED},
            ],
        ),
        ("error invalidList spec.devices.constraints[0].requests",),
    ),
    Case(
        "a configuration of nothing",
        claim(exactly(), config=[{}]),
        ("error invalidList spec.devices.config[0].opaque",),
    ),
    Case(
        "two faults at once",
        claim(
            exactly(tolerations=[_TAINT] * 17, capacity={"requests": {"memory": "-1"}}),
        ),
        (
            f"error tooManyTolerations {_EXACT}.tolerations",
            f"error negativeCapacity {_EXACT}.capacity.requests[memory]",
        ),
    ),
    Case(
        "a template with a fault",
        template(exactly(count=33)),
        ("error tooManyDevices spec.spec.devices.requests",),
    ),
    Case("a template", template(exactly())),
)

_SELECTOR: Final = f"{_EXACT}.selectors[0].cel.expression"


def _selecting(expression: str) -> Document:
    return claim(exactly(selectors=[cel(expression)]))


_MODEL: Final = 'device.attributes["gpu.nvidia.com"].productName'

SELECTORS: Final = (
    Case(
        "a selector that does not parse",
        _selecting('device.driver == "a" &&'),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "attributes that are not below device",
        _selecting('attributes["gpu.nvidia.com"].profile == "1g.5gb"'),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "a text that is no answer",
        _selecting("device.driver"),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "quantities compared as numbers",
        _selecting('device.capacity["gpu.nvidia.com"].memory >= quantity("1Gi")'),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "quantities compared as quantities",
        _selecting('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Gi")) >= 0'),
    ),
    Case(
        "a pattern of counted repetition",
        _selecting(f"{_MODEL}.matches('(\\\\pL|.){{0,700}}c')"),
        (f"warning notEvaluated {_SELECTOR}",),
    ),
    Case(
        "a pattern that is computed",
        _selecting(f"{_MODEL}.matches({_MODEL})"),
        (f"warning notEvaluated {_SELECTOR}",),
    ),
    Case("a short pattern", _selecting(f"{_MODEL}.matches('(?i)^NVIDIA [AH]100')")),
    Case(
        "the device's name",
        _selecting('device.name == "gpu-0"'),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "an attribute by its qualified name, in the API's spelling",
        claim(
            exactly(selectors=[cel('device.attributes["gpu.nvidia.com/model"].string == "A100"')])
        ),
        (f"error unknownAttributeMember {_SELECTOR}",),
    ),
    Case(
        "an attribute by its qualified name",
        claim(exactly(selectors=[cel('device.attributes["gpu.nvidia.com/model"] == "A100"')])),
        (f"error invalidSelector {_SELECTOR}",),
    ),
    Case(
        "the member of the API's value",
        _selecting('device.attributes["gpu.nvidia.com"].profile.string == "1g.5gb"'),
        (f"error unknownAttributeMember {_SELECTOR}",),
    ),
    Case(
        "the member of the API's value, by index",
        _selecting('device.attributes["gpu.nvidia.com"]["index"].int == 0'),
        (
            f"error unknownAttributeMember {_SELECTOR}",
            f"warning retiredAttribute {_SELECTOR}",
        ),
    ),
    Case(
        "an attribute whose name begins like a member",
        _selecting('device.attributes["gpu.nvidia.com"].stringent == "x"'),
    ),
    Case(
        "a method that is called like a member",
        _selecting('device.attributes["a.example.com"].x.startsWith("int")'),
    ),
    Case(
        "an attribute that is no longer published",
        _selecting('device.attributes["gpu.nvidia.com"].minor == 0'),
        (f"warning retiredAttribute {_SELECTOR}",),
    ),
    Case(
        "an attribute that is no longer published, if it is there",
        _selecting('device.attributes["gpu.nvidia.com"].?parentIndex.orValue(0) == 0'),
        (f"warning retiredAttribute {_SELECTOR}",),
    ),
    Case(
        "another domain's attribute of the same name",
        _selecting('device.attributes["gpu.example.com"].index == 0'),
    ),
    Case(
        "an attribute whose name begins like one that is retired",
        _selecting('device.attributes["gpu.nvidia.com"].minority == 0'),
    ),
    Case("a boolean attribute", _selecting('device.attributes["dra.net"].rdma')),
    Case(
        "a function that our engine has not, and upstream has",
        _selecting('ip("10.0.0.1").family() == 4'),
    ),
)

_PARAMETERS: Final = "spec.devices.config[0].opaque.parameters"

CONFIGS: Final = (
    Case(
        "time slicing",
        claim(
            exactly(),
            config=[
                config(
                    gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"}),
                    "gpu",
                )
            ],
        ),
    ),
    Case(
        "MPS with limits",
        claim(
            exactly(),
            config=[
                config(
                    gpu_config(
                        strategy="MPS",
                        mpsConfig={
                            "defaultActiveThreadPercentage": 50,
                            "defaultPinnedDeviceMemoryLimit": "10Gi",
                            "defaultPerDevicePinnedMemoryLimit": {"0": "4Gi"},
                        },
                    )
                )
            ],
        ),
    ),
    Case(
        "a limit that is a number of bytes",
        claim(
            exactly(),
            config=[
                config(
                    gpu_config(
                        strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": 2097152.5}
                    )
                )
            ],
        ),
    ),
    Case(
        "parameters that are null, which are absent",
        claim(exactly(), config=[config(gpu_config(strategy="MPS", mpsConfig=None))]),
    ),
    Case(
        "another driver's parameters",
        claim(exactly(), config=[config({"interface": {"name": "eth1"}}, driver="dra.net")]),
    ),
    Case(
        "our own driver's parameters",
        claim(exactly(), config=[config(device_config(timeSlice="Long"), driver=OWN_DRIVER)]),
    ),
    Case(
        "an unknown field of our own driver",
        claim(exactly(), config=[config(device_config(timeslice="Long"), driver=OWN_DRIVER)]),
        (f"error invalidConfig {_PARAMETERS}.sharing.timeslice",),
    ),
    Case(
        "an unknown value of our own driver",
        claim(exactly(), config=[config(device_config(timeSlice="Forever"), driver=OWN_DRIVER)]),
        (f"error invalidConfig {_PARAMETERS}.sharing.timeSlice",),
    ),
    Case(
        "a later version of a known driver",
        claim(
            exactly(),
            config=[config({"apiVersion": "resource.nvidia.com/v1", "kind": "GpuConfig"})],
        ),
    ),
    *(
        Case(
            name,
            claim(exactly(), config=[config(parameters)]),
            (f"error invalidConfig {_PARAMETERS}{path}",),
        )
        for name, parameters, path in (
            ("parameters without a kind", {"sharing": {}}, ""),
            ("a kind that the driver has not", {"apiVersion": NVIDIA_CONFIG, "kind": "X"}, ".kind"),
            (
                "another group",
                {"apiVersion": "gpu.nvidia.com/v1", "kind": "GpuConfig"},
                ".apiVersion",
            ),
            (
                "an unknown field",
                {"apiVersion": NVIDIA_CONFIG, "kind": "GpuConfig", "share": {}},
                ".share",
            ),
            ("no strategy", gpu_config(), ".sharing.strategy"),
            ("an unknown strategy", gpu_config(strategy="Mps"), ".sharing.strategy"),
            (
                "an unknown interval",
                gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": "long"}),
                ".sharing.timeSlicingConfig.interval",
            ),
            (
                "an empty timeSlicingConfig, which ends the plugin",
                gpu_config(strategy="TimeSlicing", timeSlicingConfig={}),
                ".sharing.timeSlicingConfig.interval",
            ),
            (
                "the configuration of the other strategy",
                gpu_config(strategy="TimeSlicing", mpsConfig={}),
                ".sharing.mpsConfig",
            ),
            (
                "more than all threads",
                gpu_config(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
                ".sharing.mpsConfig.defaultActiveThreadPercentage",
            ),
            (
                "a limit below 1Mi",
                gpu_config(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "1000"}),
                ".sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            ),
            (
                "a number of bytes below 1Mi",
                gpu_config(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": 5}),
                ".sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            ),
            (
                "a percentage with a fraction",
                gpu_config(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 0.5}),
                ".sharing.mpsConfig.defaultActiveThreadPercentage",
            ),
            ("a strategy that is no text", gpu_config(strategy=["MPS"]), ".sharing.strategy"),
            (
                "sharing that is no object",
                {"apiVersion": NVIDIA_CONFIG, "kind": "GpuConfig", "sharing": "MPS"},
                ".sharing",
            ),
            (
                "a limit that is no quantity",
                gpu_config(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "10GB"}),
                ".sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            ),
            (
                "an interval for MIG devices",
                {
                    "apiVersion": NVIDIA_CONFIG,
                    "kind": "MigDeviceConfig",
                    "sharing": {
                        "strategy": "TimeSlicing",
                        "timeSlicingConfig": {"interval": "Long"},
                    },
                },
                ".sharing.timeSlicingConfig",
            ),
            (
                "a policy that VFIO has not",
                {
                    "apiVersion": NVIDIA_CONFIG,
                    "kind": "VfioDeviceConfig",
                    "iommu": {"backendPolicy": "Always"},
                },
                ".iommu.backendPolicy",
            ),
        )
    ),
    Case(
        "the example driver's parameters",
        claim(
            exactly(deviceClassName=EXAMPLE),
            config=[
                config(
                    {
                        "apiVersion": "gpu.resource.example.com/v1alpha1",
                        "kind": "GpuConfig",
                        "sharing": {
                            "strategy": "SpacePartitioning",
                            "spacePartitioningConfig": {"partitionCount": -1},
                        },
                    },
                    driver=EXAMPLE,
                )
            ],
        ),
        (f"error invalidConfig {_PARAMETERS}.sharing.spacePartitioningConfig.partitionCount",),
    ),
    Case(
        "a configuration that its driver does not find",
        claim(
            first(sub("large"), sub("small")), config=[config(gpu_config(strategy="MPS"), "gpu")]
        ),
        ("warning configNotApplied spec.devices.config[0].requests[0]",),
    ),
    Case(
        "a configuration for each alternative",
        claim(
            first(sub("large"), sub("small")),
            config=[config(gpu_config(strategy="MPS"), "gpu/large", "gpu/small")],
        ),
    ),
)

CLASSES: Final = (
    Case("a class", device_class(_DRIVER)),
    Case("a class with a strategy", annotated_document(device_class(_DRIVER), " BestFit ")),
    Case(
        "a class with a strategy that does not exist",
        annotated_document(device_class(_DRIVER), ""),
        ("warning unknownStrategy metadata.annotations[drawbridge.internal/strategy]",),
    ),
    Case("a class of two selectors", device_class(_DRIVER, _MIG)),
    Case(
        "a class with an extended resource", device_class(_DRIVER, extendedResourceName="a.b/gpu")
    ),
    Case(
        "a class that does not parse",
        device_class(f"{_DRIVER})"),
        ("error invalidSelector spec.selectors[0].cel.expression",),
    ),
    Case(
        "a class whose pattern costs too much",
        device_class(f"{_DRIVER} && {_MODEL}.matches('.{{1000}}')"),
        ("warning notEvaluated spec.selectors[0].cel.expression",),
    ),
    Case(
        "a class that asks for a member",
        device_class(f'{_DRIVER} && device.attributes["gpu.nvidia.com"].type.string == "gpu"'),
        ("error unknownAttributeMember spec.selectors[0].cel.expression",),
    ),
    Case(
        "a class that fails on other drivers' devices",
        device_class(_MIG),
        ("warning unguardedSelector spec.selectors[0].cel.expression",),
    ),
    Case(
        "a class that asks for the driver too late",
        device_class(_MIG, _DRIVER),
        ("warning unguardedSelector spec.selectors[0].cel.expression",),
    ),
    Case(
        "a class that asks whether it is there",
        device_class('device.attributes["gpu.nvidia.com"].?profile.orValue("") == "1g.5gb"'),
    ),
    Case(
        "a class that asks for what is no longer published",
        device_class(f'{_DRIVER} && device.attributes["gpu.nvidia.com"].index == 0'),
        ("warning retiredAttribute spec.selectors[0].cel.expression",),
    ),
    Case("a class of everything", device_class(), ("warning selectsEverything spec.selectors",)),
    Case(
        "a class with parameters that its driver refuses",
        device_class(_DRIVER, config=[{"opaque": opaque(gpu_config(strategy="Fabric"))}]),
        ("error invalidConfig spec.config[0].opaque.parameters.sharing.strategy",),
    ),
    Case(
        "an extended resource without a domain",
        device_class(_DRIVER, extendedResourceName="gpu"),
        ("error invalidExtendedResource spec.extendedResourceName",),
    ),
    Case(
        "an extended resource of Kubernetes itself",
        device_class(_DRIVER, extendedResourceName="kubernetes.io/gpu"),
        ("error invalidExtendedResource spec.extendedResourceName",),
    ),
    Case(
        "an extended resource with an empty part of its domain",
        device_class(_DRIVER, extendedResourceName="a..b/x"),
        ("error invalidExtendedResource spec.extendedResourceName",),
    ),
    Case(
        "an extended resource with a hyphen before a part of its domain",
        device_class(_DRIVER, extendedResourceName="a.-b/x"),
        ("error invalidExtendedResource spec.extendedResourceName",),
    ),
    Case(
        "an extended resource with a domain that no quota could name",
        device_class(_DRIVER, extendedResourceName=f"{'a' * 245}/x"),
        ("error invalidExtendedResource spec.extendedResourceName",),
    ),
    Case(
        "an extended resource with the longest domain",
        device_class(_DRIVER, extendedResourceName=f"{'a' * 244}/{'X' * 63}"),
    ),
    Case(
        "a class in upper case",
        {**device_class(_DRIVER), "metadata": {"name": "GPU"}},
        ("error invalidName metadata.name",),
    ),
    Case(
        "a class with a driver with an underscore",
        device_class(_DRIVER, config=[{"opaque": opaque({"a": 1}, "a_b")}]),
        ("error invalidName spec.config[0].opaque.driver",),
    ),
    Case(
        "a class with a configuration of nothing",
        device_class(_DRIVER, config=[{}]),
        ("error invalidList spec.config[0].opaque",),
    ),
    Case(
        "a class of more selectors than there may be",
        device_class(*[_DRIVER] * 33),
        ("error invalidList spec.selectors",),
    ),
    Case(
        "a class of more configurations than there may be",
        device_class(_DRIVER, config=[{"opaque": opaque({"a": 1}, "a.b")}] * 33),
        ("error invalidList spec.config",),
    ),
)

_DEVICE: Final = "spec.devices[0]"
_SHARED: Final[Document] = {"allowMultipleAllocations": True}
_TERM: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_NEAR: Final = {"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}

SLICES: Final = (
    Case("a slice", resource_slice(device(**attributes(model="A100", index=0, good=True)))),
    Case(
        "counters",
        resource_slice(sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}]),
    ),
    Case(
        "a request policy",
        resource_slice(
            device(
                **_SHARED,
                capacity={
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {
                            "default": "1Gi",
                            "validRange": {"min": "1Gi", "step": "1Gi"},
                        },
                    }
                },
            )
        ),
    ),
    Case(
        "a device on nodes of one term",
        resource_slice(
            device(nodeSelector={"nodeSelectorTerms": [_TERM]}), perDeviceNodeSelection=True
        ),
    ),
    Case(
        "a slice of two places",
        resource_slice(device(), nodeName="node-a", allNodes=True),
        ("error invalidSlice spec",),
    ),
    Case(
        "nodes of an operator that is none",
        resource_slice(device(), nodeSelector={"nodeSelectorTerms": [_NEAR]}),
        ("error invalidSlice spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator",),
    ),
    Case(
        "a device on nodes of an operator that is none",
        resource_slice(
            device(nodeSelector={"nodeSelectorTerms": [_NEAR]}), perDeviceNodeSelection=True
        ),
        (
            f"error invalidSlice {_DEVICE}.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
    ),
    Case(
        "devices and counters",
        resource_slice(device(), sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}]),
        ("error invalidSlice spec",),
    ),
    Case(
        "an attribute without a value",
        resource_slice(device(attributes={"model": {}})),
        (f"error invalidSlice {_DEVICE}.attributes[model]",),
    ),
    Case(
        "a version with a v",
        resource_slice(device(attributes={"driverVersion": {"version": "v1.2.3"}})),
        (f"error invalidSlice {_DEVICE}.attributes[driverVersion].version",),
    ),
    Case(
        "a device of v1beta1",
        resource_slice(device(basic={"capacity": {}})),
        (f"error removedField {_DEVICE}.basic",),
    ),
    Case(
        "a device that stands twice",
        resource_slice(device(), device()),
        ("error duplicateName spec.devices[1].name",),
    ),
    Case(
        "an attribute of several slashes",
        resource_slice(device(attributes={"a.b/c/d": {"int": 1}})),
        (f"error malformedQualifiedName {_DEVICE}.attributes[a.b/c/d]",),
    ),
    Case(
        "a capacity of several slashes",
        resource_slice(device(capacity={"a.b/c/d": {"value": "1"}})),
        (f"error malformedQualifiedName {_DEVICE}.capacity[a.b/c/d]",),
    ),
    Case(
        "a device on nodes of two terms",
        resource_slice(
            device(nodeSelector={"nodeSelectorTerms": [_TERM, _TERM]}), perDeviceNodeSelection=True
        ),
        (f"error multipleNodeSelectorTerms {_DEVICE}.nodeSelector.nodeSelectorTerms",),
    ),
    Case(
        "a default above the value",
        resource_slice(
            device(**_SHARED, capacity={"m": {"value": "1Gi", "requestPolicy": {"default": "2Gi"}}})
        ),
        (f"warning unsatisfiableRequestPolicy {_DEVICE}.capacity[m].requestPolicy.default",),
    ),
    Case(
        "a default below zero",
        resource_slice(
            device(**_SHARED, capacity={"m": {"value": "1Gi", "requestPolicy": {"default": "-1"}}})
        ),
        (f"error unsatisfiableRequestPolicy {_DEVICE}.capacity[m].requestPolicy.default",),
    ),
    Case(
        "a range that begins below zero",
        resource_slice(
            device(
                **_SHARED,
                capacity={
                    "m": {
                        "value": "1Gi",
                        "requestPolicy": {"default": "0", "validRange": {"min": "-1"}},
                    }
                },
            )
        ),
        (f"warning unsatisfiableRequestPolicy {_DEVICE}.capacity[m].requestPolicy.validRange.min",),
    ),
    Case(
        "a counter set that nobody publishes",
        resource_slice(
            device(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "1"}}}])
        ),
        ("warning unknownCounterSet spec.devices[0].consumesCounters[0].counterSet",),
    ),
)

POLICIES: Final = (
    Case("a policy", policy({"name": "mig", "compatibilityGroups": ["mig"]})),
    Case(
        "two rules of one name",
        policy(
            {"name": "mig", "compatibilityGroups": ["mig"]},
            {"name": "mig", "compatibilityGroups": ["soft"]},
        ),
        ("error duplicateName spec.rules[1].name",),
    ),
    Case(
        "a rule of three groups",
        policy({"name": "mig", "compatibilityGroups": ["a", "b", "c"]}),
        ("error invalidCompatibilityGroups spec.rules[0].compatibilityGroups",),
    ),
    Case(
        "a rule without a word",
        policy({"name": "mig"}),
        ("error emptyRule spec.rules[0]",),
    ),
    Case(
        "a rule that asks for the device itself",
        policy({"name": "mig", "compatibleOnlyWith": cel('self.driver == "a"')}),
        ("error invalidSelector spec.rules[0].compatibleOnlyWith.cel.expression",),
    ),
    Case(
        "a rule whose pattern costs too much",
        policy({"name": "mig", "compatibleOnlyWith": cel(f"{_MODEL}.matches('.{{1000}}')")}),
        ("warning notEvaluated spec.rules[0].compatibleOnlyWith.cel.expression",),
    ),
    Case(
        "a rule that asks for a member",
        policy(
            {
                "name": "mig",
                "compatibleOnlyWith": cel('device.attributes["a.b"].mode.string == "mig"'),
            }
        ),
        ("error unknownAttributeMember spec.rules[0].compatibleOnlyWith.cel.expression",),
    ),
    Case(
        "a rule that refuses devices that accept its own",
        policy(
            {
                "name": "mig",
                "selectors": [cel(_mode("mig"))],
                "compatibleOnlyWith": cel(_mode("mig")),
            },
            {
                "name": "mps",
                "selectors": [cel(_mode("mps"))],
                "compatibleOnlyWith": cel(f"{_mode('mig')} || {_mode('mps')}"),
            },
        ),
        ("warning asymmetricRule spec.rules[0].compatibleOnlyWith.cel.expression",),
    ),
    Case(
        "a rule that selects no device",
        policy(
            {
                "name": "mig",
                "selectors": [cel(f"{_mode('mig')} && {_mode('mps')}")],
                "compatibilityGroups": ["mig"],
            }
        ),
        ("warning neverTrueRule spec.rules[0].selectors[0].cel.expression",),
    ),
    Case(
        "a rule for a misspelt driver",
        policy(
            {
                "name": "mig",
                "selectors": [cel(_mode("mig", domain=f"{EXAMPLE}m"))],
                "compatibilityGroups": ["mig"],
            }
        ),
        ("warning unknownAttribute spec.rules[0].selectors[0].cel.expression",),
    ),
    Case(
        "a rule that accepts a misspelt mode",
        policy(
            {
                "name": "sharing",
                "selectors": [cel(_mode("sharing"))],
                "compatibleOnlyWith": cel(f"{_mode('sharing')} || {_mode('sharring')}"),
            }
        ),
        ("warning unknownLiteral spec.rules[0].compatibleOnlyWith.cel.expression",),
    ),
)

_GPU: Final = {"name": "gpu", "resourceClaimTemplateName": "gpu"}

PODS: Final = (
    Case("a pod without claims", pod()),
    Case("a strategy", annotated_document(pod(), "BestFit")),
    Case(
        "a strategy that does not exist",
        annotated_document(pod(), "binpack"),
        ("warning unknownStrategy metadata.annotations[drawbridge.internal/strategy]",),
    ),
    Case("a pod with a claim", pod(_GPU, uses=({"name": "gpu"},))),
    Case("a pod with a claim that no container uses", pod(_GPU)),
    Case(
        "a claim without a source",
        pod({"name": "gpu"}),
        ("error invalidClaimSource spec.resourceClaims[0]",),
    ),
    Case(
        "a claim with two sources",
        pod({**_GPU, "resourceClaimName": "gpu"}),
        ("error invalidClaimSource spec.resourceClaims[0]",),
    ),
    Case(
        "a claim that stands twice",
        pod(_GPU, _GPU),
        ("error duplicateName spec.resourceClaims[1].name",),
    ),
    Case(
        "a container that uses another claim",
        pod(_GPU, uses=({"name": "gpus"},)),
        ("error unknownClaim spec.containers[0].resources.claims[0].name",),
    ),
)

_LIMIT: Final = "spec.limits[0]"

QUOTAS: Final = (
    Case("a quota", device_quota(limit(perRequest="40Gi", perDevice="20Gi"))),
    Case("a limit of nothing", device_quota(limit("0"))),
    Case(
        "a quota of every measure",
        device_quota(
            limit("4", name="devices", devices={}),
            limit("8", name="claims", claims={}),
            limit(),
            limit("100", name="slices", counter="slices"),
        ),
    ),
    Case("a quota without limits", device_quota(), ("error invalidDeviceQuota spec.limits",)),
    Case(
        "a limit without a measure",
        device_quota({"name": "memory", "driver": EXAMPLE, "max": "1"}),
        (f"error invalidDeviceQuota {_LIMIT}",),
    ),
    Case(
        "a limit of two measures",
        device_quota(limit(devices={}, capacity="memory")),
        (f"error invalidDeviceQuota {_LIMIT}",),
    ),
    Case(
        "a threshold that is no percentage",
        device_quota(limit(alertThresholdPercent=101)),
        (f"error invalidDeviceQuota {_LIMIT}.alertThresholdPercent",),
    ),
    Case(
        "less than nothing",
        device_quota(limit("-1", perRequest="-2")),
        (
            f"error invalidDeviceQuota {_LIMIT}.max",
            f"error invalidDeviceQuota {_LIMIT}.perRequest",
        ),
    ),
    Case(
        "two limits of one name",
        device_quota(limit(), limit("4", devices={})),
        ("error duplicateName spec.limits[1].name",),
    ),
    Case(
        "a selector of a limit that does not compile",
        device_quota(limit(selectors=[cel("true"), cel('dev.driver == "a"')])),
        (f"error invalidSelector {_LIMIT}.selectors[1].cel.expression",),
    ),
    Case(
        "a cap for a request above the whole",
        device_quota(limit(perRequest="81Gi")),
        (f"warning capAboveMax {_LIMIT}.perRequest",),
    ),
    Case(
        "a cap for a device above that for a request",
        device_quota(limit(perRequest="20Gi", perDevice="30Gi")),
        (f"warning capAboveMax {_LIMIT}.perDevice",),
    ),
    Case("caps of the whole", device_quota(limit(perRequest="80Gi", perDevice="80Gi"))),
    Case(
        "two limits that count the same",
        device_quota(limit(), limit("40Gi", name="again", capacity=f"{EXAMPLE}/memory")),
        ("warning duplicateLimit spec.limits[1]",),
    ),
    Case(
        "two limits of different devices",
        device_quota(limit(), limit("40Gi", name="large", selectors=[cel("true")])),
    ),
)

_POOL: Final = "spec.drivers[0].pools[0]"
_EXPRESSION: Final = f"{_POOL}.nodeSelector.matchExpressions[0]"


def _nodes_where(**requirement: Any) -> Document:
    return {"name": "x", "nodeSelector": {"matchExpressions": [{"key": "pool", **requirement}]}}


OWNERSHIPS: Final = (
    Case("no driver", ownership()),
    Case("a driver without settings", ownership(owned())),
    Case(
        "pools with all settings",
        ownership(
            owned(
                nodes_of(
                    "a",
                    maxConsumersPerNode=0,
                    maxConsumersPerDevice=65536,
                    capacityWeights={"memory": 3},
                    defaultStrategy="CompactFirst",
                ),
                _nodes_where(operator="In", values=["b", "c"]),
                nodes_of(None),
            ),
            owned(nodes_of("a"), name="nic.example.com"),
        ),
    ),
    Case(
        "another name",
        ownership(owned(), name="other"),
        ("error invalidAllocatorOwnership metadata.name",),
    ),
    Case(
        "limits outside of their range",
        ownership(owned(nodes_of("a", maxConsumersPerNode=65537), maxConsumersPerDevice=-1)),
        (
            "error invalidAllocatorOwnership spec.drivers[0].maxConsumersPerDevice",
            f"error invalidAllocatorOwnership {_POOL}.maxConsumersPerNode",
        ),
    ),
    Case(
        "an operator that does not exist",
        ownership(owned(_nodes_where(operator="Gt", values=["1"]))),
        (f"error invalidAllocatorOwnership {_EXPRESSION}.operator",),
    ),
    Case(
        "an operator without values",
        ownership(owned(_nodes_where(operator="In"))),
        (f"error invalidAllocatorOwnership {_EXPRESSION}.values",),
    ),
    Case(
        "an operator with values",
        ownership(owned(_nodes_where(operator="Exists", values=["a"]))),
        (f"error invalidAllocatorOwnership {_EXPRESSION}.values",),
    ),
    Case(
        "a label without a name",
        ownership(owned(_nodes_where(key="", operator="Exists"))),
        (f"error invalidAllocatorOwnership {_EXPRESSION}.key",),
    ),
    Case(
        "more pools than there may be",
        ownership(owned(*(nodes_of(f"p{number}") for number in range(17)))),
        ("error invalidAllocatorOwnership spec.drivers[0].pools",),
    ),
    Case(
        "two drivers of one name",
        ownership(owned(), owned()),
        ("error duplicateName spec.drivers[1].name",),
    ),
    Case(
        "two pools of one name",
        ownership(owned(nodes_of("a"), nodes_of("b", name="a"))),
        ("error duplicateName spec.drivers[0].pools[1].name",),
    ),
    Case(
        "a strategy that does not exist",
        ownership(owned(nodes_of("a", defaultStrategy="binpack"))),
        (f"error unknownStrategy {_POOL}.defaultStrategy",),
    ),
    Case(
        "a pool behind one of all nodes",
        ownership(owned(nodes_of(None), nodes_of("a"))),
        ("warning shadowedPool spec.drivers[0].pools[1]",),
    ),
    Case(
        "a pool behind one with fewer conditions",
        ownership(
            owned(
                nodes_of("a"),
                {"name": "x", "nodeSelector": {"matchLabels": {"pool": "a", "zone": "1"}}},
            )
        ),
        ("warning shadowedPool spec.drivers[0].pools[1]",),
    ),
    Case(
        "the pool of one driver behind that of another",
        ownership(owned(nodes_of(None)), owned(nodes_of("a"), name="nic.example.com")),
    ),
    Case(
        "all faults at once",
        ownership(
            owned(
                nodes_of("a", maxConsumersPerNode=-1, defaultStrategy="x"),
                nodes_of("a", maxConsumersPerDevice=-1),
            )
        ),
        (
            f"error invalidAllocatorOwnership {_POOL}.maxConsumersPerNode",
            "error invalidAllocatorOwnership spec.drivers[0].pools[1].maxConsumersPerDevice",
            "error duplicateName spec.drivers[0].pools[1].name",
            f"error unknownStrategy {_POOL}.defaultStrategy",
            "warning shadowedPool spec.drivers[0].pools[1]",
        ),
    ),
)

ALL: Final = (
    *CLAIMS,
    *SELECTORS,
    *CONFIGS,
    *CLASSES,
    *SLICES,
    *POLICIES,
    *QUOTAS,
    *OWNERSHIPS,
    *PODS,
)
