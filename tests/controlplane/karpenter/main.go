// Karpenter's core with its KWOK provider, which starts a node by making a Node
// object. Two things are ours, since that provider has no setting for them:
// devices.go says which devices an instance type has, launches.go has launches
// refused.
package main

import (
	"os"

	"github.com/samber/lo"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	ctx, op := operator.NewOperator()
	kube := op.GetClient()
	types := lo.Must(kwok.ConstructInstanceTypes(ctx))
	if path := os.Getenv("DEVICES_FILE_PATH"); path != "" {
		lo.Must0(addDevices(types, lo.Must(os.ReadFile(path))))
	}
	launched := soldOut{kwok.NewCloudProvider(ctx, kube, types)}
	decorated := overlay.Decorate(launched, kube, op.InstanceTypeStore)
	repairs := state.WithRepairPolicyMatcher(lo.Must(health.NewRepairPolicyMatcher(ctx, decorated)))
	cluster := state.NewCluster(op.Clock, kube, decorated, repairs)
	all := controllers.NewControllers(
		ctx, op.Manager, op.Clock, kube, op.EventRecorder, decorated, launched, cluster, op.InstanceTypeStore,
		op.PredictionStore,
	)
	op.WithControllers(ctx, all...).Start(ctx)
}
