"""The kubelet's gRPC API for plugins: published protos, and the code that protoc generates."""
