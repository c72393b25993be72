"""Attackers with the ClusterRole `edit` in one namespace; it contains claims and templates."""

import http.client
import itertools
import random
from collections.abc import Iterator

from e2e.attackers import expressions
from e2e.attackers.target import DRY_RUN, Target, claim, text
from e2e.objects import pod
from e2e.users import EDITOR


def long_claims(target: Target, chance: random.Random) -> Iterator[int]:
    """Create claims of 32 requests in dry runs, each request with a selector of 9.7 KB (C1, S2)."""
    with target.caller(EDITOR) as caller:
        while True:
            selectors = [[expressions.patterns(target.driver, chance)] for _ in range(32)]
            document = claim("hostile", target.device_class, *selectors)
            yield caller.post(target.path("resourceclaims") + DRY_RUN, document)


def routed_claims(target: Target, chance: random.Random) -> Iterator[int]:
    """Create pods in dry runs that name a claim with 8 selectors of 9.7 KB (S1, S4).

    Its class is by turns that of the owned driver, and one that reaches another, too, so that the selectors
    decide. The claim is another one for each pod.
    """
    with target.caller(EDITOR) as caller:
        for number in itertools.count():
            name = f"hostile-{text(chance, 12)}"
            selectors = [expressions.true_patterns(target.driver, chance) for _ in range(8)]
            device_class = target.mixed_class if number % 2 else target.device_class
            document = claim(name, device_class, selectors)
            status = caller.post(target.path("resourceclaims"), document)
            if status != http.client.CREATED:
                yield status
                continue
            naming = pod(f"hostile-{number}")
            naming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            status = caller.post(target.path("pods") + DRY_RUN, naming)
            caller.request("DELETE", target.path("resourceclaims", name))
            yield status


def long_lists(target: Target, chance: random.Random) -> Iterator[int]:
    """Create claims in dry runs with a selector that copies a list of 4,800 numbers as often (S3).

    Thirty of them within a minute switched off everybody's longer selectors.
    """
    with target.caller(EDITOR) as caller:
        while True:
            document = claim("hostile", target.device_class, [expressions.lists(chance)])
            yield caller.post(target.path("resourceclaims") + DRY_RUN, document)
