"""Trial pods of `verify --webhook` in namespaces with shares of KAI."""

from typing import Final

import pytest

from cli.reading.webhook_state import read_webhook
from kube.api.urls import NAMESPACES, Resource
from kube.names import TRANSLATE_LABEL
from migration.plan.model.plan import PlannedWorkload, Wave
from testing.documents import Document, namespace
from testing.fake_api_server import FakeApiServer
from testing.migration import GPU, workload

DEPLOYMENTS: Final = Resource(group="apps", version="v1", plural="deployments")


def deployment(name: str, annotations: dict[str, str]) -> Document:
    owner, *_ = workload(name, {GPU: "1"}, [])
    owner["spec"]["template"]["metadata"]["annotations"] = annotations
    return owner


def wave(names: list[str], *, is_of_kai: bool, ready_pods: int = 1) -> Wave:
    """A wave of Deployments; the number of pods that ran is of those with a share."""
    return Wave(
        wave=1,
        nodes=(),
        namespaces=("team",),
        workloads=tuple(
            PlannedWorkload(
                object=f"Deployment/team/{name}",
                pods=1,
                outcome="translated",
                ready_pods=1 if name.startswith("whole") else ready_pods,
            )
            for name in names
        ),
        free_before=0,
        free_after=0,
        split=False,
        notes=(),
        kai_namespaces=("team",) if is_of_kai else (),
    )


@pytest.mark.parametrize("annotation", ["gpu-fraction", "gpu-memory"])
@pytest.mark.parametrize(
    ("is_of_kai", "ready_pods", "tried"),
    [(True, 1, "shares"), (False, 1, "whole-a"), (True, 0, "whole-a")],
    ids=["share", "not of KAI", "shares that waited"],
)
async def test_a_pod_with_a_share_is_tried_where_kais_webhook_counts(
    annotation: str, tried: str, *, is_of_kai: bool, ready_pods: int
) -> None:
    """A pod with a whole GPU, first by name, passed, and the rollout of those with shares did not end."""
    async with FakeApiServer() as server:
        server.put(NAMESPACES, namespace("team", {TRANSLATE_LABEL: "true"}))
        for name in ("whole-a", "whole-b"):
            server.put(DEPLOYMENTS, deployment(name, {}))
        server.put(DEPLOYMENTS, deployment("shares", {annotation: "0.5"}))
        names = ["whole-a", "whole-b", "shares"]
        async with server.client() as client:
            facts = await read_webhook(
                client, [wave(names, is_of_kai=is_of_kai, ready_pods=ready_pods)]
            )

    assert [f"Deployment/team/{tried}"] == [trial.workload for trial in facts.trials]


async def test_without_a_readable_share_the_first_pod_is_tried() -> None:
    async with FakeApiServer() as server:
        server.put(NAMESPACES, namespace("team", {TRANSLATE_LABEL: "true"}))
        server.put(DEPLOYMENTS, deployment("whole-a", {}))
        async with server.client() as client:
            facts = await read_webhook(client, [wave(["whole-a", "shares"], is_of_kai=True)])

    assert ["Deployment/team/whole-a"] == [trial.workload for trial in facts.trials]
    assert {} == facts.untried
