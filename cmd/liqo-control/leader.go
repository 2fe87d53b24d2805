// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/elect"
)

// lock returns the lock that replicas compete for. Its holder is the pod, so that a restarted
// container takes its own lease over at once. Outside of pods each process has a holder of its own.
func (f *controllerFlags) lock(config *rest.Config) (*elect.Lock, error) {
	holder := f.podName
	if holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("read the name of this host: %w", err)
		}
		holder = host + "_" + string(uuid.NewUUID())
	}
	config = rest.AddUserAgent(config, "leader-election")
	// A request that hangs does not lose the lease.
	config.Timeout = max(f.renewDeadline()/2, time.Second)
	clients, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of leases: %w", err)
	}
	return elect.NewLock(clients, f.liqoNamespace, api.ControllerManagerName, holder), nil
}

// led returns a check that a replica fails until it has observed a leader: itself, or a pod that
// renews the lease and is not being deleted. It passes from then on, because a replica that follows
// serves webhooks also while nobody leads.
func led(lock *elect.Lock, namespace string, reader client.Reader) healthz.Checker {
	var passed atomic.Bool
	return func(r *http.Request) error {
		leader := lock.Leader()
		switch {
		case passed.Load():
			return nil
		case leader == "":
			return fmt.Errorf("nobody was seen to renew lease %s", lock.Describe())
		case leader != lock.Identity():
			var pod corev1.Pod
			name, _, _ := strings.Cut(leader, "_") // former versions add a random part
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if err := reader.Get(r.Context(), key, &pod); err != nil {
				return fmt.Errorf("get leader %s: %w", name, err)
			}
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("leader %s is being deleted", name)
			}
		}
		passed.Store(true)
		return nil
	}
}
