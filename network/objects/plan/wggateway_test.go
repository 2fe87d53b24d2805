// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	gatewayflags "github.com/liqo-go/liqo/network/gateway/plan"
)

// TestKeyIsAnnouncedWhenAPodHasIt: a new key is announced once a pod has it, because a peer with the
// new key refuses pods with the old one.
func TestKeyIsAnnouncedWhenAPodHasIt(t *testing.T) {
	in := serverInput()
	keys, new, _ := wgGateway{WgGatewayInput: in.WgGatewayInput, root: in.Root}.keys()
	in.Keys = keys
	old := bytes.Repeat([]byte{7}, keyLength)
	pod := func(key []byte, node, phase string) corev1.Pod {
		p := gatewayPod(t, "{phase: "+phase+", podIP: 10.10.1.7}")
		p.Annotations, p.Spec.NodeName = map[string]string{annotationPublicKey: base64.StdEncoding.EncodeToString(key)}, node
		return p
	}
	for _, c := range []struct {
		claim string
		pods  []corev1.Pod
		want  []byte
	}{
		{"no pod", nil, new},
		{"only that with the old key", []corev1.Pod{pod(old, "n1", "Running")}, old},
		{"a successor without room", []corev1.Pod{pod(old, "n1", "Running"), pod(new, "", "Pending")}, old},
		{"a successor that has a node", []corev1.Pod{pod(old, "n1", "Running"), pod(new, "n2", "Pending")}, new},
		{"both, the other way round", []corev1.Pod{pod(new, "n2", "Running"), pod(old, "n1", "Running")}, new},
		{"one that was evicted", []corev1.Pod{pod(old, "n1", "Failed")}, new},
		{"one that does not run yet", []corev1.Pod{pod(old, "n1", "Pending")}, new},
	} {
		in.Pods = c.pods
		if got := WgGatewayServer(in).Status.(*netv1beta1.WgGatewayServer).Status.PublicKey; !bytes.Equal(got, c.want) {
			t.Errorf("%s: the new key is told: %t, wanted: %t", c.claim, bytes.Equal(got, new), bytes.Equal(c.want, new))
		}
	}
}

// TestMissingPullSecretIsNamed: the chart names image pull Secrets that exist in
// Liqo's namespace only, and the verdict says so.
func TestMissingPullSecretIsNamed(t *testing.T) {
	in := serverInput()
	pod := gatewayPod(t, "{containerStatuses: [{name: gateway, image: 'liqo:1', state: {waiting: {reason: ErrImagePull}}}]}")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "regcred"}}
	in.Pods = []corev1.Pod{pod}
	want := "the node cannot get the image liqo:1; correct it in the gateway's template, or let the nodes pull it; in namespace t, too, there must be the Secret regcred"
	if got := WgGatewayServer(in).Message; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// TestPendingServersReportTheReason: the state of a gateway's youngest pod and of its Service becomes
// the reason, with a remedy.
func TestPendingServersReportTheReason(t *testing.T) {
	const running = "{phase: Running, podIP: 10.10.1.7}"
	waits := func(why string) string {
		return "{containerStatuses: [{name: gateway, image: 'liqo:1', state: {waiting: " + why + "}}]}"
	}
	for _, c := range []struct {
		claim, pod, service string
		want                string
	}{
		{"no pod", "", "", "GatewayPodMissing: there is no gateway pod; 'kubectl -n t describe replicasets' tells what refuses it, such as Pod Security or a quota of the namespace"},
		{"a pod that was just made", "{}", "", "GatewayPodPending: no active gateway pod is running; 'kubectl -n t describe pods -l networking.liqo.io/gateway-name=milan' tells what it waits for"},
		{"a pod no node takes", `{conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/2 nodes are available: 2 Insufficient cpu."}]}`, "",
			"GatewayPodUnschedulable: no node takes the gateway pod: 0/2 nodes are available: 2 Insufficient cpu. Free what is missing, or change requests, node selector or tolerations in the gateway's template"},
		{"a pod without image", waits("{reason: ImagePullBackOff, message: back-off 10s}"), "",
			"GatewayImageMissing: the node cannot get the image liqo:1; correct it in the gateway's template, or let the nodes pull it"},
		{"a pod that ends again and again", waits("{reason: CrashLoopBackOff, message: back-off 10s}"), "",
			"GatewayPodFailing: container gateway ends soon after its start; 'kubectl -n t logs deployment/gw-milan --previous' tells why"},
		{"a pod that names what is not there", waits(`{reason: CreateContainerConfigError, message: secret "x" not found}`), "",
			`GatewayPodFailing: container gateway does not start: CreateContainerConfigError: secret "x" not found. Correct the gateway's template`},
		{"no Service", running, "", "EndpointPending: Service gw-milan is not there yet"},
		{"a load balancer that does not come", running, "{type: LoadBalancer, ports: [{port: 1}]}",
			"LoadBalancerPending: Service gw-milan has no address from a load balancer; if the cluster has none, set spec.endpoint.serviceType to NodePort"},
		{"a load balancer that may not give the address", running, "{type: LoadBalancer, loadBalancerIP: 192.0.2.1, ports: [{port: 1}]}",
			"LoadBalancerPending: Service gw-milan does not get the address 192.0.2.1 from a load balancer; ask for one that it may give, or set spec.endpoint.serviceType to NodePort"},
		{"a node port on a node without address", running, "{type: NodePort, ports: [{port: 1, nodePort: 30001}]}",
			"EndpointPending: the node of the gateway pod has no address in its status; see 'kubectl get nodes -o wide'"},
		{"a node port that is not given", running, "{type: NodePort, ports: [{port: 1}]}",
			"EndpointPending: Service gw-milan has no address or port to be reached by; see 'kubectl -n t describe service gw-milan'"},
	} {
		in := serverInput()
		if c.pod != "" {
			in.Pods = []corev1.Pod{gatewayPod(t, c.pod)}
		}
		if c.service != "" {
			in.Service = &corev1.Service{}
			read(t, c.service, &in.Service.Spec)
		}
		if got := WgGatewayServer(in); got.Reason+": "+got.Message != c.want {
			t.Errorf("%s:\n%s: %s, want\n%s", c.claim, got.Reason, got.Message, c.want)
		}
	}
}

