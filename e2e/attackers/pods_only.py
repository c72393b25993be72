"""Attackers with the right to create pods in one namespace, and no other."""

import itertools
import random
import uuid
from collections.abc import Iterator

from e2e.attackers.target import DRY_RUN, Target, text
from e2e.objects import pod
from e2e.users import PODS_ONLY


def pods_of_4_kb(target: Target, chance: random.Random) -> Iterator[int]:
    """Create pods in dry runs with derived selectors that name a hundred devices, others each time (S1).

    Routing evaluated them on every device, one after the other.
    """
    with target.caller(PODS_ONLY) as caller:
        for number in itertools.count():
            names = (uuid.UUID(int=chance.getrandbits(128)) for _ in range(100))
            document = pod(
                f"hostile-{number}",
                limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000},
                annotations={"nvidia.com/use-gpuuuid": ",".join(f"GPU-{name}" for name in names)},
            )
            yield caller.post(target.path("pods") + DRY_RUN, document)


def pods_of_nothing(target: Target, chance: random.Random) -> Iterator[int]:
    """Create pods in dry runs that name missing claims and templates (S1).

    Routing waits a moment for each of them.
    """
    with target.caller(PODS_ONLY) as caller:
        for number in itertools.count():
            document = pod(f"hostile-{number}")
            document["spec"]["resourceClaims"] = [
                {"name": f"c{source}", kind: f"none-{text(chance, 12)}"}
                for source, kind in enumerate(
                    ("resourceClaimName", "resourceClaimTemplateName") * 8
                )
            ]
            yield caller.post(target.path("pods") + DRY_RUN, document)
