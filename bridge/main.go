// Command drawbridge-scheduler is kube-scheduler with one plugin more, which asks a sidecar for
// devices. docs/bridge.md has the whole.
package main

import (
	"errors"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"drawbridge.internal/bridge/plugin"
)

// wrongSettings is the exit status for settings that no repetition makes right.
const wrongSettings = 2

func main() {
	factory := plugin.NewFactory()
	command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, factory.New))
	code := cli.Run(command)
	// The scheduler passes on the text of a plugin's error only, hence the detour.
	if settings := (*plugin.SettingsError)(nil); errors.As(factory.Err(), &settings) {
		code = wrongSettings
	}
	os.Exit(code)
}
