"""ResourceQuotas as Kubernetes counts them: the pods that count, and the usage of claims and pods."""
