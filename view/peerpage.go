// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
)

// PeerPage is one peering in detail.
type PeerPage struct {
	MapPeer
	Detail     *Peer
	Conditions []Condition
	Tunnels    []Tunnel
	Keys       Keys
	Ranges     []MappedRange
	// RangesMissing says why no ranges are known; empty if they are, or there are none.
	RangesMissing string
	Reach         Reach
	Certificates  []Certificate
	Events        []Event
	// EventsMissing says why no events are known; empty if they are.
	EventsMissing string
	Hidden        []string
}

// Count returns how many problems the peering has.
func (p *PeerPage) Count() int { return len(p.Problems) }

// Condition is one condition of an object. Module is empty for those of a peer as a whole.
type Condition struct {
	Module, Type, Status, Reason, Message string
	// Since is the last transition; zero if it is not known.
	Since time.Time
	Bad   bool
}

// Certificate is a client certificate of this cluster at the peer. Ends is zero if there is none yet, and if it cannot
// be read.
type Certificate struct {
	Name   string
	Ends   time.Time
	Issued bool
}

// PeerPage returns the peering with a cluster; nil if there is none that is active.
func (s *Snapshot) PeerPage(id string) *PeerPage {
	peers := s.peers()
	i := slices.IndexFunc(peers, func(f corev1beta1.ForeignCluster) bool { return f.Spec.ClusterID == id })
	if i < 0 {
		return nil
	}
	f := &peers[i]
	objects := s.of(id)
	inspected := InspectPeer(f, objects, s.Source())
	out := &PeerPage{MapPeer: s.mapPeer(f, inspected, s.usage()), Detail: inspected, Conditions: conditionsOf(f),
		Keys: s.keys(id, objects), Ranges: s.mappedRanges(id, objects), RangesMissing: s.Hidden["Configuration"],
		Reach: s.reach(f, objects), Certificates: certificatesOf(objects), EventsMissing: s.Hidden["Event"],
		Hidden: s.hidden()}
	namespaces := map[string]bool{}
	if t := f.Status.TenantNamespace; t != nil && t.Local != "" {
		namespaces[t.Local] = true
	}
	out.Tunnels = s.tunnels(objects, namespaces)
	nodes := s.providers()
	out.Events = s.events(func(e *Event) bool {
		return namespaces[e.Namespace] || e.Kind == "Node" && nodes[e.Name] == id
	})
	return out
}

// certificatesOf returns the client certificates of Identities.
func certificatesOf(objects *PeerObjects) []Certificate {
	var out []Certificate
	for _, identity := range objects.Identities.Items {
		text := identityplan.Held(identity.Spec.AuthParams)
		held := Certificate{Name: identity.Name, Issued: len(text) > 0}
		if parsed, err := identityplan.ParseCertificate(text); err == nil {
			held.Ends = parsed.NotAfter
		}
		out = append(out, held)
	}
	return out
}

// conditionsOf returns the conditions of a peer and of its modules.
func conditionsOf(f *corev1beta1.ForeignCluster) []Condition {
	var out []Condition
	add := func(module string, conditions []corev1beta1.Condition) {
		for _, c := range conditions {
			bad := c.Status != corev1beta1.ConditionReady && c.Status != corev1beta1.ConditionEstablished &&
				c.Status != "True"
			if c.Type == "Reconciling" || c.Type == "Stalled" { // these are True while something is wrong
				bad = c.Status == "True"
			}
			out = append(out, Condition{module, string(c.Type), string(c.Status), c.Reason, c.Message,
				c.LastTransitionTime.Time, bad})
		}
	}
	add("", f.Status.Conditions)
	add("network", f.Status.Modules.Networking.Conditions)
	add("access", f.Status.Modules.Authentication.Conditions)
	add("offloading", f.Status.Modules.Offloading.Conditions)
	return out
}

// Event reports what happened to an object. At is zero if it does not say when.
type Event struct {
	At                    time.Time
	Warning               bool
	Kind, Namespace, Name string
	Reason, Message       string
	// Count is how often it was seen, at least 1.
	Count int32
}

// mostEvents bounds how many events a page shows.
const mostEvents = 200

// EventPage lists the events about Liqo and what it offloads, latest first.
type EventPage struct {
	Events []Event
	// Missing says why no events are known; empty if they are.
	Missing string
	Hidden  []string
}

// EventPage returns the latest events of the installation, of peerings, of offloaded namespaces and of virtual nodes.
func (s *Snapshot) EventPage() *EventPage {
	relevant := map[string]bool{s.Namespace: true}
	for _, f := range s.ForeignClusters.Items {
		if t := f.Status.TenantNamespace; t != nil {
			relevant[t.Local] = true
		}
	}
	for _, n := range s.Offloadings.Items {
		relevant[n.Namespace] = true
	}
	delete(relevant, "")
	nodes := s.providers()
	return &EventPage{Missing: s.Hidden["Event"], Hidden: s.hidden(), Events: s.events(func(e *Event) bool {
		return relevant[e.Namespace] || e.Kind == "Node" && nodes[e.Name] != "" || e.Kind == "ForeignCluster"
	})}
}

// events returns the latest events that keep holds for, latest first.
func (s *Snapshot) events(keep func(*Event) bool) []Event {
	var out []Event
	for i := range s.Events.Items {
		e := &s.Events.Items[i]
		row := Event{At: EventTime(e), Warning: e.Type != "Normal", Kind: e.InvolvedObject.Kind,
			Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message,
			Count: max(1, e.Count)}
		if e.Series != nil {
			row.Count = max(row.Count, e.Series.Count)
		}
		if keep(&row) {
			out = append(out, row)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Object(), b.Object()), cmp.Compare(a.Reason, b.Reason))
	})
	return out[:min(len(out), mostEvents)]
}

// Object returns kind and name of what the event is about, as kubectl takes them.
func (e *Event) Object() string {
	return Name(e.Kind, &metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name})
}
