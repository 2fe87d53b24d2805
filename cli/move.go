// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/storage/plan"
	"github.com/liqo-go/liqo/view"
)

const (
	// moveStep bounds each wait for Kubernetes to start a pod, including an image pull, or to
	// delete a volume. The copy itself has no time limit.
	moveStep = 5 * time.Minute
	// cleanUpTimeout bounds the cleanup after an interrupt.
	cleanUpTimeout = 15 * time.Second
	// moveLimit is longer than any move.
	moveLimit = 1000 * time.Hour
)

// moveOptions holds the flags of 'move volume'.
type moveOptions struct {
	namespace, target string
	requests, limits  quantities
}

func (e *env) moveCommand() *cobra.Command {
	cmd := group("move", "Move volumes of offloaded pods")
	o := &moveOptions{}
	sub := &cobra.Command{Use: "volume <pvc>", Aliases: []string{"pvc"}, Args: oneArgument,
		Short: "Move the volume of a claim of class liqo to where the pods of a node run",
		Long: "Move the volume of a claim of class liqo to where the pods of a node run. " +
			"The data is copied to a volume at home, the claim is made anew on the node, " +
			"and the data is copied there. Interrupted, it is taken up again by the same command.",
		Example: "  liqoctl move volume data -n shop --target-node milan",
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.moveVolume(cmd, o, args[0])
		}}
	sub.ValidArgsFunction = firstOnly(e.completion(e.namesOf(&corev1.PersistentVolumeClaim{})))
	flags := sub.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the claim (default: that of the kubeconfig)")
	addLiqoFlag(flags, "liqo-namespace", "", "")
	flags.StringVar(&o.target, "target-node", "", "Node, virtual or not, to whose pods the volume is to be")
	flags.StringVar(&o.requests.cpu, "containers-cpu-requests", "", "CPU the pods that copy request")
	flags.StringVar(&o.limits.cpu, "containers-cpu-limits", "", "CPU the pods that copy may use")
	flags.StringVar(&o.requests.memory, "containers-ram-requests", "", "Memory the pods that copy request")
	flags.StringVar(&o.limits.memory, "containers-ram-limits", "", "Memory the pods that copy may use")
	for _, name := range []string{"restic-image", "restic-server-image"} {
		flags.String(name, "", "Accepted for compatibility; Liqo's own image copies")
	}
	require(sub, "target-node")
	cmd.AddCommand(sub)
	return cmd
}

// volumeMove is one move. Its progress is stored in the cluster: the claim of the copy records the
// moved claim as soon as the copy is complete, and a recreated claim is marked until it has all its
// data and the copy is gone. A run deletes nothing that another run has changed, so that two
// concurrent runs do no harm.
type volumeMove struct {
	*script
	*cluster
	plan.Move
	// found is the current claim, copied the claim of the copy; nil if there is none.
	found, copied *corev1.PersistentVolumeClaim
	// old is the claim before the move.
	old *corev1.PersistentVolumeClaim
	// copyComplete reports that the copy has all data.
	copyComplete bool
	target       *corev1.Node
}

// errOther reports that the claim or its copy was changed by somebody else since this run read it.
var errOther = errors.New("somebody else changes the claim or its copy, perhaps by the same command")

func (e *env) moveVolume(cmd *cobra.Command, o *moveOptions, name string) error {
	s, stop := e.newScript(cmd.Context(), moveLimit)
	defer stop()
	c, err := e.localCluster(s.ctx, cmd)
	if err != nil {
		return err
	}
	m := &volumeMove{script: s, cluster: c, target: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.target}}}
	m.Move = plan.Move{Namespace: cmp.Or(o.namespace, c.current), Name: name}
	if err := m.configure(o); err != nil {
		return err
	}
	done, err := m.survey()
	if err != nil || done {
		return err
	}
	s.info(noCluster, "Pre-flight checks passed")
	if err = m.run(); err == nil {
		s.info(noCluster, "Volume of claim %s/%s moved to node %s", m.Move.Namespace, name, o.target)
		return nil
	}
	m.cleanUp(context.WithoutCancel(cmd.Context()))
	if m.copyComplete {
		return hint(err, "the data is safe in claim %s/%s: run the command again to go on, with another "+
			"--target-node if that cannot have the volume",
			m.Volumes, m.copied.Name)
	}
	return hint(err, "the volume is where it was; run the command again")
}

