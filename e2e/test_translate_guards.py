"""Pods that a translation would harm are refused with the replacement, or left alone with a warning.

And those that Kubernetes serves by itself are left to it.
"""

import json
from collections.abc import Iterator

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import Drawbridge
from e2e.inventory import HAMI, NVIDIA, NVIDIA_EXTENDED_RESOURCE
from e2e.objects import claim_template, pod
from e2e.older_kubernetes import needs
from e2e.translated import devices, legacy_keys
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from testing.documents import api_object, resource_quota

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU = "nvidia.com/gpu"
LIMITS = {GPU: 1, "nvidia.com/gpumem": 1000}
COUNTED = f"{HAMI}.deviceclass.resource.k8s.io/devices"


def apply_quota(cluster: Access, namespace: str, **hard: str) -> None:
    cluster.apply(resource_quota(hard, namespace=namespace))


def test_a_quota_that_would_stop_counting_is_named_with_its_replacement(
    cluster: Access, namespace: str
) -> None:
    create = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    share = stream(pod("share", limits=LIMITS))
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "4"})

    cluster.wait_until(
        lambda: cluster.kubectl(*create, input=share, check=False).returncode,
        "the webhook knows of the quota",
    )
    words = cluster.kubectl(*create, input=share, check=False).stderr

    assert f"ResourceQuota gpus counts requests.{GPU}, which does not include claims" in words
    assert f"count {COUNTED} in a ResourceQuota instead" in words

    # What it advises works, and counts.
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "4", COUNTED: "1"})
    cluster.wait_until(
        lambda: cluster.kubectl(*create, input=share, check=False).returncode == 0,
        "the webhook knows of the replacement",
    )
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=share)
    cluster.wait_running("share", namespace)
    cluster.wait_for(
        "resourcequotas",
        "gpus",
        namespace,
        until=lambda stored: stored["status"]["used"].get(COUNTED) == "1",
    )


def apply_limit_range(cluster: Access, namespace: str, **fields: object) -> None:
    head = api_object("LimitRange", "gpus")
    limits = {**head, "spec": {"limits": [{"type": "Container", **fields}]}}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(limits))


def test_a_limit_range_that_would_reject_every_translated_pod_is_named(
    cluster: Access, namespace: str
) -> None:
    apply_limit_range(cluster, namespace, default={GPU: "1"}, max={GPU: "2"})
    create = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    share = stream(pod("share", limits=LIMITS))
    words = f"LimitRange gpus bounds {GPU}, and Kubernetes rejects pods without it"

    cluster.wait_until(
        lambda: words in cluster.kubectl(*create, input=share, check=False).stderr,
        "the webhook knows of the LimitRange",
    )


def test_a_default_of_a_limit_range_is_no_other_amount(cluster: Access, namespace: str) -> None:
    """Kubernetes sets it again before the second round, on the container that lost its key."""
    apply_limit_range(cluster, namespace, default={"nvidia.com/gpumem": "500"})
    two = stream(pod("two", limits={GPU: 1, "nvidia.com/gpumem": 1000}))
    create = ("create", "-n", namespace, "-f", "-")
    cluster.wait_until(
        lambda: cluster.kubectl(*create, input=two, check=False).returncode == 0,
        "the webhook knows of the LimitRange",
    )

    running = cluster.wait_running("two", namespace)

    assert legacy_keys(running) == set()
    (main,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert main.amounts["memory"] == Quantity("1000Mi")


def test_an_amount_without_bounds_is_the_authors_fault(cluster: Access, workshop: str) -> None:
    huge = stream(pod("huge", limits={GPU: "1e999999", "nvidia.com/gpumem": 3000}))

    output = cluster.kubectl(
        *("create", "-n", workshop, "--dry-run=server", "-f", "-"), input=huge, check=False
    )

    assert "Internal error" not in output.stderr
    assert f"spec.containers[0].resources.limits[{GPU}]" in output.stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"schedulerName": "volcano"},
            'schedulerName: not translated: "volcano" may not support claims',
        ),
        (
            {"nodeName": "hami-0"},
            "nodeName: not translated: nodeName bypasses the scheduler",
        ),
    ],
    ids=["a foreign scheduler", "a node without a scheduler"],
)
def test_a_pod_of_somebody_else_is_left_alone_with_a_warning(
    cluster: Access, workshop: str, spec: Object, words: str
) -> None:
    create = ("create", "-n", workshop, "--dry-run=server", "-o", "json", "-f", "-")

    output = cluster.kubectl(*create, input=stream(pod("alone", limits=LIMITS, **spec)))

    (warning,) = (line for line in output.stderr.splitlines() if "]: fix: " not in line)
    assert f"]: {words}" in warning
    document = json.loads(output.stdout)
    assert legacy_keys(document) == set(LIMITS)
    assert "resourceClaims" not in document["spec"]


