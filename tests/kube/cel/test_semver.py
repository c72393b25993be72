import pytest

from kube.cel.semver import MAX_TEXT, Semver


@pytest.mark.parametrize(
    "texts",
    [
        # From semver.org, section 11.
        ("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2"),
        (
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.2.0",
            "1.10.0",
            "2.0.0",
        ),
    ],
)
def test_order(texts: tuple[str, ...]) -> None:
    versions = [Semver.parse(text) for text in texts]

    for position, version in enumerate(versions):
        for other_position, other in enumerate(versions):
            want = (position > other_position) - (position < other_position)
            assert want == version.compare(other)


@pytest.mark.parametrize(
    "text",
    ["1.2.3-18446744073709551615", "1.2.3-a99999999999999999999", "1.2.3+99999999999999999999"],
)
def test_the_largest_number_has_64_bits(text: str) -> None:
    assert Semver.parse(text).major == 1


def test_build_metadata_makes_no_difference() -> None:
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b.c")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3-a..b",
        "1.2.3+",
        "1.2.3 ",
        "1.2.3\n",
        "18446744073709551616.0.0",
        "1.2.3-18446744073709551616",
        "1.2.3-rc.99999999999999999999+b",
        "1.2.3-" + "a" * MAX_TEXT,
        "\u0661.0.0",
    ],
)
def test_parse_rejects(text: str) -> None:
    with pytest.raises(ValueError, match=r"version|64 bits"):
        Semver.parse(text)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        ("1.2.0", "1.2"),
        ("1.0.0", "v1"),
        ("1.2.3", "v01.02.03"),
        ("0.0.0", "00"),
        ("1.2.3-rc.1", "1.2.3-rc.1"),
    ],
)
def test_parse_tolerant(want: str, text: str) -> None:
    assert Semver.parse(want) == Semver.parse_tolerant(text)


@pytest.mark.parametrize("text", ["", "v", "1.2-rc", "x.y"])
def test_parse_tolerant_rejects(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        Semver.parse_tolerant(text)