// run does what is left to do. It deletes the old volume when the copy is complete, and the copy
// when the new volume is, so that one of them always has all data.
func (m *volumeMove) run() error {
	if err := m.clear(m.ctx); err != nil {
		return err
	}
	if !m.copyComplete {
		if err := m.snapshot(); err != nil {
			return err
		}
	}
	m.info(noCluster, "Snapshot taken")
	if err := m.recreate(); err != nil {
		return err
	}
	if err := m.copyData("push", m.target.Name); err != nil {
		return err
	}
	m.info(noCluster, "Restore completed")
	return m.finish()
}

// snapshot creates the copy, records the claim in it and deletes the claim.
func (m *volumeMove) snapshot() error {
	m.script.busy(noCluster, "Taking a snapshot")
	if m.copied != nil { // of an earlier move, incomplete or out of date
		if err := m.deleteAndAwait(m.copied); err != nil {
			return err
		}
	}
	m.copied = m.Copy(m.old)
	if err := m.create(m.copied); err != nil {
		return err
	}
	if err := m.copyData("pull", ""); err != nil {
		return err
	}
	users, err := m.users(&m.copied.CreationTimestamp)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("pod %s began to use the claim meanwhile", someNames(users))
	}
	record, err := plan.Record(m.old)
	if err != nil {
		return err
	}
	if m.copied, err = m.annotate(m.copied, plan.AnnotationMoved, record); err != nil {
		return err
	}
	m.copyComplete = true
	// From here on no pod can begin to use the claim.
	m.found = nil
	err = m.Delete(m.ctx, m.old, client.Preconditions{UID: &m.old.UID})
	return m.describe("delete", m.old, client.IgnoreNotFound(err))
}

// recreate creates the claim again, after deleting the old one or one with only a part of the data.
func (m *volumeMove) recreate() error {
	m.script.busy(noCluster, "Making the claim anew")
	former := m.found
	m.found = plan.Recreated(m.old)
	if err := m.deleteAndAwait(cmp.Or(former, m.found)); err != nil {
		return err
	}
	return m.describe("create", m.found, m.Create(m.ctx, m.found))
}

// finish marks the claim as having all its data, deletes the copy and then removes the mark.
func (m *volumeMove) finish() error {
	m.script.busy(noCluster, "Removing the copy")
	var err error
	if m.found, err = m.annotate(m.found, plan.AnnotationMoving, plan.MovingDone); err != nil {
		return err
	}
	if m.copied != nil {
		if err := m.deleteAndAwait(m.copied); err != nil {
			return err
		}
	}
	if _, err = m.annotate(m.found, plan.AnnotationMoving, ""); err != nil {
		return err
	}
	m.info(noCluster, "Claim %s/%s has all its data; the copy is removed", m.Move.Namespace, m.Name)
	return nil
}

// annotate sets an annotation on a claim that has not changed and is not being deleted; an empty
// text removes it.
func (m *volumeMove) annotate(
	claim *corev1.PersistentVolumeClaim, key, text string,
) (*corev1.PersistentVolumeClaim, error) {
	var written *corev1.PersistentVolumeClaim
	err := m.ifUnchanged(m.ctx, claim, func(now *corev1.PersistentVolumeClaim) error {
		if now == nil {
			return errOther
		}
		before := now.DeepCopy()
		setAnnotation(now, key, text)
		written = now
		return m.describe("update", now,
			m.Patch(m.ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	})
	if err != nil {
		return claim, err
	}
	return written, nil
}

// ifUnchanged reads a claim again and calls do with it, or with nil if it is gone or being deleted.
// It fails if another run has continued the move since the claim was read. do must fail with a
// conflict if the claim changes meanwhile; since Kubernetes changes claims too, ifUnchanged then
// tries again.
func (m *volumeMove) ifUnchanged(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, do func(*corev1.PersistentVolumeClaim) error,
) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &corev1.PersistentVolumeClaim{}
		err := m.Get(ctx, client.ObjectKeyFromObject(claim), now)
		switch {
		case apierrors.IsNotFound(err):
			return do(nil)
		case err != nil:
			return m.describe("read", claim, err)
		case now.UID != claim.UID, now.Annotations[plan.AnnotationMoved] != claim.Annotations[plan.AnnotationMoved],
			now.Annotations[plan.AnnotationMoving] != claim.Annotations[plan.AnnotationMoving]:
			return errOther
		case now.DeletionTimestamp != nil:
			return do(nil)
		}
		return do(now)
	})
	if apierrors.IsConflict(err) {
		return errOther
	}
	return err
}

