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
	// headerTimeout bounds how long a client may take to say what it wants; what follows takes as
	// long as the volume is large.
	headerTimeout = 10 * time.Second
	// trailers of an archive: its digest, or why it is not whole.
	trailerDigest = "Liqo-Digest"
	trailerError  = "Liqo-Error"
	// partly is the digest of a volume that holds a part of a copy only.
	partly = "part"
)

// server gives and takes what is in a volume. Who asks has to know the token of the move; the
// server knows its hash only, which may be read where the pod may be seen.
//
//	GET /         the archive
//	GET /digest   that of the archive
//	PUT /         an archive, for an empty volume
//	GET /ready    for the probe of the pod, without token
type server struct {
	volume, tokenHash string
	// size is that of the claim, in bytes: what is taken is not larger.
	size int64
	// busy: what is asked for comes one after the other.
	busy sync.Mutex
}

// serve runs until ctx ends.
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
	mux.HandleFunc("GET /{$}", s.known(s.give))
	mux.HandleFunc("GET /digest", s.known(s.digest))
	mux.HandleFunc("PUT /{$}", s.known(s.take))
	return mux
}

// known serves one client at a time, and only those with the token.
func (s *server) known(next http.HandlerFunc) http.HandlerFunc {
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

// hashOf returns the hash of a token; servers know only the hash.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (s *server) give(w http.ResponseWriter, _ *http.Request) {
	if s.partly() {
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
	if s.partly() {
		_, _ = io.WriteString(w, partly) // fails when nobody listens
		return
	}
	sum := sha256.New()
	if err := archive(sum, s.volume); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, hex.EncodeToString(sum.Sum(nil))) // as above
}

func (s *server) take(w http.ResponseWriter, r *http.Request) {
	switch err := restore(s.volume, r.Body, s.size); {
	case errors.Is(err, errHolds):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// partly says whether the volume holds a part of a copy only.
func (s *server) partly() bool {
	_, err := os.Lstat(filepath.Join(s.volume, marker))
	return err == nil
}
