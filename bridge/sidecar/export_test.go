package sidecar

import "net/http"

// LimitBindings has at most n calls of PreBind under way.
func (c *Client) LimitBindings(n int) {
	c.binding.Transport.(*http.Transport).MaxConnsPerHost = n
}
