"""The official client's package is imported without the parts that nothing here uses."""

import subprocess
import sys
from typing import Final

PROGRAM: Final = """
import sys
import kube.client.connection, kubernetes

print([name for name in ("kubernetes.client", "pydantic", "requests", "urllib3", "dateutil")
       if name in sys.modules])
try:
    kubernetes.client
except AttributeError as error:
    print(error)
from kubernetes import client
print(client.V1Pod.__name__)
from kubernetes.aio.client import ApiClient
print(ApiClient.__module__)
from kubernetes.aio.utils import retry
print(retry.__name__)
"""


def test_what_nothing_here_uses_is_imported_on_demand_only() -> None:
    done_process = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True
    )

    assert [
        "[]",
        "module 'kubernetes' has no attribute 'client'",
        "V1Pod",
        "kubernetes.aio.client.api_client",
        "kubernetes.aio.utils.retry",
    ] == done_process.stdout.splitlines()
