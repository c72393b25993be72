"""One form for the verdicts of both sides, so that they can be compared with `==`.

Share ids become their order of appearance, and what is empty is left out, as it would be in JSON.
Everything else of upstream's AllocationResult is compared as it is written, amounts included.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]

FIT: Final = "fit"
DOES_NOT_FIT: Final = "does not fit"
NODE: Final = "node"
FATAL: Final = "fatal"
BUDGET_EXHAUSTED: Final = "budget exhausted"
PANIC: Final = "panic"

_ENDS: Final = {
    None: DOES_NOT_FIT,
    "node": NODE,
    "fatal": FATAL,
    "steps": BUDGET_EXHAUSTED,
    "timeout": BUDGET_EXHAUSTED,
    "panic": PANIC,
}


class Verdict(NamedTuple):
    """The end of an attempt on one node.

    Attributes:
        end: One of the words above.
        claims: One normal AllocationResult per claim where it fits.
        message: The text for people; not compared.
    """

    end: str
    claims: tuple[Json, ...] = ()
    message: str = ""

    @property
    def compared(self) -> tuple[str, tuple[Json, ...]]:
        """The parts of two verdicts that must agree."""
        return self.end, self.claims

    @property
    def words(self) -> str:
        """The end, the devices and the message, for people."""
        devices = [
            f"{result['request']}={result['driver']}/{result['pool']}/{result['device']}"
            for claim in self.claims
            for result in claim["results"]
        ]
        return " ".join((self.end, *devices)) + (f" ({self.message})" if self.message else "")


def upstream(answer: Json) -> dict[str, Verdict]:
    """Return the verdict per node of an answer of the Go program.

    Raises:
        ValueError: There was no allocator to ask: the scenario itself is wrong.
    """
    if "error" in answer:
        raise ValueError(answer["error"])
    return {node: _verdict(verdict) for node, verdict in answer.get("nodes", {}).items()}


def _verdict(answer: Json) -> Verdict:
    if answer["results"] is not None and answer["error"] is None:
        return Verdict(FIT, normal(answer["results"]))
    return Verdict(_ENDS[answer["error"]], message=answer.get("message", ""))


def normal(results: Sequence[Json]) -> tuple[Json, ...]:
    """Return AllocationResults, as JSON, in the form that is compared."""
    shares = {share: f"share-{index}" for index, share in enumerate(_share_ids(results))}
    return tuple(
        {
            "results": [
                _device(result_, shares)
                for result_ in result.get("devices", {}).get("results") or ()
            ],
            "config": [_pruned(entry) for entry in result.get("devices", {}).get("config") or ()],
            "nodeSelector": _pruned(result.get("nodeSelector")),
        }
        for result in results
    )


def _share_ids(results: Iterable[Json]) -> Iterator[str]:
    for result in results:
        for result_ in result.get("devices", {}).get("results") or ():
            if result_.get("shareID"):
                yield result_["shareID"]


def _device(result_: Json, shares: Mapping[str, str]) -> Any:
    device = dict(result_)
    if device.get("shareID"):
        device["shareID"] = shares[device["shareID"]]
    return _pruned(device)


def _pruned(value: Any) -> Any:
    """The value without its empty members: null, false, empty text, lists and maps."""
    if isinstance(value, Mapping):
        members = {key: _pruned(member) for key, member in value.items()}
        return {key: member for key, member in members.items() if member not in _EMPTY}
    if isinstance(value, list | tuple):
        return [_pruned(member) for member in value]
    return value


_EMPTY: Final[tuple[Any, ...]] = (None, False, "", [], {})
