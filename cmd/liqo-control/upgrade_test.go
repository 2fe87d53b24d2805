// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/api/scheme"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	nodekubelet "github.com/liqo-go/liqo/offloading/kubelet"
)

// TestUpgradeKeepsObjects runs all controllers on the objects of two peered clusters of a former
// version, with pods and volumes on both. Nothing is deleted, created again or restarted.
// TestTimedUpgrade of testbed/stories has recorded the objects (-record), and upgrades real clusters the
// same way.
func TestUpgradeKeepsObjects(t *testing.T) {
	t.Parallel()
	clusters := recorded(t)
	for _, c := range clusters {
		if err := c.Load(t.Context(), c.objects); err != nil {
			t.Fatalf("load %s: %v", c.name, err)
		}
	}
	for _, c := range clusters {
		c.control(t)
	}
	clusters[0].keepNode(t, clusters[0].arguments(t, "vk-milan"))
	atWork(t, clusters[0], clusters[1])
	settled(t, clusters)
	for _, c := range clusters {
		for _, before := range c.objects {
			c.compare(t, &before)
		}
		c.identified(t)
	}
}

// identified fails for an Identity whose certificate is not valid any more.
func (c *installation) identified(t *testing.T) {
	t.Helper()
	var all authv1beta1.IdentityList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, i := range all.Items {
		if ready := meta.FindStatusCondition(i.Status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionTrue {
			t.Errorf("%s: Identity %s is not Ready: %+v", c.name, i.Name, ready)
		}
	}
}

// installation is a recorded cluster, on an API server of its own.
type installation struct {
	*apitest.Server
	client.Client
	name    string
	objects []unstructured.Unstructured
	// served is the URL of its API server, and ca its authority, when it was recorded.
	served, ca string
}

// recorded reads both clusters and leads each to the API server that stands for the other.
func recorded(t *testing.T) []*installation {
	t.Helper()
	var all []*installation
	for _, name := range []string{"rome", "milan"} {
		c := install(t, name, recording(t, name))
		c.served = strings.TrimPrefix(c.argument(t, "liqo-controller-manager", "--api-server-address-override="), "--api-server-address-override=")
		c.authority("liqo")
		all = append(all, c)
	}
	r := redirect{t: t, clusters: all, signed: map[string]string{}}
	r.redirect()
	return all
}

// recording reads the objects of a cluster of testdata/upgrade.
func recording(t *testing.T, name string) []unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "upgrade", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []unstructured.Unstructured
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text))
	for lines.Scan() {
		var o unstructured.Unstructured
		if err := o.UnmarshalJSON(lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// install gives recorded objects an API server. The roles of the chart are not at stake there.
func install(t *testing.T, name string, objects []unstructured.Unstructured) *installation {
	t.Helper()
	c := &installation{Server: apitest.Start(t), name: name, objects: objects}
	var err error
	if c.Client, err = client.New(c.Config, client.Options{Scheme: scheme.New()}); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everybody"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// authority reads the authority of the API server where pods of a namespace find it.
func (c *installation) authority(namespace string) {
	for _, o := range c.objects {
		if o.GetKind() == "ConfigMap" && o.GetName() == "kube-root-ca.crt" && o.GetNamespace() == namespace {
			c.ca, _, _ = unstructured.NestedString(o.Object, "data", "ca.crt")
		}
	}
}

// arguments returns the arguments of a Deployment's container.
func (c *installation) arguments(t *testing.T, deployment string) []string {
	t.Helper()
	for _, o := range c.objects {
		if o.GetKind() != "Deployment" || o.GetName() != deployment {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		if err != nil {
			t.Fatal(err)
		}
		return args[1:] // after the role
	}
	t.Fatalf("%s has no Deployment %s", c.name, deployment)
	return nil
}

func (c *installation) argument(t *testing.T, deployment, prefix string) string {
	t.Helper()
	args := c.arguments(t, deployment)
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, prefix) })
	if i < 0 {
		t.Fatalf("%s has no argument %s", deployment, prefix)
	}
	return args[i]
}

// control runs the controllers with the flags of the installation, and more.
func (c *installation) control(t *testing.T, more ...string) {
	t.Helper()
	var f controllerFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	args := c.arguments(t, "liqo-controller-manager")
	for i := range args {
		args[i] = strings.NewReplacer("$(CLUSTER_ID)", c.name, "$(POD_NAMESPACE)", "liqo").Replace(args[i])
	}
	args = append(args, more...)
	args = append(args, "--metrics-address=0", "--health-probe-address=0", "--enable-leader-election=false", "--webhook-port="+freePort(t))
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	mgr, err := f.assemble(c.Config, f.manager())
	if err != nil {
		t.Fatal(err)
	}
	c.run(t, "controller", mgr.Start)
}

// keepNode runs the virtual kubelet of the consumer.
func (c *installation) keepNode(t *testing.T, args []string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, kubeconfigOf(t, c.Config, ""), 0o600); err != nil {
		t.Fatal(err)
	}
	f := nodekubelet.NewFlags()
	cmd := kubelet()
	cmd.ResetFlags()
	f.AddFlags(cmd.Flags())
	cmd.Flags().Bool("enable-storage", true, "")
	cmd.Flags().String("remote-real-storage-class-name", "", "")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_IP)", "127.0.0.1")
	}
	args = append(args, "--home-kubeconfig="+kubeconfig, "--listen-port="+freePort(t), "--certificate-type="+string(nodekubelet.CertificateSelfSigned))
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	c.run(t, "virtual kubelet", func(ctx context.Context) error { return runKubelet(ctx, f) })
}

