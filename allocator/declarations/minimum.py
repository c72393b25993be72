"""The number of pods that a gang of another scheduler needs, as its pods and its own PodGroup say.

The bridge has one number where they disagree, that of the first pod, since pods are denied or told by it. Other
schedulers take the PodGroup's, or whichever they see first.
"""

from collections.abc import Iterable

import msgspec

from allocator.declarations.pod_group import PodGroup


class GangMinimum(msgspec.Struct, frozen=True, kw_only=True):
    """All that tells the number of pods of a gang.

    Attributes:
        number: The number that counts in the bridge; None where nothing tells one.
        of_pods: The numbers that pods declare, each once, in ascending order.
        of_object: The number that the gang's own PodGroup names; None where it names none.
    """

    number: int | None
    of_pods: tuple[int, ...]
    of_object: int | None

    @property
    def is_disputed(self) -> bool:
        """Return True if two numbers are told."""
        return len({*self.of_pods, self.of_object} - {None}) > 1


def gang_minimum(declared: Iterable[int | None], object_: PodGroup | None) -> GangMinimum:
    """Return the number of pods that a gang needs.

    Args:
        declared: The numbers of its pods, in the order of their creation; None for a pod that declares none.
        object_: The PodGroup of the gang's own scheduler, which needs one pod if it names no number; None where
            there is none.
    """
    numbers = [number for number in declared if number is not None]
    of_object = object_.spec.min_member if object_ is not None else None
    number = of_object if object_ is None or of_object is not None else 1
    return GangMinimum(
        number=numbers[0] if numbers else number,
        of_pods=tuple(sorted(set(numbers))),
        of_object=of_object,
    )
