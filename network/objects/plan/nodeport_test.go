// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// TestFormerNodePortsAreServed: what clients were told leads to the server while they hear of another port, and a
// Service that was deleted comes back as it was announced.
func TestFormerNodePortsAreServed(t *testing.T) {
	const main = "{name: wireguard, port: 51840, targetPort: 51840, protocol: UDP, nodePort: %s}"
	const old = ", {name: former-%[1]s, port: %[1]s, targetPort: 51840, protocol: UDP, nodePort: %[1]s}"
	const told = "{addresses: [192.0.2.1], port: %s, protocol: UDP}"
	ports := func(current string, former ...string) string {
		all := fmt.Sprintf(main, current)
		for _, f := range former {
			all += fmt.Sprintf(old, f)
		}
		return "{type: NodePort, selector: {a: b}, ports: [" + all + "]}"
	}
	any, at := ports("0"), func(port string) string { return fmt.Sprintf(told, port) }
	minutes := func(n time.Duration) time.Time { return now.Add(n * time.Minute) }
	for _, c := range []struct {
		claim, wish, told, live string
		until                   time.Time
		want                    string
		again                   time.Duration
	}{
		{"nothing changed", any, at("30742"), ports("30742"), now, "30742", 0},
		{"it was deleted", any, at("30742"), "", now, "30742", 0},
		{"it was deleted while another port is asked for", ports("30999"), at("30742"), "", now, "30999 former-30742", formerFor},
		{"it was deleted before it was announced", any, "", "", now, "0", 0},
		{"another port is asked for", ports("30999"), at("30742"), ports("30742"), now, "30999 former-30742", formerFor},
		{"another port is there", ports("30999"), at("30742"), ports("30999", "30742"), minutes(59), "30999 former-30742", formerFor},
		{"another port is there by hand", any, at("30742"), ports("30999"), now, "30999 former-30742", formerFor},
		{"it was told", ports("30999"), at("30999"), ports("30999", "30742"), minutes(4), "30999 former-30742", 4 * time.Minute},
		{"it was told, by hand", any, at("30999"), ports("30999", "30742"), minutes(4), "30999 former-30742", 4 * time.Minute},
		{"nothing is told at this moment", any, "", ports("30999", "30742"), minutes(4), "30999 former-30742", 4 * time.Minute},
		{"the time is over", ports("30999"), at("30999"), ports("30999", "30742"), now, "30999", 0},
		{"back to the former", ports("30742"), at("30999"), ports("30999", "30742"), minutes(4), "30742 former-30999", formerFor},
		{"a third", ports("30743"), at("30999"), ports("30999", "30742"), minutes(4), "30743 former-30999 former-30742", formerFor},
		{"a fifth", ports("30745"), at("30744"), ports("30744", "30743", "30999", "30742"), minutes(4), "30745 former-30744 former-30743 former-30999", formerFor},
		{"ports have no names", strings.Replace(ports("30999"), "name: wireguard, ", "", 1), at("30742"), ports("30742"), now, "30999", 0},
		{"no longer by node port", strings.Replace(any, "NodePort", "ClusterIP", 1), at("30999"), ports("30999", "30742"), minutes(4), "0", 0},
		{"a load balancer before", ports("30742"), at("51840"), ports("30742"), now, "30742", 0},
		{"a ClusterIP before", any, at("51840"), strings.Replace(ports("0"), "NodePort", "ClusterIP", 1), now, "0", 0},
	} {
		in := serverInput()
		in.Now, in.Nodes = now, []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}}
		pod := gatewayPod(t, "{phase: Running, podIP: 10.10.1.7}")
		pod.Spec.NodeName = "n1"
		in.Pods = []corev1.Pod{pod}
		read(t, c.wish, &in.Root.Spec.Service.Spec)
		if c.told != "" {
			in.Root.Status.Endpoint = &netv1beta1.EndpointStatus{}
			read(t, c.told, in.Root.Status.Endpoint)
		}
		if c.live != "" {
			in.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationFormerUntil: c.until.UTC().Format(time.RFC3339)}}}
			read(t, c.live, &in.Service.Spec)
		}
		plan := WgGatewayServer(in)
		at := slices.IndexFunc(plan.Objects, func(o desired.Object) bool { _, is := o.(*corev1.Service); return is })
		service := plan.Objects[at].(*corev1.Service)
		got := fmt.Sprint(service.Spec.Ports[0].NodePort)
		for i, p := range service.Spec.Ports {
			if i > 0 {
				got += " " + p.Name
			}
			if p.TargetPort.IntVal != 51840 || i > 0 && p.Name != fmt.Sprint("former-", p.NodePort) {
				t.Errorf("%s: a port leads elsewhere: %+v", c.claim, p)
			}
		}
		until := service.Annotations[api.AnnotationFormerUntil]
		if wantUntil := now.Add(c.again).UTC().Format(time.RFC3339); c.again > 0 && until != wantUntil || c.again == 0 && until != "" {
			t.Errorf("%s: former ports until %q, want %s", c.claim, until, wantUntil)
		}
		if got != c.want || plan.RequeueAfter != c.again {
			t.Errorf("%s: node ports %q, again after %v; want %q, %v", c.claim, got, plan.RequeueAfter, c.want, c.again)
		}
		if e := plan.Status.(*netv1beta1.WgGatewayServer).Status.Endpoint; e != nil && len(e.Ports) > 0 {
			t.Errorf("%s: a former port is announced: %+v", c.claim, e)
		}
	}
}

