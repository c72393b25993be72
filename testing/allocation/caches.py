"""The caches of the allocator, emptied together."""

import sys

from allocator.model.selectors import clear_selector_caches


def clear_caches() -> None:
    """Empty every cache of the allocator; compiled selectors stay, since kube.cel has them."""
    clear_selector_caches()
    for name, module in tuple(sys.modules.items()):
        if name.startswith("allocator."):
            for value in vars(module).values():
                # Not imported functions: those of other rooms keep their answers.
                if getattr(value, "__module__", None) == name and hasattr(value, "cache_clear"):
                    value.cache_clear()
