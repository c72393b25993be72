package mutating

import corev1 "k8s.io/api/core/v1"

// SetDeviceResources writes the keys that the webhook adds to a pod when it is created.
func SetDeviceResources(pod *corev1.Pod) error {
	_, err := (&PodMutatingHandler{}).mutateByDeviceResources(pod)
	return err
}
