package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"drawbridge.internal/bridge/sidecar"
)

// Settings are the plugin's `args` in the scheduler's configuration.
type Settings struct {
	// Socket is the path of the sidecar's unix socket.
	Socket string `json:"socket"`
	// CallTimeout is what a call of the serial cycle may take before the sidecar counts as lost.
	CallTimeout metav1.Duration `json:"callTimeout"`
	// BindingTimeout is how long PreBind waits for binding conditions of devices, and how long a pod of a
	// group waits for the volumes of another one.
	BindingTimeout metav1.Duration `json:"bindingTimeout"`
	// Heartbeat is the time between two greetings of the sidecar.
	Heartbeat metav1.Duration `json:"heartbeat"`
	// ExitAfter is how long the sidecar may be lost before the scheduler ends, so that another
	// replica's takes over. Keep it below the lease duration of the sidecar.
	ExitAfter metav1.Duration `json:"exitAfter"`
}

// SettingsError says what is wrong with the settings.
type SettingsError struct{ reasons []string }

func (e *SettingsError) Error() string {
	return fmt.Sprintf("pluginConfig %s: %s", Name, strings.Join(e.reasons, "; "))
}

func readSettings(args runtime.Object) (*Settings, error) {
	settings := &Settings{
		Socket:         "/run/drawbridge/sidecar.sock",
		CallTimeout:    metav1.Duration{Duration: 3 * time.Second},
		BindingTimeout: metav1.Duration{Duration: 10 * time.Minute},
		Heartbeat:      metav1.Duration{Duration: 2 * time.Second},
		ExitAfter:      metav1.Duration{Duration: 10 * time.Second},
	}
	if given, ok := args.(*runtime.Unknown); ok && len(given.Raw) > 0 {
		text, err := yaml.YAMLToJSON(given.Raw)
		if err != nil {
			return nil, &SettingsError{[]string{err.Error()}}
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(settings); err != nil {
			return nil, &SettingsError{[]string{err.Error()}}
		}
	}
	return settings, settings.validate()
}

// validate returns all faults, not the first.
func (s *Settings) validate() error {
	var reasons []string
	if s.Socket == "" {
		reasons = append(reasons, "socket is empty, give the path of the sidecar's unix socket")
	}
	for _, given := range s.durations() {
		if given.duration <= 0 {
			reasons = append(reasons, fmt.Sprintf("%s is %s, give a duration above 0s", given.name, given.duration))
		}
	}
	if len(reasons) > 0 {
		return &SettingsError{reasons}
	}
	return nil
}

// requireEqual returns an error that names all settings of a profile that differ from an earlier one's.
func (s *Settings) requireEqual(first *Settings, profile string) error {
	const format = "%s is %v in profile %s and %v in one before it, give all profiles the same args"
	var reasons []string
	if s.Socket != first.Socket {
		reasons = append(reasons, fmt.Sprintf(format, "socket", s.Socket, profile, first.Socket))
	}
	others := first.durations()
	for index, given := range s.durations() {
		if other := others[index]; given != other {
			reasons = append(reasons, fmt.Sprintf(format, given.name, given.duration, profile, other.duration))
		}
	}
	if len(reasons) > 0 {
		return &SettingsError{reasons}
	}
	return nil
}

type namedDuration struct {
	name     string
	duration time.Duration
}

func (s *Settings) durations() []namedDuration {
	return []namedDuration{
		{"callTimeout", s.CallTimeout.Duration},
		{"bindingTimeout", s.BindingTimeout.Duration},
		{"heartbeat", s.Heartbeat.Duration},
		{"exitAfter", s.ExitAfter.Duration},
	}
}

const (
	// bindingMargin is what PreBind may take beyond its wait: the sidecar is to say that time is over.
	bindingMargin = 30 * time.Second
	// memberMargin likewise, of a member of a group: the sidecar waits for 30 seconds after the last member could come.
	memberMargin = 40 * time.Second
)

func (s *Settings) client() sidecar.Config {
	return sidecar.Config{
		Socket:      s.Socket,
		CallTimeout: s.CallTimeout.Duration,
		BindTimeout: s.BindingTimeout.Duration + bindingMargin,
		MemberWait:  s.BindingTimeout.Duration + memberMargin,
		Heartbeat:   s.Heartbeat.Duration,
	}
}
