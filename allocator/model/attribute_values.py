"""Values of one attribute over the devices of a node, as bit masks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from allocator.model.devices import PublishedDevice
from allocator.model.outcome import AttemptFailed
from kube.api.resource import DeviceAttribute
from kube.cel.compile import COST_PER_STEP
from kube.cel.derived import compile_derived
from kube.cel.device import device_view
from kube.cel.scope import current_scope
from kube.errors import CelError, UnsupportedSelector

MAX_DERIVED_CHARGE: Final = 1_000_000
"""Units of CEL cost of a derived attribute on one device (20 ms), where others wait for the process."""


class Column:
    """The values of one attribute, static or derived, on all devices.

    Attributes:
        attribute: The fully qualified name.
        values: A mask of the device's values, by position; 0 if it has none, None if the attribute
            cannot be evaluated.
        positions: Value to a mask of the positions that have it.
        valued: Mask of the positions that have a value.
        failing: Mask of the positions where the attribute cannot be evaluated.
    """

    def __init__(
        self,
        attribute: str,
        derivation: str | None,
        devices: Sequence[PublishedDevice],
        values: "Values",
    ) -> None:
        self.attribute = attribute
        self._derived = derivation
        self._devices = devices
        self._values = values
        self.values: list[int | None] = (
            [
                0 if value is None else values.mask(value)
                for value in _find_static(attribute, devices)
            ]
            if derivation is None
            else [self._values_or_none(position) for position in range(len(devices))]
        )
        # Many devices have equal values, so each different mask is taken apart once.
        positions_of: dict[int | None, int] = {}
        for position, mask in enumerate(self.values):
            positions_of[mask] = positions_of.get(mask, 0) | 1 << position
        self.failing = positions_of.pop(None, 0)
        self.positions: dict[int, int] = {}
        self.valued = 0
        for mask, having in positions_of.items():
            if mask:
                self.valued |= having
                for value in _bits(mask):
                    self.positions[value] = self.positions.get(value, 0) | having
        self._having: dict[int, int] = {}

    def values_at(self, position: int) -> int:
        """Return a mask of the values of a device.

        Raises:
            AttemptFailed: A derived attribute cannot be compiled or evaluated.
        """
        values = self.values[position]
        return self._evaluate(position) if values is None else values

    def positions_with(self, values: int) -> int:
        """Return a mask of the positions that have any of the values."""
        cached_mask = self._having.get(values)
        if cached_mask is None:
            if len(self._having) >= CACHE_SIZE:
                self._having.clear()
            cached_mask = 0
            for value, positions in self.positions.items():
                if value & values:
                    cached_mask |= positions
            self._having[values] = cached_mask
        return cached_mask

    def values_among(self, candidates: int) -> Iterator[int]:
        """Yield each value of the candidates."""
        for value, positions in self.positions.items():
            if positions & candidates:
                yield value

    def _values_or_none(self, position: int) -> int | None:
        """Return the values of a device; None if choosing it fails the attempt."""
        try:
            return self._evaluate(position)
        except AttemptFailed:
            return None

    def _evaluate(self, position: int) -> int:
        """Return the derived values of a device; errors as of `values_at`."""
        expression = self._derived or ""
        return self._values.mask(_derive(self.attribute, expression, self._devices[position]))


class Values:
    """The values of attributes, each numbered by one bit."""

    def __init__(self, *, lists: bool) -> None:
        self._bit: dict[tuple[str, object], int] = {}
        self._read: Callable[[DeviceAttribute], Sequence[tuple[str, object]]] = (
            _elements if lists else _scalar
        )
        # Upstream handles a value that is not a scalar only while the gate is off.
        self._default = 0 if lists else LIST

    def mask(self, attribute: DeviceAttribute) -> int:
        """Return a mask of an attribute's values; values of different types are never equal."""
        mask = 0
        for value in self._read(attribute):
            mask |= self._bit.setdefault(value, 2 << len(self._bit))
        return mask or self._default

    def format(self, mask: int) -> str:
        """Return the values in a mask as text for people, bounded in length."""
        if mask == LIST:
            return "a list, while DRAListTypeAttributes is off"
        text = ", ".join(
            str(value).lower() if kind == "bool" else str(value)
            for (kind, value), bit in self._bit.items()
            if mask & bit
        )
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _scalar(attribute: DeviceAttribute) -> Sequence[tuple[str, object]]:
    """Return the scalar of an attribute; nothing for a list."""
    # Versions compare as text: "in their minimal form" equal versions are equal texts.
    if attribute.string is not None:
        return (("string", attribute.string),)
    if attribute.int_ is not None:
        return (("int", attribute.int_),)
    if attribute.bool_ is not None:
        return (("bool", attribute.bool_),)
    if attribute.version is not None:
        return (("version", attribute.version),)
    return ()


def _elements(attribute: DeviceAttribute) -> Sequence[tuple[str, object]]:
    """Return the elements of an attribute; a scalar is a list of one element."""
    if attribute.ints:
        return [("int", value) for value in attribute.ints]
    if attribute.bools:
        return [("bool", value) for value in attribute.bools]
    if attribute.strings:
        return [("string", value) for value in attribute.strings]
    if attribute.versions:
        return [("version", value) for value in attribute.versions]
    return _scalar(attribute)


def _find_static(name: str, devices: Sequence[PublishedDevice]) -> Iterator[DeviceAttribute | None]:
    """Yield a published attribute of each device by its full name, or by its bare name in the driver's domain.

    Source: lookupStaticAttribute.
    """
    domain, slash, identifier = name.partition("/")
    for device in devices:
        attributes = device.device.attributes or _NO_ATTRIBUTES
        value = attributes.get(name)
        if value is None and slash and domain == device.id.driver:
            value = attributes.get(identifier)
        yield value


def _derive(name: str, expression: str, device: PublishedDevice) -> DeviceAttribute:
    """Evaluate a derived attribute on a device.

    Raises:
        AttemptFailed: It cannot be compiled or evaluated.
    """
    try:
        program = compile_derived(expression)
    except UnsupportedSelector as error:
        raise AttemptFailed(f"derived attribute {name}: unsupportedCel: {error}") from error
    except CelError as error:
        raise AttemptFailed(f"compile derived attribute {name} failed: {error}") from error
    scope = current_scope()
    if scope.engine is not None and program.charge > MAX_DERIVED_CHARGE:
        raise AttemptFailed(
            f"derived attribute {name}: unsupportedCel: it takes too long to evaluate"
        )
    scope.meter.charge(1 + program.charge // COST_PER_STEP)
    try:
        return program.attribute(device_view(device.id.driver, device.device))
    except UnsupportedSelector as error:
        raise AttemptFailed(f"derived attribute {name}: unsupportedCel: {error}") from error
    except CelError as error:
        raise AttemptFailed(
            f"evaluate derived attribute {name} on device {device.id} failed: {error}"
        ) from error


def _bits(mask: int) -> Iterator[int]:
    """Yield each bit of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


def bit_mask(flags: Iterable[object]) -> int:
    """Return a mask of the positions of true flags."""
    return sum(1 << position for position, flag in enumerate(flags) if flag)


LIST: Final = 1
"""The bit of a list while DRAListTypeAttributes is off: a value that is not even equal to itself.
Upstream accepts it on the first device and fails every comparison with it."""


CACHE_SIZE: Final = 4096


_NO_ATTRIBUTES: Final[Mapping[str, DeviceAttribute]] = {}


_MAX_TEXT: Final = 64
