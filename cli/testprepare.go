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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const (
	// firstWarning is how long a wait for pods lasts before the first warning; warningFactor
	// multiplies the time to each further one.
	firstWarning, warningFactor = 5 * time.Second, 3
)

// readNodes reads the nodes of all clusters and derives the pods for them.
func (t *trial) readNodes() error {
	manager := t.consumer.controllerManager()
	if err := t.consumer.read(t.ctx, manager); err != nil {
		return err
	}
	container := manager.Spec.Template.Spec.Containers[0]
	for _, c := range t.all {
		nodes := &corev1.NodeList{}
		if err := c.list(t.ctx, nodes); err != nil {
			return err
		}
		t.nodes[c.id] = nodes.Items
		pods := trialPods{cluster: c.id, replicas: workers(nodes.Items), image: container.Image,
			pull: container.ImagePullPolicy, offloaded: c != t.consumer}
		if t.pods[c.id] = pods; pods.replicas == 0 {
			return fmt.Errorf("the %scluster has no node for pods without tolerations; see 'kubectl get nodes' there",
				c.side.clusterPrefix())
		}
		ofProvider := func(n corev1.Node) bool { return !isRealNode(n) && n.Labels[api.LabelRemoteClusterID] == c.id }
		if pods.offloaded && !slices.ContainsFunc(t.nodes[t.consumer.id], ofProvider) {
			return fmt.Errorf("no virtual node stands for %s; run '%s peer' first", c.id, t.consumer.env.name)
		}
	}
	return nil
}

// prepare creates the namespace in all clusters, the pods and their Services, and waits until they
// are ready.
func (t *trial) prepare() error {
	if err := t.makeNamespace(); err != nil {
		return err
	}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelRemoteClusterID,
		Operator: corev1.NodeSelectorOpIn}}}
	for _, c := range t.providers() {
		term.MatchExpressions[0].Values = append(term.MatchExpressions[0].Values, c.id)
	}
	err := t.offloadNamespace(t.consumer, offloading(trialNamespace, offv1beta1.NamespaceOffloadingSpec{
		PodOffloadingStrategy:    offv1beta1.LocalAndRemoteStrategy,
		NamespaceMappingStrategy: offv1beta1.EnforceSameNameMapping,
		ClusterSelector:          &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
	}), "", func(*script) {})
	if err != nil {
		return err
	}
	for _, c := range t.providers() {
		if t.basic {
			break // none of its pods is in the host's network
		}
		if err := c.apply(t.ctx, trialNamespaceObject()); err != nil {
			return err
		}
	}
	objects := t.trialObjects()
	t.busy(noCluster, "Creating pods and Services")
	for _, o := range objects {
		if err := o.apply(t.ctx, o.object); err != nil {
			return err
		}
	}
	if err := t.removeStale(objects); err != nil {
		return err
	}
	return t.awaitPods(objects)
}

// makeNamespace creates the namespace, once one that is being deleted is gone.
func (t *trial) makeNamespace() error {
	namespace := trialNamespaceObject()
	if err := t.consumer.read(t.ctx, namespace); err == nil && namespace.DeletionTimestamp != nil {
		t.busy(t.consumer.side, "Waiting for the removal that an earlier test began")
		if err := t.consumer.awaitGone(t.ctx, namespace); err != nil {
			return err
		}
	}
	return t.consumer.apply(t.ctx, trialNamespaceObject())
}

// trialObject is an object of the trial in one cluster.
type trialObject struct {
	*cluster
	object client.Object
}

// trialObjects returns all objects of the trial except its namespaces.
func (t *trial) trialObjects() []trialObject {
	var out []trialObject
	for _, c := range t.all {
		out = append(out, trialObject{t.consumer, trialDeployment(t.pods[c.id])})
		if !t.basic {
			out = append(out, trialObject{c, trialHosts(t.pods[c.id])})
		}
		if t.ip && !t.basic {
			out = append(out, trialObject{c, trialAddress(t.internet)})
		}
	}
	out = append(out, trialObject{t.consumer, trialService(trialApp, corev1.ServiceTypeClusterIP)})
	if (t.podNodePort || t.outsideNodePort) && !t.basic {
		out = append(out, trialObject{t.consumer, trialService(trialNodePort, corev1.ServiceTypeNodePort)})
	}
	if t.balancer && !t.basic {
		out = append(out, trialObject{t.consumer, trialService(trialBalancer, corev1.ServiceTypeLoadBalancer)})
	}
	return out
}

// removeStale deletes objects of an earlier test that this one does not need.
func (t *trial) removeStale(keep []trialObject) error {
	for _, c := range t.all {
		old := []client.Object{trialAddress(t.internet)}
		if c == t.consumer {
			old = append(old, trialService(trialNodePort, corev1.ServiceTypeNodePort),
				trialService(trialBalancer, corev1.ServiceTypeLoadBalancer))
		}
		deployments, err := c.all(t.ctx, &appsv1.DeploymentList{}, client.InNamespace(trialNamespace))
		if err != nil {
			return err
		}
		for _, object := range append(old, deployments...) {
			needed := slices.ContainsFunc(keep,
				func(m trialObject) bool { return m.cluster == c && m.nameOf(m.object) == c.nameOf(object) })
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

// awaitPods waits until the pods of all Deployments are ready.
func (t *trial) awaitPods(all []trialObject) error {
	for _, m := range all {
		d, ok := m.object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		t.busy(m.side, "Waiting for the pods of "+d.Name)
		stop := t.warnWhileWaiting(m.cluster, d.DeepCopy())
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

// warnWhileWaiting warns, until it is stopped, why the pods of a Deployment are not ready, so that
// the user can repair it while the command waits.
func (t *trial) warnWhileWaiting(c *cluster, d *appsv1.Deployment) (stop func()) {
	ctx, end := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := firstWarning; ; wait *= warningFactor {
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

// remove deletes all objects and waits until they are gone from all clusters.
func (t *trial) remove() error {
	namespace := trialNamespaceObject()
	err := t.consumer.Get(t.ctx, client.ObjectKeyFromObject(namespace), namespace)
	if err == nil && namespace.DeletionTimestamp == nil {
		t.busy(t.consumer.side, "Taking the pods back")
		if err := t.consumer.unoffloadNamespace(t.ctx, trialNamespace); err != nil {
			return err
		}
		_, err = t.consumer.remove(t.ctx, namespace)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return t.consumer.describe("remove", namespace, err)
	}
	t.busy(noCluster, "Waiting until nothing is left")
	if err := onEach(t.all, func(c *cluster) error {
		return c.awaitGone(t.ctx, &corev1.Namespace{ObjectMeta: metaOf("", trialNamespace)})
	}); err != nil {
		return err
	}
	t.info(noCluster, "Namespace %s is removed from all clusters", trialNamespace)
	return nil
}
