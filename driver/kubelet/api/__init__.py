"""The kubelet's gRPC API for plugins: published protos, and what protoc makes of them."""
