// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
)

// copied is a consumer's slice at rome, as it is before the first answer.
func copied(consumer, name string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + consumer, Name: name, Labels: map[string]string{api.LabelReplicated: "true"}},
		Spec: authv1beta1.ResourceSliceSpec{
			ConsumerClusterID: consumer, CSR: must(plan.NewRequest(key(consumer), plan.SliceSubject(name, consumer))),
		},
	}
}

// tenantOf is a consumer's Tenant at rome that answers the challenge.
func tenantOf(consumer string) *authv1beta1.Tenant {
	return &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + consumer, Name: consumer, Labels: map[string]string{api.LabelRemoteClusterID: consumer}},
		Spec: authv1beta1.TenantSpec{
			ClusterID: consumer, PublicKey: must(plan.EncodePublicKey(key(consumer).Public())),
			CSR: must(plan.NewRequest(key(consumer), plan.ControlPlaneSubject(consumer))), Signature: must(plan.Sign(key(consumer), challenge)),
		},
	}
}

func admitted(consumer string) *authv1beta1.Tenant {
	t := tenantOf(consumer)
	t.Status.TenantNamespace = t.Namespace
	return t
}

var atRome = plan.APIServer{Address: "https://192.0.2.1:6443"}

// answered returns rome's answer to a slice of milan's; others already hold the given user names.
func answered(root *authv1beta1.ResourceSlice, users plan.Users) desired.Plan {
	return plan.Slice(plan.SliceInput{Granted: &plan.GrantedSlice{
		Root: root, Tenant: admitted("milan"), Users: users, Offer: plan.Offer{DefaultClass: true}, APIServer: atRome, Now: now,
	}})
}

// served is a copied slice that has its credentials.
func served(consumer, name string) authv1beta1.ResourceSlice {
	s := copied(consumer, name)
	s.Status.AuthParams = &authv1beta1.AuthParams{APIServer: atRome.Address}
	return *s
}

// TestAttackUserOfAnother: a consumer names a slice such that the user of the slice is the user of somebody
// else at the provider: of another consumer's control plane or slice, of a peering user, or of a person whom
// the administrator gave rights.
//
// Outcome: the slice is denied without a certificate and without a Quota, and its condition names who has
// the user name. A slice that has credentials already keeps them.
func TestAttackUserOfAnother(t *testing.T) {
	user := api.ResourceSliceUserName("big", "milan")
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}}
	// Of another consumer's slices only one whose ID has the same hash has the user: milan stands for it.
	for name, users := range map[string]plan.Users{
		"Tenant liqo-tenant-" + user + "/" + user: {Tenants: []authv1beta1.Tenant{*tenantOf(user)}},
		`cluster "` + user + `"`:                  {ClusterIDs: []string{"rome", user}},
		"ResourceSlice liqo-tenant-milan/big":     {Slices: []authv1beta1.ResourceSlice{served("milan", "big")}},
		"RoleBinding prod/admin": {RoleBindings: []rbacv1.RoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "admin"}, Subjects: subjects,
		}}},
		"ClusterRoleBinding admin": {ClusterRoleBindings: []rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "admin"}, Subjects: subjects,
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			refusesUser(t, answered(copied("milan", "big"), users), name)
			old := served("milan", "big")
			if p := answered(&old, users); p.Reason == plan.ReasonUserTaken {
				t.Errorf("a slice that has credentials is refused: %s", p.Message)
			}
		})
	}
	t.Run("peering user", func(t *testing.T) {
		refusesUser(t, answered(copied("milan", "liqo-peer-user-rome"), plan.Users{}), "a peering user")
	})
	t.Run("nobody", func(t *testing.T) {
		others := plan.Users{
			ClusterIDs: []string{"rome", "milan", "turin"}, Tenants: []authv1beta1.Tenant{*tenantOf("milan"), *tenantOf("turin")},
			Slices: []authv1beta1.ResourceSlice{*copied("milan", "big"), served("milan", "small"), served("turin", "big")},
			RoleBindings: []rbacv1.RoleBinding{{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelManaged: "true"}}, Subjects: subjects,
			}},
		}
		if p := answered(copied("milan", "big"), others); p.Reason != plan.ReasonCertificatePending {
			t.Errorf("an honest slice is %s: %s", p.Reason, p.Message)
		}
	})
}

