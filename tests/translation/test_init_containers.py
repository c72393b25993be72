"""Which init containers use the devices of another container, and what that is told."""

from typing import NamedTuple

import pytest

from testing.builders import Document, finding_codes, gpus, pod, sidecar, translation_of


def hosted(document: Document) -> dict[str, str]:
    """Init container to the container whose request it uses."""
    found: dict[str, str] = {}
    for claim in translation_of(document).claims:
        users: dict[str, list[str]] = {}
        for use in claim.uses:
            users.setdefault(use.request, []).append(use.container)
        for guests in users.values():
            found |= dict.fromkeys(guests[:-1], guests[-1])
    return found


class Case(NamedTuple):
    name: str
    pod: Document
    want: dict[str, str]
    said: tuple[str, ...] = ()


SEES_MORE = ("warning initSharesDevice",)
HELD = ("warning heldForPodLifetime",)


def after(*init: Document) -> Document:
    """A pod whose app container asks for two whole GPUs."""
    return pod(gpus(2), init=init)


def share_after(*init: Document) -> Document:
    """A pod whose app container asks for half of the cores and 10 MiB."""
    return pod(gpus(1, mem=10, cores=50), init=init)


CASES = (
    Case("as much", after(gpus(2, name="i")), {"i": "main"}),
    Case("less", after(gpus(1, name="i")), {"i": "main"}, SEES_MORE),
    Case("more keeps its own", after(gpus(3, name="i")), {}, HELD),
    Case(
        "one after the other",
        after(gpus(2, name="i"), gpus(2, name="j")),
        {"i": "main", "j": "main"},
    ),
    Case("another kind keeps its own", after(gpus(mig_1g_5gb=1, name="i")), {}, HELD),
    Case(
        "of two that are too large the smaller uses the larger",
        after(gpus(3, name="i"), gpus(4, name="j")),
        {"i": "j"},
        ("warning heldForPodLifetime", "warning initSharesDevice"),
    ),
    Case("a sidecar does not share", after(sidecar(2)), {}),
    Case("nor is it shared with", pod(init=(gpus(1, name="i"), sidecar(1))), {}, HELD),
    Case(
        "two MIG devices of one profile",
        pod(gpus(mig_1g_5gb=2), init=(gpus(mig_1g_5gb=2, name="i"),)),
        {"i": "main"},
    ),
    Case(
        "a smaller share", share_after(gpus(1, mem=5, cores=10, name="i")), {"i": "main"}, SEES_MORE
    ),
    Case("a share with more memory", share_after(gpus(1, mem=11, cores=10, name="i")), {}, HELD),
    Case("a share with more cores", share_after(gpus(1, mem=5, cores=60, name="i")), {}, HELD),
    Case("all memory is more than some", share_after(gpus(1, cores=10, name="i")), {}, HELD),
    Case(
        "some is less than all",
        pod(gpus(1, cores=50), init=(gpus(1, mem=5, cores=10, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "a share of what is exclusive",
        pod(gpus(1, cores=100), init=(gpus(1, mem=5, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "an app container with a restart policy is no sidecar",
        pod(gpus(1, fields={"restartPolicy": "Always"}), init=(gpus(1, name="i"),)),
        {"i": "main"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hosts(case: Case) -> None:
    assert case.want == hosted(case.pod)
    assert case.said == tuple(finding_codes(translation_of(case.pod).findings))


def test_one_container_never_uses_one_device_twice() -> None:
    both = pod(
        gpus(mig_1g_5gb=1, mig_2g_10gb=1), init=(gpus(mig_1g_5gb=1, mig_2g_10gb=1, name="i"),)
    )

    (claim,) = translation_of(both).claims

    used = [use.request for use in claim.uses if use.container == "i"]
    assert used == ["mig-0", "mig-1"]
