"""Garbage collection in a process with large caches."""

import gc

from process.running.garbage import exempt_caches


def test_what_exists_is_looked_at_no_more() -> None:
    cache = [[number] for number in range(1000)]
    try:
        exempt_caches()

        assert gc.get_freeze_count() > len(cache)
        assert not any(object_ is cache for object_ in gc.get_objects())
    finally:
        gc.unfreeze()
