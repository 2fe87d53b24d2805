// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/story"
)

// example is a template that users start from: the chart's, with one change.
type example struct {
	name, says string
	// values make the chart's template the example, where it has a value for it.
	values string
	// change does it where the chart has none; container is the gateway's. Nil changes nothing.
	change func(container, template map[string]any)
	// serverOnly: the client needs no change.
	serverOnly bool
	// got is what to see in the Deployment and the Service, one of them, as text.
	got string
}

func examples() []example {
	return []example{{
		name: "two-replicas", got: "replicas: 2",
		says:   "Two gateway pods: one carries the traffic, the other takes over when it goes.",
		values: "networking: {gatewayTemplates: {replicas: 2}}",
	}, {
		name: "node-selector", got: "example.com/gateway: \"true\"",
		says:   "Gateways run only on nodes labelled example.com/gateway=true: with a public address, for example.",
		values: "networking: {gatewayTemplates: {pod: {nodeSelector: {example.com/gateway: \"true\"}}}}",
	}, {
		name: "target-port", got: "targetPort: 51820", serverOnly: true,
		says: "The Service listens on the gateway's port, the pods behind it on port 51820. For gateways of one port.",
		change: func(container, template map[string]any) {
			setArgument(container, "--listen-ports", "51820")
			ports, _, _ := unstructured.NestedSlice(template, "service", "spec", "ports")
			ports[0].(map[string]any)["targetPort"] = int64(51820)
			_ = unstructured.SetNestedSlice(template, ports, "service", "spec", "ports")
		},
	}, {
		name: "no-ping", got: "--ping-enabled=false",
		says: "No pings inside the tunnel but until the first is answered: nothing is sent when there is no traffic, and\n# the Connection does not tell when the peer is lost.",
		change: func(container, _ map[string]any) {
			args := container["args"].([]any)
			args = slices.DeleteFunc(args, func(a any) bool { return strings.HasPrefix(fmt.Sprint(a), "--ping-") })
			container["args"] = append(args, "--ping-enabled=false")
		},
	}, {
		name: "tcp", got: "--protocol=TCP",
		says: "The tunnel over one TCP connection, for networks that block UDP. Both sides need it. A gateway can\n# also ask for it alone: spec.endpoint.protocol: TCP.",
		change: func(container, template map[string]any) {
			container["args"] = append(container["args"].([]any), "--protocol=TCP")
			if ports, found, _ := unstructured.NestedSlice(template, "service", "spec", "ports"); found {
				ports[0].(map[string]any)["protocol"] = "TCP"
				_ = unstructured.SetNestedSlice(template, ports, "service", "spec", "ports")
			}
		},
	}}
}

func setArgument(container map[string]any, name, value string) {
	args := container["args"].([]any)
	for i, a := range args {
		if flag, _, _ := strings.Cut(fmt.Sprint(a), "="); flag == name {
			args[i] = name + "=" + value
		}
	}
}

// manifests returns the complete templates of the example.
func (e example) manifests(t *testing.T) string {
	t.Helper()
	templates := chartTemplates(t, []byte(e.values+"\nipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}\n"))
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# Reference it in a gateway, e.g. spec.serverTemplateRef.name: wireguard-server-%s;\n# put the image of your installation in, where it is another.\n", e.says, e.name)
	for _, mode := range []string{"Server", "Client"} {
		if mode == "Client" && e.serverOnly {
			continue
		}
		u := templates["WgGateway"+mode+"Template"]
		u.Object["metadata"] = map[string]any{"name": "wireguard-" + strings.ToLower(mode) + "-" + e.name, "namespace": "liqo"}
		if e.change != nil {
			spec, _, _ := unstructured.NestedMap(u.Object, "spec", "template", "spec")
			pod := []string{"deployment", "spec", "template", "spec", "containers"}
			containers, _, _ := unstructured.NestedSlice(spec, pod...)
			e.change(containers[0].(map[string]any), spec)
			must(t, errors.Join(unstructured.SetNestedSlice(spec, containers, pod...), unstructured.SetNestedMap(u.Object, spec, "spec", "template", "spec")))
		}
		text, err := yaml.Marshal(u.Object)
		must(t, err)
		b.WriteString("---\n" + string(text))
	}
	return b.String()
}

