package sidecar_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"drawbridge.internal/bridge/sidecar"
	"drawbridge.internal/bridge/sidecartest"
)

// tests/sidecar/test_plugin_messages.py reads both files and compares what the sidecar sees.
func TestAPodIsSentAsFarAsTheSidecarReadsIt(t *testing.T) {
	const file = "testdata/sent_pod.json"
	whole, sent := &v1.Pod{}, map[string]any{}
	read(t, "testdata/whole_pod.json", whole)
	server := sidecartest.Start(t)
	client := greeted(t, server)

	_, err := client.PreFilter(t.Context(), &sidecar.PreFilterRequest{Pod: whole})
	must(t, err)
	_, err = client.Group(t.Context(), &sidecar.GroupRequest{Pods: []*v1.Pod{whole}})
	must(t, err)

	arrived := server.Requests("prefilter")[0].Body["pod"]
	if *update {
		text, err := json.MarshalIndent(arrived, "", " ")
		must(t, err)
		must(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	read(t, file, &sent)
	if !reflect.DeepEqual(arrived, any(sent)) {
		t.Errorf("%s differs; write it anew with `go test ./sidecar -update`: %v", file, arrived)
	}
	if pods := server.Requests("group")[0].Body["pods"]; !reflect.DeepEqual(pods, []any{sent}) {
		t.Errorf("sent otherwise in a group: %v", pods)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(text, into))
}
