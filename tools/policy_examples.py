"""Examples of codes about rules and groups: devices of one GPU, and the policy for them."""

from collections.abc import Mapping, Sequence
from typing import Final

from testing.documents import Document
from tools.example_documents import CodeExample, api_object, claim, device_class, in_use

_DRIVER: Final = "gpu.example.com"
_MATRIX: Final = "matrix -f example.yaml"
_MODE: Final = f'device.attributes["{_DRIVER}"].mode'
_SIZE: Final = f'device.attributes["{_DRIVER}"].size'


def _is(mode: str) -> str:
    return f'{_MODE} == "{mode}"'


def _device(
    name: str, mode: str, memory: str = "1", groups: Sequence[str] = (), **attributes: str
) -> Document:
    """Return a device that takes a part of the memory of the GPU."""
    consumption: Document = {"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}
    if groups:
        consumption["compatibilityGroups"] = list(groups)
    texts = {"mode": mode, **attributes}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in texts.items()},
        "consumesCounters": [consumption],
    }


def _slices(*devices: Document) -> tuple[Document, ...]:
    """Return the slices of a GPU with 4 units of memory and these devices."""
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": _DRIVER, "nodeName": "node-a", "pool": pool}
    counters = {"name": "gpu-0", "counters": {"memory": {"value": "4"}}}
    return tuple(
        api_object("resource.k8s.io/v1", "ResourceSlice", {**spec, **content}, name)
        for name, content in (
            ("counters", {"sharedCounters": [counters]}),
            ("devices", {"devices": list(devices)}),
        )
    )


def _policy(**rules: str) -> Document:
    """Return a policy with the devices that each mode accepts."""
    spec = {
        "driver": _DRIVER,
        "rules": [
            {
                "name": mode,
                "selectors": [{"cel": {"expression": _is(mode)}}],
                "compatibleOnlyWith": {"cel": {"expression": accepted}},
            }
            for mode, accepted in rules.items()
        ],
    }
    return api_object("drawbridge.internal/v1alpha1", "DeviceCompatibilityPolicy", spec)


def _rules(name: str, devices: Sequence[Document], *beside: Document, **rules: str) -> CodeExample:
    return CodeExample(
        name, _policy(**rules), (*_slices(*devices), *beside), command=_MATRIX, snapshot=""
    )


def _groups(name: str, *devices: Document) -> CodeExample:
    *others, last = _slices(*devices)
    return CodeExample(name, last, tuple(others), command=_MATRIX, snapshot="")


def _requests_for(*modes: str) -> Document:
    document = claim(_DRIVER)
    requests = [
        {
            "name": mode,
            "exactly": {
                "deviceClassName": _DRIVER,
                "selectors": [{"cel": {"expression": _is(mode)}}],
            },
        }
        for mode in modes
    ]
    return {**document, "spec": {"devices": {"requests": requests}}}


_A: Final = _device("gpu-a", "a")
_B: Final = _device("gpu-b", "b")
_OTHER_A: Final = _device("gpu-a2", "a")
_OTHER_B: Final = _device("gpu-b2", "b")
_SHARED: Final = {**_A, "allowMultipleAllocations": True}

POLICY_EXAMPLES: Final[Mapping[str, CodeExample]] = {
    "ruleInvalid": _rules("an expression that ends too early", (_A, _B), a="device."),
    "ruleNotEvaluated": _rules(
        "a function that Drawbridge does not evaluate", (_A, _B), a='ip("10.0.0.1").family() == 4'
    ),
    "ruleEvaluationError": _rules(
        "an attribute that only some devices have",
        (_A, _B, _device("gpu-c", "c", size="1")),
        a=f'{_SIZE} == "1"',
    ),
    "ruleNotBoolean": _rules(
        "a text where true or false is expected",
        (_A, _OTHER_A, _B),
        a=f"{_is('a')} ? true : {_MODE}",
    ),
    "ruleGroupMismatch": _rules(
        "rules that accept what the groups keep apart",
        (
            _device("gpu-a", "a", groups="x"),
            _device("gpu-b", "b", groups="y"),
            _device("gpu-c", "c", groups="xy"),
        ),
        a="true",
        b="true",
    ),
    "mixedDeclaration": _groups(
        "a device without groups beside two with one",
        _device("gpu-a", "a", groups="x"),
        _device("gpu-b", "b", groups="x"),
        _device("gpu-c", "c"),
    ),
    "nonHellyGroups": _groups(
        "three groups of two devices each",
        _device("gpu-a", "a", groups="xy"),
        _device("gpu-b", "b", groups="yz"),
        _device("gpu-c", "c", groups="xz"),
    ),
    "allocatedSetInconsistent": _rules(
        "two modes in use that do not accept each other",
        (_A, _OTHER_A, _B, _OTHER_B),
        in_use(claim(_DRIVER), "gpu-a", "first"),
        in_use(claim(_DRIVER), "gpu-b", "second"),
        a=_is("a"),
        b=_is("b"),
    ),
    "oneSidedRule": _rules("a mode without a rule", (_A, _OTHER_A, _B), a=_is("a")),
    "exclusiveByRule": _rules("a rule that accepts nothing", (_A, _B), a="false", b=_is("b")),
    "lonelyGroup": _groups(
        "a group of one device",
        _device("gpu-a", "a", groups="x"),
        _device("gpu-b", "b", groups="xy"),
    ),
    "fullDevice": _rules("a device with all of the memory", (_device("gpu-a", "a", "4"),)),
    "selfRejectingShare": _rules(
        "a shared device that accepts only others", (_SHARED, _B), a=_is("b"), b="true"
    ),
    "neverCoFit": _rules(
        "two devices of three quarters of the memory",
        (_device("gpu-a", "a", "3"), _device("gpu-b", "b", "3")),
        a="true",
        b="true",
    ),
    "incompatibleModes": CodeExample(
        "one claim for two modes of one GPU",
        _requests_for("a", "b"),
        (device_class(_DRIVER, _DRIVER), *_slices(_A, _B), _policy(a=_is("a"), b=_is("b"))),
        command="check -f example.yaml --policy-aware-scheduler default-scheduler",
        snapshot="",
    ),
}
"""Code to the manifest that yields it; most need no cluster but their own slices."""
