// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
)

// TestStories plans for the first document of each story and compares the whole plan. In every
// story all clocks stand at noon of 15 January 2026, keys are made of their names, this cluster
// is "milan" when it consumes and "rome" provides.
func TestStories(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		objects, names := documents(t, s)
		full := decide(t, objects)
		s.Expect(t, "plan.yaml", names.tell(t, objects[0], full))
		if full.State == desired.Ready {
			keepsWhatItGranted(t, objects, full)
		}
	})
}

// keepsWhatItGranted: whatever single input is not seen, nothing that was granted is pruned and
// nothing more is deleted. The request to the signer is no grant, nor is a mailbox: its consumer makes it anew.
func keepsWhatItGranted(t *testing.T, objects []client.Object, full desired.Plan) {
	t.Helper()
	for i := 1; i < len(objects); i++ {
		part := decide(t, slices.Delete(slices.Clone(objects), i, i+1))
		if part.State != desired.Ready {
			continue
		}
		have := names(part.Objects)
		for _, obj := range full.Objects {
			if _, request := obj.(*certificatesv1.CertificateSigningRequest); !request && !slices.Contains(have, name(obj)) {
				t.Errorf("without %s the plan is Ready and prunes %s", name(objects[i]), name(obj))
			}
		}
		for _, gone := range story.Deleted(part) {
			if _, mailbox := gone.(*authv1beta1.Renew); !mailbox && !slices.Contains(names(story.Deleted(full)), name(gone)) {
				t.Errorf("without %s the plan deletes %s", name(objects[i]), name(gone))
			}
		}
	}
}

// decide plans for the first object with the others as what Gather saw.
func decide(t *testing.T, objects []client.Object) desired.Plan {
	t.Helper()
	keys := plan.Keys{Own: known{}.private("milan"), Shared: known{}.private("shared")}
	switch root := objects[0].(type) {
	case *corev1.Namespace:
		in := plan.PeerKeysInput{
			Root: root, Name: client.ObjectKey{Namespace: "liqo", Name: api.PeerKeysSecretName(root.Name)},
			Keys: story.First[*corev1.Secret](objects),
		}
		if in.Keys == nil {
			in.NewKey = key("milan")
		}
		return plan.PeerKeys(in)
	case *corev1.Secret:
		return plan.Nonce(plan.NonceInput{
			Root: root, Tenant: namespaceOf(objects).Labels[api.LabelTenantNamespace] == "true",
			Tenants: story.Values[*authv1beta1.Tenant](objects),
			Random:  bytes.Repeat([]byte{7}, plan.NonceSize), Keys: keys,
		})
	case *authv1beta1.Tenant:
		in := plan.TenantInput{
			Root: root, Namespace: namespaceOf(objects), Signing: story.First[*certificatesv1.CertificateSigningRequest](objects),
			Tenants: story.Values[*authv1beta1.Tenant](objects), Slices: story.Values[*authv1beta1.ResourceSlice](objects),
			Maps: story.Values[*offv1beta1.NamespaceMap](objects), Renews: story.Values[*authv1beta1.Renew](objects), RoleBindings: story.Values[*rbacv1.RoleBinding](objects),
			ClusterRoleBindings: story.Values[*rbacv1.ClusterRoleBinding](objects), APIServer: apiServer(objects), Lifetime: plan.DefaultLifetime, Now: now,
			AllSlices: story.Values[*authv1beta1.ResourceSlice](objects),
		}
		in.Nonces = story.Values[*corev1.Secret](objects)
		for _, binding := range story.Values[*rbacv1.RoleBinding](objects) {
			if binding.Name == api.BindingRemoteControlPlane {
				in.ControlPlaneBinding = &binding
			}
		}
		return plan.Tenant(in)
	case *authv1beta1.Identity:
		in := plan.IdentityInput{
			Root: root, ClusterID: "milan", Keys: keys, Renew: story.First[*authv1beta1.Renew](objects),
			Configurations: story.Values[*netv1beta1.Configuration](objects), NamespacePeer: namespaceOf(objects).Labels[api.LabelRemoteClusterID], Now: now,
		}
		for _, secret := range story.Values[*corev1.Secret](objects) {
			if secret.Name == api.KubeconfigSecretName(root.Name) {
				in.Kubeconfig = &secret
			} else {
				in.ControlPlaneSecrets = append(in.ControlPlaneSecrets, secret)
			}
		}
		for _, other := range story.Values[*authv1beta1.Identity](objects) {
			if other.Name == api.ControlPlaneIdentityName(root.Spec.ClusterID) {
				in.ControlPlane = &other
			}
		}
		return plan.Identity(in)
	case *authv1beta1.Renew:
		return plan.Renew(plan.RenewInput{Root: root, Tenants: story.Values[*authv1beta1.Tenant](objects)})
	case *authv1beta1.ResourceSlice:
		return plan.Slice(sliceInput(objects, root, keys))
	}
	t.Fatalf("no plan for %T", objects[0])
	return desired.Plan{}
}

