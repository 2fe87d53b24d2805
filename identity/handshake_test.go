// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/identity"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/seed"
)

const (
	// atMilan and atRome are the tenant namespaces, each named after the other cluster.
	atMilan, atRome = "liqo-tenant-rome", "liqo-tenant-milan"
	// lifetime is that of certificates, as the signer is asked for.
	lifetime = time.Hour
)

// TestHandshake plays a whole peering between two clusters, milan, whose TLS knows RSA only, consuming from rome: the
// test is the user who carries objects over and the replicator, the controllers do the rest. A
// fifth of their writes fails. At the end nothing is left at rome.
func TestHandshake(t *testing.T) {
	t.Parallel()
	milan, rome := startCluster(t, "milan"), startCluster(t, "rome")
	var seen atomic.Bool // a certificate of rome's, by the test
	go signer(t.Context(), t, rome, &seen)

	// Nonce at rome, signed at milan.
	rome.create(t, tenantNamespace(atRome, "milan"), secret(atRome, api.NonceSecret, api.LabelNonce, nil))
	nonce := rome.field(t, atRome, api.NonceSecret, api.NonceField)
	milan.create(t, tenantNamespace(atMilan, "rome"), secret(atMilan, api.SignedNonceSecret, api.LabelSignedNonce, nonce))
	signature := milan.field(t, atMilan, api.SignedNonceSecret, api.SignedNonceField)

	// Tenant at rome, Identity at milan.
	key := must(plan.ParsePrivateKey(milan.field(t, "liqo", api.PeerKeysSecretName(atMilan), api.PrivateKeyField)))
	tenant := &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: "milan"},
		Spec: authv1beta1.TenantSpec{
			ClusterID: "milan", Signature: signature, PublicKey: must(plan.EncodePublicKey(key.Public())),
			CSR: must(plan.NewRequest(key, plan.ControlPlaneSubject("milan"))),
		},
	}
	rome.create(t, tenant)
	rome.until(t, "the tenant has credentials", tenant, func() bool { return tenant.Status.AuthParams != nil })
	first := tenant.Status.AuthParams.DeepCopy() // for seconds only: there may be others when the tenant is Ready
	seen.Store(true)
	rome.until(t, "the tenant is Ready", tenant, func() bool { return meta.IsStatusConditionTrue(tenant.Status.Conditions, "Ready") })
	control := &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: api.ControlPlaneIdentityName("rome"), Labels: peerLabel("rome")},
		Spec: authv1beta1.IdentitySpec{
			ClusterID: "rome", Type: authv1beta1.IdentityControlPlane, Namespace: tenant.Status.TenantNamespace, AuthParams: first,
		},
	}
	milan.create(t, control)
	milan.field(t, atMilan, api.KubeconfigSecretName(control.Name), api.KubeconfigField)
	renewed(t, milan, rome, control, tenant)
	authenticatedAgain(t, milan, rome, tenant, nonce)
	drained(t, rome, tenant)

	// A slice: asked at milan, carried to rome, answered, carried back.
	slice := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: "big", Annotations: map[string]string{api.AnnotationCreateVirtualNode: "true"}},
		Spec:       authv1beta1.ResourceSliceSpec{Resources: corev1.ResourceList{"cpu": resource.MustParse("20")}},
	}
	milan.create(t, slice)
	milan.until(t, "the slice is filled", slice, func() bool { return len(slice.Spec.CSR) > 0 })
	copied := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: "big", Labels: map[string]string{
		api.LabelReplicated: "true", api.LabelReplication: "false", api.LabelRemoteClusterID: "milan",
	}}, Spec: slice.Spec}
	rome.create(t, copied)
	rome.until(t, "the slice is answered", copied, func() bool {
		return copied.Status.AuthParams != nil && len(copied.Status.Conditions) == 2
	})
	milan.says(t, slice, func() {
		slice.Status = *copied.Status.DeepCopy()
		for i := range slice.Status.Conditions {
			slice.Status.Conditions[i].ObservedGeneration = slice.Generation // as replication counts
		}
	})
	node := &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: "big"}}
	milan.until(t, "the virtual node is there", node, func() bool { return node.Spec.ResourceQuota.Hard.Cpu().String() == "20" })
	milan.says(t, node, func() {
		node.Status.Conditions = []offv1beta1.VirtualNodeCondition{{Type: "Ready", Status: "True", Reason: "Ready"}}
	})
	milan.until(t, "the slice is Ready, as its virtual node is", slice, func() bool {
		return slices.ContainsFunc(slice.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == "Ready" && c.Status == "True" })
	})
	quota := &offv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: api.ResourceSliceUserName("big", "milan")}}
	rome.until(t, "the quota is there", quota, func() bool { return quota.Spec.Resources.Cpu().String() == "20" })
	rome.until(t, "the copies are counted: slice and mailbox", tenant, func() bool { return tenant.Status.Copies == 2 })

	// Nobody gets a certificate by labelling a request of their own.
	stranger := strangersRequest(t, rome, tenant.Spec.CSR)

	tellsNoSecret(t, milan)
	tellsNoSecret(t, rome)

	// Unpeer.
	milan.delete(t, slice)
	milan.gone(t, node, slice)
	rome.delete(t, copied)
	rome.gone(t, quota, copied)
	rome.delete(t, tenant)
	rome.gone(t, tenant,
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: api.BindingRemoteControlPlane}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterWideBindingName(api.ClusterRoleVirtualKubeletRemoteClusterWide, "milan")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: api.RemoteCertificateSecret}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: api.RemoteCertificateSecretName("big")}})
	var requests certificatesv1.CertificateSigningRequestList
	if err := rome.List(t.Context(), &requests, client.MatchingLabels{api.LabelManaged: "true"}); err != nil || len(requests.Items) > 0 {
		t.Errorf("%d signing requests are left (%v)", len(requests.Items), err)
	}
	if err := rome.Get(t.Context(), client.ObjectKeyFromObject(stranger), stranger); err != nil || len(stranger.Status.Conditions) > 0 {
		t.Errorf("the stranger's request was decided: %v %v", stranger.Status.Conditions, err)
	}
	replayed(t, rome, tenant, nonce)
}

