"""NICs as claims: classes, selectors, pools on drivers that share and on those that do not."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from admission.pods import Decision
from kube.api.meta import convert
from kube.api.resource import Device
from kube.cel.compile import compile_in_place
from kube.cel.device import device_view as seen_by_selectors
from kube.cel.library import Environment
from testing.builders import (
    DRANET,
    SRIOV,
    admit,
    admit_update,
    container,
    derived_claims,
    device,
    devices_of,
    driver_slice,
    exactly,
    finding_codes,
    gpus,
    koordinator_annotations,
    pod,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.profiles.profile import Profile, parse_profile

IS_RDMA = '"rdma" in device.attributes["dra.net"] && device.attributes["dra.net"].rdma == true'
POOL = "rdma/hca_shared_devices_a"
EFA = "vpc.amazonaws.com/efa"
MLNX = "mellanox.com/mlnx_rdma"


def carries(name: str) -> str:
    """The selector of virtual functions that carry the name, short or as a whole."""
    short = name.partition("/")[2]
    own = f'device.attributes["{SRIOV}"]'
    multus = 'device.attributes["k8s.cni.cncf.io"]'
    return (
        f'("resourceName" in {own} && {own}.resourceName == "{short}") || '
        f'("resourceName" in {multus} && {multus}.resourceName == "{name}")'
    )


def nic(class_name: str, count: int = 1, *selectors: str, name: str = "nic") -> Document:
    return exactly(class_name, count, *selectors, name=name)


def every(request: Document) -> Document:
    """The same request, of all devices."""
    fields = {field: value for field, value in request["exactly"].items() if field != "count"}
    return request | {"exactly": fields | {"allocationMode": "All"}}


class Case(NamedTuple):
    name: str
    pod: Document
    want: tuple[list[Document], ...]
    """The requests of each claim."""
    codes: tuple[str, ...] = ()


A_SHARE = ("warning notPublishedByDriver", "warning oneOfPool")
UNTOLD = "warning notPublishedByDriver"
UNSET = "warning envVarNotProvided"
UNCONFIGURED = "warning classConfigMissing"
GKE = "networking.gke.io.networks/"

CASES = (
    Case(
        "a share of a pool is one RDMA NIC, where NICs are not shared",
        pod(container("main", {POOL: 1})),
        ([nic("dranet", 1, IS_RDMA)],),
        A_SHARE,
    ),
    Case(
        "four shares are no four NICs",
        pod(container("main", {POOL: 4})),
        ([nic("dranet", 1, IS_RDMA)],),
        ("warning clamped", *A_SHARE),
    ),
    Case(
        "EFA devices beside GPUs are a claim of their own: nothing asks for alignment",
        pod(container("main", {"nvidia.com/gpu": 8, EFA: 32, "hugepages-2Mi": "5120Mi"})),
        ([exactly("gpu.nvidia.com", 8)], [nic("efa.networking.k8s.aws", 32)]),
    ),
    Case(
        "eRDMA interfaces have a class of their own",
        pod(container("main", {"aliyun/erdma": 1})),
        ([nic("erdma.alibaba.dra.net")],),
        ("warning oneOfPool",),
    ),
    Case(
        "GKE's networks: RDMA and other interfaces, whose network nothing tells",
        pod(container("main", {f"{GKE}rdma-0": 1, f"{GKE}rdma-0.IP": 1, f"{GKE}vpc1": 1})),
        ([nic("mrdma.google.com", name="nic-0"), nic("netdev.google.com", name="nic-1")],),
        (UNTOLD, UNTOLD),
    ),
    Case(
        "virtual functions by the name that they carry",
        pod(container("main", {MLNX: 2})),
        ([nic(SRIOV, 2, carries(MLNX))],),
        (UNSET, UNCONFIGURED),
    ),
    Case(
        "several names of one driver are one claim",
        pod(container("a", {MLNX: 1}), container("b", {"openshift.io/dpdk": 1})),
        (
            [
                nic(SRIOV, 1, carries(MLNX), name="nic-0"),
                nic(SRIOV, 1, carries("openshift.io/dpdk"), name="nic-1"),
            ],
        ),
        (UNSET, UNSET, UNCONFIGURED),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims(case: Case) -> None:
    got = translation_of(case.pod)

    assert case.want == tuple(devices_of(claim)["requests"] for claim in got.claims)
    assert list(case.codes) == finding_codes(got.findings)


def test_a_class_with_a_configuration_of_the_driver_needs_no_other() -> None:
    pod_ = pod(container("main", {MLNX: 1}))
    named = {"class_configs": {SRIOV: frozenset({SRIOV})}}
    other = {"class_configs": {SRIOV: frozenset({"gpu.example.com"})}}

    configured = translation_of(pod_, translation_snapshot(**named))
    by_another = translation_of(pod_, translation_snapshot(**other))

    assert [UNSET] == finding_codes(configured.findings)
    assert [UNSET, UNCONFIGURED] == finding_codes(by_another.findings)
    assert "spec.containers[0].resources.limits[mellanox.com/mlnx_rdma]" == str(
        by_another.findings[1].path
    )


def attribute(value: object) -> Document:
    return {{bool: "bool", int: "int", str: "string"}[type(value)]: value}


def nic_with(**attributes: object) -> Device:
    named = {name: attribute(value) for name, value in attributes.items()}
    return convert({"name": "nic-0", "attributes": named}, Device)


class Match(NamedTuple):
    name: str
    key: str
    driver: str
    device: Device
    want: bool


MATCHES = (
    Match("an RDMA NIC is of a pool", POOL, DRANET, nic_with(rdma=True), True),
    Match("another NIC is not", POOL, DRANET, nic_with(rdma=False), False),
    Match("nor one that does not say", POOL, DRANET, nic_with(), False),
    Match("nor a GPU", POOL, "gpu.nvidia.com", nic_with(rdma=True), False),
    Match("a function by its short name", MLNX, SRIOV, nic_with(resourceName="mlnx_rdma"), True),
    Match("which is not the whole", MLNX, SRIOV, nic_with(resourceName=MLNX), False),
    Match("a function of another name", MLNX, SRIOV, nic_with(resourceName="mlnx"), False),
    Match("a function without a name", MLNX, SRIOV, nic_with(), False),
    Match(
        "a function by the name that Multus knows",
        MLNX,
        SRIOV,
        convert(
            {"name": "vf-0", "attributes": {"k8s.cni.cncf.io/resourceName": attribute(MLNX)}},
            Device,
        ),
        True,
    ),
)


@pytest.mark.parametrize("case", MATCHES, ids=lambda case: case.name)
def test_which_devices_a_selector_takes(case: Match) -> None:
    (claim,) = translation_of(pod(container("main", {case.key: 1}))).claims
    (selector,) = devices_of(claim)["requests"][0]["exactly"]["selectors"]

    compiled = compile_in_place(selector["cel"]["expression"], Environment.NEW)

    assert case.want is compiled.matches(seen_by_selectors(case.driver, case.device))


LABELLED = """
driver: dra.net
devices:
  nic:
    class: dranet
    labels: {type: model, rail: rail}
    virtualFunctions: {virtual: true}
    resources: {koordinator.sh/rdma: {}}
