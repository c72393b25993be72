"""The pace of informers' calls to the API server."""

from typing import Final

import msgspec

from kube.client.client import PAGE_SIZE


class InformerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The pace of an informer's calls; defaults follow client-go's reflector if it has them.

    Attributes:
        backoff_s: The longest first pause after a failure; each further one may be twice as long.
        backoff_limit_s: The longest pause of all.
        healthy_s: A watch that lasted this long ends a series of failures.
        watch_s: The shortest and longest time that the server is asked to hold a watch; random
            between the two, so that informers do not return all at once.
        idle_s: The time of silence after which a watch counts as dead.
        page_size: Objects per page of a list.
    """

    backoff_s: float = 0.8
    backoff_limit_s: float = 30.0
    healthy_s: float = 1.0
    watch_s: tuple[float, float] = (240.0, 480.0)
    idle_s: float = 150.0
    page_size: int = PAGE_SIZE


DEFAULTS: Final = InformerSettings()