func refusesUser(t *testing.T, p desired.Plan, holder string) {
	t.Helper()
	if p.State != desired.Blocked || p.Reason != plan.ReasonUserTaken || len(p.Objects) > 0 || p.RequeueAfter == 0 {
		t.Errorf("the plan is %v %s with objects %v", p.State, p.Reason, names(p.Objects))
	}
	status := p.Status.(*authv1beta1.ResourceSlice).Status
	if status.AuthParams != nil {
		t.Error("the slice has credentials")
	}
	for _, c := range status.Conditions {
		if c.Status != authv1beta1.ResourceSliceDenied || !strings.Contains(c.Message, holder) {
			t.Errorf("condition %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
	if len(status.Conditions) != 2 {
		t.Errorf("%d conditions", len(status.Conditions))
	}
}

// TestAttackClusterNamedLikeASlice: a cluster that wants to be a consumer has the user of somebody else's
// slice as its ID, or that of a peering user. It would get the pods and the Quota of that slice.
//
// Outcome: its Tenant is blocked without a certificate, with and without a handshake, and the condition names
// the slice. A Tenant that has its certificate keeps it.
func TestAttackClusterNamedLikeASlice(t *testing.T) {
	taken := api.ResourceSliceUserName("big", "milan")
	for id, holder := range map[string]string{taken: "ResourceSlice liqo-tenant-milan/big", "liqo-peer-user-milan": "a peering user"} {
		for _, policy := range []authv1beta1.AuthzPolicy{authv1beta1.AuthzKeysExchange, authv1beta1.AuthzTolerateNoHandshake} {
			root := tenantOf(id)
			root.Spec.AuthzPolicy = policy
			in := plan.TenantInput{
				Root: root, AllSlices: []authv1beta1.ResourceSlice{served("milan", "big")}, APIServer: atRome, Now: now,
				Nonces: []corev1.Secret{{Data: map[string][]byte{api.NonceField: challenge}}},
				Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root.Namespace, Labels: map[string]string{
					api.LabelTenantNamespace: "true", api.LabelRemoteClusterID: id,
				}}},
			}
			p := plan.Tenant(in)
			if p.State != desired.Blocked || p.Reason != plan.ReasonUserTaken || len(p.Objects) > 0 || p.RequeueAfter == 0 || !strings.Contains(p.Message, holder) {
				t.Errorf("%s, %s: %s %s, with objects %v", id, policy, p.Reason, p.Message, names(p.Objects))
			}
			root.Status.TenantNamespace = root.Namespace
			root.Status.AuthParams = &authv1beta1.AuthParams{SignedCRT: certified(t, id)}
			if p := plan.Tenant(in); p.State != desired.Ready {
				t.Errorf("%s, %s: an admitted Tenant is %s: %s", id, policy, p.Reason, p.Message)
			}
		}
	}
}

// certified is the certificate of a consumer's control plane.
func certified(t *testing.T, consumer string) []byte {
	t.Helper()
	return decoded(t, known{}.certificate(consumer, consumer, api.ControlPlaneOrganization, 10, 30))
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAttackFormerAnswer: a consumer changes a slice that its provider accepted. The provider does not
// answer the change, or a consumer asks for what is refused and shows the former answer as if it were about that.
//
// Outcome: the slice is not Ready on either side, and its condition says that the answer is about the former
// request. The virtual node and the Quota keep the amounts that were granted, so no pod is disturbed.
func TestAttackFormerAnswer(t *testing.T) {
	held := decoded(t, known{}.certificate("milan", api.ResourceSliceUserName("big", "milan"), "milan", 10, 30))
	request := must(plan.NewRequest(key("milan"), plan.SliceSubject("big", "milan")))
	cpu := func(amount string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(amount)} }
	slice := func(answered int64) *authv1beta1.ResourceSlice {
		root := &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "big", Generation: 3},
			Spec:       authv1beta1.ResourceSliceSpec{ConsumerClusterID: "milan", ProviderClusterID: "rome", CSR: request, Resources: cpu("20")},
			Status: authv1beta1.ResourceSliceStatus{
				Resources: cpu("4"), AuthParams: &authv1beta1.AuthParams{APIServer: atRome.Address, SignedCRT: held},
			},
		}
		for _, c := range []authv1beta1.ResourceSliceConditionType{authv1beta1.ResourceSliceAuthentication, authv1beta1.ResourceSliceResources} {
			root.Status.Conditions = append(root.Status.Conditions, authv1beta1.ResourceSliceCondition{
				Type: c, Status: authv1beta1.ResourceSliceAccepted, Message: "accepted", ObservedGeneration: answered,
			})
		}
		return root
	}
	t.Run("consumer", func(t *testing.T) {
		for answered, want := range map[int64]string{0: "", 2: plan.ReasonProviderPending, 3: ""} {
			root := slice(answered)
			p := atConsumer(root)
			node := story.First[*offv1beta1.VirtualNode](p.Objects)
			if p.State != desired.Ready || p.Degraded.Reason != want || node == nil || node.Spec.ResourceQuota.Hard.Cpu().String() != "4" {
				t.Errorf("answer to generation %d: %s %s lacks %q, node %v", answered, p.Reason, p.Message, p.Degraded.Reason, node)
			}
		}
		root := slice(2)
		root.Status.Conditions[1].Status = authv1beta1.ResourceSliceDenied
		if p := atConsumer(root); p.Reason != plan.ReasonProviderPending {
			t.Errorf("a change of what was denied is %s: %s", p.Reason, p.Message)
		}
	})
	t.Run("consumer with a new key", func(t *testing.T) {
		root := slice(0) // a provider that names no generation
		root.Status.AuthParams.SignedCRT = decoded(t, known{}.certificate("turin", api.ResourceSliceUserName("big", "milan"), "milan", 10, 30))
		if p := atConsumer(root); p.Degraded.Reason != plan.ReasonProviderPending {
			t.Errorf("a certificate for the former key counts as the answer: %s %s", p.Degraded.Reason, p.Degraded.Message)
		}
	})
	t.Run("provider", func(t *testing.T) {
		for name, change := range map[string]func(*plan.GrantedSlice){
			"negative":      func(in *plan.GrantedSlice) { in.Root.Spec.Resources = cpu("-1") },
			"cordoned":      func(in *plan.GrantedSlice) { in.Root.Annotations[api.AnnotationCordon] = api.True },
			"class is off":  func(in *plan.GrantedSlice) { in.Offer.DefaultClass = false },
			"another class": func(in *plan.GrantedSlice) { in.Root.Spec.Class = "gold" },
		} {
			root := slice(2)
			root.Namespace, root.Labels = "liqo-tenant-milan", map[string]string{api.LabelReplicated: api.True}
			root.Annotations = map[string]string{api.AnnotationFeatures: api.FeatureStandardConditions}
			in := plan.GrantedSlice{Root: root, Tenant: admitted("milan"), Offer: plan.Offer{DefaultClass: true}, APIServer: atRome, Now: now}
			change(&in)
			p := plan.Slice(plan.SliceInput{Granted: &in})
			quota := story.First[*offv1beta1.Quota](p.Objects)
			if p.State != desired.Ready || p.Degraded.State == desired.Ready || quota == nil || quota.Spec.Resources.Cpu().String() != "4" {
				t.Errorf("%s: %s %s lacks %v, quota %v", name, p.Reason, p.Message, p.Degraded, quota)
			}
			for _, c := range p.Status.(*authv1beta1.ResourceSlice).Status.Conditions {
				if c.Type == authv1beta1.ResourceSliceResources && (c.ObservedGeneration != 2 || c.Message == "ResourceSlice resources accepted") {
					t.Errorf("%s: condition for generation %d: %s", name, c.ObservedGeneration, c.Message)
				}
			}
		}
	})
}

