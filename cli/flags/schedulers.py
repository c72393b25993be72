"""`--policy-aware-scheduler`: the schedulers that evaluate DeviceCompatibilityPolicies."""

from typing import Any

import click


def policy_aware_schedulers(command: Any) -> Any:
    """Give a command `--policy-aware-scheduler` as `schedulers`."""
    return click.option(
        "--policy-aware-scheduler",
        "schedulers",
        multiple=True,
        metavar="NAME",
        help="A scheduler that evaluates DeviceCompatibilityPolicies; policies are ignored for pods "
        "of others, as kube-scheduler does. Repeatable.",
    )(command)
