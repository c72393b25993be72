"""`python -m testing.fuzz.costs`: a search for the most costly input, not for crashes.

Patterns, expressions, pods, selectors and inventories are drawn, and the costliest are changed further. Each
species has a bound that the product promises: of CPU per instruction of a pattern, of CPU that a review may
hold the event loop, and those of `testing.fuzz.evaluations`. What exceeds it is printed and written to a folder; rows of tests/fuzz/test_costs.py keep it.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random, SystemRandom
from time import monotonic, thread_time
from typing import Final, NamedTuple

import msgspec
import structlog

from kube.cel import syntax
from kube.cel.compile import LocalSelector
from kube.cel.device import device_view
from kube.cel.engine import SIMPLE_CHARGE, SIMPLE_LENGTH
from kube.cel.library import Environment, evaluation_environment
from kube.cel.patterns import MAX_SIZE, program_size
from kube.cel.quoting import quote
from kube.cel.syntax import CheckedExpr, encode_checked
from kube.errors import CelError
from testing.allocation.builders import devices
from testing.builders import admit, container, gpus, pod
from testing.documents import Document
from testing.fuzz import evaluations
from testing.fuzz.reviews import places, review
from testing.fuzz.species import Gene, Species
from testing.signing import SIGNING
from webhook.mutate import answer_pod_review, decode_pod_review
from webhook.reviews import LARGE_BODY

FOLDER: Final = Path(".local") / "fuzz"
KEPT: Final = 40
"""The number of each species to be changed further."""
HOLD_S: Final = 0.025
"""The time for which a review may hold the event loop."""
INSTRUCTION: Final = 2.5
"""The time that an instruction of the bound may take, as a multiple of one of `PLAIN`."""
EVALUATION: Final = 100
"""The time that a pattern may take to be evaluated at all, in instructions of `PLAIN`."""
PLAIN: Final = "." * 100
TEXT: Final = "aéλk1" * 12


class Costly(NamedTuple):
    """One of a species, and its cost as a part of the allowed cost."""

    excess: float
    gene: Gene


# --- patterns -------------------------------------------------------------------------------------

ATOMS: Final = (
    *("a", "k", "é", "λ", "\U0001f600", ".", "^", "$", r"\pL", r"\PN", r"\p{Greek}", r"\d", r"\W"),
    *("[a-z]", "[^a]", "[À-ɏ]", r"[^\pL]", "[[:alpha:]]", r"[\x{80}-\x{10FFFF}]", r"\x{e9}"),
    *(r"\C", r"\b", r"\Q(\E", "[]a]", "[^]]", r"\z", "(?:)", r"\101", "(?i)", "|"),
)
REPEATS: Final = (
    "*",
    "+",
    "?",
    "*?",
    "{3}",
    "{0,5}",
    "{2,}",
    "{1,20}",
    "{100}",
    "{0,300}",
    "{1000}",
)
GROUPS: Final = ("(", "(?:", "(?i:", "(?s:", "(?-s:")


def draw_pattern(chance: Random, depth: int = 4) -> str:
    """Return a pattern of some depth."""
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        return chance.choice(ATOMS)
    if kind < 0.6:
        return "".join(draw_pattern(chance, depth - 1) for _ in range(chance.randint(1, 5)))
    inner = draw_pattern(chance, depth - 1)
    repeat = chance.choice(REPEATS) if chance.random() < 0.5 else ""
    return f"{chance.choice(GROUPS)}{inner}){repeat}"


def change_text(text: str, chance: Random) -> str:
    """Return a pattern or expression with a part repeated, dropped, or added."""
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.randint(0, 12))
    kind = chance.random()
    if kind < 0.4:
        return text[:end] + text[start:end] + text[end:]
    if kind < 0.6:
        return text[:start] + text[end:]
    return text[:start] + chance.choice((*ATOMS, *REPEATS)) + text[start:]


def pattern_excess(pattern: str) -> float:
    """Return the time of an evaluation as a part of the allowance for the size of the pattern."""
    size = program_size(pattern)
    if size > MAX_SIZE:
        return 0.0  # Nothing compiles it.
    allowed_s = (EVALUATION + size * INSTRUCTION) * _plain_instruction_s()
    return _least_s(_evaluation(pattern), allowed_s) / allowed_s


@cache
def _plain_instruction_s() -> float:
    """Return the time of an instruction of `PLAIN` on this machine."""
    return min(_least_s(_evaluation(PLAIN), 0) for _ in range(10)) / program_size(PLAIN)


def _evaluation(pattern: str) -> Callable[[], object]:
    probe = syntax.call("matches", syntax.string_constant(TEXT), syntax.string_constant(pattern))
    program = evaluation_environment().deserialize(encode_checked(CheckedExpr(expr=probe)))
    return lambda: program.eval(data={})


# --- expressions that are evaluated in place ------------------------------------------------------

_DEVICE: Final = devices("gpu-0")[0]
_VIEW: Final = device_view("gpu.example.com", _DEVICE)
_VALUES: Final = (
    *("1", "device", "device.driver", "device.attributes", 'device.attributes["d"].x', '"a"'),
    *('quantity("1Gi")', 'semver("1.0.0")', "lists.range(9)", "[1, 2]", "x", "true"),
    *('"a".replace("a", "aaaaaaaa")', '"aaaa".split("")', 'duration("1h")', '"%s".format(["a"])'),
)
_WRAPS: Final = (
    *(
        "[{}].all(x, {})",
        "[{}].map(x, {})",
        "cel.bind(x, {}, {})",
        "{}.exists(x, {})",
        "({}) == ({})",
    ),
    *("{} || {}", "{} && {}", "{} + {}", "[{}, {}]", "{} ? {} : x", '{}.matches("{}")', "!({})"),
)


def draw_expression(chance: Random, depth: int = 4) -> str:
    """Return an expression; often it does not compile."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(_VALUES)
    wrap = chance.choice(_WRAPS)
    if "matches" in wrap:
        pattern = quote(draw_pattern(chance, 2))[1:-1]
        return wrap.format(draw_expression(chance, depth - 1), pattern)
    parts = [draw_expression(chance, depth - 1) for _ in range(wrap.count("{}"))]
    return wrap.format(*parts)


