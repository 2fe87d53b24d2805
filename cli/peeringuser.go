// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// peeringKeyBits is the size of RSA keys: NIST SP 800-131A.
const peeringKeyBits = 2048

func generatePeeringUser(o *single) work {
	var compatible string
	o.needConsumer()
	o.Flags().Var(choice(&compatible, "auto", "true", "false"), "tls-compatibility-mode",
		"RSA instead of Ed25519 keys; auto: as Liqo was installed")
	return func(s *script, c *cluster) error {
		if c.id == o.peer {
			return errors.New("--consumer-cluster-id is the ID of this cluster; " +
				"give that of the cluster that is to use it")
		}
		if err := c.requireNoPeeringUser(s.ctx, o.peer); err != nil {
			return err
		}
		if err := c.requireUnusedName(s.ctx, o.peer); err != nil {
			return err
		}
		s.warn(noCluster, "Note that this functionality is currently not supported in EKS clusters")
		s.busy(noCluster, "Generating user")
		config, err := c.newPeeringUser(s.ctx, o.peer, compatible)
		if err != nil {
			return err
		}
		s.warn(noCluster, "Please take note of this kubeconfig as it is not stored.")
		s.warn(noCluster, "Note that it can only be used to peer with this cluster from a cluster with ID %s", o.peer)
		s.info(noCluster, "User generated successfully")
		_, err = s.env.Out.Write(config)
		return err
	}
}

// needConsumer adds the required flag with the consumer's ID.
func (o *single) needConsumer() {
	o.ownTenant = true
	o.Flags().Var((*clusterID)(&o.peer), "consumer-cluster-id", "Cluster ID of the consumer")
	require(o.Command, "consumer-cluster-id")
}

func deletePeeringUser(o *single) work {
	o.needConsumer()
	o.deletedFlag()
	return func(s *script, c *cluster) error {
		found, err := c.peeringUser(s.ctx, o.peer)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("there is no peering user for cluster %q", o.peer)
		}
		for _, object := range found {
			if _, err := c.remove(s.ctx, object); err != nil {
				return err
			}
		}
		s.info(noCluster, "Peering user for cluster with ID %q deleted successfully", o.peer)
		return s.env.printStored(o.output, found...)
	}
}

// peeringUser returns the bindings and the signing request of a consumer's peering user. The
// bindings come first, so that its rights are deleted first.
func (c *cluster) peeringUser(ctx context.Context, consumer string) ([]client.Object, error) {
	label := client.MatchingLabels{api.LabelPeeringUserName: api.PeeringUserLabel(consumer)}
	bindings, err := c.all(ctx, &rbacv1.RoleBindingList{}, label)
	if err != nil {
		return nil, err
	}
	requests, err := c.all(ctx, &certificatesv1.CertificateSigningRequestList{}, label)
	return append(bindings, requests...), err
}

// requireNoPeeringUser refuses a second user for a consumer.
func (c *cluster) requireNoPeeringUser(ctx context.Context, consumer string) error {
	found, err := c.peeringUser(ctx, consumer)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("a peering user for cluster %q exists already; to replace it, first run '%s delete "+
			"peering-user --consumer-cluster-id %s'",
			consumer, c.env.name, consumer)
	}
	return err
}

// requireUnusedName fails if the consumer's ID is already a user name in this cluster. Its Tenant
// would be refused, too.
func (c *cluster) requireUnusedName(ctx context.Context, consumer string) error {
	found := &authv1beta1.ResourceSliceList{}
	if _, err := c.all(ctx, found); err != nil {
		return err
	}
	if other := (plan.Users{Slices: found.Items}).Holder(consumer); other != "" {
		return fmt.Errorf("%s has the user name %q in this cluster; delete it or give the consumer another cluster ID",
			other, consumer)
	}
	return nil
}

// newPeeringUser creates a user with the rights of the peering roles and returns its kubeconfig.
// After a failure it deletes what it has created.
func (c *cluster) newPeeringUser(ctx context.Context, consumer, compatible string) ([]byte, error) {
	installed, err := c.controller(ctx)
	if err != nil {
		return nil, err
	}
	bind, err := c.peeringRoles(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.ensureTenant(ctx, consumer); err != nil {
		return nil, err
	}
	if compatible == "auto" {
		compatible = flagOf(installed, "tls-compatibility-mode")
	}
	user, err := newUser(consumer, compatible == api.True)
	if err != nil {
		return nil, err
	}
	if user.lifetime, err = time.ParseDuration(flagOf(installed, "certificate-lifetime")); err != nil {
		user.lifetime = plan.DefaultLifetime // older installations have no such flag
	}
	config, err := c.createPeeringUser(ctx, user, bind, installed)
	if err != nil {
		c.removePeeringUser(consumer)
	}
	return config, err
}

// peeringRoles returns the roles of a peering user: for Liqo's namespace and for the tenant
// namespace.
func (c *cluster) peeringRoles(ctx context.Context) ([2]rbacv1.RoleRef, error) {
	label := client.MatchingLabels{api.LabelAppComponent: api.AppComponentPeeringUser}
	var out [2]rbacv1.RoleRef
	for i, list := range []client.ObjectList{&rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}} {
		found, err := c.all(ctx, list, label, client.InNamespace([2]string{c.namespace, ""}[i]))
		if err != nil {
			return out, err
		}
		kind := [2]string{"Role", "ClusterRole"}[i]
		if len(found) != 1 {
			return out, fmt.Errorf(
				"%d objects of kind %s have the label %s=%s, there must be one; run '%s upgrade' to put it right",
				len(found), kind, api.LabelAppComponent, api.AppComponentPeeringUser, c.env.name)
		}
		out[i] = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: found[0].GetName()}
	}
	return out, nil
}