// atConsumer returns milan's plan for rome's answer to a slice that has a virtual node.
func atConsumer(root *authv1beta1.ResourceSlice) desired.Plan {
	root.Namespace = "liqo-tenant-rome"
	root.Labels = map[string]string{api.LabelReplication: api.True, api.LabelRemoteID: "rome", api.LabelRemoteClusterID: "rome"}
	root.Annotations = map[string]string{api.AnnotationCreateVirtualNode: api.True}
	return plan.Slice(plan.SliceInput{Asked: &plan.AskedSlice{
		Root: root, ClusterID: "milan", NamespacePeer: "rome", Keys: plan.Keys{Own: known{}.private("milan")}, RemoteNamespace: "liqo-tenant-milan",
		Identity: &authv1beta1.Identity{Status: authv1beta1.IdentityStatus{KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"}}},
		VirtualNode: &offv1beta1.VirtualNode{Status: offv1beta1.VirtualNodeStatus{Conditions: []offv1beta1.VirtualNodeCondition{
			{Type: desired.ConditionReady, Status: "True"},
		}}},
	}})
}

// TestAttackAddressOfAnother: a provider renews credentials, or answers a slice, with the URL of another API
// server or proxy: of the consumer's cloud metadata service or of a host in its own network, which the
// consumer's controller and virtual kubelets would call.
//
// Outcome: kubeconfigs keep the address the peering was made with and take the certificate alone; a new slice
// gets no kubeconfig. A condition names the address and how to approve it, which a user does by an annotation
// or by authenticating again.
func TestAttackAddressOfAnother(t *testing.T) {
	at := func(server, proxy string, from int) *authv1beta1.AuthParams {
		return &authv1beta1.AuthParams{
			APIServer: server, ProxyURL: proxy, CA: []byte("CA of " + server),
			SignedCRT: decoded(t, known{}.certificate("milan", "milan", api.ControlPlaneOrganization, from, 30)),
		}
	}
	identity := func(kind authv1beta1.IdentityType, name string, p *authv1beta1.AuthParams) *authv1beta1.Identity {
		return &authv1beta1.Identity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: name},
			Spec:       authv1beta1.IdentitySpec{ClusterID: "rome", Type: kind, AuthParams: p},
		}
	}
	control := identity(authv1beta1.IdentityControlPlane, "controlplane-rome", at("https://rome:6443", "http://proxy:8118", 1))
	decide := func(root *authv1beta1.Identity, more plan.IdentityInput) (desired.Plan, string) {
		more.Root, more.ClusterID, more.Keys = root, "milan", plan.Keys{Own: known{}.private("milan")}
		p := plan.Identity(more)
		if s := story.First[*corev1.Secret](p.Objects); s != nil {
			return p, string(s.Data[api.KubeconfigField])
		}
		return p, ""
	}
	_, made := decide(control, plan.IdentityInput{ControlPlane: control})
	byHand := corev1.Secret{Data: map[string][]byte{api.KubeconfigField: []byte(made)}}

	for _, evil := range [][2]string{
		{"https://169.254.169.254:443", "http://proxy:8118"},
		{"https://rome:6443", "http://10.0.0.1:80"},
		{"https://rome:6443", ""}, // rome as this cluster resolves it
		{"https://rome:22", "http://proxy:8118"},
		{"https://$(reboot)", ""},
	} {
		named := at(evil[0], evil[1], 10)
		t.Run(evil[0]+" via "+evil[1], func(t *testing.T) {
			refused := func(v desired.Verdict) {
				t.Helper()
				if v.Reason != plan.ReasonAddressNotApproved || !strings.Contains(v.Message, evil[0]) ||
					strings.Contains(v.Message, "kubectl") && strings.Contains(v.Message, "$") {
					t.Errorf("%s: %s", v.Reason, v.Message)
				}
			}
			p, config := decide(control, plan.IdentityInput{ControlPlane: control, Renew: &authv1beta1.Renew{Status: authv1beta1.RenewStatus{AuthParams: named}}})
			filled := p.Fill.(*authv1beta1.Identity).Spec.AuthParams
			if refused(p.Degraded); filled.APIServer != "https://rome:6443" || filled.ProxyURL != "http://proxy:8118" ||
				string(filled.CA) != "CA of https://rome:6443" || string(filled.SignedCRT) != string(named.SignedCRT) || config != made {
				t.Errorf("renewed to %s via %s", filled.APIServer, filled.ProxyURL)
			}
			slice := identity(authv1beta1.IdentityResourceSlice, "resourceslice-big", named)
			for way, in := range map[string]plan.IdentityInput{
				"authenticated": {ControlPlane: control, ControlPlaneSecrets: []corev1.Secret{byHand}},
				"by hand":       {ControlPlaneSecrets: []corev1.Secret{byHand}},
				"from nowhere":  {},
			} {
				p, config := decide(slice, in)
				if refused(p.Verdict); config != "" {
					t.Errorf("%s: a new slice has a kubeconfig: %s", way, config)
				}
				in.Kubeconfig = &byHand
				p, config = decide(slice, in)
				if refused(p.Degraded); !strings.Contains(config, "server: https://rome:6443\n") || !strings.Contains(config, "proxy-url: http://proxy:8118\n") ||
					!strings.Contains(config, base64.StdEncoding.EncodeToString(named.SignedCRT)) {
					t.Errorf("%s: kubeconfig of a slice: %s", way, config)
				}
			}
			slice.Annotations = map[string]string{api.AnnotationApprovedAPIServer: strings.TrimSuffix(evil[0]+" via "+evil[1], " via ")}
			if p, config := decide(slice, plan.IdentityInput{ControlPlane: control}); p.State != desired.Ready || p.Degraded.State != desired.Ready || !strings.Contains(config, "server: "+evil[0]+"\n") {
				t.Errorf("approved: %s %s, kubeconfig %s", p.Reason, p.Message, config)
			}
		})
	}
	t.Run("the same", func(t *testing.T) {
		slice := identity(authv1beta1.IdentityResourceSlice, "resourceslice-big", at("https://rome:6443", "http://proxy:8118", 10))
		for _, in := range []plan.IdentityInput{{ControlPlane: control}, {ControlPlaneSecrets: []corev1.Secret{byHand}}, {Kubeconfig: &byHand}} {
			if p, config := decide(slice, in); p.State != desired.Ready || p.Degraded.State != desired.Ready || config == "" {
				t.Errorf("%s %s, lacks %s", p.Reason, p.Message, p.Degraded.Message)
			}
		}
	})
}

