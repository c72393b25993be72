"""Pods per second: kube-scheduler with our plugin and its sidecar against kube-scheduler alone."""