// TestServersStayReachableWhileNodesAreNotReady: if no other pod can hold the tunnel, the Service
// also routes to a pod that is not ready. While no node is ready, clients keep their endpoint.
func TestServersStayReachableWhileNodesAreNotReady(t *testing.T) {
	const running, unready = "{phase: Running, podIP: 10.10.1.7}", `{phase: Running, podIP: 10.10.1.7, conditions: [{type: Ready, status: "False"}]}`
	for _, c := range []struct {
		claim string
		pods  []string
		want  bool
	}{
		{"no pod", nil, true},
		{"a pod", []string{running}, true},
		{"a pod that is not ready", []string{unready}, true},
		{"a pod, and a successor", []string{unready, "{}"}, false},
		{"a pod, and one that was evicted", []string{unready, "{phase: Failed}"}, true},
	} {
		in := serverInput()
		for _, status := range c.pods {
			in.Pods = append(in.Pods, gatewayPod(t, status))
		}
		for _, obj := range WgGatewayServer(in).Objects {
			if s, ok := obj.(*corev1.Service); ok && s.Spec.PublishNotReadyAddresses != c.want {
				t.Errorf("%s: published though not ready: %t, want %t", c.claim, s.Spec.PublishNotReadyAddresses, c.want)
			}
		}
	}
	for ready, want := range map[string]string{"": "192.0.2.1 192.0.2.2", "a": "192.0.2.1 192.0.2.2", "c": "192.0.2.1 192.0.2.3"} {
		in := serverInput()
		in.Root.Status.Endpoint = &netv1beta1.EndpointStatus{Addresses: []string{"192.0.2.1", "192.0.2.2"}}
		in.Service = &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{NodePort: 30001}}}}
		in.Pods = []corev1.Pod{gatewayPod(t, running)}
		in.Pods[0].Spec.NodeName = "a"
		for i, name := range []string{"a", "b", "c"} {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}}
			if name != ready {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			}
			in.Nodes = append(in.Nodes, n)
		}
		got := WgGatewayServer(in).Status.(*netv1beta1.WgGatewayServer).Status.Endpoint
		if got == nil || strings.Join(got.Addresses, " ") != want {
			t.Errorf("of the nodes only %q is ready: clients dial %v, want %s", ready, got, want)
		}
	}
}

func serverInput() WgServerInput {
	in := WgServerInput{Root: &netv1beta1.WgGatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "milan"}}}
	in.NewKey, in.Now = make([]byte, 32), time.Unix(0, 0)
	return in
}

func gatewayPod(t *testing.T, status string) corev1.Pod {
	t.Helper()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "gw-milan-1", Labels: map[string]string{api.LabelGatewayName: "milan", api.LabelGatewayActive: api.True}}}
	read(t, status, &pod.Status)
	return pod
}

