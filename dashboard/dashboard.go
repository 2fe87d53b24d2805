// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard shows a cluster and its peerings as web pages, read-only. It serves what package view makes of
// snapshots, from Watch or from recorded objects, on loopback and to one user. It has no rights of its own: it reads
// with the user's kubeconfig, and what the user may not read is missing, with a line that says so.
//
// Texts from clusters are data. html/template escapes them, every value passes api.Printable, and the
// Content-Security-Policy allows neither inline scripts and styles nor requests to other hosts.
//
// Start with Server.Handler.
package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// policy allows what this server sends, and nothing inline.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Server serves the pages. Make it with New.
type Server struct {
	snapshots *Snapshots
	listener  net.Listener
	// token admits a browser once, by the URL; session does so afterwards, by a cookie.
	token, session string
	// streams holds a place for each open page that is kept up to date.
	streams chan struct{}
	// archive has what the page Bundle shows; nil = there is no such page.
	archive *Archive
}

// maxStreams bounds the pages that are kept up to date at a time.
const maxStreams = 32

// closing is how long answers may take once the dashboard ends. Streams end with it, and a page whose stream is cut
// before its last chunk shows an error in its console.
const closing = time.Second

// New returns a server of the snapshots. The listener must be on loopback; Serve closes it.
func New(snapshots *Snapshots, listener net.Listener) *Server {
	return &Server{snapshots: snapshots, listener: listener, token: secret(), session: secret(),
		streams: make(chan struct{}, maxStreams)}
}

// secret returns 32 random bytes as text.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// URL returns the address for the user's browser, with the token.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/?token=" + s.token }

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 1 << 14, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limited, stop := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer stop()
		if server.Shutdown(limited) != nil { // connections that browsers opened in advance
			_ = server.Close()
		}
	})
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve the dashboard: %w", err)
	}
	<-ended
	return nil
}

// Handler answers GET and HEAD of the user's browser and refuses everything else.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /", s.page)
	return s.guard(mux)
}

// guard admits requests that come from a page of this server, or with the token.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		switch given := r.URL.Query().Get("token"); {
		case !s.isOwnHost(r.Host):
			http.Error(w, "unknown host; open the address that liqoctl printed", http.StatusMisdirectedRequest)
		case !s.isOwnOrigin(r.Header):
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the dashboard only reads", http.StatusMethodNotAllowed)
		case equal(given, s.token):
			http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.session, Path: "/", HttpOnly: true,
				SameSite: http.SameSiteStrictMode})
			header.Set("Location", (&url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/")}).String())
			w.WriteHeader(http.StatusSeeOther)
		case slices.Contains([]string{"same-site", "cross-site"}, r.Header.Get("Sec-Fetch-Site")):
			http.Error(w, "requests of other sites are refused; type the address", http.StatusForbidden)
		case !s.isAdmitted(r):
			http.Error(w, "open the address that liqoctl printed, with its token", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isOwnHost reports whether a request names this server. A page of another name that resolves to loopback does not.
func (s *Server) isOwnHost(host string) bool {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if port == "80" && !strings.Contains(host, ":") { // browsers leave out the port of http
		host += ":80"
	}
	return host == s.listener.Addr().String() || host == net.JoinHostPort("localhost", port)
}

// isOwnOrigin reports whether a request comes from a page of this server, as far as the browser says.
func (s *Server) isOwnOrigin(header http.Header) bool {
	return !slices.ContainsFunc(header.Values("Origin"), func(origin string) bool {
		host, ok := strings.CutPrefix(origin, "http://")
		return !ok || !s.isOwnHost(host)
	})
}

// cookie returns the name of the cookie. It holds the port: browsers send cookies to all ports of a host.
func (s *Server) cookie() string {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	return "liqo-dashboard-" + port
}

func (s *Server) isAdmitted(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(s.cookie()),
		func(c *http.Cookie) bool { return equal(c.Value, s.session) })
}

// equal compares two secrets in constant time.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
