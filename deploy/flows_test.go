// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/apitest"
)

// startWithFlows starts a provider with the chart's flow control and returns the UID of its priority
// level. The consumer rome is admitted. The administrator has also bound the role of rome's control
// plane to names of users.
func startWithFlows(t *testing.T, condition authv1beta1.TenantCondition) (p provider, level string) {
	t.Helper()
	p = provider{Server: apitest.Start(t)}
	p.Client = p.as(t, "")
	rendered, err := render(t, bases[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(rendered["liqo/templates/peer-flows.yaml"], "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		p.create(t, object)
		if object.GetKind() == "PriorityLevelConfiguration" {
			level = string(object.GetUID())
		}
	}
	const namespace = "liqo-tenant-rome"
	labels := map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "rome"}
	byHand := rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "by-hand"},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: api.ClusterRoleRemoteControlPlane},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, Name: "rome-by-hand"}, {Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "by-hand"},
			{Kind: rbacv1.GroupKind, Name: "system:authenticated"},
		},
	}
	in := identityplan.TenantInput{
		Root: &authv1beta1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rome", Labels: labels},
			Spec:       authv1beta1.TenantSpec{ClusterID: "rome", AuthzPolicy: authv1beta1.AuthzTolerateNoHandshake, TenantCondition: condition},
			Status:     authv1beta1.TenantStatus{TenantNamespace: namespace},
		},
		Namespace:    &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}},
		RoleBindings: []rbacv1.RoleBinding{byHand},
	}
	if condition == authv1beta1.TenantDrained {
		in.RoleBindings = nil // a binding by hand would block the drain
	}
	for _, object := range identityplan.Tenant(in).Objects {
		if _, ok := object.(*flowcontrolv1.FlowSchema); ok {
			p.create(t, object)
		}
	}
	return p, level
}

// atLevel waits until requests of the consumer belong to a priority level.
func atLevel(t *testing.T, p provider, level string) {
	t.Helper()
	eventually(t, "requests of rome belong to level "+level, func() (bool, any) {
		got, _ := levelOf(t, p, "any", "rome")
		return got == level, got
	})
}

// levelOf returns the priority level and the FlowSchema of a request of a user.
func levelOf(t *testing.T, p provider, user string, groups ...string) (level, schema string) {
	t.Helper()
	c, err := rest.HTTPClientFor(p.ConfigFor(user, append(groups, "system:authenticated")...))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Get(p.Config.Host + "/api/v1/namespaces/shop-rome/pods")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.Header.Get("X-Kubernetes-PF-PriorityLevel-UID"), answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
}

// TestAttackRequestsOutsideTheLevel: a consumer sends requests as its control plane, as any of its
// slices, as a peering user, as who is bound by hand, and after it was drained, to be served like this
// cluster's own.
//
// Outcome: they all belong to the priority level of peers, and those of one consumer are one flow there.
// Users of this cluster, its gateways and controllers do not.
func TestAttackRequestsOutsideTheLevel(t *testing.T) {
	t.Parallel()
	p, level := startWithFlows(t, authv1beta1.TenantActive)
	atLevel(t, p, level)
	flows := map[string]bool{}
	for _, who := range identities() {
		got, flow := levelOf(t, p, who.user, who.groups...)
		if want := who.name != "gateway" && who.name != "peering user"; (got == level) != want {
			t.Errorf("%s is at the level of peers: %t", who.name, !want)
		} else if want {
			flows[flow] = true
		}
	}
	if len(flows) != 1 {
		t.Errorf("requests of one consumer have %d FlowSchemas", len(flows))
	}
	for _, peer := range []string{"liqo-peer-user-rome-0123", "oslo"} { // which have no Tenant yet
		if got, _ := levelOf(t, p, peer, api.ControlPlaneOrganization); got != level {
			t.Errorf("%s is at level %s, not at that of peers", peer, got)
		}
	}
	for _, own := range []string{"alice", "system:serviceaccount:liqo:liqo-controller-manager", "system:serviceaccount:shop-rome:default"} {
		if got, _ := levelOf(t, p, own); got == level {
			t.Errorf("%s is at the level of peers", own)
		}
	}
}

// TestAttackDrainedFlood: a consumer that was drained still has its certificates, and floods the API server.
//
// Outcome: its FlowSchema stays while its bindings go, so it floods the priority level of peers only.
func TestAttackDrainedFlood(t *testing.T) {
	t.Parallel()
	p, level := startWithFlows(t, authv1beta1.TenantDrained)
	atLevel(t, p, level)
}