// authenticatedAgain: the nonce serves once, and so does the next, which a tool at rome chose itself; who
// holds the key goes on.
func authenticatedAgain(t *testing.T, milan, rome cluster, tenant *authv1beta1.Tenant, before []byte) {
	t.Helper()
	challenge := secret(atRome, api.NonceSecret, api.LabelNonce, nil)
	fresh := func() {
		t.Helper()
		rome.until(t, "there is a fresh nonce", challenge, func() bool {
			return len(challenge.Data[api.NonceField]) > 0 && !bytes.Equal(challenge.Data[api.NonceField], before)
		})
	}
	for chosen := range 2 {
		fresh()
		if chosen == 1 {
			own := make([]byte, plan.NonceSize)
			_ = must(rand.Read(own))
			rome.delete(t, challenge)
			challenge = secret(atRome, api.NonceSecret, api.LabelNonce, []byte(base64.StdEncoding.EncodeToString(own)))
			rome.create(t, challenge)
		}
		before = challenge.Data[api.NonceField]
		answer := secret(atMilan, api.SignedNonceSecret, api.LabelSignedNonce, before)
		milan.delete(t, answer)
		milan.create(t, answer)
		patch := client.MergeFrom(tenant.DeepCopy())
		tenant.Spec.Signature = milan.field(t, atMilan, api.SignedNonceSecret, api.SignedNonceField)
		if err := rome.Patch(t.Context(), tenant, patch); err != nil {
			t.Fatal(err)
		}
		rome.until(t, "the tenant is Ready again", tenant, func() bool {
			return tenant.Status.AuthParams != nil && meta.IsStatusConditionTrue(tenant.Status.Conditions, "Ready")
		})
		fresh() // the one before has served: that the tenant is Ready may be of before
	}
}

