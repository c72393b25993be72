"""The stack of the search: its frames, the results of subtrees, and the conflict that failed last."""

from collections.abc import Hashable
from enum import Enum, auto
from typing import NamedTuple

from allocator.search.attempt import RequestCandidates


class Result(Enum):
    """The result of a subtree of the search.

    Upstream returns (false, nil), errAllocationResultMaxSizeExceeded and (true, nil).
    """

    FAILED = auto()
    TOO_MANY = auto()
    SOLVED = auto()


class Conflict(NamedTuple):
    """The request that failed last, with the residual key of the state at its failure."""

    claim: int
    request: int
    key: Hashable


class AlternativesFrame:
    """A stack frame that tries the alternatives of one `firstAvailable` request.

    Attributes:
        opens_request: It is the first of its request, so its failure is memoised.
        key: Residual key under which that is; None while it is not needed.
        opens_claim: It is the first of a claim; TOO_MANY of a later claim only means failed.
    """

    def __init__(self, claim: int, index: int, alternatives: tuple[RequestCandidates, ...]) -> None:
        self.claim = claim
        self.index = index
        self.alternatives = alternatives
        self.alternative = -1
        self.all_too_many = True
        self.opens_request = False
        self.key: Hashable = None
        self.opens_claim = False


class DeviceFrame:
    """A stack frame that tries the candidates for one device slot of a request.

    Attributes:
        untried: Mask of the positions still to try.
        position: The position that is chosen now; -1 for none.
        failed_classes: Symmetry classes with an unchosen device that failed here.
        opens_request: The same as in `AlternativesFrame`.
        key: Likewise.
        opens_claim: Likewise.
    """

    def __init__(
        self, claim: int, candidates: RequestCandidates, slot: int, untried_mask: int
    ) -> None:
        self.claim = claim
        self.index = candidates.request.index
        self.candidates = candidates
        self.slot = slot
        self.untried = untried_mask
        self.position = -1
        self.further_share = False
        self.failed_classes: set[int] = set()
        self.opens_request = False
        self.key: Hashable = None
        self.opens_claim = False


Frame = AlternativesFrame | DeviceFrame
