// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// headerTimeout limits how long a client may take to send the headers. The time for a body depends
	// on the size of the volume.
	headerTimeout = 10 * time.Second
	// trailerDigest and trailerError follow an archive: its digest, or why it is incomplete.
	trailerDigest = "Liqo-Digest"
	trailerError  = "Liqo-Error"
	// partialDigest stands for the digest of a volume with an incomplete copy.
	partialDigest = "part"
)

// server sends and receives the content of a volume. Clients need the token of the move. The server
// has its hash only, because anybody who may read the pod can read its arguments.
//
//	GET /         returns the archive of the volume
//	GET /digest   returns the digest of the archive
//	PUT /         unpacks an archive into an empty volume
//	GET /ready    serves the readiness probe, without token
type server struct {
	volume, tokenHash string
	// size is that of the claim in bytes, and the maximum that is received.
	size int64
	// busy serializes requests.
	busy sync.Mutex
}

// serve listens at an address until ctx ends.
func (s *server) serve(ctx context.Context, address string) error {
	listening := &http.Server{Addr: address, Handler: s.handler(), ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = listening.Close() })
	defer stop()
	if err := listening.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", address, err)
	}
	return nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", s.authenticated(s.send))
	mux.HandleFunc("GET /digest", s.authenticated(s.digest))
	mux.HandleFunc("PUT /{$}", s.authenticated(s.receive))
	return mux
}

// authenticated passes requests with the token to next, one at a time.
func (s *server) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(hashOf(token)), []byte(s.tokenHash)) == 0 {
			http.Error(w, "the token is not that of this move", http.StatusUnauthorized)
			return
		}
		s.busy.Lock()
		defer s.busy.Unlock()
		next(w, r)
	}
}

// hashOf returns the hash of a token.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (s *server) send(w http.ResponseWriter, _ *http.Request) {
	if s.isPartial() {
		http.Error(w, "the volume holds a part of a copy only", http.StatusConflict)
		return
	}
	w.Header().Set("Trailer", trailerDigest+", "+trailerError)
	sum := sha256.New()
	if err := archive(io.MultiWriter(w, sum), s.volume); err != nil {
		w.Header().Set(trailerError, err.Error())
		return
	}
	w.Header().Set(trailerDigest, hex.EncodeToString(sum.Sum(nil)))
}

func (s *server) digest(w http.ResponseWriter, _ *http.Request) {
	if s.isPartial() {
		_, _ = io.WriteString(w, partialDigest) // fails if the client is gone
		return
	}
	sum := sha256.New()
	if err := archive(sum, s.volume); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, hex.EncodeToString(sum.Sum(nil))) // as above
}

func (s *server) receive(w http.ResponseWriter, r *http.Request) {
	switch err := restore(s.volume, r.Body, s.size); {
	case errors.Is(err, errHolds):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// isPartial reports whether the volume holds an incomplete copy.
func (s *server) isPartial() bool {
	_, err := os.Lstat(filepath.Join(s.volume, marker))
	return err == nil
}