func sliceInput(objects []client.Object, root *authv1beta1.ResourceSlice, keys plan.Keys) plan.SliceInput {
	if plan.Replicated(root) {
		// A control plane without taints stands for the API server only.
		nodes := slices.DeleteFunc(story.Values[*corev1.Node](objects), func(node corev1.Node) bool {
			return plan.ControlPlaneNode(&node) && len(node.Spec.Taints) == 0
		})
		return plan.SliceInput{Granted: &plan.GrantedSlice{
			Root: root, Nodes: nodes, Tenant: plan.Admitted(story.Values[*authv1beta1.Tenant](objects)), Slices: story.Values[*authv1beta1.ResourceSlice](objects),
			Signing:        story.First[*certificatesv1.CertificateSigningRequest](objects),
			StorageClasses: story.Values[*storagev1.StorageClass](objects), Offer: offer(objects), APIServer: apiServer(objects), Lifetime: plan.DefaultLifetime, Now: now,
			Users: plan.Users{
				ClusterIDs: []string{"rome"}, Tenants: story.Values[*authv1beta1.Tenant](objects), Slices: story.Values[*authv1beta1.ResourceSlice](objects),
				RoleBindings: story.Values[*rbacv1.RoleBinding](objects), ClusterRoleBindings: story.Values[*rbacv1.ClusterRoleBinding](objects),
			},
		}}
	}
	in := &plan.AskedSlice{
		Root: root, ClusterID: "milan", Keys: keys, Slices: story.Values[*authv1beta1.ResourceSlice](objects),
		VirtualNode: story.First[*offv1beta1.VirtualNode](objects), Now: now,
	}
	for _, identity := range story.Values[*authv1beta1.Identity](objects) {
		if identity.Name == api.ResourceSliceIdentityName(root.Name) {
			in.Identity = &identity
		} else {
			in.ControlPlane = &identity
		}
	}
	if ns := namespaceOf(objects); ns.Labels[api.LabelTenantNamespace] == "true" {
		in.NamespacePeer = ns.Labels[api.LabelRemoteClusterID]
	}
	for _, secret := range story.Values[*corev1.Secret](objects) {
		if secret.Name == api.KubeconfigSecretName(api.ResourceSliceIdentityName(root.Name)) {
			in.Kubeconfig = &secret
		} else {
			in.RemoteNamespace = secret.Annotations[api.AnnotationRemoteTenantNamespace]
			in.ControlPlaneSecrets = append(in.ControlPlaneSecrets, secret)
		}
	}
	return plan.SliceInput{Asked: in}
}