// TestTemplatesNameTheirPorts: a template's port may have the name of a former one, and a Service none at all.
func TestTemplatesNameTheirPorts(t *testing.T) {
	service := func(ports string) *corev1.Service {
		s := &corev1.Service{}
		read(t, "{type: NodePort, ports: "+ports+"}", &s.Spec)
		return s
	}
	at := []string{"192.0.2.1"}
	if e := serverEndpoint(service("[{name: former-one, port: 51840, nodePort: 30742, protocol: UDP}]"), at); e == nil || e.Port != 30742 {
		t.Errorf("a port of that name is announced as %+v", e)
	}
	for _, ports := range []string{"[]", "[{name: former-30742, port: 30742, nodePort: 30742, protocol: UDP}]"} {
		if e := serverEndpoint(service(ports), at); e != nil {
			t.Errorf("%s is announced as %+v", ports, e)
		}
	}
}

// TestDeletedServiceComesBackAsAnnounced: also if the API server has not set its node port free yet, but not if another
// Service has it.
func TestDeletedServiceComesBackAsAnnounced(t *testing.T) {
	for _, c := range []struct {
		claim, wish string
		taken       []int32
		want        []int32
		stays       bool
	}{
		{"any port", "{type: NodePort, ports: [{name: a, port: 51840}]}", []int32{30743}, []int32{30742}, true},
		{"another port", "{type: NodePort, ports: [{name: a, port: 51840, nodePort: 30999}]}", nil, []int32{30999, 30742}, true},
		{"taken", "{type: NodePort, ports: [{name: a, port: 51840}]}", []int32{30742}, []int32{0}, false},
		{"taken, another port", "{type: NodePort, ports: [{name: a, port: 51840, nodePort: 30999}]}", []int32{30742}, []int32{30999}, false},
		{"another type", "{type: LoadBalancer, ports: [{name: a, port: 51840}]}", nil, []int32{0}, false},
	} {
		in := serverInput()
		in.Now, in.Taken = now, c.taken
		in.Root.Status.Endpoint = &netv1beta1.EndpointStatus{Addresses: []string{"192.0.2.1"}, Port: 30742}
		read(t, c.wish, &in.Root.Spec.Service.Spec)
		plan := WgGatewayServer(in)
		var got []int32
		for _, o := range plan.Objects {
			if s, is := o.(*corev1.Service); is {
				for _, p := range s.Spec.Ports {
					got = append(got, p.NodePort)
				}
			}
		}
		endpoint := plan.Status.(*netv1beta1.WgGatewayServer).Status.Endpoint
		if !slices.Equal(got, c.want) || (endpoint != nil) != c.stays {
			t.Errorf("%s: node ports %v, endpoint %+v; want %v, %v", c.claim, got, endpoint, c.want, c.stays)
		}
		if plan.State == desired.Ready {
			t.Errorf("%s: ready without its Service", c.claim)
		}
	}
}
