"""Garbage collection in a process with large caches."""

import gc


def exempt_caches() -> None:
    """Exempt all objects that exist now from garbage collection.

    A full collection looks at every object and stops all threads meanwhile: for a fifth of a second where
    caches know 5,000 nodes. What a cache drops later is freed all the same, since no cycle holds it.
    """
    gc.collect()
    gc.freeze()
