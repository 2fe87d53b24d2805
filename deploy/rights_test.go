// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	networkplan "github.com/liqo-go/liqo/network/objects/plan"
)

// provider is an API server of the provider milan. It has the chart's roles and policies, and the role
// bindings that controllers create for two consumers, rome and oslo.
type provider struct {
	client.Client
	*apitest.Server
}

// identity is a user that a provider authenticates for its consumer rome.
type identity struct {
	name, user string
	groups     []string
	// sameAs is the name of an identity with the same rights; empty if there is none.
	sameAs string
}

// identities returns one identity of each kind, and that of the gateway, the process of this cluster
// that a peer sends packets to.
func identities() []identity {
	return []identity{
		{name: "control plane", user: "rome", groups: []string{"liqo.io"}},
		{name: "slice", user: api.ResourceSliceUserName("big", "rome"), groups: []string{"rome"}},
		{name: "peering user", user: "liqo-peer-user-rome-0123"},
		{name: "gateway", user: "system:serviceaccount:liqo-tenant-rome:rome"},
		{name: "second slice", user: api.ResourceSliceUserName("small", "rome"), groups: []string{"rome"}, sameAs: "slice"},
		{name: "control plane by hand", user: "rome-by-hand", sameAs: "control plane"},
		{name: "ServiceAccount by hand", user: "system:serviceaccount:liqo-tenant-rome:by-hand", sameAs: "control plane"},
	}
}

func startProvider(t *testing.T) provider {
	t.Helper()
	p := provider{Server: apitest.Start(t)}
	p.Client = p.as(t, "")
	for name, labels := range map[string]map[string]string{
		"liqo": nil, "shop-rome": {api.LabelRemoteClusterID: "rome"}, "shop-oslo": {api.LabelRemoteClusterID: "oslo"},
		"liqo-tenant-rome": {api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "rome"},
		"liqo-tenant-oslo": {api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "oslo"},
	} {
		p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	// The user apitest is the administrator who creates the objects of the tests.
	rendered, err := render(t, strings.TrimSuffix(bases[0], "}")+", offloading: {namespaceBounds: {objectSize: 62.5Ki}, namespaceWriters: {users: [aksService, apitest]}}}")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{rendered["liqo/templates/rbac.yaml"], rendered["liqo/templates/remote-roles.yaml"], rendered["liqo/templates/peer-policies.yaml"]}
	for _, doc := range strings.Split(strings.Join(files, "\n---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 { // comments alone are no object
			p.create(t, object)
		}
	}
	all := identities()
	p.bind(t, "liqo-tenant-rome", "ClusterRole", api.ClusterRoleRemoteControlPlane, rbacv1.UserKind, "rome")
	p.bind(t, "liqo-tenant-oslo", "ClusterRole", api.ClusterRoleRemoteControlPlane, rbacv1.UserKind, "oslo")
	p.bind(t, "shop-rome", "ClusterRole", api.ClusterRoleVirtualKubeletRemote, rbacv1.GroupKind, "rome")
	p.bind(t, "", "ClusterRole", api.ClusterRoleVirtualKubeletRemoteClusterWide, rbacv1.GroupKind, "rome")
	p.bind(t, "shop-oslo", "ClusterRole", api.ClusterRoleVirtualKubeletRemote, rbacv1.GroupKind, "oslo")
	p.bind(t, "", "ClusterRole", api.ClusterRoleVirtualKubeletRemoteClusterWide, rbacv1.GroupKind, "oslo")
	p.bind(t, "liqo-tenant-oslo", "ClusterRole", "liqo-peering-user-tenant-ns", rbacv1.UserKind, "liqo-peer-user-oslo-0123")
	for _, byHand := range all[5:] {
		p.bind(t, "liqo-tenant-rome", "ClusterRole", api.ClusterRoleRemoteControlPlane, rbacv1.UserKind, byHand.user)
	}
	p.bind(t, "liqo-tenant-rome", "ClusterRole", "liqo-peering-user-tenant-ns", rbacv1.UserKind, all[2].user)
	p.bind(t, "liqo", "Role", "liqo-peering-user-liqo-ns", rbacv1.UserKind, all[2].user)
	p.bind(t, "", "ClusterRole", api.ClusterRoleGateway, rbacv1.UserKind, all[3].user)
	p.bind(t, "liqo-tenant-rome", "ClusterRole", networkplan.ClusterRoleGatewayNamespaced, rbacv1.UserKind, all[3].user)
	return p
}

func (p provider) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := p.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// bind binds a role in one namespace; in all if namespace is empty.
func (p provider) bind(t *testing.T, namespace, kind, role, subjectKind, subject string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: role + "-" + subject}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: subjectKind, Name: subject}}
	if namespace == "" {
		p.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		return
	}
	p.create(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

// as returns a client with the credentials of a user; an empty user is the administrator.
func (p provider) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := p.Config
	if user != "" {
		config = p.ConfigFor(user, append(groups, "system:authenticated")...)
	}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRightsOfPeers asks for every verb on every resource in every namespace as each identity. It
// compares what is allowed with a reviewed table, each line of which ends with the reason. Identities
// of one kind have the same rights, even if a user created them.
func TestRightsOfPeers(t *testing.T) {
	t.Parallel()
	const table = "testdata/rights-of-peers.txt"
	p := startProvider(t)
	reviewed, err := os.ReadFile(table)
	if err != nil && !*update {
		t.Fatal(err)
	}
	why := map[string]string{}
	for _, line := range strings.Split(string(reviewed), "\n") {
		right, reason, _ := strings.Cut(line, " # ")
		why[strings.TrimRight(right, " ")] = reason
	}
	var out strings.Builder
	rights, anybody := map[string][]string{}, p.tryAll(t, identity{user: "stranger"}, []string{"", elsewhere})
	for _, who := range identities() {
		rights[who.name] = p.rights(t, who, anybody)
		if who.sameAs != "" {
			want := strings.ReplaceAll(strings.Join(rights[who.sameAs], "\n"), who.sameAs+":", who.name+":")
			if diff := cmp.Diff(want, strings.Join(rights[who.name], "\n")); diff != "" {
				t.Errorf("the rights of a %s are not those of a %s (-want +got):\n%s", who.name, who.sameAs, diff)
			}
			continue
		}
		for _, right := range rights[who.name] {
			reason := why[right]
			if reason == "" {
				t.Errorf("%s has no reason why this is allowed: %s", table, right)
			}
			fmt.Fprintf(&out, "%s # %s\n", right, reason)
		}
	}
	if *update {
		if err := os.WriteFile(table, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(reviewed), out.String()); diff != "" {
		t.Errorf("the rights differ (-reviewed +real):\n%s", diff)
	}
}

// elsewhere is a namespace without role bindings: what is allowed there is allowed everywhere.
const elsewhere = "elsewhere"

// places lists the namespaces, and an empty one for resources without a namespace.
var places = []string{"", elsewhere, "liqo", "liqo-tenant-oslo", "liqo-tenant-rome", "shop-oslo", "shop-rome"}

// rights lists what an identity may do beyond the rights of every authenticated user: one line per
// resource and namespace. What it may do in all namespaces is one line.
func (p provider) rights(t *testing.T, who identity, anybody map[attempt][]string) []string {
	t.Helper()
	where := places
	if who.sameAs != "" { // the namespaces of its consumer suffice
		where = []string{"", elsewhere, "liqo-tenant-rome", "shop-rome"}
	}
	mine := p.tryAll(t, who, where)
	var out []string
	for a, verbs := range mine {
		where, known := a.namespace, mine[attempt{elsewhere, a.resource}]
		if where == "" || where == elsewhere {
			where, known = "everywhere", anybody[a]
		}
		if !slices.Equal(verbs, known) {
			out = append(out, fmt.Sprintf("%s: %s: %s: %s", who.name, where, a.resource, strings.Join(verbs, " ")))
		}
	}
	slices.Sort(out)
	return out
}

// attempt is a resource in a namespace, which is empty for resources without one.
type attempt struct {
	namespace string
	resource
}

// resource is a resource, or the subresource part, as roles name it.
type resource struct{ group, name, part string }

func (r resource) String() string {
	text := r.name
	if r.part != "" {
		text += "/" + r.part
	}
	if r.group != "" {
		text += " of " + r.group
	}
	return text
}

// tryAll asks the API server about every verb on every resource in some namespaces, and returns the
// allowed verbs.
func (p provider) tryAll(t *testing.T, who identity, places []string) map[attempt][]string {
	t.Helper()
	out := map[attempt][]string{}
	var (
		mu     sync.Mutex
		askers sync.WaitGroup
		turn   = make(chan struct{}, 8) // more than the machine of a test has cores
	)
	for r, served := range p.resources(t) {
		for _, place := range places {
			if (place != "") != served.Namespaced && r.name != "namespaces" { // a request for a namespace names itself
				continue
			}
			askers.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				allowed := p.try(t, who, attempt{place, r}, served.Verbs)
				mu.Lock()
				defer mu.Unlock()
				if len(allowed) > 0 {
					out[attempt{place, r}] = allowed
				}
			})
		}
	}
	askers.Wait()
	return out
}