// create creates an object of the move.
func (m *volumeMove) create(object client.Object) error {
	object.SetLabels(withDefaults(object.GetLabels(), m.cluster.env.labels))
	err := m.Create(m.ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return errOther
	}
	return m.describe("create", object, err)
}

// copyData starts a server on the claim's volume and a client that pulls from it or pushes to it,
// waits for the client and deletes both pods.
func (m *volumeMove) copyData(verb, node string) error {
	m.script.busy(noCluster, map[string]string{"pull": "Taking a snapshot", "push": "Restoring the data"}[verb])
	token := rand.Text()
	sum := sha256.Sum256([]byte(token))
	server := m.Server(node, hex.EncodeToString(sum[:]))
	if err := m.create(server); err != nil {
		return err
	}
	if err := m.until(server, func() bool { return view.PodReady(server) && server.Status.PodIP != "" }); err != nil {
		return err
	}
	copying := m.Client(verb, net.JoinHostPort(server.Status.PodIP, strconv.Itoa(plan.MoverPort)), token)
	if err := m.create(copying); err != nil {
		return err
	}
	if err := m.until(copying, func() bool { return copying.Status.Phase != corev1.PodPending }); err != nil {
		return err
	}
	watching, stop := context.WithCancel(m.ctx)
	defer stop()
	go m.cluster.showLog(watching, copying)
	err := m.await(m.ctx, copying, func() bool {
		return api.Finished(copying.Status.Phase)
	})
	if err == nil && copying.Status.Phase == corev1.PodFailed {
		err = fmt.Errorf("%s: %s", m.nameOf(copying), cmp.Or(terminationMessage(copying), "it has failed; see its log"))
	}
	return cmp.Or(err, m.clear(m.ctx))
}

// until waits until ok holds for a pod, at most moveStep.
func (m *volumeMove) until(pod *corev1.Pod, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(m.ctx, moveStep, errTimeout)
	defer cancel()
	return m.await(ctx, pod, ok)
}

// deleteAndAwait deletes a claim that was read before, unless another run has continued the move,
// and waits until it is gone.
func (m *volumeMove) deleteAndAwait(claim *corev1.PersistentVolumeClaim) error {
	ctx, cancel := context.WithTimeoutCause(m.ctx, moveStep, errTimeout)
	defer cancel()
	if claim.UID != "" && claim.DeletionTimestamp == nil {
		if err := m.drop(ctx, claim); err != nil {
			return err
		}
	}
	return m.awaitGone(ctx, claim)
}

func (m *volumeMove) drop(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return m.ifUnchanged(ctx, claim, func(now *corev1.PersistentVolumeClaim) error {
		if now == nil {
			return nil
		}
		err := m.Delete(ctx, now, client.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion})
		return m.describe("delete", now, client.IgnoreNotFound(err))
	})
}

// clear deletes the pods of this move and of earlier ones.
func (m *volumeMove) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, moveStep, errTimeout)
	defer cancel()
	for _, pod := range m.Pods() {
		if _, err := m.remove(ctx, pod); err != nil {
			return err
		}
	}
	for _, pod := range m.Pods() {
		if err := m.awaitGone(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes the pods after a failure, and the copy if it is not complete.
func (m *volumeMove) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	err := m.clear(ctx)
	if !m.copyComplete && m.copied != nil && m.copied.UID != "" {
		now := &corev1.PersistentVolumeClaim{}
		failed := client.IgnoreNotFound(m.Get(ctx, client.ObjectKeyFromObject(m.copied), now))
		if failed == nil && now.UID == m.copied.UID && now.Annotations[plan.AnnotationMoved] == "" {
			failed = m.drop(ctx, now)
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		m.warn(noCluster, "Some of it is left for the next run to remove: %v", err)
	}
}

// terminationMessage returns the message of the first container that has ended, else that of the
// pod.
func terminationMessage(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			return oneLine(ended.Message)
		}
	}
	return oneLine(pod.Status.Message)
}

// showLog shows the last line of a pod's log, which tells its progress, until ctx ends. It ignores
// errors, as nothing depends on it.
func (c *cluster) showLog(ctx context.Context, pod *corev1.Pod) {
	core, err := corev1client.NewForConfig(c.config)
	if err != nil {
		return
	}
	log, err := core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return
	}
	defer func() { _ = log.Close() }() // read to its end, or given up
	for lines := bufio.NewScanner(log); lines.Scan(); {
		show(ctx, lines.Text())
	}
}
