"""Reviews that cost as much as their authors can make them: honest pods do not notice, nor do probes.

Each attacker has the rights of one who is trusted with a namespace, or none.
"""

import http.client
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from admission.webhook_configuration import OBJECTS_WEBHOOK
from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, WEBHOOK, Drawbridge
from e2e.hostile_pods import forged_pod
from e2e.inventory import HAMI
from e2e.load import Load
from e2e.objects import pod
from e2e.probes import watched_probes
from e2e.reviews import claim_review
from e2e.translated import opt_out
from testing.documents import claim

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

MEBIBYTE: Final = 2**20
LIMIT: Final = 512 * MEBIBYTE
"""The limit of webhook and controller in manifests/base."""
HONEST: Final = pod("honest", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
ATTACK_S: Final = 5.0
PER_SECOND: Final = 10
PATTERN: Final = r"(?i)(\\pL|.){0,700}c"
"""Took RE2 most of a second on each device, and held the interpreter meanwhile."""


def create(cluster: Access, namespace: str, user: str, *flags: str) -> None:
    """Give a user rights in a namespace."""
    cluster.kubectl("create", "rolebinding", "-n", namespace, user, f"--user={user}", *flags)


@pytest.fixture
def mallory(cluster: Access, namespace: str) -> str:
    """A user with the right to create pods in the namespace, and no other."""
    rights = ("--verb=create,get,list,delete", "--resource=pods")
    cluster.kubectl("create", "role", "-n", namespace, "pods-only", *rights)
    create(cluster, namespace, "mallory", "--role=pods-only")
    return "mallory"


@pytest.fixture
def editor(cluster: Access, namespace: str) -> str:
    """A user with the role `edit` in the namespace."""
    create(cluster, namespace, "editor", "--clusterrole=edit")
    return "editor"


def selecting(expression: str) -> Object:
    """Return a claim with a selector."""
    selectors = [{"cel": {"expression": expression}}]
    request = {"name": "gpu", "exactly": {"deviceClassName": HAMI, "selectors": selectors}}
    return claim(request, name="costly")


def assert_unnoticed(honest: Load, problems: list[str], attack: str) -> None:
    """No honest pod was refused, and no probe failed."""
    print(honest.describe_event(attack))
    assert honest.failures == []
    assert problems == []
    assert len(honest.created) > ATTACK_S


def memory(cluster: Access, process: str) -> int:
    """The most memory that a process ever had, in bytes."""
    record = cluster.children[process].record
    assert record is not None
    outcome = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{record.pid}/status").read_text())
    assert outcome is not None
    return int(outcome[1]) * 1024


# --- expressions ----------------------------------------------------------------------------------


def test_a_costly_pattern_is_not_evaluated_and_its_author_is_reported(
    cluster: Access, namespace: str, editor: str
) -> None:
    costly = selecting(f'device.attributes["{HAMI}"].uuid.matches("{PATTERN}")')

    output = cluster.kubectl(
        *("create", "-n", namespace, "--dry-run=server", f"--as={editor}", "-f", "-"),
        input=stream(costly),
    )

    assert "was not evaluated: its regular expressions compile to as many as" in output.stderr


def test_an_editor_with_costly_patterns_delays_nobody(
    cluster: Access, drawbridge: Drawbridge, namespace: str, workshop: str, editor: str
) -> None:
    costly = selecting(f'device.attributes["{HAMI}"].uuid.matches("{PATTERN}")')

    with (
        watched_probes(drawbridge) as problems,
        Load(
            cluster, namespace, costly, kind="resourceclaims", user=editor, per_second=PER_SECOND
        ) as attack,
        Load(cluster, workshop, HONEST, per_second=20) as honest,
    ):
        time.sleep(ATTACK_S)

    assert attack.failures == []
    assert_unnoticed(honest, problems, "costly patterns")


def test_nobody_in_particular_with_costly_patterns_delays_nobody(
    cluster: Access, drawbridge: Drawbridge, workshop: str
) -> None:
    document = selecting(f'device.attributes["{HAMI}"].uuid.matches("{PATTERN}")')
    review = json.dumps(claim_review(document)).encode()
    statuses: set[int] = set()
    path = drawbridge.path(OBJECTS_WEBHOOK)  # As if it had become known.

    with (
        watched_probes(drawbridge) as problems,
        Load(cluster, workshop, HONEST, per_second=20) as honest,
    ):
        ends = time.monotonic() + ATTACK_S
        while time.monotonic() < ends:
            statuses.add(drawbridge.post(review, path=path)[0])

    assert statuses == {200}
    assert_unnoticed(honest, problems, "costly patterns of a stranger")


def test_expressions_are_evaluated_in_a_process_that_may_be_lost(
    cluster: Access, drawbridge: Drawbridge, namespace: str, editor: str
) -> None:
    record = cluster.children[WEBHOOK].record
    assert record is not None

    def denial(model: str) -> str:
        """Return the words about a selector that no device satisfies."""
        long = " || ".join(
            f'device.attributes["{HAMI}"].productName == "{model} {number}"' for number in range(9)
        )
        output = cluster.kubectl(
            *("create", "-n", namespace, "--dry-run=server", f"--as={editor}", "-f", "-"),
            input=stream(selecting(long)),
            check=False,
        )
        return output.stderr

    before = denial("none")
    (worker,) = workers(record.pid)
    os.kill(worker, signal.SIGKILL)

    assert before
    # Until another has started, which takes longer than a review where the machine is busy, reviews say
    # that nothing was evaluated.
    expected = before.replace("none", "neither")
    cluster.wait_until(lambda: denial("neither") == expected, "another process evaluates")
    assert worker not in workers(record.pid)


def workers(parent: int) -> list[int]:
    """The processes that evaluate expressions for another."""
    process_ids = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                status = (process / "stat").read_text().rpartition(")")[2].split()
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue  # It has ended.
            if int(status[1]) == parent and b"process.selectors.worker" in command:
                process_ids.append(int(process.name))
    return process_ids


# --- pods -----------------------------------------------------------------------------------------


def test_a_user_with_pods_that_derive_much_delays_nobody(
    cluster: Access, drawbridge: Drawbridge, namespace: str, workshop: str, mallory: str
) -> None:
    bad = forged_pod(cluster, workshop, HONEST, containers=200)

    with (
        watched_probes(drawbridge) as problems,
        Load(cluster, namespace, bad, user=mallory, per_second=PER_SECOND) as attack,
        Load(cluster, workshop, HONEST, per_second=20) as honest,
    ):
        time.sleep(ATTACK_S)

    assert len(attack.failures) == len(attack.created)
    assert_unnoticed(honest, problems, "pods that derive much")
    assert memory(cluster, WEBHOOK) < LIMIT


def test_pods_that_derive_much_do_not_fill_the_controllers_memory(
    cluster: Access, namespace: str, workshop: str, mallory: str
) -> None:
    """In a namespace that is labelled out, so that the webhook never sees them."""
    bad = forged_pod(cluster, workshop, HONEST, containers=64)
    opt_out(cluster, namespace)
    path = cluster.kind("pods").path(namespace)
    for number in range(50):
        bad["metadata"]["name"] = f"forged-{number}"
        bad["metadata"]["annotations"]["n"] = str(number)
        status, body = cluster.request("POST", path, bad, user=mallory)
        assert status == http.client.CREATED, body

    cluster.kubectl("create", "-n", workshop, "-f", "-", input=stream(HONEST))
    cluster.wait_running("honest", workshop)
    cluster.kubectl("delete", "pod", "-n", workshop, "honest")

    assert cluster.objects("resourceclaimtemplates", namespace) == []
    assert memory(cluster, CONTROLLER) < LIMIT
