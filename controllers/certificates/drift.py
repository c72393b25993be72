"""Differences of a webhook configuration from the one that this version would apply. Pure.

caBundles and paths are not compared, since the controller writes them; nor is the address, which an
installation may choose.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission.webhook_configuration import ROUTING_WEBHOOK
from controllers.certificates.patches import Rules

Document = Mapping[str, Any]

_DEFAULTS: Final[Mapping[str, Any]] = {"objectSelector": {}, "reinvocationPolicy": "Never"}
"""The API server's defaults of fields that the manifests leave out."""
_NOT_COMPARED: Final = ("name", "clientConfig", "matchConditions", "rules")


def find_differences(
    stored_configuration: Document | None, expected_configuration: Document, rules: Rules
) -> tuple[str, ...]:
    """Return the differences in words; empty if there are none.

    Args:
        stored_configuration: The configuration; None if it does not exist.
        expected_configuration: The generated configuration.
        rules: Webhook name to its generated rules.
    """
    if stored_configuration is None:
        return ("it does not exist",)
    by_name = {
        webhook.get("name"): webhook for webhook in stored_configuration.get("webhooks") or ()
    }
    differences: list[str] = []
    for webhook in expected_configuration["webhooks"]:
        name = webhook["name"]
        if name in by_name:
            webhook_differences = _webhook_differences(by_name[name], webhook, rules[name])
            differences += (f"{name}: {difference}" for difference in webhook_differences)
        else:
            differences.append(f"{name} is missing")
    return tuple(differences)


def _webhook_differences(
    stored_webhook: Document, expected_webhook: Document, rules: Sequence[Document]
) -> Iterator[str]:
    if not stored_webhook.get("rules") and expected_webhook["name"] == ROUTING_WEBHOOK:
        pass  # So it is while the bridge owns no driver.
    elif not stored_webhook.get("rules"):
        yield "it has no rules, so nothing is sent to it"
    elif stored_webhook["rules"] != rules:
        yield "its rules are not those of this version"
    for field, default in _DEFAULTS.items():
        if field not in expected_webhook and stored_webhook.get(field, default) != default:
            yield f"{field} is set"
    for field, value in expected_webhook.items():
        if field not in _NOT_COMPARED and stored_webhook.get(field) != value:
            yield f"{field} is {_shown_value(stored_webhook.get(field))}, not {_shown_value(value)}"
    yield from _condition_differences(
        _by_name(stored_webhook.get("matchConditions") or ()),
        _by_name(expected_webhook["matchConditions"]),
    )


def _condition_differences(
    stored_expressions: Mapping[str, object], expected_expressions: Mapping[str, object]
) -> Iterator[str]:
    if missing := expected_expressions.keys() - stored_expressions.keys():
        yield f"matchConditions lack {', '.join(sorted(missing))}"
    if others := stored_expressions.keys() - expected_expressions.keys():
        yield f"matchConditions have {', '.join(sorted(others))[:200]}"
    for name in sorted(stored_expressions.keys() & expected_expressions.keys()):
        if stored_expressions[name] != expected_expressions[name]:
            yield (
                f"the expression of the matchCondition {name} is not that of this version and these"
                " settings"
            )


def _by_name(conditions: Sequence[Document]) -> Mapping[str, object]:
    return {str(condition.get("name")): condition.get("expression") for condition in conditions}


def _shown_value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()[:200]
