// What the releases of Kubernetes write otherwise; all other files are the same
// text for every release.
package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// The gates that a record names. 1.34 knows no attributes that are lists, and
// two gates where later releases have DeviceBindingAndStatus.
type allocatorFeatures struct {
	structured.Features
	DeviceBindingAndStatus bool
}

func (f allocatorFeatures) compiler() cel.Features {
	return cel.Features{EnableConsumableCapacity: f.ConsumableCapacity}
}

// allocator is the one that 1.34 chooses for the gates: it can be told no other.
// DRAResourceClaimDeviceStatus is on in a 1.34 as it comes, which alone makes it
// the experimental one.
func (r *record) allocator(ctx context.Context, cache *cel.Cache) (structured.Allocator, error) {
	gates := r.Features.Features
	gates.DeviceBinding, gates.DeviceStatus = r.Features.DeviceBindingAndStatus, true
	chosen, err := structured.NewAllocator(ctx, gates, r.state(), r.Classes, r.Slices, cache)
	if err == nil && !strings.Contains(fmt.Sprintf("%T", chosen), r.Allocator) {
		return nil, fmt.Errorf("1.34 chooses %T for these gates, and not %s", chosen, r.Allocator)
	}
	return chosen, err
}

// concernsOneNode: in 1.34 every error ends the search.
func concernsOneNode(error) bool { return false }

func noRecorder(string) events.EventRecorder { return nil }

// recordNodeResources does nothing: in 1.34 devices take nothing of their nodes.
func recordNodeResources(klog.Logger, fwk.CycleState, *corev1.Pod, string) {}