def test_a_whole_gpu_is_left_to_kubernetes_where_a_class_maps_its_name(
    cluster: Access, namespace: str
) -> None:
    whole = pod("whole", limits={GPU: 1}, nodeSelector={"kubernetes.io/hostname": "nvidia-0"})

    output = cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(whole))
    running = cluster.wait_running("whole", namespace)

    assert output.stderr == ""
    assert legacy_keys(running) == {GPU}
    assert REQUEST_ANNOTATION not in running["metadata"].get("annotations", {})
    assert "resourceClaims" not in running["spec"]
    name = running["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = cluster.get("resourceclaims", name, namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (NVIDIA, "nvidia-0")


@pytest.fixture
def unmapped(cluster: Access, fleet: list[str]) -> Iterator[None]:
    """No class maps nvidia.com/gpu, as with a driver that was installed without it."""
    patch = ("patch", "deviceclass", NVIDIA, "--type=merge", "-p")
    without, again = (
        json.dumps({"spec": {"extendedResourceName": name}})
        for name in (None, NVIDIA_EXTENDED_RESOURCE)
    )
    cluster.kubectl(*patch, without)
    yield
    cluster.kubectl(*patch, again)


def test_a_whole_gpu_is_translated_where_no_class_maps_its_name(
    cluster: Access, namespace: str, unmapped: None
) -> None:
    whole = pod("whole", limits={GPU: 2})
    cluster.wait_until(
        lambda: "resourceClaims" in dry_run(cluster, namespace, whole)["spec"],
        "the webhook knows that nothing maps the name",
    )
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(whole))
    running = cluster.wait_running("whole", namespace)

    assert legacy_keys(running) == set()
    main_devices = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert [device_.driver for device_ in main_devices] == [NVIDIA] * 2
    assert len({device_.device for device_ in main_devices}) == 2


# --- others who write in a pod --------------------------------------------------------------------


def test_a_claim_of_the_pod_s_own_stays_beside_ours(cluster: Access, namespace: str) -> None:
    own = claim_template("own", HAMI)
    document = pod("both", claims={"gpu-main": "own"}, limits=LIMITS)

    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream([own, document]))
    running = cluster.wait_running("both", namespace)

    first, second = running["spec"]["resourceClaims"]
    assert first == {"name": "gpu-main", "resourceClaimTemplateName": "own"}
    assert second["name"] == "gpu-main-2"
    main_devices = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert [HAMI, HAMI] == [device_.driver for device_ in main_devices]


SAY_WHETHER_THERE_ARE_CLAIMS = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {
        "expression": 'Object{metadata: Object.metadata{labels: {"has": '
        'has(object.spec.resourceClaims) ? "claims" : "none"}}}'
    },
}
CAP_THE_CORES_OF_WHAT_HAS_CLAIMS = {
    "patchType": "JSONPatch",
    "jsonPatch": {
        "expression": 'has(object.spec.resourceClaims) ? [JSONPatch{op: "add", '
        'path: "/spec/containers/0/resources/limits", value: {"nvidia.com/gpucores": "10"}}] : '
        '[JSONPatch{op: "add", path: "/metadata/labels", value: {"has": "none"}}]'
    },
}


mutating_policies = needs(36, "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1")


@pytest.fixture
def policy(request: pytest.FixtureRequest, cluster: Access, namespace: str) -> Iterator[None]:
    """A MutatingAdmissionPolicy with the mutation that the story is parametrized with.

    Policies come before the webhooks, in both rounds; when one of them writes in the second, we are
    asked again.
    """
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**pods, "operations": ["CREATE"]}]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "mutations": [request.param],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {"policyName": namespace, "matchResources": {"namespaceSelector": here}}
    cluster.apply(
        [
            {**head, "kind": "MutatingAdmissionPolicy", "spec": spec},
            {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": binding},
        ]
    )
    plain = pod("plain")
    cluster.wait_until(
        lambda: dry_run(cluster, namespace, plain)["metadata"].get("labels"),
        "the policy is in force",
    )
    yield
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        cluster.kubectl("delete", kind, namespace)


def dry_run(cluster: Access, namespace: str, document: Object) -> Object:
    """The object as it would be created."""
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    shown: Object = json.loads(cluster.kubectl(*command, input=stream(document)).stdout)
    return shown


@pytest.mark.usefixtures("policy")
@mutating_policies
@pytest.mark.parametrize("policy", [SAY_WHETHER_THERE_ARE_CLAIMS], indirect=True, ids=["a label"])
def test_a_second_round_of_admission_finds_nothing_to_do(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    translated, accepted = map(drawbridge.decisions, ("translated", "accepted"))

    dry_run_ = dry_run(cluster, namespace, pod("share", limits=LIMITS))

    assert dry_run_["metadata"]["labels"] == {"has": "claims"}
    assert translated + 1 == drawbridge.decisions("translated")
    assert accepted + 1 == drawbridge.decisions("accepted")
    assert legacy_keys(dry_run_) == set()
    assert len(dry_run_["spec"]["resourceClaims"]) == 1


@pytest.mark.usefixtures("policy")
@mutating_policies
@pytest.mark.parametrize(
    "policy", [CAP_THE_CORES_OF_WHAT_HAS_CLAIMS], indirect=True, ids=["a device key"]
)
def test_a_key_that_comes_after_the_translation_is_translated_with_the_rest(
    cluster: Access, namespace: str
) -> None:
    share = stream(pod("share", limits=LIMITS))
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=share)

    running = cluster.wait_running("share", namespace)

    assert legacy_keys(running) == set()
    (main,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert main.amounts == {"memory": Quantity("1000Mi"), "cores": Quantity(10)}
