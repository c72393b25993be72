"""Random scenarios for the allocator: the question `allocate` of the Go oracle, as plain dicts.

`scenario` makes one from a source of chance; `seeded(n)` is the n-th of the fixed sample, the same
on every machine; `scenarios()` is the strategy for hypothesis. A scenario has a small cluster and one
to four themes (themes/), so every feature is met alone and together with each other.
"""

from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from testing.oracle.draft import Draft
from testing.oracle.themes import THEMES

Scenario = dict[str, Any]

MAX_STEPS: Final = 5_000
"""The steps after which upstream's search is cut off: nobody learns from a search that is merely long."""

ALPHA_GATES: Final = (
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
)
"""The feature gates of upstream's experimental implementation only."""

_BETA_GATES: Final = ("DRAConsumableCapacity", "DRADeviceBindingConditions")


def scenario(rng: Random) -> Scenario:
    """Return a scenario; the same chance gives the same one."""
    draft = Draft(rng)
    draft.build()
    themes = rng.choices(
        list(THEMES), list(THEMES.values()), k=draft.weighted({1: 10, 2: 30, 3: 35, 4: 25})
    )
    for theme in THEMES:
        if theme in themes:
            theme(draft)
    slices = list(draft.slices())
    rng.shuffle(slices)
    scenario = {
        "features": draft.gates,
        "slices": slices,
        "classes": draft.classes,
        "allocated": draft.allocated,
        "claims": draft.claims,
        "nodes": draft.nodes,
        "maxSteps": MAX_STEPS,
    }
    if draft.taint_rules:
        scenario["taintRules"] = draft.taint_rules
    return scenario | _implementation(draft)


def _implementation(draft: Draft) -> Scenario:
    """Force an implementation now and then, and never leave it to the stable one: it has no order."""
    gates = draft.gates
    if any(gates.get(name) for name in ALPHA_GATES):
        return draft.pick(({}, {"implementation": "experimental"}))
    if not any(gates.get(name, True) for name in _BETA_GATES):
        return {"implementation": "incubating"}
    # With the gate off, the two differ in what nobody can publish then.
    if any("skipNodeOperations" in slice_["spec"] for slice_ in draft.slices()):
        return {}
    return draft.pick(({}, {}, {"implementation": "experimental"}))


def seeded_document(seed: int) -> Scenario:
    """Return the scenario of a number."""
    return scenario(Random(seed))


def scenarios() -> st.SearchStrategy[Scenario]:
    """Scenarios for hypothesis; it shrinks the chance that they are made of."""
    return st.randoms(use_true_random=False).map(scenario)