"""
"""A profile with the attributes of labels of Koordinator's Device objects."""


def hinted(**hint: object) -> Document:
    """A pod with a NIC that has a hint of Koordinator's."""
    annotations = koordinator_annotations(hint={"rdma": hint})
    return pod(container("main", {"koordinator.sh/rdma": 100}), annotations=annotations)


FAST: Mapping[str, object] = {
    "matchLabels": {"type": "fast"},
    "matchExpressions": [{"key": "rail", "operator": "NotIn", "values": ["1", '2"']}],
}
VF: Mapping[str, object] = {}


@pytest.mark.parametrize(
    ("hint", "attributes", "want"),
    [
        ({"selector": FAST}, {"model": "fast"}, True),
        ({"selector": FAST}, {"model": "fast", "rail": "3"}, True),
        ({"selector": FAST}, {"model": "fast", "rail": "1"}, False),
        ({"selector": FAST}, {"model": "fast", "rail": '2"'}, False),
        ({"selector": FAST}, {"model": "slow"}, False),
        ({"selector": FAST}, {}, False),
        ({"vfSelector": VF}, {"virtual": True}, True),
        ({"vfSelector": VF}, {"virtual": False}, False),
        ({"vfSelector": VF}, {}, False),
        ({"vfSelector": FAST}, {"model": "fast", "virtual": True}, True),
        ({"vfSelector": FAST}, {"model": "fast"}, False),
    ],
)
def test_labels_of_a_hint_are_attributes_that_a_profile_names(
    hint: Mapping[str, object], attributes: Mapping[str, object], want: bool
) -> None:
    cluster = translation_snapshot(
        profiles={**profiles(), DRANET: parse_profile(LABELLED, "labelled")}
    )
    options = TranslationOptions(profiles={"koordinator": DRANET})

    (claim,) = translation_of(hinted(**hint), cluster, options).claims
    selectors = devices_of(claim)["requests"][0]["exactly"]["selectors"]

    nic_ = seen_by_selectors(DRANET, nic_with(**attributes))
    assert want is all(
        compile_in_place(selector["cel"]["expression"], Environment.NEW).matches(nic_)
        for selector in selectors
    )


