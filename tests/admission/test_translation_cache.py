"""The cache returns the answers of `translate`, for the snapshot that they were computed in."""

from admission.translation_cache import MAX_KEY_BYTES, TranslationCache
from testing.builders import HAMI, driver_slice, gpus, hami_gpu, legacy_view, translation_snapshot
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import translate

OPTIONS = TranslationOptions()
WORLD = translation_snapshot(driver_slice(HAMI, hami_gpu("40Gi")))


def test_equal_pods_get_the_same_outcome() -> None:
    translation_cache = TranslationCache()

    first = translation_cache(legacy_view(gpus(1)), namespace="a", snapshot=WORLD, options=OPTIONS)
    again = translation_cache(legacy_view(gpus(1)), namespace="a", snapshot=WORLD, options=OPTIONS)

    assert first is again
    assert translate(legacy_view(gpus(1)), namespace="a", snapshot=WORLD, options=OPTIONS) == first


def test_another_pod_or_namespace_is_another_matter() -> None:
    translation_cache = TranslationCache()
    first = translation_cache(legacy_view(gpus(1)), namespace="a", snapshot=WORLD, options=OPTIONS)

    assert (
        translation_cache(legacy_view(gpus(2)), namespace="a", snapshot=WORLD, options=OPTIONS)
        != first
    )
    assert (
        translation_cache(legacy_view(gpus(1)), namespace="b", snapshot=WORLD, options=OPTIONS)
        is not first
    )


def test_a_changed_world_forgets() -> None:
    translation_cache, legacy_pod = TranslationCache(), legacy_view(gpus(1, pct=50))
    first = translation_cache(legacy_pod, namespace="a", snapshot=WORLD, options=OPTIONS)
    later = translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi")))

    outcome = translation_cache(legacy_pod, namespace="a", snapshot=later, options=OPTIONS)

    assert first != outcome
    assert translate(legacy_pod, namespace="a", snapshot=later, options=OPTIONS) == outcome


def test_the_memory_is_bounded() -> None:
    translation_cache = TranslationCache(capacity=2)
    views = [legacy_view(gpus(count)) for count in (1, 2, 3)]
    outcomes = [translation_cache(p, namespace="a", snapshot=WORLD, options=OPTIONS) for p in views]

    assert (
        translation_cache(views[2], namespace="a", snapshot=WORLD, options=OPTIONS) is outcomes[2]
    )
    assert (
        translation_cache(views[0], namespace="a", snapshot=WORLD, options=OPTIONS)
        is not outcomes[0]
    )


def test_a_huge_pod_is_not_remembered() -> None:
    translation_cache = TranslationCache()
    huge = legacy_view(*(gpus(1, name=f"c-{n}") for n in range(MAX_KEY_BYTES // 32)))

    first = translation_cache(huge, namespace="a", snapshot=WORLD, options=OPTIONS)

    assert translation_cache(huge, namespace="a", snapshot=WORLD, options=OPTIONS) is not first
