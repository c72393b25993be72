package validating

import corev1 "k8s.io/api/core/v1"

// AcceptsDeviceResources tells whether the webhook lets a pod pass.
func AcceptsDeviceResources(pod *corev1.Pod) bool {
	return len(validateDeviceResource(pod)) == 0
}
