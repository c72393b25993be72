"""The gRPC services that the kubelet calls."""
