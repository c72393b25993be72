package sidecar_test

import (
	"net/http"
	"testing"

	"drawbridge.internal/bridge/sidecar"
	"drawbridge.internal/bridge/sidecartest"
)

// Of any answer: a body that is not read to its end would cost the connection.
func TestCallsOneAfterTheOtherShareAConnection(t *testing.T) {
	server := sidecartest.Start(t)
	client := greeted(t, server)
	server.Say("prefilter",
		sidecartest.Reply{},
		sidecartest.Reply{Status: http.StatusBadRequest, Body: map[string]any{"message": "no pod"}},
		sidecartest.Reply{Status: http.StatusInternalServerError, Text: "500 Internal Server Error"},
		sidecartest.Reply{Text: "fits"},
		sidecartest.Reply{})

	for range 100 {
		_ = ask(t, client)
		client.Greet(t.Context())
		if _, err := client.PreBind(t.Context(), &sidecar.PodRequest{}); err != nil {
			t.Fatal(err)
		}
	}

	if got := server.Connections(); got != 1 {
		t.Errorf("%d connections for 301 calls, want 1", got)
	}
}
