"""Feature gates against those of the API server."""

from allocator.model.feature_gates import Features
from allocator.model.gate_metrics import parse_gates
from sidecar.ownership.gates import compare_gates

METRICS = """\
# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage of a feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 0
kubernetes_feature_enabled{name="DRADeviceCompatibilityGroups",stage="ALPHA"} 1
kubernetes_feature_enabled{name="DRAAdminAccess",stage=""} 1
kubernetes_feature_enabled{name="AnotherOfKubernetes",stage="ALPHA"} 1
apiserver_request_total{code="200"} 7
"""


def test_the_gates_that_differ_are_named_with_both_sides() -> None:
    problem = compare_gates(Features(), parse_gates(METRICS))

    assert "DRAConsumableCapacity is on here and off there" in problem
    assert "DRADeviceCompatibilityGroups is off here and on there" in problem
    assert "DRAAdminAccess" not in problem
    assert "AnotherOfKubernetes" not in problem


def test_gates_that_the_api_server_does_not_tell_do_not_count() -> None:
    assert compare_gates(Features(), {}) == ""
    agreed = Features(consumable_capacity=False, compatibility_groups=True)
    assert compare_gates(agreed, parse_gates(METRICS)) == ""
