// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command devices is a driver for dynamic resource allocation, of devices that do not exist. It runs in a pod, with the
// folders of the kubelet's plugins. Its arguments are the name of the node and how many devices that has.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driverName is the driver in ResourceSlices. DeviceClasses select devices by it.
const driverName = "devices.testbed.local"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "devices:", err)
		os.Exit(1)
	}
}

// run offers devices until the context ends.
func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("say the node and how many devices it has")
	}
	node := args[0]
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(kubeletplugin.KubeletPluginsDir+"/"+driverName, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, plugin{}, kubeletplugin.DriverName(driverName), kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client), kubeletplugin.HealthService(false))
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := make([]resourcev1.Device, count)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("device-%d", i)
	}
	pools := map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: devices}}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// plugin implements kubeletplugin.DRAPlugin. It reports each device as prepared and changes no container.
type plugin struct{}

func (plugin) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, device := range claim.Status.Allocation.Devices.Results {
			fmt.Println("prepare", device.Device, "for", claim.Namespace)
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{device.Request}, PoolName: device.Pool, DeviceName: device.Device,
			})
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

func (plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	done := map[types.UID]error{}
	for _, claim := range claims {
		done[claim.UID] = nil
	}
	return done, nil
}

func (plugin) HandleError(_ context.Context, err error, what string) { fmt.Println(what+":", err) }

func (plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
