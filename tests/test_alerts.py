"""Alert rules and the dashboard: each is valid PromQL about metrics that exist, with labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml

from testing.promql import known_metrics, names_in, unknown_names
from tools.dashboard import PATH, dashboard
from tools.public_names import metrics

ROOT: Final = Path(__file__).parent.parent
FILES: Final = sorted((ROOT / "manifests" / "alerts").glob("*.yaml"))
GROUPS: Final[list[dict[str, Any]]] = [
    group
    for file in FILES
    for group in yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["groups"]
]
RULES: Final[list[dict[str, Any]]] = [rule for group in GROUPS for rule in group["rules"]]
RUNBOOKS: Final = ROOT / "docs" / "alerts.md"
METRICS: Final = known_metrics(metrics())


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its expressions."""
    for panel in json.loads(dashboard())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_about_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert unknown_names(rule["expr"], METRICS) == []
    # Labels that a message names survive the expression.
    for text in rule["annotations"].values():
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert unknown_names(f"x{{{label}=''}}", {"x": _labels(rule["expr"])}) == []


def _labels(expression: str) -> frozenset[str]:
    return frozenset(label for name in names_in(expression).metrics for label in METRICS[name])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_the_fields_that_prometheus_reads(rule: dict[str, Any]) -> None:
    assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert promql_parser.parse_duration(rule.get("for", "1s"))


def test_a_group_has_the_fields_that_prometheus_reads() -> None:
    assert [group for group in GROUPS if group.keys() != {"name", "rules"}] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_runbook(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")

    assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert ROOT / page == RUNBOOKS
    assert anchor == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOKS.read_text()


def test_a_runbook_is_of_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)

    assert sorted(sections) == sorted(rule["alert"] for rule in RULES)


def test_names_of_groups_and_alerts_are_unique() -> None:
    for names in ([group["name"] for group in GROUPS], [rule["alert"] for rule in RULES]):
        assert len(names) == len(set(names))


CASES: Final[list[dict[str, Any]]] = yaml.load(
    (ROOT / "tests" / "alerts" / "rules.yaml").read_text(), Loader=yaml.CSafeLoader
)["tests"]
"""The cases of promtool; `make alerts` runs it if it is installed."""


def test_each_alert_fires_once_and_is_silent_once() -> None:
    names = [case["name"] for case in CASES]

    assert sorted(names) == sorted(
        f"{rule['alert']} {what}" for rule in RULES for what in ("fires", "is silent")
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_case_of_promtool_is_about_its_alert(case: dict[str, Any]) -> None:
    alert, _, what = case["name"].partition(" ")
    (rule,) = [rule for rule in RULES if rule["alert"] == alert]
    (query,) = case["promql_expr_test"]

    assert query["expr"] == f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    assert bool(query["exp_samples"]) is (what == "fires")
    for sample in query["exp_samples"]:
        assert f'severity="{rule["labels"]["severity"]}"' in sample["labels"]
    for series in case["input_series"]:
        assert unknown_names(series["series"], METRICS) == []
    # What an alert does not read cannot keep it silent.
    read = names_in(rule["expr"]).metrics
    assert read & {
        name for series in case["input_series"] for name in names_in(series["series"]).metrics
    }


@pytest.mark.parametrize(("title", "expression"), list(queries()))
def test_a_panel_is_about_metrics_that_there_are(title: str, expression: str) -> None:
    assert unknown_names(expression, METRICS) == [], title


def test_the_panels_do_not_overlap_and_their_numbers_are_unique() -> None:
    panels = json.loads(dashboard())["panels"]
    cells = [
        (column, row)
        for panel in panels
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_dashboard_asks_only_the_source_that_a_person_chose() -> None:
    document = json.loads((ROOT / PATH).read_text())

    variable, *choices = document["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    assert {"${datasource}"} == {choice["datasource"]["uid"] for choice in choices}
    for panel in document["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_every_panel_is_about_the_chosen_clusters_and_namespaces() -> None:
    document = json.loads((ROOT / PATH).read_text())
    choices = [entry["name"] for entry in document["templating"]["list"][1:]]
    targets = [target for panel in document["panels"] for target in panel.get("targets", ())]

    assert choices == ["cluster", "namespace"]
    for target in targets:
        series = re.findall(
            r"\b(?:drawbridge|workqueue|controller_runtime|leader_election)_\w+", target["expr"]
        )
        for choice in choices:
            assert target["expr"].count(f'{choice}=~"${choice}"') == len(series) > 0


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("sum(rate(drawbridge_reviews_total[5m]))", []),
        ("sum(rate(drawbridge_review_total[5m]))", ["drawbridge_review_total"]),
        ('drawbridge_reviews_total{verdict="x"}', ["verdict"]),
        ("sum by (decision, host) (drawbridge_reviews_total)", ["host"]),
        ("rate(drawbridge_driver_call_seconds[5m])", ["drawbridge_driver_call_seconds"]),
        ("drawbridge_connections and on (host) drawbridge_reviews_total", ["host"]),
        (
            "drawbridge_reviews_total * on (instance) group_left (host) drawbridge_build_info",
            ["host"],
        ),
        ('{job="drawbridge"}', [""]),
    ],
)
def test_a_wrong_name_is_seen(expression: str, unknown: list[str]) -> None:
    assert unknown_names(expression, METRICS) == unknown


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("sum(rate(drawbridge_reviews_total[5m])", "unclosed left parenthesis"),
        ("sum(rate(drawbridge_reviews_total))", "expected type matrix"),
        ("rate(drawbridge_reviews_total[5mm])", "bad number or duration"),
        ("average(drawbridge_reviews_total)", "unknown function"),
        ("drawbridge_reviews_total{decision=allowed}", "expected string"),
        ('drawbridge_reviews_total{decision=~"("}', "illegal regex"),
        ("drawbridge_reviews_total and 1", "set operator 'and' not allowed"),
    ],
)
def test_what_prometheus_would_reject_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        names_in(expression)
