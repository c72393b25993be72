"""A real node: kubelet, containerd and runc, in namespaces of their own, with the driver beside them."""
