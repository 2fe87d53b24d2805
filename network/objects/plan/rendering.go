// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// ServerTemplate returns the reference of a server to its template. Fields that are not set are those
// of the default template.
func ServerTemplate(s *netv1beta1.GatewayServer, liqoNamespace string) corev1.ObjectReference {
	return templateOf(s.Spec.ServerTemplateRef, corev1.ObjectReference{
		APIVersion: netv1beta1.GroupVersion.String(), Kind: "WgGatewayServerTemplate",
		Name: api.WgGatewayServerTemplateName, Namespace: liqoNamespace,
	})
}

// ClientTemplate returns the reference of a client to its template. Fields that are not set are those
// of the default template.
func ClientTemplate(c *netv1beta1.GatewayClient, liqoNamespace string) corev1.ObjectReference {
	return templateOf(c.Spec.ClientTemplateRef, corev1.ObjectReference{
		APIVersion: netv1beta1.GroupVersion.String(), Kind: "WgGatewayClientTemplate",
		Name: api.WgGatewayClientTemplateName, Namespace: liqoNamespace,
	})
}

func templateOf(ref *corev1.ObjectReference, byDefault corev1.ObjectReference) corev1.ObjectReference {
	if ref == nil {
		return byDefault
	}
	return corev1.ObjectReference{
		APIVersion: cmp.Or(ref.APIVersion, byDefault.APIVersion), Kind: cmp.Or(ref.Kind, byDefault.Kind),
		Name: cmp.Or(ref.Name, byDefault.Name), Namespace: cmp.Or(ref.Namespace, byDefault.Namespace),
	}
}

// RenderedKind returns the kind that a template renders: its objectKind, or else the template's kind
// without the word Template.
func RenderedKind(template *unstructured.Unstructured) (apiVersion, kind string) {
	apiVersion, _, _ = unstructured.NestedString(template.Object, "spec", "objectKind", "apiVersion")
	kind, _, _ = unstructured.NestedString(template.Object, "spec", "objectKind", "kind")
	byDefault := template.GetKind()
	if i := len(byDefault) - len("Template"); i > 0 && byDefault[i:] == "Template" {
		byDefault = byDefault[:i]
	}
	return cmp.Or(apiVersion, template.GetAPIVersion()), cmp.Or(kind, byDefault)
}

// OfGateways reports whether a kind is allowed for templates and rendered objects: Liqo's kinds for
// WireGuard, and those of third parties, as far as the controller has rights. The controller may also
// write kinds of Kubernetes and other kinds of Liqo, but not for everybody who may create gateways.
func OfGateways(apiVersion, kind string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return false
	}
	if gv.Group == netv1beta1.GroupVersion.Group {
		return slices.Contains([]string{"WgGatewayServer", "WgGatewayClient", "WgGatewayServerTemplate",
			"WgGatewayClientTemplate"}, kind)
	}
	return strings.Contains(gv.Group, ".") && !strings.HasSuffix(gv.Group, ".k8s.io") &&
		!strings.HasSuffix(gv.Group, ".liqo.io")
}

// Former returns the object of a kind that the template no longer renders, from a gateway's status.
// It returns false if there was none, or if its kind is pruned anyway.
func Former(status *corev1.ObjectReference, template *unstructured.Unstructured) (corev1.ObjectReference, bool) {
	apiVersion, kind := RenderedKind(template)
	if status == nil || status.Kind == kind && status.APIVersion == apiVersion {
		return corev1.ObjectReference{}, false
	}
	return *status, status.GroupVersionKind().Group != netv1beta1.GroupVersion.Group &&
		OfGateways(status.APIVersion, status.Kind)
}

// refused returns a blocking plan if the gateway is not allowed, else the zero value.
func (g gateway) refused() desired.Plan {
	if g.peer() == "" {
		return desired.Block("PeerMissing", "the peer is not named; add the label %s", api.LabelRemoteClusterID)
	}
	if length, longest := len(g.root.GetName()), validation.LabelValueMaxLength; length > longest {
		return desired.Block("NameTooLong", "the name has %d characters, and %d have room in labels; "+
			"delete this one and create a gateway with a shorter name", length, longest)
	}
	if rival, ofPeer := g.rival(); rival != "" && !ofPeer {
		return desired.Block("DuplicateName",
			"%s has the same name, after which Deployment, keys and rights of a gateway are called; create one of "+
				"the two with another name", rival)
	} else if rival != "" {
		return desired.Block("DuplicateGateway",
			"%s is already the gateway for this peer and there are never two gateways for one peer; delete one of "+
				"the two", rival)
	}
	return desired.Plan{}
}

// templateProblem returns a plan that names the problem of the template, else the zero value.
func (g gateway) templateProblem() desired.Plan {
	kinds := [][2]string{{g.template.APIVersion, g.template.Kind}}
	if g.Template != nil {
		apiVersion, kind := RenderedKind(g.Template)
		kinds = append(kinds, [2]string{apiVersion, kind})
	}
	for _, k := range kinds {
		if !OfGateways(k[0], k[1]) {
			plan := desired.Block("TemplateKindInvalid",
				"kind %s (%s) is not a gateway kind: kinds of Kubernetes (of groups without a dot, or of *.k8s.io) "+
					"and other kinds of *.liqo.io are refused, because the controller would write them for whoever "+
					"creates gateways; reference a Wg%sTemplate, or a template of another technology",
				k[1], k[0], g.kind)
			plan.RequeueAfter = g.period(g.template.GroupVersionKind())
			return plan
		}
	}
	if g.Refused != "" {
		plan := desired.Block("RightsMissing",
			"the controller may not read kind %s; add it to the chart's values networking.serverResources and "+
				"networking.clientResources", g.Refused)
		plan.RequeueAfter = foreignPeriod
		return plan
	}
	if g.Template == nil {
		plan := desired.Wait("TemplateMissing", "there is no %s %s/%s; create it or reference another template",
			g.template.Kind, g.template.Namespace, g.template.Name)
		plan.RequeueAfter = g.period(g.template.GroupVersionKind())
		return plan
	}
	return desired.Plan{}
}