// TestOneReplicaIsMarked: in any order of reconciles, the right pods stay marked, and a gateway
// with a marked pod is never without one.
func TestOneReplicaIsMarked(t *testing.T) {
	for _, c := range []struct {
		claim, holder, marked, ends string
		want                        string
	}{
		{"the first holder", "a", "", "", "a"},
		{"a holder that stays", "a", "a", "", "a"},
		{"nobody holds the lease", "", "a", "", "a"},
		{"b follows a, which fell silent", "b", "a", "", "b"},
		{"b follows a, which was told to end", "b", "a", "a", "a b"},
		{"two were marked", "a", "a b", "", "a"},
		{"the holder is unknown", "x", "a", "", "a"},
		{"b ends before it is marked", "b", "a", "b", "a"},
	} {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			var pods []corev1.Pod
			for _, name := range []string{"a", "b"} {
				p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if strings.Contains(c.marked, name) {
					p.Labels = map[string]string{api.LabelGatewayActive: api.True}
				}
				if c.ends == name {
					p.DeletionTimestamp = &metav1.Time{}
				}
				pods = append(pods, p)
			}
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &c.holder}}
			for _, i := range slices.Concat(order, order) {
				if out, ok := Replica(ReplicaInput{Root: &pods[i], Lease: lease, Pods: pods}).Fill.(*corev1.Pod); ok {
					pods[i] = *out
				}
				if c.marked != "" && marked(pods) == "" {
					t.Errorf("%s, order %v: for a while no pod is marked", c.claim, order)
				}
			}
			if got := marked(pods); got != c.want {
				t.Errorf("%s, order %v: marked are %q, want %q", c.claim, order, got, c.want)
			}
		}
	}
}

func marked(pods []corev1.Pod) string {
	var names []string
	for _, p := range pods {
		if p.Labels[api.LabelGatewayActive] == api.True {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, " ")
}

// TestLeaderElectionFollowsTheFlags: pods with leader election are marked by the lease, others by
// their template.
func TestLeaderElectionFollowsTheFlags(t *testing.T) {
	for args, want := range map[string]bool{
		"gateway": false, "gateway --leader-election": true, "gateway --leader-election=true": true, "gateway --leader-election=1": true,
		"gateway --leader-election=false": false, "gateway --leader-election=true --leader-election=false": false,
		"gateway --leader-election-retry-period=1s": false, "gateway --leader-election=$(TURNS)": false,
	} {
		root := &netv1beta1.WgGatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "milan"}}
		root.Spec.Deployment.Spec.Replicas = new(int32(2))
		root.Spec.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "gateway", Args: strings.Fields(args + " --endpoint-address=192.0.2.1 --endpoint-ports=51840")}}
		for _, obj := range WgGatewayClient(WgClientInput{Root: root, WgGatewayInput: WgGatewayInput{NewKey: make([]byte, 32)}}).Objects {
			d, ok := obj.(*appsv1.Deployment)
			if !ok {
				continue
			}
			pod := corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
			if IsReplica(&pod) != want || (pod.Labels[api.LabelGatewayActive] == api.True) == want {
				t.Errorf("%s: takes turns %t, want %t; labels %v", args, IsReplica(&pod), want, pod.Labels)
			}
		}
	}
}

// FuzzArguments: whatever a template says, the process accepts the arguments that are left, and
// passing them through once more changes nothing.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		"--listen-port 51820 --mtu=1340 --enable-arp true", "-v 3 --v=x --leader-election false yes", "--mtu", "--endpoint-address=\"a",
		"--ping-interval=0s --ping-enabled", "--endpoint-ports=1,x --interface-ip=10.0.0.1 --mode=both", "-- --= -=1 - =", "--name=$(NAME) --mtu=$(MTU)",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w := wgGateway{root: &netv1beta1.WgGatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "milan"}}, mode: "server"}
		c, a := corev1.Container{Args: strings.Fields(s)}, adaptation{}
		words := w.arguments(&a, []corev1.Container{c}, c, true).words
		var process gatewayflags.Flags
		set := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
		process.Add(set, func(string) string { return "" })
		set.IntP("v", "v", 0, "")
		if err := set.Parse(words); err != nil || set.NArg() > 0 {
			t.Errorf("%q becomes %q: %v, words %q", s, words, err, set.Args())
		}
		c.Args = words
		if again := w.arguments(&adaptation{}, []corev1.Container{c}, c, true).words; !slices.Equal(again, words) {
			t.Errorf("%q becomes %q, then %q", s, words, again)
		}
	})
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// TestTheOldestIsUsed: if a peer has two objects of a kind, liqoctl changes the one that
// controllers use.
func TestTheOldestIsUsed(t *testing.T) {
	made := func(name string, day int) netv1beta1.GatewayClient {
		return netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)), Labels: map[string]string{api.LabelRemoteClusterID: "rome"},
		}}
	}
	list := []netv1beta1.GatewayClient{made("a", 3), made("c", 2), made("b", 2)}
	got := api.Oldest(list)
	if got == nil || got.Name != "b" {
		t.Errorf("the oldest is %v", got)
	}
	for i := range list {
		rival, _ := gateway{GatewayInput: GatewayInput{Clients: list}, root: &list[i], kind: "GatewayClient"}.rival()
		if counts := rival == ""; counts != (list[i].Name == got.Name) {
			t.Errorf("%s counts: %t", list[i].Name, counts)
		}
	}
	if api.Oldest([]netv1beta1.GatewayClient{}) != nil {
		t.Error("there is one among none")
	}
}

