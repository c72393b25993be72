"""Networks of Multus with a bandwidth: claims if a driver reserves it, else findings."""

import json
from typing import Any, Final

import msgspec
import pytest

from admission.pods import Decision
from kube.manifests.dump import dump_yaml
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    NAMESPACE,
    admit,
    container,
    device,
    devices_of,
    driver_slice,
    finding_texts,
    pod,
    record_of,
    translation_of,
    translation_snapshot,
)
from testing.command import drawbridge
from testing.documents import Document, api_object
from translation.cluster.network_claims import networks_with_bandwidth
from translation.cluster.snapshot import (
    DEFAULT_PROFILES,
    NetworkSummary,
    TranslationOptions,
    TranslationSnapshot,
)
from translation.record.derive import derive
from translation.record.record import decode_record
from translation.vocabularies.multus import ATTACHMENTS

DRIVER: Final = "cni.dra.networking.x-k8s.io"
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
AT_NETWORKS: Final = f"metadata.annotations[{NETWORKS}]"
SERVED: Final = TranslationOptions(profiles={**DEFAULT_PROFILES, "multus": DRIVER})
MACVLAN: Final = {
    "cniVersion": "1.0.0",
    "name": "fast",
    "type": "macvlan",
    "master": "eth1",
    "mode": "bridge",
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.10.1.0/24"}]]},
}
RATES: Final = {"ingressRate": 1_000_000_000, "egressRate": 2_000_000_000}
FAST: Final = {"name": "fast", "bandwidth": RATES}


def interface(name: str, **capacity: str) -> Document:
    return device(
        shared=True, attributes={"interfaceName": name, "macAddress": "a"}, capacity=capacity
    )


def cluster(*interfaces: Document, **definitions: Any) -> TranslationSnapshot:
    """A cluster with interfaces, and networks in the namespace of the pods."""
    documents = definitions or {"fast": MACVLAN}
    return translation_snapshot(
        driver_slice(DRIVER, *(interfaces or (interface("eth1", bandwidth="10G"),))),
        networks={
            (NAMESPACE, name): NetworkSummary(
                config=value if isinstance(value, str) else json.dumps(value)
            )
            for name, value in documents.items()
        },
    )


def attached(*networks: Any, limits: Any = None, **metadata: Any) -> Document:
    return pod(
        container("main", limits or {}),
        annotations={NETWORKS: json.dumps(networks), **metadata},
    )


def test_a_network_with_a_bandwidth_becomes_a_claim() -> None:
    translated = translation_of(attached({"name": "other"}, FAST), cluster(), SERVED)

    (claim,) = translated.claims
    spec = devices_of(claim)
    (request,) = spec["requests"]
    exactly = request["exactly"]
    assert ("network-interface", 1) == (exactly["deviceClassName"], exactly["count"])
    assert {"bandwidth": "2G"} == exactly["capacity"]["requests"]
    (selector,) = exactly["selectors"]
    assert '.interfaceName == "eth1"' in selector["cel"]["expression"]
    (config,) = spec["config"]
    own = {name: value for name, value in MACVLAN.items() if name not in {"cniVersion", "name"}}
    assert {
        "driver": DRIVER,
        "parameters": {
            "apiVersion": "cni.networking.x-k8s.io/v1alpha1",
            "kind": "CNI",
            "ifName": "net2",
            "config": {
                "cniVersion": "1.0.0",
                "name": "fast",
                "plugins": [own, {"type": "bandwidth", **RATES}],
            },
        },
    } == config["opaque"]
    assert [f"warning networkByClaim {AT_NETWORKS}"] == finding_texts(translated.findings)


def test_two_networks_are_two_requests_of_one_claim() -> None:
    slow = {"name": "slow", "interface": "slow0", "bandwidth": {"egressRate": 5}}

    translated = translation_of(
        attached(FAST, slow),
        cluster(fast=MACVLAN, slow={"name": "s", "plugins": [{"type": "ipvlan"}]}),
        SERVED,
    )

    (claim,) = translated.claims
    spec = devices_of(claim)
    assert ["2G", "5"] == [
        request["exactly"]["capacity"]["requests"]["bandwidth"] for request in spec["requests"]
    ]
    assert "selectors" not in spec["requests"][1]["exactly"]
    assert ["net1", "slow0"] == [
        config["opaque"]["parameters"]["ifName"] for config in spec["config"]
    ]


@pytest.mark.parametrize(
    ("snapshot", "options", "word"),
    [
        (cluster(), TranslationOptions(), "no driver attaches it"),
        (cluster(interface("eth1", maxVirtualDevices="65535")), SERVED, "publishes no bandwidth"),
        (translation_snapshot(), SERVED, "publishes no bandwidth"),
        (cluster(slow=MACVLAN), SERVED, "is not known"),
        (cluster(fast="{"), SERVED, "no CNI configuration"),
        (cluster(fast={"plugins": [7]}), SERVED, "no CNI configuration"),
        (cluster(fast={"type": "sriov"}), SERVED, "by a resource name"),
    ],
)
def test_elsewhere_a_finding_says_that_nothing_reserves_it(
    snapshot: TranslationSnapshot, options: TranslationOptions, word: str
) -> None:
    document, answer = admit(attached(FAST), snapshot, options)

    assert (Decision.UNTOUCHED, attached(FAST)) == (answer.decision, document)
    (finding,) = answer.findings
    assert [f"info bandwidthNotReserved {AT_NETWORKS}"] == finding_texts([finding])
    assert word in finding.message


