package cache

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/AliyunContainerService/gpushare-scheduler-extender/pkg/utils"
)

// noConfigMaps is a cluster whose cards are all healthy.
type noConfigMaps struct{}

func (noConfigMaps) List(labels.Selector) ([]*corev1.ConfigMap, error) { return nil, nil }

func (noConfigMaps) Get(string) (*corev1.ConfigMap, error) { return &corev1.ConfigMap{}, nil }

func (noConfigMaps) ConfigMaps(string) corelisters.ConfigMapNamespaceLister { return noConfigMaps{} }

func init() { ConfigMapLister = noConfigMaps{} }

// Place allocates a card as Allocate does, without an API server: it returns the card and its memory
// for the pod, false where there is none.
func (n *NodeInfo) Place(pod *corev1.Pod) (int, int, bool) {
	card, found := n.allocateGPUID(pod)
	if !found {
		return 0, 0, false
	}
	annotated := utils.GetUpdatedPodAnnotationSpec(pod, card, n.GetTotalGPUMemory()/n.GetGPUCount())
	n.addOrUpdatePod(annotated)
	memory, err := strconv.Atoi(annotated.Annotations[utils.EnvResourceByPod])
	if err != nil {
		panic(err)
	}
	return card, memory, true
}
