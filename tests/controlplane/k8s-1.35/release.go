// What the releases of Kubernetes write otherwise; all other files are the same
// text for every release.
package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// The gates that a record names. 1.35 knows no attributes that are lists.
type allocatorFeatures struct{ structured.Features }

func (f allocatorFeatures) compiler() cel.Features {
	return cel.Features{EnableConsumableCapacity: f.ConsumableCapacity}
}

func (r *record) allocator(ctx context.Context, cache *cel.Cache) (structured.Allocator, error) {
	structured.EnableAllocators(r.Allocator)
	return structured.NewAllocator(ctx, r.Features.Features, r.state(), r.Classes, r.Slices, cache)
}

func concernsOneNode(err error) bool { return errors.Is(err, structured.ErrFailedAllocationOnNode) }

func noRecorder(string) events.EventRecorder { return nil }

// recordNodeResources does nothing: in 1.35 devices take nothing of their nodes.
func recordNodeResources(klog.Logger, fwk.CycleState, *corev1.Pod, string) {}
