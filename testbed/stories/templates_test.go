// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTemplates gives the gateways of a peering each gateway template in the original's shape, one after the other:
// those whose workloads the tests of the network compare. A gateway that is recreated ends slowly, so this is part of
// `make soak` only.
func TestTemplates(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "network", "testdata", "original", "*.txtar"))
	if err != nil || len(files) < 9 {
		t.Fatalf("found %d templates: %v", len(files), err)
	}
	var told []story
	for _, file := range files {
		shape := strings.TrimSuffix(filepath.Base(file), ".txtar")
		told = append(told, story{shape, func(t *testing.T) { templateConnects(t, shape, file) }})
	}
	tellEach(t, []stage{
		{peered, peered, append(told, story{"the chart's templates again", chartsTemplates})},
		{peered, offloaded, []story{{"a namespace is offloaded", offloadNamespace}}},
		{offloaded, installed, []story{{"unpeer leaves nothing", unpeer}}},
		{installed, nothing, []story{{"uninstall leaves nothing", uninstall}}},
	})
}

// templateConnects gives the server or client of the tunnel a template from a file, and expects that its pods are
// replaced and pods of both clusters reach each other.
func templateConnects(t *testing.T, shape, file string) {
	template := templateOf(t, file)
	c, gateway := rome, "gatewayclient"
	if template.Kind == "WgGatewayServerTemplate" {
		c, gateway = milan, "gatewayserver"
	}
	c.apply(t, template.text)
	if shape == "node-selector" {
		c.kubectl(t, "label", "node", c.name+"-n1", "example.com/gateway=true", "--overwrite")
	}
	endpoint := `"serviceType": "NodePort", "port": 51840, "ports": null`
	switch {
	case strings.HasPrefix(shape, "several-tunnels"):
		endpoint = `"serviceType": "NodePort", "port": null, "ports": [51840, 51841]`
	case shape == "load-balancer":
		endpoint = `"serviceType": "LoadBalancer", "port": 51840, "ports": null`
	}
	milan.changeGateway(t, "gatewayserver", `{"endpoint": {`+endpoint+`}}`)
	before := c.generation(t)
	c.changeGateway(t, gateway, fmt.Sprintf(`{"%sTemplateRef": {"name": %q}}`, strings.TrimPrefix(gateway, "gateway"), template.Metadata.Name))
	eventually(t, "the gateway's Deployment follows the template", func() (string, bool) {
		now := c.generation(t)
		return fmt.Sprint(now), now > before
	})
	connects(t)
}

// connects waits until all gateways are rolled out and a ping from a pod of rome to a pod of milan is answered.
func connects(t *testing.T) {
	t.Helper()
	rome.rolled(t)
	milan.rolled(t)
	node, target := source(t)
	eventually(t, "a ping is answered", func() (string, bool) {
		out, err := testbed("exec", rome.name, node, "--", "sh", "-c", `exec nsenter -t "$(pgrep -o -x -f /echo)" -n ping -c 1 -W 1 `+target)
		return out, err == nil
	})
	for _, c := range []cluster{rome, milan} {
		eventually(t, c.name+" is connected", func() (string, bool) {
			got, err := c.ask("-n", "liqo-tenant-"+other(c).name, "get", "connections", "-o", "jsonpath={.items[*].status.value}")
			return got, err == nil && got == "Connected"
		})
	}
}

// chartsTemplates gives the gateways the templates of the chart, and deletes the others.
func chartsTemplates(t *testing.T) {
	milan.changeGateway(t, "gatewayserver", `{"serverTemplateRef": {"name": "wireguard-server"}, "endpoint": {"serviceType": "NodePort", "port": 51840, "ports": null}}`)
	rome.changeGateway(t, "gatewayclient", `{"clientTemplateRef": {"name": "wireguard-client"}}`)
	connects(t)
	rome.kubectl(t, "-n", "liqo", "delete", "wggatewayclienttemplates", "-l", "stories=original")
	milan.kubectl(t, "-n", "liqo", "delete", "wggatewayservertemplates", "-l", "stories=original")
	milan.kubectl(t, "label", "node", milan.name+"-n1", "example.com/gateway-")
}

// changeGateway merges a change into the spec of the gateway towards the other cluster.
func (c cluster) changeGateway(t *testing.T, kind, spec string) {
	t.Helper()
	c.kubectl(t, "-n", "liqo-tenant-"+other(c).name, "patch", kind, other(c).name, "--type=merge", "-p", `{"spec": `+spec+`}`)
}

// generation is that of the Deployment of the gateway towards the other cluster.
func (c cluster) generation(t *testing.T) int {
	t.Helper()
	peer := other(c).name
	n, err := strconv.Atoi(c.kubectl(t, "-n", "liqo-tenant-"+peer, "get", "deployment", "gw-"+peer, "-o", "jsonpath={.metadata.generation}"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gatewayTemplate is a template of a gateway and its YAML with a label of the stories.
type gatewayTemplate struct {
	Kind     string
	Metadata struct{ Name string }
	text     string
}

// templateOf reads the template in a file.
func templateOf(t *testing.T, file string) (template gatewayTemplate) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), "-- template.yaml --\n")
	text, _, ok := strings.Cut(rest, "\n-- ")
	template.text = strings.Replace(text, "namespace: liqo}", `namespace: liqo, labels: {stories: original}}`, 1)
	if err := yaml.Unmarshal([]byte(text), &template); err != nil || !ok || template.text == text {
		t.Fatalf("%s: no template, or one without a namespace: %v", file, err)
	}
	return template
}