func (c *installation) run(t *testing.T, what string, start func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s of %s: %v", what, c.name, err)
		}
	})
}

// atWork waits until the controllers of both clusters, and the virtual kubelet, have done something that is new.
func atWork(t *testing.T, home, provider *installation) {
	t.Helper()
	home.worked(t)
	provider.worked(t)
	if err := home.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}); err != nil {
		t.Fatal(err)
	}
	reflected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "new"}}
	consumer{provider}.until(t, "the virtual kubelet works", reflected, func() bool { return true })
}

// worked waits until the controllers have done something that is new.
func (c *installation) worked(t *testing.T) {
	t.Helper()
	network := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "new"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.99.0.0/16"}}
	if err := c.Create(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	consumer{c}.until(t, "controllers of "+c.name+" work", network, func() bool { return network.Status.CIDR != "" })
}

// settled waits until both clusters have acted and rest.
func settled(t *testing.T, clusters []*installation) {
	t.Helper()
	const rest = 5 * time.Second // the longest interval at which a controller looks again is longer, and changes nothing
	var last map[string]string
	var since time.Time
	err := wait.PollUntilContextTimeout(t.Context(), 500*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		now := map[string]string{}
		for _, c := range clusters {
			for _, o := range c.objects {
				live, err := c.live(ctx, &o)
				if err != nil {
					return false, err
				}
				if live != nil && o.GetKind() != "Node" { // whose status is a heartbeat
					now[c.name+string(o.GetUID())] = live.GetResourceVersion()
				}
			}
		}
		if !cmp.Equal(last, now) {
			last, since = now, time.Now()
		}
		return time.Since(since) > rest, nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp("clusters that rest", err))
	}
}

// live returns the current state of an object; nil if it was deleted.
func (c *installation) live(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// compare fails for an object that was deleted, is being deleted or was replaced, and for a
// workload whose pods would be replaced.
func (c *installation) compare(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	name := fmt.Sprintf("%s: %s %s/%s", c.name, before.GetKind(), before.GetNamespace(), before.GetName())
	after, err := c.live(t.Context(), before)
	switch {
	case err != nil:
		t.Errorf("%s: %v", name, err)
		return
	case after == nil:
		t.Errorf("%s is deleted", name)
		return
	case after.GetUID() != before.GetUID():
		t.Errorf("%s is made anew", name)
	case after.GetDeletionTimestamp() != nil:
		t.Errorf("%s is being deleted", name)
	}
	was, _, _ := unstructured.NestedMap(before.Object, "spec", "template")
	is, _, _ := unstructured.NestedMap(after.Object, "spec", "template")
	if diff := cmp.Diff(was, is); diff != "" && slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, before.GetKind()) {
		t.Errorf("%s is restarted (-before +after):\n%s", name, diff)
	}
	if key := privateKeyIn(before); key != privateKeyIn(after) {
		t.Errorf("%s has another private key, which its provider does not know", name)
	}
	if before.GetKind() != "Pod" {
		return
	}
	wasPhase, _, _ := unstructured.NestedString(before.Object, "status", "phase")
	isPhase, _, _ := unstructured.NestedString(after.Object, "status", "phase")
	if wasPhase != isPhase {
		t.Errorf("%s was %s and is %s", name, wasPhase, isPhase)
	}
}

