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
    told: set[str] = set()
    for index, (asked, got) in enumerate(
        zip(scenario.pods, run_scenario(scenario, driver), strict=True)
    ):
        told |= got.codes
        want = legacy_grant(asked)
        if asked.told:
            assert want != got.grant, f"pod {index} no longer differs"
            assert told >= set(asked.told), f"pod {index}"
        else:
            assert want == got.grant, f"pod {index}: {sorted(got.codes)}"


def test_there_are_scenarios_of_both() -> None:
    names = [(name, scenario.name) for name, file in FILES.items() for scenario in file.scenarios]

    assert len(names) >= 80
    assert len(names) == len(set(names))
