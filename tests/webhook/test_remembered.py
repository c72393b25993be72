"""What is remembered is what `translate` says, for the world that it was said in."""

from tests.builders import HAMI, gpus, hami_gpu, legacy, published, world
from webhook.remembered import MAX_KEY_BYTES, Remembered
from webhook.translation import translate
from webhook.world import Options

OPTIONS = Options()
WORLD = world(published(HAMI, hami_gpu("40Gi")))


def test_equal_pods_get_the_same_outcome() -> None:
    remembered = Remembered()

    first = remembered(legacy(gpus(1)), namespace="a", world=WORLD, options=OPTIONS)
    again = remembered(legacy(gpus(1)), namespace="a", world=WORLD, options=OPTIONS)

    assert first is again
    assert translate(legacy(gpus(1)), namespace="a", world=WORLD, options=OPTIONS) == first


def test_another_pod_or_namespace_is_another_matter() -> None:
    remembered = Remembered()
    first = remembered(legacy(gpus(1)), namespace="a", world=WORLD, options=OPTIONS)

    assert remembered(legacy(gpus(2)), namespace="a", world=WORLD, options=OPTIONS) != first
    assert remembered(legacy(gpus(1)), namespace="b", world=WORLD, options=OPTIONS) is not first


def test_a_changed_world_forgets() -> None:
    remembered, asked = Remembered(), legacy(gpus(1, pct=50))
    first = remembered(asked, namespace="a", world=WORLD, options=OPTIONS)
    later = world(published(HAMI, hami_gpu("80Gi")))

    got = remembered(asked, namespace="a", world=later, options=OPTIONS)

    assert first != got
    assert translate(asked, namespace="a", world=later, options=OPTIONS) == got


def test_the_memory_is_bounded() -> None:
    remembered = Remembered(capacity=2)
    asked = [legacy(gpus(count)) for count in (1, 2, 3)]
    made = [remembered(p, namespace="a", world=WORLD, options=OPTIONS) for p in asked]

    assert remembered(asked[2], namespace="a", world=WORLD, options=OPTIONS) is made[2]
    assert remembered(asked[0], namespace="a", world=WORLD, options=OPTIONS) is not made[0]


def test_a_huge_pod_is_not_remembered() -> None:
    remembered = Remembered()
    huge = legacy(*(gpus(1, name=f"c-{n}") for n in range(MAX_KEY_BYTES // 32)))

    first = remembered(huge, namespace="a", world=WORLD, options=OPTIONS)

    assert remembered(huge, namespace="a", world=WORLD, options=OPTIONS) is not first
