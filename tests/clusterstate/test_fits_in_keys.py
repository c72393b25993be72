"""The closest fit of a pending pod in its own keys, and the charge for its proof."""

from allocator.explain.change import Change, ClosestFit
from allocator.explain.relaxation import Kind
from clusterstate.fits_in_keys import KeySources, rewording
from controllers.templates.actions import derive_claims
from findings.field_path import FieldPath
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import ResourceClaim, ResourceClaimSpec
from kube.cel.scope import Meter, evaluating
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from testing.builders import NAMESPACE, profiles
from testing.too_large_pod import large_pod

MEMORY = FieldPath(("requests", 0, "exactly", "capacity", "requests")).key("memory")
POD = convert(large_pod(), Pod)
IN_KEYS = "write nvidia.com/gpumem: 81920 to fit node hami-1"


def memory_fit() -> ClosestFit:
    """The fit of the pod's claim, called by its entry, with less memory."""
    (derived_claim,) = derive_claims(POD.annotations[REQUEST_ANNOTATION], profiles()).claims
    claim = ResourceClaim(
        metadata=ObjectMeta(name="gpu-main", namespace=NAMESPACE),
        spec=convert(derived_claim.spec["spec"], ResourceClaimSpec),
    )
    change = Change(
        claim=f"{NAMESPACE}/gpu-main",
        request="gpu",
        kind=Kind.CAPACITY,
        detail="request memory 80Gi",
        cost=1,
        field=MEMORY,
        amount=Quantity("80Gi"),
    )
    return ClosestFit(changes=(change,), claims=(claim,), node="hami-1")


def words(sources: KeySources, meter: Meter | None = None) -> str:
    with evaluating(meter=meter or Meter()):
        fit = rewording(POD, {(NAMESPACE, "gpu-main"): 0}, sources)(memory_fit())
    return fit.fix_in_keys


def test_the_fix_is_in_the_keys_by_the_profiles_that_are_known() -> None:
    assert IN_KEYS == words(KeySources(profiles=profiles()))
    assert "" == words(KeySources(profiles={}))


def test_the_proof_is_charged_by_the_length_of_the_record() -> None:
    sources, steps = KeySources(profiles=profiles()), 4 * len(POD.annotations[REQUEST_ANNOTATION])

    meter = Meter(steps)
    assert IN_KEYS == words(sources, meter)
    assert steps == meter.steps


def test_a_fit_stays_as_it_is_where_too_little_is_left_for_its_proof() -> None:
    meter = Meter(4 * len(POD.annotations[REQUEST_ANNOTATION]) - 1)

    assert "" == words(KeySources(profiles=profiles()), meter)
    assert 0 == meter.steps
