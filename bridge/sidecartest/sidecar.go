// Package sidecartest has a sidecar for tests: it answers what a test says, over a real socket.
package sidecartest

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

// Request is what arrived: the point, such as `prefilter`, and the body's members and length.
type Request struct {
	Point string
	Body  map[string]any
	Bytes int
}

// Reply is an answer to one request. A nil Body is an empty object.
type Reply struct {
	Status int // 0 is 200.
	Body   map[string]any
	Text   string          // In place of Body.
	Wait   <-chan struct{} // What the answer waits for.
}

// Sidecar serves on Socket. It acknowledges all reservations and changes of nodes that arrive, and is ready.
type Sidecar struct {
	Socket string

	mutex       sync.Mutex
	connections int
	instance    string
	highest     float64
	headroom    float64 // The number of the last changes of nodes.
	known       bool
	replies     map[string][]Reply
	deciders    map[string]func(body map[string]any) Reply
	requests    []Request
}

// Start serves until the test ends.
func Start(t *testing.T) *Sidecar {
	t.Helper()
	sidecar := &Sidecar{
		Socket:   filepath.Join(t.TempDir(), "s"),
		instance: "first",
		replies:  map[string][]Reply{},
		deciders: map[string]func(map[string]any) Reply{},
	}
	listener, err := net.Listen("unix", sidecar.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: sidecar, ConnState: sidecar.count}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return sidecar
}

// Say has the next requests to a point answered so, in turn; the last is repeated.
func (s *Sidecar) Say(point string, replies ...Reply) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.replies[point] = replies
}

// Decide has each request to a point answered by a function, one at a time. Say wins over it.
func (s *Sidecar) Decide(point string, decide func(body map[string]any) Reply) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.deciders[point] = decide
}

// Restart makes it another instance that knows nothing.
func (s *Sidecar) Restart(instance string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.instance, s.highest, s.headroom, s.known = instance, 0, 0, false
}

// Requests returns what arrived at a point so far.
func (s *Sidecar) Requests(point string) []Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var arrived []Request
	for _, request := range s.requests {
		if request.Point == point {
			arrived = append(arrived, request)
		}
	}
	return arrived
}

// Connections returns how many connections were made so far.
func (s *Sidecar) Connections() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.connections
}

func (s *Sidecar) count(_ net.Conn, state http.ConnState) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if state == http.StateNew {
		s.connections++
	}
}

// ServeHTTP answers one request.
func (s *Sidecar) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	text, _ := io.ReadAll(request.Body)
	body := map[string]any{}
	_ = json.Unmarshal(text, &body)
	reply := s.reply(Request{Point: request.URL.Path[len("/v1/"):], Body: body, Bytes: len(text)})
	if reply.Wait != nil {
		select {
		case <-reply.Wait:
		case <-request.Context().Done():
			return
		}
	}
	if reply.Status != 0 {
		writer.WriteHeader(reply.Status)
	}
	if reply.Text != "" {
		_, _ = io.WriteString(writer, reply.Text)
		return
	}
	_ = json.NewEncoder(writer).Encode(reply.Body)
}

func (s *Sidecar) reply(request Request) Reply {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests = append(s.requests, request)
	point, body := request.Point, request.Body
	var reply Reply
	if scripted := s.replies[point]; len(scripted) > 0 {
		reply = scripted[0]
		if len(scripted) > 1 {
			s.replies[point] = scripted[1:]
		}
	} else if decide, ok := s.deciders[point]; ok && body["instance"] == s.instance && s.known {
		reply = decide(body)
	}
	answer := map[string]any{"instance": s.instance}
	if point == "hello" {
		answer["leads"], answer["ready"] = true, true
	} else if body["instance"] != s.instance || !s.known {
		return Reply{Status: http.StatusConflict, Body: answer}
	}
	for name, value := range reply.Body {
		answer[name] = value
	}
	if reply.Status == 0 {
		s.known = s.known || answer["ready"] == true
		reservations, _ := body["reservations"].([]any)
		for _, reservation := range reservations {
			number, _ := reservation.(map[string]any)["number"].(float64)
			s.highest = max(s.highest, number)
		}
		if changes, brought := body["headroom"].(map[string]any); brought && reply.Text == "" {
			s.headroom = max(s.headroom, changes["number"].(float64))
		}
		for name, value := range map[string]float64{"acknowledged": s.highest, "headroom": s.headroom} {
			if _, scripted := answer[name]; !scripted {
				answer[name] = value
			}
		}
	}
	reply.Body = answer
	return reply
}