// drained: the consumer may spoil what it writes of its Tenant, and loses its rights all the same. They
// come back.
func drained(t *testing.T, rome cluster, tenant *authv1beta1.Tenant) {
	t.Helper()
	bindings := []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: api.BindingRemoteControlPlane}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterWideBindingName(api.ClusterRoleVirtualKubeletRemoteClusterWide, "milan")}},
	}
	honest := tenant.Spec.CSR
	set := func(request []byte, condition authv1beta1.TenantCondition) {
		patch := client.MergeFrom(tenant.DeepCopy())
		tenant.Spec.CSR, tenant.Spec.TenantCondition = request, condition
		if err := rome.Patch(t.Context(), tenant, patch); err != nil {
			t.Fatal(err)
		}
	}
	for _, binding := range bindings {
		rome.until(t, "the tenant has its rights", binding, func() bool { return true })
	}
	set([]byte("garbage"), authv1beta1.TenantDrained)
	rome.gone(t, bindings...)
	set(honest, authv1beta1.TenantActive)
	for _, binding := range bindings {
		rome.until(t, "the tenant has its rights again", binding, func() bool { return true })
	}
}

// tellsNoSecret: what is in the Secrets of a cluster, but for what is public, is in no log, event or
// condition. A fifth of the writes has failed, so errors are among the logs.
func tellsNoSecret(t *testing.T, c cluster) {
	t.Helper()
	c.logged.mu.Lock()
	told := map[string][]byte{"the logs": bytes.Clone(c.logged.text.Bytes())}
	c.logged.mu.Unlock()
	for _, list := range []client.ObjectList{
		&eventsv1.EventList{}, &authv1beta1.TenantList{}, &authv1beta1.IdentityList{}, &authv1beta1.ResourceSliceList{},
		&offv1beta1.VirtualNodeList{}, &certificatesv1.CertificateSigningRequestList{},
	} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, _ := must(runtime.DefaultUnstructuredConverter.ToUnstructured(list))["items"].([]any)
		for _, item := range items {
			name := fmt.Sprintf("%T", list)
			if conditions, ok, _ := unstructured.NestedFieldNoCopy(item.(map[string]any), "status", "conditions"); ok {
				item = conditions
			} else if _, events := list.(*eventsv1.EventList); !events {
				continue
			}
			told[name] = append(told[name], must(json.Marshal(item))...)
		}
	}
	var secrets corev1.SecretList
	if err := c.List(t.Context(), &secrets); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, secret := range secrets.Items {
		for _, field := range []string{api.PrivateKeyField, api.KubeconfigField, api.NonceField, api.SignedNonceField} {
			value := secret.Data[field]
			if len(value) == 0 {
				continue
			}
			seen++
			for where, text := range told {
				for _, form := range forms(value) {
					if at := bytes.Index(text, form); at >= 0 {
						line := text[bytes.LastIndexByte(text[:at], '\n')+1:]
						t.Errorf("%s of secret %s is in %s: %.200s", field, secret.Name, where, line)
					}
				}
			}
		}
	}
	if seen == 0 || len(told["the logs"]) == 0 { // one at a provider whose nonce has served already
		t.Errorf("%d secrets to look for in %d bytes of logs: the test looks at the wrong place", seen, len(told["the logs"]))
	}
}

// forms are those in which a value may be told: as it is, in base64, and its first line that holds
// more than the frame of a PEM block; of a kubeconfig, the key.
func forms(value []byte) [][]byte {
	out := [][]byte{value, []byte(base64.StdEncoding.EncodeToString(value))}
	if _, after, ok := bytes.Cut(value, []byte("client-key-data: ")); ok {
		key, _, _ := bytes.Cut(after, []byte("\n"))
		return append(out, key)
	}
	if block, _ := pem.Decode(value); block != nil {
		out = append(out, bytes.Split(value, []byte("\n"))[1])
	}
	return out
}