// TestAttackSharedKeyDrawnOut: a provider has its consumer write a private key where the provider's peering user reads
// it, that other peers trust. It answers with a certificate for the key that former versions of the consumer used for
// all peers, whose public half it knows: for the control plane, in a renewal, and for a slice. Or it talks the
// consumer's administrator into an Identity for another provider in its own tenant namespace.
//
// Outcome: the key is not written, and a condition says that the certificate is for another one. Only a kubeconfig of a
// former version that has the key already keeps it, until the consumer authenticates again.
func TestAttackSharedKeyDrawnOut(t *testing.T) {
	t.Parallel()
	k := known{}
	keys := plan.Keys{Own: k.private("milan"), Shared: k.private("shared")}
	shared := decoded(t, k.kubeconfig("shared"))
	holder := &corev1.Secret{Data: map[string][]byte{api.KubeconfigField: shared}}
	own := &corev1.Secret{Data: map[string][]byte{api.KubeconfigField: decoded(t, k.kubeconfig("milan"))}}
	params := func(name, user, group string, from int) *authv1beta1.AuthParams {
		return &authv1beta1.AuthParams{APIServer: "https://192.0.2.1:6443", SignedCRT: decoded(t, k.certificate(name, user, group, from, 30))}
	}
	decide := func(in plan.IdentityInput) (desired.Plan, bool) {
		in.Keys, in.ClusterID, in.Now = keys, "milan", now
		p := plan.Identity(in)
		written := p.Fill != nil && bytes.Equal(p.Fill.(*authv1beta1.Identity).Spec.AuthParams.SignedCRT, decoded(t, k.certificate("shared", "milan", "liqo.io", 12, 30)))
		for _, obj := range p.Objects {
			if s, ok := obj.(*corev1.Secret); ok && bytes.Contains(s.Data[api.KubeconfigField], []byte(encode(string(keys.Shared)))) {
				written = true
			}
		}
		return p, written
	}
	identity := func(kind authv1beta1.IdentityType, p *authv1beta1.AuthParams) *authv1beta1.Identity {
		return &authv1beta1.Identity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "controlplane-rome"},
			Spec:       authv1beta1.IdentitySpec{ClusterID: "rome", Type: kind, AuthParams: p},
		}
	}
	control := identity(authv1beta1.IdentityControlPlane, params("shared", "milan", "liqo.io", 10))
	slice := identity(authv1beta1.IdentityResourceSlice, params("shared", "big-efee614420c5", "milan", 10))
	renewed := &authv1beta1.Renew{Status: authv1beta1.RenewStatus{AuthParams: params("shared", "milan", "liqo.io", 12)}}
	for name, in := range map[string]plan.IdentityInput{
		"control plane":               {Root: control},
		"control plane, once changed": {Root: control, Kubeconfig: own},
		"slice":                       {Root: slice},
		"slice, once changed":         {Root: slice, Kubeconfig: own, ControlPlane: identity(authv1beta1.IdentityControlPlane, params("milan", "milan", "liqo.io", 10))},
		"another provider's":          {Root: control, Kubeconfig: holder, NamespacePeer: "oslo"},
	} {
		if p, written := decide(in); written || p.State == desired.Ready {
			t.Errorf("%s: the shared key is written: %v; %s", name, written, verdict(p.Verdict))
		}
	}
	again := identity(authv1beta1.IdentityControlPlane, params("milan", "milan", "liqo.io", 11))
	if p, written := decide(plan.IdentityInput{Root: again, Kubeconfig: holder, Renew: renewed}); written || p.State != desired.Ready {
		t.Errorf("renewal: the shared key is written: %v; %s", written, verdict(p.Verdict))
	}
	if p, written := decide(plan.IdentityInput{Root: control, Kubeconfig: holder}); !written || p.State != desired.Ready {
		t.Errorf("a peering of a former version loses its key: %s", verdict(p.Verdict))
	}
}

