"""Objects of DRA validated on apply by the webhook: the rules beyond the policies in the server.

Nothing waits for it: while it is gone, the same objects are admitted.
"""

import json
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import WEBHOOK, Drawbridge, command_line
from e2e.objects import deployment, pod
from kube.names import ENFORCEMENT_LABEL
from testing.documents import claim, config, device_class, exactly, gpu_config, template

pytestmark = pytest.mark.usefixtures("drawbridge")

WRONG: Final = claim(exactly(), config=[config(gpu_config(strategy="Mps"), "gpu")])
FIELD: Final = "parameters.sharing.strategy"
WORDS: Final = 'unknown value "Mps"'


def applied(cluster: Access, document: Object, namespace: str, *options: str) -> tuple[int, str]:
    """Apply an object; return kubectl's exit code and words."""
    arguments = ("apply", "-n", namespace, *options, "-f", "-")
    output = cluster.kubectl(*arguments, input=stream(document), check=False)
    return output.returncode, output.stderr


@pytest.mark.parametrize("options", [(), ("--dry-run=server",)], ids=["applied", "tried"])
def test_parameters_that_the_driver_would_refuse_are_refused(
    cluster: Access, workshop: str, options: tuple[str, ...]
) -> None:
    code, words = applied(cluster, WRONG, workshop, *options)

    assert code
    assert (
        f'The ResourceClaim "validated" is invalid: spec.devices.config[0].opaque.{FIELD}: '
        f'drawbridge[invalidConfig]: {WORDS}; did you mean "MPS"?'
    ) in words


def test_a_class_is_told_what_it_does_to_other_drivers(cluster: Access, workshop: str) -> None:
    device_class_ = device_class('device.attributes["gpu.example.com"].model == "x"')

    code, words = applied(cluster, device_class_, workshop, "--dry-run=server")

    assert code == 0
    assert "Warning: drawbridge[unguardedSelector]: spec.selectors[0].cel.expression" in words
    assert "errors on devices of other drivers" in words


def test_a_namespace_says_what_happens_in_it(cluster: Access, namespace: str) -> None:
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=warn")
    tried = ("--dry-run=server",)
    cluster.wait_until(
        lambda: applied(cluster, WRONG, namespace, *tried)[0] == 0, "the label counts"
    )
    assert WORDS in applied(cluster, WRONG, namespace, *tried)[1]

    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=off", "--overwrite")
    cluster.wait_until(
        lambda: not applied(cluster, WRONG, namespace, *tried)[1], "the label counts"
    )


@pytest.mark.usefixtures("fleet")
def test_legacy_workloads_are_told_what_no_node_has(cluster: Access, workshop: str) -> None:
    """An error, unless stories before this one had larger nodes."""
    limits = {"nvidia.com/gpu": "9", "nvidia.com/gpumem": "1000"}

    _, words = applied(
        cluster, deployment("legacy", pod("legacy", limits=limits)), workshop, "--dry-run=server"
    )

    assert "containers[0].resources.limits[nvidia.com/gpu]" in words
    assert "count 9 is more than the" in words


@pytest.mark.usefixtures("nodes")
def test_pods_get_their_claims(cluster: Access, namespace: str) -> None:
    template_ = template(exactly(deviceClassName="gpu.example.com"))
    cluster.apply({**template_, "metadata": {"name": "gpu", "namespace": namespace}})

    cluster.kubectl(
        *("apply", "-n", namespace, "-f", "-"), input=stream(pod("runs", claims={"gpu": "gpu"}))
    )

    cluster.wait_running("runs", namespace)


@pytest.mark.usefixtures("nodes")
def test_the_command_line_says_the_same_and_knows_what_is_published(
    cluster: Access, workshop: str
) -> None:
    asking = exactly(deviceClassName="gpu.example.com", capacity={"requests": {"cores": "1"}})
    arguments = ("check", "--live", "-n", workshop, "-o", "json", "-f", "-")

    wrong = command_line(cluster, *arguments, input=stream([WRONG, renamed(claim(asking))]))

    assert (1, "") == (wrong.returncode, wrong.stderr)
    findings = {finding["code"]: finding for finding in json.loads(wrong.stdout)["findings"]}
    assert WORDS in findings["invalidConfig"]["message"]
    assert findings["capacityNotPublished"]["severity"] == "error"
    assert findings["capacityNotPublished"]["fix"] == 'known names: "compute", "memory"'


def renamed(document: Object) -> Object:
    return {**document, "metadata": {"name": "another"}}


def test_while_it_is_gone_nothing_is_refused_and_what_is_there_can_go(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    drawbridge.stop(WEBHOOK)
    code, words = applied(cluster, WRONG, namespace)
    drawbridge.start(WEBHOOK)
    drawbridge.wait_ready()

    assert code == 0, words
    # It was admitted; the rules are back, and it can be labelled and removed.
    cluster.kubectl("label", "resourceclaim", "validated", "-n", namespace, "a=b")
    cluster.kubectl("delete", "resourceclaim", "validated", "-n", namespace)