// peeringUser is a user with its key and signing request.
type peeringUser struct {
	consumer, name string
	// lifetime is the lifetime of the certificate to request.
	lifetime time.Duration
	// key and request are PEM.
	key, request []byte
}

// newUser makes a key and a random name, so that it does not get the rights of a user that was
// deleted earlier.
func newUser(consumer string, compatible bool) (*peeringUser, error) {
	suffix := make([]byte, 16)
	if _, err := rand.Read(suffix); err != nil {
		return nil, fmt.Errorf("choose a user name: %w", err)
	}
	signer, err := newKey(compatible)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	u := &peeringUser{consumer: consumer, name: api.PeeringUserName(consumer) + "-" + hex.EncodeToString(suffix)}
	if u.key, err = plan.EncodePrivateKey(signer); err != nil {
		return nil, err
	}
	u.request, err = plan.NewRequest(signer, plan.Subject{User: u.name, Group: api.ControlPlaneOrganization})
	return u, err
}

func newKey(compatible bool) (crypto.Signer, error) {
	if compatible {
		return rsa.GenerateKey(rand.Reader, peeringKeyBits)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// createPeeringUser gets the user's certificate signed, grants the roles and returns the
// kubeconfig.
func (c *cluster) createPeeringUser(
	ctx context.Context, u *peeringUser, roles [2]rbacv1.RoleRef, installed *appsv1.Deployment,
) ([]byte, error) {
	certificate, err := c.sign(ctx, u)
	if err != nil {
		return nil, err
	}
	for i, at := range []metav1.ObjectMeta{
		{Namespace: c.namespace, Name: api.PeeringUserLiqoBindingName(u.consumer)},
		{Namespace: c.tenant, Name: api.PeeringUserTenantBindingName(u.consumer)},
	} {
		at.Labels = u.labels()
		if err := c.apply(ctx, &rbacv1.RoleBinding{
			ObjectMeta: at, RoleRef: roles[i],
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.name}},
		}); err != nil {
			return nil, err
		}
	}
	server, authority, err := c.publicAPIServer(ctx, installed)
	if err != nil {
		return nil, err
	}
	return plan.Kubeconfig{
		Cluster: c.id, User: u.consumer + "-user", Namespace: c.tenant, Server: server, CA: authority,
		Certificate: certificate, Key: u.key,
	}.Encode()
}

func (u *peeringUser) labels() map[string]string {
	return map[string]string{
		api.LabelPeeringUserName: api.PeeringUserLabel(u.consumer), api.LabelRemoteClusterID: u.consumer,
	}
}

// sign asks for the user's certificate and approves the request.
func (c *cluster) sign(ctx context.Context, u *peeringUser) ([]byte, error) {
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: api.PeeringUserName(u.consumer), Labels: u.labels()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: u.request, SignerName: api.CSRSigner, ExpirationSeconds: new(int32(u.lifetime.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := c.Create(ctx, request); err != nil {
		return nil, c.describe("create", request, err)
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "PeeringUser",
		Message: "approved by liqoctl generate peering-user",
	})
	if err := c.SubResource("approval").Update(ctx, request); err != nil {
		return nil, c.describe("approve", request, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limits.sign, errTimeout)
	defer cancel()
	if err := c.await(ctx, request, func() bool { return len(request.Status.Certificate) > 0 }); err != nil {
		return nil, hint(err, "check that the cluster's controller manager signs certificates for %s", api.CSRSigner)
	}
	return request.Status.Certificate, nil
}

// removePeeringUser deletes the objects of a user. It ignores errors: the next attempt reports what
// is left.
func (c *cluster) removePeeringUser(consumer string) {
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	found, _ := c.peeringUser(ctx, consumer)
	for _, object := range found {
		_, _ = c.remove(ctx, object)
	}
}

// publicAPIServer returns the URL and the certificate authority (PEM) for other clusters: those
// that Liqo was installed with, else the URL that its controller uses and the authority of the
// kubeconfig.
func (c *cluster) publicAPIServer(
	ctx context.Context, installed *appsv1.Deployment,
) (server string, authority []byte, err error) {
	if server = c.publicURL(ctx, installed); isInternalURL(server) {
		return "", nil, fmt.Errorf("the API server's URL %s cannot be used from other clusters; run '%s install' "+
			"again with --api-server-url", server, c.env.name)
	}
	override := flagOf(installed, "ca-override")
	switch {
	case flagOf(installed, "trusted-ca") == api.True:
		return server, nil, nil
	case override != "":
		if authority, err = base64.StdEncoding.DecodeString(override); err != nil {
			err = fmt.Errorf("read the authority of the installation: %w", err)
		}
		return server, authority, err
	}
	config := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", nil, fmt.Errorf("read the authority of the kubeconfig: %w", err)
	}
	return server, config.CAData, nil
}

// publicURL returns the URL for other clusters: the one that Liqo was installed with, else that of
// a control-plane node, as its controller does. If it cannot read such a node, it returns the URL
// of the kubeconfig, which may be valid only on this machine.
func (c *cluster) publicURL(ctx context.Context, installed *appsv1.Deployment) string {
	if override := flagOf(installed, "api-server-address-override"); override != "" {
		return override
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return c.config.Host
	}
	return cmp.Or(plan.NodeAPIServer(nodes.Items), c.config.Host)
}
