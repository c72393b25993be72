"""Ours grants the same as a legacy scheduler, or a finding explains the difference."""

from typing import Final

import pytest

from testing.legacy import Scenario, legacy_grant, read_scenarios, run_scenario

FILES: Final = {name: read_scenarios(f"{name}.yaml") for name in ("hami", "koordinator")}
SCENARIOS: Final = [
    pytest.param(scenario, file.driver, id=f"{name}: {scenario.name}")
    for name, file in FILES.items()
    for scenario in file.scenarios
]


@pytest.mark.parametrize(("scenario", "driver"), SCENARIOS)
def test_ours_grants_the_same_or_says_why_not(scenario: Scenario, driver: str) -> None:
    texts: set[str] = set()
    for index, (pod, result) in enumerate(
        zip(scenario.pods, run_scenario(scenario, driver), strict=True)
    ):
        texts |= result.codes
        want = legacy_grant(pod)
        if pod.better:
            assert want is None, f"pod {index} is granted"
            assert result.grant is not None, f"pod {index} no longer differs"
        elif pod.findings:
            assert want != result.grant, f"pod {index} no longer differs"
            assert texts >= set(pod.findings), f"pod {index}"
        else:
            assert want == result.grant, f"pod {index}: {sorted(result.codes)}"


def test_there_are_scenarios_of_both() -> None:
    names = [(name, scenario.name) for name, file in FILES.items() for scenario in file.scenarios]

    assert len(names) >= 150
    assert len(names) == len(set(names))