// try asks the API server which verbs on one resource in one namespace are allowed.
func (p provider) try(t *testing.T, who identity, a attempt, verbs []string) (allowed []string) {
	t.Helper()
	for _, verb := range verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.user, Groups: append([]string{"system:authenticated"}, who.groups...),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: a.namespace, Verb: verb, Group: a.group, Version: "*", Resource: a.name, Subresource: a.part,
			},
		}}
		if err := p.Create(t.Context(), review); err != nil {
			t.Error(err)
		}
		if review.Status.Allowed {
			allowed = append(allowed, verb)
		}
	}
	return allowed
}

// resources returns the resources that the API server serves, with their verbs. It adds verbs that are
// rights without being requests, such as bind, and resources that only the chart's roles name.
func (p provider) resources(t *testing.T) map[resource]metav1.APIResource {
	t.Helper()
	impersonate, bind := []string{"impersonate"}, []string{"bind", "escalate"}
	out := map[resource]metav1.APIResource{
		{"", "users", ""}: {Verbs: impersonate}, {"", "groups", ""}: {Verbs: impersonate},
		{"certificates.k8s.io", "signers", ""}: {Verbs: []string{"approve", "attest", "sign"}},
	}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(p.Config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		if list.GroupVersion == "v1" {
			group = ""
		}
		for _, r := range list.APIResources {
			name, part, _ := strings.Cut(r.Name, "/")
			switch r.Name {
			case "roles", "clusterroles":
				r.Verbs = append(r.Verbs, bind...)
			case "serviceaccounts":
				r.Verbs = append(r.Verbs, impersonate...)
			}
			slices.Sort(r.Verbs)
			out[resource{group, name, part}] = r
		}
	}
	var roles rbacv1.ClusterRoleList
	if err := p.List(t.Context(), &roles, client.MatchingLabels{"app.kubernetes.io/part-of": "liqo"}); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, name := range rule.Resources {
					name, part, _ := strings.Cut(name, "/")
					if _, known := out[resource{group, name, part}]; !known {
						out[resource{group, name, part}] = metav1.APIResource{Namespaced: true, Verbs: rule.Verbs}
					}
				}
			}
		}
	}
	return out
}

