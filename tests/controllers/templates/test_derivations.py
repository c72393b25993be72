"""The cache of annotations: the same answer, within bytes that strangers cannot choose."""

from controllers.templates.derivations import DerivationCache
from testing.builders import profiles
from testing.translated_pods import CLAIM, KEPT


def test_an_annotation_is_derived_once() -> None:
    cache = DerivationCache(profiles())
    annotation = KEPT.annotation or ""

    assert cache.derive(annotation).claims == (CLAIM,)
    assert cache.derive(annotation) is cache.derive(annotation)


def test_it_holds_no_more_bytes_than_it_may() -> None:
    cache = DerivationCache(profiles(), max_bytes=4096)

    for number in range(100):
        cache.derive(f"malformed {number}")

    assert 0 < cache.bytes <= 4096


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = DerivationCache(profiles(), max_bytes=16)

    assert cache.derive(KEPT.annotation or "").claims == (CLAIM,)
    assert cache.bytes == 0


def test_text_that_is_no_unicode_is_malformed() -> None:
    assert DerivationCache(profiles()).derive("\ud800").problem is not None