// replayed: a Tenant of former days, which anybody may have kept, admits nobody, and its user is told.
func replayed(t *testing.T, rome cluster, tenant *authv1beta1.Tenant, nonce []byte) {
	t.Helper()
	if again := rome.field(t, atRome, api.NonceSecret, api.NonceField); bytes.Equal(again, nonce) {
		t.Error("the nonce serves twice")
	}
	replay := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: "milan"}, Spec: tenant.Spec}
	rome.create(t, replay)
	rome.until(t, "the replay is refused", replay, func() bool {
		stalled := meta.FindStatusCondition(replay.Status.Conditions, "Stalled")
		return stalled != nil && stalled.Reason == plan.ReasonSignatureVerificationFailed
	})
	if replay.Status.AuthParams != nil {
		t.Error("the replay got credentials")
	}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		var told eventsv1.EventList
		err := rome.List(ctx, &told, client.InNamespace(atRome))
		return slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Regarding.UID == replay.UID && e.Reason == plan.ReasonSignatureVerificationFailed && e.Type == corev1.EventTypeWarning
		}), err
	})
	if err != nil {
		t.Errorf("gave up after %s: waited for an event that tells of the replay: %v", patience.Limit, err)
	}
}

// renewed waits until rome has replaced the certificate the test saw, which lives for seconds only, and
// carries the mailbox to and fro.
func renewed(t *testing.T, milan, rome cluster, control *authv1beta1.Identity, tenant *authv1beta1.Tenant) {
	t.Helper()
	first := control.Spec.AuthParams.SignedCRT
	rome.until(t, "the certificate is replaced", tenant, func() bool { return !bytes.Equal(tenant.Status.AuthParams.SignedCRT, first) })
	mailbox := &authv1beta1.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: control.Name}}
	milan.until(t, "there is a mailbox", mailbox, func() bool { return true })
	copied := &authv1beta1.Renew{ObjectMeta: metav1.ObjectMeta{
		Namespace: atRome, Name: control.Name, Labels: map[string]string{api.LabelReplicated: "true"},
	}, Spec: mailbox.Spec}
	rome.create(t, copied)
	rome.until(t, "the mailbox is filled anew", copied, func() bool {
		return copied.Status.AuthParams != nil && !bytes.Equal(copied.Status.AuthParams.SignedCRT, first)
	})
	fresh := copied.Status.AuthParams.SignedCRT
	milan.says(t, mailbox, func() { mailbox.Status = copied.Status })
	milan.until(t, "the identity has the new certificate", control, func() bool { return bytes.Equal(control.Spec.AuthParams.SignedCRT, fresh) })
	kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: api.KubeconfigSecretName(control.Name)}}
	milan.until(t, "the kubeconfig has the new certificate", kubeconfig, func() bool {
		return bytes.Contains(kubeconfig.Data[api.KubeconfigField], []byte(base64.StdEncoding.EncodeToString(fresh)))
	})
}

// cluster is one API server with the controllers of this room.
type cluster struct {
	client.Client
	server *apitest.Server
	logged *lines
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func startCluster(t *testing.T, id string) cluster {
	t.Helper()
	server := apitest.Start(t)
	c := cluster{must(client.New(server.Config, client.Options{Scheme: scheme.New()})), server, &lines{}}
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}})
	config := c.asController(t)
	from, writes := seed.Of(t), new(atomic.Uint64)
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return flaky{rt, from, writes} }
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
		Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: identity.CachedConfigMaps()}},
		Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(c.logged), textlogger.Verbosity(7))), // at 8 client-go begins to log bodies of requests
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range identity.Controllers(identity.Options{
		ClusterID: id, LiqoNamespace: "liqo", APIServerAddress: server.Config.Host, CA: server.Config.CAData, CertificateLifetime: lifetime,
		TLSCompatibility: id == "milan", DefaultResourceSliceClassEnabled: true, StorageEnabled: true, DefaultLimitsEnforcement: offv1beta1.NoLimitsEnforcement,
		DefaultNodeResources: corev1.ResourceList{"memory": resource.MustParse("8Gi")},
	}) {
		if err := controller.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("manager of %s: %v", id, err)
		}
	})
	return c
}

// asController enters the cluster as a user with the rights of the controller role, no more.
func (c cluster) asController(t *testing.T) *rest.Config {
	t.Helper()
	data, err := os.ReadFile("../deploy/liqo/files/rbac/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal(data, &role); err != nil {
		t.Fatal(err)
	}
	c.create(t, &role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "liqo-controller"}},
	})
	return c.server.ConfigFor("liqo-controller", "system:authenticated")
}

