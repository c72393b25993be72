package sidecar

import "net/http"

// LimitBindings has at most n calls of PreBind under way, and as many of groups' members.
func (c *Client) LimitBindings(n int) {
	for _, client := range []*http.Client{c.binding, c.waiting} {
		client.Transport.(*http.Transport).MaxConnsPerHost = n
	}
}
