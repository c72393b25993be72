"""Variables that a container already sets to another value than the translation would."""

from collections.abc import Iterator

from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.preflight.model.inputs import PreflightInput


def check_existing_variables(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each variable that a container already sets to another value."""
    environments = {container.name: container.environment for container in inputs.legacy.containers}
    for variable in inputs.variables:
        existing = environments[variable.container].get(variable.name, variable.value)
        if existing != variable.value:
            yield warning(
                Code.EXISTING_VALUE_KEPT,
                variable.path,
                f"{variable.name} is not set to {variable.value}: the container's own value "
                f"{quote_text(existing)} is kept",
            )
