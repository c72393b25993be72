"""The quick search for containers with device keys finds the same as every vocabulary."""

from hypothesis import given
from hypothesis import strategies as st

from kube.api.core import Container, ResourceRequirements
from kube.quantity import Quantity
from translation.reading.arbiter import VOCABULARIES
from translation.reading.legacy_pod import containers_with_devices, device_keys

NAMES = sorted({key for vocabulary in VOCABULARIES.values() for key in vocabulary.keys})
PREFIXES = sorted({p for vocabulary in VOCABULARIES.values() for p in vocabulary.key_prefixes})
SUFFIXES = sorted({v.companion_suffix for v in VOCABULARIES.values() if v.companion_suffix})
OTHERS = ["cpu", "memory", "example.com/foo", "nvidia.com", "/", "nvidia.com/unknown"]


def container(*names: str) -> Container:
    amounts = dict.fromkeys(names, Quantity(1))
    return Container(name="main", resources=ResourceRequirements(limits=amounts))


def names() -> st.SearchStrategy[str]:
    prefixed = st.builds("{}{}".format, st.sampled_from(PREFIXES), st.sampled_from(["", "a", "1"]))
    plain = st.sampled_from(NAMES + OTHERS) | prefixed
    return plain | st.builds("{}{}".format, plain, st.sampled_from(SUFFIXES))


@given(st.lists(st.lists(names(), max_size=5), max_size=5))
def test_it_finds_what_the_vocabularies_find(named: list[list[str]]) -> None:
    every = [container(*keys) for keys in named]

    assert list(containers_with_devices(every)) == [entry for entry in every if device_keys(entry)]


def test_a_key_among_very_many_names_is_found() -> None:
    (prefix, *_), (suffix, *_) = PREFIXES, SUFFIXES
    companions = [f"{prefix}{number}{suffix}" for number in range(200)]
    for names_ in (companions, [*companions, f"{prefix}199"], [*companions, NAMES[0]], NAMES):
        every = [container(*names_)]
        assert list(containers_with_devices(every)) == [
            entry for entry in every if device_keys(entry)
        ]
