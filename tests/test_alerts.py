"""The alert rules of the bridge: each names metrics that the sidecar has, with labels that they have."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from kube.names import BRIDGE_LEASE
from process.metrics import leader_gauge
from sidecar.metrics import SidecarMetrics
from sidecar.plan.ledger import Step

FILE: Final = Path(__file__).parent.parent / "manifests" / "alerts" / "bridge.yaml"
RULES: Final[list[dict[str, Any]]] = yaml.safe_load(FILE.read_text())["groups"][0]["rules"]
NAME: Final = re.compile(r"\b(?:drawbridge_|leader_election_)\w+")


def exported() -> str:
    """Return the metrics of a sidecar that has done everything once."""
    registry = CollectorRegistry()
    metrics = SidecarMetrics(registry)
    metrics.show_reservations(lambda: 0)
    metrics.show_held_back(lambda: 0)
    for step in Step:
        metrics.show_holds(step, lambda: 0)
    metrics.observe_call("prefilter", "unavailable", 0.1)
    metrics.observe_lag(0.1)
    leader_gauge(registry, BRIDGE_LEASE, lambda: True)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_about_metrics_that_there_are(rule: dict[str, Any]) -> None:
    text = exported()

    names = NAME.findall(rule["expr"])
    assert names
    for name in names:
        assert re.search(rf"^{name}[ {{]", text, re.MULTILINE), name
    for label in re.findall(r'\w+="[^"]+"', rule["expr"]):
        assert label in text
    assert rule["annotations"].keys() == {"summary", "action"}
