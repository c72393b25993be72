"""DeviceTranslationProfiles: a driver's names as an object of the cluster, in force within seconds.

The driver and its names are those of examples/profile.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from e2e.access import Access, Object, stream
from e2e.drawbridge import Drawbridge, command_line
from e2e.fleet import EXAMPLES, translation_profile
from e2e.inventory import kwok_node
from e2e.objects import pod
from e2e.users import EDITOR, add_user
from kube.api.translation_profile import KIND
from kube.names import CONFIGURATION, REQUEST_ANNOTATION
from translation.profiles.names import MAX_NAMES, MAX_RESOURCES

PROFILES: Final = "devicetranslationprofiles"
FOLDER: Final = EXAMPLES / "profile"
DRIVER: Final = "npu.example.com"
KEY: Final = "example.com/npu-large"
NEW_KEY: Final = "example.com/npu-new"
NODE: Final = "profile-npu-0"
SECONDS: Final = 120.0
"""The time for everything to follow; it takes about one."""
CONTAINERS: Final = 60
"""The number of containers of a pod, with amounts of ten resources each: more than any pod has."""

pytestmark = pytest.mark.usefixtures("drawbridge")


def profile(resources: dict[str, Any] | None = None, name: str = DRIVER) -> Object:
    """The profile of the example; with other names and devices if some are given."""
    document = translation_profile(name)
    if resources:
        document["spec"]["devices"]["device"]["resources"] = resources
    return document


def edited() -> Object:
    """The example, with one name more and a filter less."""
    document = profile()
    resources = document["spec"]["devices"]["device"]["resources"]
    resources[NEW_KEY] = {}
    resources[KEY] = {"where": {"size": "large", "product": "Example NPU"}}
    return document


@pytest.fixture(autouse=True)
def devices(cluster: Access) -> Iterator[str]:
    """The devices of the example on a simulated node; no profile before and after."""
    documents = list(yaml.load_all((FOLDER / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader))
    (device_class,) = (document for document in documents if document["kind"] == "DeviceClass")
    slices = [
        json.loads(json.dumps(document).replace("npu-0-npu", f"{NODE}-npu"))
        for document in documents
        if document["kind"] == "ResourceSlice"
    ]
    for slice_ in slices:
        slice_["spec"]["nodeName"] = slice_["spec"]["pool"]["name"] = NODE
    cluster.apply([device_class])
    cluster.add_nodes([kwok_node(NODE)], lambda _: slices)
    yield NODE
    cluster.kubectl("delete", PROFILES, "--all", "--wait")
    wait_for_keys(cluster, absent="example.com/npu")
    cluster.remove_nodes([NODE])
    cluster.kubectl("delete", "deviceclass", DRIVER)


def conditions(cluster: Access, name: str = DRIVER) -> dict[str, Object]:
    """Type to the condition, of the present generation only."""
    document = cluster.find(PROFILES, name)
    if document is None:
        return {}
    return {
        condition["type"]: condition
        for condition in document.get("status", {}).get("conditions", ())
        if condition["observedGeneration"] == document["metadata"]["generation"]
    }


def wait_status(cluster: Access, type_: str, status: str, name: str = DRIVER) -> Object:
    """The condition, once it has a status."""
    cluster.wait_until(
        lambda: conditions(cluster, name).get(type_, {}).get("status") == status,
        f"{type_} of {name} is {status}",
        timeout_s=SECONDS,
    )
    return conditions(cluster, name)[type_]


def wait_for_keys(cluster: Access, *, present: str = "", absent: str = "") -> None:
    """Wait until the API server asks the webhook about a key, or does not any more."""

    def expressions() -> str:
        document = cluster.get("mutatingwebhookconfigurations", CONFIGURATION)
        (first, *_) = document["webhooks"]
        return json.dumps(first["matchConditions"])

    cluster.wait_until(
        lambda: present in expressions() and not (absent and f'\\"{absent}\\"' in expressions()),
        f"the match conditions have {present or 'no ' + absent}",
        timeout_s=SECONDS,
    )


def create(cluster: Access, namespace: str, name: str, key: str) -> Object:
    """A pod that requests two devices by a name, created again until it is translated."""
    document = pod(name, limits={key: 2})

    def is_translated() -> bool:
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(document))
        stored = cluster.get("pods", name, namespace)
        if REQUEST_ANNOTATION in stored["metadata"].get("annotations", {}):
            return True
        cluster.kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force")
        return False

    cluster.wait_until(is_translated, f"{name} is translated", timeout_s=SECONDS)
    return cluster.get("pods", name, namespace)


def templates(document: Object) -> list[str]:
    """The ResourceClaimTemplates that a pod uses."""
    return [
        claim["resourceClaimTemplateName"] for claim in document["spec"].get("resourceClaims", ())
    ]


def version(document: Object) -> str:
    """The version of the profile that a pod names."""
    (used,) = json.loads(document["metadata"]["annotations"][REQUEST_ANNOTATION])["profiles"]
    return str(used["hash"])


def test_a_profile_is_in_force_within_seconds_and_an_edit_strands_nobody(
    cluster: Access, namespace: str
) -> None:
    cluster.apply(profile())
    wait_status(cluster, "Accepted", "True")
    wait_for_keys(cluster, present=KEY)

    first = create(cluster, namespace, "first", KEY)
    cluster.wait_running("first", namespace, timeout_s=SECONDS)
    condition = wait_status(cluster, "DevicesFound", "True")
    assert "4 devices in 1 ResourceSlices" in condition["message"]
    status = cluster.get(PROFILES, DRIVER)["status"]
    assert status["keys"] == ["example.com/npu", KEY, "example.com/npu-slice"]
    assert status["version"] == version(first)

    # Another version: new names, and other claims for those that were there.
    cluster.apply(edited())
    wait_status(cluster, "Accepted", "True")
    wait_for_keys(cluster, present=NEW_KEY)
    second = create(cluster, namespace, "second", NEW_KEY)
    assert version(second) != version(first)
    cluster.wait_until(
        lambda: cluster.get(PROFILES, DRIVER)["status"]["keptVersions"] == 2,
        "both versions are kept",
        timeout_s=SECONDS,
    )

    # The template of the older pod is made again, by the version that the pod names.
    (template,) = templates(first)
    cluster.kubectl("delete", "resourceclaimtemplate", template, "-n", namespace)
    cluster.wait_for("resourceclaimtemplates", template, namespace, timeout_s=SECONDS)

    # Also without the profile; and what no profile lists is left alone again.
    cluster.kubectl("delete", PROFILES, DRIVER)
    wait_for_keys(cluster, absent=NEW_KEY)
    cluster.kubectl("delete", "resourceclaimtemplate", template, "-n", namespace)
    cluster.wait_for("resourceclaimtemplates", template, namespace, timeout_s=SECONDS)
    cluster.kubectl(
        "create", "-n", namespace, "-f", "-", input=stream(pod("third", limits={NEW_KEY: 1}))
    )
    third = cluster.get("pods", "third", namespace)
    assert REQUEST_ANNOTATION not in third["metadata"].get("annotations", {})


def test_conflicts_and_replaced_profiles_are_reported(cluster: Access) -> None:
    cluster.apply(profile())
    wait_status(cluster, "NoConflicts", "True")

    other = profile({"example.com/npu": {}, "nvidia.com/gpu": {}}, "zpu.example.com")
    cluster.apply(other)
    condition = wait_status(cluster, "NoConflicts", "False", "zpu.example.com")

    assert "the profile of npu.example.com lists it too" in condition["message"]
    assert "belongs to the vocabulary" in condition["message"]
    columns = cluster.kubectl("get", PROFILES).stdout
    assert "CONFLICTS" in columns

    shipped: Object = yaml.load(
        (EXAMPLES.parent / "translation" / "profiles" / "gpu.intel.com.yaml").read_text(),
        Loader=yaml.CSafeLoader,
    )
    cluster.apply({**profile(), "metadata": {"name": "gpu.intel.com"}, "spec": shipped})
    wait_status(cluster, "Accepted", "True", "gpu.intel.com")
    assert cluster.get(PROFILES, "gpu.intel.com")["status"]["replaces"] == "shipped"


def refused(cluster: Access, document: Object) -> str:
    """Return the reason the API server or the webhook refuses an object; empty if it does not."""
    output = cluster.kubectl("apply", "-f", "-", input=stream(document), check=False)
    return str(output.stderr) if output.returncode else ""


def test_what_is_no_profile_is_refused_with_the_reason(cluster: Access) -> None:
    misnamed = profile()
    misnamed["metadata"]["name"] = "other.example.com"
    starred = profile({"example.com/*/x": {}})
    without_domain = profile({"npu": {}})
    hostile = copy.deepcopy(profile())
    hostile["spec"]["devices"]["device"]["attributes"]["model"] = 'x"] || true || ["'
    native = profile({"kubernetes.io/npu": {}})
    many = profile({f"example.com/npu-{number}": {} for number in range(MAX_RESOURCES + 1)})
    advice = profile({"example.com/npu": {"advice": "none"}})
    value = profile({"example.com/npu": {"where": {"size": {"a": 1}}}})

    assert "named after its driver" in refused(cluster, misnamed)
    assert "only at its end" in refused(cluster, starred)
    assert "has a domain" in refused(cluster, without_domain)
    assert "should match" in refused(cluster, hostile)
    assert "Kubernetes' own" in refused(cluster, native)
    assert "at most 64 items" in refused(cluster, many)
    assert "only beside rejected" in refused(cluster, advice)
    assert "is not a driver profile" in refused(cluster, value)
    assert cluster.objects(PROFILES) == []


def test_a_user_of_a_namespace_may_not_write_profiles(cluster: Access, namespace: str) -> None:
    kubeconfig = add_user(cluster, namespace, EDITOR)

    output = cluster.kubectl(
        "create", "-f", "-", input=stream(profile()), check=False, kubeconfig=kubeconfig
    )

    assert output.returncode
    assert "forbidden" in output.stderr
    assert cluster.objects(PROFILES) == []


def test_the_api_server_bears_the_conditions_with_as_many_names_as_there_may_be(
    cluster: Access, namespace: str
) -> None:
    number_of_profiles = MAX_NAMES // MAX_RESOURCES
    for number in range(number_of_profiles):
        names: dict[str, Any] = {
            f"example.com/npu-{number}-{index}": {} for index in range(MAX_RESOURCES)
        }
        cluster.apply(profile(names, f"npu-{number}.example.com"))
    for number in range(number_of_profiles):
        wait_status(cluster, "Accepted", "True", f"npu-{number}.example.com")
    wait_for_keys(cluster, present=f"example.com/npu-{number_of_profiles - 1}-0")
    amounts = {f"vendor.example/resource-{number}": 1 for number in range(8)}
    large = pod("large", limits={**amounts, "cpu": "1m", "memory": "1Mi"})
    (container,) = large["spec"]["containers"]
    large["spec"]["containers"] = [
        {**container, "name": f"part-{number}"} for number in range(CONTAINERS)
    ]

    output = cluster.kubectl(
        "create", "-n", namespace, "--dry-run=server", "-f", "-", input=stream(large), check=False
    )
    cluster.apply(profile())
    excess = wait_status(cluster, "Accepted", "False")

    assert output.returncode == 0, output.stderr
    assert excess["reason"] == "TooManyNames"
    assert "nothing of it is in force" in excess["message"]


def test_commands_read_the_profiles_of_the_cluster(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    cluster.apply(profile())
    wait_status(cluster, "Accepted", "True")

    translated = command_line(
        cluster,
        "translate",
        "-f",
        str(FOLDER / "pod.yaml"),
        "--live",
        "-n",
        namespace,
        "-o",
        "text",
    )
    snapshot = command_line(cluster, "snapshot", "-o", "-")

    assert "class npu.example.com" in translated.stdout
    assert KIND in snapshot.stdout