// showsExamples checks that each example is the chart's current template with its one change
// (-update writes it), that an API server accepts it, and that a gateway made from it has the
// change.
func (c cluster) showsExamples(t *testing.T) {
	documented, err := os.ReadFile("../docs/network.md")
	must(t, err)
	for _, e := range examples() {
		file, want := filepath.Join("..", "examples", "networking", e.name+".yaml"), e.manifests(t)
		story.File(t, file, want)
		if !bytes.Contains(documented, []byte(e.name+".yaml")) {
			t.Errorf("docs/network.md does not name %s", file)
		}
		for _, template := range parsed(t, want) {
			must(t, client.WithFieldValidation(c.Client, metav1.FieldValidationStrict).Create(t.Context(), template))
			c.eventuallyRuns(t, e, template)
		}
	}
}

// eventuallyRuns creates a gateway from a template and waits until its workload has the change.
func (c cluster) eventuallyRuns(t *testing.T, e example, template *unstructured.Unstructured) {
	t.Helper()
	mode := "Client"
	endpoint := "addresses: [172.31.10.11], port: 30742, protocol: UDP"
	if template.GetKind() == "WgGatewayServerTemplate" {
		mode, endpoint = "Server", "port: 51840, serviceType: NodePort"
	}
	name := strings.ToLower(mode) + "-" + e.name
	create(t, c, parsed(t, fmt.Sprintf(`
apiVersion: networking.liqo.io/v1beta1
kind: Gateway%s
metadata: {name: %s, namespace: default, labels: {liqo.io/remote-cluster-id: %s}}
spec: {endpoint: {%s}, %sTemplateRef: {name: %s, namespace: liqo}}
`, mode, name, name, endpoint, strings.ToLower(mode), template.GetName()))[0])
	eventually(t, "the Deployment of gateway "+name, func() error {
		key := types.NamespacedName{Namespace: "default", Name: "gw-" + name}
		var d appsv1.Deployment
		var s corev1.Service
		err := c.Get(t.Context(), key, &d)
		if mode == "Server" {
			err = errors.Join(err, c.Get(t.Context(), key, &s))
		}
		text, _ := yaml.Marshal([]any{d.Spec, s.Spec})
		if err == nil && !strings.Contains(string(text), e.got) {
			err = fmt.Errorf("%s lacks %q:\n%s", key, e.got, text)
		}
		return err
	})
}

const fancy = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fancies.vpn.example.com}
spec:
  group: vpn.example.com
  scope: Namespaced
  names: {kind: Fancy, plural: fancies, singular: fancy}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: fancy, namespace: liqo}
spec:
  objectKind: {apiVersion: vpn.example.com/v1, kind: Fancy}
  template:
    spec: {listen: "{{ .Spec.Endpoint.Port }}", cluster: "{{ .ClusterID }}"}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: fancy, namespace: default, labels: {liqo.io/remote-cluster-id: oslo}}
