// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// annotationFollowed on a GatewayClient holds the endpoint that its server announced last, as JSON.
// The client may dial another one.
const annotationFollowed = "networking.liqo.io/followed"

// Side holds the objects of a peering in one cluster: those labelled with the other cluster's ID.
// Managed fields show what users wrote; an object without them is followed as a whole.
type Side struct {
	Servers        []netv1beta1.GatewayServer
	Clients        []netv1beta1.GatewayClient
	Configurations []netv1beta1.Configuration
	PublicKeys     []netv1beta1.PublicKey
}

// Versions returns the resource versions of all objects of a side.
func (s Side) Versions() map[string]string {
	all := map[string]string{}
	for i := range s.Servers {
		all["server "+s.Servers[i].Name] = s.Servers[i].ResourceVersion
	}
	for i := range s.Clients {
		all["client "+s.Clients[i].Name] = s.Clients[i].ResourceVersion
	}
	for i := range s.Configurations {
		all["configuration "+s.Configurations[i].Name] = s.Configurations[i].ResourceVersion
	}
	for i := range s.PublicKeys {
		all["key "+s.PublicKeys[i].Name] = s.PublicKeys[i].ResourceVersion
	}
	return all
}

// FollowInput holds both sides of a peering. They are zero while the peer's side is not known.
type FollowInput struct{ Own, Peer Side }

// refusedPeriod is the interval at which a change that a provider refused is retried. A provider of
// another version refuses it until an upgrade changes this cluster's role there.
const refusedPeriod = 10 * time.Minute

// Following plans on each side the values that the other side announces. It does not overwrite
// concurrent changes, but follows again after them.
func Following(in FollowInput) desired.Plan {
	p := desired.Plan{Actions: Follow(in.Own, in.Peer)}
	for _, a := range Follow(in.Peer, in.Own) {
		a.Peer = true
		p.Actions = append(p.Actions, a)
		p.RequeueAfter = refusedPeriod
	}
	return p
}

// Follow changes the objects of own that differ from what the other side announces:
//
//	own                              of
//	GatewayClient spec.endpoint   ◀─ GatewayServer status.endpoint
//	PublicKey     spec.publicKey  ◀─ GatewayServer or -Client status.publicKey
//	Configuration spec.remote     ◀─ Configuration spec.local
//
// Fields that a user's tool wrote are kept. So is an endpoint that the server never announced,
// because somebody has chosen it, such as an address in front of a NAT; the announced one is then
// only noted. If two objects announce a value, neither is followed.
func Follow(own, of Side) []desired.Action {
	var out []desired.Action
	change := func(before, after desired.Object) {
		out = append(out, desired.Action{Verb: desired.Merge, Locked: true, Before: before, Object: after})
	}
	if endpoint := of.endpoint(); endpoint != nil {
		for i := range own.Clients {
			c := own.Clients[i].DeepCopy()
			chosen, noted := Chosen(c, endpoint), Note(c, endpoint)
			followed := !chosen && follow(c, endpoint, &c.Spec.Endpoint, "endpoint")
			if (followed || noted) && c.DeletionTimestamp == nil {
				change(&own.Clients[i], c)
			}
		}
	}
	if key := of.publicKey(); key != nil {
		for i := range own.PublicKeys {
			k := own.PublicKeys[i].DeepCopy()
			if follow(k, key, &k.Spec.PublicKey, "publicKey") {
				change(&own.PublicKeys[i], k)
			}
		}
	}
	if cidrs := of.cidrs(); cidrs != nil {
		for i := range own.Configurations {
			c := own.Configurations[i].DeepCopy()
			if follow(c, cidrs, &c.Spec.Remote, "remote") {
				change(&own.Configurations[i], c)
			}
		}
	}
	return out
}

// follow changes a field of the spec to what is announced, and reports whether that is a change.
func follow[T any](obj desired.Object, announced T, field *T, name string) bool {
	if encoded(*field) == encoded(announced) || obj.GetDeletionTimestamp() != nil || UserOwns(obj, name) {
		return false
	}
	*field = announced
	return true
}

// Chosen reports whether a client dials an endpoint that was never announced to it.
func Chosen(c *netv1beta1.GatewayClient, announced *netv1beta1.EndpointStatus) bool {
	have := encoded(c.Spec.Endpoint)
	return c.Spec.Endpoint != nil && have != encoded(announced) && have != c.Annotations[annotationFollowed]
}

// UnfollowedEndpoint returns the endpoint that the server announced last, if the client dials another
// one. It returns nil if both are equal, or if nothing was announced.
func UnfollowedEndpoint(c *netv1beta1.GatewayClient) *netv1beta1.EndpointStatus {
	announced := &netv1beta1.EndpointStatus{}
	if json.Unmarshal([]byte(c.Annotations[annotationFollowed]), announced) != nil ||
		encoded(c.Spec.Endpoint) == encoded(announced) {
		return nil
	}
	return announced
}

// Note records the announced endpoint on a client, and reports whether it changed.
func Note(c *netv1beta1.GatewayClient, announced *netv1beta1.EndpointStatus) bool {
	now := encoded(announced)
	if c.Annotations[annotationFollowed] == now {
		return false
	}
	c.Annotations = labels.Merge(c.Annotations, map[string]string{annotationFollowed: now})
	return true
}

// encoded returns a parameter as text; equal parameters have equal texts.
func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error() // no parameter is of a type that can fail
	}
	return string(text)
}

// UserOwns reports whether somebody else than Liqo and liqoctl has written a field of an object's
// spec: an editor, kubectl, a GitOps tool.
func UserOwns(obj metav1.Object, field string) bool {
	for _, entry := range obj.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, "liqo") || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		// Fields that do not parse count as owned by nobody.
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) == nil && owned.Spec["f:"+field] != nil {
			return true
		}
	}
	return false
}

// endpoint returns the endpoint of the only server; nil while it is not known.
func (s Side) endpoint() *netv1beta1.EndpointStatus {
	if len(s.Servers) != 1 || s.Servers[0].Status.Endpoint == nil || len(s.Servers[0].Status.Endpoint.Addresses) == 0 {
		return nil
	}
	return s.Servers[0].Status.Endpoint
}

// publicKey returns the key of the only gateway; nil while there is none.
func (s Side) publicKey() []byte {
	switch {
	case len(s.Servers) == 1 && len(s.Clients) == 0:
		return s.Servers[0].Status.PublicKey
	case len(s.Clients) == 1 && len(s.Servers) == 0:
		return s.Clients[0].Status.PublicKey
	}
	return nil
}

// cidrs returns the cluster's own CIDRs; nil while they are not known.
func (s Side) cidrs() *netv1beta1.ClusterConfig {
	if len(s.Configurations) != 1 || s.Configurations[0].Spec.Local == nil ||
		len(s.Configurations[0].Spec.Local.CIDR.Pod) == 0 {
		return nil
	}
	return s.Configurations[0].Spec.Local
}
