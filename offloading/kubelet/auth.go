// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	authorityNamespace = "kube-system"
	authorityConfigMap = "extension-apiserver-authentication"
	authorityKey       = "client-ca-file"

	// authorityTime is how long the cluster's client CA is cached.
	authorityTime = 5 * time.Minute
	// allowedTime and deniedTime are how long answers of the API server are cached. Denials are
	// cached for a shorter time, so that a new right works soon.
	allowedTime = time.Minute
	deniedTime  = 10 * time.Second
)

var errUnauthenticated = errors.New("unauthenticated")

// user is the authenticated client.
type user struct {
	name, uid string
	groups    []string
	extra     map[string]authenticationv1.ExtraValue
}

// gate authenticates and authorizes requests as kubelets do: by a certificate of the cluster's
// client CA or a token that the API server accepts, and by a right on this node.
type gate struct {
	home kubernetes.Interface
	node string

	mu          sync.Mutex
	authorities *x509.CertPool
	fetched     time.Time

	// users caches the users of tokens, and rights whether a user has a right, both by hashes.
	users, rights *cache.Expiring
}

func newGate(home kubernetes.Interface, node string) *gate {
	return &gate{home: home, node: node, users: cache.NewExpiring(), rights: cache.NewExpiring()}
}

// guard passes allowed requests to next.
func (g *gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := g.authenticate(r)
		if errors.Is(err, errUnauthenticated) {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		allowed, err := g.authorize(r.Context(), who, verb(r.Method), subresources(r.URL.Path))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !allowed:
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)",
				who.name, verb(r.Method), subresources(r.URL.Path)), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// verb returns the authorization verb for an HTTP method.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(method)
}

// subresources returns the node subresources for a path, as in Kubernetes (KEP-2862). A right on
// one of them suffices. Paths without a more specific name need "proxy".
func subresources(path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "stats", "metrics", "checkpoint":
		return []string{first}
	case "logs":
		return []string{"log"}
	case "healthz", "pods", "configz":
		return []string{first, "proxy"}
	case "runningpods":
		return []string{"pods", "proxy"}
	}
	return []string{"proxy"}
}

// authenticate returns the user of a request.
func (g *gate) authenticate(r *http.Request) (*user, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if who, err := g.byCertificate(r.Context(), r.TLS.PeerCertificates); err == nil {
			return who, nil
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token != "" {
		return g.byToken(r.Context(), token)
	}
	return nil, errUnauthenticated
}

func (g *gate) byCertificate(ctx context.Context, chain []*x509.Certificate) (*user, error) {
	roots, err := g.clientCA(ctx)
	if err != nil {
		return nil, err
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("verify client certificate: %w", err)
	}
	return &user{name: chain[0].Subject.CommonName, groups: chain[0].Subject.Organization}, nil
}

// clientCA returns the CAs with which the API server verifies clients.
func (g *gate) clientCA(ctx context.Context) (*x509.CertPool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.authorities != nil && time.Since(g.fetched) < authorityTime {
		return g.authorities, nil
	}
	cm, err := g.home.CoreV1().ConfigMaps(authorityNamespace).Get(ctx, authorityConfigMap, metav1.GetOptions{})
	if err != nil {
		if g.authorities != nil {
			return g.authorities, nil // the former one probably still holds
		}
		return nil, fmt.Errorf("get client CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(cm.Data[authorityKey])) {
		return nil, fmt.Errorf("config map %s/%s has no %s", authorityNamespace, authorityConfigMap, authorityKey)
	}
	g.authorities, g.fetched = pool, time.Now()
	return pool, nil
}

func (g *gate) byToken(ctx context.Context, token string) (*user, error) {
	key := sha256.Sum256([]byte(token))
	if known, ok := g.users.Get(key); ok {
		return known.(*user), nil
	}
	review, err := g.home.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, errUnauthenticated
	}
	u := review.Status.User
	who := &user{name: u.Username, uid: u.UID, groups: u.Groups, extra: u.Extra}
	g.users.Set(key, who, allowedTime)
	return who, nil
}

// authorize reports whether the user has the right on one of the subresources.
func (g *gate) authorize(ctx context.Context, who *user, verb string, subresources []string) (bool, error) {
	for _, sub := range subresources {
		allowed, err := g.may(ctx, who, verb, sub)
		if err != nil || allowed {
			return allowed, err
		}
	}
	return false, nil
}

// may asks the API server whether the user has a right.
func (g *gate) may(ctx context.Context, who *user, verb, subresource string) (bool, error) {
	key := sha256.Sum256([]byte(strings.Join([]string{verb, subresource, who.name, who.uid,
		strings.Join(who.groups, "\x01"), fmt.Sprint(who.extra)}, "\x00")))
	if known, ok := g.rights.Get(key); ok {
		return known.(bool), nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range who.extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := g.home.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.name, UID: who.uid, Groups: who.groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: g.node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review access of %s: %w", who.name, err)
	}
	life := deniedTime
	if review.Status.Allowed {
		life = allowedTime
	}
	g.rights.Set(key, review.Status.Allowed, life)
	return review.Status.Allowed, nil
}