// TestAttackGrantWithoutBound: a consumer asks for a million CPUs: in one slice, in many slices that are small each,
// in the change of a slice that was accepted, or by a slice that does not name pods, whose Quota would not bound them.
//
// Outcome: with the ceilings of the chart the slice is denied and its condition names the ceiling, its amount and what
// was asked. Accepted slices keep what they have. Without ceilings the grant is made, and a warning event at the
// provider says what its nodes have.
func TestAttackGrantWithoutBound(t *testing.T) {
	amounts := func(cpu string, pods ...string) corev1.ResourceList {
		list := corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		for _, n := range pods {
			list["pods"] = resource.MustParse(n)
		}
		return list
	}
	has := func(consumer, name string, of corev1.ResourceList) authv1beta1.ResourceSlice {
		s := served(consumer, name)
		s.Spec.Resources, s.Status.Resources = of, of
		s.Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted}}
		return s
	}
	asks := func(root authv1beta1.ResourceSlice, of corev1.ResourceList) plan.GrantedSlice {
		root.Spec.Resources = of
		virtual := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelType: api.TypeVirtualNode}}}
		virtual.Status.Allocatable = amounts("1M", "1M")
		node := corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("4", "110")}}
		return plan.GrantedSlice{
			Root: &root, Tenant: admitted("milan"), APIServer: atRome, Now: now, Nodes: []corev1.Node{node, virtual},
			Offer: plan.Offer{DefaultClass: true}, All: []authv1beta1.ResourceSlice{root},
		}
	}
	answer := func(in plan.GrantedSlice) (desired.Plan, authv1beta1.ResourceSliceCondition, *offv1beta1.Quota) {
		p := plan.Slice(plan.SliceInput{Granted: &in})
		conditions := p.Status.(*authv1beta1.ResourceSlice).Status.Conditions
		return p, conditions[len(conditions)-1], story.First[*offv1beta1.Quota](p.Objects)
	}
	denied := func(t *testing.T, in plan.GrantedSlice, says ...string) {
		t.Helper()
		p, c, quota := answer(in)
		if c.Status != authv1beta1.ResourceSliceDenied || c.Reason != "ResourceSliceCeilingExceeded" || quota != nil || p.RequeueAfter == 0 || aboveCapacity(p) != "" {
			t.Errorf("%s %s: %s, quota %v, again after %v, event %v", c.Status, c.Reason, c.Message, quota, p.RequeueAfter, aboveCapacity(p))
		}
		for _, text := range says {
			if !strings.Contains(c.Message, text) {
				t.Errorf("%q is not in %q", text, c.Message)
			}
		}
	}
	big := *copied("milan", "big")
	t.Run("one slice", func(t *testing.T) {
		in := asks(big, amounts("1M", "10"))
		in.Offer.Ceilings.Slice = amounts("100", "100")
		denied(t, in, "1M of cpu", "ceiling of 100", "offloading.ceilings.slice")
	})
	t.Run("many slices", func(t *testing.T) {
		in := asks(big, amounts("60", "10"))
		in.All = append(in.All, has("milan", "small", amounts("60", "10")), has("turin", "large", amounts("1M", "10")))
		in.Offer.Ceilings.Consumer = amounts("100", "100")
		denied(t, in, "60 of cpu", "ceiling of 100", "offloading.ceilings.consumer")
		in.All[1] = has("milan", "small", amounts("40", "10"))
		if _, c, quota := answer(in); c.Status != authv1beta1.ResourceSliceAccepted || quota == nil {
			t.Errorf("what fits is %s: %s", c.Status, c.Message)
		}
		in.Offer.Ceilings.Total = amounts("100", "100")
		denied(t, in, "offloading.ceilings.total")
		in.All[2] = has("turin", "large", amounts("-1M", "10"))
		in.All[1] = has("milan", "small", amounts("60", "10"))
		denied(t, in, "offloading.ceilings.consumer")
	})
	t.Run("no bound of pods", func(t *testing.T) {
		in := asks(big, amounts("1"))
		in.Offer.Ceilings.Consumer = amounts("100", "100")
		denied(t, in, "any number of pods", "ceiling of 100")
		in = asks(has("milan", "big", amounts("1", "10")), amounts("1"))
		in.Offer.Ceilings.Consumer = amounts("100", "100")
		if _, c, quota := answer(in); !strings.Contains(c.Message, "any number of pods") || quota.Spec.Resources.Pods().String() != "10" {
			t.Errorf("%s, quota %v", c.Message, quota.Spec.Resources)
		}
	})
	t.Run("accepted slice", func(t *testing.T) {
		for asked, want := range map[string]string{"1M": "60", "60": "60", "50": "50"} {
			in := asks(has("milan", "big", amounts("60", "10")), amounts(asked, "10"))
			in.Offer.Ceilings = plan.Ceilings{Slice: amounts("40", "5"), Consumer: amounts("40", "5"), Total: amounts("40", "5")}
			_, c, quota := answer(in)
			if c.Status != authv1beta1.ResourceSliceAccepted || quota == nil || quota.Spec.Resources.Cpu().String() != want {
				t.Errorf("asked for %s: %s %s, quota %v", asked, c.Status, c.Message, quota)
			}
			if strings.Contains(c.Message, "ceiling of 40") != (asked == "1M") {
				t.Errorf("asked for %s: %s", asked, c.Message)
			}
		}
	})
	t.Run("no ceilings", func(t *testing.T) {
		p, c, quota := answer(asks(big, amounts("1M", "10")))
		if c.Status != authv1beta1.ResourceSliceAccepted || quota == nil || !strings.Contains(aboveCapacity(p), "1M of cpu, of which the nodes have 4") {
			t.Errorf("%s %s, event %v", c.Status, c.Message, aboveCapacity(p))
		}
		gpus := amounts("4", "110")
		gpus["example.com/gpu"] = resource.MustParse("2")
		if p, _, _ := answer(asks(big, gpus)); !strings.Contains(aboveCapacity(p), "2 of example.com/gpu, of which the nodes have 0") {
			t.Errorf("no device: event %v", aboveCapacity(p))
		}
		devices := asks(big, gpus)
		devices.DeviceClasses = []resourcev1.DeviceClass{{}, {Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}}
		ofClass := amounts("4", "110")
		ofClass["deviceclass.resource.kubernetes.io/gpus"] = resource.MustParse("2")
		implicit := asks(big, ofClass)
		implicit.DeviceClasses = []resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}}
		for name, in := range map[string]plan.GrantedSlice{
			"devices": devices, "devices of a class": implicit,
			"fits":    asks(big, amounts("4", "110")),
			"granted": asks(has("milan", "big", amounts("1M", "10")), amounts("1M", "10")),
		} {
			if p, _, _ := answer(in); aboveCapacity(p) != "" {
				t.Errorf("%s: event %v", name, aboveCapacity(p))
			}
		}
	})
}

