"""All strategies by name, and which one an attempt uses."""

from collections.abc import Mapping
from typing import Final

from allocator.strategies.best_fit import BEST_FIT
from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.node_compact_device_low_load import NODE_COMPACT_DEVICE_LOW_LOAD
from allocator.strategies.policy_words import from_hami
from allocator.strategies.strategy import Strategy
from allocator.strategies.topology_packed import TOPOLOGY_PACKED
from kube.errors import FieldError
from kube.product import STRATEGY_ANNOTATION

ALL: Final[tuple[Strategy, ...]] = (
    FIRST_FIT,
    COMPACT_FIRST,
    LOW_LOAD_FIRST,
    NODE_COMPACT_DEVICE_LOW_LOAD,
    TOPOLOGY_PACKED,
    BEST_FIT,
)
"""In the order in which messages and pages list them."""

DEFAULT: Final = FIRST_FIT.name
"""Where nobody chose another: no surprises beside the stock scheduler."""

PATH: Final = f"metadata.annotations[{STRATEGY_ANNOTATION}]"

HAMI_NODE_POLICY: Final = "hami.io/node-scheduler-policy"
HAMI_GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"

_BY_NAME: Final[Mapping[str, Strategy]] = {each.name: each for each in ALL}
_SHOWN: Final = 40


def strategy(name: str, path: str = "strategy") -> Strategy | FieldError:
    """Return the strategy of this name.

    Args:
        path: Where the name was written, for the error.

    >>> strategy("BestFit").name
    'BestFit'
    >>> print(strategy("binpack").message)
    "binpack" is not a strategy
    """
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
    return FieldError(
        path=path,
        message=f'"{shown}" is not a strategy',
        fix=f"one of {', '.join(_BY_NAME)}",
    )


def chosen(
    pod_annotations: Mapping[str, str],
    class_annotations: Mapping[str, Mapping[str, str]],
    default: str = DEFAULT,
) -> str | FieldError:
    """Return the name of the strategy of an attempt.

    The pod's word comes before its DeviceClasses', and theirs before the configuration's. HAMi's
    words on a pod count where ours is absent and they name a strategy; what they lose, and words
    that are none, is the translation's to tell. An
    attempt solves all claims of a pod together, so it has one strategy: of several classes that
    name one, the first counts, in the order in which the pod's claims request them. They cannot
    contradict each other to the pod's harm, since no strategy changes whether it fits.

    Args:
        pod_annotations: Of the pod; empty for a claim without one.
        class_annotations: Class name to annotations, in order of the requests.
        default: The configuration's.

    >>> gpu, nic = {STRATEGY_ANNOTATION: "BestFit"}, {STRATEGY_ANNOTATION: "TopologyPacked"}
    >>> chosen({}, {"gpu": gpu, "nic": nic}), chosen({STRATEGY_ANNOTATION: "FirstFit"}, {"gpu": gpu})
    ('BestFit', 'FirstFit')
    >>> chosen({HAMI_GPU_POLICY: "binpack"}, {"gpu": gpu})
    'CompactFirst'
    """
    word = pod_annotations.get(STRATEGY_ANNOTATION)
    if word is not None:
        return _known(word, PATH)
    meant = from_hami(pod_annotations.get(HAMI_NODE_POLICY), pod_annotations.get(HAMI_GPU_POLICY))
    if meant.strategy is not None:
        return meant.strategy
    for name, annotations in class_annotations.items():
        word = annotations.get(STRATEGY_ANNOTATION)
        if word is not None:
            return _known(word, f"deviceClass[{name}].{PATH}")
    return _known(default, "strategy")


def _known(word: str, path: str) -> str | FieldError:
    found = strategy(word.strip(), path)
    return found if isinstance(found, FieldError) else found.name
