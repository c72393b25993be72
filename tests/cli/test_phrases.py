"""Claims in words: every form that the compiler writes, and some that it does not."""

from typing import Any

import pytest

from cli.output.phrases import condition, requests

D = 'device.attributes["a.b"]'


@pytest.mark.parametrize(
    ("want", "expression"),
    [
        ("profile is 1g.5gb", f'"profile" in {D} && {D}.profile == "1g.5gb"'),
        ("model contains a100", f'"model" in {D} && ({D}.model.lowerAscii().contains("a100"))'),
        ('model contains a\\"b', f'"model" in {D} && {D}.model.lowerAscii().contains("a\\"b")'),
        (
            "model does not contain a or b",
            (
                f'!("model" in {D} && ({D}.model.lowerAscii().contains("a") || '
                f'{D}.model.lowerAscii().contains("b")))'
            ),
        ),
        ("uuid is GPU-1 or GPU-2", f'"uuid" in {D} && {D}.uuid in ["GPU-1", "GPU-2"]'),
        ("uuid is not GPU-1", f'!("uuid" in {D} && {D}.uuid in ["GPU-1"])'),
        ("rdma is true", f'"rdma" in {D} && {D}.rdma == true'),
        ("numaNode is 1", f'"numaNode" in {D} && {D}.numaNode == 1'),
        (
            "short is a or full is b/a",
            f'("short" in {D} && {D}.short == "a") || ("full" in {D} && {D}.full == "b/a")',
        ),
        ("it has no partition", f'!("partition" in {D})'),
        (
            "memory is at least 8Gi",
            (
                '"memory" in device.capacity["a.b"] && '
                'device.capacity["a.b"].memory.compareTo(quantity("8Gi")) >= 0'
            ),
        ),
        (f"{D}.index > 3", f"{D}.index > 3"),
    ],
)
def test_condition(want: str, expression: str) -> None:
    assert want == condition(expression)


def test_constraints_and_configuration_stand_behind_their_request() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}
    devices: dict[str, Any] = {
        "requests": [
            {"name": "a", "exactly": exact_request},
            {"name": "b", "exactly": exact_request},
        ],
        "constraints": [
            {"requests": ["a"], "distinctAttribute": "d/uuid"},
            {"matchAttribute": "resource.kubernetes.io/numaNode"},
        ],
        "config": [{"requests": ["b"], "opaque": {"driver": "d", "parameters": {"kind": "K"}}}],
    }

    phrases_by_request = dict(requests({"devices": devices}))

    assert phrases_by_request == {
        "a": "2 devices of class c; with different uuid; with the same numaNode",
        "b": "2 devices of class c; with the same numaNode; K {}",
    }


def test_all_devices_of_a_node_are_no_number() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "All"}

    (request,) = requests({"devices": {"requests": [{"name": "a", "exactly": exact_request}]}})

    assert request == ("a", "all devices of a node of class c")


def test_constraints_name_the_requests_beside() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    ways = [exact_request | {"name": "aligned"}, exact_request | {"name": "any"}]
    devices: dict[str, Any] = {
        "requests": [
            {"name": "a", "exactly": exact_request},
            {"name": "b", "exactly": exact_request},
            {"name": "c", "firstAvailable": ways},
            {"name": "d", "firstAvailable": ways},
        ],
        "constraints": [
            {"requests": ["a", "b"], "matchAttribute": "k/pcieRoot"},
            {"requests": ["c", "d"], "distinctAttribute": "d/uuid"},
            {"requests": ["c/aligned", "d/aligned"], "matchAttribute": "k/pcieRoot"},
        ],
    }

    phrases_by_request = dict(requests({"devices": devices}))

    assert "1 device of class c; with the same pcieRoot as b" == phrases_by_request["a"]
    assert (
        "1 device of class c; with different uuid, also from d; "
        "if possible with the same pcieRoot as d"
    ) == phrases_by_request["c"]