// offer is the same in all stories, but that a ConfigMap called default-class-disabled stands
// for that switch.
func offer(objects []client.Object) plan.Offer {
	return plan.Offer{
		Defaults:     corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
		DefaultClass: story.First[*corev1.ConfigMap](objects) == nil,
		IngressClasses: []authv1beta1.IngressType{
			{IngressClassName: "nginx", Default: true},
		},
		NodeLabels: map[string]string{"topology.kubernetes.io/region": "lazio"}, Enforcement: offv1beta1.SoftLimitsEnforcement,
		Tell: plan.Tell{DeclaredFeatures: true, Architecture: true, System: true},
	}
}

// apiServer is that of the control-plane node in the story.
func apiServer(objects []client.Object) plan.APIServer {
	return plan.APIServer{Address: plan.NodeAPIServer(story.Values[*corev1.Node](objects)), CA: []byte("rome's CA")}
}

var now = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

func namespaceOf(objects []client.Object) *corev1.Namespace {
	for _, namespace := range story.Values[*corev1.Namespace](objects) {
		if namespace.Name == objects[0].GetNamespace() {
			return &namespace
		}
	}
	return &corev1.Namespace{}
}

func name(obj client.Object) string {
	return fmt.Sprintf("%s %s/%s", kind(obj), obj.GetNamespace(), obj.GetName())
}

func kind(obj client.Object) string {
	text := fmt.Sprintf("%T", obj)
	return text[strings.LastIndex(text, ".")+1:]
}

func names[O client.Object](objects []O) []string {
	var out []string
	for _, obj := range objects {
		out = append(out, name(obj))
	}
	return out
}

