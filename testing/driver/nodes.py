"""A node of the driver in a folder: the state that its processes share, and processes that can die."""

from pathlib import Path

from driver.model.steps import Step, StepHook, ignore_step
from driver.node.cdi_folder import CdiFolder
from driver.node.checkpoint_file import CheckpointFile
from driver.plan.checkpoint import Checkpoint
from driver.plan.prepare import NodeState
from driver.prepare.current import CurrentNode
from driver.prepare.preparer import ClaimRef, Preparer
from kube.api.resource import ResourceClaim
from kube.client.client import Client
from testing.driver.builders import BOOT


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


def killed_at(step: Step, times: int = 1) -> StepHook:
    """Die when a step is reached for the nth time."""
    remaining = times

    def count_down(now: Step) -> None:
        nonlocal remaining
        remaining -= now is step
        if now is step and not remaining:
            raise Killed

    return count_down


class FolderNode:
    """Folders of one node.

    Attributes:
        state: The folder with checkpoint and lock.
        cdi: The folder with specs.
        boot: The boot of the node.
    """

    def __init__(self, folder: Path, node: NodeState) -> None:
        self.state = folder / "state"
        self.cdi = folder / "cdi"
        self.boot = BOOT
        self.state.mkdir()
        self.current = CurrentNode(node.publication)
        self.current.set_inventory(node.inventory)

    def checkpoint_file(self, at_step: StepHook = ignore_step) -> CheckpointFile:
        return CheckpointFile(self.state, self.boot, at_step)

    def preparer(
        self, client: Client, at_step: StepHook = ignore_step, *, lock_timeout_s: float = 5.0
    ) -> Preparer:
        """A process of the driver, as far as the kubelet's calls go."""
        return Preparer(
            client,
            self.current,
            self.checkpoint_file(at_step),
            CdiFolder(self.cdi, self.current.driver, at_step),
            boot_id=self.boot,
            lock=self.state / "lock",
            lock_timeout_s=lock_timeout_s,
            at_step=at_step,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the node."""
        return self.checkpoint_file().load()

    @property
    def states(self) -> dict[str, str]:
        """Name of a claim to its state."""
        return {claim.name: claim.state.value for claim in self.checkpoint.claims.values()}

    @property
    def specs(self) -> set[str]:
        """Uids of claims with a spec."""
        return set(CdiFolder(self.cdi, self.current.driver, ignore_step).boots())


def ref_of(claim: ResourceClaim) -> ClaimRef:
    """A claim as the kubelet names it."""
    metadata = claim.metadata
    return ClaimRef(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
