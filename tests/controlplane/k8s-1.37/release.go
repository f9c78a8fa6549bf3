// What the releases of Kubernetes write otherwise; all other files are the same
// text for every release.
package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
)

// The gates that a record names.
type allocatorFeatures struct{ structured.Features }

func (f allocatorFeatures) compiler() cel.Features {
	return cel.Features{
		EnableConsumableCapacity: f.ConsumableCapacity,
		EnableListTypeAttributes: f.ListTypeAttributes,
	}
}

func (r *record) allocator(ctx context.Context, cache *cel.Cache) (structured.Allocator, error) {
	structured.EnableAllocators(r.Allocator)
	return structured.NewAllocator(ctx, r.Features.Features, r.state(), r.Classes, r.Slices, cache)
}

func concernsOneNode(err error) bool { return errors.Is(err, structured.ErrFailedAllocationOnNode) }

func noRecorder(string) events.EventRecorderLogger { return nil }

// recordNodeResources writes into a pod's status what its devices take of the node.
func recordNodeResources(logger klog.Logger, state fwk.CycleState, pod *corev1.Pod, node string) {
	if utilfeature.DefaultFeatureGate.Enabled(features.DRANodeAllocatableResources) {
		pod.Status.NodeAllocatableResourceClaimStatuses =
			dynamicresources.ExtractPodNodeAllocatableResourceClaimStatus(logger, state, node)
	}
}

func (still) HasSyncedChecker() cache.DoneChecker { return done{} }
func (done) HasSyncedChecker() cache.DoneChecker  { return done{} }
