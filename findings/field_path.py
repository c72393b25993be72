"""The place of a value in a Kubernetes object, as structure; text is made from it.

Source: k8s.io/apimachinery, pkg/util/validation/field, Path.
"""

import msgspec

from findings.text import printable

MAX_STEP_LENGTH = 317
"""Characters of a name or key in text. A resource name has at most 253 for its domain, a slash and 63
for its name; names in objects of strangers may be as long as a request body."""


class Key(msgspec.Struct, frozen=True):
    """The key of an entry of a map."""

    name: str


Step = str | int | Key
"""The name of a field, the index of a list element, or the key of a map entry."""


class FieldPath(msgspec.Struct, frozen=True):
    """The steps from an object to one of its values; without a step it is the object itself."""

    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, *steps: Step) -> "FieldPath":
        """Return a path of steps.

        >>> str(FieldPath.of("spec", "containers", 0, "resources", "limits", Key("nvidia.com/gpu")))
        'spec.containers[0].resources.limits[nvidia.com/gpu]'
        """
        return cls(steps)

    @property
    def is_root(self) -> bool:
        """Return True if the path is the object itself."""
        return not self.steps

    def child(self, *steps: str | int) -> "FieldPath":
        """Return the path of a field below, through fields and list elements."""
        return FieldPath((*self.steps, *steps))

    def key(self, name: str) -> "FieldPath":
        """Return the path of an entry of the map at this path."""
        return FieldPath((*self.steps, Key(name)))

    def join(self, below: "FieldPath") -> "FieldPath":
        """Return the path that continues with the steps of a relative path."""
        return FieldPath((*self.steps, *below.steps))

    def relative_to(self, prefix: "FieldPath") -> "FieldPath | None":
        """Return the steps after a prefix; None if the path does not begin with it."""
        length = len(prefix.steps)
        return FieldPath(self.steps[length:]) if self.steps[:length] == prefix.steps else None

    def remove_prefix(self, prefix: "FieldPath") -> "FieldPath":
        """Return the path without a prefix; itself if it does not continue after the prefix."""
        below = self.relative_to(prefix)
        return self if below is None or below.is_root else below

    def __str__(self) -> str:
        """Return the path as the API server writes it, on one line."""
        text = ""
        for step in self.steps:
            match step:
                case int():
                    text += f"[{step}]"
                case Key(name=name):
                    text += f"[{_bounded_name(name)}]"
                case str():
                    text += f".{_bounded_name(step)}" if text else _bounded_name(step)
        return text


def _bounded_name(name: str) -> str:
    cut = name if len(name) <= MAX_STEP_LENGTH else name[: MAX_STEP_LENGTH - 3] + "..."
    return printable(cut)