@pytest.mark.parametrize(
    "text",
    ["", "fast", "bandwidth", '{"bandwidth": 1}', '[{"name": "fast", "bandwidth": 7}]', "[7]", "["],
)
def test_text_without_a_bandwidth_has_none(text: str) -> None:
    assert [] == list(networks_with_bandwidth(text, "n"))


@pytest.mark.parametrize("rate", [0, -1, 2**63, True, "1G", None, 1.5])
def test_a_rate_that_is_none_has_no_effect(rate: object) -> None:
    text = json.dumps([{"name": "fast", "bandwidth": {"ingressRate": rate}}])

    assert [] == list(networks_with_bandwidth(text, "n"))


def test_a_pod_in_the_network_of_its_node_has_no_networks() -> None:
    document = attached(FAST)
    document["spec"]["hostNetwork"] = True

    _, answer = admit(document, cluster(), SERVED)

    assert (Decision.UNTOUCHED, ()) == (answer.decision, answer.findings)


def test_a_pod_cannot_bring_attachments_of_its_own() -> None:
    forged = attached(FAST, **{ATTACHMENTS: '[{"name": "a"}]'})

    _, answer = admit(forged, cluster(), SERVED)

    (claim,) = answer.claims
    assert ["net1"] == [
        config["opaque"]["parameters"]["ifName"] for config in devices_of(claim)["config"]
    ]


def test_the_controller_derives_the_claim_without_the_definition() -> None:
    snapshot = cluster()
    translated = translation_of(attached(FAST), snapshot, SERVED)

    derivation = derive(decode_record(translated.annotation), snapshot.profiles)

    assert [claim.spec for claim in translated.claims] == [
        claim.spec for claim in derivation.claims
    ]


def test_a_second_round_of_admission_accepts_the_pod() -> None:
    once, _ = admit(attached(FAST), cluster(), SERVED)

    again, answer = admit(once, cluster(), SERVED)

    assert (Decision.ACCEPTED, once) == (answer.decision, again)
    assert [ATTACHMENTS] == list(record_of(once)["annotations"])
    assert json.loads(once["metadata"]["annotations"][NETWORKS]) == [FAST]


def test_virtual_functions_beside_a_network_keep_their_own_claim() -> None:
    document = attached(FAST, limits={"intel.com/intel_sriov_netdevice": 1})

    translated = translation_of(document, cluster(), SERVED)

    assert {"sriov", "multus"} == {used.vocabulary for used in translated.record.profiles}
    assert 2 == len(translated.claims)


def test_the_command_line_reads_definitions_of_files() -> None:
    definition = api_object(
        "NetworkAttachmentDefinition",
        "fast",
        api_version="k8s.cni.cncf.io/v1",
        spec={"config": json.dumps(MACVLAN)},
    )
    published = msgspec.to_builtins(
        driver_slice(DRIVER, interface("eth1", bandwidth="10G")), enc_hook=str
    )
    slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **published}
    slice_["metadata"] = {"name": "a"}
    written = attached(FAST)
    written["metadata"]["name"] = "a"

    result = drawbridge(
        *("translate", "-f", "-", "-o", "json", "--profile", f"multus={DRIVER}"),
        stdin=dump_yaml([slice_, definition, written]),
    )

    assert result.exit_code == 0, result.output
    pods = [
        entry for entry in msgspec.json.decode(result.stdout)["objects"] if entry["kind"] == "Pod"
    ]
    assert REQUEST_ANNOTATION in pods[0]["metadata"]["annotations"]


# --- virtual functions ----------------------------------------------------------------------------

FUNCTIONS: Final = "intel.com/intel_sriov_a"
OTHERS: Final = "intel.com/intel_sriov_b"


def of_resources(**resources: str) -> TranslationSnapshot:
    """A cluster with networks, each with the resource name of its devices."""
    return translation_snapshot(
        networks={
            (NAMESPACE, name): NetworkSummary(resource=resource)
            for name, resource in resources.items()
        }
    )


def named_networks(document: Document, snapshot: TranslationSnapshot) -> list[tuple[int, str]]:
    """Count and network of each request, if it has one."""
    (claim,) = translation_of(document, snapshot).claims
    spec = devices_of(claim)
    by_request = {
        request: config["opaque"]["parameters"]["netAttachDefName"]
        for config in spec.get("config", ())
        for request in config["requests"]
    }
    return [
        (request["exactly"]["count"], by_request.get(request["name"], ""))
        for request in spec["requests"]
    ]