// TestAttackCertificateForYears: a consumer keeps its certificate after it was cut off. The cluster's signer would
// have made it valid for a year, and nobody can revoke it.
//
// Outcome: every certificate of a consumer is asked for 30 days, or what the provider's administrator chose. When
// renewal fails, conditions at both clusters name the end of the certificate and do not change until then.
func TestAttackCertificateForYears(t *testing.T) {
	const day = 24 * time.Hour
	control := certified(t, "milan") // from 10 to 30 January: due on the 23rd, late on the 25th
	user := decoded(t, known{}.certificate("milan", api.ResourceSliceUserName("big", "milan"), "milan", 10, 30))
	refused := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "Policy", Message: "no"}},
	}}
	provider := map[string]func(*certificatesv1.CertificateSigningRequest, time.Time) desired.Plan{
		"Tenant": func(signing *certificatesv1.CertificateSigningRequest, at time.Time) desired.Plan {
			return plan.Tenant(holding(control, signing, at))
		},
		"ResourceSlice": func(signing *certificatesv1.CertificateSigningRequest, at time.Time) desired.Plan {
			root := copied("milan", "big")
			root.Status.AuthParams = &authv1beta1.AuthParams{SignedCRT: user}
			return plan.Slice(plan.SliceInput{Granted: &plan.GrantedSlice{
				Root: root, Tenant: admitted("milan"), Signing: signing, Offer: plan.Offer{DefaultClass: true}, APIServer: atRome,
				Lifetime: plan.DefaultLifetime, Now: at,
			}})
		},
	}
	for kind, decide := range provider {
		request := story.First[*certificatesv1.CertificateSigningRequest](decide(nil, now.Add(9*day)).Objects)
		if request == nil || request.Spec.ExpirationSeconds == nil || *request.Spec.ExpirationSeconds != 30*24*60*60 {
			t.Errorf("%s: the request to the signer is %v", kind, request)
		}
		silent := &certificatesv1.CertificateSigningRequest{}
		for _, c := range []struct {
			name    string
			signing *certificatesv1.CertificateSigningRequest
			after   time.Duration
			told    bool
		}{
			{"fresh", nil, 0, false}, {"asked", silent, 9 * day, false}, {"silent", silent, 11 * day, true}, {"refused", refused, 9 * day, true},
		} {
			tellsEnd(t, kind+" "+c.name, c.told, decide(c.signing, now.Add(c.after)), decide(c.signing, now.Add(c.after+day)))
		}
	}
	drained := holding(control, refused, now.Add(11*day))
	drained.Root.Spec.TenantCondition = authv1beta1.TenantDrained
	if p := plan.Tenant(drained); p.State != desired.Ready || p.Degraded.State != desired.Ready {
		t.Errorf("a drained Tenant waits for a certificate: %s", p.Degraded.Message)
	}
	identity := func(kind authv1beta1.IdentityType, certificate []byte, at time.Time) desired.Plan {
		return plan.Identity(plan.IdentityInput{
			ClusterID: "milan", Keys: plan.Keys{Own: known{}.private("milan")}, Now: at,
			Root: &authv1beta1.Identity{Spec: authv1beta1.IdentitySpec{
				ClusterID: "rome", Type: kind, AuthParams: &authv1beta1.AuthParams{APIServer: "https://rome", SignedCRT: certificate},
			}},
			ControlPlane: &authv1beta1.Identity{Spec: authv1beta1.IdentitySpec{
				Type: authv1beta1.IdentityControlPlane, AuthParams: &authv1beta1.AuthParams{APIServer: "https://rome"},
			}},
		})
	}
	slice := func(at time.Time) desired.Plan {
		root := copied("milan", "big")
		root.Namespace, root.Spec.ProviderClusterID = "liqo-tenant-rome", "rome"
		root.Labels = map[string]string{api.LabelReplication: api.True, api.LabelRemoteID: "rome", api.LabelRemoteClusterID: "rome"}
		root.Status.AuthParams = &authv1beta1.AuthParams{APIServer: "https://rome", SignedCRT: user}
		for _, c := range []authv1beta1.ResourceSliceConditionType{authv1beta1.ResourceSliceAuthentication, authv1beta1.ResourceSliceResources} {
			root.Status.Conditions = append(root.Status.Conditions, authv1beta1.ResourceSliceCondition{Type: c, Status: authv1beta1.ResourceSliceAccepted})
		}
		return plan.Slice(plan.SliceInput{Asked: &plan.AskedSlice{
			Root: root, ClusterID: "milan", NamespacePeer: "rome", Keys: plan.Keys{Own: known{}.private("milan")}, RemoteNamespace: "liqo-tenant-milan", Now: at,
		}})
	}
	for kind, decide := range map[string]func(time.Time) desired.Plan{
		"Identity of a control plane": func(at time.Time) desired.Plan { return identity(authv1beta1.IdentityControlPlane, control, at) },
		"Identity of a slice":         func(at time.Time) desired.Plan { return identity(authv1beta1.IdentityResourceSlice, user, at) },
		"ResourceSlice here":          slice,
	} {
		tellsEnd(t, kind+" in time", false, decide(now.Add(9*day)), decide(now.Add(9*day)))
		tellsEnd(t, kind+" late", true, decide(now.Add(11*day)), decide(now.Add(20*day)))
		if p := decide(now); p.RequeueAfter != 10*day {
			t.Errorf("%s is looked at again after %s", kind, p.RequeueAfter)
		}
	}
}

