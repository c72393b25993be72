"""Recorded expressions with a verdict of ours that differs from Go's, with the reason.

A difference that is gone fails the test, as does one that is not here.
"""

from typing import Final, NamedTuple

from testing.oracle.cases import FOUR_LOOPS, MAPS_OF_TWO_KINDS

BOTH: Final = ("new", "stored")
NEW: Final = ("new",)


class Difference(NamedTuple):
    reason: str
    ours: str
    environments: tuple[str, ...]
    expressions: tuple[str, ...]


_A: Final = 'device.attributes["gpu.example.com"]'
_C: Final = 'device.capacity["gpu.example.com"]'

DIFFERENCES: Final = (
    Difference(
        "our engine lacks the function: unknown, never denied",
        "unsupported",
        BOTH,
        (
            "url('https://example.com/x').getHost() == 'example.com'",
            "isURL('https://example.com')",
            "ip('192.0.2.1').family() == 4",
            "isIP('192.0.2.1')",
            "ip.isCanonical('192.0.2.1')",
            "cidr('192.0.2.0/24').containsIP('192.0.2.1')",
            "isCIDR('192.0.2.0/24')",
            "'abc 123'.find('[0-9]+') == '123'",
            "'a1b2'.findAll('[0-9]').size() == 2",
            "'a1b2'.findAll('[0-9]', 1).size() == 1",
            "!format.dns1123Label().validate('abc').hasValue()",
            "format.named('uuid').hasValue()",
            "[1, 2].isSorted()",
            "[1, 2].sum() == 3",
            "[1, 2].max() == 2",
            "['a', 'b'].indexOf('b') == 1",
            "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        ),
    ),
    Difference(
        "may be a map of the device, in which every domain exists, or another map: unknown, never denied",
        "unsupported",
        BOTH,
        MAPS_OF_TWO_KINDS,
    ),
    Difference(
        "Go reads the text and our engine does not: unknown, never denied",
        "unsupported",
        BOTH,
        (
            "bool('T')",
            "duration('1µs') == duration('1us')",
            "duration('1μs') == duration('1us')",
            "double('1_0') == 10.0",
            "timestamp('2020-01-01T00:00:00,5Z') < timestamp('2021-01-01T00:00:00Z')",
            "r'\\'.size() == 1",
            "r'''\\''' == 'x'",
            "double('1.5_5') == 1.55",
            "double('1e1_0') > 1.0",
            "double('0x_1p4') == 16.0",
            "double('0x1_0p4') == 256.0",
            "duration('-9223372036854775808ns') < duration('0s')",
            "timestamp('2020-01-01T00:00:00+24:00') < timestamp('2021-01-01T00:00:00Z')",
            "timestamp('2020-01-01T00:00:00+24:60') < timestamp('2021-01-01T00:00:00Z')",
        ),
    ),
    Difference(
        "the pattern is computed, so nothing bounds what it compiles to: unknown, never denied",
        "unsupported",
        BOTH,
        (f"'abc'.matches({_A}.model)",),
    ),
    Difference(
        "costs more than we let an engine run that does not count: unknown, never denied",
        "unsupported",
        BOTH,
        (
            "lists.range(20000).all(x, x >= 0)",
            "lists.range(2000).all(x, lists.range(2000).all(y, x >= 0))",
            FOUR_LOOPS,
        ),
    ),
    Difference(
        "upstream's estimator knows no bound for it, so the API server refuses it; we estimate less",
        "match",
        NEW,
        (
            f"type({_A}.index) == int",
            f"type({_A}.model) == string",
            f"{_A}.?model == optional.of('A100-SXM4-80GB')",
            f"{_A}.?missing == optional.none()",
            "['a', 'b'].join('-') == 'a-b'",
            f"{_A}.apis[0] == semver('1.0.0')",
        ),
    ),
    Difference(
        "as above",
        "noMatch",
        NEW,
        (f'{_C}.memory != quantity("81920Mi")',),
    ),
    Difference(
        "upstream calls no number integer that it did not parse on its fast path: 1Pi, 1.5Gi, 1.0",
        "match",
        BOTH,
        (
            'quantity("1Pi").isInteger()',
            'quantity("1.5Gi").asInteger() == 1610612736',
        ),
    ),
    Difference(
        "upstream hashes the version for its set of constants and panics",
        "noMatch",
        BOTH,
        (f'{_A}.driverVersion in ["1.2.3"]',),
    ),
)

EXPECTED: Final = {
    (environment, expression): difference
    for difference in DIFFERENCES
    for environment in difference.environments
    for expression in difference.expressions
}
"""Environment and expression to the difference."""