// documents decodes the YAML of a story, after its keys, requests and certificates are made.
func documents(t *testing.T, s *story.Story) ([]client.Object, known) {
	t.Helper()
	made := known{}
	made.request("milan", "milan", api.ControlPlaneOrganization)
	made.request("milan", api.ResourceSliceUserName("big", "milan"), "milan")
	made.private("milan")
	made.public("milan")
	made.private("shared")
	made.public("shared")
	made.request("shared", "milan", api.ControlPlaneOrganization)
	made.request("shared", api.ResourceSliceUserName("big", "milan"), "milan")
	made.private("milan-before")
	made.public("milan-before")
	var text bytes.Buffer
	parsed, err := template.New("story").Funcs(template.FuncMap{
		"private": made.private, "public": made.public, "kubeconfig": made.kubeconfig, "request": made.request, "certificate": made.certificate, "sign": made.sign, "base64": encode, "nonce": nonce,
	}).Parse(string(s.Files[0].Data))
	if err == nil {
		err = parsed.Execute(&text, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return story.Objects(t, text.Bytes()), made
}

// known maps the base64 of what a story made to the call that made it.
type known map[string]string

func (k known) note(call string, data []byte) string {
	text := encode(string(data))
	k[text] = "<" + call + ">"
	return text
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// nonce is made of its name.
func nonce(name string) string {
	sum := sha512.Sum512([]byte(name))
	return encode(string(sum[:]))
}

// key is made of its name: stories must not change from run to run.
func key(name string) crypto.Signer {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (k known) private(name string) []byte {
	data := must(plan.EncodePrivateKey(key(name)))
	k.note("private "+name, data)
	return data
}

// kubeconfig is one with a key, as far as it matters.
func (k known) kubeconfig(name string) string {
	return encode("users: [{user: {client-key-data: " + encode(string(k.private(name))) + "}}]")
}

func (k known) public(name string) string {
	return k.note("public "+name, must(plan.EncodePublicKey(key(name).Public())))
}

func (k known) sign(name, message string) string {
	return k.note(fmt.Sprintf("sign %s %q", name, message), must(plan.Sign(key(name), []byte(message))))
}

func (k known) request(name, user, group string) string {
	data := must(plan.NewRequest(key(name), plan.Subject{User: user, Group: group}))
	return k.note(fmt.Sprintf("request %s %s %s", name, user, group), data)
}

// certificate is valid from one day to another, both in January 2026.
func (k known) certificate(name, user, group string, from, to int) string {
	call := fmt.Sprintf("certificate %s %s %s %d %d", name, user, group, from, to)
	serial := sha256.Sum256([]byte(call))
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:8]),
		Subject:      pkix.Name{CommonName: user, Organization: []string{group}},
		NotBefore:    time.Date(2026, 1, from, 12, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2026, 1, to, 12, 0, 0, 0, time.UTC),
	}
	der := must(x509.CreateCertificate(nil, template, template, key(name).Public(), key("signer")))
	return k.note(call, pemOf("CERTIFICATE", der))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// told is a plan as a story shows it.
type told struct {
	Verdict string           `json:"verdict"`
	Lacks   string           `json:"lacks,omitempty"`
	After   string           `json:"after,omitempty"`
	Fill    any              `json:"fill,omitempty"`
	Status  any              `json:"status,omitempty"`
	Objects []map[string]any `json:"objects,omitempty"`
	Delete  []string         `json:"delete,omitempty"`
	Events  []string         `json:"events,omitempty"`
}

var requestName = regexp.MustCompile(api.CSRGenerateName + "[0-9a-f]{16}")

// tell prints a plan; what the story made appears as the call that made it.
func (k known) tell(t *testing.T, root client.Object, p desired.Plan) string {
	t.Helper()
	out := told{Verdict: verdict(p.Verdict), Delete: names(story.Deleted(p))}
	if p.Degraded.State != desired.Ready {
		out.Lacks = verdict(p.Degraded)
	}
	if p.RequeueAfter != 0 {
		out.After = p.RequeueAfter.String()
	}
	if p.Fill != nil {
		out.Fill = changes(plain(t, root), plain(t, p.Fill))
	}
	if p.Status != nil {
		out.Status = plain(t, p.Status)["status"]
	}
	for _, obj := range p.Objects {
		content := plain(t, obj)
		content["kind"] = kind(obj)
		if data, ok := content["data"].(map[string]any); ok {
			k.readable(data)
		}
		out.Objects = append(out.Objects, content)
	}
	for _, e := range p.Events {
		when := ""
		if e.Object != nil {
			when = " when " + kind(e.Object) + " is created"
		}
		out.Events = append(out.Events, e.Reason+when+": "+e.Message)
	}
	text := string(must(yaml.Marshal(out)))
	for _, data := range slices.SortedFunc(maps.Keys(k), func(a, b string) int { return len(b) - len(a) }) {
		text = strings.ReplaceAll(text, data, k[data])
	}
	return requestName.ReplaceAllString(text, api.CSRGenerateName+"<hash>")
}

func verdict(v desired.Verdict) string {
	text := []string{"Ready", "Waiting", "Blocked"}[v.State]
	if v.Reason != "" {
		text += " " + v.Reason + ": " + v.Message
	}
	return text
}

// readable decodes the values of a Secret that the story did not make.
func (k known) readable(data map[string]any) {
	for field, value := range data {
		text, _ := value.(string)
		if _, made := k[text]; made {
			continue
		}
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			data[field] = string(decoded)
		}
	}
}

func plain(t *testing.T, obj client.Object) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	prune(content)
	return content
}

// prune drops empty values, which say nothing.
func prune(content map[string]any) {
	for field, value := range content {
		if inner, ok := value.(map[string]any); ok {
			prune(inner)
			if len(inner) == 0 {
				delete(content, field)
			}
		}
		if value == nil {
			delete(content, field)
		}
	}
}

// changes keeps what differs; nil stands for what is gone.
func changes(before, after map[string]any) map[string]any {
	out := map[string]any{}
	for field, value := range after {
		old := before[field]
		was, _ := old.(map[string]any)
		if is, ok := value.(map[string]any); ok {
			if inner := changes(was, is); len(inner) > 0 {
				out[field] = inner
			}
		} else if !bytes.Equal(must(json.Marshal(old)), must(json.Marshal(value))) {
			out[field] = value
		}
	}
	for field := range before {
		if _, ok := after[field]; !ok {
			out[field] = nil
		}
	}
	return out
}
