// Command controlplane is etcd, the Kubernetes control plane, the kubelet, and kubectl in one binary.
//
// Real components are what the end-to-end tests run against. Building them from their own command
// packages needs nothing but the Go module proxy. The name that the binary was called by, or else
// its first argument, says which component to be.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // Time zones of CronJobs, on machines that have none.

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // Ways of kubectl to log in to other clusters.
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps a name to a function that runs it and returns the exit status.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := components[name]
	if !ok && len(os.Args) > 1 {
		name = os.Args[1]
		run, ok = components[name]
		os.Args = os.Args[1:]
	}
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(components)), ", ")
		fmt.Fprintf(os.Stderr, "controlplane: %q is no component; these are: %s\n", name, known)
		os.Exit(2)
	}
	os.Exit(run())
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runKubectl reports errors as kubectl does, since its words are what people and stories read.
func runKubectl() int {
	// Verbosity has to be set before plugins are looked for; a flag that is no number is told later.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return 0
}