// TestPeersCannot: admission policies refuse requests that roles allow.
func TestPeersCannot(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	rome := p.as(t, "rome", "liqo.io")
	peering := p.as(t, identities()[2].user)
	account := p.as(t, identities()[6].user)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	copied := func(name string, change func(labels map[string]string)) *authv1beta1.ResourceSlice {
		labels := map[string]string{
			api.LabelReplicated: api.True, api.LabelReplication: "false", api.LabelRemoteClusterID: "rome", api.LabelOriginID: "rome",
		}
		change(labels)
		return &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name, Labels: labels}}
	}
	leaseOf := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name}}
	}
	asIs := func(map[string]string) {}
	slice, tenant := copied("big", asIs), &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", Labels: map[string]string{api.LabelRemoteClusterID: "rome"}},
		Spec:       authv1beta1.TenantSpec{ClusterID: "rome", TenantCondition: authv1beta1.TenantDrained},
	}
	p.create(t, tenant)
	labels := map[string]string{api.LabelRemoteClusterID: "rome"}
	dialer := &netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", Labels: labels}}
	cidrs := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", Labels: labels}}
	p.create(t, dialer, cidrs)
	// Roles and policies are in force a moment after they were created. Until then an attempt may succeed, or be
	// refused for want of a right. Attempts are dry runs: a change that succeeded would be none the next time, and no
	// policy would refuse it.
	for says, try := range map[string]func() error{
		"only make copies": func() error {
			return rome.Create(t.Context(), copied("early", func(l map[string]string) { delete(l, api.LabelReplicated) }), client.DryRunAll)
		},
		"only make copies;": func() error {
			return account.Create(t.Context(), copied("early", func(l map[string]string) { delete(l, api.LabelReplicated) }), client.DryRunAll)
		},
		"spec.tenantCondition": func() error { return peering.Update(t.Context(), active(tenant), client.DryRunAll) },
		"only change spec.endpoint": func() error {
			return merge(t, rome, dialer, `{"spec": {"mtu": 1400}}`, client.DryRunAll)
		},
		"have this cluster sign for it": func() error { return peering.Create(t.Context(), secret(api.LabelSignedNonce, nil), client.DryRunAll) },
		"only set up its own network":   func() error { return peering.Create(t.Context(), gatewayOf("oslo"), client.DryRunAll) },
		"only write its own lease": func() error {
			return p.as(t, identities()[3].user).Create(t.Context(), leaseOf("early"), client.DryRunAll)
		},
		"leave spec.externalIPs": func() error { return kubelet.Create(t.Context(), serviceAt("203.0.113.7"), client.DryRunAll) },
	} {
		eventually(t, "the policies are in force: "+says, func() (bool, any) {
			err := try()
			return strings.Contains(fmt.Sprint(err), says), err
		})
	}
	for object, patch := range map[client.Object]string{
		dialer: `{"spec": {"endpoint": {"addresses": ["172.31.10.11"], "port": 30742}}, "metadata": {"annotations": {"networking.liqo.io/followed": "{}"}}}`,
		cidrs:  `{"spec": {"remote": {"cidr": {"pod": ["10.10.0.0/16"]}}}}`,
	} {
		if err := merge(t, rome, object, patch); err != nil {
			t.Fatalf("a consumer cannot tell its own parameters: %v", err)
		}
	}
	if err := rome.Create(t.Context(), slice); err != nil {
		t.Fatalf("an honest copy is refused: %v", err)
	}
	cordoned := slice.DeepCopy()
	metav1.SetMetaDataAnnotation(&cordoned.ObjectMeta, api.AnnotationCordon, api.True)
	if err := p.Update(t.Context(), cordoned); err != nil {
		t.Fatalf("the provider cannot cordon: %v", err)
	}
	for _, honest := range []client.Object{secret(api.LabelNonce, nil), gatewayOf("rome")} {
		if err := peering.Create(t.Context(), honest); err != nil {
			t.Fatalf("an honest peering user is refused: %v", err)
		}
	}
	tenantOf := func(peer, label string) *authv1beta1.Tenant {
		return &authv1beta1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "of-" + peer, Labels: map[string]string{api.LabelRemoteClusterID: label}},
			Spec:       authv1beta1.TenantSpec{ClusterID: peer},
		}
	}
	if err := peering.Create(t.Context(), tenantOf("rome", "rome"), client.DryRunAll); err != nil {
		t.Fatalf("a peering user cannot ask for its own cluster: %v", err)
	}
	mapOf := func(name string, namespaces int) *offv1beta1.NamespaceMap {
		m := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name, Labels: slice.Labels}}
		m.Spec.DesiredMapping = map[string]string{}
		for i := range namespaces {
			m.Spec.DesiredMapping[fmt.Sprint("shop-", i)] = fmt.Sprint("shop-", i, "-rome")
		}
		return m
	}
	wishes := mapOf("rome", 1000)
	if err := rome.Create(t.Context(), wishes); err != nil {
		t.Fatalf("a large map is refused: %v", err)
	}
	tooMany := `{"spec": {"desiredMapping": {"more-1": "more-1", "more-2": "more-2"}}}` // as when the bound was lowered
	for _, c := range []struct {
		client.Client
		patch string
	}{{p, tooMany}, {rome, strings.Replace(tooMany, `"more-2"}`, `null}`, 1)}, {p, strings.ReplaceAll(tooMany, `"more-1",`, `null,`)}} {
		if err := merge(t, c, wishes, c.patch); err != nil {
			t.Fatalf("a map of more than 1000 cannot shrink: %v", err)
		}
	}
	mailbox := &authv1beta1.Renew{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "mailbox", Labels: slice.Labels},
		Spec:       authv1beta1.RenewSpec{ConsumerClusterID: "rome", IdentityType: "ControlPlane"},
	}
	if err := errors.Join(rome.Create(t.Context(), mailbox), merge(t, rome, mailbox, `{"spec": {"csr": "bmV3"}}`)); err != nil {
		t.Fatalf("an honest mailbox is refused: %v", err)
	}
	larger := cordoned.DeepCopy()
	larger.Spec.Class = "gold"
	larger.Spec.ConsumerClusterID, larger.Spec.ProviderClusterID = "rome", "milan" // filled in late
	if err := rome.Update(t.Context(), larger); err != nil {
		t.Fatalf("an honest change is refused: %v", err)
	}

	update := func(change func(*authv1beta1.ResourceSlice)) func() error {
		return func() error {
			one := larger.DeepCopy()
			change(one)
			return rome.Update(t.Context(), one)
		}
	}
	gateway := p.as(t, identities()[3].user)
	connectionOf := func(name string) *netv1beta1.Connection {
		return &netv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name}}
	}
	p.create(t, leaseOf("gw-other"), connectionOf("gw-other"))
	for _, own := range []client.Object{leaseOf("gw-rome"), connectionOf("gw-rome")} {
		if err := errors.Join(gateway.Create(t.Context(), own), gateway.Update(t.Context(), own)); err != nil {
			t.Fatalf("a gateway cannot do its work: %v", err)
		}
	}
	if err := gateway.Status().Patch(t.Context(), connectionOf("gw-rome"), connected); err != nil {
		t.Fatalf("a gateway cannot do its work: %v", err)
	}
	// While the number is too large, it is a reason to refuse other new copies, too, and the API server names only one
	// of two reasons.
	copies := func(number int32, seen func(refusal string) bool) {
		t.Helper()
		before := tenant.DeepCopy()
		tenant.Status.Copies = number
		if err := p.Status().Patch(t.Context(), tenant, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("%d copies are seen", number), func() (bool, any) {
			err := rome.Create(t.Context(), copied("one-more", asIs), client.DryRunAll)
			return seen(fmt.Sprint(err)), err
		})
	}
	copies(250, func(refusal string) bool { return strings.Contains(refusal, "takes 250 copied objects") })
	if err := rome.Update(t.Context(), larger); err != nil {
		t.Fatalf("a consumer that has many copies cannot change one: %v", err)
	}
	copies(1, func(refusal string) bool { return refusal == fmt.Sprint(nil) })
	service, own := serviceAt(), serviceAt("203.0.113.7")
	own.Namespace = "liqo"
	p.bind(t, own.Namespace, "ClusterRole", api.ClusterRoleVirtualKubeletRemote, rbacv1.UserKind, "cook")
	eventually(t, "Services elsewhere are not bound", func() (bool, any) {
		err := p.as(t, "cook").Create(t.Context(), own.DeepCopy())
		return err == nil, err
	})
	provided := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"externalIPs": ["203.0.113.7"]}}`))
	if err := errors.Join(kubelet.Create(t.Context(), service), p.Patch(t.Context(), service, provided), merge(t, kubelet, service, `{"metadata": {"labels": {"a": "b"}}}`)); err != nil {
		t.Fatalf("a Service is refused, or one that the provider gave an address: %v", err)
	}
	p.create(t, &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "providers-own"}})
	for _, attempt := range []struct {
		name, says string
		try        func() error
	}{
		{"make a wish of this cluster", "only make copies", func() error {
			return rome.Create(t.Context(), copied("wish", func(l map[string]string) { delete(l, api.LabelReplicated) }))
		}},
		{"have a copy replicated further", "only make copies", func() error {
			return rome.Create(t.Context(), copied("further", func(l map[string]string) { l[api.LabelReplication] = api.True }))
		}},
		{"turn a copy into a wish", "only make copies", update(func(s *authv1beta1.ResourceSlice) { delete(s.Labels, api.LabelReplicated) })},
		{"speak for another cluster", "can't change the remoteClusterID label", func() error {
			return rome.Create(t.Context(), copied("oslo", func(l map[string]string) { l[api.LabelRemoteClusterID] = "oslo" }))
		}},
		{"change the cluster", "can't change the remoteClusterID label", update(func(s *authv1beta1.ResourceSlice) { s.Labels[api.LabelRemoteClusterID] = "oslo" })},
		{"drop the cluster", "can't change the remoteClusterID label", update(func(s *authv1beta1.ResourceSlice) { delete(s.Labels, api.LabelRemoteClusterID) })},
		{"uncordon itself", "can't change the liqo.io/cordon annotation", update(func(s *authv1beta1.ResourceSlice) { s.Annotations = nil })},
		{"ask in another cluster's name", "who asks whom", update(func(s *authv1beta1.ResourceSlice) { s.Spec.ConsumerClusterID = "oslo" })},
		{"ask in nobody's name", "who asks whom", update(func(s *authv1beta1.ResourceSlice) { s.Spec.ConsumerClusterID = "" })},
		{"ask another cluster", "who asks whom", update(func(s *authv1beta1.ResourceSlice) { s.Spec.ProviderClusterID = "oslo" })},
		{"renew as another cluster", "who asks whom", func() error { return merge(t, rome, mailbox, `{"spec": {"consumerClusterID": "oslo"}}`) }},
		{"renew another identity", "who asks whom", func() error { return merge(t, rome, mailbox, `{"spec": {"identityType": "ResourceSlice"}}`) }},
		{"make a map of this cluster", "only make copies", func() error {
			return rome.Create(t.Context(), &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"}})
		}},
		{"have a second map", "a consumer has one map", func() error { return rome.Create(t.Context(), mapOf("second", 1)) }},
		{"have namespaces without end", "at most 1000 namespaces", func() error { return rome.Create(t.Context(), mapOf("rome", 1001)) }},
		{"have more namespaces without end", "at most 1000 namespaces", func() error { return merge(t, rome, wishes, `{"spec": {"desiredMapping": {"one-more": "one-more"}}}`) }},
		{"hold what the provider deletes", "leave metadata.finalizers", update(func(s *authv1beta1.ResourceSlice) { s.Finalizers = []string{"example.com/mine"} })},
		{"hold from the beginning what the provider deletes", "leave metadata.finalizers", func() error {
			held := copied("held", asIs)
			held.Finalizers = []string{"example.com/mine"}
			return rome.Create(t.Context(), held)
		}},
		{"make a mailbox of this cluster", "only make copies", func() error {
			return rome.Create(t.Context(), &authv1beta1.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome"},
				Spec: authv1beta1.RenewSpec{ConsumerClusterID: "rome"}})
		}},
		{"answer for the provider", "cannot patch resource \"resourceslices/status\"", func() error {
			one := larger.DeepCopy()
			return rome.Status().Patch(t.Context(), one, client.RawPatch("application/merge-patch+json", []byte(`{"status": {"resources": {"cpu": "1000"}}}`)))
		}},
		{"choose the provider's template", "a peer may only", func() error {
			return merge(t, rome, dialer, `{"spec": {"clientTemplateRef": {"name": "mine", "namespace": "liqo-tenant-rome"}}}`)
		}},
		{"choose the provider's keys", "only change spec.endpoint", func() error { return merge(t, rome, dialer, `{"spec": {"secretRef": {"name": "mine"}}}`) }},
		{"say which CIDRs the provider has, while it is set up", "a peer may only tell its own ranges", func() error {
			return peering.Create(t.Context(), &netv1beta1.Configuration{ObjectMeta: gatewayOf("rome").ObjectMeta, Spec: netv1beta1.ConfigurationSpec{
				Local: &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.71.0.0/16"}}},
			}})
		}},
		{"say so later", "a peer may only tell its own ranges", func() error {
			mine := &netv1beta1.Configuration{}
			if err := peering.Get(t.Context(), client.ObjectKeyFromObject(cidrs), mine); err != nil {
				return err
			}
			mine.Spec.Local = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.71.0.0/16"}}}
			return peering.Update(t.Context(), mine)
		}},
		{"approve its own ranges", "a peer may not approve its own ranges", func() error {
			return merge(t, rome, cidrs, `{"metadata": {"annotations": {"liqo.io/approved-cidrs": "10.71.0.0/16"}}}`)
		}},
		{"approve them while it is set up", "a peer may not approve its own ranges", func() error {
			mine := &netv1beta1.Configuration{ObjectMeta: gatewayOf("rome").ObjectMeta}
			mine.Annotations = map[string]string{api.AnnotationApprovedCIDRs: "10.71.0.0/16"}
			return peering.Create(t.Context(), mine)
		}},
		// Two policies refuse these; the API server names the first.
		{"say which CIDRs the provider has", "a peer may only", func() error {
			return merge(t, rome, cidrs, `{"spec": {"local": {"cidr": {"pod": ["10.10.0.0/16"]}}}}`)
		}},
		{"take the place of another cluster", "a peer may only", func() error {
			return merge(t, rome, cidrs, `{"metadata": {"labels": {"liqo.io/remote-cluster-id": "oslo"}}}`)
		}},
		{"hold a gateway", "only change spec.endpoint", func() error { return merge(t, rome, dialer, `{"metadata": {"finalizers": ["example.com/mine"]}}`) }},
		{"make a gateway", "cannot create resource", func() error {
			return rome.Create(t.Context(), &netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "more", Labels: labels}})
		}},
		{"work next door", "forbidden", func() error {
			one := copied("oslo", func(l map[string]string) { l[api.LabelRemoteClusterID] = "oslo" })
			one.Namespace = "liqo-tenant-oslo"
			return rome.Create(t.Context(), one)
		}},
		{"stand for another cluster", "a Tenant stands for the cluster of its namespace", func() error { return peering.Create(t.Context(), tenantOf("oslo", "oslo")) }},
		{"be found as another cluster", "a Tenant stands for the cluster of its namespace", func() error { return peering.Create(t.Context(), tenantOf("rome", "oslo")) }},
		{"end its own drain", "the provider decides on spec.tenantCondition", func() error { return peering.Update(t.Context(), active(tenant)) }},
		{"end its own drain with a new Tenant", "the provider has cordoned or drained", func() error { return peering.Delete(t.Context(), tenant) }},
		{"need no proof", "the provider decides on spec.authzPolicy", func() error {
			lax := active(tenant)
			lax.ObjectMeta, lax.Spec.AuthzPolicy = metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "lax"}, authv1beta1.AuthzTolerateNoHandshake
			return peering.Create(t.Context(), lax)
		}},
		{"choose the challenge", "ask for a nonce, not choose it", func() error {
			return peering.Create(t.Context(), secret(api.LabelNonce, map[string]string{api.NonceField: "mine"}))
		}},
		{"have the provider sign", "may not have this cluster sign", func() error {
			return peering.Create(t.Context(), secret(api.LabelSignedNonce, map[string]string{api.NonceField: "a handshake with another cluster"}))
		}},
		{"make a kubeconfig of the provider", "may not have this cluster sign for it or enter a provider", func() error {
			return peering.Create(t.Context(), secret(api.LabelIdentityType, map[string]string{api.KubeconfigField: "{}"}))
		}},
		{"become a process of the provider", "may not have the token", func() error {
			token := secret("any", nil)
			token.Type, token.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
			return peering.Create(t.Context(), token)
		}},
		{"make a gateway of another cluster", "may only set up its own network", func() error { return peering.Create(t.Context(), gatewayOf("oslo")) }},
		{"turn its gateway into another cluster's", "may only set up its own network", func() error {
			mine := gatewayOf("rome")
			if err := peering.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil {
				return err
			}
			mine.Labels = gatewayOf("oslo").Labels
			return peering.Update(t.Context(), mine)
		}},
		{"say which ranges another cluster has", "may only set up its own network", func() error {
			return peering.Create(t.Context(), &netv1beta1.Configuration{ObjectMeta: gatewayOf("oslo").ObjectMeta})
		}},
		{"give another cluster's key", "may only set up its own network", func() error {
			return peering.Create(t.Context(), &netv1beta1.PublicKey{ObjectMeta: gatewayOf("oslo").ObjectMeta})
		}},
		{"reach any address of the provider", "cannot create resource \"ips\"", func() error {
			return peering.Create(t.Context(), &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "metadata"}, Spec: ipamv1alpha1.IPSpec{IP: "169.254.169.254"}})
		}},
		{"take a virtual kubelet's lead as a gateway", "only write its own lease", func() error { return gateway.Create(t.Context(), leaseOf("vk-rome")) }},
		{"take another gateway's turn", "only write its own lease", func() error {
			other := leaseOf("gw-other")
			if err := gateway.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
				return err
			}
			return gateway.Update(t.Context(), other)
		}},
		{"make another gateway's Connection", "only write its own lease and Connection", func() error { return gateway.Create(t.Context(), connectionOf("gw-new")) }},
		{"say how another gateway's Connection is", "only write its own lease and Connection", func() error {
			return gateway.Status().Patch(t.Context(), connectionOf("gw-other"), connected)
		}},
		{"take what goes to any address", "leave spec.externalIPs", func() error { return kubelet.Create(t.Context(), serviceAt("192.0.2.7")) }},
		{"take it with a Service it has", "leave spec.externalIPs", func() error {
			return merge(t, kubelet, service, `{"spec": {"externalIPs": ["203.0.113.7", "192.0.2.7"]}}`)
		}},
		{"make a wish of this cluster as a ServiceAccount", "only make copies", func() error {
			return account.Create(t.Context(), copied("wish", func(l map[string]string) { delete(l, api.LabelReplicated) }))
		}},
		{"uncordon itself as a ServiceAccount", "can't change the liqo.io/cordon annotation", func() error {
			one := larger.DeepCopy()
			one.Annotations = nil
			return account.Update(t.Context(), one)
		}},
		{"choose the provider's template as a ServiceAccount", "a peer may only", func() error {
			return merge(t, account, dialer, `{"spec": {"clientTemplateRef": {"name": "mine", "namespace": "liqo-tenant-rome"}}}`)
		}},
	} {
		if err := attempt.try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), attempt.says) {
			t.Errorf("a peer tries to %s: %v, want a refusal that says %q", attempt.name, err, attempt.says)
		}
	}
}

// TestAttackFinalizersInRemoteNamespace: a consumer puts finalizers on objects of its namespace at the provider, when it
// makes them or later, so that the namespace never ends when it is taken back. Or it removes those that controllers of
// the provider have set.
//
// Outcome: the provider refuses both for every kind that a consumer may write there, and says to leave the finalizers
// as they are. What virtual kubelets write, and finalizers of the provider's own controllers, are accepted.
func TestAttackFinalizersInRemoteNamespace(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	const says, theirs, ours = "leave metadata.finalizers", "example.com/mine", "service.kubernetes.io/load-balancer-cleanup"
	meta := metav1.ObjectMeta{Namespace: "shop-rome", Name: "web"}
	kinds := []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}, serviceAt(),
		&corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: meta.Namespace}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}},
		}},
		&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}}},
		&offv1beta1.ShadowPod{ObjectMeta: meta, Spec: offv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
		&offv1beta1.ShadowEndpointSlice{ObjectMeta: meta},
	}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: "held", Finalizers: []string{theirs}}}
	eventually(t, "the policy is in force", func() (bool, any) {
		err := kubelet.Create(t.Context(), held.DeepCopy(), client.DryRunAll)
		return strings.Contains(fmt.Sprint(err), says), err
	})
	finalizers := func(names ...string) string {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": names}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, object := range kinds {
		refused := func(what string, err error) {
			t.Helper()
			if !strings.Contains(fmt.Sprint(err), says) {
				t.Errorf("%s of a %T: %v, want a refusal that says %q", what, object, err, says)
			}
		}
		held := object.DeepCopyObject().(client.Object)
		held.SetFinalizers([]string{theirs})
		refused("a finalizer from the beginning", kubelet.Create(t.Context(), held))
		if _, claim := object.(*corev1.PersistentVolumeClaim); !claim { // nothing removes it there
			held.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
			refused("a finalizer of Kubernetes", kubelet.Create(t.Context(), held))
		}
		if err := errors.Join(kubelet.Create(t.Context(), object), merge(t, p.Client, object, finalizers(ours))); err != nil {
			t.Fatalf("%T: %v", object, err)
		}
		refused("a further finalizer", merge(t, kubelet, object, finalizers(ours, theirs)))
		refused("another finalizer", merge(t, kubelet, object, finalizers(theirs)))
		refused("the end of a finalizer", merge(t, kubelet, object, finalizers()))
		if err := merge(t, kubelet, object, `{"metadata": {"labels": {"a": "b"}}}`); err != nil {
			t.Errorf("a virtual kubelet cannot change a %T: %v", object, err)
		}
		if err := kubelet.Delete(t.Context(), object); err != nil {
			t.Errorf("a virtual kubelet cannot delete a %T: %v", object, err)
		}
	}
	// A controller of the provider, with its own rights, sets its finalizer.
	p.bind(t, meta.Namespace, "ClusterRole", api.ClusterRoleVirtualKubeletRemote, rbacv1.UserKind, "system:serviceaccount:kube-balancer:balancer")
	balancer := p.as(t, "system:serviceaccount:kube-balancer:balancer", "system:serviceaccounts")
	eventually(t, "a controller of the provider sets a finalizer", func() (bool, any) {
		err := balancer.Create(t.Context(), held.DeepCopy(), client.DryRunAll)
		return err == nil, err
	})
}

// TestTokensOfVirtualKubelets: a virtual kubelet only gets tokens of pods, and of pods of Kubernetes or
// Liqo only if their namespace is offloaded. So a provider that has taken it over cannot act as another
// process of this cluster.
func TestTokensOfVirtualKubelets(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	const stranger = "system:serviceaccount:elsewhere:vk-mine" // of another virtual kubelet
	tokens := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}
	p.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tokens"}, Rules: []rbacv1.PolicyRule{tokens}})
	p.bind(t, "", "ClusterRole", "tokens", rbacv1.UserKind, stranger)
	const user = "system:serviceaccount:liqo-tenant-oslo:vk-oslo"
	p.bind(t, "", "ClusterRole", api.ClusterRoleVirtualKubeletLocal, rbacv1.UserKind, user)
	// The role is bound as if each of these namespaces were offloaded, or had been.
	for _, namespace := range []string{"shop-oslo", "liqo", "kube-system", "liqo-tenant-rome"} {
		p.bind(t, namespace, "ClusterRole", api.ClusterRoleVirtualKubeletOffloaded, rbacv1.UserKind, user)
	}
	kubelet, pods := p.as(t, user), map[string]*corev1.Pod{}
	for _, namespace := range []string{"shop-oslo", "liqo", "kube-system", "liqo-tenant-rome"} {
		pods[namespace] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "till"},
			Spec: corev1.PodSpec{ServiceAccountName: "till", Containers: []corev1.Container{{Name: "till", Image: "till"}}}}
		p.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "till"}}, pods[namespace])
	}
	ask := func(who client.Client, namespace string, bound *authenticationv1.BoundObjectReference) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
		return who.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "till"}}, request)
	}
	to := func(namespace string) *authenticationv1.BoundObjectReference {
		return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "till", UID: pods[namespace].UID}
	}
	refused := func(err error, says string) bool {
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), says)
	}
	eventually(t, "a token that is bound to nothing is refused", func() (bool, any) {
		err := ask(kubelet, "shop-oslo", nil)
		return refused(err, "only get tokens that are bound to a pod"), err
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-oslo", Name: "till"}}
	p.create(t, secret)
	if err := ask(kubelet, "shop-oslo", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "till", UID: secret.UID}); !refused(err, "bound to a pod") {
		t.Errorf("a token that is bound to a Secret: %v", err)
	}
	for _, namespace := range []string{"liqo", "kube-system"} {
		if err := ask(kubelet, namespace, to(namespace)); !refused(err, "is not offloaded") {
			t.Errorf("a token of a pod in %s: %v", namespace, err)
		}
	}
	if err := ask(kubelet, "liqo-tenant-rome", to("liqo-tenant-rome")); !refused(err, "in tenant namespaces") {
		t.Errorf("a token of another virtual kubelet: %v", err)
	}
	if err := errors.Join(merge(t, p, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, `{"metadata": {"labels": {"liqo.io/scheduling-enabled": "true"}}}`),
		ask(kubelet, "shop-oslo", to("shop-oslo"))); err != nil {
		t.Errorf("a token of an offloaded pod: %v", err)
	}
	eventually(t, "pods of a namespace of Kubernetes that is offloaded have theirs", func() (bool, any) {
		err := ask(kubelet, "kube-system", to("kube-system"))
		return err == nil, err
	})
	for who, c := range map[string]client.Client{"an administrator": p, "who is called like a virtual kubelet": p.as(t, stranger)} {
		if err := ask(c, "liqo", nil); err != nil {
			t.Errorf("%s is refused: %v", who, err)
		}
	}
}

// connected is the patch by which a gateway reports its Connection as connected.
var connected = client.RawPatch(types.MergePatchType, []byte(`{"status": {"value": "Connected"}}`))

// serviceAt returns a Service of a consumer with external IPs.
func serviceAt(addresses ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", GenerateName: "till-"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: addresses}}
}

// secret returns a Secret with a label of Liqo in the tenant namespace of rome.
func secret(label string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", GenerateName: "peers-", Labels: map[string]string{label: api.True}},
		StringData: data,
	}
}

// gatewayOf returns a GatewayServer for a peer in the tenant namespace of rome.
func gatewayOf(peer string) *netv1beta1.GatewayServer {
	return &netv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-rome", Name: "of-" + peer, Labels: map[string]string{api.LabelRemoteClusterID: peer},
	}}
}

// merge patches a copy of an object.
func merge(t *testing.T, c client.Client, object client.Object, patch string, options ...client.PatchOption) error {
	return c.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
}

// active returns a Tenant with the condition Active.
func active(t *authv1beta1.Tenant) *authv1beta1.Tenant {
	out := t.DeepCopy()
	out.Spec.TenantCondition = authv1beta1.TenantActive
	return out
}

// TestAttackServiceOfAGateway: a peering user sets annotations and labels on the Service of its GatewayServer, by which a
// load balancer attaches certificates or gives it an address of somebody else. It also asks for such an address
// directly, and for a gateway template outside of Liqo's namespace.
//
// Outcome: the API server refuses the GatewayServer, and names the chart value by which a provider allows a key or an
// address. What an administrator has set stays, and the peering user may change the rest of such a GatewayServer.
func TestAttackServiceOfAGateway(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	peering := p.as(t, identities()[2].user)
	const certificate, pool = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert", "metallb.io/address-pool"
	annotated := func(s *netv1beta1.GatewayServer) {
		s.Spec.ServiceAnnotations = map[string]string{certificate: "arn:mine"}
	}
	elsewhere := &corev1.ObjectReference{Name: "privileged", Namespace: "kube-system"}
	server := func(change func(*netv1beta1.GatewayServer)) *netv1beta1.GatewayServer {
		s := gatewayOf("rome")
		s.Spec.Endpoint = &netv1beta1.Endpoint{Port: 51840, ServiceType: corev1.ServiceTypeLoadBalancer}
		s.Spec.ServerTemplateRef = &corev1.ObjectReference{Name: "wireguard-server", Namespace: "liqo"} // as liqoctl names it
		change(s)
		return s
	}
	eventually(t, "the policy is in force", func() (bool, any) {
		err := peering.Create(t.Context(), server(annotated), client.DryRunAll)
		return strings.Contains(fmt.Sprint(err), "networking.peerServices.keys"), err
	})
	honest := server(func(*netv1beta1.GatewayServer) {})
	if err := peering.Create(t.Context(), honest, client.DryRunAll); err != nil {
		t.Errorf("an honest peering user is refused: %v", err)
	}
	provided := server(func(s *netv1beta1.GatewayServer) {
		annotated(s)
		s.Spec.Endpoint.LoadBalancerIP, s.Spec.ServerTemplateRef = "203.0.113.7", elsewhere
	})
	p.create(t, provided)
	update := func(change func(*netv1beta1.GatewayServer)) func() error {
		return func() error {
			s := provided.DeepCopy()
			change(s)
			return peering.Update(t.Context(), s, client.DryRunAll)
		}
	}
	if err := update(func(s *netv1beta1.GatewayServer) { s.Spec.MTU = 1400 })(); err != nil {
		t.Errorf("a peering user cannot change what is its own: %v", err)
	}
	create := func(object client.Object) func() error {
		return func() error { return peering.Create(t.Context(), object, client.DryRunAll) }
	}
	dialer := &netv1beta1.GatewayClient{ObjectMeta: gatewayOf("rome").ObjectMeta, Spec: netv1beta1.GatewayClientSpec{ClientTemplateRef: elsewhere}}
	for _, attempt := range []struct {
		name, says string
		try        func() error
	}{
		{"labels that choose an address pool", "networking.peerServices.keys", create(server(func(s *netv1beta1.GatewayServer) { s.Spec.ServiceLabels = map[string]string{pool: "public"} }))},
		{"a further annotation later", "networking.peerServices.keys", update(func(s *netv1beta1.GatewayServer) { s.Spec.ServiceAnnotations[pool] = "public" })},
		{"another value of an annotation", "networking.peerServices.keys", update(func(s *netv1beta1.GatewayServer) { s.Spec.ServiceAnnotations[certificate] = "arn:other" })},
		{"an address of the load balancer", "networking.peerServices.loadBalancerIPs", create(server(func(s *netv1beta1.GatewayServer) { s.Spec.Endpoint.LoadBalancerIP = "203.0.113.7" }))},
		{"another address later", "networking.peerServices.loadBalancerIPs", update(func(s *netv1beta1.GatewayServer) { s.Spec.Endpoint.LoadBalancerIP = "203.0.113.8" })},
		{"a template of another namespace", "may only use templates in namespace liqo", create(server(func(s *netv1beta1.GatewayServer) { s.Spec.ServerTemplateRef = elsewhere }))},
		{"another template later", "may only use templates in namespace liqo", update(func(s *netv1beta1.GatewayServer) {
			s.Spec.ServerTemplateRef = &corev1.ObjectReference{Name: "other", Namespace: "kube-system"}
		})},
		{"a client's template of another namespace", "may only use templates in namespace liqo", create(dialer)},
	} {
		if err := attempt.try(); !apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), attempt.says) {
			t.Errorf("a peering user asks for %s: %v, want a refusal that says %q", attempt.name, err, attempt.says)
		}
	}

	rendered, err := render(t, strings.Replace(bases[0], "networking: {", "networking: {peerServices: {keys: [service.beta.kubernetes.io/], loadBalancerIPs: [203.0.113.9]}, ", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(rendered["liqo/templates/peer-policies.yaml"], "\n---\n") {
		policy := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &policy.Object); err != nil {
			t.Fatal(err)
		}
		if policy.GetKind() == "ValidatingAdmissionPolicy" && policy.GetName() == "liqo-peer-networks" {
			spec, _ := json.Marshal(map[string]any{"spec": policy.Object["spec"]})
			if err := p.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, spec)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Delete(t.Context(), provided); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a provider allows keys and addresses", func() (bool, any) {
		err := create(server(func(s *netv1beta1.GatewayServer) {
			annotated(s)
			s.Spec.Endpoint.LoadBalancerIP = "203.0.113.9"
		}))()
		return err == nil, err
	})
}
