package main

import (
	"context"
	"fmt"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

const soldOutLabel = "test.muster.dev/sold-out"

// soldOut is a provider that has no machine for NodeClaims with the label, and
// says so as a cloud does.
type soldOut struct{ cloudprovider.CloudProvider }

func (s soldOut) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	if claim.Labels[soldOutLabel] == "true" {
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("no machine for %s", claim.Name))
	}
	return s.CloudProvider.Create(ctx, claim)
}
