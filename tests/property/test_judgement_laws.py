"""Laws of the judgement of workloads: it is that of their pods, told earlier."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.api.meta import ObjectHead, view
from kube.api.resource import ResourceSlice
from tests.builders import NAMESPACE, Document, admitted, seen, workload, world
from tests.strategies import koordinator_pods, legacy_pods, operators_options, published_slices
from webhook.admission import UNTOUCHED, Answer, Decision
from webhook.findings import MAY_PASS
from webhook.judgement import Workload, judge_workload
from webhook.workloads import JUDGED, pod_path, reached
from webhook.world import Onlooker, Options

pytestmark = pytest.mark.property

tame = legacy_pods() | koordinator_pods()
any_pod = tame | legacy_pods(hostile=True) | koordinator_pods(hostile=True)
slices = published_slices()
options = operators_options()
kinds = st.sampled_from(sorted(JUDGED))


def judged(
    document: Document, published: list[ResourceSlice], chosen: Options, old: Document | None = None
) -> Answer:
    picture = world(*published, onlookers=dict.fromkeys(Onlooker, frozenset[str]()))
    found, before = (viewed(each) if each else None for each in (document, old))
    assert found is not None
    return judge_workload(found, before, namespace=NAMESPACE, world=picture, options=chosen)


def viewed(document: Document) -> Workload:
    path = pod_path(document["apiVersion"], document["kind"]) or ()
    _, template = reached(document, path)
    return Workload(
        metadata=view(document, ObjectHead).metadata,
        path=path,
        template=template,
        pod=seen(template),
    )


@given(any_pod, slices, options, kinds)
def test_a_workload_is_denied_for_what_its_pods_are_denied_and_does_not_pass(
    document: Document, published: list[ResourceSlice], chosen: Options, kind: tuple[str, str]
) -> None:
    _, of_pod = admitted(document, world(*published), chosen)

    got = judged(workload(document, kind[1]), published, chosen)

    lasting = [each for each in of_pod.findings if each.is_error and each.code not in MAY_PASS]
    assert got.allowed == (not lasting)
    assert got.operations == ()
    above = ".".join(pod_path(*kind) or ())
    assert all(each.path.startswith(above) for each in got.findings)


@given(tame, slices, options, kinds)
def test_what_was_translated_passes(
    document: Document, published: list[ResourceSlice], chosen: Options, kind: tuple[str, str]
) -> None:
    translated, of_pod = admitted(document, world(*published), chosen)

    if of_pod.decision is Decision.TRANSLATED:
        assert judged(workload(translated, kind[1]), published, chosen).allowed


@given(any_pod, slices, options, kinds)
def test_what_does_not_change_its_pods_is_not_judged(
    document: Document, published: list[ResourceSlice], chosen: Options, kind: tuple[str, str]
) -> None:
    old = workload(document, kind[1])
    again = msgspec.json.decode(msgspec.json.encode(old))
    again["metadata"]["labels"] = {"a": "b"}

    assert judged(again, published, chosen, old) == UNTOUCHED


@given(any_pod, slices, slices, options, kinds)
def test_what_is_denied_is_denied_whatever_the_inventory(
    document: Document,
    published: list[ResourceSlice],
    later: list[ResourceSlice],
    chosen: Options,
    kind: tuple[str, str],
) -> None:
    applied = workload(document, kind[1])

    assert judged(applied, published, chosen).allowed == judged(applied, later, chosen).allowed
