"""The driver's manifests: alone, least privileged, and hardened as far as a driver can be."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from allocator.model.outcome import Reason
from driver.model.inventory import Inventory
from driver.model.settings import DRIVER_NAME, VARIABLES, DriverSettings
from driver.plan.declared import read_inventory
from driver.plan.prepare import Refusal, prepare_claim
from driver.plan.slices import Publication, slice_name
from kube.api.meta import ObjectMeta, decode
from kube.api.policy import DeviceCompatibilityPolicy, effective_policies
from kube.cel.compile import Environment, compile_selector
from kube.manifests.reader import read_paths
from process.profiles.profile_files import load_profiles
from process.running.command import DEFAULT_CONFIG
from testing.allocation.builders import device, result
from testing.driver.builders import PUBLICATION, allocated_claim, node_state, prepared_checkpoint

ROOT: Final = Path(__file__).parent.parent
DRIVER: Final = ROOT / "manifests" / "driver"
MOST_NODES: Final = 65_000
"""The largest number of nodes of a cluster of GKE."""
OTHERS: Final = (ROOT / "manifests" / "base", ROOT / "manifests" / "observer")

Document = Mapping[str, Any]


def of_kind(kind: str) -> Iterator[Document]:
    return (
        read_path.document
        for read_path in read_paths([str(DRIVER)])
        if read_path.document["kind"] == kind
    )


def container() -> Document:
    (daemon_set,) = of_kind("DaemonSet")
    (container_,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert isinstance(container_, dict)
    return container_


def test_the_kustomization_lists_every_file() -> None:
    (kustomization,) = of_kind("Kustomization")
    (config_map_generator,) = kustomization["configMapGenerator"]

    files = {path.name for path in DRIVER.iterdir() if path.is_file()}
    assert files - {"kustomization.yaml"} == {
        *kustomization["resources"],
        *config_map_generator["files"],
    }


# --- the policy -----------------------------------------------------------------------------------


def shipped_policy() -> DeviceCompatibilityPolicy:
    """The policy; it is installed by itself, since its kind comes with manifests/base."""
    (document,) = (
        read_path.document
        for read_path in read_paths([str(DRIVER / "policy")])
        if read_path.document["kind"] == "DeviceCompatibilityPolicy"
    )
    return decode(msgspec.json.encode(document), DeviceCompatibilityPolicy)


def created(name: str, moment: str) -> DeviceCompatibilityPolicy:
    metadata = ObjectMeta(name=name, creation_timestamp=moment)
    return msgspec.structs.replace(shipped_policy(), metadata=metadata)


def test_the_policy_does_not_take_over_an_older_one() -> None:
    policies = [
        created("a-later-one", "2026-02-02T00:00:00Z"),
        created("z", "2026-01-01T00:00:00Z"),
    ]

    assert "z" == effective_policies(policies)[DRIVER_NAME].metadata.name


@pytest.mark.parametrize(
    ("tenant", "claimed", "is_refused"),
    [
        ("gpu-0", "gpu-0-mig", True),
        ("gpu-0-mig", "gpu-0", True),
        ("gpu-0", "gpu-1", False),
        ("gpu-0-mig", "gpu-0-mig-2", False),
        ("gpu-0-mig", "gpu-1", False),
        ("gpu-0", "eth0", False),
    ],
)
def test_the_policy_keeps_a_gpu_and_its_parts_apart(
    tenant: str, claimed: str, is_refused: bool
) -> None:
    devices = (
        device("gpu-0", attributes={"type": "gpu", "uuid": "u0"}),
        device("gpu-1", attributes={"type": "gpu", "uuid": "u1"}),
        device("gpu-0-mig", attributes={"type": "mig", "parentUUID": "u0"}),
        device("gpu-0-mig-2", attributes={"type": "mig", "parentUUID": "u0"}),
        device("eth0", attributes={"type": "nic"}),
    )
    publication = msgspec.structs.replace(PUBLICATION, driver=DRIVER_NAME)
    state = msgspec.structs.replace(
        node_state(*devices, policies=[shipped_policy()]), publication=publication
    )
    allocated_claim_ = allocated_claim(result(tenant, driver=DRIVER_NAME), name="tenant")
    other = allocated_claim(result(claimed, driver=DRIVER_NAME), name="claimed")

    outcome = prepare_claim(
        other, other.metadata.uid, state, prepared_checkpoint(allocated_claim_, devices=devices)
    )

    assert is_refused == isinstance(outcome, Refusal)
    if isinstance(outcome, Refusal):
        assert Reason.POLICY is outcome.reason


# --- the rest -------------------------------------------------------------------------------------


def test_it_shares_no_object_with_what_else_is_installed() -> None:
    def names(folder: Path) -> set[tuple[str, str, str]]:
        documents = (read_path.document for read_path in read_paths([str(folder)]))
        return {
            (
                document["kind"],
                document["metadata"].get("namespace", ""),
                document["metadata"]["name"],
            )
            for document in documents
            if "metadata" in document
        }

    assert not any(names(DRIVER) & names(folder) for folder in OTHERS)


def test_it_may_do_what_it_does_and_nothing_else() -> None:
    (role,) = of_kind("ClusterRole")
    granted = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert granted == {
        ("nodes", "get"),
        *(("resourceslices", verb) for verb in ("list", "watch", "create", "patch", "delete")),
        ("resourceclaims", "get"),
        ("resourceclaims/status", "patch"),
        ("resourceclaims/driver", "associated-node:patch"),
        ("devicecompatibilitypolicies", "list"),
        ("devicecompatibilitypolicies", "watch"),
    }
    (names,) = (rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule)
    assert [DRIVER_NAME] == names


POLICIES: Final = {
    policy["metadata"]["name"]: policy for policy in of_kind("ValidatingAdmissionPolicy")
}
OF_THE_ACCOUNT: Final = "drawbridge-driver-node"
OF_EVERYBODY_ELSE: Final = "drawbridge-driver-pools"


def test_of_two_restrictions_one_is_of_its_account_and_one_of_everybody_else() -> None:
    (account,) = of_kind("ServiceAccount")
    metadata = account["metadata"]
    name = f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}"

    assert {OF_THE_ACCOUNT, OF_EVERYBODY_ELSE} == POLICIES.keys()
    for policy, comparison in ((OF_THE_ACCOUNT, "=="), (OF_EVERYBODY_ELSE, "!=")):
        conditions = POLICIES[policy]["spec"]["matchConditions"]
        assert f'{comparison} "{name}"' in conditions[0]["expression"]


@pytest.mark.parametrize("name", POLICIES)
def test_a_restriction_denies(name: str) -> None:
    bindings = {
        binding["spec"]["policyName"]: binding["spec"]["validationActions"]
        for binding in of_kind("ValidatingAdmissionPolicyBinding")
    }

    assert ["Deny"] == bindings[name]
    assert "Fail" == POLICIES[name]["spec"]["failurePolicy"]


def test_nobody_is_kept_from_deleting_a_slice_but_the_driver_from_those_of_others() -> None:
    operations = {
        name: rule["operations"]
        for name, policy in POLICIES.items()
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
    }

    assert operations == {
        OF_THE_ACCOUNT: ["CREATE", "UPDATE", "DELETE"],
        OF_EVERYBODY_ELSE: ["CREATE", "UPDATE"],
    }


@pytest.mark.parametrize("policy_name", POLICIES)
@pytest.mark.parametrize("node", ["node-a", "a.b", "n" * 253, "n" * 235 + ".-" + "n" * 16])
def test_a_restriction_knows_the_names_of_slices(node: str, policy_name: str) -> None:
    policy = POLICIES[policy_name]
    (variable,) = (entry for entry in policy["spec"]["variables"] if entry["name"] == "nodeOfName")
    (pattern,) = re.findall(r'matches\("(.*?)"\)', variable["expression"])
    (tail,) = re.findall(r"size\(\) - (\d+)", variable["expression"])

    name = slice_name(Publication(driver=DRIVER_NAME, node=node, node_uid=""), f"{node}/nics", 7)

    assert re.fullmatch(pattern, name)
    node_of_name = name[: -int(tail)]
    is_shortened = len(node_of_name) > 200 and node.startswith(node_of_name)
    assert node_of_name == node or is_shortened


def test_an_update_leaves_no_moment_without_a_driver() -> None:
    (daemon_set,) = of_kind("DaemonSet")

    strategy = daemon_set["spec"]["updateStrategy"]["rollingUpdate"]

    assert {"maxSurge": 1, "maxUnavailable": 0} == strategy


def test_it_is_root_and_nothing_more() -> None:
    security = container()["securityContext"]

    assert {"drop": ["ALL"]} == security["capabilities"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert "privileged" not in security


def test_it_sees_the_folders_that_it_writes() -> None:
    settings = DriverSettings()
    (daemon_set,) = of_kind("DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    hosts = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in spec["volumes"]
        if "hostPath" in volume
    }
    mounts = {
        volume_mount["mountPath"]: hosts.get(volume_mount["name"])
        for volume_mount in container()["volumeMounts"]
    }

    for folder in (settings.plugins.parent, settings.registry, settings.cdi_directory):
        assert str(folder) == mounts[str(folder)], "the path differs inside and outside"
    assert settings.inventory in mounts


def test_it_reads_settings_where_there_are_some() -> None:
    (daemon_set,) = of_kind("DaemonSet")
    volumes = {
        volume["name"]: volume.get("configMap")
        for volume in daemon_set["spec"]["template"]["spec"]["volumes"]
    }
    mounts = {
        volume_mount["mountPath"]: volumes[volume_mount["name"]]
        for volume_mount in container()["volumeMounts"]
    }

    settings = {"name": "drawbridge-settings", "optional": True}
    assert settings == mounts[str(DEFAULT_CONFIG.parent)]


def test_selinux_lets_it_make_sockets_in_the_folders_of_the_kubelet() -> None:
    (daemon_set,) = of_kind("DaemonSet")

    security = daemon_set["spec"]["template"]["spec"]["securityContext"]

    assert {"level": "s0", "type": "spc_t"} == security["seLinuxOptions"]


def test_its_priority_class_has_a_quota_for_two_pods_on_each_node_of_any_cluster() -> None:
    """Without it, GKE allows the class in kube-system only."""
    (daemon_set,) = of_kind("DaemonSet")
    (quota,) = of_kind("ResourceQuota")
    (expression,) = quota["spec"]["scopeSelector"]["matchExpressions"]

    priority_class = daemon_set["spec"]["template"]["spec"]["priorityClassName"]

    assert daemon_set["metadata"]["namespace"] == quota["metadata"]["namespace"]
    assert expression == {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": [priority_class],
    }
    assert int(quota["spec"]["hard"]["pods"]) > 2 * MOST_NODES


def test_it_knows_its_node_and_its_pod() -> None:
    fields = {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container()["env"]
    }

    assert {
        "DRAWBRIDGE_NODE_NAME": "spec.nodeName",
        "DRAWBRIDGE_POD_UID": "metadata.uid",
    } == fields
    assert fields.keys() <= VARIABLES.keys()


def test_the_inventory_that_comes_with_it_is_good_and_empty() -> None:
    document = yaml.load((DRIVER / "default.yaml").read_text(), Loader=yaml.CSafeLoader)

    assert Inventory() == read_inventory(document)


def test_its_classes_compile_and_are_those_of_the_profile() -> None:
    classes = {class_["metadata"]["name"]: class_ for class_ in of_kind("DeviceClass")}
    for class_ in classes.values():
        (selector,) = class_["spec"]["selectors"]
        compile_selector(selector["cel"]["expression"], Environment.STORED)

    profile = load_profiles()[DRIVER_NAME]

    assert {kind.class_name for kind in profile.devices.values()} <= classes.keys()