def change_expression(expression: str, chance: Random) -> str:
    """Return an expression that contains the other, or a changed one."""
    if chance.random() < 0.5:
        return change_text(expression, chance)
    wrap = chance.choice([wrap for wrap in _WRAPS if "matches" not in wrap])
    parts = [draw_expression(chance, 1) for _ in range(wrap.count("{}") - 1)]
    return wrap.format(*parts, expression)


def expression_excess(expression: str) -> float:
    """Return the share of a hold that compiling, and evaluating in place, takes."""
    text = expression[:SIMPLE_LENGTH]

    def evaluate() -> None:
        try:
            selector = LocalSelector(text, Environment.STORED)
            if selector.cost <= SIMPLE_CHARGE:
                selector.matches(_VIEW)
        except CelError:
            pass

    return _least_s(evaluate, HOLD_S) / HOLD_S


# --- pods -----------------------------------------------------------------------------------------


class PodGene(NamedTuple):
    """A pod, in numbers.

    Attributes:
        key: The keys of its containers.
        filters: Names in its annotations.
        again: The change after its first translation; 0 for nothing.
    """

    containers: int = 1
    init: int = 0
    key: int = 0
    amounts: int = 1
    filters: int = 0
    padding: int = 0
    claims: int = 0
    again: int = 0


_RANGES: Final = PodGene(260, 260, 5, 60, 200, 600, 1100, 4)
_place: Final = places()[0]