// TestAttackFormerClientCA: somebody has got the key of the CA that signs for consumers, so the provider replaces the
// CA. The certificates of its consumers are still those of the former one.
//
// Outcome: they are issued anew as soon as the API server publishes that it trusts the new CA only, and conditions say
// so. A signer that goes on with the former CA does not replace them again and again: a condition says what to change.
func TestAttackFormerClientCA(t *testing.T) {
	held := certified(t, "milan") // by key "signer"
	former, present := authorityOf("signer"), authorityOf("another")
	asked := func(certificate []byte) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: certificate}}
	}
	again := decoded(t, known{}.certificate("milan", "milan", api.ControlPlaneOrganization, 15, 31))
	fresh := signedBy("another", present, "milan", "milan", api.ControlPlaneOrganization)
	for _, c := range []struct {
		name     string
		cas      []byte
		signing  *certificatesv1.CertificateSigningRequest
		asks     bool
		lacks    string
		used     []byte
		mentions string
	}{
		{name: "not known", cas: nil, used: held},
		{name: "not readable", cas: pemOf("CERTIFICATE", []byte("garbage")), used: held},
		{name: "another kind", cas: pemOf("PUBLIC KEY", []byte("garbage")), used: held},
		{name: "the same", cas: former, used: held},
		{name: "both", cas: append(bytes.Clone(present), former...), used: held},
		{name: "replaced", cas: present, asks: true, lacks: plan.ReasonCertificateUntrusted, used: held, mentions: "liqoctl authenticate"},
		{name: "signed anew", cas: present, signing: asked(fresh), asks: true, used: fresh},
		{name: "signed with the former", cas: present, signing: asked(again), asks: true, lacks: plan.ReasonCertificateUntrusted, used: held, mentions: "delete the CertificateSigningRequest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := holding(held, c.signing, now)
			in.ClientCAs = c.cas
			p := plan.Tenant(in)
			if request := story.First[*certificatesv1.CertificateSigningRequest](p.Objects); p.State != desired.Ready || (request != nil) != c.asks {
				t.Errorf("%s %s, request to the signer: %v", p.Reason, p.Message, request != nil)
			}
			if used := p.Status.(*authv1beta1.Tenant).Status.AuthParams.SignedCRT; !bytes.Equal(used, c.used) {
				t.Errorf("the consumer gets %s", used)
			}
			if p.Degraded.Reason != c.lacks || !strings.Contains(p.Degraded.Message, c.mentions) {
				t.Errorf("lacks %s: %s", p.Degraded.Reason, p.Degraded.Message)
			}
		})
	}
	t.Run("slice", func(t *testing.T) {
		root := copied("milan", "big")
		root.Status.AuthParams = &authv1beta1.AuthParams{
			SignedCRT: decoded(t, known{}.certificate("milan", api.ResourceSliceUserName("big", "milan"), "milan", 10, 30)),
		}
		p := plan.Slice(plan.SliceInput{Granted: &plan.GrantedSlice{
			Root: root, Tenant: admitted("milan"), Offer: plan.Offer{DefaultClass: true}, APIServer: atRome, ClientCAs: present, Now: now,
		}})
		if p.Degraded.Reason != plan.ReasonCertificateUntrusted || story.First[*certificatesv1.CertificateSigningRequest](p.Objects) == nil {
			t.Errorf("lacks %s: %s", p.Degraded.Reason, p.Degraded.Message)
		}
	})
}

