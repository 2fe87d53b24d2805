// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const (
	// complainFirst is when a wait for pods is first said to be long, complainMore how much longer the next
	// time is than the last: pulling an image takes a while, too.
	complainFirst, complainMore = 5 * time.Second, 3
)

// survey learns what the pods must look like.
func (t *trial) survey() error {
	manager := t.home.controllerManager()
	if err := t.home.read(t.ctx, manager); err != nil {
		return err
	}
	container := manager.Spec.Template.Spec.Containers[0]
	for _, c := range t.all {
		nodes := &corev1.NodeList{}
		if err := c.List(t.ctx, nodes); err != nil {
			return fmt.Errorf("list nodes of the %scluster: %w", c.side.named(), err)
		}
		t.nodes[c.id] = nodes.Items
		pods := trialPods{cluster: c.id, replicas: workers(nodes.Items), image: container.Image,
			pull: container.ImagePullPolicy, away: c != t.home}
		if t.pods[c.id] = pods; pods.replicas == 0 {
			return fmt.Errorf("the %scluster has no node for pods without tolerations; see 'kubectl get nodes' there",
				c.side.named())
		}
		stands := func(n corev1.Node) bool { return !realNode(n) && n.Labels[api.LabelRemoteClusterID] == c.id }
		if pods.away && !slices.ContainsFunc(t.nodes[t.home.id], stands) {
			return fmt.Errorf("no virtual node stands for %s; run '%s peer' first", c.id, t.home.env.name)
		}
	}
	return nil
}

// prepare makes the namespace in all clusters, the pods and what leads to them, and waits for all.
func (t *trial) prepare() error {
	if err := t.freshHome(); err != nil {
		return err
	}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelRemoteClusterID,
		Operator: corev1.NodeSelectorOpIn}}}
	for _, c := range t.providers() {
		term.MatchExpressions[0].Values = append(term.MatchExpressions[0].Values, c.id)
	}
	err := t.offloadOne(t.home, trialNamespace, &offloadOptions{
		pods:    choice(string(offv1beta1.LocalAndRemoteStrategy)),
		mapping: choice(string(offv1beta1.EnforceSameNameMapping)), terms: []corev1.NodeSelectorTerm{term},
	}, func(*script) {})
	if err != nil {
		return err
	}
	for _, c := range t.providers() {
		if t.basic {
			break // none of its pods is in the host's network
		}
		if err := c.apply(t.ctx, trialHome()); err != nil {
			return err
		}
	}
	made, err := t.apply()
	if err != nil {
		return err
	}
	if err := t.drop(made); err != nil {
		return err
	}
	return t.settle(made)
}

// freshHome makes the namespace, after one that is being removed.
func (t *trial) freshHome() error {
	home := trialHome()
	if err := t.home.Get(t.ctx, client.ObjectKeyFromObject(home), home); err == nil && home.DeletionTimestamp != nil {
		t.busy(t.home.side, "Waiting for the removal that an earlier test began")
		if err := t.home.awaitGone(t.ctx, home); err != nil {
			return err
		}
	}
	return t.home.apply(t.ctx, trialHome())
}

// made are the objects of a trial in one cluster.
type made struct {
	*cluster
	object client.Object
}

// wanted are all objects of the trial but its namespace.
func (t *trial) wanted() []made {
	var out []made
	for _, c := range t.all {
		out = append(out, made{t.home, trialDeployment(t.pods[c.id])})
		if !t.basic {
			out = append(out, made{c, trialHosts(t.pods[c.id])})
		}
		if t.ip && !t.basic {
			out = append(out, made{c, trialAddress(t.internet)})
		}
	}
	out = append(out, made{t.home, trialService(trialApp, corev1.ServiceTypeClusterIP)})
	if (t.podNodePort || t.outsideNodePort) && !t.basic {
		out = append(out, made{t.home, trialService(trialNodePort, corev1.ServiceTypeNodePort)})
	}
	if t.balancer && !t.basic {
		out = append(out, made{t.home, trialService(trialBalancer, corev1.ServiceTypeLoadBalancer)})
	}
	return out
}

func (t *trial) apply() ([]made, error) {
	all := t.wanted()
	for _, m := range all {
		if err := m.apply(t.ctx, m.object); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// drop removes what an earlier test made and this one does not need.
func (t *trial) drop(keep []made) error {
	for _, c := range t.all {
		old := []client.Object{trialAddress(t.internet)}
		if c == t.home {
			old = append(old, trialService(trialNodePort, corev1.ServiceTypeNodePort),
				trialService(trialBalancer, corev1.ServiceTypeLoadBalancer))
		}
		deployments, err := c.all(t.ctx, &appsv1.DeploymentList{}, client.InNamespace(trialNamespace))
		if err != nil {
			return err
		}
		for _, object := range append(old, deployments...) {
			needed := slices.ContainsFunc(keep,
				func(m made) bool { return m.cluster == c && m.nameOf(m.object) == c.nameOf(object) })
			if needed {
				continue
			}
			if _, err := c.remove(t.ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle waits until all pods run and every cluster knows the endpoints of all.
func (t *trial) settle(all []made) error {
	for _, m := range all {
		d, ok := m.object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		t.busy(m.side, "Waiting for the pods of "+d.Name)
		stop := t.complain(m.cluster, d.DeepCopy())
		err := m.await(t.ctx, d, func() bool {
			return d.Status.ObservedGeneration >= d.Generation && d.Status.ReadyReplicas == *d.Spec.Replicas &&
				d.Status.Replicas == d.Status.ReadyReplicas
		})
		stop()
		if err != nil {
			return err
		}
		t.info(m.side, "Deployment %s is ready, %d pods", d.Name, d.Status.ReadyReplicas)
	}
	return nil
}

// complain says, while somebody waits for a Deployment and until it is stopped, what keeps its pods from
// being ready: mended meanwhile, it goes on.
func (t *trial) complain(c *cluster, d *appsv1.Deployment) (stop func()) {
	ctx, end := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := complainFirst; ; wait *= complainMore {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if reason, _ := c.reason(ctx, d); reason != "" && ctx.Err() == nil {
				t.warn(c.side, "Still waiting for %s: %s", c.nameOf(d), reason)
				t.busy(c.side, "Waiting for the pods of "+d.Name)
			}
		}
	}()
	return func() { end(); <-done }
}

// remove takes everything back and waits until it is gone from all clusters.
func (t *trial) remove() error {
	home := trialHome()
	err := t.home.Get(t.ctx, client.ObjectKeyFromObject(home), home)
	if err == nil && home.DeletionTimestamp == nil {
		t.busy(t.home.side, "Taking the pods back")
		if err := t.home.takeBack(t.ctx, trialNamespace); err != nil {
			return err
		}
		_, err = t.home.remove(t.ctx, home)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return t.home.describe("remove", home, err)
	}
	t.busy(nowhere, "Waiting until nothing is left")
	if err := t.each(t.all, func(ctx context.Context, c *cluster) error {
		return c.awaitGone(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: trialNamespace}})
	}); err != nil {
		return err
	}
	t.info(nowhere, "Namespace %s is removed from all clusters", trialNamespace)
	return nil
}
