"""A dry run shows the translation and leaves nothing; a second apply of a legacy manifest works."""

import json

import pytest

from e2e.access import Access, Object, stream
from e2e.fleet import EXAMPLES
from e2e.inventory import HAMI
from e2e.objects import claim_template, pod
from e2e.translated import legacy_keys
from kube.names import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

SHARE = EXAMPLES / "share.yaml"
RESTLESS = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})
"""Kinds whose objects come and go without anybody's doing."""


@pytest.fixture(scope="module")
def kinds(cluster: Access) -> str:
    """Every kind that the API server can list, as kubectl takes them."""
    parts = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    return ",".join(sorted(set(parts) - RESTLESS))


def versions(cluster: Access, kinds: str) -> dict[str, str]:
    """Every object of the cluster to its resourceVersion, except those being deleted anyway."""
    # Asked first, since some are gone by the time that all else is listed.
    ending = {
        object_["metadata"]["name"]
        for object_ in cluster.objects("namespaces")
        if object_["status"]["phase"] == "Terminating"
    }
    fields = "{.kind}/{.metadata.namespace}/{.metadata.name}={.metadata.resourceVersion}"
    lines = f'{{range .items[*]}}{fields}{{"\\n"}}{{end}}'
    output = cluster.kubectl("get", kinds, "-A", "--ignore-not-found", "-o", f"jsonpath={lines}")
    versions_ = dict(line.split("=") for line in output.stdout.splitlines())
    return {
        name: version
        for name, version in versions_.items()
        if name.split("/")[1] not in ending
        and not (name.startswith("Namespace/") and name.rpartition("/")[2] in ending)
    }


@pytest.fixture
def before(cluster: Access, kinds: str) -> dict[str, str]:
    """Return the objects, once an earlier story's traces have stopped to change."""
    readings = [versions(cluster, kinds)]

    def is_quiet() -> bool:
        readings.append(versions(cluster, kinds))
        return len(readings) > 2 and readings[-1] == readings[-2] == readings[-3]

    cluster.wait_until(is_quiet, "nothing changes in the cluster")
    return readings[-1]


def test_a_dry_run_shows_the_translation_and_writes_nothing(
    cluster: Access, workshop: str, kinds: str, before: dict[str, str]
) -> None:
    dry_run = ("apply", "-n", workshop, "--dry-run=server", "-o", "json", "-f", SHARE)

    document: Object = json.loads(cluster.kubectl(*dry_run).stdout)

    assert legacy_keys(document) == set()
    assert REQUEST_ANNOTATION in document["metadata"]["annotations"]
    (entry,) = document["spec"]["resourceClaims"]
    (container,) = document["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"cpu": "500m"},
        "requests": {"cpu": "500m"},
        "claims": [{"name": entry["name"], "request": "gpu"}],
    }
    assert before == versions(cluster, kinds)


def test_diff_shows_the_translation_and_writes_nothing(
    cluster: Access, workshop: str, kinds: str, before: dict[str, str]
) -> None:
    differs = cluster.kubectl("diff", "-n", workshop, "-f", SHARE, check=False)

    assert differs.returncode == 1, differs.stderr
    added = [line[1:].strip() for line in differs.stdout.splitlines() if line.startswith("+")]
    assert "resourceClaims:" in added
    assert any(line.startswith("resourceClaimTemplateName: hami-gpu-1-") for line in added)
    assert any(line.startswith(f"{REQUEST_ANNOTATION}:") for line in added)
    assert not any(line.startswith("nvidia.com/") for line in added)
    assert before == versions(cluster, kinds)


def test_a_dry_run_of_every_example_writes_nothing(
    cluster: Access, workshop: str, kinds: str, before: dict[str, str]
) -> None:
    cluster.kubectl("apply", "-n", workshop, "--dry-run=server", "-f", EXAMPLES)

    assert before == versions(cluster, kinds)


def test_a_second_apply_of_the_legacy_manifest_changes_nothing(
    cluster: Access, namespace: str
) -> None:
    command = ("apply", "-n", namespace, "-f", SHARE)
    assert cluster.kubectl(*command).stdout == "pod/share created\n"
    first = cluster.wait_running("share", namespace)

    again = cluster.kubectl(*command)
    second = cluster.get("pods", "share", namespace)

    assert again.stdout.split()[1] in {"unchanged", "configured"}
    assert again.stderr == ""
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert first["spec"] == second["spec"]
    assert cluster.kubectl("diff", "-n", namespace, "-f", SHARE).stdout == ""


def test_a_second_apply_leaves_the_claims_and_tolerations_of_a_pod(
    cluster: Access, namespace: str
) -> None:
    manifest = pod(
        "mixed",
        claims={"own": "own"},
        limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000},
        tolerations=[{"key": "team", "operator": "Exists"}],
    )
    command = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*command, input=stream([claim_template("own", HAMI), manifest]))
    first = cluster.wait_running("mixed", namespace)

    cluster.kubectl(*command, input=stream(manifest))

    second = cluster.get("pods", "mixed", namespace)
    uses = second["spec"]["containers"][0]["resources"]["claims"]
    assert [use["name"] for use in uses].index("own") == 0
    assert len(uses) == 2
    assert first["spec"] == second["spec"]


def test_a_second_server_side_apply_works_too(cluster: Access, namespace: str) -> None:
    command = ("apply", "--server-side", "-n", namespace, "-f", SHARE)
    cluster.kubectl(*command)
    first = cluster.wait_running("share", namespace)

    cluster.kubectl(*command)

    assert first["spec"] == cluster.get("pods", "share", namespace)["spec"]


def test_a_label_of_a_translated_pod_can_be_applied(cluster: Access, namespace: str) -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    command = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*command, input=stream(pod("share", limits=limits)))

    pod_ = pod("share", limits=limits, labels={"team": "blue"})
    cluster.kubectl(*command, input=stream(pod_))

    value = cluster.get("pods", "share", namespace)
    assert value["metadata"]["labels"] == {"team": "blue"}
    assert legacy_keys(value) == set()


def test_a_second_apply_with_another_amount_is_refused_with_the_reason(
    cluster: Access, namespace: str
) -> None:
    def apply(mebibytes: int) -> tuple[int, str]:
        pod_ = pod("share", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": mebibytes})
        output = cluster.kubectl(
            "apply", "-n", namespace, "-f", "-", input=stream(pod_), check=False
        )
        return output.returncode, output.stderr

    assert apply(1000) == (0, "")
    status, words = apply(2000)

    assert status == 1
    assert "a pod's devices cannot change after its creation: recorded 1k, found 2k" in words
    assert "delete the pod and create it again" in words