// authorityOf is the certificate (PEM) of the CA whose key is made of a name.
func authorityOf(name string) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotAfter: now.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true,
	}
	return pemOf("CERTIFICATE", must(x509.CreateCertificate(nil, template, template, key(name).Public(), key(name))))
}

// signedBy is a certificate for a key made of a name, of a CA.
func signedBy(ca string, authority []byte, holder, user, group string) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: []string{group}}, NotBefore: now, NotAfter: now.AddDate(0, 1, 0),
	}
	parent := must(plan.ParseCertificate(authority))
	return pemOf("CERTIFICATE", must(x509.CreateCertificate(nil, template, parent, key(holder).Public(), key(ca))))
}

// holding is milan's Tenant at rome with its certificate.
func holding(certificate []byte, signing *certificatesv1.CertificateSigningRequest, at time.Time) plan.TenantInput {
	root := admitted("milan")
	root.Status.AuthParams = &authv1beta1.AuthParams{SignedCRT: certificate}
	return plan.TenantInput{
		Root: root, Signing: signing, APIServer: atRome, Lifetime: plan.DefaultLifetime, Now: at,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root.Namespace, Labels: map[string]string{
			api.LabelTenantNamespace: "true", api.LabelRemoteClusterID: "milan",
		}}},
	}
}

// tellsEnd checks that a plan in use reports, or does not, that its certificate was not renewed, the same at a later time.
func tellsEnd(t *testing.T, name string, told bool, p, later desired.Plan) {
	t.Helper()
	want := ""
	if told {
		want = plan.ReasonCertificateNotRenewed
	}
	if p.State != desired.Ready || p.Degraded.Reason != want || told && !strings.Contains(p.Degraded.Message, "2026-01-30T12:00:00Z") {
		t.Errorf("%s: %s %s, lacks %s: %s", name, p.Reason, p.Message, p.Degraded.Reason, p.Degraded.Message)
	}
	if told && later.Degraded != p.Degraded {
		t.Errorf("%s: a condition that changes: %s", name, later.Degraded.Message)
	}
}

// aboveCapacity is the warning that a grant exceeds what the nodes have; empty = there is none.
func aboveCapacity(p desired.Plan) string {
	for _, e := range p.Events {
		if e.Reason == "GrantAboveCapacity" && e.Type == corev1.EventTypeWarning {
			return e.Message
		}
	}
	return ""
}