// TestGatewaysWaitForTheFabric: while the pods of the fabric are replaced, and until the last is
// ready, the Deployment of a gateway stays, but not for longer than five minutes.
func TestGatewaysWaitForTheFabric(t *testing.T) {
	const running = "{phase: Running, podIP: 10.10.1.7}"
	for _, c := range []struct {
		claim, fabric, pod string
		since              time.Duration // of the condition; 0 = there is none
		waits, told        bool
		generation         int64 // of the DaemonSet when the condition began
	}{
		{"there is no fabric", "", running, 0, false, false, 0},
		{"all are ready", "{desiredNumberScheduled: 2, updatedNumberScheduled: 2}", running, 0, false, false, 0},
		{"a node is down", "{desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberUnavailable: 1}", running, 0, false, false, 0},
		{"another template was not seen", "{observedGeneration: -1}", running, 0, true, true, 0},
		{"one is replaced", "{desiredNumberScheduled: 2, updatedNumberScheduled: 1}", running, 0, true, true, 0},
		{"the gateway has no pod", "{desiredNumberScheduled: 2, updatedNumberScheduled: 1}", "", 0, false, false, 0},
		{"the last one starts", "{desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberUnavailable: 1}", running, time.Minute, true, true, 0},
		{"the last one is ready", "{desiredNumberScheduled: 2, updatedNumberScheduled: 2}", running, time.Minute, false, false, 0},
		{"a rollout hangs", "{desiredNumberScheduled: 2, updatedNumberScheduled: 1}", running, fabricWithin, false, true, 0},
		{"the last one does not start", "{desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberUnavailable: 1}", running, fabricWithin, false, false, 0},
		{"another rollout begins", "{desiredNumberScheduled: 2, updatedNumberScheduled: 1}", running, time.Hour, true, true, -1},
	} {
		in := serverInput()
		if c.fabric != "" {
			in.Fabric = &appsv1.DaemonSet{}
			read(t, c.fabric, &in.Fabric.Status)
		}
		if c.pod != "" {
			in.Pods = []corev1.Pod{gatewayPod(t, c.pod)}
		}
		if c.since > 0 {
			w := wgGateway{WgGatewayInput: in.WgGatewayInput, root: in.Root}
			w.Fabric = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: c.generation}}
			w.Fabric.Status.UpdatedNumberScheduled, w.Fabric.Status.DesiredNumberScheduled = 1, 2
			w.Now = in.Now.Add(-c.since)
			began, _ := w.fabricRolls(nil)
			in.Root.Status.Conditions = []metav1.Condition{*began}
		}
		plan := WgGatewayServer(in)
		of := func(o desired.Object) bool { _, ok := o.(*appsv1.Deployment); return ok }
		written, kept := slices.ContainsFunc(plan.Objects, of), slices.ContainsFunc(plan.Preserve, of)
		told := meta.IsStatusConditionTrue(plan.Status.(*netv1beta1.WgGatewayServer).Status.Conditions, netv1beta1.ConditionFabricRolling)
		if kept != c.waits || written == c.waits || told != c.told {
			t.Errorf("%s: the Deployment stays: %t, is written: %t, the condition tells: %t", c.claim, kept, written, told)
		}
		want := fabricWithin
		if c.generation == 0 {
			want -= c.since
		}
		if c.waits && plan.RequeueAfter != want {
			t.Errorf("%s: tried again after %v, not %v", c.claim, plan.RequeueAfter, want)
		}
	}
}

// TestServiceFollowsTheSelector: a Deployment keeps its selector, so a Service of another template
// selects the labels that pods have. While the Deployment waits for the fabric, so does the Service.
func TestServiceFollowsTheSelector(t *testing.T) {
	in := serverInput()
	in.Root.Spec.Service.Spec.Selector = map[string]string{"app": "new", "tier": "net"}
	in.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "old"}}}}
	in.Service, in.Pods = &corev1.Service{}, []corev1.Pod{gatewayPod(t, "{phase: Running, podIP: 10.10.1.7}")}
	find := func(objects []desired.Object) (selector map[string]string) {
		for _, o := range objects {
			if service, ok := o.(*corev1.Service); ok {
				selector = service.Spec.Selector
			}
		}
		return selector
	}
	if got := find(WgGatewayServer(in).Objects); got["app"] != "old" || got["tier"] != "net" {
		t.Errorf("the Service selects %v", got)
	}
	in.Fabric = &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1}}
	if plan := WgGatewayServer(in); find(plan.Objects) != nil || find(plan.Preserve) == nil {
		t.Error("the Service does not wait with the Deployment")
	}
}