// flaky fails a fifth of the writes. Whether it fails one follows from the seed and the number of the write.
type flaky struct {
	http.RoundTripper
	seed   uint64
	writes *atomic.Uint64
}

func (f flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && randv2.New(randv2.NewPCG(f.seed, f.writes.Add(1))).IntN(5) == 0 {
		return nil, errors.New("write failed on purpose")
	}
	return f.RoundTripper.RoundTrip(r)
}

func (c cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// says changes the status of an object, whoever else writes it.
func (c cluster) says(t *testing.T, obj client.Object, what func()) {
	t.Helper()
	before := obj.DeepCopyObject().(client.Object)
	what()
	if err := c.Status().Patch(t.Context(), obj, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (c cluster) delete(t *testing.T, obj client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// until reads obj again and again until it is as claimed.
func (c cluster) until(t *testing.T, claim string, obj client.Object, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return err == nil && holds(), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%+v\ngave up after %s: waited until %s, as the object above is not: %v", obj, patience.Limit, claim, err)
	}
}

// gone waits until none of the objects exists.
func (c cluster) gone(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Fatalf("gave up after %s: waited for the end of %T %s: %v", patience.Limit, obj, client.ObjectKeyFromObject(obj), err)
		}
	}
}

// field waits for a field of a Secret.
func (c cluster) field(t *testing.T, namespace, name, field string) []byte {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.until(t, fmt.Sprintf("secret %s has %s", name, field), s, func() bool { return len(s.Data[field]) > 0 })
	return s.Data[field]
}

func peerLabel(id string) map[string]string { return map[string]string{api.LabelRemoteClusterID: id} }

func tenantNamespace(name, peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		api.LabelTenantNamespace: "true", api.LabelRemoteClusterID: peer,
	}}}
}

func secret(namespace, name, label string, nonce []byte) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label: "true"}}}
	if nonce != nil {
		s.Data = map[string][]byte{api.NonceField: nonce}
	}
	return s
}

// strangersRequest is a request with our label that we did not make.
func strangersRequest(t *testing.T, c cluster, request []byte) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	stranger := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger", Labels: map[string]string{api.LabelRemoteTenantCSR: "true"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
	c.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mallory"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}},
	})
	mallory := must(client.New(c.server.ConfigFor("mallory"), client.Options{Scheme: scheme.New()}))
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := mallory.Create(ctx, stranger)
		if apierrors.IsForbidden(err) { // rights are in force a moment after they are given
			return false, nil
		}
		return true, err
	})
	if err != nil {
		t.Fatalf("gave up after %s: waited for the rights of mallory: %v", patience.Limit, err)
	}
	return stranger
}

// signer stands for the cluster's signing controller: it signs what is approved, for a few seconds until
// the test has seen a certificate. So the one it saw is replaced, however late it looked.
func signer(ctx context.Context, t *testing.T, c cluster, seen *atomic.Bool) {
	for ctx.Err() == nil {
		var requests certificatesv1.CertificateSigningRequestList
		if err := c.List(ctx, &requests); err != nil && ctx.Err() == nil {
			t.Errorf("list signing requests: %v", err)
		}
		for _, request := range requests.Items {
			approved := len(request.Status.Conditions) > 0 && request.Status.Conditions[0].Type == certificatesv1.CertificateApproved
			if !approved || len(request.Status.Certificate) > 0 {
				continue
			}
			life := 12 * time.Second // it is replaced after 8 s
			if seen.Load() {
				life = time.Hour
			}
			request.Status.Certificate = c.sign(life, request.Spec.Request)
			err := c.Status().Update(ctx, &request)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
				t.Errorf("sign: %v", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sign gives a certificate that the API server trusts.
func (c cluster) sign(life time.Duration, request []byte) []byte {
	asked := must(plan.ParseRequest(request))
	return must(c.server.Sign(&x509.Certificate{
		Subject: asked.Subject, NotBefore: time.Now(), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, asked.PublicKey))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
