// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/reflection/translate"
)

const (
	// signTime is how long a signer may take before an event reports that it has not answered.
	signTime = 30 * time.Second
	// mostWait is the longest interval between two reads of a request. It is also the shortest interval
	// between two requests for the same certificate, so that a provider that changes the Secret does
	// not cause many.
	mostWait = time.Minute
	// refusalTime is how long a refusal is kept before the certificate is requested again: as long as
	// API servers keep events by default. A kubelet never requests it again for the same pod.
	refusalTime = time.Hour
)

// errUnsigned reports that a signer has not answered yet.
var errUnsigned = errors.New("the signer has not answered")

// certificates requests the certificates of pods from signers of the home cluster, as a kubelet does
// for its node. It generates the private keys, and keeps them in memory with the requests.
type certificates struct {
	home client.Client
	node string

	mu       sync.Mutex
	requests map[certificateID]certificateRequest
}

// certificateID identifies a certificate.
type certificateID struct {
	pod    types.UID
	source string // CertificateSource.ID
}

// certificateRequest is the last request for a certificate.
type certificateRequest struct {
	created time.Time
	name    string // of the PodCertificateRequest; empty = the API server refused to create it
	key     []byte // the private key, PKCS #8 in PEM
	refusal error  // by the API server or by the signer; nil = none yet
}

func newCertificates(home client.Client, node string) *certificates {
	return &certificates{home: home, node: node, requests: map[certificateID]certificateRequest{}}
}

// gather sets in v the certificates that the remote Secret lacks or that are due for renewal, as far
// as they are issued, and why the others are not. after is the time until the next call; 0 = none is
// needed.
func (c *certificates) gather(
	ctx context.Context, pod *corev1.Pod, secret *corev1.Secret, v *translate.View,
) (after time.Duration) {
	sources := translate.CertificateSources(pod)
	if len(sources) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	v.Certificates, v.CertificateRefresh = map[string][]byte{}, map[string]time.Time{}
	refresh := translate.CertificateRefresh(pod, secret, sources)
	for _, source := range sources {
		if wait := time.Until(refresh[source.ID()]); wait > 0 {
			after = sooner(after, wait)
			continue
		}
		files, begin, waited, err := c.request(ctx, pod, source)
		switch {
		case err == nil:
			maps.Copy(v.Certificates, files)
			v.CertificateRefresh[source.ID()] = begin
			after = sooner(after, max(time.Until(begin), mostWait))
			continue
		case !errors.Is(err, errUnsigned):
			waited = mostWait
		}
		after = sooner(after, min(max(waited, time.Second), mostWait))
		if waited >= signTime {
			v.Uncertified = errors.Join(v.Uncertified,
				fmt.Errorf("podCertificate of signer %s: %w", source.SignerName, err))
		}
	}
	return after
}

// request returns the files of an issued certificate, and the time at which its renewal begins. It
// creates a request if none is pending. waited is the age of the request.
func (c *certificates) request(
	ctx context.Context, pod *corev1.Pod, source translate.CertificateSource,
) (files map[string][]byte, begin time.Time, waited time.Duration, err error) {
	id := certificateID{pod.UID, source.ID()}
	c.mu.Lock()
	maps.DeleteFunc(c.requests, func(_ certificateID, r certificateRequest) bool {
		age := time.Since(r.created)
		return age > refusalTime || r.name == "" && age > mostWait
	})
	r, ok := c.requests[id]
	c.mu.Unlock()
	if ok && r.refusal == nil {
		files, begin, err = c.read(ctx, pod, source, &r)
		over := apierrors.IsNotFound(err) || err == nil && !begin.After(time.Now())
		ok = !over || time.Since(r.created) <= mostWait
	}
	if !ok {
		r, err = certificateRequest{created: time.Now()}, errUnsigned
		r.name, r.key, r.refusal = c.create(ctx, pod, source)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[id] = r
	return files, begin, time.Since(r.created), cmp.Or(r.refusal, err)
}

// +kubebuilder:rbac:groups="",resources=serviceaccounts,namespace=offloaded,verbs=get
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=podcertificaterequests,namespace=offloaded,verbs=create;get

// create generates a key and creates the request for its certificate.
func (c *certificates) create(
	ctx context.Context, pod *corev1.Pod, source translate.CertificateSource,
) (name string, encoded []byte, err error) {
	var account corev1.ServiceAccount
	var node corev1.Node
	if err := errors.Join(
		c.home.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}, &account),
		c.home.Get(ctx, types.NamespacedName{Name: c.node}, &node)); err != nil {
		return "", nil, fmt.Errorf("read service account and node: %w", err)
	}
	key, err := newKey(source.KeyType)
	if err != nil {
		return "", nil, err
	}
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return "", nil, fmt.Errorf("sign the request: %w", err)
	}
	if encoded, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return "", nil, fmt.Errorf("encode the key: %w", err)
	}
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: "req-" + utilrand.String(10),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: source.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: source.MaxExpirationSeconds, StubPKCS10Request: proof,
			UnverifiedUserAnnotations: source.UserAnnotations,
		},
	}
	switch err := c.home.Create(ctx, request); {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return "", nil, errors.New("this cluster does not serve PodCertificateRequests as certificates.k8s.io/v1, " +
			"as Kubernetes does from 1.37 on")
	case err != nil: // an event is recorded when its message changes, so it must not hold the random name
		return "", nil, fmt.Errorf("request it: %s",
			strings.ReplaceAll(err.Error(), fmt.Sprintf(" %q", request.Name), ""))
	}
	return request.Name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// newKey generates a private key of a type that PodCertificateProjection.KeyType allows.
func newKey(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("this version of Liqo does not know the key type %q; upgrade Liqo, or choose another",
		keyType)
}

// read returns the files of a certificate that its signer has issued, and the time at which its renewal
// begins. It sets the refusal of r if the signer denied the request or failed.
func (c *certificates) read(
	ctx context.Context, pod *corev1.Pod, source translate.CertificateSource, r *certificateRequest,
) (files map[string][]byte, begin time.Time, err error) {
	var answer certificatesv1.PodCertificateRequest
	if err := c.home.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: r.name}, &answer); err != nil {
		return nil, begin, fmt.Errorf("get the request: %w", err)
	}
	for _, condition := range answer.Status.Conditions {
		if condition.Type != certificatesv1.PodCertificateRequestConditionTypeIssued {
			r.refusal = fmt.Errorf("request %s: %s: %s: %s",
				r.name, condition.Type, condition.Reason, condition.Message)
			return nil, begin, r.refusal
		}
	}
	if answer.Status.BeginRefreshAt == nil {
		return nil, begin, errUnsigned
	}
	return source.Files(r.key, answer.Status.CertificateChain), answer.Status.BeginRefreshAt.Time, nil
}