spec: {endpoint: {port: 4500}, serverTemplateRef: {name: fancy, namespace: liqo}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: oslo, namespace: default, labels: {liqo.io/remote-cluster-id: oslo}}
spec: {remote: {cidr: {pod: [10.30.0.0/16], external: [10.90.0.0/16]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: oslo, namespace: default, labels: {liqo.io/remote-cluster-id: oslo, networking.liqo.io/gateway-resource: "true"}}
spec: {publicKey: 17XoHTNuV4sTuNcG6C0GHjA4yWvOZs3PUNVmuW3buhA=}
`

// TestTemplates changes, breaks and corrects templates while their gateways run. A gateway of
// another technology is connected like Liqo's own, whatever runs it.
func TestTemplates(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	for _, obj := range append(parsed(t, installed), append(parsed(t, peering), parsed(t, onNodePort)...)...) {
		create(t, c, obj)
	}
	template := chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}"))["WgGatewayServerTemplate"]
	create(t, c, template)
	deployed := func() appsv1.DeploymentSpec {
		var d appsv1.Deployment
		must(t, client.IgnoreNotFound(c.Get(t.Context(), types.NamespacedName{Namespace: "liqo-tenant-milan", Name: "gw-gw"}, &d)))
		return d.Spec
	}
	says := func(want string) func() error {
		return func() error {
			var gw netv1beta1.GatewayServer
			err := c.Get(t.Context(), types.NamespacedName{Namespace: "liqo-tenant-milan", Name: "gw"}, &gw)
			if got := message(gw.Status.Conditions); got != want && (want == "" || !strings.Contains(got, want)) {
				return errors.Join(err, fmt.Errorf("the gateway says %q, want %q", got, want))
			}
			return err
		}
	}
	change := func(patch string) {
		at := `{"spec": {"template": {"spec": {"deployment": {"spec": {"template": {"spec": ` + patch + `}}}}}}}`
		must(t, c.Patch(t.Context(), template.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(at))))
	}
	eventually(t, "the condition of the gateway", says(""))

	change(`{"nodeSelector": {"zone": "{{ .ClusterID }}"}, "priorityClassName": "high"}`)
	eventually(t, "the changed template in the Deployment", func() error {
		pod := deployed().Template.Spec
		return errors.Join(equal(map[string]string{"zone": "milan"}, pod.NodeSelector), equal("high", pod.PriorityClassName))
	})
	change(`{"nodeSelector": null}`)
	eventually(t, "a Deployment without node selector", func() error { return equal(0, len(deployed().Template.Spec.NodeSelector)) })

	change(`{"priorityClassName": "{{ .Spec.Prio }}"}`)
	eventually(t, "the condition of the gateway", says("WgGatewayServerTemplate liqo/wireguard-server, spec.template.spec.deployment.spec.template.spec.priorityClassName: line 1: <.Spec.Prio>: can't evaluate field Prio; correct the template"))
	change(`{"priorityClassName": null, "hostNetwork": "perhaps"}`)
	eventually(t, "the condition of the gateway", says(".spec.deployment.spec.template.spec.hostNetwork"))
	change(`{"hostNetwork": null, "dnsPolicy": "Sometimes"}`)
	eventually(t, "the condition of the gateway", says(`spec.template.spec.dnsPolicy: Unsupported value: "Sometimes"`))
	if got := deployed().Template.Spec.PriorityClassName; got != "high" {
		t.Errorf("a broken template changed the gateway: priorityClassName %q", got)
	}
	change(`{"dnsPolicy": null}`)
	eventually(t, "the condition of the gateway", says(""))
	eventually(t, "a Deployment without priority class", func() error { return equal("", deployed().Template.Spec.PriorityClassName) })

	t.Run("of another technology", c.connectsFancy)
	t.Run("of no technology", c.rendersNoNamespace)
	t.Run("examples", c.showsExamples)
	t.Run("of the original", c.runsOriginals)
}

// runsOriginals checks that an API server accepts what templates of the original lead to, and that
// gateways name what of them has no effect.
func (c cluster) runsOriginals(t *testing.T) {
	story.Each(t, "testdata/original/*.txtar", func(t *testing.T, s *story.Story) {
		name := strings.TrimPrefix(t.Name()[strings.LastIndex(t.Name(), "/"):], "/")
		mine := strings.NewReplacer("liqo-tenant-milan", "default", "milan", name, ", nodePort: 30742", "",
			"wireguard-server-", "original-server-", "wireguard-client-", "original-client-") // examples have these names
		for _, obj := range parsed(t, mine.Replace(string(s.Part("template.yaml"))+"---\n"+string(s.Part("gateway.yaml")))) {
			must(t, client.WithFieldValidation(c.Client, metav1.FieldValidationStrict).Create(t.Context(), obj))
		}
		key := types.NamespacedName{Namespace: "default", Name: name}
		eventually(t, "the condition of gateway "+name, func() error {
			var server netv1beta1.GatewayServer
			var dialer netv1beta1.GatewayClient
			err := c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "gw-" + name}, &appsv1.Deployment{})
			for _, obj := range []client.Object{&server, &dialer} { // one of them is there
				err = errors.Join(err, client.IgnoreNotFound(c.Get(t.Context(), key, obj)))
			}
			says := meta.FindStatusCondition(slices.Concat(server.Status.Conditions, dialer.Status.Conditions), netv1beta1.ConditionTemplateReduced)
			if err == nil && (says == nil || !strings.Contains(says.Message, "--container-name=gateway")) {
				err = fmt.Errorf("the gateway says %v", says)
			}
			return err
		})
	})
}

// rendersNoNamespace checks that users who may create gateways cannot make the controller create,
// or take over, objects that they may not create.
func (c cluster) rendersNoNamespace(t *testing.T) {
	t.Helper()
	gw := &netv1beta1.GatewayServer{
		ObjectMeta: metav1.ObjectMeta{Name: "captured", Namespace: "default", Labels: map[string]string{"liqo.io/remote-cluster-id": "thief"}},
		Spec: netv1beta1.GatewayServerSpec{
			Endpoint:          &netv1beta1.Endpoint{Port: 51840},
			ServerTemplateRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "default"},
		},
	}
	must(t, c.Create(t.Context(), gw))
	eventually(t, "the refusal of kind Namespace", func() error {
		return errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(gw), gw), equal("TemplateKindInvalid: kind Namespace (v1) is not a gateway kind: "+
			"kinds of Kubernetes (of groups without a dot, or of *.k8s.io) and other kinds of *.liqo.io are refused, because the controller would write them for whoever creates gateways; "+
			"reference a WgGatewayServerTemplate, or a template of another technology", message(gw.Status.Conditions)))
	})
	if err := c.Get(t.Context(), types.NamespacedName{Name: "captured"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace of the gateway's name: %v", err)
	}
	must(t, c.Delete(t.Context(), gw))
}

// connectsFancy connects a gateway of a third party's kind, once the chart grants the rights.
func (c cluster) connectsFancy(t *testing.T) {
	t.Helper()
	for _, obj := range parsed(t, fancy) {
		create(t, c, obj)
	}
	key := types.NamespacedName{Namespace: "default", Name: "fancy"}
	var gw netv1beta1.GatewayServer
	eventually(t, "the condition that the right to read kind Fancy is missing", func() error {
		err := c.Get(t.Context(), key, &gw)
		return errors.Join(err, equal("RightsMissing: the controller may not read kind Fancy; add it to the chart's values "+
			"networking.serverResources and networking.clientResources", message(gw.Status.Conditions)))
	})
	for _, obj := range parsed(t, rendered(t, []byte("networking: {serverResources: [{apiVersion: vpn.example.com/v1, resource: fancies}]}"), "rbac.yaml")) {
		if obj.GetKind() == "ClusterRole" {
			must(t, c.Update(t.Context(), obj))
		}
	}
	tunnel := &unstructured.Unstructured{}
	tunnel.SetAPIVersion("vpn.example.com/v1")
	tunnel.SetKind("Fancy")
	eventually(t, "the Fancy of the gateway", func() error {
		return errors.Join(c.Get(t.Context(), key, tunnel), equal[any](map[string]any{"listen": int64(4500), "cluster": "oslo"}, tunnel.Object["spec"]))
	})
	must(t, c.Status().Patch(t.Context(), tunnel, client.RawPatch(types.MergePatchType, []byte(`{"status": {
		"endpoint": {"addresses": ["203.0.113.7"], "port": 4500, "protocol": "UDP"},
		"internalEndpoint": {"ip": "10.10.1.9", "node": "rome-1"}, "secretRef": {"name": "fancy-keys", "namespace": "default"}}}`))))
	eventually(t, "the endpoint of the Fancy in gateway and fabric", func() error {
		var fabric netv1beta1.InternalFabric
		err := errors.Join(c.Get(t.Context(), key, &gw), c.Get(t.Context(), key, &fabric))
		return errors.Join(err, equal("", message(gw.Status.Conditions)),
			equal(&netv1beta1.EndpointStatus{Addresses: []string{"203.0.113.7"}, Port: 4500, Protocol: "UDP"}, gw.Status.Endpoint),
			equal(&corev1.ObjectReference{Name: "fancy-keys", Namespace: "default"}, gw.Status.SecretRef),
			equal("10.10.1.9", fabric.Spec.GatewayIP), equal([]string{"10.30.0.0/16", "10.90.0.0/16"}, fabric.Spec.RemoteCIDRs))
	})
	// The template is exchanged for one of WireGuard: two technologies do not run beside each other.
	must(t, c.Patch(t.Context(), gw.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec": {"serverTemplateRef": {"name": "wireguard-server"}}}`))))
	eventually(t, "the end of the Fancy and a WgGatewayServer", func() error {
		err := c.Get(t.Context(), key, &gw)
		gone := apierrors.IsNotFound(c.Get(t.Context(), key, tunnel))
		return errors.Join(err, equal(true, gone), equal("WgGatewayServer", gw.Status.ServerRef.Kind))
	})
}