def functions(text: str, **limits: int) -> Document:
    keys = {"a": FUNCTIONS, "b": OTHERS}
    amounts = {keys[name]: count for name, count in limits.items()}
    return pod(container("main", amounts), annotations={NETWORKS: text})


def test_each_of_several_networks_gets_a_device_of_its_resource() -> None:
    snapshot = of_resources(one=FUNCTIONS, two=OTHERS, three=FUNCTIONS)

    got = named_networks(functions("one, two, three", a=2, b=1), snapshot)

    assert [(1, "one"), (1, "three"), (1, "two")] == got


def test_devices_beyond_the_networks_have_none() -> None:
    snapshot = of_resources(one=FUNCTIONS, macvlan="")

    assert [(1, "one"), (2, "")] == named_networks(functions("one, macvlan", a=3), snapshot)


def test_networks_that_are_not_known_are_no_devices() -> None:
    assert [(2, "")] == named_networks(functions("one, two", a=2), translation_snapshot())


@pytest.mark.parametrize(
    "text",
    ['[{"name": "one", "a": ' + "[" * 5000 + "]" * 5000 + "}]", r'[{"name": "\ud800"}]'],
    ids=["deep", "half a character"],
)
def test_networks_that_cannot_be_read_are_no_networks(text: str) -> None:
    """Users write the annotation, and Multus has to reject faulty networks."""
    snapshot = of_resources(one=FUNCTIONS)

    assert [(2, "")] == named_networks(functions(text, a=2), snapshot)


def test_two_containers_share_the_networks_of_a_resource() -> None:
    document = pod(
        container("a", {FUNCTIONS: 1}),
        container("b", {FUNCTIONS: 1}),
        annotations={NETWORKS: "one, two"},
    )

    got = named_networks(document, of_resources(one=FUNCTIONS, two=FUNCTIONS))

    assert [(1, "one"), (1, "two")] == got


@pytest.mark.parametrize(
    ("init", "app", "want"),
    [
        (1, 2, [(1, "one"), (1, "two")]),
        (2, 2, [(1, "one"), (1, "two")]),
        (1, 1, [(1, "one")]),
    ],
)
def test_an_init_container_takes_no_network_from_the_apps(
    init: int, app: int, want: list[tuple[int, str]]
) -> None:
    """The network of the function of the init container was in no claim."""
    document = pod(
        container("app", {FUNCTIONS: app}),
        init=(container("init", {FUNCTIONS: init}),),
        annotations={NETWORKS: "one, two"},
    )

    got = named_networks(document, of_resources(one=FUNCTIONS, two=FUNCTIONS))

    assert want == got


def test_a_sidecar_has_the_first_network() -> None:
    document = pod(
        container("app", {FUNCTIONS: 1}),
        init=(container("side", {FUNCTIONS: 1}, restartPolicy="Always"),),
        annotations={NETWORKS: "one, two"},
    )

    got = named_networks(document, of_resources(one=FUNCTIONS, two=FUNCTIONS))

    assert [(1, "one"), (1, "two")] == got


def test_the_controller_derives_the_networks_of_devices() -> None:
    snapshot = of_resources(one=FUNCTIONS, two=FUNCTIONS)
    translated = translation_of(functions("one, two", a=2), snapshot)

    derivation = derive(decode_record(translated.annotation), snapshot.profiles)

    assert [claim.spec for claim in translated.claims] == [
        claim.spec for claim in derivation.claims
    ]


INGRESS, EGRESS = (f"kubernetes.io/{way}-bandwidth" for way in ("ingress", "egress"))


@pytest.mark.parametrize(
    ("annotations", "want", "words"),
    [
        ({INGRESS: "10M"}, INGRESS, f"{INGRESS} limits the pod's own network"),
        ({EGRESS: "10M"}, EGRESS, f"{EGRESS} limits the pod's own network"),
        ({EGRESS: "1G", INGRESS: "1G"}, INGRESS, f"{INGRESS} and {EGRESS} limit the pod's own"),
    ],
)
def test_a_bandwidth_of_the_pods_own_network_is_reserved_by_no_claim(
    annotations: Document, want: str, words: str
) -> None:
    document = pod(container("main", {"nvidia.com/gpu": 1}), annotations=annotations)

    translated = translation_of(document)

    at_annotation = f"metadata.annotations[{want}]"
    assert [f"info bandwidthNotReserved {at_annotation}"] == finding_texts(translated.findings)
    assert words in translated.findings[0].message
    assert not record_of(admit(document)[0]).get("annotations")


@pytest.mark.parametrize(
    "document",
    [
        pod(container("main"), annotations={INGRESS: "10M"}),
        pod(container("main", {"nvidia.com/gpu": 1}), annotations={INGRESS: " "}),
        pod(
            container("main", {"nvidia.com/gpu": 1}), annotations={INGRESS: "1M"}, hostNetwork=True
        ),
    ],
    ids=["without claims", "without a value", "in the network of the node"],
)
def test_no_bandwidth_is_missed(document: Document) -> None:
    assert not admit(document)[1].findings
