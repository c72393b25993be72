"""What the API server serves, as its URLs name it."""

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of the API as its URLs name it; an empty group is the core group."""

    group: str = ""
    version: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource.

        >>> Resource(version="v1", plural="pods").path(namespace="a", name="b", subresource="status")
        '/api/v1/namespaces/a/pods/b/status'
        """
        root = f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"
        scope = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [
            *scope,
            self.plural,
            *([name] if name else []),
            *([subresource] if subresource else []),
        ]
        return "/".join(["", root, *(quote(part, safe="") for part in parts)])