// privateKeyIn is the line with the private key of a kubeconfig Secret; empty for other objects.
func privateKeyIn(o *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(o.Object, "data", api.KubeconfigField)
	kubeconfig, _ := base64.StdEncoding.DecodeString(text)
	_, key, _ := strings.Cut(string(kubeconfig), "client-key-data: ")
	key, _, _ = strings.Cut(key, "\n")
	return key
}

// redirect rewrites what was recorded: URLs and authorities of API servers become those of the test, and certificates
// of clients, which have ended, are signed again for the same keys.
type redirect struct {
	t        *testing.T
	clusters []*installation
	signed   map[string]string
	// lost are public keys (DER) whose private keys were not recorded, each with a key that takes its place.
	lost map[string]crypto.Signer
}

func (r redirect) redirect() {
	for _, c := range r.clusters {
		for i := range c.objects {
			c.objects[i].Object = r.value(c.objects[i].Object).(map[string]any)
		}
	}
}

func (r redirect) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = r.value(v[key])
		}
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case string:
		return r.encoded(v)
	}
	return v
}

// encoded rewrites a text, or what it encodes.
func (r redirect) encoded(s string) string {
	if decoded, err := base64.StdEncoding.DecodeString(s); err == nil && len(s) > 100 {
		if now := r.text(string(decoded)); now != string(decoded) {
			return base64.StdEncoding.EncodeToString([]byte(now))
		}
	}
	return r.text(s)
}

var (
	requests     = regexp.MustCompile(`-----BEGIN CERTIFICATE REQUEST-----[^-]+-----END CERTIFICATE REQUEST-----\n`)
	certificates = regexp.MustCompile(`-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n`)
	dataInYAML   = regexp.MustCompile(`(-data: )([A-Za-z0-9+/=]+)`)
)

func (r redirect) text(s string) string {
	for _, c := range r.clusters {
		s = strings.ReplaceAll(s, c.served, c.Config.Host)
		s = strings.ReplaceAll(s, c.ca, string(c.Config.CAData))
	}
	s = certificates.ReplaceAllStringFunc(s, r.certificate)
	s = requests.ReplaceAllStringFunc(s, r.request)
	return dataInYAML.ReplaceAllStringFunc(s, func(line string) string {
		part := dataInYAML.FindStringSubmatch(line)
		return part[1] + r.encoded(part[2])
	})
}

// certificate signs a certificate again if one of the clusters had signed it.
func (r redirect) certificate(text string) string {
	if again, ok := r.signed[text]; ok {
		return again
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return text
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range r.clusters {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(c.ca))
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: cert.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			continue
		}
		public := cert.PublicKey
		if key := r.lost[string(cert.RawSubjectPublicKeyInfo)]; key != nil {
			public = key.Public()
		}
		again, err := c.Sign(&x509.Certificate{Subject: cert.Subject, KeyUsage: cert.KeyUsage, ExtKeyUsage: cert.ExtKeyUsage}, public)
		if err != nil {
			r.t.Fatal(err)
		}
		r.signed[text] = string(again)
		return string(again)
	}
	return text
}

// request makes a signing request anew if its key was lost.
func (r redirect) request(text string) string {
	block, _ := pem.Decode([]byte(text))
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	key := r.lost[string(asked.RawSubjectPublicKeyInfo)]
	if key == nil {
		return text
	}
	again, err := identityplan.NewRequest(key, identityplan.Subject{User: asked.Subject.CommonName, Group: asked.Subject.Organization[0]})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(again)
}