def draw_pod(chance: Random) -> PodGene:
    """Return a pod with numbers that are small, or anything up to the most."""
    small = chance.random() < 0.3
    return PodGene(*(chance.randrange(1 + (most // 8 if small else most)) for most in _RANGES))


def change_pod(gene: PodGene, chance: Random) -> PodGene:
    """Return a pod with one or two other numbers."""
    numbers = list(gene)
    for _ in range(chance.randint(1, 2)):
        index = chance.randrange(len(numbers))
        step = max(_RANGES[index] // 10, 1)
        value = numbers[index] + chance.randint(-step, step)
        numbers[index] = min(max(value, 0), _RANGES[index])
    return PodGene(*numbers)


def pod_excess(gene: PodGene) -> float:
    """Return the share of a hold that the review of a pod takes; 0 if it is answered on a thread."""
    document = pod_of(gene)
    body = msgspec.json.encode(review(document))
    if len(body) > LARGE_BODY:
        return 0.0
    return (
        _least_s(
            lambda: answer_pod_review(
                decode_pod_review(body), _place.snapshot, _place.options, SIGNING
            ),
            HOLD_S,
        )
        / HOLD_S
    )


def pod_of(gene: PodGene) -> Document:
    """Return the pod that numbers stand for."""
    names = ",".join(f"GPU-{number:05}" for number in range(gene.filters))
    annotations = {"nvidia.com/use-gpuuuid": names, "nvidia.com/nouse-gputype": names}
    document = pod(
        *(_container(gene, f"c{number}") for number in range(gene.containers)),
        *(container(f"p{number}") for number in range(gene.padding)),
        init=[_container(gene, f"i{number}") for number in range(gene.init)],
        annotations=annotations if names else None,
        resourceClaims=[
            {"name": f"z{number}", "resourceClaimTemplateName": "a"}
            for number in range(gene.claims)
        ],
    )
    if not gene.again:
        return document
    is_translated, _ = admit(document)
    for part in is_translated["spec"]["containers"][: gene.containers]:
        resources = part.setdefault("resources", {})
        if gene.again == 2:
            resources.setdefault("limits", {})["nvidia.com/gpucores"] = "10"
        elif gene.again == 3:
            resources["claims"] = []
    return is_translated


def _container(gene: PodGene, name: str) -> Document:
    number = int(name[1:])
    match gene.key:
        case 0:
            return gpus(1, name=name)
        case 1:
            return gpus(mem=1 + number, name=name)
        case 2:
            return gpus(pct=1 + number % 99, name=name)
        case 3:
            keys = {f"nvidia.com/mig-{size}g.{size}gb": "1" for size in range(1, gene.amounts + 2)}
        case 4:
            keys = {"koordinator.sh/gpu": "50", "koordinator.sh/gpu-memory-ratio": "50"}
        case _:
            keys = {f"nvidia.com/k{extra}": "1" for extra in range(gene.amounts)}
            keys["nvidia.com/gpu"] = "1"
    return container(name, resources={"limits": keys})


# --- the search -----------------------------------------------------------------------------------

SPECIES: Final = {
    **evaluations.SPECIES,
    "pattern": Species(draw_pattern, change_text, pattern_excess, repr),
    "expression": Species(draw_expression, change_expression, expression_excess, repr),
    "pod": Species(draw_pod, change_pod, pod_excess, repr),
}


def search(species: Species, chance: Random, tries: Iterable[object]) -> list[Costly]:
    """Return the costliest that were found, the worst first.

    Args:
        tries: One item for each that is tried.
    """
    survivors: list[Costly] = []
    for _, gene in zip(tries, _genes(species, chance, survivors), strict=False):
        survivors.append(Costly(species.excess(gene), gene))
        if len(survivors) > 2 * KEPT:
            survivors.sort(key=lambda costly: -costly.excess)
            del survivors[KEPT:]
    return sorted(survivors, key=lambda costly: -costly.excess)


def for_seconds(seconds: float) -> Iterator[None]:
    """Yield until the time is over, once at least."""
    ends_s = monotonic() + seconds
    yield
    while monotonic() < ends_s:
        yield


def _genes(species: Species, chance: Random, survivors: list[Costly]) -> Iterator[Gene]:
    while True:
        if len(survivors) < KEPT or chance.random() < 0.2:
            yield species.draw(chance)
        else:
            best = max(chance.sample(survivors, 3), key=lambda costly: costly.excess)
            yield species.change(best.gene, chance)


def _least_s(work: Callable[[], object], allowed_s: float) -> float:
    """Return the least CPU time of some tries: the others were disturbed."""
    least_s = float("inf")
    for _ in range(4):
        began_s = thread_time()
        work()
        least_s = min(least_s, thread_time() - began_s)
        if least_s < allowed_s / 2:
            break
    return least_s


def main() -> int:
    """Return the exit status: 1 when anything takes more than it may."""
    parser = argparse.ArgumentParser(prog="python -m testing.fuzz.costs", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--seconds", type=float, default=30.0, help="for each species")
    parser.add_argument("--only", action="append", choices=SPECIES, help="some species only")
    options = parser.parse_args()
    # Every lost worker is logged.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    exceeding = 0
    for name in options.only or SPECIES:
        species = SPECIES[name]
        costliest = search(species, Random(f"{options.seed}/{name}"), for_seconds(options.seconds))
        print(
            f"costs: seed {options.seed}: {name}s take at most {costliest[0].excess:.0%} of what they may"
        )
        for costly in costliest[:3]:
            print(f"  {costly.excess:.0%} {species.show(costly.gene)[:160]}")
        bad = [costly for costly in costliest if costly.excess > 1]
        exceeding += len(bad)
        if bad:
            FOLDER.mkdir(parents=True, exist_ok=True)
            text = "\n".join(species.show(costly.gene) for costly in bad)
            (FOLDER / f"costs-{options.seed}-{name}.txt").write_text(text)
    return int(exceeding > 0)


if __name__ == "__main__":
    sys.exit(main())
