// Command older is what decides about objects in an older Kubernetes: its API server, its controller
// manager and its scheduler in one binary. etcd, kubectl and the kubelet beside it are of the newest version.
//
// It is built with the module file of its version, such as ../kubernetes-1.35.mod. The name that the
// binary was called by says which component to be.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // Time zones of CronJobs, on machines that have none.

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		fmt.Fprintf(os.Stderr, "older: %q is no component of an older control plane\n", name)
		os.Exit(2)
	}
}
