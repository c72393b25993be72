"""The PodGroups that the webhook follows, if the API server has them."""

from clusterstate.pod_groups import PodGroupCache
from kube.api.urls import POD_GROUPS
from kube.names import GROUP_SCHEDULER_ANNOTATION
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until


def group(**metadata: object) -> Document:
    return {
        "metadata": {"name": "training", "namespace": "team", **metadata},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}, "priority": 3},
    }


async def test_what_decides_about_pods_is_kept() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1"}
    annotations = {GROUP_SCHEDULER_ANNOTATION: "mine", "example.com/long": "a" * 1000}
    async with FakeApiServer() as server, server.client() as client:
        server.put(POD_GROUPS, group(annotations=annotations, ownerReferences=[owner]))
        informers = quick_informers(client)
        cache = PodGroupCache(informers, adopts=True)
        assert cache.groups() is None
        async with running(informers.run):
            await until(lambda: cache.groups() is not None)

            groups = cache.groups()

    assert groups is not None
    assert groups.is_served
    kept = groups.by_name["team", "training"]
    assert kept.metadata.annotations == {GROUP_SCHEDULER_ANNOTATION: "mine"}
    assert [owner.uid for owner in kept.metadata.owner_references or ()] == ["u-1"]
    assert kept.spec.scheduling_policy is not None
    assert kept.spec.scheduling_policy.gang is not None
    assert (kept.spec.scheduling_policy.gang.min_count, kept.spec.priority) == (4, 3)


async def test_without_the_api_there_are_none() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.fail(404, times=10_000, matches=lambda call: call.path.endswith("/podgroups"))
        informers = quick_informers(client)
        cache = PodGroupCache(informers, adopts=True)
        async with running(informers.run):
            await until(lambda: cache.groups() is not None)

            groups = cache.groups()

    assert groups is not None
    assert (groups.is_served, dict(groups.by_name)) == (False, {})