// TestAttackFlood: a consumer with valid credentials sends 1,000 lists a second. It reads the answers,
// or leaves them unread, so that the API server works on each until its time is up.
//
// Outcome: requests of this cluster are answered. The consumer's own are queued, and refused with
// status 429 when there are too many.
func TestAttackFlood(t *testing.T) {
	t.Parallel()
	p := startWithLists(t)
	for name, read := range floods {
		t.Run(name, func(t *testing.T) {
			flood(t, p, read)
			requestTime(t, p) // fails if a request is not answered
		})
	}
}

// TestTimedAttackFlood: a consumer floods the API server with lists, of which it reads the answers or
// leaves them unread.
//
// Outcome: requests of this cluster wait at most twice as long as without it.
func TestTimedAttackFlood(t *testing.T) {
	p := startWithLists(t)
	for name, read := range floods {
		t.Run(name, func(t *testing.T) {
			var alone, beside []time.Duration
			for turn := range 3 {
				alone = append(alone, requestTime(t, p))
				t.Run(fmt.Sprint("turn ", turn), func(t *testing.T) {
					flood(t, p, read)
					beside = append(beside, requestTime(t, p))
				})
			}
			t.Logf("%s alone, %s beside the flood", alone, beside)
			if a, b := median(alone), median(beside); b > 2*a+tolerance {
				t.Errorf("a request takes %s, and %s beside the flood", a, b)
			}
		})
	}
}

// floods are the ways of a flood: whether its answers are read.
var floods = map[string]bool{"read": true, "unread": false}

// startWithLists starts a provider of which rome may list what takes long, and alice something short.
func startWithLists(t *testing.T) provider {
	t.Helper()
	p, level := startWithFlows(t, authv1beta1.TenantActive)
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "readers"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}, {Kind: rbacv1.GroupKind, Name: "rome"}}})
	for i := range 100 {
		p.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: fmt.Sprint("c", i)},
			Data: map[string]string{"text": strings.Repeat("x", 1<<10)}})
	}
	atLevel(t, p, level)
	return p
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// tolerance bounds the difference of two measurements on a busy machine: two time slices of Linux'
// scheduler.
const tolerance = 20 * time.Millisecond

// requestTime returns the median time of an administrator's requests.
func requestTime(t *testing.T, p provider) time.Duration {
	t.Helper()
	c, err := rest.HTTPClientFor(p.ConfigFor("alice", "system:authenticated"))
	if err != nil {
		t.Fatal(err)
	}
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	var took []time.Duration
	for range 50 {
		<-next.C
		start := time.Now()
		answer, err := c.Get(p.Config.Host + "/api/v1/namespaces/shop-rome/configmaps?limit=1&fieldSelector=metadata.name=none")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if took = append(took, time.Since(start)); answer.StatusCode != http.StatusOK {
			t.Fatalf("an administrator's request is answered with %s after %s", answer.Status, time.Since(start))
		}
	}
	return median(took)
}

// flood sends 1,000 lists a second as a slice of rome until the test ends. At most 1,000 requests are
// open at once. It returns when 100 have ended: those that are refused, and others if they are read.
func flood(t *testing.T, p provider, read bool) {
	t.Helper()
	config := p.ConfigFor(api.ResourceSliceUserName("big", "rome"), "rome", "system:authenticated")
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// The API server keeps an answer that is larger than this buffer until it is read.
	transport := &http.Transport{
		TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableCompression: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10},
	}
	attacker, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	t.Cleanup(func() { stop(); requests.Wait(); transport.CloseIdleConnections() })
	open := make(chan struct{}, 1000)
	list := func() {
		defer func() { <-open }()
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.Config.Host+"/api/v1/namespaces/shop-rome/configmaps", nil)
		answer, err := attacker.RoundTrip(request)
		if err != nil {
			return // the test ends
		}
		defer func() { _ = answer.Body.Close() }()
		if read || answer.StatusCode == http.StatusTooManyRequests {
			_, _ = io.Copy(io.Discard, answer.Body)
			ended.Add(1)
			return
		}
		<-ctx.Done()
	}
	requests.Go(func() {
		next := time.NewTicker(10 * time.Millisecond)
		defer next.Stop()
		for ctx.Err() == nil {
			<-next.C
			for range 10 {
				select {
				case open <- struct{}{}:
					requests.Go(list)
				default:
				}
			}
		}
	})
	eventually(t, "100 requests end", func() (bool, any) { return ended.Load() > 100, ended.Load() })
}
