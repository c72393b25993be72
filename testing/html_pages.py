"""Clusters for pages, with names of any kind, and a page as a browser shows it."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final

from kube.manifests.dump import dump_yaml
from testing.documents import Document, api_object, class_of_driver, node, resource_quota

HOSTILE: Final = (
    "\"><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "' onmouseover='window.hacked = 1' autofocus onfocus='window.hacked = 1",
    "</style></title></script><svg onload=window.hacked=1>",
    "<!-- &lt;script&gt; {{7*7}} ${7*7} javascript:window.hacked=1 -->",
)
"""Names that would do something, if a page did not escape them."""
HIDDEN: Final = "\u202egnp\u2066\x1b[2J\u2028"
"""Characters that turn text around, or that a terminal obeys."""
GPU: Final = "nvidia.com/gpu"
DRIVER: Final = "gpu.example.com"


def cluster(hostile: str = "plain") -> Iterator[Document]:
    """Yield a cluster of every kind that a page shows, with a text in each place that is free."""
    yield node("plugin", {GPU: "2"}, {"nvidia.com/gpu.product": hostile})
    register = [{"id": hostile, "count": 10, "devmem": 40960, "devcore": 100, "type": hostile}]
    yield node("hami", {GPU: "10"}, {}, {"hami.io/node-nvidia-register": json.dumps(register)})
    yield node(f"n{hostile}", {}, {})
    share = {GPU: "1", "nvidia.com/gpumem": "8000"}
    yield _workload(f"share{hostile}", share)
    yield _workload(f"whole{hostile}", {GPU: "1"})
    yield _workload(f"wrong{hostile}", {GPU: hostile})
    yield resource_quota({f"requests.{GPU}": "4"}, name=hostile, namespace=hostile)
    yield class_of_driver(DRIVER, name=f"class{hostile}")
    yield resource_slice(f"n{hostile}", hostile, 2)
    yield api_object(
        "ResourceClaim",
        f"claim{hostile}",
        f"ns{hostile}",
        spec={"devices": {"requests": [{"name": "r"}]}},
        status={
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r",
                            "driver": DRIVER,
                            "pool": f"n{hostile}",
                            "device": f"{hostile}0",
                        }
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": f"pod{hostile}", "uid": "1"}],
        },
    )


def resource_slice(node: str, text: str, devices: int) -> Document:
    """A slice of a node; its devices have the text as name and attribute."""
    return api_object(
        "ResourceSlice",
        f"slice-{node}",
        spec={
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"{text}{number}",
                    "attributes": {"model": {"string": text}, "index": {"int": number}},
                    "capacity": {"memory": {"value": "40Gi"}},
                }
                for number in range(devices)
            ],
        },
    )


def large_cluster(nodes: int, workloads: int) -> str:
    """A snapshot of nodes with device plugins and workloads on them."""
    documents = [node(f"node-{number:04}", {GPU: "8"}, {}) for number in range(nodes)]
    share = {GPU: "1", "nvidia.com/gpumem": "8000"}
    documents += [
        _workload(f"w-{number}", {GPU: "1"} if number % 3 else share) for number in range(workloads)
    ]
    return dump_yaml(documents)


class Outline(HTMLParser):
    """The elements of a page, with the names of their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", ()))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("comment", ()))

    def unknown_decl(self, data: str) -> None:
        self.elements.append(("declaration", ()))


def _workload(name: str, limits: Document) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": limits}}
    return api_object(
        "Deployment",
        name,
        "team",
        spec={
            "replicas": 1,
            "template": {"metadata": {}, "spec": {"containers": [container]}},
        },
    )
