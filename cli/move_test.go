// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/storage/plan"
)

// nodes simulates nodes until the story ends: servers of volumes become ready and clients succeed,
// or fail while there is a ConfigMap "full". It removes the finalizer of claims that no pod uses.
func (s *session) nodes(t *testing.T, cluster string) {
	t.Helper()
	c, err := client.New(s.clusters[cluster].Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := play(ctx, c)
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
				err = nil
			}
			return false, err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; ctx.Err() == nil {
			t.Errorf("nodes: %v", err)
		}
	})
}

func play(ctx context.Context, c client.Client) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return err
	}
	used := map[string]bool{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				used[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName] = true
			}
		}
		if pod.Status.Phase != corev1.PodPending || !strings.HasPrefix(pod.Name, "move-") {
			continue
		}
		pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		switch verb := pod.Spec.Containers[0].Args[1]; {
		case verb == "push" && full(ctx, c):
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "mover", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, Message: "the server of the volume says: no space left on device",
			}}}}
		case verb != "serve":
			pod.Status.Phase = corev1.PodSucceeded
		}
		if err := c.Status().Update(ctx, pod); err != nil {
			return err
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := c.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp == nil || used[claim.Namespace+"/"+claim.Name] || len(claim.Finalizers) == 0 {
			continue
		}
		claim.Finalizers = nil
		if err := c.Update(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// full reports whether the simulated disks are full.
func full(ctx context.Context, c client.Client) bool {
	return c.Get(ctx, client.ObjectKey{Namespace: api.Namespace, Name: "full"}, &corev1.ConfigMap{}) == nil
}

// claims lists claims and the pods of moves.
func (s *session) claims(t *testing.T, cluster string) string {
	t.Helper()
	c, err := client.New(s.clusters[cluster].Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	var claims corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&claims, &pods} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, claim := range claims.Items {
		line := fmt.Sprintf(" claim %s/%s of %s", claim.Namespace, claim.Name, claim.Spec.Resources.Requests.Storage())
		if claim.Spec.VolumeName != "" {
			line += ", volume " + claim.Spec.VolumeName
		}
		if mark := claim.Annotations[plan.AnnotationMoving]; mark != "" {
			line += ", moving: " + mark
		}
		if recorded, err := plan.Recorded(&claim); recorded != nil || err != nil {
			line += ", holds that of " + recorded.Namespace + "/" + recorded.Name
		}
		out = append(out, line+"\n")
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Name, "move-") {
			out = append(out, " pod "+pod.Namespace+"/"+pod.Name+"\n")
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}
