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
	// signTime is how long a signer may take before the pod is told that it waits.
	signTime = 30 * time.Second
	// mostWait is the longest interval between two looks for the answer of a signer, and the least between two
	// requests for a certificate, whatever the provider makes of the Secret with the former one.
	mostWait = time.Minute
	// refusalTime is how long a refusal of a signer stands: as long as Kubernetes keeps the event about it. A kubelet
	// asks no second time; here the pod need not be made again once the signer knows better.
	refusalTime = time.Hour
)

// errUnsigned reports that a signer has not answered yet.
var errUnsigned = errors.New("the signer has not answered")

// certificates requests the certificates of pods from signers of the home cluster, as a kubelet does for
// its node. Keys are made here, and remembered with the requests.
type certificates struct {
	home client.Client
	node string

	mu    sync.Mutex
	asked map[asking]asked
}

// asking identifies a certificate by its pod and by its key in the Secret.
type asking struct {
	pod types.UID
	key string
}

// asked is a request for a certificate.
type asked struct {
	at      time.Time
	name    string // empty = the API server has refused the request
	key     []byte // PKCS #8 in PEM
	refusal error  // of the API server or of the signer
}

func newCertificates(home client.Client, node string) *certificates {
	return &certificates{home: home, node: node, asked: map[asking]asked{}}
}

// gather puts those certificates of a pod into v that the remote Secret lacks or that their signers want renewed, and
// why others are missing. after is when to call it again; 0 = not needed.
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
		files, begin, waited, err := c.of(ctx, pod, source)
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

// of returns the files of a certificate, requested if it was not of late, and when its signer wants it renewed. waited
// is how long the signer has had.
func (c *certificates) of(
	ctx context.Context, pod *corev1.Pod, source translate.CertificateSource,
) (files map[string][]byte, begin time.Time, waited time.Duration, err error) {
	id := asking{pod.UID, source.ID()}
	c.mu.Lock()
	maps.DeleteFunc(c.asked, func(_ asking, a asked) bool {
		age := time.Since(a.at)
		return age > refusalTime || a.name == "" && age > mostWait
	})
	a, ok := c.asked[id]
	c.mu.Unlock()
	if ok && a.refusal == nil {
		files, begin, err = c.answer(ctx, pod, source, &a)
		over := apierrors.IsNotFound(err) || err == nil && !begin.After(time.Now())
		ok = !over || time.Since(a.at) <= mostWait
	}
	if !ok {
		a, err = asked{at: time.Now()}, errUnsigned
		a.name, a.key, a.refusal = c.ask(ctx, pod, source)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[id] = a
	return files, begin, time.Since(a.at), cmp.Or(a.refusal, err)
}

// +kubebuilder:rbac:groups="",resources=serviceaccounts,namespace=offloaded,verbs=get
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=podcertificaterequests,namespace=offloaded,verbs=create;get

// ask makes a key and requests its certificate.
func (c *certificates) ask(
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
	asks := &certificatesv1.PodCertificateRequest{
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
	switch err := c.home.Create(ctx, asks); {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return "", nil, errors.New("this cluster does not serve PodCertificateRequests as certificates.k8s.io/v1, " +
			"as Kubernetes does from 1.37 on")
	case err != nil: // the name is another each time, and a text is told once
		return "", nil, fmt.Errorf("request it: %s", strings.ReplaceAll(err.Error(), fmt.Sprintf(" %q", asks.Name), ""))
	}
	return asks.Name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// newKey makes a key of a type that the projection of a pod names.
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

// answer returns the files of a certificate that a signer has issued, and when it wants to renew it. It keeps refusals.
func (c *certificates) answer(
	ctx context.Context, pod *corev1.Pod, source translate.CertificateSource, a *asked,
) (files map[string][]byte, begin time.Time, err error) {
	var answer certificatesv1.PodCertificateRequest
	if err := c.home.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: a.name}, &answer); err != nil {
		return nil, begin, fmt.Errorf("get the request: %w", err)
	}
	for _, condition := range answer.Status.Conditions {
		if condition.Type != certificatesv1.PodCertificateRequestConditionTypeIssued {
			a.refusal = fmt.Errorf("request %s: %s: %s: %s",
				a.name, condition.Type, condition.Reason, condition.Message)
			return nil, begin, a.refusal
		}
	}
	if answer.Status.BeginRefreshAt == nil {
		return nil, begin, errUnsigned
	}
	return source.Files(a.key, answer.Status.CertificateChain), answer.Status.BeginRefreshAt.Time, nil
}
