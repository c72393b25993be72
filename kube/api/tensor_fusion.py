"""tensor-fusion's WorkloadProfile: the fields that affect the translation of a pod naming one.

Source: NexusGPU/tensor-fusion 0343c94, api/v1/workloadprofile_types.go and api/v1/gpupool_types.go.
"""

from collections.abc import Mapping
from typing import Any, Final

from kube.api.meta import ApiStruct, ObjectMeta
from kube.quantity import Quantity

GROUP: Final = "tensor-fusion.ai"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "WorkloadProfile"
PLURAL: Final = "workloadprofiles"


class GpuAmounts(ApiStruct, frozen=True, kw_only=True):
    """Amounts of each GPU; `compute` is a percentage."""

    tflops: Quantity | None = None
    vram: Quantity | None = None
    compute: Quantity | None = None


class GpuResources(ApiStruct, frozen=True, kw_only=True):
    """Source: Resources."""

    requests: GpuAmounts = GpuAmounts()
    limits: GpuAmounts = GpuAmounts()


class WorkloadProfileSpec(ApiStruct, frozen=True, kw_only=True):
    """Source: WorkloadProfileSpec."""

    resources: GpuResources = GpuResources()
    gpu_count: int = 0
    gpu_model: str = ""
    vendor: str = ""
    qos: str = ""
    auto_scaling_config: Mapping[str, Any] = {}
    node_affinity: Mapping[str, Any] | None = None


class WorkloadProfile(ApiStruct, frozen=True, kw_only=True):
    """Source: WorkloadProfile."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadProfileSpec = WorkloadProfileSpec()