def test_a_label_that_no_profile_names_is_rejected_with_the_place_to_name_it() -> None:
    (finding,) = [
        finding
        for finding in translation_outcome(hinted(selector=FAST)).findings
        if "label type" in finding.message
    ]

    assert ("error cannotExpress", "devices.nic.labels") == (
        f"{finding.severity} {finding.code}",
        finding.fix.partition(" under ")[2].partition(" in a ")[0],
    )


def test_virtual_functions_that_no_profile_names_are_left_to_the_class() -> None:
    codes = finding_codes(translation_outcome(hinted(vfSelector=VF)).findings)

    assert "warning policyDropped" in codes


REFUSALS = (
    Case("a share and a half", pod(container("main", {POOL: "1.5"})), (), ("error notAnInteger",)),
    Case(
        "a request without a limit",
        pod(container("main", resources={"requests": {EFA: "1"}})),
        (),
        ("error limitRequired",),
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Case) -> None:
    assert list(case.codes) == finding_codes(translation_outcome(case.pod).findings)


# --- containers -----------------------------------------------------------------------------------


def test_all_containers_with_shares_of_a_pool_use_one_request() -> None:
    (claim,) = translation_of(
        pod(
            container("a", {POOL: 1}),
            container("b", {POOL: 1}),
            init=(container("prepare", {POOL: 1}),),
        )
    ).claims

    used = {(use.container, use.request) for use in claim.uses}
    assert {("prepare", "nic"), ("a", "nic"), ("b", "nic")} == used


def test_an_init_container_shares_the_functions_of_an_app_container() -> None:
    got = translation_of(pod(container("app", {MLNX: 2}), init=(container("set-up", {MLNX: 1}),)))

    (claim,) = got.claims
    assert [nic(SRIOV, 2, carries(MLNX))] == devices_of(claim)["requests"]
    assert ["set-up", "app"] == [use.container for use in claim.uses]


# --- drivers that share ---------------------------------------------------------------------------

SHARING = """
driver: dra.net
devices:
  nic:
    class: shared-nics
    sharing: {sharing}
    resources:
      rdma/*: {{where: {{rdma: true}}}}
      rdma/port_1: {{class: ports, where: {{ifName: eth1, numaNode: 1, rdma: false}}}}
"""


def with_profile(text: str, *slices: Any) -> TranslationSnapshot:
    profile = parse_profile(text, "profile.yaml")
    return translation_snapshot(*slices, profiles={**profiles(), profile.driver: profile})


def test_on_a_driver_that_shares_a_pool_is_all_of_its_devices() -> None:
    got = translation_of(
        pod(container("main", {POOL: 1})), with_profile(SHARING.format(sharing="always"))
    )

    (claim,) = got.claims
    assert [every(nic("shared-nics", 1, IS_RDMA))] == devices_of(claim)["requests"]
    assert ["warning notPublishedByDriver"] == finding_codes(got.findings)


@pytest.mark.parametrize(("shared", "mode"), [(True, "All"), (None, "ExactCount")])
def test_where_devices_say_whether_they_share_the_slices_decide(
    shared: bool | None, mode: str
) -> None:
    text = SHARING.format(sharing="published")
    snapshot = with_profile(text, driver_slice(DRANET, device(shared=shared)))

    document = pod(container("main", {POOL: 1}))
    got = translation_of(document, snapshot)

    (claim,) = got.claims
    assert mode == devices_of(claim)["requests"][0]["exactly"]["allocationMode"]
    assert derived_claims(document, got.annotation, snapshot) == got.claims


def test_a_name_of_the_clusters_own_may_say_class_and_attributes() -> None:
    got = translation_of(
        pod(container("main", {"rdma/port_1": 1})), with_profile(SHARING.format(sharing="always"))
    )

    own = 'device.attributes["dra.net"]'
    (claim,) = got.claims
    (request,) = devices_of(claim)["requests"]
    assert "ports" == request["exactly"]["deviceClassName"]
    assert [
        f'"ifName" in {own} && {own}.ifName == "eth1"',
        f'"numaNode" in {own} && {own}.numaNode == 1',
        f'"rdma" in {own} && {own}.rdma == false',
    ] == [selector["cel"]["expression"] for selector in request["exactly"]["selectors"]]
    assert [] == finding_codes(got.findings)


@pytest.mark.parametrize(
    ("profile", "want"),
    [
        (SHARING.format(sharing="always"), ["warning notExclusive"]),
        (SHARING.format(sharing="always") + "    cores: {capacity: bandwidth}\n", []),
        (SHARING.format(sharing="never"), []),
    ],
    ids=["shared without an amount", "shared by an amount", "not shared"],
)
def test_a_whole_nic_of_a_driver_that_shares_may_have_other_users(
    profile: str, want: list[str]
) -> None:
    text = profile.replace("rdma/port_1", EFA)

    got = translation_of(pod(container("main", {EFA: 1})), with_profile(text))

    assert want == finding_codes(got.findings)


def test_a_name_that_the_profile_does_not_know_is_refused() -> None:
    text = SHARING.format(sharing="never").replace("rdma/*", "rdma/other")

    got = translation_outcome(pod(container("main", {POOL: 1})), with_profile(text))

    assert "error cannotExpress" in finding_codes(got.findings)


# --- names that a profile gives -------------------------------------------------------------------

OWN = f"""
driver: {SRIOV}
devices:
  nic:
    class: {SRIOV}
    resources:
      intel.com/x700_pppoe: {{class: pppoe}}
      acme.example/*: {{shortName: resourceName}}
      "*": {{shortName: resourceName}}
"""


class Named(NamedTuple):
    name: str
    limits: Mapping[str, object]
    want: Decision


NAMED = (
    Named("a name", {"intel.com/x700_pppoe": 1}, Decision.TRANSLATED),
    Named("all of a vendor's names", {"acme.example/port": 1}, Decision.TRANSLATED),
    Named("no other name", {"intel.com/x700_other": 1}, Decision.UNTOUCHED),
    Named("whatever the star alone stands for", {"cpu": 1}, Decision.UNTOUCHED),
)


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
def test_a_profile_makes_names_ours(case: Named) -> None:
    _, answer = admit(pod(container("main", case.limits)), with_profile(OWN))

    assert case.want == answer.decision


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
def test_without_it_they_are_left_alone(case: Named) -> None:
    _, answer = admit(pod(container("main", case.limits)))

    assert answer.decision is Decision.UNTOUCHED


def test_what_a_profile_names_derives_from_the_annotation_and_is_a_fixpoint() -> None:
    snapshot = with_profile(OWN)
    document = pod(container("main", {"intel.com/x700_pppoe": 1, "cpu": 1}))

    once, answer = admit(document, snapshot)
    _, again = admit(once, snapshot)

    assert [nic("pppoe")] == devices_of(answer.claims[0])["requests"]
    assert {"cpu"} == set(once["spec"]["containers"][0]["resources"]["limits"])
    assert (Decision.ACCEPTED, answer.claims) == (again.decision, again.claims)


def test_a_star_for_a_whole_vendor_takes_no_gpu_from_the_device_plugin() -> None:
    snapshot = with_profile(OWN.replace("acme.example/", "nvidia.com/"))

    got = translation_of(
        pod(container("main", {"nvidia.com/gpu": 1, "nvidia.com/bf2_sf": 1})), snapshot
    )

    assert ["gpu", "nic"] == [claim.label for claim in got.claims]


@pytest.mark.parametrize("beside", [{}, {"koordinator.sh/rdma": 100}], ids=["alone", "with others"])
def test_a_name_that_koordinator_rejects_may_be_listed_in_a_profile(
    beside: Mapping[str, object],
) -> None:
    snapshot = with_profile(OWN.replace("acme.example/*", "amd.com/gpu"))

    got = translation_of(pod(container("main", {"amd.com/gpu": 1, **beside})), snapshot)

    assert "sriov" in [claim.template.partition("-")[0] for claim in got.claims]


def test_a_pool_may_have_the_name_of_a_vendor() -> None:
    snapshot = with_profile(
        SHARING.format(sharing="never").replace("rdma/port_1", "mellanox.com/hca")
    )

    got = translation_of(pod(container("main", {"mellanox.com/hca": 3})), snapshot)

    assert [DRANET] == [used.name for used in got.record.profiles]
    assert "warning clamped" in finding_codes(got.findings)


# --- what is kept ---------------------------------------------------------------------------------


def test_annotations_that_steer_networks_stay() -> None:
    annotations = {
        "k8s.v1.cni.cncf.io/networks": "sriov-a, sriov-b",
        "v1.multus-cni.io/default-network": "kube-system/default",
        "networking.gke.io/interfaces": "[]",
    }

    after, _ = admit(pod(container("main", {MLNX: 2}), annotations=annotations))

    assert annotations.items() <= after["metadata"]["annotations"].items()


def test_an_address_without_a_device_stays() -> None:
    address = f"{GKE}blue.IP"

    after, answer = admit(pod(gpus(1), container("b", {address: 1})))

    assert answer.decision is Decision.TRANSLATED
    assert {address: "1"} == {
        key: str(amount)
        for key, amount in after["spec"]["containers"][1]["resources"]["limits"].items()
    }


def test_an_injector_that_comes_after_us_is_heard_in_the_next_round() -> None:
    once, first = admit(pod(gpus(1)))
    resources = once["spec"]["containers"][0].setdefault("resources", {})
    resources["limits"] = resources["requests"] = {"openshift.io/foo": "2"}

    after, second = admit(once)

    assert (Decision.TRANSLATED, Decision.TRANSLATED) == (first.decision, second.decision)
    assert ["gpu", "nic"] == [entry["name"] for entry in after["spec"]["resourceClaims"]]


def test_the_legacy_manifest_applied_again_changes_nothing() -> None:
    document = pod(container("main", {MLNX: 1, POOL: 1}))
    live, _ = admit(document)
    merged, _ = admit(document)
    merged["spec"]["containers"][0]["resources"] |= {"limits": {MLNX: "1", POOL: "1"}}

    after, answer = admit_update(merged, live)

    assert answer.decision is Decision.STRIPPED
    assert after == live


MAPPED = translation_snapshot(extended_resources={EFA: "efa", "nvidia.com/gpu": "gpu", MLNX: "vfs"})


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        ({EFA: 4}, Decision.UNTOUCHED),
        ({EFA: 4, "nvidia.com/gpu": 8, MLNX: 1}, Decision.UNTOUCHED),
        ({EFA: 4, POOL: 1}, Decision.TRANSLATED),
        ({EFA: 4, "nvidia.com/gpumem": 8}, Decision.TRANSLATED),
    ],
    ids=str,
)
def test_a_pod_whose_names_classes_map_is_left_to_kubernetes(
    limits: Mapping[str, object], want: Decision
) -> None:
    _, answer = admit(pod(container("main", limits)), MAPPED)

    assert want == answer.decision


def test_without_a_profile_nobody_speaks_for_nics() -> None:
    only_gpus = TranslationOptions(profiles={"nvidia": "gpu.nvidia.com"})

    got = translation_outcome(pod(container("main", {EFA: 1})), options=only_gpus)

    assert ["error cannotExpress"] == finding_codes(got.findings)


def test_a_key_is_refused_by_a_driver_that_has_no_nics() -> None:
    profile: Profile = profiles()["gpu.nvidia.com"]

    got = translation_outcome(
        pod(container("main", {EFA: 1})),
        options=TranslationOptions(profiles={"rdma": profile.driver}),
    )

    assert ["error cannotExpress"] == finding_codes(got.findings)
