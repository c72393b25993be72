"""Workloads of other projects: rules name their kinds before a cluster serves them."""

import subprocess
from collections.abc import Iterator

import pytest

from e2e.access import Access, Object, stream
from e2e.custom_kinds import served_kind
from e2e.drawbridge import Drawbridge, command_line
from e2e.objects import container
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("drawbridge")


@pytest.fixture
def served(cluster: Access) -> Iterator[None]:
    """The kind as its project serves it, for one story."""
    with served_kind(cluster, "PyTorchJob", "pytorchjobs", "kubeflow.org"):
        yield


def job(memory: str | int) -> Object:
    """A job of two replicas; the workers request memory of a GPU."""
    share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    return api_object(
        "PyTorchJob",
        "train",
        spec={
            "pytorchReplicaSpecs": {
                "Master": {"template": {"spec": {"containers": [container("pytorch")]}}},
                "Worker": {
                    "template": {"spec": {"containers": [container("pytorch", limits=share)]}}
                },
            }
        },
    )


def create(cluster: Access, namespace: str, document: Object) -> subprocess.CompletedProcess[str]:
    """Create an object; return the output of kubectl."""
    return cluster.kubectl(
        "create", "-n", namespace, "-f", "-", input=stream(document), check=False
    )


def test_a_mistake_in_a_job_of_another_project_is_told_when_it_is_applied(
    cluster: Access, namespace: str, drawbridge: Drawbridge, served: None
) -> None:
    # Discovery of a new kind takes a while in kubectl and in the API server.
    answers: list[subprocess.CompletedProcess[str]] = []

    def is_denied() -> bool:
        answers.append(create(cluster, namespace, job("8Gi")))
        if answers[-1].returncode == 0:
            cluster.kubectl("delete", "pytorchjobs.kubeflow.org", "train", "-n", namespace)
        return "wrongUnit" in answers[-1].stderr

    cluster.wait_until(is_denied, "the webhook reviews the kind")

    place = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits"
    assert f"{place}[nvidia.com/gpumem]" in answers[-1].stderr
    assert create(cluster, namespace, job(3000)).returncode == 0
    # What does not touch the spec asks nobody.
    before = drawbridge.metrics("drawbridge-webhook")
    cluster.kubectl("label", "pytorchjobs.kubeflow.org", "train", "-n", namespace, "a=b")
    reviews = [line for line in before.splitlines() if 'kind="PyTorchJob"' in line]
    after = drawbridge.metrics("drawbridge-webhook").splitlines()
    assert reviews == [line for line in after if 'kind="PyTorchJob"' in line]


def test_a_translated_job_is_stored_as_it_was_printed(
    cluster: Access, namespace: str, served: None
) -> None:
    translated = command_line(
        cluster,
        *("translate", "-f", "-", "--live", "-n", namespace),
        input=stream(job(3000)),
    )

    assert translated.returncode == 0, translated.stderr
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=translated.stdout)
    stored = cluster.get("pytorchjobs.kubeflow.org", "train", namespace)
    worker = stored["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert "nvidia.com/gpumem" not in worker["containers"][0]["resources"].get("limits", {})
    (claim,) = worker["resourceClaims"]
    assert cluster.get("resourceclaimtemplates", claim["resourceClaimTemplateName"], namespace)
