// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/storage/plan"
)

// configure reads from the installation the image that copies and the namespace of copies.
func (m *volumeMove) configure(o *moveOptions) error {
	manager := m.controllerManager()
	if err := m.read(m.ctx, manager); err != nil {
		return err
	}
	container := manager.Spec.Template.Spec.Containers[0]
	m.Image, m.PullPolicy = container.Image, container.ImagePullPolicy
	m.Volumes = cmp.Or(flagOf(manager, "storage-namespace"), api.StorageNamespace)
	var err error
	if m.Resources.Requests, err = o.requests.list(); err != nil {
		return err
	}
	m.Resources.Limits, err = o.limits.list()
	return err
}

// survey finds out how far an earlier move came and whether this one is possible.
//
//	claim                      copy      what is left to do
//	exists                     any       everything
//	is being deleted           complete  wait for its end, and all that follows
//	is gone or was recreated   complete  recreate the claim, and all that follows
//	has all its data           any       delete the copy
func (m *volumeMove) survey() (done bool, err error) {
	if m.found, err = m.claim(m.Move.Namespace, m.Name); err != nil {
		return false, err
	}
	if m.copied, err = m.claim(m.Volumes, m.Copy(&corev1.PersistentVolumeClaim{}).Name); err != nil {
		return false, err
	}
	if m.copied != nil && m.copied.DeletionTimestamp == nil {
		if m.old, err = plan.Recorded(m.copied); err != nil {
			return false, err
		}
	}
	mark, ending := "", false
	if m.found != nil {
		mark, ending = m.found.Annotations[plan.AnnotationMoving], m.found.DeletionTimestamp != nil
	}
	if mark == plan.MovingDone {
		return true, m.finish()
	}
	if err := m.refuse(mark, ending); err != nil {
		return false, err
	}
	m.copyComplete = m.old != nil && (m.found == nil || mark != "" || ending)
	if !m.copyComplete {
		m.old = m.found
	}
	return false, m.check()
}

// refuse returns why no move can continue with the claim; nil if one can. mark is the progress of
// an earlier move.
func (m *volumeMove) refuse(mark string, ending bool) error {
	switch {
	case m.found == nil && m.old == nil:
		return fmt.Errorf("claim %s/%s does not exist; 'kubectl get pvc -A' lists those that do", m.Move.Namespace,
			m.Name)
	case mark != "" && m.old == nil:
		return fmt.Errorf("claim %s/%s has a part of its data only, and the copy in namespace %s is gone; "+
			"restore it from a backup", m.Move.Namespace, m.Name, m.Volumes)
	case m.old == nil && ending:
		return fmt.Errorf("claim %s/%s is being deleted; wait until it is gone", m.Move.Namespace, m.Name)
	case m.old != nil && m.found != nil && m.found.UID != m.old.UID && mark == "" && !ending:
		return fmt.Errorf("claim %s/%s was made by somebody else while its data is in claim %s/%s; "+
			"delete it and run the command again", m.Move.Namespace, m.Name, m.Volumes, m.copied.Name)
	}
	return nil
}

// check returns why the move is not possible; nil if it is.
func (m *volumeMove) check() error {
	if err := m.read(m.ctx, m.target); apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s does not exist; 'kubectl get nodes' lists those that do", m.target.Name)
	} else if err != nil {
		return err
	}
	in := plan.MoveInput{Claim: m.old, Held: m.copyComplete, Target: m.target}
	class, volume := &storagev1.StorageClass{}, &corev1.PersistentVolume{}
	offloading := &offv1beta1.NamespaceOffloading{}
	for object, key := range map[client.Object]client.ObjectKey{
		class:      {Name: *cmp.Or(m.old.Spec.StorageClassName, new(""))},
		volume:     {Name: m.old.Spec.VolumeName},
		offloading: {Namespace: m.Move.Namespace, Name: api.NamespaceOffloadingName},
	} {
		if key.Name == "" {
			continue
		}
		if err := m.Get(m.ctx, key, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read what claim %s/%s depends on: %w", m.Move.Namespace, m.Name, err)
		}
	}
	in.Provisioner, in.Strategy = class.Provisioner, offloading.Spec.PodOffloadingStrategy
	if volume.Name != "" {
		in.Volume = volume
	}
	m.Size = plan.Size(m.old, in.Volume)
	if m.copyComplete { // the old volume may be gone
		m.Size = *m.copied.Spec.Resources.Requests.Storage()
	}
	var err error
	if in.Mapped, err = m.mapped(); err != nil {
		return err
	}
	if in.Users, err = m.users(nil); err != nil {
		return err
	}
	if obstacle := plan.Obstacle(in); obstacle != "" {
		return fmt.Errorf("claim %s/%s cannot be moved: %s", m.Move.Namespace, m.Name, obstacle)
	}
	return nil
}

// mapped reports whether the claim's namespace is offloaded to the cluster of the target.
func (m *volumeMove) mapped() (bool, error) {
	maps := &offv1beta1.NamespaceMapList{}
	if err := m.List(m.ctx, maps,
		client.MatchingLabels{api.LabelRemoteClusterID: m.target.Labels[api.LabelRemoteClusterID]}); err != nil {
		return false, fmt.Errorf("list namespace maps: %w", err)
	}
	for _, n := range maps.Items {
		if n.Status.CurrentMapping[m.Move.Namespace].Phase == offv1beta1.NamespaceAccepted {
			return true, nil
		}
	}
	return false, nil
}

// users returns the pods that use the claim, or used it after since; nil = now.
func (m *volumeMove) users(since *metav1.Time) ([]string, error) {
	pods := &corev1.PodList{}
	if err := m.List(m.ctx, pods, client.InNamespace(m.Move.Namespace)); err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", m.Move.Namespace, err)
	}
	return m.Users(pods.Items, since), nil
}

// claim reads a claim; nil if it does not exist.
func (m *volumeMove) claim(namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metaOf(namespace, name)}
	err := m.read(m.ctx, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}