// render makes the object that the template describes, with the name of the gateway.
func (g gateway) render() (*unstructured.Unstructured, error) {
	source, _, err := unstructured.NestedMap(g.Template.Object, "spec", "template")
	if err != nil {
		return nil, err
	}
	content, err := Render(source, TemplateData{
		Spec: g.spec, Name: g.root.GetName(), Namespace: g.root.GetNamespace(),
		GatewayUID: string(g.root.GetUID()), ClusterID: g.peer(), SecretName: g.secret,
	})
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	if spec, ok := content["spec"]; ok {
		out.Object["spec"] = spec
	}
	apiVersion, kind := RenderedKind(g.Template)
	out.SetAPIVersion(apiVersion)
	out.SetKind(kind)
	out.SetNamespace(g.root.GetNamespace())
	out.SetName(g.root.GetName())
	out.SetLabels(labels.Merge(stringMap(content, "metadata", "labels"), map[string]string{
		api.LabelRemoteClusterID: g.peer(), api.LabelGatewayName: g.root.GetName(),
		api.LabelGatewayNamespace: g.root.GetNamespace(),
	}))
	out.SetAnnotations(stringMap(content, "metadata", "annotations"))
	for _, adapt := range []func(*unstructured.Unstructured) error{g.adaptService, g.adaptPorts, g.adaptProtocol} {
		if err := adapt(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// adaptService puts the gateway's labels, annotations and ports into the Service of a rendered
// server. A template can name one port only: it is repeated for each.
func (g gateway) adaptService(out *unstructured.Unstructured) error {
	for field, more := range map[string]map[string]string{"labels": g.serviceLabels,
		"annotations": g.serviceAnnotations} {
		if len(more) == 0 {
			continue
		}
		path := []string{"spec", "service", "metadata", field}
		merged := labels.Merge(stringMap(out.Object, path...), more)
		if err := unstructured.SetNestedStringMap(out.Object, merged, path...); err != nil {
			return err
		}
	}
	listed, _, err := unstructured.NestedSlice(out.Object, "spec", "service", "spec", "ports")
	if err != nil || len(listed) != 1 || len(g.ports) == 0 {
		return err
	}
	var ports []any
	for i, port := range g.ports {
		p, ok := runtime.DeepCopyJSONValue(listed[0]).(map[string]any)
		if !ok {
			return fmt.Errorf("spec.service.spec.ports[0]: not an object")
		}
		name, _ := p["name"].(string)
		p["name"] = fmt.Sprintf("%s-%d", cmp.Or(name, "wireguard"), i)
		p["port"], p["targetPort"] = int64(port), int64(port)
		if i < len(g.nodePorts) {
			p["nodePort"] = int64(g.nodePorts[i])
		}
		ports = append(ports, p)
	}
	return unstructured.SetNestedSlice(out.Object, ports, "spec", "service", "spec", "ports")
}

// adaptPorts carries several ports into the arguments of a template that knows of one, as those of
// older versions of the original: it renders port 0.
func (g gateway) adaptPorts(out *unstructured.Unstructured) error {
	several := map[string]string{}
	for flag, ports := range map[string][]int32{"--listen-port": g.ports, "--endpoint-port": g.endpointPorts} {
		if len(ports) > 0 {
			several[flag] = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(ports), "[]")), ",")
		}
	}
	return edit(out, func(c map[string]any) {
		args, _ := c["args"].([]any)
		for i, arg := range args {
			name, value, joined := strings.Cut(fmt.Sprint(arg), "=")
			ports := several[strings.TrimSuffix(name, "s")]
			switch {
			case ports == "":
			case joined && value == "0":
				args[i] = name + "=" + ports
			case !joined && i+1 < len(args) && fmt.Sprint(args[i+1]) == "0":
				args[i+1] = ports
			}
		}
	}, "spec", "deployment", "spec", "template", "spec", "containers")
}

// adaptProtocol carries the transport a gateway asks for into the ports of the rendered Service and
// the arguments of the gateway container. So it works with every template, which may know of UDP
// only.
func (g gateway) adaptProtocol(out *unstructured.Unstructured) error {
	if g.protocol == "" {
		return nil
	}
	if err := edit(out, func(port map[string]any) { port["protocol"] = string(g.protocol) }, "spec", "service", "spec",
		"ports"); err != nil {
		return err
	}
	if g.protocol == netv1beta1.ProtocolUDP {
		return nil // the default of gateways
	}
	return edit(out, func(c map[string]any) {
		args, _ := c["args"].([]any)
		given := slices.ContainsFunc(args, func(arg any) bool {
			name, _, _ := strings.Cut(fmt.Sprint(arg), "=")
			return name == protocolFlag
		})
		if c["name"] == gatewayContainer && !given {
			c["args"] = append(args, protocolFlag+"="+string(g.protocol))
		}
	}, "spec", "deployment", "spec", "template", "spec", "containers")
}

// edit changes each object of a list that may be absent.
func edit(out *unstructured.Unstructured, change func(map[string]any), path ...string) error {
	list, found, err := unstructured.NestedSlice(out.Object, path...)
	if err != nil || !found {
		return err
	}
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			change(m)
		}
	}
	return unstructured.SetNestedSlice(out.Object, list, path...)
}
